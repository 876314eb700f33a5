import { getEventListeners } from 'node:events';
import { beforeEach, describe, expect, it } from 'vitest';
import { type AssetSlot, AssetSlots } from '../../functions/results/asset-slots.ts';
import { never } from '../flow-service/scripted.ts';

const KB = 1_024;
const LARGE = 16 * 1_024 * KB;
const LARGE_MAX = 4;

let slots: AssetSlots;
/** Bytes that all assets under way take, and how many there are; each with the most that it came to. */
let bytes = { now: 0, max: 0 };
let underWay = { now: 0, max: 0 };
beforeEach(() => {
  slots = new AssetSlots(LARGE_MAX, LARGE);
  bytes = { now: 0, max: 0 };
  underWay = { now: 0, max: 0 };
});

function add(gauge: { now: number; max: number }, by: number): void {
  gauge.now += by;
  gauge.max = Math.max(gauge.max, gauge.now);
}

const later = () => new Promise((resolve) => setImmediate(resolve));

/** One asset from the beginning of its answer to its end. Its answer says how large it is, or nothing. */
async function fetched(size: number, says: 'its size' | 'nothing' = 'its size'): Promise<void> {
  const slot = await slots.take(never);
  add(underWay, 1);
  try {
    if (says === 'its size') await slot.resize(size);
    const taken = Math.min(size, LARGE);
    add(bytes, taken);
    await later();
    if (says === 'nothing') slot.note(size);
    bytes.now -= taken;
  } finally {
    underWay.now -= 1;
    slot.release();
  }
}

const all = (sizes: readonly number[], says?: 'its size' | 'nothing') =>
  Promise.all(sizes.map((size) => fetched(size, says)));

describe('assets under a budget of memory', () => {
  it('go many side by side if they are small', async () => {
    await all(Array<number>(200).fill(100 * KB));
    expect(underWay.max).toBe(32);
    expect(bytes.max).toBeLessThanOrEqual(32 * 100 * KB);
  });

  it('go few side by side if they are large', async () => {
    await all(Array<number>(16).fill(3 * LARGE));
    expect(underWay.max).toBe(LARGE_MAX);
    expect(bytes.max).toBe(LARGE_MAX * LARGE);
  });

  it('are taken for large ones until the first has shown its size', async () => {
    const first = Array.from({ length: 32 }, () => slots.take(never));
    let count = 0;
    for (const slot of first) void slot.then(() => (count += 1));
    await later();
    expect(count).toBe(LARGE_MAX);
    (await (first[0] as Promise<AssetSlot>)).note(KB);
    for (let i = 0; i < 32; i += 1) {
      (await (first[i] as Promise<AssetSlot>)).release();
    }
  });

  it('are taken for large ones again when one turns out to be large', async () => {
    await all(Array<number>(32).fill(KB));
    await fetched(LARGE);
    underWay.max = 0;
    await all(Array<number>(8).fill(LARGE));
    expect(underWay.max).toBe(LARGE_MAX);
  });

  it('do not wait for each other if 32 that were taken for small ones turn out to be large', async () => {
    await all(Array<number>(32).fill(KB));
    await all(Array<number>(32).fill(LARGE));
    expect(underWay.max).toBe(32);
    expect(bytes.max).toBe(LARGE_MAX * LARGE);
    expect(bytes.now).toBe(0);
  });

  it('never take more than the budget, whatever their sizes and however they end', async () => {
    const sizes = Array.from({ length: 500 }, (_, i) => [KB, 100 * KB, LARGE / 4, LARGE, 5 * LARGE][(i * 7) % 5] ?? 0);
    await all(sizes);
    expect(bytes.max).toBeLessThanOrEqual(LARGE_MAX * LARGE);
    expect([bytes.now, underWay.now]).toEqual([0, 0]);
    // All of the budget came back.
    bytes.max = 0;
    await all(Array<number>(LARGE_MAX).fill(LARGE));
    expect(bytes.max).toBe(LARGE_MAX * LARGE);
  });

  it('of unknown sizes go as if they were large, if the ones before were', async () => {
    await all(Array<number>(8).fill(LARGE), 'nothing');
    expect(underWay.max).toBe(LARGE_MAX);
  });
});

describe('an asset that is given up', () => {
  it('while it waits for a place leaves nothing behind', async () => {
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

  it('while it waits for more memory gives back all that it had', async () => {
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
    // All of the budget is there for others, and no more than that.
    bytes.max = 0;
    await all(Array<number>(16).fill(LARGE));
    expect(bytes.max).toBe(LARGE_MAX * LARGE);
  });

  it('gives its memory to one that waits for more, before any new one has its turn', async () => {
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

  it('is released once, however often that is said', async () => {
    const slot = await slots.take(never);
    slot.release();
    slot.release();
    await all(Array<number>(8).fill(LARGE));
    expect(bytes.max).toBe(LARGE_MAX * LARGE);
  });
});
