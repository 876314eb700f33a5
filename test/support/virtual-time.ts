import type { Clock } from '../../functions/base/clock.ts';
import { Timeline } from '../simulation/timeline.ts';

const START = Date.UTC(2026, 0, 1);
const HOUR_MS = 60 * 60_000;

/** Time that passes only while {@link VirtualTime.during} runs, and then at once. Nothing in it may wait for anything real. */
export class VirtualTime implements Clock {
  readonly #timeline = new Timeline(START);
  /** Waits that have neither ended nor been aborted. */
  sleepers = 0;

  now(): number {
    return this.#timeline.now();
  }

  /** Seconds since the beginning. */
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
      const timer = this.#timeline.schedule(this.now() + ms, end(resolve));
      signal?.addEventListener('abort', aborted);
    });
  }

  /** Lets time pass until the body is done. @throws {Error} it takes longer than `limitMs`. */
  async during<T>(body: () => Promise<T>, limitMs = HOUR_MS): Promise<T> {
    let isDone = false;
    const result = body().finally(() => {
      isDone = true;
    });
    result.catch(() => {}); // It is awaited below.
    if (!(await this.#timeline.run(() => isDone, this.now() + limitMs))) {
      throw new Error(`Not done after ${limitMs / 1000} seconds`);
    }
    return result;
  }

  /** Lets time pass. */
  pass(ms: number): Promise<void> {
    return this.during(() => this.sleep(ms), ms + 1);
  }
}
