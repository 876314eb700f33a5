import type { Clock } from '../base/clock.ts';

/** Aborts the sleep until a deadline. One shared error: creating one each time costs more than the timer. */
const LIFTED = new Error('The limit was lifted');

/** A movable deadline. It costs a timer only if it moves closer, because a stream moves it for every chunk. */
export class TimeLimit {
  readonly #clock: Clock;
  readonly #onExceeded: (what: string) => void;
  #deadline = Number.POSITIVE_INFINITY;
  #what = '';
  #wakesAt = Number.POSITIVE_INFINITY;
  #isOver = false;
  #sleep: AbortController | undefined;

  constructor(clock: Clock, onExceeded: (what: string) => void) {
    this.#clock = clock;
    this.#onExceeded = onExceeded;
  }

  /** Moves the deadline. @param what describes the failure if the deadline passes. */
  set(ms: number, what: string): void {
    this.#deadline = this.#clock.now() + ms;
    this.#what = what;
    if (this.#deadline < this.#wakesAt && !this.#isOver) void this.#watch();
  }

  /** Lifts the limit for now. The timer stays: the next deadline will most likely be later. */
  lift(): void {
    this.#deadline = Number.POSITIVE_INFINITY;
  }

  /** Lifts the limit for good and ends its timer. */
  end(): void {
    this.lift();
    this.#isOver = true;
    this.#sleep?.abort(LIFTED);
  }

  async #watch(): Promise<void> {
    this.#sleep?.abort(LIFTED);
    const sleep = new AbortController();
    this.#sleep = sleep;
    while (this.#deadline < Number.POSITIVE_INFINITY) {
      const leftMs = this.#deadline - this.#clock.now();
      if (leftMs <= 0) {
        this.#wakesAt = Number.POSITIVE_INFINITY;
        this.#onExceeded(this.#what);
        return;
      }
      this.#wakesAt = this.#deadline;
      try {
        await this.#clock.sleep(leftMs, sleep.signal);
      } catch {
        return; // Only an abort ends the sleep early: a closer deadline was set, or the limit has ended.
      }
    }
    this.#wakesAt = Number.POSITIVE_INFINITY;
  }
}
