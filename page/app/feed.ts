import type { About, Events, Status, UploadRow, UploadsPage } from '../api.ts';
import { getAbout, getStatus, getUploads, messageOf, openEvents, RequestFailedError } from './server.ts';

/** `lost`: it connects again by itself. `no-access`: the server does not have the key of this page. */
export type Connection = 'connecting' | 'live' | 'lost' | 'no-access';

/** Rows of the first request, so that the list appears at once, and of each later one. */
const FIRST_PAGE_ROWS = 100;
const PAGE_ROWS = 1_000;

/** Time until the first try to connect again, doubled up to the maximum, in milliseconds. */
const RECONNECT_MS = 500;
const RECONNECT_MAX_MS = 8_000;

/** How far the list goes. */
export type ListExtent = Pick<UploadsPage, 'since' | 'isComplete' | 'unreadable'>;

/**
 * What the server knows, kept up to date by its events. Dispatches `change` after each change, and `end` with the row
 * of an upload that has just ended.
 *
 * The rows come page by page, the newest first. The events go on from the first page. So a row that an event has
 * brought is newer than the same row in a later page.
 */
export class Feed extends EventTarget {
  about: About | undefined;
  status: Status | undefined;
  connection: Connection = 'connecting';
  /** False until every row was loaded once. */
  isLoaded = false;
  /** What the first page says of the whole list. */
  extent: ListExtent | undefined;
  /** Why the rows could not be loaded. */
  problem: string | undefined;
  #rows = new Map<string, UploadRow>();
  #sorted: readonly UploadRow[] | undefined;
  /** What events have brought or removed since the present load began. Undefined outside of a load. */
  #changed: Set<string> | undefined;
  #events: EventSource | undefined;
  #lastEvent: string | undefined;
  #reconnectMs = RECONNECT_MS;
  #timer: number | undefined;
  #load = 0;

  /** All rows, newest first. */
  get rows(): readonly UploadRow[] {
    this.#sorted ??= [...this.#rows.values()].sort(newestFirst);
    return this.#sorted;
  }

  row(id: string): UploadRow | undefined {
    return this.#rows.get(id);
  }

  /** Takes over what a change came to, before the server's events tell it. */
  setHolds(holds: Status['holds']): void {
    if (this.status !== undefined) this.status = { ...this.status, holds };
    this.#changedNow();
  }

