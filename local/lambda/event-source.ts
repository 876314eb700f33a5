import type { Queue, ReceivedMessage } from '../aws/sqs.ts';

/** Maximum wait of one receive, in seconds. It is SQS's limit. */
const WAIT_SECONDS_MAX = 20;
/** Maximum number of messages in one invocation. It is SQS's limit for one receive. */
const BATCH_MAX = 10;

/** The event that the function gets. Only the fields that this process reads are typed. */
export interface SqsEvent {
  readonly Records: readonly { readonly messageId: string; readonly body: string }[];
}

export interface EventSourceOptions {
  readonly queue: Queue;
  /** Invokes the function. If it rejects, the whole batch stays in the queue. */
  readonly invoke: (event: SqsEvent) => Promise<unknown>;
  /** Maximum number of invocations at the same time. */
  readonly concurrency: number;
  /** Called for an invocation that failed as a whole. */
  readonly onFault: (error: unknown) => void;
}

/**
 * Lambda's event source mapping for SQS. It takes batches from a queue, invokes the function, and deletes the messages
 * that the function processed. Failed messages stay in the queue and come back after their visibility timeout.
 * https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html
 */
export class EventSource {
  readonly #options: EventSourceOptions;
  readonly #stop = new AbortController();
  readonly #loops: readonly Promise<void>[];

  constructor(options: EventSourceOptions) {
    this.#options = options;
    this.#loops = Array.from({ length: options.concurrency }, () => this.#loop());
  }

  /** Takes no more messages. Resolves when the running invocations have ended. */
  async close(): Promise<void> {
    this.#stop.abort();
    await Promise.all(this.#loops);
  }

  async #loop(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      let batch: ReceivedMessage[];
      try {
        batch = await this.#options.queue.receiveWaiting({ max: BATCH_MAX, waitSeconds: WAIT_SECONDS_MAX }, signal);
      } catch (error) {
        if (signal.aborted) return;
        throw error;
      }
      if (batch.length > 0) await this.#process(batch);
    }
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
      attributes: {
        ApproximateReceiveCount: String(message.receiveCount),
        SentTimestamp: String(message.sentAt),
        SenderId: 'AIDAIENQZJOLO23YVJ4VO',
        ApproximateFirstReceiveTimestamp: String(message.firstReceivedAt),
      },
      messageAttributes: {},
      md5OfBody: message.md5OfBody,
      eventSource: 'aws:sqs',
      eventSourceARN: `arn:aws:sqs:us-east-1:000000000000:${queueName}`,
      awsRegion: 'us-east-1',
    })),
  };
}

/**
 * The ids of the messages that the function reported as failed.
 * @throws {Error} the answer names a message that is not in the batch. The whole batch then counts as failed.
 */
function failedIds(payload: unknown, batch: readonly ReceivedMessage[]): ReadonlySet<string> {
  const { batchItemFailures = [] } = (payload ?? {}) as {
    batchItemFailures?: readonly { readonly itemIdentifier?: string }[] | null;
  };
  const ids = (batchItemFailures ?? []).map(({ itemIdentifier }) => itemIdentifier ?? '');
  const unknown = ids.find((id) => !batch.some(({ messageId }) => messageId === id));
  if (unknown !== undefined)
    throw new Error(`The function reported message "${unknown}" as failed, but the batch has no such message`);
  return new Set(ids);
}
