import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import pMap from 'p-map';
import type { Deployment } from '../../operations/deployment.ts';
import type { HoldsView } from '../../operations/holds.ts';
import { LedgerWindow, type WindowLimits } from '../../operations/ledger-window.ts';
import { READS_MAX, type ReadEntry, readEntries } from '../../operations/listing.ts';
import { searchable } from '../../operations/shown-state.ts';
import { pipelineStatus } from '../../operations/status.ts';
import { shownState } from '../../operations/upload-view.ts';
import type { RowState, Status, UploadRow, UploadsPage } from '../api.ts';
import { EventLog, type LoggedEvent } from './event-log.ts';
import { byArrival, countsOf, isAfter, placeOf, rowOf } from './rows.ts';

/** Entries that are read before the list shows them. */
const READ_AT_ONCE = 200;

/** The time between two looks is so many times the time of a look, or longer. A look at 10,000 entries is work. */
const REST_FACTOR = 3;

const NEVER = Number.NEGATIVE_INFINITY;

const DAY_MS = 24 * 60 * 60_000;

/** How often the feed looks, and how far back. */
export interface FeedPace extends WindowLimits {
  /** Time between two looks at the ledger, in milliseconds. */
  readonly lookMs: number;
  /** Time between two looks at the state of the pipeline, in milliseconds. */
  readonly statusMs: number;
}

const LIMITS = { windowMs: 7 * DAY_MS, rowsMax: 10_000 };

/**
 * The local run is in this process, or beside it. Requests to AWS cost money: a look at 10,000 entries is 10 requests.
 */
export const paceOf = ({ isLocal }: Deployment): FeedPace =>
  isLocal ? { ...LIMITS, lookMs: 1_000, statusMs: 2_000 } : { ...LIMITS, lookMs: 5_000, statusMs: 15_000 };

/** Which rows a visitor wants. */
export interface RowQuery {
  readonly state?: RowState | undefined;
  /** A part of the key, in any case. */
  readonly name?: string | undefined;
  /** `next` of the page before. */
  readonly before?: string | undefined;
  readonly limit: number;
}

/**
 * The rows of the last days, and what changes in them. A look lists the ledger, reads the entries that changed since
 * the look before, and logs the differences. It looks while a client listens, and when the list is asked for.
 */
export class Feed {
  readonly #deployment: Deployment;
  readonly #pace: FeedPace;
  readonly #signal: AbortSignal;
  readonly #window: LedgerWindow;
  readonly #log = new EventLog();
  readonly #rows = new Map<string, UploadRow>();
  /** The entries of the rows that wait. What they wait for may change without them: a hold begins or ends. */
  readonly #waiting = new Map<string, NonNullable<ReadEntry['entry']>>();
  /** By upload id: what the last look saw of the entry that was read. */
  #read: ReadonlyMap<string, string> = new Map();
  readonly #unreadable = new Set<string>();
  #sorted: readonly UploadRow[] | undefined;
  #look: Promise<void> | undefined;
  /** When the last look ended. `NEVER` if it failed. */
  #lookedAt = NEVER;
  #statusAt = NEVER;
  #status = '';
  /** What the last look at the status found. */
  #holds: HoldsView | undefined;
  #isComplete = false;
  /** True if a list may have been shown that is not complete. */
  #isPartlyShown = false;
  #isLooping = false;
  /** Resolves when the newest rows are read. */
  #begun = Promise.withResolvers<void>();

  constructor(deployment: Deployment, signal: AbortSignal, pace: FeedPace = paceOf(deployment)) {
    this.#deployment = deployment;
    this.#pace = pace;
    this.#signal = signal;
    this.#window = new LedgerWindow(deployment, pace);
  }

