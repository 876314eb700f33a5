import { getEventListeners } from 'node:events';
import { beforeEach, describe, expect, it } from 'vitest';
import { type AssetSlot, AssetSlots } from '../../functions/results/asset-slots.ts';
import { never } from '../flow-service/scripted.ts';

const KB = 1_024;
const LARGE = 16 * 1_024 * KB;
const LARGE_MAX = 4;

let slots: AssetSlots;
/** Bytes and number of all assets in progress, each with its maximum. */
let bytes = { now: 0, max: 0 };
let inProgress = { now: 0, max: 0 };
beforeEach(() => {
  slots = new AssetSlots(LARGE_MAX, LARGE);
  bytes = { now: 0, max: 0 };
  inProgress = { now: 0, max: 0 };
});

function add(gauge: { now: number; max: number }, by: number): void {
  gauge.now += by;
  gauge.max = Math.max(gauge.max, gauge.now);
}

const later = () => new Promise((resolve) => setImmediate(resolve));

/** Fetches one asset, from the beginning of its answer to its end. The answer tells its size, or does not. */
async function fetched(size: number, says: 'its size' | 'nothing' = 'its size'): Promise<void> {
  const slot = await slots.take(never);
  add(inProgress, 1);
  try {
    if (says === 'its size') await slot.resize(size);
    const taken = Math.min(size, LARGE);
    add(bytes, taken);
    await later();
    if (says === 'nothing') slot.note(size);
    bytes.now -= taken;
  } finally {
    inProgress.now -= 1;
    slot.release();
  }
}

const all = (sizes: readonly number[], says?: 'its size' | 'nothing') =>
  Promise.all(sizes.map((size) => fetched(size, says)));

describe('assets under a budget of memory', () => {
  it('are fetched many at a time if they are small', async () => {
    await all(Array<number>(200).fill(100 * KB));
    expect(inProgress.max).toBe(32);
    expect(bytes.max).toBeLessThanOrEqual(32 * 100 * KB);
  });

  it('are fetched few at a time if they are large', async () => {
    await all(Array<number>(16).fill(3 * LARGE));
    expect(inProgress.max).toBe(LARGE_MAX);
    expect(bytes.max).toBe(LARGE_MAX * LARGE);
  });

  it('are assumed to be large until the size of the first is known', async () => {
    const first = Array.from({ length: 32 }, () => slots.take(never));
    let count = 0;
    for (const slot of first) void slot.then(() => (count += 1));
    await later();
    expect(count).toBe(LARGE_MAX);
    (await first[0])?.note(KB);
    for (const slot of first) (await slot).release();
  });

  it('are assumed to be large again after a large one', async () => {
    await all(Array<number>(32).fill(KB));
    await fetched(LARGE);
    inProgress.max = 0;
    await all(Array<number>(8).fill(LARGE));
    expect(inProgress.max).toBe(LARGE_MAX);
  });

  it('do not wait for each other if 32 that were assumed to be small are large', async () => {
    await all(Array<number>(32).fill(KB));
    await all(Array<number>(32).fill(LARGE));
    expect(inProgress.max).toBe(32);
    expect(bytes.max).toBe(LARGE_MAX * LARGE);
    expect(bytes.now).toBe(0);
  });

  it('never take more than the budget, whatever their sizes', async () => {
    const sizes = Array.from({ length: 500 }, (_, i) => [KB, 100 * KB, LARGE / 4, LARGE, 5 * LARGE][(i * 7) % 5] ?? 0);
    await all(sizes);
    expect(bytes.max).toBeLessThanOrEqual(LARGE_MAX * LARGE);
    expect([bytes.now, inProgress.now]).toEqual([0, 0]);
    // The whole budget is free again.
    bytes.max = 0;
    await all(Array<number>(LARGE_MAX).fill(LARGE));
    expect(bytes.max).toBe(LARGE_MAX * LARGE);
  });

  it('of unknown size are assumed to be large if the ones before were', async () => {
    await all(Array<number>(8).fill(LARGE), 'nothing');
    expect(inProgress.max).toBe(LARGE_MAX);
  });
});

describe('a slot', () => {
  it('leaves nothing behind if it is aborted before its turn', async () => {
    const held = await Promise.all(Array.from({ length: LARGE_MAX }, () => slots.take(never)));
    const controller = new AbortController();
    const { signal } = controller;
    const waiting = Promise.allSettled(Array.from({ length: 10 }, () => slots.take(signal)));
    const behind = slots.take(never);
    expect(getEventListeners(signal, 'abort')).toHaveLength(10);
    controller.abort(new Error('No more'));
    expect(new Set((await waiting).map((each) => each.status === 'rejected' && each.reason))).toEqual(
      new Set([signal.reason]),
    );
    for (const slot of held) slot.release();
    (await behind).release();
    await all(Array<number>(LARGE_MAX).fill(LARGE));
    expect(bytes.max).toBe(LARGE_MAX * LARGE);
  });

  it('releases all its memory if it is aborted while it waits for more', async () => {
    await all(Array<number>(32).fill(LARGE / LARGE_MAX));
    const controller = new AbortController();
    const { signal } = controller;
    const small = await Promise.all(Array.from({ length: LARGE_MAX }, () => slots.take(never)));
    const growing = await Promise.all(Array.from({ length: 4 }, () => slots.take(signal)));
    const grown = small.map((slot) => slot.resize(LARGE));
    const outcomes = Promise.allSettled(growing.map((slot) => slot.resize(LARGE)));
    await Promise.all(grown);
    expect(getEventListeners(signal, 'abort')).toHaveLength(4);
    controller.abort(new Error('No more'));
    for (const outcome of await outcomes) expect(outcome).toMatchObject({ status: 'rejected', reason: signal.reason });
    for (const slot of [...small, ...growing]) slot.release();
    expect(getEventListeners(signal, 'abort')).toEqual([]);
    // The whole budget is free for others, and no more than that.
    bytes.max = 0;
    await all(Array<number>(16).fill(LARGE));
    expect(bytes.max).toBe(LARGE_MAX * LARGE);
  });

  it('releases its memory to a slot that waits for more before any new slot', async () => {
    await all(Array<number>(32).fill(KB));
    const slot = () => slots.take(never);
    const [first, ...large] = await Promise.all(Array.from({ length: LARGE_MAX + 1 }, slot));
    const grown = large.map((each) => each.resize(LARGE));
    const order: string[] = [];
    const another = slot().then((taken) => {
      order.push('new');
      taken.release();
    });
    const more = (first as AssetSlot).resize(LARGE).then(() => order.push('more'));
    await Promise.all(grown);
    await later();
    expect(order).toEqual([]);
    for (const each of large.slice(0, 2)) each.release();
    await Promise.all([more, another]);
    expect(order).toEqual(['more', 'new']);
    for (const each of [first as AssetSlot, ...large]) each.release();
  });

  it('is released once, however often release is called', async () => {
    const slot = await slots.take(never);
    slot.release();
    slot.release();
    await all(Array<number>(8).fill(LARGE));
    expect(bytes.max).toBe(LARGE_MAX * LARGE);
  });
});
