import pMap from 'p-map';
import { addressOf } from '../functions/chains/chain.ts';
import type { Chain, ChainUpload } from '../functions/chains/chain-schema.ts';
import { type Entry, isTerminal, isUntold, runningMarkerOf, type TerminalEntry } from '../functions/ledger/entry.ts';
import { WAITS } from '../functions/ledger/waits.ts';
import { chainReport } from '../functions/publish/chain-report.ts';
import { Receipts } from '../functions/publish/receipts.ts';
import { firstOf } from '../functions/uploads/upload.ts';
import { type ChainView, chainOf, readChain } from './chains.ts';
import type { Deployment } from './deployment.ts';
import { READS_MAX, readEntries, readEntry } from './listing.ts';
import { needsSomebody } from './shown-state.ts';
import { type UploadView, viewOf } from './upload-view.ts';
import { sleepUntilNext } from './wait.ts';

/**
 * Follows uploads until each one waits for the operator, or has ended with its receipt out.
 * @param onProgress called whenever the entries were read.
 * @returns their last state, in the order of the ids. Undefined for an upload without an entry.
 */
export async function follow(
  ids: readonly string[],
  deployment: Deployment,
  signal: AbortSignal,
  onProgress: (seen: Seen['uploads']) => void = () => {},
): Promise<Seen['uploads']> {
  const ends = new PublishedEnds(deployment);
  for (;;) {
    const { entries, uploads } = await look(ids, deployment, signal);
    onProgress(uploads);
    if (await areAtRest(entries, ends, signal)) return uploads;
    await sleepUntilNext(signal);
  }
}

/** An upload of a later stage, with the address of its results. @internal */
export type LaterUpload = ChainUpload & { readonly key: string };

/** How far uploads are, in the order of their ids. */
interface Seen {
  /** Undefined for an upload without an entry. */
  readonly uploads: readonly (UploadView | undefined)[];
  /** What followed from the uploads in their chains. @internal */
  readonly later: readonly LaterUpload[];
}

/** What uploads and their chains have come to. */
export interface Followed {
  /** In the order of the ids. Undefined for an upload without an entry. */
  readonly uploads: readonly (UploadView | undefined)[];
  /** The chains that the uploads begin or belong to. */
  readonly chains: readonly ChainView[];
}

/**
 * Follows uploads, and the chains that they begin or belong to, until all of it waits for the operator or has ended. At
 * the end, the receipts are out, and so is `chain.json`.
 * @param onProgress called whenever the entries and the chains were read.
 * @internal
 */
export async function followChains(
  ids: readonly string[],
  deployment: Deployment,
  signal: AbortSignal,
  onProgress: (seen: Seen) => void = () => {},
): Promise<Followed> {
  const ends = new PublishedEnds(deployment);
  for (;;) {
    const { entries, uploads } = await look(ids, deployment, signal);
    const chains = await chainsAfter(entries, deployment, signal);
    const later = chains.flatMap((each) => each.later);
    onProgress({ uploads, later });
    const areEnded = await pMap(chains, ({ chain }) => isChainAtRest(chain, deployment, signal), {
      concurrency: READS_MAX,
    });
    if (!areEnded.includes(false) && (await areAtRest(entries, ends, signal))) {
      const views = await pMap(chains, ({ first }) => chainOf(first, deployment, signal), { concurrency: READS_MAX });
      return { uploads, chains: views.flatMap((view) => view ?? []) };
    }
    await sleepUntilNext(signal);
  }
}

async function look(
  ids: readonly string[],
  deployment: Deployment,
  signal: AbortSignal,
): Promise<{ readonly entries: readonly (Entry | undefined)[] } & Pick<Seen, 'uploads'>> {
  const entries = (await readEntries(ids, deployment, signal)).map(({ entry }) => entry);
  return { entries, uploads: entries.map((entry) => entry && viewOf(entry, deployment.settings)) };
}

async function areAtRest(
  entries: readonly (Entry | undefined)[],
  ends: PublishedEnds,
  signal: AbortSignal,
): Promise<boolean> {
  const isAtRest = async (entry: Entry | undefined): Promise<boolean> => {
    if (entry === undefined) return false;
    return isTerminal(entry) ? ends.has(entry, signal) : needsOperator(entry);
  };
  return !(await pMap(entries, isAtRest, { concurrency: READS_MAX })).includes(false);
}

