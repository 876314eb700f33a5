import { createHook } from 'node:async_hooks';
import { expect, it } from 'vitest';
import { systemClock } from '../../functions/base/clock.ts';
import { NotedUploads } from '../../functions/collect-outputs/collector.ts';
import { FailureIsolation } from '../../functions/collect-outputs/failure-isolation.ts';
import { StoringQueue } from '../../functions/collect-outputs/storing-queue.ts';

/** Ended flows that the queue holds before polls wait. */
const ENDED_MAX = 256;
/** Polls that wait side by side: the default of `pollConcurrency`. */
const WAITING = 64;

const signal = new AbortController().signal;
const invocation = { work: signal, closing: signal } as never;
const telemetry = { log: { error() {}, warn() {} }, metrics: { add() {} } } as never;

/** A full queue. Each call of `finishOne` ends the storing of one flow. */
function fullQueue() {
  const finish: (() => void)[] = [];
  const flows = { collect: () => new Promise<void>((resolve) => finish.push(resolve)) };
  const isolation = new FailureIsolation(invocation, telemetry, systemClock);
  const noted = { ended: new NotedUploads(), lagging: new NotedUploads() };
  const queue = new StoringQueue(flows, { isolation, ...noted }, systemClock);
  const add = (n: number) =>
    queue.add({ uploadId: `upload-${n}`, flowId: `flow-${n}`, ageFrom: 0 }, {} as Parameters<StoringQueue['add']>[1]);
  for (let n = 0; n < ENDED_MAX; n += 1) add(n);
  const finishOne = async (): Promise<void> => {
    finish.shift()?.();
    await new Promise(setImmediate);
  };
  return { queue, add, finishOne };
}

it('lets polls wait while it is full, and wakes them when a flow has been stored', async () => {
  const { queue, finishOne } = fullQueue();
  let woken = 0;
  for (let n = 0; n < WAITING; n += 1) {
    void queue.whenFree().then(() => {
      woken += 1;
    });
  }
  await new Promise(setImmediate);
  expect(woken).toBe(0);
  await finishOne();
  expect(woken).toBe(WAITING);
});

it('does work for each stored flow that does not grow with the flows that wait to be stored', async () => {
  const { queue, add, finishOne } = fullQueue();
  for (let n = 0; n < WAITING; n += 1) void queue.whenFree();
  await new Promise(setImmediate);
  let promises = 0;
  const hook = createHook({
    init: (_id, type) => {
      if (type === 'PROMISE') promises += 1;
    },
  });
  hook.enable();
  try {
    for (let n = 0; n < 10; n += 1) {
      await finishOne();
      add(ENDED_MAX + n);
      for (let poll = 0; poll < WAITING; poll += 1) void queue.whenFree();
      await new Promise(setImmediate);
    }
  } finally {
    hook.disable();
  }
  // Some ten promises for each poll that waits. One for each flow in the queue would make it 10 x 64 x 256.
  expect(promises).toBeLessThan(10 * WAITING * 20);
});
