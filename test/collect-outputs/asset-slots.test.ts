import { getEventListeners } from 'node:events';
import { beforeEach, describe, expect, it } from 'vitest';
import { type AssetSlot, AssetSlots, OvertakenError } from '../../functions/collect-outputs/asset-slots.ts';
import { NotedUploads } from '../../functions/collect-outputs/collector.ts';
import { never } from '../flow-service/scripted.ts';
import { VirtualTime } from '../support/virtual-time.ts';

const MIB = 1_024 * 1_024;
const SECOND = 1_000;
/** Four fast slots, and two slow ones. */
const COUNT = 6;

let time: VirtualTime;
let lagging: NotedUploads;
let slots: AssetSlots;
beforeEach(() => {
  time = new VirtualTime();
  lagging = new NotedUploads();
  slots = new AssetSlots(time, COUNT, lagging);
});

/** An asset that is fetched until its `end` is called. */
class Fetched {
  slot: AssetSlot | undefined;
  readonly #end = Promise.withResolvers<void>();
  readonly done: Promise<void>;

  constructor(uploadId: string, { isSent = true, signal = never } = {}) {
    this.done = slots.run(uploadId, signal, async (slot) => {
      this.slot = slot;
      if (isSent) slot.begin();
      slot.signal.addEventListener('abort', () => this.#end.reject(slot.signal.reason));
      await this.#end.promise;
    });
    this.done.catch(() => {});
  }

  get state(): 'waits' | 'is fetched' | 'was overtaken' {
    if (this.slot === undefined) return 'waits';
    return this.slot.signal.aborted ? 'was overtaken' : 'is fetched';
  }

  async end(error?: Error): Promise<void> {
    if (error === undefined) this.#end.resolve();
    else this.#end.reject(error);
    await Promise.allSettled([this.done]);
    await settled();
  }
}

const fetched = (count: number, uploadId: (n: number) => string) =>
  Array.from({ length: count }, (_, n) => new Fetched(uploadId(n)));
const fresh = (count: number, name = 'fresh') => fetched(count, (n) => `${name} ${n}`);
const inState = (all: readonly Fetched[], state: Fetched['state']) => all.filter((each) => each.state === state).length;
const settled = () => time.pass(0);

describe('an asset', () => {
  it('is fetched in a fast slot. Others wait, and their uploads take turns', async () => {
    const first = fresh(4);
    const many = fetched(3, () => 'many');
    const one = new Fetched('one');
    await settled();
    expect(inState(first, 'is fetched')).toBe(4);
    await first[0]?.end();
    await first[1]?.end();
    expect([...many, one].map(({ state }) => state)).toEqual(['is fetched', 'waits', 'waits', 'is fetched']);
  });

  it('keeps its slot, however slow it is, until another asset waits for it', async () => {
    const slow = fresh(4);
    await time.pass(60 * SECOND);
    expect(inState(slow, 'is fetched')).toBe(4);
    // Two go on in the slow slots.
    const later = fresh(3, 'later');
    await settled();
    expect(inState(slow, 'is fetched')).toBe(3);
    expect(inState(later, 'is fetched')).toBe(3);
    await expect(slow[2]?.done).rejects.toThrow(OvertakenError);
  });

  it('lags after three seconds, a second later for each MiB, and after 30 seconds at the latest', async () => {
    const all = fresh(4);
    await settled();
    for (const [n, mib] of [0, 1, 10, 1_000].entries()) all[n]?.slot?.received(mib * MIB);
    const laggingAfter = async (seconds: number) => {
      await time.pass(seconds * SECOND - (time.seconds - from) * SECOND);
      return all.map(({ slot }) => slot?.isLagging);
    };
    const from = time.seconds;
    expect(await laggingAfter(2.9)).toEqual([false, false, false, false]);
    expect(await laggingAfter(3.5)).toEqual([true, false, false, false]);
    expect(await laggingAfter(12.5)).toEqual([true, true, false, false]);
    expect(await laggingAfter(29)).toEqual([true, true, true, false]);
    expect(await laggingAfter(31)).toEqual([true, true, true, true]);
  });

  it('does not lag before its request is sent', async () => {
    const unsent = Array.from({ length: 4 }, (_, n) => new Fetched(`${n}`, { isSent: false }));
    const waiting = new Fetched('waiting');
    await time.pass(60 * SECOND);
    expect(waiting.state).toBe('waits');
    unsent[3]?.slot?.begin();
    await time.pass(4 * SECOND);
    expect(waiting.state).toBe('is fetched');
  });

  it('of an upload that lags takes a slow slot, which no other asset takes away', async () => {
    const slow = fetched(4, () => 'slow');
    const own = new Fetched('slow');
    await settled();
    expect(own.state).toBe('waits');
    await time.pass(4 * SECOND);
    // Its other assets that wait do not make it lose a slot, and do not hold up the tick's other flows.
    await expect(own.done).rejects.toThrow(OvertakenError);
    expect(inState(slow, 'is fetched')).toBe(4);
    const more = fetched(3, () => 'slow');
    const others = fresh(5);
    await time.pass(60 * SECOND);
    expect(inState(more, 'is fetched')).toBe(2);
    expect(inState(slow, 'was overtaken')).toBe(4);
    expect(inState(others, 'is fetched')).toBe(4);
    await more[0]?.end();
    expect(more[2]?.state).toBe('is fetched');
  });

  it('that fails while it lags makes its upload take slow slots, and comes last among them', async () => {
    lagging.note('before', 0);
    const failed = new Fetched('failed');
    const sound = new Fetched('sound');
    const quick = new Fetched('quick');
    await quick.end(new Error('refused'));
    await time.pass(4 * SECOND);
    await failed.end(new Error('refused'));
    await sound.end();
    await expect(failed.done).rejects.toThrow('refused');
    expect(Object.keys(lagging.remembered ?? {})).toEqual(['before', 'failed']);
  });

  it('is given up when the time is over, and no other asset waits for it', async () => {
    const first = fresh(4);
    const controller = new AbortController();
    const { signal } = controller;
    const waiting = Array.from({ length: 3 }, () => new Fetched('waiting', { signal }));
    const behind = new Fetched('behind');
    const listeners = getEventListeners(never, 'abort').length;
    controller.abort(new Error('the time is over'));
    for (const { done } of waiting) await expect(done).rejects.toThrow('the time is over');
    await first[0]?.end();
    expect(behind.state).toBe('is fetched');
    expect(waiting.map(({ state }) => state)).toEqual(['waits', 'waits', 'waits']);
    expect(getEventListeners(never, 'abort').length).toBe(listeners);
    expect(time.sleepers).toBe(0);
  });
});