/** An undecided upload and one without a valid token go on only when the operator acts. */
const needsOperator = (entry: Entry): boolean =>
  entry.state === 'waiting' && entry.reason !== 'inputs' && needsSomebody(WAITS[entry.reason].ending);

/** A chain with what followed in it from uploads that have ended. */
interface ChainAfter {
  readonly first: { readonly id: string; readonly key: string };
  /** Undefined if it has not heard of all of these ends yet. */
  readonly chain: Chain | undefined;
  readonly later: readonly LaterUpload[];
}

/** The chains of the uploads that have ended. The first file of a chain says in its entry what follows. */
async function chainsAfter(
  entries: readonly (Entry | undefined)[],
  deployment: Deployment,
  signal: AbortSignal,
): Promise<readonly ChainAfter[]> {
  const ended = entries
    .filter((entry) => entry !== undefined)
    .filter(isTerminal)
    .filter(({ upload, next, plan }) => upload.stage !== undefined || (next ?? plan) !== undefined);
  const byChain = Map.groupBy(ended, ({ upload }) => firstOf(upload).id);
  return pMap(byChain.values(), (own) => chainAfter(own, deployment, signal), { concurrency: READS_MAX });
}

async function chainAfter(
  own: readonly TerminalEntry[],
  deployment: Deployment,
  signal: AbortSignal,
): Promise<ChainAfter> {
  const { upload } = own[0] as TerminalEntry;
  const first = firstOf(upload);
  const chain = await readChain(first.id, deployment, signal);
  // A chain hears of an end after the receipt was put. Its object is made by the first end.
  if (chain === undefined || !own.every((end) => hasHeardOf(end, chain))) return { first, chain: undefined, later: [] };
  const since = Math.min(...own.map(({ endedAt }) => endedAt));
  const ids = new Set(own.map((end) => end.upload.id));
  const later = chain.uploads.filter(({ id, arrivedAt }) => arrivedAt >= since && !ids.has(id));
  return { first, chain, later: later.map((each) => ({ ...each, key: addressOf(chain, each) })) };
}

/** Also true if the upload is no part of the chain any more, because its stage was made anew. */
function hasHeardOf({ upload, generation, endedAt }: TerminalEntry, { uploads }: Chain): boolean {
  const known = uploads.find(({ id }) => id === upload.id);
  return known === undefined || known.generation > generation || (known.endedAt ?? 0) >= endedAt;
}

/** True if the end of a chain is published, or if every upload of it that is under way waits for the operator. */
async function isChainAtRest(chain: Chain | undefined, deployment: Deployment, signal: AbortSignal): Promise<boolean> {
  if (chain === undefined) return false;
  const { s3, settings } = deployment;
  if (chain.endedAt !== undefined) {
    return new Receipts(s3, settings).isChainPut(chainReport(chain, settings.resultsPrefix), signal);
  }
  for (const { id, state } of chain.uploads) {
    if (state !== 'under way') continue;
    const { entry } = await readEntry(id, deployment, signal);
    // An upload is in its chain before it has an entry.
    if (entry === undefined || !needsOperator(entry)) return false;
  }
  return true;
}

/** Ends that were published. An upload ends a moment before its receipt is put. */
class PublishedEnds {
  /** They are not asked for again. */
  readonly #known = new Set<string>();
  readonly #ledger: Deployment['ledger'];
  readonly #receipts: Receipts;

  constructor({ s3, settings, ledger }: Deployment) {
    this.#ledger = ledger;
    this.#receipts = new Receipts(s3, settings);
  }

  async has(end: TerminalEntry, signal: AbortSignal): Promise<boolean> {
    const key = `${end.upload.id} ${end.generation} ${end.endedAt}`;
    if (!this.#known.has(key) && (await this.#isPublished(end, signal))) this.#known.add(key);
    return this.#known.has(key);
  }

  /**
   * The receipt of a newer version of the file may hide that of an end. Then a failure is known to be published by its
   * entry, and a success by the absence of its running marker.
   */
  async #isPublished(end: TerminalEntry, signal: AbortSignal): Promise<boolean> {
    if (await this.#receipts.isPublished(end, signal)) return true;
    if (end.state === 'failed') return !isUntold(end);
    return (
      end.flow === undefined || !(await this.#ledger.hasRunningMarker(runningMarkerOf(end.upload, end.flow), signal))
    );
  }
}
