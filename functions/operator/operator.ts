import { ListObjectsV2Command } from '@aws-sdk/client-s3';
import pMap from 'p-map';
import { encodedId } from '../base/key-segment.ts';
import { FlowServiceError } from '../flow-service/errors.ts';
import type { HoldPorts } from '../holds/attempt.ts';
import type { HoldRequest, HoldResult } from '../holds/hold-request.ts';
import { type Holds, pause, resume } from '../holds/holds.ts';
import {
  approved,
  collectedAgain,
  type Entry,
  ended,
  isFlowDeleted,
  isFlowShared,
  isTerminal,
  type RunningEntry,
  runningMarkerOf,
  type StoredAsset,
  type TerminalEntry,
  type WaitingEntry,
} from '../ledger/entry.ts';
import type { Stored } from '../ledger/store.ts';
import type { OtherSuccess } from '../publish/aliases.ts';
import { publish } from '../publish/publish.ts';
import { deleteFlow } from '../resubmit/flow-deletion.ts';
import { ASSET_METADATA, assetKey, FLOW_METADATA, UPLOAD_METADATA } from '../results/results-keys.ts';
import { headObject } from '../s3/objects.ts';
import { type Upload, unquoted } from '../uploads/upload.ts';
import {
  beginAgain,
  type Changed,
  CONCURRENCY,
  each,
  type OperatorPorts,
  putWayBack,
  readPublished,
} from './changes.ts';
import { isLate, ranked } from './retry.ts';

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
  const way = entry.state === 'waiting' ? await putWayBack(entry, ports, signal) : undefined;
  // The invocation that made the flow may have died before it put the marker, and only the marker leads to this end.
  if (entry.state === 'running') await ledger.putRunningMarker(runningMarkerOf(entry.upload, entry.flow), signal);
  const written = await ledger.replace(stored, terminal, signal);
  if (!written.won) return { upload, result: 'being sent' };
  const isAborted = entry.state === 'running' ? await abort(entry, ports, signal) : undefined;
  await publish(terminal, ports, signal);
  if (way !== undefined) await ledger.deleteWaitingMarker(way, signal);
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
