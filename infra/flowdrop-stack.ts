import { CfnOutput, Stack, type StackProps } from 'aws-cdk-lib';
import type { Construct } from 'constructs';
import { FlowPipeline, type FlowPipelineProps } from './flow-pipeline.ts';

export interface FlowdropStackProps extends StackProps {
  readonly pipeline: FlowPipelineProps;
}

/** One pipeline, and what one needs to know to use it. */
export class FlowdropStack extends Stack {
  readonly pipeline: FlowPipeline;

  constructor(scope: Construct, id: string, { pipeline, ...props }: FlowdropStackProps) {
    super(scope, id, props);
    this.pipeline = new FlowPipeline(this, 'Pipeline', pipeline);
    const outputs: Readonly<Record<string, string>> = {
      Inbox: this.pipeline.inboxBucket.bucketName,
      Results: this.pipeline.resultsBucket.bucketName,
      Ledger: this.pipeline.ledgerBucket.bucketName,
      TokenSecret: this.pipeline.tokenSecret.secretArn,
      DeadLetterQueue: this.pipeline.deadLetterQueue.queueUrl,
    };
    for (const [name, value] of Object.entries(outputs)) new CfnOutput(this, name, { value });
  }
}
