import { isDeepStrictEqual } from 'node:util';
import { ListObjectsV2Command, type S3Client } from '@aws-sdk/client-s3';
import pMap from 'p-map';
import { CLOCK_SKEW_MAX_MS, type Clock } from '../base/clock.ts';
import { encodedId } from '../base/key-segment.ts';
import {
  begunAnew,
  chainAlone,
  gatheredEntry,
  isInChain,
  madeAnew,
  seenAnew,
  unfinishedAnew,
  withAssetsFor,
} from '../chains/chain.ts';
import type { Chain, ChainUpload } from '../chains/chain-schema.ts';
import type { ChainStore } from '../chains/chain-store.ts';
import { FlowServiceError, type FlowServiceErrorCode } from '../flow-service/errors.ts';
import type { FlowService, ListingSample, ShownFlow } from '../flow-service/types.ts';
import type { HoldPorts } from '../holds/attempt.ts';
import type { HoldRequest, HoldResult } from '../holds/hold-request.ts';
import { type Holds, pause, resume } from '../holds/holds.ts';
import {
  approved,
  collectedAgain,
  type Entry,
  ended,
  failedMarkerOf,
  isFlowDeleted,
  isFlowShared,
  isInLine,
  isTerminal,
  previousOf,
  type RunningEntry,
  retried,
  runningMarkerOf,
  type StoredAsset,
  seenCurrent,
  type TerminalEntry,
  type WaitingEntry,
  waitingMarkerOf,
} from '../ledger/entry.ts';
import type { WaitingMarker } from '../ledger/keys.ts';
import { type Ledger, readableOr, type Stored } from '../ledger/store.ts';
import { DUE_AGAIN_MS } from '../ledger/waits.ts';
import type { Aliases, OtherSuccess } from '../publish/aliases.ts';
import { isPublished, type PublishPorts, publish } from '../publish/publish.ts';
import type { Sources } from '../publish/sources.ts';
import { deleteFlow } from '../resubmit/flow-deletion.ts';
import { ASSET_METADATA, assetKey, FLOW_METADATA, UPLOAD_METADATA } from '../results/results-keys.ts';
import { headObject } from '../s3/objects.ts';
import type { Settings } from '../settings/environment.ts';
import { type Inbox, isInside } from '../uploads/inbox.ts';
import type { GivenOverrides } from '../uploads/route-snapshot.ts';
import { routeFor } from '../uploads/routes.ts';
import { type Upload, unquoted } from '../uploads/upload.ts';
import type { UploadQueue } from '../uploads/upload-event.ts';
import { messageFor } from '../uploads/upload-event.ts';

/*
 * What an operator asks for: to retry, cancel or collect uploads of any age, and what the service offers.
 *
 *   retry     failed, waiting ──▶ waiting, and into the queue
 *   again     succeeded, failed ──▶ waiting, in a new generation. With a stage: all uploads of that stage of a chain
 *   cancel    waiting, running ──▶ failed
 *   approve   waiting ──▶ waiting, and into the queue
 *   collect   succeeded, failed ──▶ running, with the same flow
 *   alias     succeeded, failed: the aliases of its file show another flow. The entry stays as it is
 *   delete    succeeded, failed: the flow, at the service. The entry stays as it is
 *
 * An upload in any other state stays as it is, and the result says so. So the same request can be made again.
 */

export interface OperatorPorts extends PublishPorts, Pick<HoldPorts, 'holds'> {
  readonly ledger: Ledger;
  readonly chains: ChainStore;
  readonly aliases: Pick<Aliases, 'show' | 'showOther'>;
  readonly sources: Pick<Sources, 'settle' | 'areThere' | 'keep' | 'expire'>;
  readonly inbox: Pick<Inbox, 'current' | 'pages'>;
  readonly queue: UploadQueue;
  readonly flows: Pick<FlowService, 'abort' | 'delete' | 'get' | 'outputs' | 'sample' | 'show' | 'templates'>;
  readonly s3: S3Client;
  readonly clock: Clock;
  readonly settings: Settings;
}

/** Uploads of one retry that go into the queue at once. More of them wait in the line, and live files go first. */
export const RETRIED_AT_ONCE_MAX = 20;

const isLate = ({ length }: readonly string[]): true | undefined => length > RETRIED_AT_ONCE_MAX || undefined;

/** Uploads that are changed, and assets that are looked up, side by side. */
const CONCURRENCY = 16;

/**
 * Time after which what an operator asked for has surely ended or died, in milliseconds: the 15 minutes of a function,
 * and a minute.
 */
const SETTLED_MS = 16 * 60_000;

/**
 * Maximum number of uploads that one request to make stages anew begins. A chain has up to ten thousand. Each takes about
 * ten requests to S3, so these take a minute.
 */
export const ANEW_AT_ONCE_MAX = 1_000;

/** Uploads of a stage made anew that a tick looks at, and the time until the next tick goes on, in milliseconds. */
const ANEW_STEP_MAX = 100;
const NEXT_STEP_MS = 30_000;

