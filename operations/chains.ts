import { randomUUID } from 'node:crypto';
import { addressOf, hasSucceeded, isInChain } from '../functions/chains/chain.ts';
import type { Chain, ChainUpload } from '../functions/chains/chain-schema.ts';
import { assetCountOf } from '../functions/chains/chain-size.ts';
import { ChainStore } from '../functions/chains/chain-store.ts';
import { type Entry, isTerminal } from '../functions/ledger/entry.ts';
import { parseEntryKey, UPLOADS_PREFIX } from '../functions/ledger/keys.ts';
import { UnreadableEntryError } from '../functions/ledger/store.ts';
import { isTerminalState } from '../functions/ledger/terminal-states.ts';
import { firstOf, secondsIn, type Upload } from '../functions/uploads/upload.ts';
import type { Deployment } from './deployment.ts';
import { type HoldsView, holdsFor } from './holds.ts';
import type { FoundUpload } from './listing.ts';
import { objects, type ReadEntry, readEntries } from './listing.ts';
import { isAllReplaced, type ShownState, shownState } from './shown-state.ts';
import { type UploadView, viewOf } from './upload-view.ts';

/** Uploads under way whose entries are read for what they wait for. Of more, only that they are under way is shown. */
const UNDER_WAY_READ_MAX = 200;

/** How a chain stands, as an operator sees it. Times are in ISO 8601. */
export interface ChainView {
  /** The file that the chain began with. */
  readonly first: { readonly id: string; readonly key: string };
  /**
   * `succeeded` if every upload succeeded, and no stage was withheld. `replaced` if what did not succeed gave way to a
   * newer file.
   */
  readonly state: 'under way' | 'succeeded' | 'failed' | 'replaced';
  readonly endedAt?: string | undefined;
  /** 1, plus 1 each time that a stage was made anew. */
  readonly generation: number;
  /** Number of uploads by route, and by state within it. */
  readonly stages: readonly { readonly route: string; readonly counts: Readonly<Record<string, number>> }[];
  /** Stages that did not begin although the stage before has ended, and why. */
  readonly withheld: readonly { readonly route: string; readonly after: string; readonly why: string }[];
  /** True if more uploads are under way than were read. */
  readonly isSample: boolean;
  /** The upload of the first file. The others stand below it. */
  readonly root: ChainNode;
}

/** One upload of a chain, and those that work on its assets. */
export interface ChainNode {
  readonly id: string;
  readonly key: string;
  readonly route: string;
  /** `under way` if its entry was not read. */
  readonly state: ShownState | 'under way';
  /** When it came into the chain, or was last retried. */
  readonly arrivedAt: string;
  /** When it ended, its flow began, its wait began, or it came into the chain. */
  readonly since: string;
  /** Why it failed, what it waits for, or what is not whole. */
  readonly reason?: string | undefined;
  /** Number of its results. */
  readonly assets: number;
  /**
   * The stage whose assets it takes all together, and the number of these assets. It stands below the first file then,
   * because it has no single parent.
   */
  readonly takes?: { readonly route: string; readonly assets: number } | undefined;
  readonly uploads: readonly ChainNode[];
}

/**
 * The chain of a first file. Undefined if there is none.
 * @throws {UnreadableEntryError}
 * @internal
 */
export const readChain = (
  firstId: string,
  { s3, settings, clock }: Deployment,
  signal: AbortSignal,
): Promise<Chain | undefined> =>
  new ChainStore({ s3, bucket: settings.ledgerBucket, clock, nonce: randomUUID }).read(firstId, signal);

/**
 * The chain that an upload is the first file of. Undefined if there is none. While the first file is under way, nothing
 * of its chain has begun.
 * @internal
 */
