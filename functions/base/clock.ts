/** Time, as an argument of everything that needs it, so that a test or a simulation can control it. */
export interface Clock {
  /** Milliseconds since the epoch. */
  now(): number;
  /** Resolves after `ms` milliseconds. Rejects with the signal's reason as soon as the signal aborts. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

/** A time in milliseconds since the epoch as ISO 8601, in UTC with milliseconds. */
export const iso = (ms: number): string => new Date(ms).toISOString();

/** Largest difference that is allowed between a clock of ours and that of another party, in milliseconds. */
export const CLOCK_SKEW_MAX_MS = 5 * 60_000;

export const systemClock: Clock = {
  now: () => Date.now(),
  // node:timers/promises would create an error for every wait that ends early, as nearly all do. That was a tenth of
  // the cost of a poll.
  sleep: (ms, signal) =>
    new Promise((resolve, reject) => {
      const end = (settle: () => void) => () => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', aborted);
        settle();
      };
      const aborted = end(() => reject(signal?.reason));
      const timer = setTimeout(end(resolve), ms);
      if (signal?.aborted === true) aborted();
      else signal?.addEventListener('abort', aborted);
    }),
};
