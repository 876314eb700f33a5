/** Time as the functions see it: an argument everywhere, so that a test or a simulation can own it. */
export interface Clock {
  /** Milliseconds since the epoch. */
  now(): number;
  /** Resolves after `ms` milliseconds; rejects with the signal's reason as soon as it aborts. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

export const systemClock: Clock = {
  now: () => Date.now(),
  // Not node:timers/promises, which makes an error of its own for every wait that ends early, as nearly all do: that
  // was a tenth of what a poll costs.
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
