export const SECOND = 1_000;
export const MINUTE = 60 * SECOND;

/** Largest number of events of a seed. With more, something does not end. */
const EVENTS_MAX = 300_000;

interface Event {
  readonly at: number;
  readonly run: () => void;
  isCancelled: boolean;
}

export interface Scheduled {
  cancel(): void;
}

/**
 * Virtual time. Everything happens in events, one after another. An event begins when everything that the event before
 * set off has come to rest. A simulation waits for nothing real, so that rest is one turn of Node's event loop, which
 * ends when no microtask and no next tick is left.
 */
export class Timeline {
  #now: number;
  #count = 0;
  /** The events to come, the next one last. */
  readonly #events: Event[] = [];

  /** @param start milliseconds since the epoch. */
  constructor(start: number) {
    this.#now = start;
  }

  now(): number {
    return this.#now;
  }

  /** Schedules an event. Clocks count whole milliseconds, and no timer fires early. */
  schedule(at: number, run: () => void): Scheduled {
    const event: Event = { at: Math.max(Math.ceil(at), this.#now), run, isCancelled: false };
    this.#count += 1;
    this.#events.splice(this.#placeOf(event), 0, event);
    return {
      cancel: () => {
        event.isCancelled = true;
      },
    };
  }

  /** Runs events until `isDone`, or up to a time. Returns whether it is done. */
  async run(isDone: () => boolean, until: number): Promise<boolean> {
    await rest();
    for (;;) {
      if (isDone()) return true;
      const next = this.#events.at(-1);
      if (next === undefined || next.at > until) {
        this.#now = Math.max(this.#now, until);
        return false;
      }
      this.#events.pop();
      if (next.isCancelled) continue;
      if (this.#count > EVENTS_MAX) throw new Error(`More than ${EVENTS_MAX} events: something does not end`);
      this.#now = next.at;
      next.run();
      await rest();
    }
  }

  /** An event comes after all others of the same time that were scheduled before it. */
  #placeOf({ at }: Event): number {
    let from = 0;
    for (let to = this.#events.length; from < to; ) {
      const middle = (from + to) >> 1;
      if ((this.#events[middle] as Event).at > at) from = middle + 1;
      else to = middle;
    }
    return from;
  }
}

const rest = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
