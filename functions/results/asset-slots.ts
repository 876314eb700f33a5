import type { Clock } from '../base/clock.ts';

/** Maximum number of assets that are fetched at the same time. More did not make a flow of small assets faster. */
const SIDE_BY_SIDE_MAX = 32;

/** Number of latest asset sizes that predict the size of the next asset. */
const SIZES_REMEMBERED = 16;

/** Time in the slot of an asset that brings nothing, in milliseconds. Most heads of answers take less than a second. */
const SLOT_TIME_MS = 3_000;

/** Rate at which received bytes prolong that time, in bytes a millisecond: a second for each MiB. */
const SLOT_BYTES_PER_MS = (1024 * 1024) / 1_000;

/** Longest time in a slot, in milliseconds, however fast the asset comes. */
const SLOT_TIME_MAX_MS = 30_000;

/**
 * Share of all slots that lagging assets keep although others wait. Otherwise they would never be fetched. It has room
 * for one large asset at least, unless there is room for only one in all.
 */
const LAGGING_SHARE = 0.25;

/** Another asset took the slot of this one, which lagged. */
export class OvertakenError extends Error {
  override readonly name = 'OvertakenError';
}

/** The flow that an asset belongs to. */
export interface SlotOwner {
  readonly flowId: string;
  /** True if an asset of this flow has lost its slot, or failed, while it lagged. */
  readonly isLagging: boolean;
}

/** Permission to fetch one asset, with memory for it. */
export class AssetSlot {
  readonly flowId: string;
  /** Aborts if another asset takes the slot ({@link OvertakenError}), or with the reason of the caller's signal. */
  readonly signal: AbortSignal;
  /** The memory that it has. 0 while it waits for more. */
  bytes = 0;
  readonly #slots: AssetSlots;
  readonly #wasLagging: boolean;
  readonly #overtaken = new AbortController();
  /** Undefined before the request, and while the asset waits for memory. */
  #begunAt: number | undefined;
  #received = 0;

