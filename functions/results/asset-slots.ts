/** Assets that are fetched side by side, at most: more of them make a flow of small ones no faster. */
const SIDE_BY_SIDE_MAX = 32;

/** Sizes of the latest assets that the next one is expected to resemble. */
const SIZES_REMEMBERED = 16;

/** A place to fetch an asset in. */
export interface AssetSlot {
  /**
   * The asset's size is known, or can be no more than this, in bytes. Resolves when there is memory for it.
   * @throws the signal's reason.
   */
  resize(bytes: number): Promise<void>;
  /** The asset turned out to have so many bytes: the next ones may be alike. */
  note(bytes: number): void;
  release(): void;
}

interface Waiting {
  readonly bytes: number;
  /** 1 for a new slot, 0 for one that is resized. */
  readonly slots: 0 | 1;
  readonly give: () => void;
}

/**
 * The memory that assets take on their way, as a budget in bytes that all flows of a process share: many small ones side
 * by side, or a few large ones.
 *
 * The size of an asset shows only when its answer begins. So the next one is expected to be as large as the largest of
 * the latest ones, and the first one to be a large one. A slot that needs more than it has gives back what it has before
 * it waits, and goes before new slots, so that slots cannot wait for each other. Otherwise first come, first served.
 */
export class AssetSlots {
  readonly #bytesMax: number;
  readonly #largeBytes: number;
  #bytesTaken = 0;
  #taken = 0;
  readonly #waiting: Waiting[] = [];
  readonly #sizes: number[] = [];

  /**
   * @param largeMax large assets side by side.
   * @param largeBytes memory that a large asset takes, in bytes. No asset takes more.
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
      this.#give(bytes, 1);
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
        this.#give(before - size, 0);
        return;
      }
      bytes = 0;
      this.#give(before, 0);
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
        give: () => {
          signal.removeEventListener('abort', abort);
          this.#bytesTaken += bytes;
          this.#taken += slots;
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

  #give(bytes: number, slots: 0 | 1): void {
    this.#bytesTaken -= bytes;
    this.#taken -= slots;
    this.#serve();
  }

  #serve(): void {
    for (let next = this.#waiting[0]; next !== undefined; next = this.#waiting[0]) {
      if (this.#taken + next.slots > SIDE_BY_SIDE_MAX || this.#bytesTaken + next.bytes > this.#bytesMax) return;
      this.#waiting.shift();
      next.give();
    }
  }
}
