import { PART_BYTES_MIN } from '../s3/limits.ts';

/**
 * Size of a part, in bytes. An upload holds one part while it fills and one while it is sent, so this bounds memory.
 * Larger parts were no faster.
 */
export const PART_BYTES = PART_BYTES_MIN;

/**
 * The memory of parts: buffers of {@link PART_BYTES} that all uploads of a process share and reuse. An upload needs
 * one. With a second one it is faster, because it fills that one while the first is sent.
 */
export class PartBuffers {
  readonly #countMax: number;
  readonly #spare: Buffer[] = [];
  /** Resolvers of the uploads that wait for a buffer, in the order of their calls. */
  readonly #waiting = new Set<(buffer: Buffer) => void>();
  #taken = 0;

  /** @param countMax maximum number of buffers that are taken at the same time. */
  constructor(countMax: number) {
    this.#countMax = countMax;
  }

  /**
   * Takes a buffer, or waits until one is released. An upload that waits holds at most the buffer of a part that is
   * being sent. That one is released, so every wait ends.
   * @throws the signal's reason.
   */
  take(signal: AbortSignal): Promise<Buffer> {
    const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
    if (this.#taken < this.#countMax) {
      this.#taken += 1;
      resolve(this.#spare.pop() ?? Buffer.allocUnsafeSlow(PART_BYTES));
      return promise;
    }
    const abort = (): void => {
      this.#waiting.delete(resolve);
      reject(signal.reason);
    };
    this.#waiting.add(resolve);
    if (signal.aborted) abort();
    signal.addEventListener('abort', abort);
    return promise.finally(() => signal.removeEventListener('abort', abort));
  }

  /** @param buffer undefined if a request may still read it. Its place is then free, but its memory is not reused. */
  release(buffer?: Buffer): void {
    const [next] = this.#waiting;
    if (next !== undefined) {
      this.#waiting.delete(next);
      next(buffer ?? Buffer.allocUnsafeSlow(PART_BYTES));
      return;
    }
    this.#taken -= 1;
    if (buffer !== undefined) this.#spare.push(buffer);
    // Keep no memory while no upload runs.
    if (this.#taken === 0) this.#spare.length = 0;
  }
}
