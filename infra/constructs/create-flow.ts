import type { Duration } from 'aws-cdk-lib';
import { EventInvokeConfig, EventSourceMapping } from 'aws-cdk-lib/aws-lambda';
import type { Construct } from 'constructs';
import type { Parts } from './parts.ts';
import { type FunctionSettings, PipelineFunction } from './pipeline-function.ts';
import { EVENT_AGE_MIN, Schedules } from './schedules.ts';

/** Lambda requires a batching window for batches larger than this. */
const WINDOWLESS_BATCH_SIZE_MAX = 10;

export interface CreateFlowProps extends FunctionSettings {
  readonly parts: Parts;
  /** True if a route has an `after`, so that flows get assets as their inputs. */
  readonly hasChains: boolean;
  /** True if a route has `"afterSuccess": "tag"`. */
  readonly tagsFiles: boolean;
  /** True if assets expire. */
  readonly expire: boolean;
  readonly uploadConcurrency: number;
  readonly maxConcurrency: number;
  readonly batchWindow: Duration;
  /** Key of the file that is put again every hour. Empty if there is none. */
  readonly canaryKey: string;
}

/** The function that creates one flow for each upload in the queue. */
export class CreateFlow extends PipelineFunction {
  constructor(scope: Construct, id: string, props: CreateFlowProps) {
    const { parts, hasChains, tagsFiles, expire, ...more } = props;
    const { uploadConcurrency, maxConcurrency, batchWindow, canaryKey, ...settings } = more;
    super(scope, id, {
      ...settings,
      entry: 'create-flow',
      functionName: `${settings.environment.PIPELINE}-create-flow`,
      description: 'Creates a flow for each file that is put into the inbox',
    });
    parts.inbox.grantOpen(this.role);
    if (tagsFiles) parts.inbox.grantTag(this.role);
    if (hasChains) parts.results.grantInputs(this.role);
    else parts.results.grantReceipts(this.role);
    // The last upload of a chain may fail here.
    if (hasChains && expire) parts.results.grantExpire(this.role);
    parts.ledger.grantCreate(this.role);
    parts.token.grantRead(this.role);
    parts.uploads.grantConsume(this.role);
    parts.events.grantPut(this.role);
    const mapping = new EventSourceMapping(this, 'Uploads', {
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
    mapping.node.addDependency(this.role);
    if (canaryKey !== '') this.#putHourly(canaryKey, parts);
  }

  #putHourly(canaryKey: string, { inbox }: Parts): void {
    inbox.grantPut(this.role, canaryKey);
    // The next canary comes in an hour. Without this, Lambda would keep the events of an outage for six hours, and then
    // put a canary for each. It does not concern the messages of the queue.
    new EventInvokeConfig(this, 'Canaries', { function: this.function, retryAttempts: 0, maxEventAge: EVENT_AGE_MIN });
    const schedules = new Schedules(this, 'Canary', { function: this.function, what: 'the canary' });
    schedules.add('Hourly', {
      description: 'Puts the canary again',
      rate: 'rate(1 hour)',
      event: { canary: true },
    });
  }
}
