/** Time, as an argument of everything that needs it, so that a test or a simulation can control it. */
export interface Clock {
  /** Milliseconds since the epoch. */
  now(): number;
  /** Resolves after `ms` milliseconds. Rejects with the signal's reason as soon as the signal aborts. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

/** A time in milliseconds since the epoch as ISO 8601, in UTC with milliseconds. */
export const iso = (ms: number): string => new Date(ms).toISOString();

/** A time of ISO 8601 with its time of day, in milliseconds since the epoch. Undefined if the text is none. */
export function timeOfIso(text: string): number | undefined {
  const parts = /^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d(?:\.\d+)?)?)\s*(Z|[+-]\d\d:?\d\d)?$/i.exec(text);
  if (parts === null) return undefined;
  // A time without a zone means UTC. Date would assume the zone of this machine.
  const time = Date.parse(`${parts[1]}T${parts[2]}${parts[3] ?? 'Z'}`);
  return Number.isNaN(time) ? undefined : time;
}

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
