import type { Duration } from 'aws-cdk-lib';
import { Grant, type IGrantable } from 'aws-cdk-lib/aws-iam';
import { EventSourceMapping, type IEventSourceMapping } from 'aws-cdk-lib/aws-lambda';
import type { Construct } from 'constructs';
import type { Parts } from './parts.ts';
import { type FunctionSettings, PipelineFunction } from './pipeline-function.ts';

/** Lambda requires a batching window for batches larger than this. */
const WINDOWLESS_BATCH_SIZE_MAX = 10;

export interface CreateFlowProps extends FunctionSettings {
  readonly parts: Parts;
  /** True if a route has an `after`, so that flows get assets as their inputs. */
  readonly hasChains: boolean;
  readonly uploadConcurrency: number;
  readonly maxConcurrency: number;
  readonly batchWindow: Duration;
}

/** The function that creates one flow for each upload in the queue. */
export class CreateFlow extends PipelineFunction {
  /** Brings uploads from their queue to the function. Without it no flow begins, and the uploads wait in the queue. */
  readonly mapping: IEventSourceMapping;

  constructor(scope: Construct, id: string, props: CreateFlowProps) {
    const { parts, hasChains, uploadConcurrency, maxConcurrency, batchWindow, ...settings } = props;
    super(scope, id, {
      ...settings,
      entry: 'create-flow',
      functionName: `${settings.environment.PIPELINE}-create-flow`,
      description: 'Creates a flow for each file that is put into the inbox',
    });
    parts.inbox.grantOpen(this.role);
    if (hasChains) parts.results.grantInputs(this.role);
    else parts.results.grantReceipts(this.role);
    parts.ledger.grantCreate(this.role);
    parts.token.grantRead(this.role);
    parts.uploads.grantConsume(this.role);
    parts.events.grantPut(this.role);
    this.mapping = new EventSourceMapping(this, 'Uploads', {
      target: this.function,
      eventSourceArn: parts.uploads.queue.queueArn,
      // As many as an invocation sends concurrently, so that no upload of a batch waits for another.
      batchSize:
        batchWindow.toSeconds() > 0 ? uploadConcurrency : Math.min(uploadConcurrency, WINDOWLESS_BATCH_SIZE_MAX),
      maxBatchingWindow: batchWindow,
      reportBatchItemFailures: true,
      // Not reserved concurrency: with that, the poller receives messages that Lambda then throttles. They would become
      // dead letters without ever being handled.
      maxConcurrency,
    });
    // Lambda creates the mapping only if the role may already receive messages.
    this.mapping.node.addDependency(this.role);
  }

  /** Allows the grantee to see whether uploads become flows. */
  grantView(grantee: IGrantable): void {
    const resourceArns = [this.mapping.eventSourceMappingArn];
    Grant.addToPrincipal({ grantee, actions: ['lambda:GetEventSourceMapping'], resourceArns });
  }

  /**
   * Allows the grantee to pause and resume. IAM cannot tell the field of an update, so the grantee may also change the
   * sizes of batches. It may not have another function invoked.
   * @see https://docs.aws.amazon.com/lambda/latest/dg/lambda-api-permissions-ref.html
   */
  grantPause(grantee: IGrantable): void {
    Grant.addToPrincipal({
      grantee,
      actions: ['lambda:UpdateEventSourceMapping'],
      resourceArns: [this.mapping.eventSourceMappingArn],
      conditions: { ArnEquals: { 'lambda:FunctionArn': this.function.functionArn } },
    });
  }
}