/** What became of one upload that an operator named. */
export interface Changed {
  readonly upload: string;
  /**
   * The first four say that it was done, and so do `deleted`, `gone` (the service has no such flow) and `shown`. The others say why not. `being sent`: an invocation is at work on it, and its
   * flow may begin at any moment. Ask again in a minute. `shared`: it is unknown whose results they are, so they are
   * never fetched. `flow deleted`: its route has `deleteFlow`, so the service has nothing to fetch any more. `source gone`: the file is not in the inbox any more, or an asset that it takes not in the results, so nothing can be sent. `not in its chain`: no route of that name is a later stage of the file's chain. `withheld`: a stage
   * before failed, and the route does not allow that. `not begun yet`: one request begins {@link ANEW_AT_ONCE_MAX} uploads
   * of stages only. The same request begins the next ones. Without it, ticks begin them.
   */
  readonly result:
    | ('resubmitted' | 'cancelled' | 'begun' | 'approved')
    | ('deleted' | 'gone' | 'not deleted')
    | ('shown' | 'not shown' | 'without an alias' | 'no such flow')
    | ('unknown' | 'not approved' | 'under way' | 'being sent' | 'ended already' | 'succeeded already')
    | ('overrides not allowed' | 'without a flow' | 'shared' | 'flow deleted' | 'source gone')
    | ('not in its chain' | 'withheld' | 'not begun yet');
  /** True if the service has stopped the flow. False if it cannot, or if the flow has ended. Absent without a flow. */
  readonly isAborted?: boolean;
  /** True if a request may have made a flow that is not known, and therefore not stopped. */
  readonly isInDoubt?: true;
  /** Why the flow was not deleted, in the words of the service or about it; or why the alias does not show it. */
  readonly why?: string;
}

/** How uploads begin again. */
interface Again {
  /** What replaces parts of the route, if the route allows it. Only an upload that has ended takes it. */
  readonly given?: GivenOverrides | undefined;
  /** True if live files go first. Default: if there are many. */
  readonly late?: true | undefined;
}

interface RetryOptions extends Again {
  /** True if an upload is made anew, however it ended. One that has not ended stays as it is. Default false. */
  readonly isAnew?: boolean;
}

/**
 * Retries failed uploads, and resubmits waiting ones at once. If there are many, they wait in the line, so that they do
 * not fill the queue before live files.
 */
export function retryUploads(
  uploadIds: readonly string[],
  ports: OperatorPorts,
  signal: AbortSignal,
  { given, isAnew = false, late = isLate(uploadIds) }: RetryOptions = {},
): Promise<readonly Changed[]> {
  return each(uploadIds, async (upload) => {
    const stored = await readPublished(upload, ports, signal);
    if (stored === undefined) return { upload, result: 'unknown' };
    const { entry } = stored;
    if (entry.state === 'succeeded' && !isAnew) return { upload, result: 'succeeded already' };
    if (entry.state === 'claimed' || entry.state === 'running') return { upload, result: 'under way' };
    // No retry takes the place of an approval.
    if (entry.state === 'waiting' && entry.reason === 'review') return { upload, result: 'not approved' };
    // A flow of a waiting upload may exist already, with the parameters that it had.
    if (entry.state === 'waiting' && (isAnew || given !== undefined)) return { upload, result: 'under way' };
    // The address of a later stage may look like a key of the inbox.
    const { stage } = entry.upload;
    const route = stage === undefined ? routeFor(ports.settings.routes, entry.upload) : undefined;
    if (given !== undefined && route?.overrides !== true) return { upload, result: 'overrides not allowed' };
    if (isTerminal(entry) && !(await hasSource(entry, ports, signal))) return { upload, result: 'source gone' };
    const before = isTerminal(entry) ? await ranked(entry, ports, signal) : entry;
    const isBegun = await beginAgain(stored, retried(before, ports.clock.now(), { given, late }), ports, signal);
    return { upload, result: isBegun ? 'resubmitted' : 'under way' };
  });
}

interface AnewOptions extends Again {
  /** The route of the stage. Default: that of the first file, so that all is made anew. */
  readonly from?: string | undefined;
}

/** How many uploads a request may still begin. */
interface Room {
  left: number;
}

/**
 * Has files made anew, with the later stages of their chains, by the present routes. From a later stage on, the stored
 * assets of the stage before are taken. All of it is paid for. The same request for a later stage goes on where the one
 * before ended.
 * @param firstIds the uploads of the chains' first files. The result has these, if nothing was begun, and otherwise the
 * uploads of the stage.
 */
export async function makeAnew(
  firstIds: readonly string[],
  { from, given, late = isLate(firstIds), atOnceMax = ANEW_AT_ONCE_MAX }: AnewOptions & { readonly atOnceMax?: number },
  ports: OperatorPorts,
  signal: AbortSignal,
): Promise<readonly Changed[]> {
  const room = { left: atOnceMax };
  const all = await pMap(firstIds, (id) => makeFileAnew(id, { from, given, late, room }, ports, signal), {
    concurrency: CONCURRENCY,
  });
  return all.flat();
}

