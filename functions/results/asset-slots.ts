import type { Clock } from '../base/clock.ts';

/** Maximum number of assets that are fetched at the same time. More did not make a flow of small assets faster. */
const SIDE_BY_SIDE_MAX = 32;

/** Number of latest asset sizes that predict the size of the next asset. */
const SIZES_REMEMBERED = 16;

/** Turn of an asset that brings nothing, in milliseconds. Most heads of answers take less than a second. */
const TURN_MS = 3_000;

/** Rate at which received bytes prolong a turn, in bytes a millisecond: a second for each MiB. */
const TURN_BYTES_PER_MS = (1024 * 1024) / 1_000;

/** Longest turn, in milliseconds, however fast the asset comes. */
const TURN_MAX_MS = 30_000;

/**
 * Share of all slots that late assets keep although others wait. Otherwise they would never be fetched. It has room for
 * one large asset at least, unless there is room for only one in all.
 */
const LATE_SHARE = 0.25;

/** Another asset took the slot of this one, whose turn was over. */
export class OvertakenError extends Error {
  override readonly name = 'OvertakenError';
}

/** The flow that an asset belongs to. */
export interface SlotOwner {
  readonly flowId: string;
  /** True if an asset of this flow has lost its slot, or failed, after its turn. */
  readonly isLate: boolean;
}

/** Permission to fetch one asset, with memory for it. */
export interface AssetSlot {
  /** Aborts if another asset takes the slot ({@link OvertakenError}), or with the reason of the caller's signal. */
  readonly signal: AbortSignal;
  /** True once the turn is over. From then on others may take the slot. */
  readonly isLate: boolean;
  /** Begins the turn. Called when the request is sent: until then, the pace delays the asset, and not the service. */
  begin(): void;
  /** Reports the bytes of the asset that were received so far. */
  received(bytes: number): void;
  /**
   * Reports the asset's size, or its maximum size, in bytes. Resolves when there is memory for it.
   * @throws the signal's reason.
   */
  resize(bytes: number): Promise<void>;
  /** Reports the size of an asset after it was fetched, in bytes. It helps to predict the next ones. */
  note(bytes: number): void;
  release(): void;
}

/** An asset that has a slot. */
class Holder {
  readonly flowId: string;
  readonly #clock: Clock;
  readonly #wasLate: boolean;
  readonly #overtaken = new AbortController();
  readonly signal: AbortSignal;
  bytes: number;
  /** Undefined before the request, and while the asset waits for memory. */
  #begunAt: number | undefined;
  #elapsedMs = 0;
  #received = 0;

