import {
  ChangeMessageVisibilityCommand,
  DeleteMessageBatchCommand,
  DeleteMessageCommand,
  GetQueueAttributesCommand,
  GetQueueUrlCommand,
  ReceiveMessageCommand,
  SendMessageBatchCommand,
  SendMessageCommand,
  SQSClient,
} from '@aws-sdk/client-sqs';
import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import { type Clock, systemClock } from '../../../functions/base/clock.ts';
import { Queue, serveQueues } from '../../../local/aws/queue.ts';

/** A clock that stands still until it is moved. */
class HandClock implements Clock {
  #now = 1_700_000_000_000;
  now = () => this.#now;
  sleep = () => new Promise<never>(() => {});
  forward(seconds: number) {
    this.#now += seconds * 1000;
  }
}

describe('a queue', () => {
  let clock: HandClock;
  let dead: Queue;
  let queue: Queue;
  beforeEach(() => {
    clock = new HandClock();
    dead = new Queue({ name: 'dead', clock });
    queue = new Queue({
      name: 'work',
      clock,
      visibilityTimeoutSeconds: 60,
      deadLetters: { queue: dead, maxReceiveCount: 3 },
    });
  });
  const bodies = (max = 10) => queue.receive({ max }).map(({ body }) => body);

  it('hides a received message until its visibility timeout has passed', () => {
    queue.send('a');
    expect(bodies()).toEqual(['a']);
    clock.forward(59);
    expect(bodies()).toEqual([]);
    clock.forward(1);
    expect(queue.receive()).toMatchObject([{ body: 'a', receiveCount: 2 }]);
  });

  it('shows a delayed message only after its delay', () => {
    queue.send('late', { delaySeconds: 900 });
    expect(queue.counts()).toEqual({ visible: 0, inFlight: 0, delayed: 1 });
    clock.forward(899);
    expect(bodies()).toEqual([]);
    clock.forward(1);
    expect(bodies()).toEqual(['late']);
  });

  it('forgets a deleted message, and ignores a handle that a later receive has outdated', () => {
    queue.send('a');
    const [first] = queue.receive();
    clock.forward(60);
    const [second] = queue.receive();
    queue.delete(first?.receiptHandle ?? '');
    expect(queue.counts().inFlight).toBe(1);
    queue.delete(second?.receiptHandle ?? '');
    expect(queue.counts()).toEqual({ visible: 0, inFlight: 0, delayed: 0 });
  });

  it('shows a message at once when its visibility is changed to 0, and later when it is prolonged', () => {
    queue.send('a');
    const [first] = queue.receive();
    queue.changeVisibility(first?.receiptHandle ?? '', 0);
    const [second] = queue.receive();
    queue.changeVisibility(second?.receiptHandle ?? '', 600);
    clock.forward(599);
    expect(bodies()).toEqual([]);
    clock.forward(1);
    expect(bodies()).toEqual(['a']);
  });

  it('moves a message to the dead letters when it would be received once too often', () => {
    queue.send('poison');
    for (const count of [1, 2, 3]) {
      expect(queue.receive()).toMatchObject([{ receiveCount: count }]);
      clock.forward(60);
    }
    expect(dead.counts().visible).toBe(0);
    expect(bodies()).toEqual([]);
    expect(dead.receive()).toMatchObject([{ body: 'poison', receiveCount: 1 }]);
    expect(queue.counts()).toEqual({ visible: 0, inFlight: 0, delayed: 0 });
  });

  it('wakes a waiting receiver as soon as a message is sent', async () => {
    const waiting = queue.receiveWaiting({ waitSeconds: 20 });
    queue.send('now');
    expect(await waiting).toMatchObject([{ body: 'now' }]);
  });

  it('stops waiting when the signal aborts', async () => {
    const waiting = new Queue({ name: 'real', clock: systemClock }).receiveWaiting(
      { waitSeconds: 20 },
      AbortSignal.timeout(10),
    );
    await expect(waiting).rejects.toMatchObject({ name: 'TimeoutError' });
  });
});

