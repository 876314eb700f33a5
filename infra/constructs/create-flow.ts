import type { Duration } from 'aws-cdk-lib';
import { EventSourceMapping } from 'aws-cdk-lib/aws-lambda';
import type { Construct } from 'constructs';
import type { Parts } from './parts.ts';
import { type FunctionSettings, PipelineFunction } from './pipeline-function.ts';

/** Largest batch for which Lambda needs no batching window, which it then calls for. */
const WINDOWLESS_BATCH_SIZE_MAX = 10;

export interface CreateFlowProps extends FunctionSettings {
  readonly parts: Parts;
  readonly uploadConcurrency: number;
  readonly maxConcurrency: number;
  readonly batchWindow: Duration;
}

/** The function that starts a flow for each upload in the queue. */
export class CreateFlow extends PipelineFunction {
  constructor(scope: Construct, id: string, props: CreateFlowProps) {
    const { parts, uploadConcurrency, maxConcurrency, batchWindow, ...settings } = props;
    super(scope, id, {
      ...settings,
      entry: 'create-flow',
      functionName: `${settings.environment.PIPELINE}-create-flow`,
      description: 'Starts a flow for each file that is dropped into the inbox',
    });
    parts.inbox.grantOpen(this.role);
    parts.results.grantReceipts(this.role);
    parts.ledger.grantCreate(this.role);
    parts.token.grantRead(this.role);
    parts.uploads.grantConsume(this.role);
    parts.events.grantPut(this.role);
    const mapping = new EventSourceMapping(this, 'Uploads', {
      target: this.function,
      eventSourceArn: parts.uploads.queue.queueArn,
      // As many as an invocation sends side by side, so that none waits in it for another.
      batchSize:
        batchWindow.toSeconds() > 0 ? uploadConcurrency : Math.min(uploadConcurrency, WINDOWLESS_BATCH_SIZE_MAX),
      maxBatchingWindow: batchWindow,
      reportBatchItemFailures: true,
      // Not reserved concurrency: with that, messages are received and not handled, and end as dead letters untouched.
      maxConcurrency,
    });
    // Lambda checks that the role may receive before it makes the mapping.
    mapping.node.addDependency(this.role);
  }
}