  constructor({ flowId, isLate }: SlotOwner, bytes: number, clock: Clock, signal: AbortSignal) {
    this.flowId = flowId;
    this.bytes = bytes;
    this.#wasLate = isLate;
    this.#clock = clock;
    this.signal = AbortSignal.any([signal, this.#overtaken.signal]);
  }

  get turnEndsAt(): number {
    if (this.#wasLate) return 0;
    if (this.#begunAt === undefined) return Number.POSITIVE_INFINITY;
    return this.#begunAt + Math.min(TURN_MAX_MS, TURN_MS + this.#received / TURN_BYTES_PER_MS);
  }

  get isLate(): boolean {
    return this.#clock.now() >= this.turnEndsAt;
  }

  /** Bytes received in a millisecond of the request. */
  get rate(): number {
    return this.#received / Math.max(1, this.#clock.now() - (this.#begunAt ?? this.#clock.now()));
  }

  get isOvertaken(): boolean {
    return this.#overtaken.signal.aborted;
  }

  begin(): void {
    this.#begunAt ??= this.#clock.now() - this.#elapsedMs;
  }

  /** Stops the turn while the asset waits for us. Returns true if it had begun. */
  pause(): boolean {
    if (this.#begunAt === undefined) return false;
    this.#elapsedMs = this.#clock.now() - this.#begunAt;
    this.#begunAt = undefined;
    return true;
  }

  received(bytes: number): void {
    this.#received = bytes;
  }

  overtake(): void {
    this.#overtaken.abort(new OvertakenError('Another asset took the place of this one, which came too slowly'));
  }
}

interface Waiting {
  readonly bytes: number;
  readonly flowId: string;
  readonly isLate: boolean;
  /** The slot that is resized. Undefined for a new one. */
  readonly holder?: Holder | undefined;
  readonly grant: () => void;
}

/** Memory and number of some slots. */
interface Places {
  readonly bytes: number;
  readonly slots: number;
}

function sumOf(holders: Iterable<Holder>): Places {
  let bytes = 0;
  let slots = 0;
  for (const holder of holders) {
    bytes += holder.bytes;
    slots += 1;
  }
  return { bytes, slots };
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
 * Each asset has its turn: a few seconds, and more if it comes fast. After its turn it is late. If it then fails or
 * loses its slot, all assets of its flow are late from then on. Late assets take any slot that no other asset waits
 * for. If others wait, the slowest late assets lose their slots, down to a share that late assets always keep. So
 * neither slow nor large assets keep others waiting for longer than a turn.
 */
export class AssetSlots {
  readonly #clock: Clock;
  /** The limit of all slots, and that of the share which late assets keep. */
  readonly #all: Places;
  readonly #lateShare: Places;
  readonly #largeBytes: number;
  readonly #holders = new Set<Holder>();
  /** Slots that wait for more memory. */
  readonly #growing: Waiting[] = [];
  /** By flow: those that wait for a new slot. */
  readonly #waiting = new Map<string, Waiting[]>();
  readonly #sizes: number[] = [];
  /** Ends the sleep until the next turn is over. Undefined if no asset waits for that. */
  #sleep: AbortController | undefined;

  /**
   * @param largeMax maximum number of large assets at the same time.
   * @param largeBytes memory of a large asset, in bytes. No asset takes more.
   */
  constructor(clock: Clock, largeMax: number, largeBytes: number) {
    this.#clock = clock;
    this.#all = { bytes: largeMax * largeBytes, slots: SIDE_BY_SIDE_MAX };
    const lateLargeMax = largeMax === 1 ? LATE_SHARE : Math.max(1, largeMax * LATE_SHARE);
    this.#lateShare = { bytes: lateLargeMax * largeBytes, slots: SIDE_BY_SIDE_MAX * LATE_SHARE };
    this.#largeBytes = largeBytes;
  }

  /** @throws the signal's reason. */
  async take(owner: SlotOwner, signal: AbortSignal): Promise<AssetSlot> {
    const { flowId, isLate } = owner;
    const bytes = this.#sizes.length === 0 ? this.#largeBytes : Math.max(...this.#sizes);
    let holder!: Holder;
    await this.#wait({ bytes, flowId, isLate }, signal, () => {
      holder = new Holder(owner, bytes, this.#clock, signal);
      this.#holders.add(holder);
    });
    const note = (size: number): void => {
      this.#sizes.push(Math.min(size, this.#largeBytes));
      if (this.#sizes.length > SIZES_REMEMBERED) this.#sizes.shift();
    };
    return {
      signal: holder.signal,
      get isLate() {
        return holder.isLate;
      },
      begin: () => {
        holder.begin();
        this.#serve();
      },
      received: (received) => holder.received(received),
      note,
      resize: async (needed) => {
        const size = Math.min(needed, this.#largeBytes);
        note(size);
        const isGrowing = size > holder.bytes;
        holder.bytes = isGrowing ? 0 : size;
        const hadBegun = isGrowing && holder.pause();
        this.#serve();
        if (!isGrowing) return;
        await this.#wait({ bytes: size, flowId, isLate, holder }, holder.signal, () => {
          holder.bytes = size;
          if (hadBegun) holder.begin();
        });
      },
      release: () => {
        if (this.#holders.delete(holder)) this.#serve();
      },
    };
  }

  #wait(what: Omit<Waiting, 'grant'>, signal: AbortSignal, onGrant: () => void): Promise<void> {
    signal.throwIfAborted();
    return new Promise((resolve, reject) => {
      const waiting: Waiting = {
        ...what,
        grant: () => {
          signal.removeEventListener('abort', abort);
          this.#remove(waiting);
          onGrant();
          resolve();
        },
      };
      const abort = (): void => {
        this.#remove(waiting);
        reject(signal.reason);
        this.#serve();
      };
      signal.addEventListener('abort', abort, { once: true });
      this.#listOf(waiting).push(waiting);
      this.#serve();
    });
  }

  #listOf({ holder, flowId }: Waiting): Waiting[] {
    if (holder !== undefined) return this.#growing;
    const list = this.#waiting.get(flowId) ?? [];
    this.#waiting.set(flowId, list);
    return list;
  }

  #remove(waiting: Waiting): void {
    const list = this.#listOf(waiting);
    list.splice(list.indexOf(waiting), 1);
    if (waiting.holder === undefined && list.length === 0) this.#waiting.delete(waiting.flowId);
  }

  #serve(): void {
    for (let next = this.#first(); next !== undefined; next = this.#first()) {
      if (!this.#fits(next, this.#holders)) {
        this.#makeRoomFor(next);
        return;
      }
      next.grant();
    }
    this.#sleep?.abort();
  }

  /** Returns the one that comes first: late assets within their share, then others, then the other late assets. */
  #first(): Waiting | undefined {
    if (this.#growing.length === 0 && this.#waiting.size === 0) return undefined;
    const slotsByFlow = new Map<string, number>();
    for (const { flowId } of this.#holders) slotsByFlow.set(flowId, (slotsByFlow.get(flowId) ?? 0) + 1);
    let first: Waiting | undefined;
    let firstRank: readonly number[] = [];
    const consider = (waiting: Waiting, rank: readonly number[]): void => {
      const at = rank.findIndex((value, index) => value !== firstRank[index]);
      if (first !== undefined && (at === -1 || (rank[at] as number) > (firstRank[at] as number))) return;
      first = waiting;
      firstRank = rank;
    };
    for (const waiting of this.#growing) consider(waiting, [this.#isBeyondShare(waiting) ? 2 : 0, 0, 0]);
    for (const [flowId, [waiting]] of this.#waiting) {
      if (waiting === undefined) continue;
      const order = this.#isBeyondShare(waiting) ? 2 : waiting.isLate ? 0 : 1;
      consider(waiting, [order, 1, slotsByFlow.get(flowId) ?? 0]);
    }
    return first;
  }

  #isBeyondShare(waiting: Waiting): boolean {
    const isLate = waiting.holder?.isLate ?? waiting.isLate;
    return isLate && !this.#fits(waiting, this.#lateHolders(), this.#lateShare);
  }

  /** Returns true if there is room for one more beside these holders. */
  #fits({ bytes, holder }: Waiting, beside: Iterable<Holder>, places = this.#all): boolean {
    const sum = sumOf(beside);
    const slots = holder === undefined ? 1 : 0;
    return sum.slots + slots <= places.slots && sum.bytes + bytes <= places.bytes;
  }

  #lateHolders(): Holder[] {
    return [...this.#holders].filter(({ isLate }) => isLate);
  }

  /** Takes slots from the slowest late assets beyond their share, or looks again when the next turn is over. */
  #makeRoomFor(next: Waiting): void {
    if (this.#isBeyondShare(next)) return;
    const staying = new Set([...this.#holders].filter(({ isOvertaken }) => !isOvertaken));
    const beyond = this.#lateBeyondShare();
    while (!this.#fits(next, staying)) {
      const slowest = beyond.pop();
      if (slowest === undefined) break;
      staying.delete(slowest);
      slowest.overtake();
    }
    const turnEndsAt = Math.min(...[...staying].filter(({ isLate }) => !isLate).map((holder) => holder.turnEndsAt));
    this.#serveAt(turnEndsAt);
  }

  /** Late assets without those that the share keeps, the slowest last. */
  #lateBeyondShare(): Holder[] {
    const late = this.#lateHolders()
      .filter(({ isOvertaken }) => !isOvertaken)
      .sort((a, b) => b.rate - a.rate);
    const kept: Holder[] = [];
    return late.filter((holder) => {
      const { bytes, slots } = sumOf([...kept, holder]);
      const isKept = slots <= this.#lateShare.slots && bytes <= this.#lateShare.bytes;
      if (isKept) kept.push(holder);
      return !isKept;
    });
  }

  #serveAt(time: number): void {
    this.#sleep?.abort();
    this.#sleep = undefined;
    if (time === Number.POSITIVE_INFINITY) return;
    const sleep = new AbortController();
    this.#sleep = sleep;
    this.#clock.sleep(Math.ceil(time - this.#clock.now()), sleep.signal).then(
      () => this.#serve(),
      () => {}, // An asset was served meanwhile, or none waits any more.
    );
  }
}
