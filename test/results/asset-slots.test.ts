import { getEventListeners } from 'node:events';
import { beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../functions/base/clock.ts';
import { type AssetSlot, AssetSlots } from '../../functions/results/asset-slots.ts';
import { never } from '../flow-service/scripted.ts';
import { VirtualTime } from '../support/virtual-time.ts';

const KB = 1_024;
const SECOND = 1_000;
const LARGE = 16 * 1_024 * KB;
const LARGE_MAX = 4;

const owner = { flowId: 'f1', isLagging: false };
let slots: AssetSlots;
/** Bytes and number of all assets in progress, each with its maximum. */
let bytes = { now: 0, max: 0 };
let inProgress = { now: 0, max: 0 };
beforeEach(() => {
  slots = new AssetSlots(systemClock, LARGE_MAX, LARGE);
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
  const slot = await slots.take(owner, never);
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
    const first = Array.from({ length: 32 }, () => slots.take(owner, never));
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

describe('a lagging asset', () => {
  /** Takes slots for assets of as many flows, and sends their requests. */
  const begun = async (count: number) => {
    const taken: AssetSlot[] = [];
    for (let n = 0; n < count; n += 1) taken.push(await slots.take({ flowId: `slow${n}`, isLagging: false }, never));
    for (const slot of taken) slot.begin();
    return taken;
  };
  const overtaken = (taken: readonly AssetSlot[]) => taken.filter(({ signal }) => signal.aborted).length;
  const fresh = { flowId: 'fresh', isLagging: false };
  const lagging = { flowId: 'lagging', isLagging: true };
  let time: VirtualTime;
  beforeEach(() => {
    time = new VirtualTime();
    slots = new AssetSlots(time, LARGE_MAX, LARGE);
  });

  it('keeps its slot until another asset waits for it', async () => {
    const slow = await begun(LARGE_MAX);
    await time.pass(60 * SECOND);
    expect(overtaken(slow)).toBe(0);
    const waiting = slots.take(fresh, never);
    expect(overtaken(slow)).toBe(1);
    for (const slot of slow) if (slot.signal.aborted) slot.release();
    (await waiting).release();
  });

  it('is overtaken after three seconds, and later if it comes faster', async () => {
    const slow = await begun(LARGE_MAX);
    for (const [n, slot] of slow.entries()) slot.received(n * 5 * 1_024 * KB);
    void slots.take(fresh, never);
    await time.pass(2.9 * SECOND);
    expect(slow.map(({ signal }) => signal.aborted)).toEqual([false, false, false, false]);
    // The first of them, the slowest, is the only lagging one. So it is within the share of lagging assets.
    await time.pass(2 * SECOND);
    expect(slow.map(({ isLagging }) => isLagging)).toEqual([true, false, false, false]);
    expect(overtaken(slow)).toBe(0);
    await time.pass(4 * SECOND);
    expect(slow.map(({ signal }) => signal.aborted)).toEqual([true, false, false, false]);
  });

  it('does not begin before its request is sent', async () => {
    const [slot] = await Promise.all(Array.from({ length: LARGE_MAX }, () => slots.take(owner, never)));
    void slots.take(fresh, never);
    await time.pass(60 * SECOND);
    expect(slot?.isLagging).toBe(false);
  });

  it('is among the lagging assets that keep a quarter of the slots, however many others come', async () => {
    const others = await begun(LARGE_MAX);
    const order: string[] = [];
    const laggingOne = slots.take(lagging, never).then((slot) => {
      order.push('lagging');
      return slot;
    });
    void slots.take(fresh, never).then(() => order.push('fresh'));
    others[0]?.release();
    const kept = await laggingOne;
    others[1]?.release();
    await later();
    expect(order).toEqual(['lagging', 'fresh']);
    // A second lagging one is beyond that share, and the first one keeps its slot.
    void slots.take({ ...lagging, flowId: 'lagging too' }, never).then(() => order.push('lagging too'));
    void slots.take(fresh, never).then(() => order.push('fresh too'));
    others[2]?.release();
    await later();
    expect(order).toEqual(['lagging', 'fresh', 'fresh too']);
    expect(kept.signal.aborted).toBe(false);
  });

  it('gives its slot to the flow with the fewest slots', async () => {
    const many = Array.from({ length: 3 * LARGE_MAX }, () => slots.take(owner, never));
    const [first] = await Promise.all(many.slice(0, LARGE_MAX));
    let isServed = false;
    void slots.take(fresh, never).then(() => {
      isServed = true;
    });
    first?.release();
    await later();
    expect(isServed).toBe(true);
  });
});

describe('a slot', () => {
  it('leaves nothing behind if it is aborted before it is granted', async () => {
    const held = await Promise.all(Array.from({ length: LARGE_MAX }, () => slots.take(owner, never)));
    const controller = new AbortController();
    const { signal } = controller;
    const waiting = Promise.allSettled(Array.from({ length: 10 }, () => slots.take(owner, signal)));
    const behind = slots.take(owner, never);
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
    const small = await Promise.all(Array.from({ length: LARGE_MAX }, () => slots.take(owner, never)));
    const growing = await Promise.all(Array.from({ length: 4 }, () => slots.take(owner, signal)));
    const grown = small.map((slot) => slot.resize(LARGE));
    const outcomes = Promise.allSettled(growing.map((slot) => slot.resize(LARGE)));
    await Promise.all(grown);
    const listeners = () => growing.map((slot) => getEventListeners(slot.signal, 'abort').length);
    expect(listeners()).toEqual([1, 1, 1, 1]);
    controller.abort(new Error('No more'));
    for (const outcome of await outcomes) expect(outcome).toMatchObject({ status: 'rejected', reason: signal.reason });
    for (const slot of [...small, ...growing]) slot.release();
    expect(listeners()).toEqual([0, 0, 0, 0]);
    // The whole budget is free for others, and no more than that.
    bytes.max = 0;
    await all(Array<number>(16).fill(LARGE));
    expect(bytes.max).toBe(LARGE_MAX * LARGE);
  });

  it('releases its memory to a slot that waits for more before any new slot', async () => {
    await all(Array<number>(32).fill(KB));
    const slot = () => slots.take(owner, never);
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
    const slot = await slots.take(owner, never);
    slot.release();
    slot.release();
    await all(Array<number>(8).fill(LARGE));
    expect(bytes.max).toBe(LARGE_MAX * LARGE);
  });
});
