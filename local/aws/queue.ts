import { createHash, randomUUID } from 'node:crypto';
import * as z from 'zod/mini';
import type { Clock } from '../../functions/base/clock.ts';
import { type AwsCall, AwsError, operation, type Served, serveAwsJson } from './aws-json.ts';

/*
 * An SQS standard queue in memory. Our own, because the one that npm has (fauxqs) refuses emoji in message bodies, which
 * keys of uploads may hold, and because time here is an argument, so that days can pass within a test.
 *
 * Facts: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/
 */

/** Of one message, and of all messages of a batch together. */
const MESSAGE_BYTES_MAX = 1_048_576;
const BATCH_ENTRIES_MAX = 10;
const RECEIVE_MESSAGES_MAX = 10;
const DELAY_SECONDS_MAX = 900;
const VISIBILITY_TIMEOUT_SECONDS_MAX = 43_200;
const WAIT_SECONDS_MAX = 20;

/** Characters that SQS refuses in a message: all that XML 1.0 does not allow, lone surrogates among them. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: They are what is looked for.
const FORBIDDEN_CHARACTERS = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]|\p{Surrogate}/u;

export interface QueueOptions {
  readonly name: string;
  readonly clock: Clock;
  /** How long a received message is hidden, in seconds. Default 30. */
  readonly visibilityTimeoutSeconds?: number;
  /** A message received this often without being deleted moves to that queue when it would be received again. */
  readonly deadLetters?: { readonly queue: Queue; readonly maxReceiveCount: number };
}

export interface ReceivedMessage {
  readonly messageId: string;
  /** Good for deleting the message or changing its visibility until it is received again. */
  readonly receiptHandle: string;
  readonly body: string;
  readonly md5OfBody: string;
  /** 1 for the first time. */
  readonly receiveCount: number;
  /** Milliseconds since the epoch, as are all times here. */
  readonly sentAt: number;
  readonly firstReceivedAt: number;
}

interface Message {
  readonly id: string;
  readonly body: string;
  readonly sentAt: number;
  visibleAt: number;
  receiveCount: number;
  firstReceivedAt: number | undefined;
}

export class Queue {
  readonly name: string;
  readonly #clock: Clock;
  readonly #visibilityTimeoutSeconds: number;
  readonly #deadLetters: QueueOptions['deadLetters'];
  readonly #messages = new Map<string, Message>();
  #changed = Promise.withResolvers<void>();

  constructor({ name, clock, visibilityTimeoutSeconds = 30, deadLetters }: QueueOptions) {
    this.name = name;
    this.#clock = clock;
    this.#visibilityTimeoutSeconds = visibilityTimeoutSeconds;
    this.#deadLetters = deadLetters;
  }