  constructor({ flowId, isLagging }: SlotOwner, slots: AssetSlots, signal: AbortSignal) {
    this.flowId = flowId;
    this.#wasLagging = isLagging;
    this.#slots = slots;
    this.signal = AbortSignal.any([signal, this.#overtaken.signal]);
  }

  /** When the time in the slot ends, in milliseconds since the epoch. */
  get lagsAt(): number {
    if (this.#wasLagging) return 0;
    if (this.#begunAt === undefined) return Number.POSITIVE_INFINITY;
    return this.#begunAt + Math.min(SLOT_TIME_MAX_MS, SLOT_TIME_MS + this.#received / SLOT_BYTES_PER_MS);
  }

  /** True once its time in the slot is over. From then on others may take the slot. */
  get isLagging(): boolean {
    return this.#slots.clock.now() >= this.lagsAt;
  }

  /** Bytes received in a millisecond of the request. */
  get rate(): number {
    const now = this.#slots.clock.now();
    return this.#received / Math.max(1, now - (this.#begunAt ?? now));
  }

  get isOvertaken(): boolean {
    return this.#overtaken.signal.aborted;
  }

  overtake(): void {
    this.#overtaken.abort(new OvertakenError('Another asset took the place of this one, which came too slowly'));
  }

  /** Begins the time in the slot, when the request is sent. Until then our pace delays the asset. The service does not. */
  begin(): void {
    this.#begunAt ??= this.#slots.clock.now();
    this.#slots.serve();
  }

  /** Reports the bytes of the asset that were received so far. */
  received(bytes: number): void {
    this.#received = bytes;
  }

  /**
   * Reports the asset's size, or its maximum size, in bytes. Resolves when there is memory for it.
   * @throws the signal's reason.
   */
  async resize(bytes: number): Promise<void> {
    const size = this.#slots.note(bytes);
    if (size <= this.bytes) {
      this.bytes = size;
      this.#slots.serve();
      return;
    }
    const begunAt = this.#begunAt;
    const pausedAt = this.#slots.clock.now();
    this.#begunAt = undefined;
    this.bytes = 0;
    await this.#slots.wait(this, size);
    if (begunAt !== undefined) this.#begunAt = begunAt + this.#slots.clock.now() - pausedAt;
  }

  /** Reports the size of an asset after it was fetched, in bytes. */
  note(bytes: number): void {
    this.#slots.note(bytes);
  }

  release(): void {
    this.#slots.release(this);
  }
}

/** A slot that waits for memory. */
interface Waiting {
  readonly slot: AssetSlot;
  readonly bytes: number;
  readonly grant: () => void;
}

/** Memory and number of some slots. */
interface Places {
  readonly bytes: number;
  readonly slots: number;
}

/**
 * The memory of assets while they are stored: a budget in bytes that all flows of a process share. It has room for many
 * small assets at the same time, or for a few large ones.
 *
 * The size of an asset is known only when its answer begins. Until then it is assumed to be as large as the largest of
 * the latest assets. The first asset of all is assumed to be a large one.
 *
 * A slot that needs more memory releases its own before it waits, and comes before new slots. Otherwise slots could
 * wait for each other for ever. Among flows, the one with the fewest slots comes first; then first come, first served.
 *
 * Each asset has its time in the slot: a few seconds, and more if it comes fast. After that it lags. If it then fails
 * or loses its slot, all assets of its flow lag from then on. Lagging assets take any slot that no other asset waits
 * for. If others wait, the slowest lagging assets lose their slots, down to a share that they always keep. So neither
 * slow nor large assets keep others waiting for longer than the time in a slot.
 */
export class AssetSlots {
  readonly clock: Clock;
  /** The limit of all slots, and that of the share which lagging assets keep. */
  readonly #all: Places;
  readonly #laggingShare: Places;
  readonly #largeBytes: number;
  /** The slots that were granted. */
  readonly #holders = new Set<AssetSlot>();
  /** Granted slots that wait for more memory. */
  readonly #growing: Waiting[] = [];
  /** By flow: slots that were not granted yet. */
  readonly #waiting = new Map<string, Waiting[]>();
  readonly #sizes: number[] = [];
  /** Ends the sleep until the next asset lags. Undefined if no asset waits for that. */
  #sleep: AbortController | undefined;

  /**
   * @param largeMax maximum number of large assets at the same time.
   * @param largeBytes memory of a large asset, in bytes. No asset takes more.
   */
  constructor(clock: Clock, largeMax: number, largeBytes: number) {
    this.clock = clock;
    this.#all = { bytes: largeMax * largeBytes, slots: SIDE_BY_SIDE_MAX };
    const laggingLargeMax = largeMax === 1 ? LAGGING_SHARE : Math.max(1, largeMax * LAGGING_SHARE);
    this.#laggingShare = { bytes: laggingLargeMax * largeBytes, slots: SIDE_BY_SIDE_MAX * LAGGING_SHARE };
    this.#largeBytes = largeBytes;
  }

  /** @throws the signal's reason. */
  async take(owner: SlotOwner, signal: AbortSignal): Promise<AssetSlot> {
    const slot = new AssetSlot(owner, this, signal);
    await this.wait(slot, this.#sizes.length === 0 ? this.#largeBytes : Math.max(...this.#sizes));
    return slot;
  }

  /** Remembers the size of an asset, to predict the next ones. Returns the memory that it takes. */
  note(bytes: number): number {
    const size = Math.min(bytes, this.#largeBytes);
    this.#sizes.push(size);
    if (this.#sizes.length > SIZES_REMEMBERED) this.#sizes.shift();
    return size;
  }

  release(slot: AssetSlot): void {
    if (this.#holders.delete(slot)) this.serve();
  }

  /** Resolves when the slot has so much memory. @throws the signal's reason. */
  wait(slot: AssetSlot, bytes: number): Promise<void> {
    const { signal } = slot;
    signal.throwIfAborted();
    const list = this.#holders.has(slot) ? this.#growing : (this.#waiting.get(slot.flowId) ?? []);
    if (list !== this.#growing) this.#waiting.set(slot.flowId, list);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const leave = (): void => {
      signal.removeEventListener('abort', abort);
      list.splice(list.indexOf(waiting), 1);
      if (list !== this.#growing && list.length === 0) this.#waiting.delete(slot.flowId);
    };
    const abort = (): void => {
      leave();
      reject(signal.reason);
      this.serve();
    };
    const grant = (): void => {
      leave();
      slot.bytes = bytes;
      this.#holders.add(slot);
      resolve();
    };
    const waiting: Waiting = { slot, bytes, grant };
    signal.addEventListener('abort', abort, { once: true });
    list.push(waiting);
    this.serve();
    return promise;
  }

  /** Grants what there is room for. */
  serve(): void {
    for (let next = this.#first(); next !== undefined; next = this.#first()) {
      if (!this.#fits(next, this.#holders)) {
        this.#makeRoomFor(next);
        return;
      }
      next.grant();
    }
    this.#sleep?.abort();
  }

  /** Returns the one that comes first: lagging assets within their share, then others, then the other lagging ones. */
  #first(): Waiting | undefined {
    const slotsByFlow = new Map<string, number>();
    for (const { flowId } of this.#holders) slotsByFlow.set(flowId, (slotsByFlow.get(flowId) ?? 0) + 1);
    let first: Waiting | undefined;
    let firstRank = Number.POSITIVE_INFINITY;
    const consider = (waiting: Waiting, rank: number): void => {
      if (rank >= firstRank) return;
      first = waiting;
      firstRank = rank;
    };
    const beyond = 2 * RANKS;
    for (const waiting of this.#growing) consider(waiting, this.#isBeyondShare(waiting) ? beyond : 0);
    for (const [flowId, [waiting]] of this.#waiting) {
      if (waiting === undefined) continue;
      const order = this.#isBeyondShare(waiting) ? beyond : waiting.slot.isLagging ? 0 : RANKS;
      consider(waiting, order + 1 + (slotsByFlow.get(flowId) ?? 0));
    }
    return first;
  }

  #isBeyondShare(waiting: Waiting): boolean {
    return waiting.slot.isLagging && !this.#fits(waiting, this.#laggingHolders(), this.#laggingShare);
  }

  /** Returns true if there is room for one more beside these holders. */
  #fits({ slot, bytes }: Waiting, beside: Iterable<AssetSlot>, places = this.#all): boolean {
    const sum = sumOf(beside);
    const slots = this.#holders.has(slot) ? 0 : 1;
    return sum.slots + slots <= places.slots && sum.bytes + bytes <= places.bytes;
  }

  #laggingHolders(): AssetSlot[] {
    return [...this.#holders].filter(({ isLagging }) => isLagging);
  }

  /** Takes slots from the slowest lagging assets beyond their share, or waits until the next asset lags. */
  #makeRoomFor(next: Waiting): void {
    if (this.#isBeyondShare(next)) return;
    const staying = new Set([...this.#holders].filter(({ isOvertaken }) => !isOvertaken));
    const beyond = this.#laggingBeyondShare();
    while (!this.#fits(next, staying)) {
      const slowest = beyond.pop();
      if (slowest === undefined) break;
      staying.delete(slowest);
      slowest.overtake();
    }
    this.#serveAt(Math.min(...[...staying].filter(({ isLagging }) => !isLagging).map(({ lagsAt }) => lagsAt)));
  }

  /** Lagging assets without those that the share keeps, the slowest last. */
  #laggingBeyondShare(): AssetSlot[] {
    const lagging = this.#laggingHolders()
      .filter(({ isOvertaken }) => !isOvertaken)
      .sort((a, b) => b.rate - a.rate);
    const kept: AssetSlot[] = [];
    return lagging.filter((slot) => {
      const { bytes, slots } = sumOf([...kept, slot]);
      const isKept = slots <= this.#laggingShare.slots && bytes <= this.#laggingShare.bytes;
      if (isKept) kept.push(slot);
      return !isKept;
    });
  }

  #serveAt(time: number): void {
    this.#sleep?.abort();
    this.#sleep = undefined;
    if (time === Number.POSITIVE_INFINITY) return;
    const sleep = new AbortController();
    this.#sleep = sleep;
    this.clock.sleep(Math.ceil(time - this.clock.now()), sleep.signal).then(
      () => this.serve(),
      () => {}, // An asset was served meanwhile, or none waits any more.
    );
  }
}

/** More than the slots of any flow. */
const RANKS = 2 * SIDE_BY_SIDE_MAX;

function sumOf(slots: Iterable<AssetSlot>): Places {
  let [bytes, count] = [0, 0];
  for (const slot of slots) {
    bytes += slot.bytes;
    count += 1;
  }
  return { bytes, slots: count };
}
