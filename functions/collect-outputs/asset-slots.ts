import type { Clock } from '../base/clock.ts';
import { untilAborted } from '../base/invocation.ts';
import type { NotedUploads } from './collector.ts';

/**
 * Time for which an asset may keep a fast slot before its first byte has come, in milliseconds. Most answers begin
 * within a second.
 */
const FAST_MS = 3_000;

/** Received bytes that prolong the time in a fast slot by a millisecond: each MiB adds a second. */
const FAST_BYTES_PER_MS = (1024 * 1024) / 1_000;

/** Longest time in a fast slot, in milliseconds, however fast the asset comes. */
const FAST_MAX_MS = 30_000;

/** Share of the slots that are slow. */
const SLOW_SHARE = 1 / 3;

/** Another asset took the slot of this one, which lagged. */
export class OvertakenError extends Error {
  override readonly name = 'OvertakenError';
}

/** Permission to fetch one asset. */
export class AssetSlot {
  readonly uploadId: string;
  /** Aborts if another asset takes the slot ({@link OvertakenError}), or with the reason of the caller's signal. */
  readonly signal: AbortSignal;
  readonly #clock: Clock;
  readonly #overtaken = new AbortController();
  #begunAt: number | undefined;
  #received = 0;

  constructor(uploadId: string, clock: Clock, signal: AbortSignal) {
    this.uploadId = uploadId;
    this.#clock = clock;
    this.signal = AbortSignal.any([signal, this.#overtaken.signal]);
  }

  /**
   * When the asset begins to lag, in milliseconds since the epoch: 3 seconds after its request if it brings nothing, 13
   * seconds if it brings 10 MiB.
   */
  get lagsAt(): number {
    const ms = Math.min(FAST_MAX_MS, FAST_MS + this.#received / FAST_BYTES_PER_MS);
    return (this.#begunAt ?? Number.POSITIVE_INFINITY) + ms;
  }

  get isLagging(): boolean {
    return this.#clock.now() >= this.lagsAt;
  }

  /**
   * Begins the time in the slot, when the request is sent. Any delay before that is due to our pace, and not to the
   * service.
   */
  begin(): void {
    this.#begunAt ??= this.#clock.now();
  }

  /** Reports the bytes of the asset that were received so far. */
  received(bytes: number): void {
    this.#received = bytes;
  }

  overtake(): void {
    this.#overtaken.abort(new OvertakenError('Another asset took the place of this one, which came too slowly'));
  }
}

/**
 * The slots of the assets that a tick stores at the same time. Some are fast and the others slow. An asset begins in a
 * fast one, where it has a few seconds, and more if it comes fast. After that it lags. When another asset waits for a
 * fast slot, a lagging one goes on in a slow slot if one is free. Otherwise it is cut off. In both cases, other assets
 * of its upload take slow slots for the rest of the tick. An asset that fails while it lags has the same effect.
 *
 * So slow or large assets keep others waiting no longer than the time in a fast slot. An asset in a slow slot is never
 * cut off for another one.
 */
export class AssetSlots {
  readonly #clock: Clock;
  readonly #lagging: NotedUploads;
  readonly #slow: Slots;
  readonly #fast: Slots;
  #wake = new AbortController();

  /**
   * @param count of all slots.
   * @param lagging uploads whose assets take slow slots. They are noted here.
   */
  constructor(clock: Clock, count: number, lagging: NotedUploads) {
    const slowCount = Math.max(1, Math.floor(count * SLOW_SHARE));
    this.#clock = clock;
    this.#lagging = lagging;
    this.#slow = new Slots(slowCount);
    this.#fast = new Slots(count - slowCount);
  }

  /**
   * Fetches an asset as soon as there is a slot for it.
   * @throws {OvertakenError} the asset lost its slot. Or it lost its turn, because another asset of its upload lags.
   * @throws the signal's reason, and the errors of `fetch`.
   */
  async run<T>(uploadId: string, signal: AbortSignal, fetch: (slot: AssetSlot) => Promise<T>): Promise<T> {
    const slot = new AssetSlot(uploadId, this.#clock, signal);
    try {
      const granted = (this.#lagging.has(uploadId) ? this.#slow : this.#fast).wait(slot);
      this.#serve();
      await granted;
      return await fetch(slot);
    } catch (error) {
      if (slot.isLagging) this.#lagging.note(uploadId, this.#clock.now());
      throw slot.signal.aborted ? slot.signal.reason : error;
    } finally {
      this.#fast.release(slot);
      this.#slow.release(slot);
      this.#serve();
    }
  }

  /** Grants free slots. If all fast ones are taken, lagging assets leave them to those that wait. */
  #serve(): void {
    this.#wake.abort();
    this.#slow.grantAll();
    this.#fast.grantAll();
    if (!this.#fast.isWanted) return;
    const now = this.#clock.now();
    const lagging = [...this.#fast.held].filter(({ lagsAt }) => lagsAt <= now);
    for (const { uploadId } of lagging) {
      if (!this.#lagging.has(uploadId)) this.#lagging.note(uploadId, now);
      this.#fast.turnAway(uploadId);
    }
    for (const slot of lagging) {
      if (!this.#fast.isWanted) return;
      this.#fast.release(slot);
      if (!this.#slow.take(slot)) slot.overtake();
      this.#fast.grantAll();
    }
    if (!this.#fast.isWanted) return;
    this.#wake = new AbortController();
    const nextAt = Math.min(now + FAST_MS, ...[...this.#fast.held].map(({ lagsAt }) => lagsAt));
    this.#clock.sleep(Math.ceil(nextAt - now), this.#wake.signal).then(
      () => this.#serve(),
      () => {}, // An asset was served meanwhile, or none waits any more.
    );
  }
}

/** The slots of one kind. Uploads whose assets wait for one take turns. */
class Slots {
  readonly held = new Set<AssetSlot>();
  readonly #count: number;
  /** By upload id: assets that wait, with what grants them a slot. The upload whose turn it is comes first. */
  readonly #waiting = new Map<string, Map<AssetSlot, () => void>>();

  constructor(count: number) {
    this.#count = count;
  }

  get isWanted(): boolean {
    return this.#waiting.size > 0;
  }

  /** Resolves when the asset has a slot. @throws the reason of its signal. */
  async wait(slot: AssetSlot): Promise<void> {
    const { uploadId, signal } = slot;
    signal.throwIfAborted();
    const { promise, resolve } = untilAborted<void>(signal, () => this.#leave(slot));
    const ofUpload = this.#waiting.get(uploadId) ?? new Map();
    this.#waiting.set(uploadId, ofUpload.set(slot, resolve));
    await promise;
  }

  grantAll(): void {
    for (;;) {
      const [first] = this.#waiting.values();
      const [next] = first ?? [];
      if (next === undefined || !this.take(next[0])) return;
      const [slot, grant] = next;
      this.#leave(slot);
      grant();
    }
  }

  /** Takes a slot without waiting. Returns false if none is free. */
  take(slot: AssetSlot): boolean {
    if (this.held.size === this.#count) return false;
    this.held.add(slot);
    return true;
  }

  release(slot: AssetSlot): void {
    this.held.delete(slot);
  }

  /** Ends the waits of an upload. */
  turnAway(uploadId: string): void {
    for (const slot of [...(this.#waiting.get(uploadId)?.keys() ?? [])]) slot.overtake();
  }

  /** Takes an asset out of those that wait. The next turn is that of another upload. */
  #leave(slot: AssetSlot): void {
    const ofUpload = this.#waiting.get(slot.uploadId);
    if (ofUpload === undefined) return;
    ofUpload.delete(slot);
    this.#waiting.delete(slot.uploadId);
    if (ofUpload.size > 0) this.#waiting.set(slot.uploadId, ofUpload);
  }
}
