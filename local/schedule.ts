import type { Clock } from '../functions/base/clock.ts';

export interface ScheduleOptions {
  readonly invoke: () => Promise<unknown>;
  readonly clock: Clock;
  /** From the end of one run to the start of the next, in milliseconds. */
  readonly intervalMs: number;
  /** Told of a run that failed. */
  readonly onFault: (error: unknown) => void;
}

/**
 * Runs something again and again, never twice at a time. Unlike EventBridge Scheduler it can be woken, because somebody
 * at a terminal waits for the result.
 */
export class Schedule {
  readonly #options: ScheduleOptions;
  readonly #stop = new AbortController();
  readonly #ended: Promise<void>;
  #woken = Promise.withResolvers<void>();

  constructor(options: ScheduleOptions) {
    this.#options = options;
    this.#ended = this.#loop();
  }

  /** Runs at once, or once more at once if it is running now. */
  wake(): void {
    this.#woken.resolve();
  }

  /** Starts no more runs, and resolves when the one under way has ended. */
  async close(): Promise<void> {
    this.#stop.abort();
    await this.#ended;
  }

  async #loop(): Promise<void> {
    const { invoke, clock, intervalMs, onFault } = this.#options;
    const { signal } = this.#stop;
    while (!signal.aborted) {
      this.#woken = Promise.withResolvers();
      await invoke().catch(onFault);
      const over = new AbortController();
      // Woken, stopped or slept enough: in each case the loop's condition is what decides.
      const slept = clock.sleep(intervalMs, AbortSignal.any([signal, over.signal])).catch(() => undefined);
      await Promise.race([slept, this.#woken.promise]);
      over.abort();
    }
  }
}

export interface FixedRateOptions extends ScheduleOptions {
  /** From the start of the schedule to the start of the first run, in milliseconds. */
  readonly firstAfterMs: number;
  /** From the start of one run to the start of the next, in milliseconds. */
  readonly intervalMs: number;
}

/** Starts a run at fixed times, as EventBridge Scheduler does: also while earlier runs go on. */
export class FixedRate {
  readonly #options: FixedRateOptions;
  readonly #stop = new AbortController();
  readonly #ended: Promise<void>;

  constructor(options: FixedRateOptions) {
    this.#options = options;
    this.#ended = this.#loop();
  }

  /** Starts no more runs, and resolves when those under way have ended. */
  async close(): Promise<void> {
    this.#stop.abort();
    await this.#ended;
  }

  async #loop(): Promise<void> {
    const { invoke, clock, firstAfterMs, intervalMs, onFault } = this.#options;
    const { signal } = this.#stop;
    const underWay = new Set<Promise<void>>();
    let dueAt = clock.now() + firstAfterMs;
    while (!signal.aborted) {
      // A sleep that was cut short rejects; the signal tells the same.
      await clock.sleep(Math.max(0, dueAt - clock.now()), signal).catch(() => undefined);
      if (signal.aborted) break;
      const run = invoke()
        .then(() => undefined, onFault)
        .finally(() => underWay.delete(run));
      underWay.add(run);
      dueAt += intervalMs;
    }
    await Promise.all(underWay);
  }
}
