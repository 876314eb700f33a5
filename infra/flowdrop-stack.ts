import { CfnOutput, Stack, type StackProps, Tags } from 'aws-cdk-lib';
import { type IRole, Role } from 'aws-cdk-lib/aws-iam';
import type { IKey } from 'aws-cdk-lib/aws-kms';
import { type ITopic, Topic } from 'aws-cdk-lib/aws-sns';
import { EmailSubscription } from 'aws-cdk-lib/aws-sns-subscriptions';
import { StringParameter } from 'aws-cdk-lib/aws-ssm';
import { Construct } from 'constructs';
import { type Deployment, parseStackContext } from './deployment.ts';
import { deploymentProps, existingTopic } from './deployment-props.ts';
import { FlowPipeline } from './flow-pipeline.ts';

export interface FlowdropStackProps extends StackProps {
  /** The context `flowdrop` of cdk.json, not yet checked. */
  readonly context: unknown;
}

/** One pipeline as cdk.json describes it. Its outputs name the resources that its users need. */
export class FlowdropStack extends Stack {
  readonly pipeline: FlowPipeline;

  /** @throws {ConfigurationError} naming every issue of the context with its path and value. */
  constructor(scope: Construct, id: string, { context, ...props }: FlowdropStackProps) {
    const {
      context: { pipeline, baseUrl, routes, settings, service },
      deployment,
    } = parseStackContext(context);
    const { account, region } = deployment;
    super(scope, id, { env: { account, region }, ...props });
    this.terminationProtection = deployment.terminationProtection ?? false;
    const pipelineProps = deploymentProps(deployment, new Construct(this, 'Given'));
    this.pipeline = new FlowPipeline(this, 'Pipeline', {
      ...pipelineProps,
      name: pipeline,
      baseUrl: baseUrl.href,
      routes,
      settings,
      service,
      alarmTopic: this.#alarmTopic(deployment, pipelineProps.encryptionKey),
    });
    this.#grantRoles(deployment);
    for (const [name, value] of Object.entries(deployment.tags ?? {})) Tags.of(this).add(name, value);
    this.#print(deployment.outputParameters ? pipeline : undefined, {
      Inbox: [this.pipeline.inboxBucket.bucketName, 'Bucket to put files into'],
      Results: [this.pipeline.resultsBucket.bucketName, 'Bucket of assets and receipts'],
      Ledger: [
        this.pipeline.ledgerBucket.bucketName,
        "Bucket of the pipeline's own records, with an entry for each upload",
      ],
      TokenSecret: [this.pipeline.tokenSecretId, 'Secret to store the token of the flow service in'],
      Queue: [this.pipeline.queue.queueUrl, 'Queue of uploads for the function that creates flows'],
      CollectFunction: [
        this.pipeline.collectOutputsFunction.functionName,
        'Function that fetches outputs, and does what an operator asks for',
      ],
      DeadLetterQueue: [this.pipeline.deadLetterQueue.queueUrl, 'Queue of uploads that could not be started'],
    });
  }

  #alarmTopic({ alarmEmail, alarmTopicArn }: Deployment, masterKey: IKey | undefined): ITopic | undefined {
    if (alarmEmail === undefined) return existingTopic(this, 'AlarmTopic', alarmTopicArn);
    const topic = new Topic(this, 'Alarms', { enforceSSL: true, masterKey });
    topic.addSubscription(new EmailSubscription(alarmEmail));
    return topic;
  }

  #grantRoles({ viewerRoleArns = [], operatorRoleArns = [], uploaderRoleArns = [] }: Deployment): void {
    /** By name. It is unique in the account, whatever the path. */
    const roles = new Map<string, IRole>();
    const roleOf = (arn: string): IRole => {
      const name = arn.slice(arn.lastIndexOf('/') + 1);
      const known = roles.get(name);
      if (known !== undefined) return known;
      const role = Role.fromRoleArn(this, `Role ${name}`, arn);
      roles.set(name, role);
      return role;
    };
    for (const arn of viewerRoleArns) this.pipeline.grantView(roleOf(arn));
    for (const arn of operatorRoleArns) this.pipeline.grantOperate(roleOf(arn));
    for (const arn of uploaderRoleArns) this.pipeline.grantUpload(roleOf(arn));
  }

  /** @param pipeline given if other stacks read the outputs, as parameters `/<pipeline>/<name>` in Systems Manager. */
  #print(
    pipeline: string | undefined,
    outputs: Readonly<Record<string, readonly [value: string, description: string]>>,
  ): void {
    for (const [name, [value, description]] of Object.entries(outputs)) {
      new CfnOutput(this, name, { value, description });
      if (pipeline === undefined) continue;
      const parameterName = `/${pipeline}/${name}`;
      new StringParameter(this, `${name}Parameter`, { parameterName, stringValue: value, description });
    }
  }
}