  /**
   * Returns a page of the list. While a client listens, it is as of the last look. Otherwise a look is made first,
   * unless the last one is younger than `lookMs`. During the first look, the page has the newest entries only.
   */
  async list({ state, name = '', before, limit }: RowQuery): Promise<UploadsPage> {
    await this.#freshen();
    const lastEvent = this.#log.lastId;
    this.#sorted ??= [...this.#rows.values()].sort(byArrival);
    const part = searchable(name);
    const named = part === '' ? this.#sorted : this.#sorted.filter(({ key }) => searchable(key).includes(part));
    const wanted = state === undefined ? named : named.filter((row) => shownState(row) === state);
    const rest = before === undefined ? wanted : wanted.filter((row) => isAfter(row, before));
    const uploads = rest.slice(0, limit);
    const last = uploads.at(-1);
    return {
      uploads,
      next: last !== undefined && rest.length > limit ? placeOf(last) : undefined,
      total: wanted.length,
      counts: countsOf(named),
      isComplete: this.#isComplete,
      since: new Date(this.#window.since).toISOString(),
      unreadable: this.#unreadable.size,
      lastEvent,
    };
  }

  /** Calls the listener with every event after `after`, as `EventLog.listen` does, and looks on until that is ended. */
  listen(after: string | undefined, listener: (event: LoggedEvent) => void): () => void {
    const end = this.#log.listen(after, listener);
    if (!this.#isLooping) void this.#loop();
    return end;
  }

  /** Has the status read soon after a change of the pipeline begins, and again after it ends. */
  async during<T>(change: Promise<T>): Promise<T> {
    this.#statusAt = NEVER;
    try {
      return await change;
    } finally {
      this.#statusAt = NEVER;
    }
  }

  get listeners(): number {
    return this.#log.listeners;
  }

  get lastId(): string {
    return this.#log.lastId;
  }

  async #loop(): Promise<void> {
    this.#isLooping = true;
    while (this.#log.listeners > 0 && !this.#signal.aborted) {
      const begunAt = performance.now();
      // A look that fails is made again. Who asks for the list gets the error.
      await this.#lookOnce().catch(() => undefined);
      await this.#lookAtStatus().catch(() => undefined);
      const restMs = Math.max(this.#pace.lookMs, REST_FACTOR * (performance.now() - begunAt));
      await sleep(restMs, undefined, { signal: this.#signal }).catch(() => undefined);
    }
    this.#isLooping = false;
  }

  async #freshen(): Promise<void> {
    const isKept = this.#isLooping && this.#lookedAt !== NEVER;
    if (isKept || performance.now() - this.#lookedAt < this.#pace.lookMs) return;
    const look = this.#lookOnce();
    if (this.#isComplete) return look;
    look.catch(() => undefined);
    await Promise.race([look, this.#begun.promise]);
  }

  /** All who want a look at the same time share one. */
  #lookOnce(): Promise<void> {
    this.#look ??= this.#lookAtLedger()
      .catch((error) => {
        this.#lookedAt = NEVER;
        throw error;
      })
      .finally(() => {
        this.#look = undefined;
      });
    return this.#look;
  }

  async #lookAtLedger(): Promise<void> {
    const seen = await this.#window.look(this.#signal);
    const changed = [...seen].filter(([id, mark]) => this.#read.get(id) !== mark);
    // What was read stays known if the look breaks off.
    const read = new Map(this.#read);
    this.#read = read;
    for (const id of read.keys()) {
      if (seen.has(id)) continue;
      read.delete(id);
      this.#remove(id);
    }
    for (let from = 0; from < changed.length; from += READ_AT_ONCE) {
      const some = changed.slice(from, from + READ_AT_ONCE);
      await this.#readRows(some.map(([id]) => id));
      for (const [id, mark] of some) read.set(id, mark);
      if (from + READ_AT_ONCE < changed.length) this.#begin();
    }
    this.#lookedAt = performance.now();
    this.#isComplete = true;
    if (this.#isPartlyShown) this.#log.add('reset', { reason: 'Older uploads have been read.' });
    this.#isPartlyShown = false;
    this.#begun.resolve();
  }

  /** The newest rows can be shown. Older ones follow. */
  #begin(): void {
    if (this.#isComplete) return;
    this.#isPartlyShown = true;
    this.#begun.resolve();
  }

  async #readRows(ids: readonly string[]): Promise<void> {
    const entries = await readEntries(ids, this.#deployment, this.#signal);
    const toRow = ({ entry }: ReadEntry) => entry && rowOf(entry, this.#holds, this.#deployment, this.#signal);
    const rows = await pMap(entries, toRow, { concurrency: READS_MAX });
    for (const [index, { entry, issue }] of entries.entries()) {
      const id = ids[index] as string;
      const row = rows[index];
      if (entry?.state === 'waiting') this.#waiting.set(id, entry);
      else this.#waiting.delete(id);
      if (row !== undefined) this.#set(row);
      else this.#remove(id);
      if (issue?.kind === 'unreadable') this.#unreadable.add(id);
      else this.#unreadable.delete(id);
    }
  }

  #set(row: UploadRow): void {
    const before = this.#rows.get(row.id);
    if (before !== undefined && JSON.stringify(before) === JSON.stringify(row)) return;
    this.#rows.set(row.id, row);
    this.#sorted = undefined;
    // The first rows are no news: the list has them.
    if (this.#isComplete) this.#log.add('upload', row);
  }

  /** Shows the uploads that wait by what is held now. */
  async #setHolds(holds: HoldsView): Promise<void> {
    const before = this.#holds;
    this.#holds = holds;
    if (isDeepStrictEqual(before?.holds, holds.holds)) return;
    for (const [id, entry] of this.#waiting) {
      const row = await rowOf(entry, holds, this.#deployment, this.#signal);
      if (this.#waiting.get(id) === entry) this.#set(row);
    }
  }

  #remove(id: string): void {
    this.#unreadable.delete(id);
    this.#waiting.delete(id);
    if (!this.#rows.delete(id)) return;
    this.#sorted = undefined;
    this.#log.add('removed', { id });
  }

  async #lookAtStatus(): Promise<void> {
    if (performance.now() - this.#statusAt < this.#pace.statusMs) return;
    // Set first: if the pipeline is changed during this look, the next one comes soon.
    this.#statusAt = performance.now();
    const status: Status = await pipelineStatus(this.#deployment, this.#signal).catch((error: unknown) => {
      this.#statusAt = NEVER;
      throw error;
    });
    await this.#setHolds(status.holds);
    // The window of the failures moves with the clock, and is no news.
    const text = JSON.stringify({ ...status, failed: status.failed.count });
    if (text === this.#status) return;
    this.#status = text;
    this.#log.add('status', status);
  }
}
