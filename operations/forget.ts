import { DeleteObjectCommand } from '@aws-sdk/client-s3';
import pMap from 'p-map';
import type { Chain } from '../functions/chains/chain.ts';
import { type Entry, failedMarkerOf, isTerminal, type TerminalEntry } from '../functions/ledger/entry.ts';
import { chainKey, entryKey, failedKey, parseEntryKey, UPLOADS_PREFIX } from '../functions/ledger/keys.ts';
import { isPublished } from '../functions/publish/publish.ts';
import { receiptKey, UPLOAD_METADATA } from '../functions/results/results-keys.ts';
import { headObject, listVersions, type VersionMarker } from '../functions/s3/objects.ts';
import { secondDigits, UPLOAD_ID } from '../functions/uploads/upload.ts';
import { readChain } from './chains.ts';
import { uploadCommand } from './commands.ts';
import type { Deployment } from './deployment.ts';
import { type FoundUpload, findUpload } from './find.ts';
import { objects, READS_MAX, readEntries, readEntry } from './listing.ts';

/** The upload is under way. Forgetting it now could lose a flow that is paid for. */
export class UnderWayError extends Error {
  override readonly name = 'UnderWayError';
}

/** There is no such upload. */
export class UnknownUploadError extends Error {
  override readonly name = 'UnknownUploadError';
}

/** The upload belongs to a later stage of a chain. The whole chain is forgotten together, by its first file. */
export class LaterStageError extends Error {
  override readonly name = 'LaterStageError';
}

/** Everything that is kept of one upload, and of the later stages of its chain. */
export interface Traces {
  readonly id: string;
  readonly key: string;
  /** The version of the object in the inbox. Undefined if it is gone, or belongs to another upload by now. */
  readonly object: { readonly versionId?: string | undefined } | undefined;
  /** Keys of the results bucket: the results, and the receipts if they are of these uploads. Its own receipt comes last. */
  readonly results: readonly string[];
  /**
   * Keys of the ledger. The entry comes last, and after it only the chain. Waiting markers may be left, which hold an
   * upload id: a tick drops each when it is due, within the hour.
   */
  readonly ledger: readonly string[];
  /** The flow, which stays at the service. */
  readonly flowId: string | undefined;
  /** The uploads of later stages, also those that are no part of the chain any more, and their flows. */
  readonly stages: readonly { readonly id: string; readonly key: string; readonly flowId: string | undefined }[];
}

/**
 * Finds everything that is kept of an upload that has ended, and of its chain. Deletes nothing.
 * @throws {UnknownUploadError} @throws {UnderWayError} @throws {LaterStageError}
 */
export async function tracesOf(what: string, deployment: Deployment, signal: AbortSignal): Promise<Traces> {
  const found = await findUpload(what, deployment, signal);
  if (found === undefined || (found.entry === undefined && found.current === undefined)) {
    return leftOf(what, deployment, signal);
  }
  const { id, key, entry } = found;
  const stage = entry?.upload.stage;
  if (stage !== undefined) {
    const command = uploadCommand('forget', stage.first, deployment);
    throw new LaterStageError(`${key} belongs to the chain of ${stage.first.key}. Forget the whole chain: ${command}`);
  }
  const end = entry && (await atRest(entry, deployment, signal));
  const chain = await readChain(id, deployment, signal);
  const later = chain === undefined ? [] : await laterStages(chain, deployment, signal);
  const ends = end === undefined ? later : [...later, end];
  return {
    ...{ id, key },
    object: await objectOf(found, deployment, signal),
    results: await resultsOf(found, later, deployment, signal),
    ledger: [
      ...ends.flatMap((each) => (each.state === 'failed' ? [failedKey(failedMarkerOf(each))] : [])),
      ...ends.map(({ upload }) => entryKey(upload.id)),
      ...(chain === undefined ? [] : [chainKey(id)]),
    ],
    flowId: end?.flow?.id,
    stages: later.map(({ upload, flow }) => ({ id: upload.id, key: upload.key, flowId: flow?.id })),
  };
}

/**
 * What is left if an earlier deletion was stopped just before its end: the chain.
 * @throws {UnknownUploadError} nothing is.
 */
async function leftOf(id: string, deployment: Deployment, signal: AbortSignal): Promise<Traces> {
  const chain = UPLOAD_ID.test(id) ? await readChain(id, deployment, signal) : undefined;
  if (chain === undefined) throw new UnknownUploadError(`There is no upload ${id}.`);
  const { key } = chain.first;
  return { id, key, object: undefined, results: [], ledger: [chainKey(id)], flowId: undefined, stages: [] };
}

/**
 * The uploads of later stages that the ledger has entries of. The chain does not name those that a retry or a stage made
 * anew has replaced. But the ids of all begin with the second of the first file, so a short listing has them.
 * @throws {UnderWayError}
 */
