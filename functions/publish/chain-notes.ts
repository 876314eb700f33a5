import pMap from 'p-map';
import type { Clock } from '../base/clock.ts';
import { childrenOf, gatheredEntry, isWhole, noted, takenFrom } from '../chains/chain.ts';
import type { Chain } from '../chains/chain-schema.ts';
import type { ChainStore } from '../chains/chain-store.ts';
import { type Entry, isTerminal, type TerminalEntry, type WaitingEntry } from '../ledger/entry.ts';
import { type Ledger, readableOr } from '../ledger/store.ts';
import { DUE_AGAIN_MS } from '../ledger/waits.ts';
import type { Settings } from '../settings/environment.ts';
import { firstOf } from '../uploads/upload.ts';
import { messageFor, type UploadQueue } from '../uploads/upload-event.ts';
import { chainEvent, chainReport } from './chain-report.ts';
import type { EventBus } from './event-bus.ts';
import type { Receipts } from './receipts.ts';
import type { Sources } from './sources.ts';

/**
 * Time for which the first of several notes waits for others of its chain, in milliseconds. Fifty uploads that end
 * together then cost a few writes of their chain, and not fifty.
 */
const GATHER_MS = 100;

/** Uploads that are begun side by side. */
const CONCURRENCY = 16;

export interface ChainPorts {
  readonly chains: ChainStore;
  readonly ledger: Pick<Ledger, 'create' | 'putWaitingMarker' | 'read'>;
  readonly receipts: Pick<Receipts, 'putChain'>;
  readonly events: EventBus;
  readonly sources: Pick<Sources, 'settle' | 'expire' | 'keep'>;
  /** Undefined in create-flow, which only reads the queue. A tick then sends what it begins. */
  readonly queue?: UploadQueue | undefined;
  readonly clock: Clock;
  readonly settings: Pick<Settings, 'pipeline' | 'resultsBucket' | 'resultsPrefix' | 'resultsRetentionDays' | 'routes'>;
}

interface Notes {
  readonly entries: Entry[];
  readonly written: Promise<Chain | undefined>;
}

/**
 * Writes into the chains how their uploads stand, and does what follows from it.
 *
 *   an upload ends      write that into its chain, with the uploads that begin with its assets; begin these
 *   a stage completes   write into the chain what begins with all of its assets; begin that
 *   the chain ends      put `chain.json`, send the event, let assets expire, and tag or delete the first file, as the
 *                       configuration asks
 *
 * Each of these is written before it is done. The running marker of the upload that ended is deleted after all of it. So
 * if the invocation dies, the next one does it again, and finds in the chain what it has to do.
 */
export class ChainNotes {
  readonly #ports: ChainPorts;
  /** Notes that wait to be written together, by the first file of their chain. */
  readonly #waiting = new Map<string, Notes>();
  /** The last write of each chain that is under way. */
  readonly #writing = new Map<string, Promise<unknown>>();

  constructor(ports: ChainPorts) {
    this.#ports = ports;
  }

  /**
   * The ids of the uploads that begin with single assets of an upload that has ended. A chain that is full takes none of
   * them. They are written into the chain here, and begin with the note, so that a receipt can be put in between.
   */
  async childrenOf(entry: TerminalEntry, signal: AbortSignal): Promise<ReadonlySet<string>> {
    const children = childrenOf(entry).map(({ upload }) => upload.id);
    if (children.length === 0) return new Set();
    const chain = await this.#noted(entry, signal);
    const known = new Set(chain?.uploads.map(({ id }) => id));
    const { upload, generation } = entry;
    // If the chain has forgotten this end of the upload, it was made anew, and its receipt is put already.
    const isMember = chain?.uploads.some((each) => each.id === upload.id && each.generation === generation) === true;
    return new Set(isMember ? children.filter((id) => known.has(id)) : children);
  }

  /** Notes an upload that has ended, or that is under way again. Resolves when all that follows has begun. */
  async note(entry: Entry, signal: AbortSignal): Promise<void> {
    const chain = await this.#noted(entry, signal);
    if (chain === undefined || !isTerminal(entry)) return;
    await this.#beginAll(childrenOf(entry, chain), chain, signal);
  }

  /** Writes how an upload stands into its chain, together with other uploads. */
  async #noted(entry: Entry, signal: AbortSignal): Promise<Chain | undefined> {
    const { id } = firstOf(entry.upload);
    let notes = this.#waiting.get(id);
    if (notes === undefined) {
      const entries: Entry[] = [];
      notes = { entries, written: this.#writeSoon(id, entries, signal) };
      this.#waiting.set(id, notes);
    }
    notes.entries.push(entry);
    return notes.written;
  }

