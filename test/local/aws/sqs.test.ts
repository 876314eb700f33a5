import { beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../../functions/base/clock.ts';
import { Queue } from '../../../local/aws/sqs.ts';
import { StillClock } from '../../flow-service/scripted.ts';

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

describe('a message', () => {
  const queue = new Queue({ name: 'work', clock: systemClock });

  it.each(['🎁 ünï+%\n\t\u{10ffff}', 'é'.repeat(2 ** 19)])('may hold every allowed character, and 1 MiB', (body) => {
    queue.send(body);
    const [{ receiptHandle = '', ...received } = {}] = queue.receive();
    expect(received).toMatchObject({ body });
    queue.delete(receiptHandle);
  });

  it.each([
    ['a control character', '\u0001', 'InvalidMessageContents'],
    ['a non-character', '\uffff', 'InvalidMessageContents'],
    ['half a surrogate pair', 'a\ud83d', 'InvalidMessageContents'],
    ['nothing', '', 'MissingParameter'],
    ['a byte too many', `${'é'.repeat(2 ** 19)}x`, 'InvalidParameterValue'],
  ])('with %s is refused', (_, body, code) => {
    expect(() => queue.send(body)).toThrow(expect.objectContaining({ code }));
  });
});
