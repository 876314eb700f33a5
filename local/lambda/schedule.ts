import type { Clock } from '../../functions/base/clock.ts';

export interface ScheduleOptions {
  readonly invoke: () => Promise<unknown>;
  readonly clock: Clock;
  /** From the end of one run to the start of the next, in milliseconds. */
  readonly intervalMs: number;
  /** Called for a run that failed. */
  readonly onFault: (error: unknown) => void;
}

/**
 * Runs a function again and again, one run at a time. Unlike EventBridge Scheduler it can be woken, because a user at a
 * terminal waits for the result.
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

  /** Starts the next run at once. If one is running, the next starts right after it. */
  wake(): void {
    this.#woken.resolve();
  }

  /** Starts no more runs. Resolves when the current one has ended. */
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
      // Woken, stopped or slept to the end: the loop's condition decides in each case.
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

/** Starts runs at fixed times, even while earlier runs go on, as EventBridge Scheduler does. */
export class FixedRate {
  readonly #options: FixedRateOptions;
  readonly #stop = new AbortController();
  readonly #ended: Promise<void>;

  constructor(options: FixedRateOptions) {
    this.#options = options;
    this.#ended = this.#loop();
  }

  /** Starts no more runs. Resolves when the current ones have ended. */
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
      // An interrupted sleep rejects. The signal says the same.
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
