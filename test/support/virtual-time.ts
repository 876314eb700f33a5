import type { Clock } from '../../functions/base/clock.ts';
import { Timeline } from '../simulation/timeline.ts';

const START = Date.UTC(2026, 0, 1);
const HOUR_MS = 60 * 60_000;

/**
 * Time that passes only while {@link VirtualTime.during} runs, and then at once: when all work has come to rest, the
 * next wait ends. Nothing in it may wait for anything real. Several bodies may run at a time.
 */
export class VirtualTime implements Clock {
  readonly #timeline = new Timeline(START);
  #advancedMs = 0;
  #bodies = 0;
  #isPassing = false;
  /** Waits that have neither ended nor been aborted. */
  sleepers = 0;

  now(): number {
    return this.#timeline.now() + this.#advancedMs;
  }

  /** Seconds since this clock started. */
  get seconds(): number {
    return (this.now() - START) / 1000;
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      signal?.throwIfAborted();
      this.sleepers += 1;
      const end = (settle: () => void) => (): void => {
        this.sleepers -= 1;
        timer.cancel();
        signal?.removeEventListener('abort', aborted);
        settle();
      };
      const aborted = end(() => reject(signal?.reason));
      const timer = this.#timeline.schedule(this.#timeline.now() + ms, end(resolve));
      signal?.addEventListener('abort', aborted);
    });
  }

  /** Moves the clock on by hand. Waits that are under way become no shorter. */
  advance(ms: number): void {
    this.#advancedMs += ms;
  }

  /** Lets time pass until the body is done. @throws {Error} it takes longer than `limitMs`. */
  async during<T>(body: () => Promise<T>, limitMs = HOUR_MS): Promise<T> {
    const limit = Promise.withResolvers<never>();
    const timer = this.#timeline.schedule(this.#timeline.now() + limitMs, () =>
      limit.reject(new Error(`Not done after ${limitMs / 1000} seconds`)),
    );
    this.#bodies += 1;
    if (!this.#isPassing) void this.#pass();
    try {
      return await Promise.race([body(), limit.promise]);
    } finally {
      timer.cancel();
      this.#bodies -= 1;
    }
  }

  /** Lets time pass. */
  pass(ms: number): Promise<void> {
    return this.during(() => this.sleep(ms), ms + 1);
  }

  async #pass(): Promise<void> {
    this.#isPassing = true;
    while (this.#bodies > 0) await this.#timeline.run(() => this.#bodies === 0, Number.POSITIVE_INFINITY);
    this.#isPassing = false;
  }
}