async function makeFileAnew(
  upload: string,
  options: AnewOptions & { readonly room: Room },
  ports: OperatorPorts,
  signal: AbortSignal,
): Promise<readonly Changed[]> {
  const { given, late, room } = options;
  const chain = await ports.chains.read(upload, signal);
  if (room.left <= 0) return [{ upload, result: 'not begun yet' }];
  const { from = chain?.uploads[0]?.route } = options;
  if (chain !== undefined && from !== undefined) {
    return makeStageAnew(chain, { from, given, late, room }, ports, signal);
  }
  const stored = await readPublished(upload, ports, signal);
  const { entry } = stored ?? {};
  if (entry?.upload.stage !== undefined) return [{ upload, result: 'not in its chain' }];
  if (stored !== undefined && entry !== undefined && from !== undefined && from !== entry.route.name) {
    if (!isTerminal(entry)) return [{ upload, result: 'under way' }];
    return makeStageAnew(chainAlone(entry), { from, late, room, stored }, ports, signal);
  }
  room.left -= 1;
  return retryUploads([upload], ports, signal, { given, isAnew: true, late });
}

interface StageAnew extends AnewOptions {
  readonly from: string;
  readonly room: Room;
  /** The entry of the first file, if its chain is not written yet. */
  readonly stored?: Stored;
}

async function makeStageAnew(
  chain: Chain,
  { from, given, late, room, stored }: StageAnew,
  ports: OperatorPorts,
  signal: AbortSignal,
): Promise<readonly Changed[]> {
  const { chains, ledger, settings, clock } = ports;
  const upload = chain.first.id;
  // An earlier request was cut off after it had changed the chain, or had no room for the whole stage.
  if (chain.anew?.some(({ route }) => route === from)) return goOnAnew(chain, { from, late, room }, ports, signal);
  const isFirst = from === chain.uploads[0]?.route;
  const whole = await withAssetsFor(chain, from, settings.routes, async (id) => (await ledger.read(id, signal))?.entry);
  const anew = isFirst ? undefined : madeAnew(whole, from, settings.routes, clock.now());
  if (!isFirst && anew === undefined) return [{ upload, result: 'not in its chain' }];
  const { begins = [], dropped = chain.uploads } = anew ?? {};
  if (!isFirst && begins.length === 0) return [{ upload, result: 'withheld' }];
  const inputs = begins.flatMap((each) => each.inputs ?? []);
  if (!(await ports.sources.areThere(inputs, signal))) return [{ upload, result: 'source gone' }];
  const generations = await endedGenerations([...dropped, ...begins.map((each) => each.upload)], ports, signal);
  if (generations === undefined) return [{ upload, result: 'under way' }];
  const unfinished = dropped.filter(({ state }) => state === 'under way');
  // The entries of these have ended, and the chain is about to hear of it.
  if (unfinished.some(({ id, generation }) => (generations.get(id) ?? 0) >= generation)) {
    return [{ upload, result: 'under way' }];
  }
  // They are in the chain, and have not begun. The invocation that was about to begin them has died.
  if (unfinished.length > 0) {
    const left = unfinished.flatMap(
      ({ id }) => gatheredEntry(chain, id) ?? begins.find((each) => each.upload.id === id) ?? [],
    );
    return beginStages(left.slice(0, taken(room, left.length)), late, ports, signal);
  }
  if (anew === undefined) {
    room.left -= 1;
    return retryUploads([upload], ports, signal, { given, isAnew: true, late });
  }
  // If this invocation dies after it has changed the chain, this marker leads a tick to what has not begun.
  await ledger.putWaitingMarker({ uploadId: upload, notBefore: clock.now() + SETTLED_MS }, signal);
  // From now on, whatever becomes of the first file is told to its chain.
  const joins = stored && (await ledger.replace(stored, { ...stored.entry, isInChain: true }, signal));
  if (joins?.won === false) return [{ upload, result: 'under way' }];
  const known = stored === undefined ? chain : undefined;
  const next = withGenerations(anew.chain, begins, generations);
  const written = await chains.update(upload, (now) => (isDeepStrictEqual(now, known) ? next : now), signal);
  // If only the answer to the write was lost, the chain has all of them.
  const isUnderWay = (id: string) =>
    written.chain?.uploads.some((each) => each.id === id && each.state === 'under way');
  if (!begins.every((begin) => isUnderWay(begin.upload.id))) return [{ upload, result: 'under way' }];
  // If their chain had not ended, nobody else would tag them.
  const made = dropped.flatMap(({ assets }) => assets);
  await ports.sources.expire(made, signal);
  return goOnAnew(written.chain as Chain, { from, late, room }, ports, signal);
}

/** Takes as much of the room as there is, and returns that. */
function taken(room: Room, wanted: number): number {
  const count = Math.min(Math.max(room.left, 0), wanted);
  room.left -= count;
  return count;
}