export async function chainBegunBy(
  { entry }: Pick<FoundUpload, 'entry'>,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<Chain | undefined> {
  if (entry === undefined || entry.upload.stage !== undefined || !isTerminal(entry)) return undefined;
  const mayBeginChain = isInChain(entry, deployment.settings.routes) || !deployment.areRoutesKnown;
  return mayBeginChain ? readChain(entry.upload.id, deployment, signal) : undefined;
}

/**
 * The chain that an upload belongs to. Undefined if it is part of none.
 * @throws {UnreadableEntryError}
 * @internal
 */
export async function chainOf(
  upload: Pick<Upload, 'id' | 'key' | 'stage'>,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<ChainView | undefined> {
  const chain = await readChain(firstOf(upload).id, deployment, signal);
  return chain && chainView(chain, deployment, signal);
}

/**
 * How the chain stands that an upload begins. Undefined if it begins none, or its object cannot be read.
 * @internal
 */
export async function stateOfChain(
  entry: Entry,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<ChainView['state'] | undefined> {
  try {
    const chain = await chainBegunBy({ entry }, deployment, signal);
    return chain && stateOf(chain);
  } catch (error) {
    if (!(error instanceof UnreadableEntryError)) throw error;
    return undefined;
  }
}

/**
 * The entries of the later stages of a file. The chain does not name those that a retry or a stage made anew has replaced.
 * But the ids of all begin with the second of the first file, so a short listing has them.
 * @param max if more entries would have to be read, none is. Default: there is no limit.
 * @internal
 */
export async function laterEntries(
  firstId: string,
  deployment: Deployment,
  signal: AbortSignal,
  max = Number.POSITIVE_INFINITY,
): Promise<readonly Entry[]> {
  const { s3, settings } = deployment;
  const prefix = `${UPLOADS_PREFIX}${secondsIn(firstId)}`;
  const ids: string[] = [];
  for await (const { Key = '' } of objects({ s3, bucket: settings.ledgerBucket, prefix }, signal)) {
    const id = parseEntryKey(Key);
    if (id !== undefined) ids.push(id);
    if (ids.length > max) return [];
  }
  const entries = await readEntries(ids, deployment, signal);
  return entries.flatMap(({ entry }) => (entry?.upload.stage?.first.id === firstId ? [entry] : []));
}

function stateOf(chain: Chain): ChainView['state'] {
  if (chain.endedAt === undefined) return 'under way';
  if (hasSucceeded(chain)) return 'succeeded';
  const failures = chain.uploads.flatMap(({ failure }) => failure ?? []);
  return isAllReplaced(failures) ? 'replaced' : 'failed';
}

/** Reads the entries of some uploads of a chain. Those without a readable entry are left out. @internal */
export async function viewsOf(
  uploads: readonly ChainUpload[],
  deployment: Deployment,
  signal: AbortSignal,
): Promise<readonly UploadView[]> {
  const ids = uploads.map(({ id }) => id);
  const entries = await readEntries(ids, deployment, signal);
  return entries.flatMap(({ entry }) => (entry === undefined ? [] : [viewOf(entry, deployment.settings)]));
}

/** Shows a chain. Only the entries of uploads under way are read: the chain says what became of the others. */
async function chainView(chain: Chain, deployment: Deployment, signal: AbortSignal): Promise<ChainView> {
  const { first, generation, uploads, withheld, endedAt } = chain;
  const underWay = uploads.filter(({ state }) => state === 'under way').map(({ id }) => id);
  const toRead = underWay.slice(0, UNDER_WAY_READ_MAX);
  const entries = await readEntries(toRead, deployment, signal);
  const read = new Map(toRead.map((id, index) => [id, entries[index] as ReadEntry]));
  const holds = await holdsFor(
    entries.map(({ entry }) => entry),
    deployment,
    signal,
  );
  const seen = uploads.map((upload) => ({
    upload,
    facts: factsOf(upload, read.get(upload.id), { deployment, holds }),
  }));
  const [root, ...later] = treeOf(seen, chain);
  if (root === undefined || later.length > 0) throw new Error(`The chain of ${first.key} is no tree`);
  return {
    first: { id: first.id, key: first.key },
    state: stateOf(chain),
    endedAt: endedAt === undefined ? undefined : iso(endedAt),
    generation,
    stages: countsOf(seen),
    withheld,
    isSample: underWay.length > toRead.length,
    root,
  };
}

type Facts = Pick<ChainNode, 'state' | 'since' | 'reason' | 'assets'>;

interface Seen {
  readonly upload: ChainUpload;
  readonly facts: Facts;
}

function factsOf(
  upload: ChainUpload,
  read: ReadEntry | undefined,
  { deployment, holds }: { readonly deployment: Deployment; readonly holds: HoldsView | undefined },
): Facts {
  const { state, arrivedAt, endedAt = arrivedAt, failure, failedOutputs } = upload;
  const assets = assetCountOf(upload);
  if (isTerminalState(state)) {
    const lost = failedOutputs === 0 ? undefined : `${failedOutputs} of its outputs failed`;
    const reason = failure === undefined ? lost : `${failure.code}: ${failure.message}`;
    return { state: shownState({ state, failure }), since: iso(endedAt), reason, assets };
  }
  const entry = read?.entry;
  if (entry === undefined) {
    const reason = read?.issue.kind === 'unreadable' ? read.issue.message : undefined;
    return { state: 'under way', since: iso(arrivedAt), reason, assets };
  }
  const view = viewOf(entry, deployment.settings, holds);
  const { wait, flow, failure: why = wait ?? view.obstacle } = view;
  const since = view.endedAt ?? flow?.createdAt ?? wait?.since ?? view.arrivedAt;
  return { state: shownState(view), since, reason: why?.message, assets: view.assets.length };
}

/** The uploads as a tree. An upload that takes all assets of a stage has no single parent, and stands below the first. */
function treeOf(seen: readonly Seen[], chain: Chain): readonly ChainNode[] {
  const { first, uploads } = chain;
  const ids = new Set(uploads.map(({ id }) => id));
  const parentOf = ({ id, parent }: ChainUpload): string | undefined =>
    id === first.id ? undefined : parent !== undefined && ids.has(parent) ? parent : first.id;
  const children = Map.groupBy(seen, ({ upload }) => parentOf(upload));
  const nodesBelow = (parent: string | undefined): readonly ChainNode[] =>
    (children.get(parent) ?? []).map(({ upload, facts }) => {
      const { id, route } = upload;
      return {
        id,
        key: addressOf(chain, upload),
        route,
        arrivedAt: iso(upload.arrivedAt),
        ...facts,
        takes: takenBy(id, chain),
        uploads: nodesBelow(id),
      };
    });
  return nodesBelow(undefined);
}

/** What an upload takes that works on all assets of a stage. Undefined for any other. */
function takenBy(uploadId: string, { gathered, uploads, plan }: Chain): ChainNode['takes'] {
  const { inputs = [], route } = gathered.find(({ upload }) => upload.id === uploadId) ?? {};
  if (route === undefined) return undefined;
  const stage = plan?.find((each) => each.route === route.name);
  if (stage !== undefined) return { route: stage.after, assets: inputs.length };
  const maker = uploads.find(({ assets }) => assets.some(({ key }) => key === inputs[0]?.key));
  return maker && { route: maker.route, assets: inputs.length };
}

/** The number of uploads of each stage by their state, in the order in which the stages began. */
function countsOf(seen: readonly Seen[]): ChainView['stages'] {
  return [...Map.groupBy(seen, ({ upload }) => upload.route)].map(([route, ofRoute]) => {
    const counts: Record<string, number> = {};
    for (const { facts } of ofRoute) counts[facts.state] = (counts[facts.state] ?? 0) + 1;
    return { route, counts };
  });
}

const iso = (ms: number): string => new Date(ms).toISOString();