  start(): void {
    void this.#loadAll();
    window.addEventListener('online', this.#connectNow);
    document.addEventListener('visibilitychange', this.#see);
  }

  stop(): void {
    this.#load += 1;
    this.#disconnect();
    window.removeEventListener('online', this.#connectNow);
    document.removeEventListener('visibilitychange', this.#see);
  }

  async #loadAll(): Promise<void> {
    this.#load += 1;
    const load = this.#load;
    const isStale = () => load !== this.#load;
    this.#disconnect();
    // If this load fails, the next attempt must load too: the list may be stale, and no event tells.
    this.#changed = new Set();
    try {
      const [about, status, first] = await Promise.all([
        getAbout(),
        getStatus(),
        getUploads(undefined, FIRST_PAGE_ROWS),
      ]);
      if (isStale()) return;
      this.about = about;
      this.status = status;
      this.problem = undefined;
      this.extent = first;
      const changed = new Set<string>();
      this.#changed = changed;
      this.#lastEvent = first.lastEvent;
      const before = this.#rows;
      this.#rows = new Map(first.uploads.map((row) => [row.id, row]));
      // The older rows stay until they are loaded again: the list does not jump.
      for (const [id, row] of before) if (!this.#rows.has(id)) this.#rows.set(id, row);
      const seen = new Set(first.uploads.map(({ id }) => id));
      await this.#connect();
      if (isStale()) return;
      this.#changedNow();
      for (let { next } = first; next !== undefined; ) {
        const page = await getUploads(next, PAGE_ROWS);
        if (isStale()) return;
        for (const row of page.uploads) {
          seen.add(row.id);
          if (!changed.has(row.id)) this.#rows.set(row.id, row);
        }
        this.#changedNow();
        next = page.next;
      }
      for (const id of before.keys()) if (!seen.has(id) && !changed.has(id)) this.#rows.delete(id);
      this.#changed = undefined;
      this.isLoaded = true;
      this.#changedNow();
    } catch (error) {
      if (!isStale()) this.#lost(error);
    }
  }

  /** @throws {RequestFailedError} */
  async #connect(): Promise<void> {
    this.#disconnect();
    if (isHidden()) return;
    const load = this.#load;
    const after = this.#lastEvent === undefined ? '' : `&after=${encodeURIComponent(this.#lastEvent)}`;
    const events = await openEvents(`${this.about?.eventsUrl}${after}`);
    if (load !== this.#load || isHidden()) {
      events.close();
      return;
    }
    this.#disconnect();
    this.#events = events;
    events.addEventListener('open', () => {
      this.connection = 'live';
      this.#reconnectMs = RECONNECT_MS;
      this.#changedNow();
    });
    events.addEventListener('error', () => {
      events.close();
      void this.#askWhy();
    });
    this.#on(events, 'upload', (row) => {
      const old = this.#rows.get(row.id);
      this.#rows.set(row.id, row);
      this.#changed?.add(row.id);
      const isEnd = row.endedAt !== undefined && old?.state !== row.state;
      if (isEnd) this.dispatchEvent(new CustomEvent('end', { detail: row }));
    });
    this.#on(events, 'removed', ({ id }) => {
      this.#rows.delete(id);
      this.#changed?.add(id);
    });
    this.#on(events, 'status', (status) => {
      this.status = status;
    });
    this.#on(events, 'reset', () => void this.#loadAll());
  }

  #on<Name extends keyof Events>(events: EventSource, name: Name, handle: (data: Events[Name]) => void): void {
    events.addEventListener(name, ({ data, lastEventId }: MessageEvent<string>) => {
      if (lastEventId !== '') this.#lastEvent = lastEventId;
      handle(JSON.parse(data));
      this.#changedNow();
    });
  }

  /** An event source does not say why it failed. */
  async #askWhy(): Promise<void> {
    const load = this.#load;
    const problem = await getAbout().then(
      () => undefined,
      (error: unknown) => error,
    );
    if (load === this.#load) this.#lost(problem);
  }

  #lost(error: unknown): void {
    this.#disconnect();
    const hasNoAccess = error instanceof RequestFailedError && error.code === 'no-access';
    this.connection = hasNoAccess ? 'no-access' : 'lost';
    this.problem = error === undefined ? undefined : messageOf(error);
    this.#timer = window.setTimeout(() => this.#again(), this.#reconnectMs);
    this.#reconnectMs = Math.min(this.#reconnectMs * 2, RECONNECT_MAX_MS);
    this.#changedNow();
  }

  /** A load that did not come to its end begins anew. */
  #again(): void {
    if (!this.isLoaded || this.#changed !== undefined) void this.#loadAll();
    else this.#connect().catch((error) => this.#lost(error));
  }

  /** A browser has six connections to a server, for all tabs together. Seven that listen would stop each other. */
  #see = (): void => {
    if (isHidden()) this.#disconnect();
    else if (this.#events === undefined) this.#connectNow();
  };

  #connectNow = (): void => {
    if (this.#events !== undefined || isHidden()) return;
    this.#reconnectMs = RECONNECT_MS;
    this.#disconnect();
    this.#again();
  };

  #disconnect(): void {
    this.#events?.close();
    this.#events = undefined;
    window.clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #changedNow(): void {
    this.#sorted = undefined;
    this.dispatchEvent(new Event('change'));
  }
}

const isHidden = (): boolean => document.visibilityState === 'hidden';

function newestFirst(a: UploadRow, b: UploadRow): number {
  if (a.arrivedAt !== b.arrivedAt) return a.arrivedAt < b.arrivedAt ? 1 : -1;
  return a.id < b.id ? 1 : -1;
}