/** Begins the next uploads of a stage that is being made anew, as many as there is room for. */
async function goOnAnew(
  chain: Chain,
  { from, late, room }: StageAnew,
  ports: OperatorPorts,
  signal: AbortSignal,
): Promise<readonly Changed[]> {
  const own = { ...chain, anew: chain.anew?.filter(({ route }) => route === from) };
  const all = unfinishedAnew(own, Number.POSITIVE_INFINITY)?.uploads ?? [];
  const step = unfinishedAnew(own, taken(room, all.length));
  if (step === undefined) return [{ upload: chain.first.id, result: 'under way' }];
  const { begun } = await beginStep(chain, { ...step, late: late ?? lateIn(own, from) }, ports, signal);
  const results = { begun: 'resubmitted', 'under way': 'under way', lost: 'withheld' } as const;
  return all.map(({ id }, index) => ({ upload: id, result: results[begun[index] as 'begun'] ?? 'not begun yet' }));
}

/** True if a stage that is made anew has many uploads. */
const lateIn = ({ uploads }: Chain, name: string): true | undefined =>
  isLate(uploads.flatMap(({ id, route }) => (route === name ? [id] : [])));

/**
 * Begins what a request to make a stage anew has left, because it was cut off after it had changed the chain. It looks at
 * {@link ANEW_STEP_MAX} uploads at most, so that a tick does not stand still: the next tick goes on.
 * @returns after how many milliseconds it has to go on. Undefined if nothing is left.
 */
export async function finishAnew(
  firstId: string,
  ports: OperatorPorts,
  signal: AbortSignal,
): Promise<number | undefined> {
  const { chains, telemetry } = ports;
  const chain = await readableOr(chains.read(firstId, signal), (error) => {
    telemetry.log.error('This chain cannot be read', { uploadId: firstId, error });
    telemetry.metrics.add('EntriesUnreadable');
    return 'unreadable' as const;
  });
  if (chain === 'unreadable') return DUE_AGAIN_MS;
  const step = chain && unfinishedAnew(chain, ANEW_STEP_MAX);
  if (chain === undefined || step === undefined) return undefined;
  const { begun, isLast } = await beginStep(chain, { ...step, late: lateIn(chain, step.route) }, ports, signal);
  if (begun.includes('under way')) return DUE_AGAIN_MS;
  return isLast ? undefined : NEXT_STEP_MS;
}

interface AnewStep {
  readonly route: string;
  /** Uploads of the stage that have begun after this step. */
  readonly seen: number;
  readonly uploads: readonly ChainUpload[];
  readonly late: true | undefined;
}

/** Begins some uploads of a stage that is being made anew. The chain remembers how far that came. */
async function beginStep(
  chain: Chain,
  { route, seen, uploads, late }: AnewStep,
  ports: OperatorPorts,
  signal: AbortSignal,
): Promise<{ readonly begun: readonly ('begun' | 'under way' | 'lost')[]; readonly isLast: boolean }> {
  const { chains, chainNotes, ledger } = ports;
  const begun = await pMap(uploads, (upload) => beginLeft(chain, { upload, late }, ports, signal), {
    concurrency: CONCURRENCY,
  });
  if (begun.includes('under way')) return { begun, isLast: false };
  const lost = uploads.filter((_, index) => begun[index] === 'lost');
  const written = await chains.update(
    chain.first.id,
    (current) =>
      current?.generation === chain.generation
        ? seenAnew(current, { route, seen, lost }, ports.settings.routes)
        : current,
    signal,
  );
  const first = lost.length === 0 ? undefined : await ledger.read(chain.first.id, signal);
  // The chain may have ended with that.
  if (first !== undefined) await chainNotes.note(first.entry, signal);
  return { begun, isLast: written.chain?.anew === undefined };
}

/** Begins an upload of a stage that is made anew, if it has not begun. `lost` if its route is gone. */
async function beginLeft(
  chain: Chain,
  { upload, late }: { readonly upload: ChainUpload; readonly late: true | undefined },
  ports: OperatorPorts,
  signal: AbortSignal,
): Promise<'begun' | 'under way' | 'lost'> {
  const { ledger, settings } = ports;
  if (upload.state !== 'under way') return 'begun';
  const entry = (await ledger.read(upload.id, signal))?.entry;
  if (entry !== undefined && (!isTerminal(entry) || entry.generation >= upload.generation)) return 'begun';
  const parent = upload.parent === undefined ? undefined : (await ledger.read(upload.parent, signal))?.entry;
  const made = parent !== undefined && 'assets' in parent ? (parent.assets ?? []) : [];
  const fresh = begunAnew(chain, upload, made, settings.routes);
  if (fresh === undefined) return 'lost';
  return (await beginStage({ ...fresh, late }, ports, signal)) ? 'begun' : 'under way';
}

