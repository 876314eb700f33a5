export const SECOND = 1_000;
export const MINUTE = 60 * SECOND;

/** Largest number of events of a seed. With more, something does not end. */
const EVENTS_MAX = 300_000;

interface Event {
  readonly at: number;
  readonly order: number;
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
  readonly #heap: Event[] = [];

  /** @param start milliseconds since the epoch. */
  constructor(start: number) {
    this.#now = start;
  }

  now(): number {
    return this.#now;
  }

  /** Schedules an event. Clocks count whole milliseconds, and no timer fires early. */
  schedule(at: number, run: () => void): Scheduled {
    const event: Event = { at: Math.max(Math.ceil(at), this.#now), order: this.#count++, run, isCancelled: false };
    this.#push(event);
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
      const next = this.#heap[0];
      if (next === undefined || next.at > until) {
        this.#now = Math.max(this.#now, until);
        return false;
      }
      this.#pop();
      if (next.isCancelled) continue;
      if (this.#count > EVENTS_MAX) throw new Error(`More than ${EVENTS_MAX} events: something does not end`);
      this.#now = next.at;
      next.run();
      await rest();
    }
  }

  #push(event: Event): void {
    const heap = this.#heap;
    heap.push(event);
    for (let at = heap.length - 1; at > 0; ) {
      const above = (at - 1) >> 1;
      if (!isBefore(event, heap[above] as Event)) break;
      heap[at] = heap[above] as Event;
      heap[above] = event;
      at = above;
    }
  }

  #pop(): void {
    const heap = this.#heap;
    const last = heap.pop() as Event;
    if (heap.length === 0) return;
    heap[0] = last;
    for (let at = 0; ; ) {
      const left = 2 * at + 1;
      if (left >= heap.length) break;
      const right = left + 1;
      const least = right < heap.length && isBefore(heap[right] as Event, heap[left] as Event) ? right : left;
      if (!isBefore(heap[least] as Event, last)) break;
      heap[at] = heap[least] as Event;
      heap[least] = last;
      at = least;
    }
  }
}

const isBefore = (a: Event, b: Event): boolean => a.at < b.at || (a.at === b.at && a.order < b.order);

const rest = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
