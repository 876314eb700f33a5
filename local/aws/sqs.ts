import { createHash, randomUUID } from 'node:crypto';
import * as z from 'zod/mini';
import type { Clock } from '../../functions/base/clock.ts';
import { AwsError, operation, serveAwsJson } from './aws-json.ts';
import { type AwsEndpoint, type EndpointAccess, LOCAL_ACCOUNT } from './endpoint.ts';

const MESSAGE_BYTES_MAX = 1_048_576;
const RECEIVE_MESSAGES_MAX = 10;
const DELAY_SECONDS_MAX = 900;
const VISIBILITY_TIMEOUT_SECONDS_MAX = 43_200;
const WAIT_SECONDS_MAX = 20;

/** Characters that SQS refuses in a message: those that XML 1.0 forbids, including lone surrogates. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: The pattern looks for control characters.
const FORBIDDEN_CHARACTERS = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]|\p{Surrogate}/u;

export interface QueueOptions {
  readonly name: string;
  readonly clock: Clock;
  /** How long a received message is hidden, in seconds. Default 30. */
  readonly visibilityTimeoutSeconds?: number;
  /** After `maxReceiveCount` receives, the next receive moves the message to that queue. */
  readonly deadLetters?: { readonly queue: Queue; readonly maxReceiveCount: number };
  /** What `GetQueueAttributes` answers beside the counts, such as `Policy`. Nothing here obeys it. */
  readonly attributes?: Readonly<Record<string, string>>;
}

export interface ReceivedMessage {
  readonly messageId: string;
  /** Deletes the message or changes its visibility. Valid until the message is received again. */
  readonly receiptHandle: string;
  readonly body: string;
  /** By their names. All are texts. */
  readonly messageAttributes: Readonly<Record<string, string>>;
  readonly md5OfBody: string;
  /** 1 at the first receive. */
  readonly receiveCount: number;
  /** Milliseconds since the epoch, as are all times here. */
  readonly sentAt: number;
  readonly firstReceivedAt: number;
}

interface Message {
  readonly id: string;
  readonly body: string;
  readonly messageAttributes: Readonly<Record<string, string>>;
  readonly sentAt: number;
  visibleAt: number;
  receiveCount: number;
  firstReceivedAt: number | undefined;
}

/**
 * An SQS standard queue in memory. Two reasons against the one on npm (fauxqs): it refuses emoji in message bodies,
 * which the keys of uploads may contain; and here the clock is an argument, so that days can pass within a test.
 *
 * Facts: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/
 */
export class Queue {
  readonly name: string;
  readonly attributes: Readonly<Record<string, string>>;
  readonly #clock: Clock;
  readonly #visibilityTimeoutSeconds: number;
  readonly #deadLetters: QueueOptions['deadLetters'];
  readonly #messages = new Map<string, Message>();
  #changed = Promise.withResolvers<void>();

  constructor({ name, clock, visibilityTimeoutSeconds = 30, deadLetters, attributes = {} }: QueueOptions) {
    this.name = name;
    this.attributes = attributes;
    this.#clock = clock;
    this.#visibilityTimeoutSeconds = visibilityTimeoutSeconds;
    this.#deadLetters = deadLetters;
  }

