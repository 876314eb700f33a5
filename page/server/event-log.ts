import { randomBytes } from 'node:crypto';
import type { Events } from '../api.ts';

/** Minimum number of events kept for clients that come back, and half of the maximum. Each has some 500 bytes. */
const KEPT_MAX = 5_000;

/** An event as it is sent. */
export interface LoggedEvent {
  readonly id: string;
  readonly name: keyof Events;
  /** JSON. */
  readonly data: string;
}

type Listener = (event: LoggedEvent) => void;

/**
 * The events of one run of the server, in their order. A client that comes back names the last event that it got, and
 * gets all later ones, or a `reset` if they are not kept any more.
 */
export class EventLog {
  /** Ids of another server name other events. */
  readonly #run = randomBytes(6).toString('hex');
  readonly #kept: LoggedEvent[] = [];
  readonly #listeners = new Set<Listener>();
  #last = 0;

  /** The id of the latest event. */
  get lastId(): string {
    return this.#idOf(this.#last);
  }

  get listeners(): number {
    return this.#listeners.size;
  }

  add<N extends keyof Events>(name: N, data: Events[N]): void {
    this.#last += 1;
    const event = { id: this.lastId, name, data: JSON.stringify(data) };
    this.#kept.push(event);
    // In large steps, because each moves the rest of the list.
    if (this.#kept.length > 2 * KEPT_MAX) this.#kept.splice(0, this.#kept.length - KEPT_MAX);
    for (const listener of this.#listeners) listener(event);
  }

  /**
   * Calls the listener with all events after `after`, and with all that come. Returns what ends that.
   * @param after the id of the last event that the client got. Undefined: from now on.
   */
  listen(after: string | undefined, listener: Listener): () => void {
    for (const event of this.#missed(after)) listener(event);
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #missed(after: string | undefined): readonly LoggedEvent[] {
    if (after === undefined || after === this.lastId) return [];
    const number = this.#numberOf(after);
    const oldest = this.#last - this.#kept.length;
    if (number !== undefined && number >= oldest && number < this.#last) return this.#kept.slice(number - oldest);
    const reason = number === undefined ? 'The event is not known.' : 'Too much has happened in between.';
    return [{ id: this.lastId, name: 'reset', data: JSON.stringify({ reason } satisfies Events['reset']) }];
  }

  #idOf(number: number): string {
    return `${this.#run}-${number}`;
  }

  /** Undefined for an id of another run. */
  #numberOf(id: string): number | undefined {
    const [, run, number] = /^([0-9a-f]+)-(\d{1,15})$/.exec(id) ?? [];
    return run === this.#run ? Number(number) : undefined;
  }
}
