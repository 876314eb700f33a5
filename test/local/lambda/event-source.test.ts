import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { systemClock } from '../../../functions/base/clock.ts';
import { Queue } from '../../../local/aws/sqs.ts';
import { EventSource, type SqsEvent } from '../../../local/lambda/event-source.ts';
import { PATIENCE } from '../../support/patience.ts';

function start(invoke: (event: SqsEvent) => Promise<unknown>, concurrency = 2) {
  let ahead = 0;
  const clock = { ...systemClock, now: () => Date.now() + ahead };
  const dead = new Queue({ name: 'dead', clock });
  const queue = new Queue({
    name: 'work',
    clock,
    visibilityTimeoutSeconds: 60,
    deadLetters: { queue: dead, maxReceiveCount: 2 },
  });
  const faults: unknown[] = [];
  const source = new EventSource({ queue, invoke, concurrency, onFault: (error) => faults.push(error) });
  onTestFinished(() => source.close());
  /** Lets the visibility timeout pass. Sending a message wakes the poller, which cannot notice that time has jumped. */
  const forward = () => {
    ahead += 60_000;
    queue.send('wake');
  };
  return { queue, dead, faults, forward };
}

const bodiesOf = ({ Records }: SqsEvent) => Records.map(({ body }) => body);

describe('the event source', () => {
  it('passes messages in batches of at most ten, and deletes the processed ones', async () => {
    const batches: string[][] = [];
    const { queue } = start(async (event) => void batches.push(bodiesOf(event)));
    for (let i = 0; i < 25; i += 1) queue.send(`m${i}`);
    await vi.waitFor(() => expect(batches.flat()).toHaveLength(25), PATIENCE);
    expect(Math.max(...batches.map((batch) => batch.length))).toBeLessThanOrEqual(10);
    expect(new Set(batches.flat()).size).toBe(25);
    await vi.waitFor(() => expect(queue.counts()).toEqual({ visible: 0, inFlight: 0, delayed: 0 }), PATIENCE);
  });

  it('passes records in the form that Lambda uses', async () => {
    const events: SqsEvent[] = [];
    const { queue } = start(async (event) => void events.push(event));
    const { messageId } = queue.send('hello');
    await vi.waitFor(() => expect(events).toHaveLength(1), PATIENCE);
    expect(events[0]?.Records[0]).toEqual({
      messageId,
      receiptHandle: expect.any(String),
      body: 'hello',
      attributes: {
        ApproximateReceiveCount: '1',
        SentTimestamp: expect.stringMatching(/^\d{13}$/),
        SenderId: expect.any(String),
        ApproximateFirstReceiveTimestamp: expect.stringMatching(/^\d{13}$/),
      },
      messageAttributes: {},
      md5OfBody: '5d41402abc4b2a76b9719d911017c592',
      eventSource: 'aws:sqs',
      eventSourceARN: 'arn:aws:sqs:us-east-1:000000000000:work',
      awsRegion: 'us-east-1',
    });
  });

  it('keeps only the messages that the function reports as failed, and passes them again', async () => {
    const seen: string[] = [];
    const { queue, forward } = start(async ({ Records }) => {
      seen.push(...Records.map(({ body }) => body));
      const failed = Records.filter(({ body }) => body === 'bad' && seen.filter((each) => each === 'bad').length < 2);
      return { batchItemFailures: failed.map(({ messageId }) => ({ itemIdentifier: messageId })) };
    });
    queue.send('good');
    queue.send('bad');
    await vi.waitFor(() => expect(queue.counts()).toEqual({ visible: 0, inFlight: 1, delayed: 0 }), PATIENCE);
    forward();
    await vi.waitFor(() => expect(queue.counts()).toEqual({ visible: 0, inFlight: 0, delayed: 0 }), PATIENCE);
    expect(seen.filter((body) => body === 'bad')).toHaveLength(2);
    expect(seen.filter((body) => body === 'good')).toHaveLength(1);
  });

  it.each([
    ['an invocation fails', () => Promise.reject(new Error('crashed'))],
    ['it reports a failure it was not given', async () => ({ batchItemFailures: [{ itemIdentifier: 'unknown' }] })],
    ['it reports a failure without a name', async () => ({ batchItemFailures: [{}] })],
  ])('keeps the whole batch if %s, and finally moves it to the dead letters', async (_, answer) => {
    const { queue, dead, faults, forward } = start(async (event) =>
      bodiesOf(event).includes('poison') ? answer() : undefined,
    );
    queue.send('poison');
    await vi.waitFor(() => expect(faults).toHaveLength(1), PATIENCE);
    forward();
    await vi.waitFor(() => expect(faults).toHaveLength(2), PATIENCE);
    expect(dead.counts().visible).toBe(0);
    forward();
    await vi.waitFor(() => expect(dead.receive()[0]).toMatchObject({ body: 'poison' }), PATIENCE);
    expect(faults).toHaveLength(2);
  });

  it('runs as many invocations at the same time as its concurrency', async () => {
    const running: PromiseWithResolvers<void>[] = [];
    const { queue } = start(() => {
      const invocation = Promise.withResolvers<void>();
      running.push(invocation);
      return invocation.promise;
    }, 3);
    for (let i = 0; i < 40; i += 1) queue.send(`m${i}`);
    await vi.waitFor(() => expect(running).toHaveLength(3), PATIENCE);
    expect(queue.counts()).toEqual({ visible: 10, inFlight: 30, delayed: 0 });
    running[0]?.resolve();
    await vi.waitFor(() => expect(running).toHaveLength(4), PATIENCE);
    for (const { resolve } of running) resolve();
  });
});