async function laterStages(
  { first, endedAt }: Chain,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<readonly TerminalEntry[]> {
  if (endedAt === undefined) {
    const command = uploadCommand('cancel', first, deployment);
    throw new UnderWayError(`The chain of ${first.key} is under way. Cancel it first: ${command}`);
  }
  const { s3, settings } = deployment;
  const prefix = `${UPLOADS_PREFIX}${secondDigits(first.lastModified)}`;
  const ids: string[] = [];
  for await (const { Key = '' } of objects({ s3, bucket: settings.ledgerBucket, prefix }, signal)) {
    const id = parseEntryKey(Key);
    if (id !== undefined) ids.push(id);
  }
  const entries = (await readEntries(ids, deployment, signal)).flatMap(({ entry }) => (entry ? [entry] : []));
  const later = entries.filter(({ upload }) => upload.stage?.first.id === first.id);
  return pMap(later, (entry) => atRest(entry, deployment, signal), { concurrency: READS_MAX });
}

/**
 * Returns the entry of an upload that has ended, if its end is published.
 * @throws {UnderWayError}
 */
async function atRest(entry: Entry, deployment: Deployment, signal: AbortSignal): Promise<TerminalEntry> {
  const { key } = entry.upload;
  if (!isTerminal(entry)) {
    throw new UnderWayError(
      `${key} is ${entry.state}. Cancel it first: ${uploadCommand('cancel', entry.upload, deployment)}`,
    );
  }
  if (!(await isPublished(entry, deployment.ledger, signal))) {
    throw new UnderWayError(`The receipt of ${key} is being written. Try again in a minute.`);
  }
  return entry;
}

/** The version of the object in the inbox, current or not. */
async function objectOf(
  { id, key, entry }: FoundUpload,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<Traces['object']> {
  const { inbox, settings } = deployment;
  const bucket = entry?.upload.bucket ?? settings.inboxBucket;
  for await (const { uploads } of inbox.pages(bucket, key, undefined, signal)) {
    const own = uploads.find((upload) => upload.id === id && upload.key === key);
    if (own !== undefined) return { versionId: own.versionId };
    if (uploads.some((upload) => upload.key > key)) return undefined;
  }
  return undefined;
}

/**
 * What stands under the key of the upload and bears its id, or that of an upload of a later stage; and the results that
 * their entries name. Its own receipt comes last: the upload can be found by its key as long as that is there.
 */
async function resultsOf(
  { id, key, entry }: FoundUpload,
  later: readonly TerminalEntry[],
  { s3, settings }: Deployment,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const { resultsBucket: bucket, resultsPrefix } = settings;
  const receipt = receiptKey(resultsPrefix, key);
  const receipts = later.map(({ upload }) => receiptKey(resultsPrefix, upload.key));
  const candidates = new Set([...assetsOf(entry), ...later.flatMap(assetsOf), ...receipts]);
  for await (const { Key = '' } of objects({ s3, bucket, prefix: `${resultsPrefix}${key}/` }, signal)) {
    candidates.add(Key);
  }
  candidates.delete(receipt);
  candidates.add(receipt);
  const ids = new Set([id, ...later.map(({ upload }) => upload.id)]);
  const ownOf = async (candidate: string): Promise<readonly string[]> => {
    const head = await headObject(s3, { Bucket: bucket, Key: candidate }, signal);
    return ids.has(head?.Metadata?.[UPLOAD_METADATA] ?? '') ? [candidate] : [];
  };
  return (await pMap(candidates, ownOf, { concurrency: READS_MAX })).flat();
}

const assetsOf = (entry: Entry | undefined): readonly string[] =>
  entry !== undefined && isTerminal(entry) ? entry.assets.map(({ key }) => key) : [];

/**
 * Deletes the traces of an upload, the object in the inbox first: without its entry, the sweep would submit it again. The
 * chain comes last: without it, an entry whose end is told again would begin the later stages once more.
 * @throws {UnderWayError}
 * @throws the error of S3 that stopped it. What is left can be forgotten by asking again.
 */
export async function forget(traces: Traces, deployment: Deployment, signal: AbortSignal): Promise<void> {
  const { settings } = deployment;
  // Its flow may have been collected again since the traces were found.
  for (const { id } of [traces, ...traces.stages]) {
    const { entry } = await readEntry(id, deployment, signal);
    if (entry !== undefined) await atRest(entry, deployment, signal);
  }
  if (traces.object !== undefined) await removeUpload(traces, deployment, signal);
  for (const each of traces.results) await removeVersions(settings.resultsBucket, each, deployment, signal);
  for (const each of traces.ledger) await removeVersions(settings.ledgerBucket, each, deployment, signal);
}

/** Deletes one version. Without versions, another file may have come to the key since: that one stays. */
async function removeUpload(
  { id, key, object }: Traces,
  { s3, inbox, settings: { inboxBucket } }: Deployment,
  abortSignal: AbortSignal,
): Promise<void> {
  const isPinned = object?.versionId !== undefined;
  if (!isPinned && (await inbox.current(inboxBucket, key, abortSignal))?.id !== id) return;
  // An object from before versioning, or in a bucket without it, is the version `null`.
  const VersionId = object?.versionId ?? 'null';
  await s3.send(new DeleteObjectCommand({ Bucket: inboxBucket, Key: key, VersionId }), { abortSignal });
}

/** Deletes an object with all its versions. In a bucket without versioning, that is the object alone. */
async function removeVersions(
  Bucket: string,
  Key: string,
  { s3 }: Deployment,
  abortSignal: AbortSignal,
): Promise<void> {
  let after: VersionMarker | undefined;
  do {
    const page = await listVersions(s3, { bucket: Bucket, prefix: Key, after }, abortSignal);
    const own = [...page.versions, ...page.deleteMarkers].filter((each) => each.Key === Key);
    for (const { VersionId = 'null' } of own) {
      await s3.send(new DeleteObjectCommand({ Bucket, Key, VersionId }), { abortSignal });
    }
    // Keys that only begin with this one come after it.
    after = own.length > 0 ? page.next : undefined;
  } while (after !== undefined);
}
