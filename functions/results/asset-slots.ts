/** Maximum number of assets that are fetched at the same time. More did not make a flow of small assets faster. */
const SIDE_BY_SIDE_MAX = 32;

/** Number of latest asset sizes that predict the size of the next asset. */
const SIZES_REMEMBERED = 16;

/** Permission to fetch one asset, with memory for it. */
export interface AssetSlot {
  /**
   * Reports the asset's size, or its maximum size, in bytes. Resolves when there is memory for it.
   * @throws the signal's reason.
   */
  resize(bytes: number): Promise<void>;
  /** Reports the size of an asset after it was fetched, in bytes. It helps to predict the next ones. */
  note(bytes: number): void;
  release(): void;
}

interface Waiting {
  readonly bytes: number;
  /** 1 for a new slot, 0 for a resized one. */
  readonly slots: 0 | 1;
  readonly grant: () => void;
}

/**
 * The memory of assets while they are stored: a budget in bytes that all flows of a process share. It has room for many
 * small assets at the same time, or for a few large ones.
 *
 * The size of an asset is known only when its answer begins. Until then it is assumed to be as large as the largest of
 * the latest assets. The first asset of all is assumed to be a large one.
 *
 * A slot that needs more memory releases its own before it waits, and comes before new slots. Otherwise slots could
 * wait for each other for ever. Among equals, the order is first come, first served.
 */
export class AssetSlots {
  readonly #bytesMax: number;
  readonly #largeBytes: number;
  #bytesInUse = 0;
  #slotsInUse = 0;
  readonly #waiting: Waiting[] = [];
  readonly #sizes: number[] = [];

  /**
   * @param largeMax maximum number of large assets at the same time.
   * @param largeBytes memory of a large asset, in bytes. No asset takes more.
   */
  constructor(largeMax: number, largeBytes: number) {
    this.#bytesMax = largeMax * largeBytes;
    this.#largeBytes = largeBytes;
  }

  /** @throws the signal's reason. */
  async take(signal: AbortSignal): Promise<AssetSlot> {
    let bytes = this.#sizes.length === 0 ? this.#largeBytes : Math.max(...this.#sizes);
    await this.#wait(bytes, 1, signal);
    let isReleased = false;
    const release = (): void => {
      if (isReleased) return;
      isReleased = true;
      this.#release(bytes, 1);
    };
    const note = (size: number): void => {
      this.#sizes.push(Math.min(size, this.#largeBytes));
      if (this.#sizes.length > SIZES_REMEMBERED) this.#sizes.shift();
    };
    const resize = async (needed: number): Promise<void> => {
      const size = Math.min(needed, this.#largeBytes);
      note(size);
      const before = bytes;
      bytes = Math.min(bytes, size);
      if (size <= before) {
        this.#release(before - size, 0);
        return;
      }
      bytes = 0;
      this.#release(before, 0);
      await this.#wait(size, 0, signal);
      bytes = size;
    };
    return { resize, note, release };
  }

  #wait(bytes: number, slots: 0 | 1, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    return new Promise((resolve, reject) => {
      const waiting: Waiting = {
        bytes,
        slots,
        grant: () => {
          signal.removeEventListener('abort', abort);
          this.#bytesInUse += bytes;
          this.#slotsInUse += slots;
          resolve();
        },
      };
      const abort = (): void => {
        this.#waiting.splice(this.#waiting.indexOf(waiting), 1);
        reject(signal.reason);
        this.#serve();
      };
      signal.addEventListener('abort', abort, { once: true });
      const firstNew = this.#waiting.findIndex((other) => other.slots === 1);
      if (slots === 1 || firstNew === -1) this.#waiting.push(waiting);
      else this.#waiting.splice(firstNew, 0, waiting);
      this.#serve();
    });
  }

  #release(bytes: number, slots: 0 | 1): void {
    this.#bytesInUse -= bytes;
    this.#slotsInUse -= slots;
    this.#serve();
  }

  #serve(): void {
    for (let next = this.#waiting[0]; next !== undefined; next = this.#waiting[0]) {
      if (this.#slotsInUse + next.slots > SIDE_BY_SIDE_MAX || this.#bytesInUse + next.bytes > this.#bytesMax) return;
      this.#waiting.shift();
      next.grant();
    }
  }
}
