import { CHAINS_PREFIX, entryKey, parseChainKey, parseEntryKey, UPLOADS_PREFIX } from '../functions/ledger/keys.ts';
import { secondDigits } from '../functions/uploads/upload.ts';
import type { Deployment } from './deployment.ts';
import { failedMarkers, objects, runningMarkers, waitingMarkers } from './listing.ts';

const MINUTE_MS = 60_000;

/** Maximum number of entries of one step back in time: 50 pages of a listing. A longer step ends the window. */
const STEP_ENTRIES_MAX = 50_000;

export interface WindowLimits {
  /** How far back the window reaches at most, in milliseconds. */
  readonly windowMs: number;
  /** Maximum number of entries. The newest are kept. */
  readonly rowsMax: number;
}

/**
 * What a look has seen: by upload id, a text that changes whenever the entry may have changed, or the chain that the
 * upload begins. Newest first.
 */
export type Seen = ReadonlyMap<string, string>;

/**
 * The newest part of the ledger. A look lists it, and reads no entry.
 *
 * The ids of uploads begin with the second in which their objects were put, so the newest are at the end of the
 * listing. An older upload may be under way as well: a retried one, or one of a backfill. These are found by their
 * markers, which change whenever the state of their upload does.
 */
export class LedgerWindow {
  readonly #deployment: Deployment;
  readonly #limits: WindowLimits;
  /** The window begins behind this id. Empty before the first look. */
  #start = '';
  /** Uploads from before the window that were under way. */
  #older: ReadonlySet<string> = new Set();

  constructor(deployment: Deployment, limits: WindowLimits) {
    this.#deployment = deployment;
    this.#limits = limits;
  }

  /** When the window begins, milliseconds since the epoch. */
  get since(): number {
    return Number.parseInt(this.#start.slice(0, 8) || '0', 16) * 1_000;
  }

  async look(signal: AbortSignal): Promise<Seen> {
    const oldest = secondDigits(this.#deployment.clock.now() - this.#limits.windowMs);
    const listed = await this.#newest(oldest, signal);
    const seen = new Map(listed.reverse());
    const marked = await this.#marked(signal);
    for (const [id, mark] of marked) this.#addOlder(seen, id, mark);
    // These have ended by now. The mark changes once more, and so the end is read.
    for (const id of this.#older) if (!marked.has(id)) this.#addOlder(seen, id, 'ended');
    this.#older = new Set([...seen.keys()].filter((id) => id <= this.#start));
    await this.#addChains(seen, signal);
    return seen;
  }

  /** A chain changes without the entry of its first file. */
  async #addChains(seen: Map<string, string>, signal: AbortSignal): Promise<void> {
    const { s3, settings } = this.#deployment;
    const place = { s3, bucket: settings.ledgerBucket, prefix: CHAINS_PREFIX, after: `${CHAINS_PREFIX}${this.#start}` };
    for await (const { Key = '', ETag = '' } of objects(place, signal)) {
      const id = parseChainKey(Key);
      const mark = id && seen.get(id);
      if (id !== undefined && mark !== undefined) seen.set(id, `${mark} ${ETag}`);
    }
  }

  #addOlder(seen: Map<string, string>, id: string, mark: string): void {
    const isOlder = id <= this.#start;
    if (isOlder && seen.size < 2 * this.#limits.rowsMax) seen.set(id, mark);
  }

  /** Lists the window, and moves its start if it has become too long. Oldest first. */
  async #newest(oldest: string, signal: AbortSignal): Promise<Listed> {
    const { rowsMax } = this.#limits;
    const listed = this.#start === '' ? await this.#first(signal) : await this.#list(this.#start, signal);
    if (this.#start < oldest) this.#start = oldest;
    const newest = listed.filter(([id]) => id > this.#start).slice(-rowsMax);
    // A listing begins after its start. So the start is the oldest id without its last digit: that id is still listed.
    if (newest.length === rowsMax) this.#start = newest[0]?.[0].slice(0, -1) ?? this.#start;
    return newest;
  }

  /**
   * The newest entries of a ledger of any size, and the start of the window. Each step goes twice as far back as the
   * one before. A step with too many entries ends the window there.
   */
  async #first(signal: AbortSignal): Promise<Listed> {
    const { rowsMax, windowMs } = this.#limits;
    const now = this.#deployment.clock.now();
    this.#start = secondDigits(now - MINUTE_MS);
    let newest: Listed = await this.#list(this.#start, signal);
    for (let back = MINUTE_MS; back < windowMs && newest.length < rowsMax; back *= 2) {
      const from = secondDigits(now - Math.min(2 * back, windowMs));
      const step = await this.#list(from, signal, this.#start);
      if (step === undefined) break;
      newest = [...step, ...newest];
      this.#start = from;
    }
    return newest;
  }

  async #list(after: string, signal: AbortSignal): Promise<Listed>;
  /** @returns undefined if there are too many. */
  async #list(after: string, signal: AbortSignal, end: string): Promise<Listed | undefined>;
  async #list(after: string, signal: AbortSignal, end?: string): Promise<Listed | undefined> {
    const { s3, settings } = this.#deployment;
    const place = { s3, bucket: settings.ledgerBucket, prefix: UPLOADS_PREFIX, after: `${UPLOADS_PREFIX}${after}` };
    const listed: [string, string][] = [];
    for await (const { Key = '', ETag = '' } of objects(place, signal)) {
      const id = parseEntryKey(Key);
      if (id === undefined || Key !== entryKey(id)) continue;
      if (end !== undefined && id >= end) break;
      listed.push([id, ETag]);
      if (end !== undefined && listed.length > STEP_ENTRIES_MAX) return undefined;
    }
    return listed;
  }

  /** The uploads that have markers, each with all of its markers in one text. */
  async #marked(signal: AbortSignal): Promise<ReadonlyMap<string, string>> {
    const marked = new Map<string, string>();
    const add = (id: string, mark: string) => marked.set(id, `${marked.get(id) ?? ''} ${mark}`);
    for await (const { uploadId, ageFrom } of runningMarkers(this.#deployment, signal)) {
      add(uploadId, `running ${ageFrom}`);
    }
    for await (const { uploadId, notBefore } of waitingMarkers(this.#deployment, signal)) {
      add(uploadId, `waiting ${notBefore}`);
    }
    const since = this.#deployment.clock.now() - this.#limits.windowMs;
    for await (const { uploadId, endedAt } of failedMarkers(this.#deployment, since, signal)) {
      add(uploadId, `failed ${endedAt}`);
    }
    return marked;
  }
}

/** Ids and ETags, oldest first. */
type Listed = (readonly [string, string])[];
