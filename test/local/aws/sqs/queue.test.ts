import { SendMessageCommand, SQSClient } from '@aws-sdk/client-sqs';
import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../../../functions/base/clock.ts';
import { serveQueues } from '../../../../local/aws/sqs/http.ts';
import { Queue } from '../../../../local/aws/sqs/queue.ts';
import { StillClock } from '../../../flow-service/scripted.ts';

describe('a queue', () => {
  let clock: StillClock;
  let dead: Queue;
  let queue: Queue;
  beforeEach(() => {
    clock = new StillClock();
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
    clock.pass(59_000);
    expect(bodies()).toEqual([]);
    clock.pass(1_000);
    expect(queue.receive()).toMatchObject([{ body: 'a', receiveCount: 2 }]);
  });

  it('shows a delayed message only after its delay', () => {
    queue.send('late', { delaySeconds: 900 });
    expect(queue.counts()).toEqual({ visible: 0, inFlight: 0, delayed: 1 });
    clock.pass(899_000);
    expect(bodies()).toEqual([]);
    clock.pass(1_000);
    expect(bodies()).toEqual(['late']);
  });

  it('deletes a message, but not through an outdated receipt handle', () => {
    queue.send('a');
    const [first] = queue.receive();
    clock.pass(60_000);
    const [second] = queue.receive();
    queue.delete(first?.receiptHandle ?? '');
    expect(queue.counts().inFlight).toBe(1);
    queue.delete(second?.receiptHandle ?? '');
    expect(queue.counts()).toEqual({ visible: 0, inFlight: 0, delayed: 0 });
  });

  it('shows a message at once if its visibility timeout is set to 0, and later if it is extended', () => {
    queue.send('a');
    const [first] = queue.receive();
    queue.changeVisibility(first?.receiptHandle ?? '', 0);
    const [second] = queue.receive();
    queue.changeVisibility(second?.receiptHandle ?? '', 600);
    clock.pass(599_000);
    expect(bodies()).toEqual([]);
    clock.pass(1_000);
    expect(bodies()).toEqual(['a']);
  });

  it('refuses to change the visibility of a message that is not in flight', () => {
    queue.send('a');
    const [message] = queue.receive();
    clock.pass(60_000);
    expect(() => queue.changeVisibility(message?.receiptHandle ?? '', 0)).toThrow('not in flight');
  });

  it('moves a message to the dead letters instead of a fourth receive', () => {
    queue.send('poison');
    for (const count of [1, 2, 3]) {
      expect(queue.receive()).toMatchObject([{ receiveCount: count }]);
      clock.pass(60_000);
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
  const queue = new Queue({ name: 'work', clock: systemClock });
  const credentials = { accessKeyId: 'fake', secretAccessKey: 'fake' };
  const dead = new Queue({ name: 'dead', clock: systemClock });
  const served = await serveQueues([queue, dead], { credentials: [credentials] });
  const options = { endpoint: served.endpoint, region: 'us-east-1', maxAttempts: 1 };
  const client = new SQSClient({ ...options, credentials });
  const send = (MessageBody: string, QueueUrl = served.urlOf(queue)) =>
    client.send(new SendMessageCommand({ QueueUrl, MessageBody }));
  afterAll(async () => {
    client.destroy();
    await served.close();
  });

  it('refuses credentials as SQS does, with the code of the older protocol', async () => {
    const other = new SQSClient({ ...options, credentials: { ...credentials, accessKeyId: 'another-fake' } });
    const call = other.send(new SendMessageCommand({ QueueUrl: served.urlOf(queue), MessageBody: 'x' }));
    await expect(call).rejects.toMatchObject({ name: 'InvalidClientTokenId', $metadata: { httpStatusCode: 403 } });
    other.destroy();
    expect(queue.counts()).toMatchObject({ visible: 0 });
  });

  it('carries emoji and every other allowed character, with an MD5 that the SDK accepts', async () => {
    const body = '{"key":"🎁 ünï+%\\n\t\u{10ffff}"}';
    const { MessageId } = await send(body);
    const [message, ...others] = queue.receive();
    expect(message).toMatchObject({ messageId: MessageId, body });
    expect(others).toEqual([]);
    queue.delete(message?.receiptHandle ?? '');
  });

  it.each([
    ['a control character', '\u0001'],
    ['a non-character', '\uffff'],
    ['half a surrogate pair', 'a\ud83d'],
  ])('refuses %s', async (_, body) => {
    await expect(send(body)).rejects.toMatchObject({ name: 'InvalidMessageContents' });
  });

  it('refuses an empty message', async () => {
    await expect(send('')).rejects.toMatchObject({ name: 'MissingParameter' });
  });

  it('takes a message of 1 MiB, and refuses a longer one', async () => {
    const body = 'é'.repeat(2 ** 19);
    expect((await send(body)).MessageId).toBeDefined();
    await expect(send(`${body}x`)).rejects.toMatchObject({ name: 'InvalidParameterValue' });
  });

  it('refuses an unknown queue', async () => {
    const url = served.urlOf(queue).replace('work', 'none');
    await expect(send('m', url)).rejects.toMatchObject({ name: 'QueueDoesNotExist' });
  });
});