  /** @throws {AwsError} as SQS refuses: too long, empty, forbidden characters, delay out of range. */
  send(body: string, { delaySeconds = 0 }: { readonly delaySeconds?: number } = {}): { readonly messageId: string } {
    checkRange('DelaySeconds', delaySeconds, DELAY_SECONDS_MAX);
    if (body === '') throw new AwsError('MissingParameter', 'The request must contain the parameter MessageBody.');
    if (FORBIDDEN_CHARACTERS.test(body)) {
      throw new AwsError('InvalidMessageContents', 'Invalid characters in the message body.');
    }
    if (Buffer.byteLength(body) > MESSAGE_BYTES_MAX) {
      throw new AwsError('InvalidParameterValue', `A message must be shorter than ${MESSAGE_BYTES_MAX} bytes.`);
    }
    const now = this.#clock.now();
    const id = randomUUID();
    this.#put({
      id,
      body,
      sentAt: now,
      visibleAt: now + delaySeconds * 1000,
      receiveCount: 0,
      firstReceivedAt: undefined,
    });
    return { messageId: id };
  }

  /** Takes up to `max` visible messages, the longest visible first, and hides them for the visibility timeout. */
  receive({
    max = 1,
    visibilityTimeoutSeconds = this.#visibilityTimeoutSeconds,
  }: {
    readonly max?: number;
    readonly visibilityTimeoutSeconds?: number;
  } = {}): ReceivedMessage[] {
    checkRange('VisibilityTimeout', visibilityTimeoutSeconds, VISIBILITY_TIMEOUT_SECONDS_MAX);
    if (max < 1 || max > RECEIVE_MESSAGES_MAX) {
      throw new AwsError('InvalidParameterValue', `MaxNumberOfMessages must be between 1 and ${RECEIVE_MESSAGES_MAX}.`);
    }
    const now = this.#clock.now();
    const visible = [...this.#messages.values()]
      .filter(({ visibleAt }) => visibleAt <= now)
      .sort((a, b) => a.visibleAt - b.visibleAt);
    const received: ReceivedMessage[] = [];
    for (const message of visible) {
      if (received.length === max) break;
      if (this.#deadLetters && message.receiveCount >= this.#deadLetters.maxReceiveCount) {
        this.#messages.delete(message.id);
        this.#deadLetters.queue.#put({ ...message, visibleAt: now, receiveCount: 0, firstReceivedAt: undefined });
        continue;
      }
      message.receiveCount += 1;
      message.visibleAt = now + visibilityTimeoutSeconds * 1000;
      message.firstReceivedAt ??= now;
      const { id, body, sentAt, firstReceivedAt, receiveCount } = message;
      const receiptHandle = Buffer.from(`${id}/${receiveCount}`).toString('base64url');
      received.push({
        messageId: id,
        receiptHandle,
        body,
        md5OfBody: md5(body),
        receiveCount,
        sentAt,
        firstReceivedAt,
      });
    }
    return received;
  }

  /** Like {@link receive}, but waits up to `waitSeconds` for a message where none is visible. */
  async receiveWaiting(
    options: { readonly max?: number; readonly visibilityTimeoutSeconds?: number; readonly waitSeconds: number },
    signal?: AbortSignal,
  ): Promise<ReceivedMessage[]> {
    checkRange('WaitTimeSeconds', options.waitSeconds, WAIT_SECONDS_MAX);
    const until = this.#clock.now() + options.waitSeconds * 1000;
    for (;;) {
      signal?.throwIfAborted();
      const received = this.receive(options);
      const now = this.#clock.now();
      if (received.length > 0 || now >= until) return received;
      const nextVisibleAt = Math.min(until, ...[...this.#messages.values()].map(({ visibleAt }) => visibleAt));
      const woken = new AbortController();
      const sleeping = this.#clock.sleep(
        Math.max(1, nextVisibleAt - now),
        signal ? AbortSignal.any([signal, woken.signal]) : woken.signal,
      );
      // The loop looks again for whatever reason it was woken, and the caller's own signal is asked at its top.
      await Promise.race([this.#changed.promise, sleeping.catch(() => undefined)]);
      woken.abort();
    }
  }

  /** Deletes a message; an outdated handle deletes nothing, which SQS does not call an error either. */
  delete(receiptHandle: string): void {
    const message = this.#find(receiptHandle);
    if (message) this.#messages.delete(message.id);
  }

  /** Hides a received message for so many seconds from now; 0 makes it visible at once. */
  changeVisibility(receiptHandle: string, seconds: number): void {
    checkRange('VisibilityTimeout', seconds, VISIBILITY_TIMEOUT_SECONDS_MAX);
    const message = this.#find(receiptHandle);
    const now = this.#clock.now();
    if (!message || message.visibleAt <= now) {
      throw new AwsError('MessageNotInflight', 'The message is not in flight.', {
        queryCode: 'AWS.SimpleQueueService.MessageNotInflight',
      });
    }
    message.visibleAt = now + seconds * 1000;
    this.#wake();
  }

  /** How many messages are visible, received but not deleted, and delayed. */
  counts(): { readonly visible: number; readonly inFlight: number; readonly delayed: number } {
    const now = this.#clock.now();
    const all = [...this.#messages.values()];
    const hidden = all.filter(({ visibleAt }) => visibleAt > now);
    const delayed = hidden.filter(({ receiveCount }) => receiveCount === 0).length;
    return { visible: all.length - hidden.length, inFlight: hidden.length - delayed, delayed };
  }

  get visibilityTimeoutSeconds(): number {
    return this.#visibilityTimeoutSeconds;
  }

  #put(message: Message): void {
    this.#messages.set(message.id, message);
    this.#wake();
  }

  #wake(): void {
    this.#changed.resolve();
    this.#changed = Promise.withResolvers();
  }

  #find(receiptHandle: string): Message | undefined {
    const [id = '', count] = Buffer.from(receiptHandle, 'base64url').toString().split('/');
    if (!count) throw new AwsError('ReceiptHandleIsInvalid', `The receipt handle "${receiptHandle}" is not valid.`);
    const message = this.#messages.get(id);
    return message?.receiveCount === Number(count) ? message : undefined;
  }
}

function checkRange(parameter: string, value: number, max: number): void {
  if (Number.isInteger(value) && value >= 0 && value <= max) return;
  throw new AwsError('InvalidParameterValue', `Value ${value} for parameter ${parameter} is invalid: 0 to ${max}.`);
}

const md5 = (text: string) => createHash('md5').update(text).digest('hex');

const optionalNumber = z.optional(z.number());
const sendInput = { MessageBody: z.optional(z.string()), DelaySeconds: optionalNumber };
const ofQueue = { QueueUrl: z.string() };
const batchOf = <Entry extends z.core.$ZodLooseShape>(entry: Entry) =>
  z.object({ ...ofQueue, Entries: z.array(z.object({ Id: z.string(), ...entry })) });

/** Serves queues to the SDK's SQS client. */
export async function serveQueues(
  queues: readonly Queue[],
  onCall?: (call: AwsCall) => void,
): Promise<Served & { readonly urlOf: (queue: Queue) => string }> {
  const named = (name: string | undefined): Queue => {
    const queue = queues.find((candidate) => candidate.name === name);
    if (queue) return queue;
    throw new AwsError('QueueDoesNotExist', 'The specified queue does not exist.', {
      queryCode: 'AWS.SimpleQueueService.NonExistentQueue',
    });
  };
  const at = (input: { QueueUrl: string }) => named(input.QueueUrl.split('/').at(-1));

  const send = (queue: Queue, { MessageBody = '', DelaySeconds }: { MessageBody?: string; DelaySeconds?: number }) => {
    const { messageId } = queue.send(MessageBody, {
      ...(DelaySeconds !== undefined && { delaySeconds: DelaySeconds }),
    });
    return { MessageId: messageId, MD5OfMessageBody: md5(MessageBody) };
  };

  const served = await serveAwsJson({
    version: '1.0',
    target: 'AmazonSQS',
    service: 'sqs',
    onCall,
    operations: {
      SendMessage: operation(z.object({ ...ofQueue, ...sendInput }), (input) => send(at(input), input)),

      SendMessageBatch: operation(batchOf(sendInput), (input) => {
        const bytes = input.Entries.reduce((sum, entry) => sum + Buffer.byteLength(entry.MessageBody ?? ''), 0);
        if (bytes > MESSAGE_BYTES_MAX) {
          throw new AwsError(
            'BatchRequestTooLong',
            `Batch requests cannot be longer than ${MESSAGE_BYTES_MAX} bytes.`,
            {
              queryCode: 'AWS.SimpleQueueService.BatchRequestTooLong',
            },
          );
        }
        return eachOf(input.Entries, (entry) => send(at(input), entry));
      }),

      ReceiveMessage: operation(
        z.object({
          ...ofQueue,
          MaxNumberOfMessages: optionalNumber,
          VisibilityTimeout: optionalNumber,
          WaitTimeSeconds: optionalNumber,
        }),
        async (input) => {
          const received = await at(input).receiveWaiting({
            max: input.MaxNumberOfMessages ?? 1,
            waitSeconds: input.WaitTimeSeconds ?? 0,
            ...(input.VisibilityTimeout !== undefined && { visibilityTimeoutSeconds: input.VisibilityTimeout }),
          });
          if (received.length === 0) return {};
          return {
            Messages: received.map((message) => ({
              MessageId: message.messageId,
              ReceiptHandle: message.receiptHandle,
              Body: message.body,
              MD5OfBody: message.md5OfBody,
              Attributes: messageAttributes(message),
            })),
          };
        },
      ),

      DeleteMessage: operation(z.object({ ...ofQueue, ReceiptHandle: z.string() }), (input) => {
        at(input).delete(input.ReceiptHandle);
        return {};
      }),

      DeleteMessageBatch: operation(batchOf({ ReceiptHandle: z.string() }), (input) =>
        eachOf(input.Entries, (entry) => {
          at(input).delete(entry.ReceiptHandle);
          return {};
        }),
      ),

      ChangeMessageVisibility: operation(
        z.object({ ...ofQueue, ReceiptHandle: z.string(), VisibilityTimeout: z.number() }),
        (input) => {
          at(input).changeVisibility(input.ReceiptHandle, input.VisibilityTimeout);
          return {};
        },
      ),

      GetQueueAttributes: operation(z.object(ofQueue), (input) => {
        const queue = at(input);
        const { visible, inFlight, delayed } = queue.counts();
        return {
          Attributes: {
            ApproximateNumberOfMessages: String(visible),
            ApproximateNumberOfMessagesNotVisible: String(inFlight),
            ApproximateNumberOfMessagesDelayed: String(delayed),
            VisibilityTimeout: String(queue.visibilityTimeoutSeconds),
          },
        };
      }),

      GetQueueUrl: operation(z.object({ QueueName: z.string() }), (input) => ({
        QueueUrl: `${served.endpoint}/000000000000/${named(input.QueueName).name}`,
      })),
    },
  });
  return { ...served, urlOf: (queue) => `${served.endpoint}/000000000000/${queue.name}` };
}

/** The system attributes of a message, as SQS gives them to a caller and the event source mapping to a function. */
export function messageAttributes(message: ReceivedMessage) {
  return {
    ApproximateReceiveCount: String(message.receiveCount),
    SentTimestamp: String(message.sentAt),
    SenderId: 'AIDAIENQZJOLO23YVJ4VO',
    ApproximateFirstReceiveTimestamp: String(message.firstReceivedAt),
  };
}

/** A batch request is refused as a whole for its form, and per entry for the entry's content. */
function eachOf<Entry extends { Id: string }>(entries: readonly Entry[], run: (entry: Entry) => object): object {
  const batchError = (code: string, message: string) =>
    new AwsError(code, message, { queryCode: `AWS.SimpleQueueService.${code}` });
  if (entries.length === 0) throw batchError('EmptyBatchRequest', 'There should be at least one entry.');
  if (entries.length > BATCH_ENTRIES_MAX) {
    throw batchError('TooManyEntriesInBatchRequest', `Maximum number of entries per request are ${BATCH_ENTRIES_MAX}.`);
  }
  if (new Set(entries.map(({ Id }) => Id)).size < entries.length) {
    throw batchError('BatchEntryIdsNotDistinct', 'Two or more entries have the same Id.');
  }
  const Successful: object[] = [];
  const Failed: object[] = [];
  for (const entry of entries) {
    try {
      Successful.push({ Id: entry.Id, ...run(entry) });
    } catch (error) {
      if (!(error instanceof AwsError)) throw error;
      Failed.push({ Id: entry.Id, Code: error.code, Message: error.message, SenderFault: true });
    }
  }
  return { Successful, ...(Failed.length > 0 && { Failed }) };
}
