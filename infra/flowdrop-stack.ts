import { CfnOutput, Stack, type StackProps, Tags } from 'aws-cdk-lib';
import type { IKey } from 'aws-cdk-lib/aws-kms';
import { type ITopic, Topic } from 'aws-cdk-lib/aws-sns';
import { EmailSubscription } from 'aws-cdk-lib/aws-sns-subscriptions';
import { Construct } from 'constructs';
import { allowSending } from './constructs/encryption.ts';
import { type Deployment, parseStackContext, pipelinePropsOf } from './deployment.ts';
import { FlowPipeline } from './flow-pipeline.ts';

export interface FlowdropStackProps extends StackProps {
  /** The context `flowdrop`, as it stands in cdk.json. */
  readonly context: unknown;
}

/** One pipeline as cdk.json describes it, and what one needs to know to use it. */
export class FlowdropStack extends Stack {
  readonly pipeline: FlowPipeline;

  /** @throws {ConfigurationError} naming every issue of the context with its path and value. */
  constructor(scope: Construct, id: string, { context, ...props }: FlowdropStackProps) {
    super(scope, id, props);
    const {
      context: { pipeline, baseUrl, routes, settings },
      deployment,
    } = parseStackContext(context);
    const pipelineProps = pipelinePropsOf(deployment, new Construct(this, 'Given'));
    this.pipeline = new FlowPipeline(this, 'Pipeline', {
      ...pipelineProps,
      name: pipeline,
      baseUrl: baseUrl.href,
      routes,
      settings,
      alarmTopic: this.#alarmTopic(deployment, pipelineProps.encryptionKey),
    });
    for (const [name, value] of Object.entries(deployment.tags ?? {})) Tags.of(this).add(name, value);
    this.#print({
      Inbox: [this.pipeline.inboxBucket.bucketName, 'Bucket that files are dropped into'],
      Results: [this.pipeline.resultsBucket.bucketName, 'Bucket where assets and receipts are found'],
      Ledger: [this.pipeline.ledgerBucket.bucketName, 'Bucket of the pipeline itself, with an entry for each upload'],
      TokenSecret: [this.pipeline.tokenSecret.secretArn, "Secret that the flow service's token is put into"],
      Queue: [this.pipeline.queue.queueUrl, 'Uploads on their way to the function that starts flows'],
      DeadLetterQueue: [this.pipeline.deadLetterQueue.queueUrl, 'Uploads that could not even be started'],
    });
  }

  #alarmTopic({ alarmEmail }: Deployment, masterKey: IKey | undefined): ITopic | undefined {
    if (alarmEmail === undefined) return undefined;
    const topic = new Topic(this, 'Alarms', { enforceSSL: true, masterKey });
    topic.addSubscription(new EmailSubscription(alarmEmail));
    allowSending(this, masterKey, 'cloudwatch.amazonaws.com');
    return topic;
  }

  #print(outputs: Readonly<Record<string, readonly [value: string, description: string]>>): void {
    for (const [name, [value, description]] of Object.entries(outputs))
      new CfnOutput(this, name, { value, description });
  }
}
