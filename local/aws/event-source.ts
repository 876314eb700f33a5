import type { Clock } from '../../functions/base/clock.ts';
import { messageAttributes, type Queue, type ReceivedMessage } from './queue.ts';

/** Longest that one receive waits, in seconds: SQS's own limit. */
const WAIT_SECONDS_MAX = 20;

/** What a function gets, as far as anything here looks at it. */
export interface SqsEvent {
  readonly Records: readonly { readonly messageId: string; readonly body: string }[];
}

export interface EventSourceOptions {
  readonly queue: Queue;
  /** Invokes the function with an SQS event. A rejection leaves the whole batch in the queue. */
  readonly invoke: (event: SqsEvent) => Promise<unknown>;
  readonly clock: Clock;
  /** Most messages given to one invocation. Default 10. */
  readonly batchSize?: number;
  /** How long a batch that is not full waits for more, in seconds. Default 0. */
  readonly batchWindowSeconds?: number;
  /** Most invocations at a time, which AWS calls maximum concurrency; there at least 2. Default 2. */
  readonly concurrency?: number;
  /** Told of an invocation that failed as a whole. */
  readonly onFault: (error: unknown) => void;
}

/**
 * Lambda's event source mapping for SQS: takes batches from a queue, invokes the function, and deletes what it dealt
 * with. What failed stays in the queue and comes again when its visibility timeout has passed.
 * https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html
 */
export class EventSource {
  readonly #options: Required<EventSourceOptions>;
  readonly #stop = new AbortController();
  readonly #loops: Promise<void>[];

  constructor(options: EventSourceOptions) {
    this.#options = { batchSize: 10, batchWindowSeconds: 0, concurrency: 2, ...options };
    this.#loops = Array.from({ length: this.#options.concurrency }, () => this.#loop());
  }

  /** Takes no more messages, and resolves when the invocations under way have ended. */
  async close(): Promise<void> {
    this.#stop.abort();
    await Promise.all(this.#loops);
  }

  async #loop(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      let batch: ReceivedMessage[];
      try {
        batch = await this.#nextBatch(signal);
      } catch (error) {
        if (signal.aborted) return;
        throw error;
      }
      if (batch.length > 0) await this.#process(batch);
    }
  }

  async #nextBatch(signal: AbortSignal): Promise<ReceivedMessage[]> {
    const { queue, batchSize, batchWindowSeconds, clock } = this.#options;
    const batch = await queue.receiveWaiting({ max: batchSize, waitSeconds: WAIT_SECONDS_MAX }, signal);
    const closesAt = clock.now() + batchWindowSeconds * 1000;
    while (batch.length > 0 && batch.length < batchSize && clock.now() < closesAt) {
      const waitSeconds = Math.min(WAIT_SECONDS_MAX, Math.ceil((closesAt - clock.now()) / 1000));
      batch.push(...(await queue.receiveWaiting({ max: batchSize - batch.length, waitSeconds }, signal)));
    }
    return batch;
  }

  async #process(batch: readonly ReceivedMessage[]): Promise<void> {
    const { queue, invoke, onFault } = this.#options;
    try {
      const failed = failedIds(await invoke(sqsEvent(queue.name, batch)), batch);
      for (const { messageId, receiptHandle } of batch) {
        if (!failed.has(messageId)) queue.delete(receiptHandle);
      }
    } catch (error) {
      onFault(error);
    }
  }
}

function sqsEvent(queueName: string, batch: readonly ReceivedMessage[]): SqsEvent {
  return {
    Records: batch.map((message) => ({
      messageId: message.messageId,
      receiptHandle: message.receiptHandle,
      body: message.body,
      attributes: messageAttributes(message),
      messageAttributes: {},
      md5OfBody: message.md5OfBody,
      eventSource: 'aws:sqs',
      eventSourceARN: `arn:aws:sqs:us-east-1:000000000000:${queueName}`,
      awsRegion: 'us-east-1',
    })),
  };
}

/**
 * The messages that the function reported as failed. An answer that cannot be right counts as the failure of them all.
 * @throws {Error}
 */
function failedIds(payload: unknown, batch: readonly ReceivedMessage[]): ReadonlySet<string> {
  const { batchItemFailures = [] } = (payload ?? {}) as {
    batchItemFailures?: readonly { readonly itemIdentifier?: string }[] | null;
  };
  const ids = (batchItemFailures ?? []).map(({ itemIdentifier }) => itemIdentifier ?? '');
  const unknown = ids.find((id) => !batch.some(({ messageId }) => messageId === id));
  if (unknown !== undefined) throw new Error(`The function reported a failure of "${unknown}", which it was not given`);
  return new Set(ids);
}
