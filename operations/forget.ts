import { DeleteObjectCommand } from '@aws-sdk/client-s3';
import { type Entry, failedMarkerOf, isTerminal, type TerminalEntry } from '../functions/ledger/entry.ts';
import { entryKey, failedKey } from '../functions/ledger/keys.ts';
import { isPublished } from '../functions/publish/publish.ts';
import { receiptKey, UPLOAD_METADATA } from '../functions/results/results-keys.ts';
import { headObject, listVersions, type VersionMarker } from '../functions/s3/objects.ts';
import { uploadCommand } from './commands.ts';
import type { Deployment } from './deployment.ts';
import { type FoundUpload, findUpload } from './find.ts';
import { objects, readEntry } from './listing.ts';

/** The upload is under way. Forgetting it now could lose a flow that is paid for. */
export class UnderWayError extends Error {
  override readonly name = 'UnderWayError';
}

/** There is no such upload. */
export class UnknownUploadError extends Error {
  override readonly name = 'UnknownUploadError';
}

/** Everything that is kept of one upload. */
export interface Traces {
  readonly id: string;
  readonly key: string;
  /** The version of the object in the inbox. Undefined if it is gone, or belongs to another upload by now. */
  readonly object: { readonly versionId?: string | undefined } | undefined;
  /** Keys of the results bucket: the results, and the receipt if it is of this upload. */
  readonly results: readonly string[];
  /** Keys of the ledger. The entry comes last. */
  readonly ledger: readonly string[];
  /** The flow, which stays at the service. */
  readonly flowId: string | undefined;
}

/**
 * Finds everything that is kept of an upload that has ended. Deletes nothing.
 * @throws {UnknownUploadError} @throws {UnderWayError}
 */
export async function tracesOf(what: string, deployment: Deployment, signal: AbortSignal): Promise<Traces> {
  const found = await findUpload(what, deployment, signal);
  if (found === undefined || (found.entry === undefined && found.current === undefined)) {
    throw new UnknownUploadError(`There is no upload ${what}.`);
  }
  const { id, key, entry } = found;
  const end = entry && (await atRest(entry, deployment, signal));
  return {
    ...{ id, key },
    object: await objectOf(found, deployment, signal),
    results: await resultsOf(found, deployment, signal),
    ledger: [
      ...(end?.state === 'failed' ? [failedKey(failedMarkerOf(end))] : []),
      ...(end === undefined ? [] : [entryKey(id)]),
    ],
    flowId: end?.flow?.id,
  };
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

/** What stands under the key of the upload and bears its id, and the results that its entry names. */
async function resultsOf(
  { id, key, entry }: FoundUpload,
  { s3, settings }: Deployment,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const { resultsBucket: bucket, resultsPrefix } = settings;
  const candidates = new Set([...assetsOf(entry), receiptKey(resultsPrefix, key)]);
  for await (const { Key = '' } of objects({ s3, bucket, prefix: `${resultsPrefix}${key}/` }, signal)) {
    candidates.add(Key);
  }
  const own: string[] = [];
  for (const candidate of candidates) {
    const head = await headObject(s3, { Bucket: bucket, Key: candidate }, signal);
    if (head?.Metadata?.[UPLOAD_METADATA] === id) own.push(candidate);
  }
  return own;
}

const assetsOf = (entry: Entry | undefined): readonly string[] =>
  entry !== undefined && isTerminal(entry) ? entry.assets.map(({ key }) => key) : [];

/**
 * Deletes the traces of an upload, the object in the inbox first: without its entry, the sweep would submit it again.
 * @throws {UnderWayError}
 * @throws the error of S3 that stopped it. What is left can be forgotten by asking again.
 */
export async function forget(traces: Traces, deployment: Deployment, signal: AbortSignal): Promise<void> {
  const { settings } = deployment;
  // Its flow may have been collected again since the traces were found.
  const { entry } = await readEntry(traces.id, deployment, signal);
  if (entry !== undefined) await atRest(entry, deployment, signal);
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