describe('a queue over the SDK', async () => {
  const dead = new Queue({ name: 'dead', clock: systemClock });
  const queue = new Queue({ name: 'work', clock: systemClock });
  const served = await serveQueues([queue, dead]);
  const credentials = { accessKeyId: 'fake', secretAccessKey: 'fake' };
  const client = new SQSClient({ endpoint: served.endpoint, region: 'us-east-1', credentials, maxAttempts: 1 });
  const QueueUrl = served.urlOf(queue);
  afterAll(async () => {
    client.destroy();
    await served.close();
  });

  it('carries emoji and every other allowed character, with an MD5 that the SDK accepts', async () => {
    const MessageBody = '{"key":"🎁 ünï+%\\n\t\u{10ffff}"}';
    await client.send(new SendMessageCommand({ QueueUrl, MessageBody }));
    const { Messages } = await client.send(
      new ReceiveMessageCommand({ QueueUrl, WaitTimeSeconds: 1, MessageSystemAttributeNames: ['All'] }),
    );
    expect(Messages).toMatchObject([{ Body: MessageBody, Attributes: { ApproximateReceiveCount: '1' } }]);
    await client.send(new DeleteMessageCommand({ QueueUrl, ReceiptHandle: Messages?.[0]?.ReceiptHandle }));
    const { Attributes } = await client.send(new GetQueueAttributesCommand({ QueueUrl, AttributeNames: ['All'] }));
    expect(Attributes).toMatchObject({
      ApproximateNumberOfMessages: '0',
      ApproximateNumberOfMessagesNotVisible: '0',
      VisibilityTimeout: '30',
    });
  });

  it.each([
    ['a control character', '\u0001'],
    ['a non-character', '\uffff'],
    ['half a surrogate pair', 'a\ud83d'],
  ])('refuses %s', async (_, MessageBody) => {
    await expect(client.send(new SendMessageCommand({ QueueUrl, MessageBody }))).rejects.toMatchObject({
      name: 'InvalidMessageContents',
    });
  });

  it('refuses a message over 1 MiB', async () => {
    const MessageBody = 'é'.repeat(2 ** 19);
    const { MessageId } = await client.send(new SendMessageCommand({ QueueUrl, MessageBody }));
    expect(MessageId).toBeDefined();
    await expect(
      client.send(new SendMessageCommand({ QueueUrl, MessageBody: `${MessageBody}x` })),
    ).rejects.toMatchObject({ name: 'InvalidParameterValue' });
    const { Messages } = await client.send(new ReceiveMessageCommand({ QueueUrl }));
    await client.send(new DeleteMessageCommand({ QueueUrl, ReceiptHandle: Messages?.[0]?.ReceiptHandle }));
  });

  it('takes a batch of ten and says which entries failed', async () => {
    const Entries = Array.from({ length: 10 }, (_, i) => ({ Id: `${i}`, MessageBody: i === 4 ? '\u0000' : `m${i}` }));
    const answer = await client.send(new SendMessageBatchCommand({ QueueUrl, Entries }));
    expect(answer.Successful).toHaveLength(9);
    expect(answer.Failed).toMatchObject([{ Id: '4', Code: 'InvalidMessageContents', SenderFault: true }]);

    const { Messages = [] } = await client.send(new ReceiveMessageCommand({ QueueUrl, MaxNumberOfMessages: 10 }));
    expect(Messages.map(({ Body }) => Body)).toEqual(['m0', 'm1', 'm2', 'm3', 'm5', 'm6', 'm7', 'm8', 'm9']);
    const deleted = await client.send(
      new DeleteMessageBatchCommand({
        QueueUrl,
        Entries: Messages.map(({ ReceiptHandle }, i) => ({ Id: `${i}`, ReceiptHandle })),
      }),
    );
    expect(deleted.Successful).toHaveLength(9);
    expect(queue.counts()).toEqual({ visible: 0, inFlight: 0, delayed: 0 });
  });

  it.each([
    ['TooManyEntriesInBatchRequest', Array.from({ length: 11 }, (_, i) => ({ Id: `${i}`, MessageBody: 'm' }))],
    ['EmptyBatchRequest', []],
    ['BatchEntryIdsNotDistinct', [1, 2].map(() => ({ Id: 'same', MessageBody: 'm' }))],
    ['BatchRequestTooLong', [1, 2].map((i) => ({ Id: `${i}`, MessageBody: 'm'.repeat(600_000) }))],
  ])('refuses a batch with %s', async (name, Entries) => {
    await expect(client.send(new SendMessageBatchCommand({ QueueUrl, Entries }))).rejects.toMatchObject({ name });
  });

  it('changes the visibility of a message in flight only', async () => {
    await client.send(new SendMessageCommand({ QueueUrl, MessageBody: 'again' }));
    const { Messages } = await client.send(new ReceiveMessageCommand({ QueueUrl }));
    const ReceiptHandle = Messages?.[0]?.ReceiptHandle;
    await client.send(new ChangeMessageVisibilityCommand({ QueueUrl, ReceiptHandle, VisibilityTimeout: 0 }));
    await expect(
      client.send(new ChangeMessageVisibilityCommand({ QueueUrl, ReceiptHandle, VisibilityTimeout: 0 })),
    ).rejects.toMatchObject({ name: 'MessageNotInflight' });
  });

  it('is found by its name, and an unknown name is refused', async () => {
    expect(await client.send(new GetQueueUrlCommand({ QueueName: 'dead' }))).toMatchObject({
      QueueUrl: served.urlOf(dead),
    });
    await expect(client.send(new GetQueueUrlCommand({ QueueName: 'none' }))).rejects.toMatchObject({
      name: 'QueueDoesNotExist',
    });
  });
});