  /** @throws {AwsError} SQS's error: too long, empty, forbidden characters, delay out of range. */
  send(
    body: string,
    {
      delaySeconds = 0,
      messageAttributes = {},
    }: { readonly delaySeconds?: number; readonly messageAttributes?: Readonly<Record<string, string>> } = {},
  ): { readonly messageId: string } {
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
      messageAttributes,
      sentAt: now,
      visibleAt: now + delaySeconds * 1000,
      receiveCount: 0,
      firstReceivedAt: undefined,
    });
    return { messageId: id };
  }

  /** Takes up to `max` visible messages, oldest visible first. Hides each for the visibility timeout. */
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
      const { id, body, messageAttributes, sentAt, firstReceivedAt, receiveCount } = message;
      const receiptHandle = Buffer.from(`${id}/${receiveCount}`).toString('base64url');
      received.push({
        messageId: id,
        receiptHandle,
        body,
        messageAttributes,
        md5OfBody: md5(body),
        receiveCount,
        sentAt,
        firstReceivedAt,
      });
    }
    return received;
  }

  /** Like {@link receive}. If no message is visible, it waits for one, for up to `waitSeconds`. */
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
      // After any reason to wake, the loop asks again. Its top checks the caller's signal.
      await Promise.race([this.#changed.promise, sleeping.catch(() => undefined)]);
      woken.abort();
    }
  }

  /** Deletes a message. An outdated handle deletes nothing and is no error, as in SQS. */
  delete(receiptHandle: string): void {
    const message = this.#find(receiptHandle);
    if (message) this.#messages.delete(message.id);
  }

  /** Hides a received message for `seconds` from now. 0 makes it visible at once. */
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

  /** Numbers of messages: visible, in flight (received, not deleted), and delayed. */
  counts(): { readonly visible: number; readonly inFlight: number; readonly delayed: number } {
    const now = this.#clock.now();
    const all = [...this.#messages.values()];
    const hidden = all.filter(({ visibleAt }) => visibleAt > now);
    const delayed = hidden.filter(({ receiveCount }) => receiveCount === 0).length;
    return { visible: all.length - hidden.length, inFlight: hidden.length - delayed, delayed };
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

const md5 = (text: string): string => createHash('md5').update(text).digest('hex');

export interface SqsEndpoint extends AwsEndpoint {
  urlOf(queue: Queue): string;
}

/**
 * Serves queues to the SDK's SQS client. The functions send, and an operator asks how many messages there are, and looks
 * at dead letters. Lambda's event source mapping receives and deletes messages, and takes them from the {@link Queue}
 * itself.
 */
export async function serveQueues(queues: readonly Queue[], access: EndpointAccess): Promise<SqsEndpoint> {
  const find = (queueUrl: string): Queue => {
    const name = queueUrl.split('/').at(-1);
    const queue = queues.find((candidate) => candidate.name === name);
    if (queue) return queue;
    throw new AwsError('QueueDoesNotExist', 'The specified queue does not exist.', {
      queryCode: 'AWS.SimpleQueueService.NonExistentQueue',
    });
  };
  const endpoint = await serveAwsJson({
    version: '1.0',
    target: 'AmazonSQS',
    service: 'sqs',
    hasQueryCodes: true,
    ...access,
    operations: {
      GetQueueAttributes: operation(z.object({ QueueUrl: z.string() }), ({ QueueUrl }) => {
        const queue = find(QueueUrl);
        const { visible, inFlight, delayed } = queue.counts();
        return {
          Attributes: {
            ...queue.attributes,
            ApproximateNumberOfMessages: String(visible),
            ApproximateNumberOfMessagesNotVisible: String(inFlight),
            ApproximateNumberOfMessagesDelayed: String(delayed),
          },
        };
      }),
      ReceiveMessage: operation(
        z.object({
          QueueUrl: z.string(),
          MaxNumberOfMessages: z.optional(z.number()),
          VisibilityTimeout: z.optional(z.number()),
        }),
        ({ QueueUrl, MaxNumberOfMessages: max, VisibilityTimeout: visibilityTimeoutSeconds }) => {
          const options = {
            ...(max !== undefined && { max }),
            ...(visibilityTimeoutSeconds !== undefined && { visibilityTimeoutSeconds }),
          };
          const received = find(QueueUrl).receive(options);
          return received.length === 0 ? {} : { Messages: received.map(shown) };
        },
      ),
      SendMessage: operation(
        z.object({ QueueUrl: z.string(), MessageBody: z.optional(z.string()), DelaySeconds: z.optional(z.number()) }),
        ({ QueueUrl, MessageBody = '', DelaySeconds = 0 }) => {
          const { messageId } = find(QueueUrl).send(MessageBody, { delaySeconds: DelaySeconds });
          return { MessageId: messageId, MD5OfMessageBody: md5(MessageBody) };
        },
      ),
    },
  });
  return { ...endpoint, urlOf: (queue) => `${endpoint.endpoint}/${LOCAL_ACCOUNT}/${queue.name}` };
}

const shown = ({ messageId, receiptHandle, body, md5OfBody, messageAttributes }: ReceivedMessage): object => ({
  ...{ MessageId: messageId, ReceiptHandle: receiptHandle, Body: body, MD5OfBody: md5OfBody },
  MessageAttributes: Object.fromEntries(
    Object.entries(messageAttributes).map(([name, StringValue]) => [name, { DataType: 'String', StringValue }]),
  ),
});
