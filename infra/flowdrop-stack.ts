import { CfnOutput, Stack, type StackProps, Tags } from 'aws-cdk-lib';
import type { IKey } from 'aws-cdk-lib/aws-kms';
import { type ITopic, Topic } from 'aws-cdk-lib/aws-sns';
import { EmailSubscription } from 'aws-cdk-lib/aws-sns-subscriptions';
import { Construct } from 'constructs';
import { parseContext } from '../functions/config.ts';
import { type Deployment, parseDeployment, pipelinePropsOf } from './deployment.ts';
import { allowSending } from './encryption.ts';
import { FlowPipeline } from './flow-pipeline.ts';

export interface FlowdropStackProps extends StackProps {
  /** The context `flowdrop`, as it stands in cdk.json. */
  readonly context: unknown;
}

/** One pipeline as cdk.json describes it, and what one needs to know to use it. */
export class FlowdropStack extends Stack {
  readonly pipeline: FlowPipeline;

  /** @throws {ConfigurationError} naming every fault of the context with its path and value. */
  constructor(scope: Construct, id: string, { context, ...props }: FlowdropStackProps) {
    super(scope, id, props);
    const { pipeline, baseUrl, routes, limits, deployment: unchecked } = parseContext(context);
    const deployment = parseDeployment(unchecked);
    const pipelineProps = pipelinePropsOf(deployment, new Construct(this, 'Given'));
    this.pipeline = new FlowPipeline(this, 'Pipeline', {
      ...pipelineProps,
      name: pipeline,
      baseUrl: baseUrl.href,
      routes,
      limits,
      alarmTopic: this.#alarmTopic(deployment, pipelineProps.encryptionKey),
    });
    for (const [name, value] of Object.entries(deployment.tags ?? {})) Tags.of(this).add(name, value);
    this.#print({
      Inbox: this.pipeline.inboxBucket.bucketName,
      Results: this.pipeline.resultsBucket.bucketName,
      Ledger: this.pipeline.ledgerBucket.bucketName,
      TokenSecret: this.pipeline.tokenSecret.secretArn,
      Queue: this.pipeline.queue.queueUrl,
      DeadLetterQueue: this.pipeline.deadLetterQueue.queueUrl,
    });
  }

  #alarmTopic({ alarmEmail }: Deployment, masterKey: IKey | undefined): ITopic | undefined {
    if (alarmEmail === undefined) return undefined;
    const topic = new Topic(this, 'Alarms', { enforceSSL: true, masterKey });
    topic.addSubscription(new EmailSubscription(alarmEmail));
    allowSending(this, masterKey, 'cloudwatch.amazonaws.com');
    return topic;
  }

  #print(outputs: Readonly<Record<string, string>>): void {
    for (const [name, value] of Object.entries(outputs)) new CfnOutput(this, name, { value });
  }
}