/** The generations of uploads that have an entry, by id. Undefined if one of them has not ended. */
async function endedGenerations(
  uploads: readonly Pick<Upload, 'id'>[],
  { ledger }: OperatorPorts,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, number> | undefined> {
  const ids = new Set(uploads.map(({ id }) => id));
  const stored = await pMap(ids, (id) => ledger.read(id, signal), { concurrency: CONCURRENCY });
  const entries = stored.flatMap((each) => each?.entry ?? []);
  if (!entries.every(isTerminal)) return undefined;
  return new Map(entries.map(({ upload, generation }) => [upload.id, generation]));
}

/**
 * The chain with the generation in which each of these uploads begins. So no end of an earlier one is taken for its end.
 * Uploads of the stages beside may be under way too, and keep theirs.
 */
function withGenerations(chain: Chain, begins: readonly WaitingEntry[], ended: ReadonlyMap<string, number>): Chain {
  const ids = new Set(begins.map(({ upload }) => upload.id));
  const uploads = chain.uploads.map((each) =>
    ids.has(each.id) ? { ...each, generation: (ended.get(each.id) ?? 0) + 1 } : each,
  );
  return { ...chain, uploads };
}

const beginStages = (
  begins: readonly WaitingEntry[],
  late: true | undefined,
  ports: OperatorPorts,
  signal: AbortSignal,
): Promise<readonly Changed[]> =>
  each(begins, async (fresh) => {
    const isBegun = await beginStage({ ...fresh, late }, ports, signal);
    return { upload: fresh.upload.id, result: isBegun ? 'resubmitted' : 'under way' };
  });

/** Begins an upload of a stage that is made anew: for the first time, or in a new generation. */
async function beginStage(fresh: WaitingEntry, ports: OperatorPorts, signal: AbortSignal): Promise<boolean> {
  const { ledger, clock } = ports;
  const { upload } = fresh;
  const stored = await readPublished(upload.id, ports, signal);
  if (stored !== undefined) {
    if (!isTerminal(stored.entry)) return false;
    const again = { ...fresh, generation: stored.entry.generation + 1, previous: previousOf(stored.entry) };
    return beginAgain(stored, again, ports, signal);
  }
  await ledger.putWaitingMarker({ uploadId: upload.id, notBefore: clock.now() + SETTLED_MS }, signal);
  if (!(await ledger.create(fresh, signal)).won) return false;
  await putAndSend(fresh, ports, signal);
  return true;
}

/** Sends uploads whose inputs somebody has looked at. */
export function approveUploads(
  uploadIds: readonly string[],
  ports: OperatorPorts,
  signal: AbortSignal,
): Promise<readonly Changed[]> {
  return eachOpen(uploadIds, ports, signal, async (upload, stored, entry) => {
    if (entry.state !== 'waiting' || entry.reason !== 'review') return { upload, result: 'under way' };
    const next = approved(entry, ports.clock.now(), isLate(uploadIds));
    if (!(await beginAgain(stored, next, ports, signal))) return { upload, result: 'being sent' };
    await ports.ledger.deleteWaitingMarker(waitingMarkerOf(entry, ports.settings) as WaitingMarker, signal);
    return { upload, result: 'approved' };
  });
}

/** Ends uploads that wait or run as failed, with a receipt, and aborts their flows where the service can. */
export function cancelUploads(
  uploadIds: readonly string[],
  ports: OperatorPorts,
  signal: AbortSignal,
): Promise<readonly Changed[]> {
  return eachOpen(uploadIds, ports, signal, (_, stored, entry) => cancel(stored, entry, ports, signal));
}

/** Changes the uploads that wait or run, side by side. */
function eachOpen(
  uploadIds: readonly string[],
  { ledger }: OperatorPorts,
  signal: AbortSignal,
  change: (upload: string, stored: Stored, entry: WaitingEntry | RunningEntry) => Promise<Changed>,
): Promise<readonly Changed[]> {
  return each(uploadIds, async (upload) => {
    const stored = await ledger.read(upload, signal);
    if (stored === undefined) return { upload, result: 'unknown' };
    const { entry } = stored;
    if (isTerminal(entry)) return { upload, result: 'ended already' };
    if (entry.state === 'claimed') return { upload, result: 'being sent' };
    return change(upload, stored, entry);
  });
}

/** Writes the terminal entry, which decides the outcome. A tick can redo everything after it except the abort. */
async function cancel(
  stored: Stored,
  entry: RunningEntry | WaitingEntry,
  ports: OperatorPorts,
  signal: AbortSignal,
): Promise<Changed> {
  const { ledger, clock } = ports;
  const upload = entry.upload.id;
  const failure = { code: 'cancelled', message: 'The operator cancelled it.' } as const;
  const assets = entry.state === 'running' ? entry.assets : undefined;
  const terminal = ended(entry, { failure, ...(assets && { assets }) }, clock.now());
  // The invocation that made the flow may have died before it put the marker, and only the marker leads to this end.
  if (entry.state === 'running') await ledger.putRunningMarker(runningMarkerOf(entry.upload, entry.flow), signal);
  const written = await ledger.replace(stored, terminal, signal);
  if (!written.won) return { upload, result: 'being sent' };
  const isAborted = entry.state === 'running' ? await abort(entry, ports, signal) : undefined;
  await publish(terminal, ports, signal);
  const marker = waitingMarkerOf(entry, ports.settings);
  if (marker !== undefined) await ledger.deleteWaitingMarker(marker, signal);
  return {
    ...({ upload, result: 'cancelled' } as const),
    ...(isAborted !== undefined && { isAborted }),
    ...(entry.doubt !== undefined && { isInDoubt: true }),
  };
}

/** A service that does not abort the flow runs it to its end. Nothing of it is collected. */
async function abort(
  { upload, flow, route: { template } }: RunningEntry,
  { flows, telemetry }: OperatorPorts,
  signal: AbortSignal,
): Promise<boolean> {
  const error = await flows.abort(flow.id, signal, { uploadId: upload.id, template });
  if (error === undefined) return true;
  telemetry.log.warn('The cancelled flow could not be aborted', { uploadId: upload.id, flowId: flow.id, error });
  return false;
}

/**
 * Lets the ticks collect flows again that have ended. Results that are still in their bucket stay as they are, and the
 * others are fetched. No flow is made.
 */
export function collectAgain(
  uploadIds: readonly string[],
  ports: OperatorPorts,
  signal: AbortSignal,
): Promise<readonly Changed[]> {
  return each(uploadIds, async (upload) => {
    const stored = await readPublished(upload, ports, signal);
    if (stored === undefined) return { upload, result: 'unknown' };
    const { entry } = stored;
    if (!isTerminal(entry)) return { upload, result: 'under way' };
    if (entry.flow === undefined) return { upload, result: 'without a flow' };
    if (isFlowShared(entry)) return { upload, result: 'shared' };
    if (isFlowDeleted(entry)) return { upload, result: 'flow deleted' };
    const assets = await assetsThere(entry, ports, signal);
    const again = collectedAgain(await ranked(entry, ports, signal), entry.flow, assets, ports.clock.now());
    return { upload, result: (await beginAgain(stored, again, ports, signal)) ? 'begun' : 'under way' };
  });
}

/**
 * Deletes the flows of ended uploads at the service, so that it keeps no copy. The entries stay as they are, because the
 * operator deletes them next.
 */
export function deleteFlows(
  uploadIds: readonly string[],
  { ledger, flows, telemetry }: OperatorPorts,
  signal: AbortSignal,
): Promise<readonly Changed[]> {
  return each(uploadIds, async (upload) => {
    const entry = (await ledger.read(upload, signal))?.entry;
    if (entry === undefined) return { upload, result: 'unknown' };
    if (!isTerminal(entry)) return { upload, result: 'under way' };
    if (entry.flow === undefined) return { upload, result: 'without a flow' };
    if (isFlowShared(entry)) return { upload, result: 'shared' };
    const { id: flowId } = entry.flow;
    const of = { uploadId: upload, template: entry.route.template };
    const result = await deleteFlow(flowId, flows, of, signal);
    if (!(result instanceof FlowServiceError)) return { upload, result };
    telemetry.log.warn('The flow could not be deleted', { uploadId: upload, flowId, error: result });
    return { upload, result: 'not deleted', why: result.message };
  });
}

/** Has the aliases of a file show the results of another flow of its key, until a newer success comes. */
export async function showOther(
  upload: string,
  flow: string,
  ports: OperatorPorts,
  signal: AbortSignal,
): Promise<Changed> {
  const entry = (await ports.ledger.read(upload, signal))?.entry;
  if (entry === undefined) return { upload, result: 'unknown' };
  if (!isTerminal(entry)) return { upload, result: 'under way' };
  const stored = assetsIn(entry, flow);
  const other = stored ? { upload, flow, assets: stored } : await successOf(flow, entry.upload, ports, signal);
  if (other === undefined) return { upload, result: 'no such flow' };
  // Otherwise some aliases would show this flow, and others the one before.
  if ((await assetsThere(other, ports, signal)).length < other.assets.length)
    return { upload, result: 'not shown', why: 'Some of its assets are not in the results bucket any more.' };
  const told = await ports.aliases.showOther(entry, other, signal);
  if (told === undefined) return { upload, result: 'without an alias' };
  return told.aliasIssue === undefined
    ? { upload, result: 'shown' }
    : { upload, result: 'not shown', why: told.aliasIssue };
}

/** The assets of a flow in the order of its outputs, if the entry has all of them. */
function assetsIn(entry: Entry, flowId: string): readonly StoredAsset[] | undefined {
  if (isTerminal(entry) && entry.flow?.id === flowId && entry.assets.length > 0) return entry.assets;
  const before = entry.previous?.find(({ flow }) => flow === flowId);
  return before?.assetCount === before?.assets.length ? before?.assets : undefined;
}

/**
 * What a flow of an upload's key has stored, as the results bucket shows it. It may be a flow of an earlier upload, whose
 * entry knows the order of the assets. Undefined if there is nothing.
 */
async function successOf(
  flow: string,
  { key }: Upload,
  { s3, settings, ledger }: OperatorPorts,
  abortSignal: AbortSignal,
): Promise<OtherSuccess | undefined> {
  const Bucket = settings.resultsBucket;
  const Prefix = assetKey(settings, { key, flowId: flow, assetId: '', mediaType: '' });
  const { Contents = [] } = await s3.send(new ListObjectsV2Command({ Bucket, Prefix }), { abortSignal });
  const heads = await pMap(
    Contents,
    async ({ Key = '' }) => ({ Key, head: await headObject(s3, { Bucket, Key }, abortSignal) }),
    { concurrency: CONCURRENCY },
  );
  const own = heads.filter(({ head }) => head?.Metadata?.[FLOW_METADATA] === encodedId(flow));
  const upload = own[0]?.head?.Metadata?.[UPLOAD_METADATA];
  if (upload === undefined) return undefined;
  const entry = (await ledger.read(upload, abortSignal))?.entry;
  const listed = own.map(({ Key, head }): StoredAsset => {
    const { ETag = '', ContentLength = 0, ContentType = '', Metadata = {} } = head ?? {};
    const facts = { bytes: ContentLength, mediaType: ContentType, etag: unquoted(ETag), sha256: '' };
    return { id: Metadata[ASSET_METADATA] ?? '', bucket: Bucket, key: Key, ...facts };
  });
  return { upload, flow, assets: (entry && assetsIn(entry, flow)) ?? listed };
}

/** Those of these assets that are still in the results bucket. */
async function assetsThere(
  { assets }: Pick<TerminalEntry, 'assets'>,
  { s3, settings: { resultsBucket: Bucket } }: OperatorPorts,
  signal: AbortSignal,
): Promise<readonly StoredAsset[]> {
  // The function may not be allowed to read a bucket that had the results before.
  const here = assets.filter(({ bucket }) => bucket === Bucket);
  const heads = await pMap(here, ({ key: Key }) => headObject(s3, { Bucket, Key }, signal), {
    concurrency: CONCURRENCY,
  });
  return here.filter((_, index) => heads[index] !== undefined);
}

/**
 * Changes uploads side by side. A failure keeps none of the others from being changed.
 * @throws the only failure, or {AggregateError}.
 */
async function each<T>(uploads: readonly T[], change: (upload: T) => Promise<Changed>): Promise<readonly Changed[]> {
  try {
    return await pMap(uploads, change, { concurrency: CONCURRENCY, stopOnError: false });
  } catch (error) {
    const { errors } = error as AggregateError;
    if (errors.length === 1) throw errors[0];
    throw new AggregateError(errors, `${errors.length} of ${uploads.length} uploads failed: ${errors[0]}`);
  }
}

/**
 * Reads the entry of an upload. If its end may not be published, that is done first: the invocation that ended it may
 * have died, and after the change no entry would tell of that end.
 */
async function readPublished(uploadId: string, ports: OperatorPorts, signal: AbortSignal): Promise<Stored | undefined> {
  const stored = await ports.ledger.read(uploadId, signal);
  if (stored === undefined || !isTerminal(stored.entry)) return stored;
  if (await isPublished(stored.entry, ports.ledger, signal)) return stored;
  await publish(stored.entry, ports, signal);
  return ports.ledger.read(uploadId, signal);
}

/**
 * Replaces the entry of an upload by one that waits or runs. The daily sweep does not look for an old upload, so a
 * waiting marker is put first: if this invocation dies, the marker leads to the upload.
 * @returns false if another invocation has changed the upload.
 */
async function beginAgain(
  previous: Stored,
  entry: WaitingEntry | RunningEntry,
  ports: OperatorPorts,
  signal: AbortSignal,
): Promise<boolean> {
  const { ledger, clock, settings, chainNotes } = ports;
  const { entry: before } = previous;
  const { upload } = entry;
  await ledger.putWaitingMarker({ uploadId: upload.id, notBefore: clock.now() + SETTLED_MS }, signal);
  const written = await ledger.replace(previous, entry, signal);
  if (!written.won) return false;
  if (entry.state === 'running') await ledger.putRunningMarker(runningMarkerOf(upload, entry.flow), signal);
  else {
    // Otherwise the chain could end while this upload is under way.
    if (isInChain(before, settings.routes)) await chainNotes.note(entry, signal);
    await putAndSend(entry, ports, signal);
  }
  if (before.state === 'failed') await ledger.deleteFailedMarker(failedMarkerOf(before), signal);
  return true;
}

/**
 * Puts the marker of an upload that waits. If it does not wait in the line, its message is sent at once. Its chain knows
 * that it is under way.
 */
async function putAndSend(
  entry: WaitingEntry,
  { ledger, queue, settings, sources }: OperatorPorts,
  signal: AbortSignal,
): Promise<void> {
  // If this invocation dies before, the next one that looks at the upload does it.
  await sources.keep(entry.inputs ?? [], signal);
  await ledger.putWaitingMarker(waitingMarkerOf(entry, settings) as WaitingMarker, signal);
  if (!isInLine(entry)) await queue.send(messageFor(entry.upload), signal);
}

/**
 * Returns the entry of an ended upload. If the upload is current, the entry says so. The operator may have deleted a
 * newer upload of the key. Then the next receipt of this upload must replace that of the newer one.
 */
async function ranked<T extends TerminalEntry>(
  entry: T,
  { inbox, settings, clock }: OperatorPorts,
  signal: AbortSignal,
): Promise<T> {
  const { id, bucket, key, stage } = entry.upload;
  // Nothing replaces an upload of a later stage at its address.
  if (stage !== undefined || !isInside(settings, entry.upload)) return entry;
  const current = await inbox.current(bucket, key, signal);
  // Our clock may be fast. A later upload must not rank below this one.
  return current?.id === id ? seenCurrent(entry, clock.now() - CLOCK_SKEW_MAX_MS) : entry;
}

/**
 * False if what would be sent is gone: the version of a file from the inbox, because `afterSuccess` or its owner deleted it;
 * or an input of a later stage from the results, because it has expired.
 */
async function hasSource(
  { upload: { id, bucket, key, stage }, inputs = [] }: TerminalEntry,
  { inbox, sources, settings }: OperatorPorts,
  signal: AbortSignal,
): Promise<boolean> {
  if (stage !== undefined) return sources.areThere(inputs, signal);
  // An earlier inbox may be closed to the function.
  if (!isInside(settings, { bucket, key })) return true;
  if ((await inbox.current(bucket, key, signal))?.id === id) return true;
  for await (const { uploads } of inbox.pages(bucket, key, undefined, signal)) {
    if (uploads.some((upload) => upload.id === id)) return true;
    if (uploads.some((upload) => upload.key > key)) return false;
  }
  return false;
}

/** What became of a {@link HoldRequest}, and all holds. */
export interface HoldAnswer {
  readonly result: HoldResult;
  readonly holds: Holds;
}

/** Pauses the pipeline or a route, or has it go on. */
export async function changeHold(
  { action, route, why }: HoldRequest,
  { holds, clock, settings }: HoldPorts,
  signal: AbortSignal,
): Promise<HoldAnswer> {
  return holds.change((draft): HoldAnswer => {
    const held = route === undefined ? draft.pipeline : draft.routes[route];
    // A route that was removed may still be paused.
    const isKnown = held !== undefined || settings.routes.some(({ name }) => name === route);
    if (!isKnown) return { result: 'unknown route', holds: draft };
    if (action === 'pause') {
      pause(draft, route, why, clock.now());
      return { result: 'paused', holds: draft };
    }
    return { result: resume(draft, route) ? 'resumed' : 'not held', holds: draft };
  }, signal);
}

/** Why the flow service did not answer a question. */
interface Unanswered {
  readonly issue: { readonly code: FlowServiceErrorCode; readonly message: string };
}

/** What the flow service offers; or why it did not say so. */
export type OfferedTemplates = { readonly templates: readonly unknown[]; readonly issue?: undefined } | Unanswered;

/** What the listing of flows shows; or why it was not read. */
export type ListingAnswer = { readonly listing: ListingSample; readonly issue?: undefined } | Unanswered;

/** What the service answers about a flow; or why it was not asked, or did not answer. */
export type FlowAnswer =
  | { readonly flow: ShownFlow; readonly issue?: undefined }
  | { readonly issue: { readonly code: FlowServiceErrorCode | 'without-flow'; readonly message: string } };

/** Asks the flow service how the flow of an upload is, by the request of a poll. It changes nothing, and costs nothing. */
export async function flowAnswer(
  uploadId: string,
  { ledger, flows }: Pick<OperatorPorts, 'flows' | 'ledger'>,
  signal: AbortSignal,
): Promise<FlowAnswer> {
  const { entry } = (await ledger.read(uploadId, signal)) ?? {};
  if (entry === undefined || !('flow' in entry) || entry.flow === undefined) {
    return { issue: { code: 'without-flow', message: 'The upload has no flow.' } };
  }
  const { flow, route } = entry;
  return answered(async () => ({ flow: await flows.show(flow.id, signal, { uploadId, template: route.template }) }));
}

/**
 * Asks the flow service for its templates. The question goes from where the function is, and with its token, so the
 * answer also tells whether the service can be reached and takes the token. It costs nothing.
 */
export async function offeredTemplates(
  flows: Pick<FlowService, 'templates'>,
  signal: AbortSignal,
): Promise<OfferedTemplates> {
  return answered(async () => ({ templates: await flows.templates(signal) }));
}

/** The same for the listing of flows, of which two pages are read. */
export async function listingAnswer(flows: Pick<FlowService, 'sample'>, signal: AbortSignal): Promise<ListingAnswer> {
  return answered(async () => ({ listing: await flows.sample(signal) }));
}

async function answered<T>(ask: () => Promise<T>): Promise<T | Unanswered> {
  try {
    return await ask();
  } catch (error) {
    if (!(error instanceof FlowServiceError)) throw error;
    return { issue: { code: error.code, message: error.message } };
  }
}