  /** Waits for further notes, and for the write before this one. */
  async #writeSoon(id: string, entries: readonly Entry[], signal: AbortSignal): Promise<Chain | undefined> {
    const before = this.#writing.get(id);
    try {
      await this.#ports.clock.sleep(GATHER_MS, signal);
      await before?.catch(() => {}); // Its own callers hear of its failure.
    } finally {
      this.#waiting.delete(id);
    }
    const writing = this.#write(id, entries, signal);
    this.#writing.set(id, writing);
    try {
      return await writing;
    } finally {
      if (this.#writing.get(id) === writing) this.#writing.delete(id);
    }
  }

  async #write(id: string, entries: readonly Entry[], signal: AbortSignal): Promise<Chain | undefined> {
    const { chains, settings } = this.#ports;
    const chain = await chains.update(id, (before) => noted(before, entries, settings.routes), signal);
    if (chain === undefined) return undefined;
    // An earlier invocation may have written that they begin, and died before it began them.
    const begins = chain.gathered.flatMap(({ upload }) => gatheredEntry(chain, upload.id) ?? []);
    await this.#beginAll(begins, chain, signal);
    // An upload that is under way again, and that the chain has forgotten, ends nothing. Others may be about to reopen it.
    if (chain.endedAt !== undefined && entries.some(isTerminal)) await this.#publishEnd(chain, signal);
    return chain;
  }

  /** Begins those of the uploads that are under way in the chain. The others have ended, or are none of its uploads. */
  async #beginAll(entries: readonly WaitingEntry[], { uploads }: Chain, signal: AbortSignal): Promise<void> {
    const underWay = new Set(uploads.filter(({ state }) => state === 'under way').map(({ id }) => id));
    const begins = entries.filter(({ upload }) => underWay.has(upload.id));
    await pMap(begins, (entry) => this.#begin(entry, signal), { concurrency: CONCURRENCY });
  }

  /** Writes the first entry of an upload of a later stage, and sends its message. Does nothing if there is an entry. */
  async #begin(entry: WaitingEntry, signal: AbortSignal): Promise<void> {
    const { ledger, queue, clock } = this.#ports;
    const uploadId = entry.upload.id;
    // If it cannot be read, it has begun. That must not keep the others of its chain from going on.
    const written = await readableOr(ledger.create(entry, signal), () => undefined);
    if (written === undefined || (!written.won && !isUnsent(written.current?.entry))) return;
    const notBefore = queue === undefined ? entry.notBefore : clock.now() + DUE_AGAIN_MS;
    await ledger.putWaitingMarker({ uploadId, notBefore }, signal);
    await queue?.send(messageFor(entry.upload), signal);
  }

  async #publishEnd(chain: Chain, signal: AbortSignal): Promise<void> {
    const { receipts, events, sources, settings } = this.#ports;
    const { pipeline, resultsBucket: bucket, resultsPrefix } = settings;
    const report = chainReport(chain, resultsPrefix);
    const key = await receipts.putChain(report, signal);
    await events.send(chainEvent(report, pipeline, { bucket, key }), signal);
    await this.#letExpire(chain, signal);
    const { first, uploads } = chain;
    const end = { upload: first, route: uploads[0]?.route ?? '', isWhole: isWhole(chain) };
    const sourceIssue = await sources.settle(end, signal);
    if (sourceIssue !== undefined) await receipts.putChain({ ...report, sourceIssue }, signal);
  }

  /** Lets the assets of a chain expire that has ended. If it goes on meanwhile, they stay. */
  async #letExpire(chain: Chain, signal: AbortSignal): Promise<void> {
    const { chains, ledger, sources, settings } = this.#ports;
    if (settings.resultsRetentionDays === undefined) return;
    const isEnded = chain.endedAt !== undefined;
    const follow = async ({ id, assets, assetCount }: Chain['uploads'][number]): Promise<void> => {
      // A large chain does not hold its assets. One whose entry cannot be read keeps none of the others from going on.
      const reading = assetCount === undefined ? undefined : readableOr(ledger.read(id, signal), () => undefined);
      const entry = (await reading)?.entry;
      const made = entry !== undefined && isTerminal(entry) ? entry.assets : assets;
      await (isEnded ? sources.expire(made, signal) : sources.keep(made, signal));
    };
    await pMap(takenFrom(chain, settings.routes), follow, { concurrency: CONCURRENCY });
    const now = await chains.read(chain.first.id, signal);
    if (now !== undefined && now.endedAt !== chain.endedAt) await this.#letExpire(now, signal);
  }
}

/** True if it waits for its first message. */
const isUnsent = (entry: Entry | undefined): boolean => entry?.state === 'waiting' && entry.reason === 'stage';
