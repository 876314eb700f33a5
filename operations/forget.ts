import { DeleteObjectCommand } from '@aws-sdk/client-s3';
import pMap from 'p-map';
import type { Chain } from '../functions/chains/chain-schema.ts';
import { type Entry, failedMarkerOf, isTerminal, type TerminalEntry } from '../functions/ledger/entry.ts';
import { chainKey, entryKey, failedKey } from '../functions/ledger/keys.ts';
import type { TerminalState } from '../functions/ledger/terminal-states.ts';
import { aliasKeyOf } from '../functions/publish/aliases.ts';
import { isPublished } from '../functions/publish/publish.ts';
import { receiptKey, UPLOAD_METADATA } from '../functions/results/results-keys.ts';
import { headObject, listVersions, type VersionMarker } from '../functions/s3/objects.ts';
import { secondDigits, UPLOAD_ID } from '../functions/uploads/upload.ts';
import { AT_ONCE_MAX, resultsSchema } from './actions.ts';
import { laterEntries, readChain } from './chains.ts';
import { uploadCommand } from './commands.ts';
import type { Deployment } from './deployment.ts';
import { findUpload, withPrefix } from './find.ts';
import {
  type EntryIssue,
  type FoundUpload,
  failedMarkers,
  objects,
  READS_MAX,
  readEntries,
  readEntry,
} from './listing.ts';
import { uploadName } from './upload-name.ts';

/** The upload is under way, or its entry cannot tell. Forgetting it now could lose a flow that is paid for. */
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
  /** How it ended. `unknown` if the ledger has no entry of it. */
  readonly state: TerminalState | 'unknown';
  /** When the object was put, in ISO 8601. Undefined if only its chain is left. */
  readonly lastModified: string | undefined;
  /** The version of the object in the inbox. Undefined if it is gone, or belongs to another upload by now. */
  readonly object: { readonly versionId?: string | undefined } | undefined;
  /** Keys of the results bucket: the results, and the receipts if they are of these uploads. Its own receipt comes last. */
  readonly results: readonly string[];
  /**
   * Keys of the ledger. The entry comes last, and after it only the chain. Waiting markers may be left, which hold an
   * upload id: a tick drops each when it is due, within the hour.
   */
  readonly ledger: readonly string[];
  /**
   * Addresses of what stays in buckets, or below a prefix of the results, that a deployment has replaced: the file, and the
   * folders of results. They are the owner's to delete.
   */
  readonly elsewhere: readonly string[];
  /** The flow. It stays at the service, unless {@link forget} says otherwise. */
  readonly flowId: string | undefined;
  /** The uploads of later stages, also those that are no part of the chain any more, and their flows. */
  readonly stages: readonly { readonly id: string; readonly key: string; readonly flowId: string | undefined }[];
}

/** What a key or an id names, for a deletion. */
export interface KeyTraces {
  readonly key: string;
  /** The uploads that were named, the newest first: that of an id, or all of a key. */
  readonly uploads: readonly Traces[];
  /** What stays if these are deleted. */
  readonly remaining: {
    /** Ids of other uploads of the key, the newest first. */
    readonly uploads: readonly string[];
    /** Number of objects of the results bucket below the key, whose metadata names other uploads, or none. */
    readonly objects: number;
  };
}

/**
 * Finds everything that is kept of an upload that has ended, and of its chain. Of a key, that of its newest upload.
 * Deletes nothing.
 * @throws {UnknownUploadError} @throws {UnderWayError} @throws {LaterStageError}
 */
export async function tracesOf(what: string, deployment: Deployment, signal: AbortSignal): Promise<Traces> {
  const found = await findUpload(what, deployment, signal);
  if (found === undefined || (found.entry === undefined && found.current === undefined)) {
    return leftOf(what, deployment, signal);
  }
  const below = await resultsBelow(found.key, deployment, signal);
  return tracesOfUpload(found, below, deployment, { isNewest: true, signal });
}

/**
 * Finds the same of each upload of a key; or of one upload, which its id names. An upload of the key is known by its
 * version in the inbox, by its results, by the receipt at its key, or by its failure. Deletes nothing.
 * @throws {UnknownUploadError} @throws {UnderWayError} one of them has not ended. @throws {LaterStageError}
 */
export async function tracesOfAll(what: string, deployment: Deployment, signal: AbortSignal): Promise<KeyTraces> {
  const found = await findUpload(what, deployment, signal);
  const key = found?.key ?? withPrefix(what, deployment);
  const below = await resultsBelow(key, deployment, signal);
  const all = await uploadsOf({ key, found, below }, deployment, signal);
  const named = found !== undefined && found.id === what ? all.filter(({ id }) => id === what) : all;
  const uploads: Traces[] = [];
  for (const each of named) {
    const isNewest = each.id === all[0]?.id;
    uploads.push(await tracesOfUpload(each, below, deployment, { isNewest, signal }));
  }
  if (uploads.length === 0) uploads.push(await leftOf(what, deployment, signal));
  const deleted = new Set(uploads.flatMap(({ results }) => results));
  return {
    key: uploads[0]?.key ?? key,
    uploads,
    remaining: {
      uploads: all.filter((each) => !named.includes(each)).map(({ id }) => id),
      objects: [...below.keys()].filter((each) => !deleted.has(each)).length,
    },
  };
}

type Below = ReadonlyMap<string, string | undefined>;

/** The uploads of a key, the newest first. @param found by the key, or by an id. */
async function uploadsOf(
  { key, found, below }: { readonly key: string; readonly found: FoundUpload | undefined; readonly below: Below },
  deployment: Deployment,
  signal: AbortSignal,
): Promise<readonly FoundUpload[]> {
  if (found?.entry?.upload.stage !== undefined) return [found];
  const known = new Map<string, FoundUpload>();
  for await (const upload of versionsOf(key, deployment, signal)) {
    const { id, bytes, lastModified, versionId } = upload;
    known.set(id, { id, key, current: { bytes, lastModified, versionId } });
  }
  if (found !== undefined) known.set(found.id, found);
  const ids = new Set([...known.keys(), ...below.values()].filter((id) => id !== undefined));
  for await (const { uploadId } of failedMarkers(deployment, 0, signal)) ids.add(uploadId);
  const read = await readEntries([...ids], deployment, signal);
  for (const [index, id] of [...ids].entries()) {
    const of = known.get(id);
    if (of !== undefined) requireReadable(of.key, read[index]?.issue);
  }
  const entries = read.flatMap(({ entry }) => entry ?? []);
  // A stage is a part of the upload that its chain began with. A longer key may begin with this one.
  const firsts = entries.flatMap(({ upload: { stage } }) => (stage?.first.key === key ? [stage.first.id] : []));
  const missing = firsts.filter((id) => !ids.has(id));
  entries.push(...(await readEntries(missing, deployment, signal)).flatMap(({ entry }) => entry ?? []));
  for (const entry of entries) {
    const { id } = entry.upload;
    if (entry.upload.stage === undefined && entry.upload.key === key)
      known.set(id, { ...known.get(id), id, key, entry });
  }
  const uploads = [...known.values()].filter(({ entry, current }) => entry !== undefined || current !== undefined);
  const rank = ({ id, entry, current }: FoundUpload): string => {
    const { lastModified = 0 } = current ?? entry?.upload ?? {};
    // Of two in the same second, what the key leads to is the newer one.
    return `${secondDigits(lastModified)} ${id === found?.id && found.current !== undefined ? 1 : 0} ${id}`;
  };
  return uploads.sort((one, other) => (rank(one) < rank(other) ? 1 : -1));
}

async function tracesOfUpload(
  found: FoundUpload,
  below: Below,
  deployment: Deployment,
  { isNewest, signal }: { readonly isNewest: boolean; readonly signal: AbortSignal },
): Promise<Traces> {
  const { id, key, entry } = found;
  requireReadable(key, found.issue);
  const stage = entry?.upload.stage;
  if (stage !== undefined) {
    const command = uploadCommand('forget', stage.first, deployment);
    throw new LaterStageError(
      `${uploadName(key)} belongs to the chain of ${stage.first.key}. Forget the whole chain: ${command}`,
    );
  }
  const lastModified = entry?.upload.lastModified ?? found.current?.lastModified;
  // The key of an older upload would name the newest one.
  const named = isNewest ? found : { id, key: id };
  const end = entry && (await atRest(entry, deployment, signal, named));
  const chain = await readChain(id, deployment, signal);
  const later = chain === undefined ? [] : await laterStages(chain, deployment, signal);
  const ends = end === undefined ? later : [...later, end];
  const of: readonly Named[] = [{ id, key }, ...later.map(({ upload }) => upload)];
  const ids = new Set(of.map((each) => each.id));
  const shown = await pMap(of, (each) => deployment.aliases.read(each, signal), { concurrency: READS_MAX });
  return {
    ...{ id, key },
    state: end?.state ?? 'unknown',
    lastModified: lastModified === undefined ? undefined : new Date(lastModified).toISOString(),
    object: await objectOf(found, deployment, signal),
    results: await resultsOf(found, { later, below, aliases: shown.flatMap(aliasesOf) }, deployment, signal),
    ledger: [
      ...ends.flatMap((each) => (each.state === 'failed' ? [failedKey(failedMarkerOf(each))] : [])),
      ...shown.flatMap((each, index) => (each && ids.has(each.upload) ? [aliasKeyOf(of[index] as Named)] : [])),
      ...ends.map(({ upload }) => entryKey(upload.id)),
      ...(chain === undefined ? [] : [chainKey(id)]),
    ],
    elsewhere: elsewhereOf(key, ends, deployment),
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
  const nothing = { object: undefined, results: [], elsewhere: [], flowId: undefined, stages: [] };
  return { id, key, state: 'unknown', lastModified: undefined, ...nothing, ledger: [chainKey(id)] };
}

/** The uploads of later stages that the ledger has entries of. @throws {UnderWayError} */
async function laterStages(
  { first, endedAt, uploads }: Chain,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<readonly TerminalEntry[]> {
  if (endedAt === undefined) {
    const command = uploadCommand('cancel', first, deployment);
    throw new UnderWayError(`The chain of ${first.key} is under way. Cancel it first: ${command}`);
  }
  const later = await laterEntries(first.id, deployment, signal);
  const unread = uploads.filter(({ id }) => id !== first.id && !later.some(({ upload }) => upload.id === id));
  for (const { id } of unread) requireReadable(first.key, (await readEntry(id, deployment, signal)).issue);
  return pMap(later, (entry) => atRest(entry, deployment, signal), { concurrency: READS_MAX });
}

/** @throws {UnderWayError} the entry is there, and cannot be read. */
function requireReadable(key: string, issue: EntryIssue | undefined): void {
  if (issue?.kind !== 'unreadable') return;
  throw new UnderWayError(`${uploadName(key)} may be under way. ${issue.message}`);
}

/**
 * Returns the entry of an upload that has ended, if its end is published.
 * @param named how a command names the upload.
 * @throws {UnderWayError}
 */
async function atRest(
  entry: Entry,
  deployment: Deployment,
  signal: AbortSignal,
  named: Pick<Entry['upload'], 'id' | 'key'> = entry.upload,
): Promise<TerminalEntry> {
  const { key } = entry.upload;
  if (!isTerminal(entry)) {
    throw new UnderWayError(
      `${uploadName(key)} is ${entry.state}. Cancel it first: ${uploadCommand('cancel', named, deployment)}`,
    );
  }
  if (!(await isPublished(entry, deployment.ledger, signal))) {
    throw new UnderWayError(`The receipt of ${uploadName(key)} is being written. Try again in a minute.`);
  }
  return entry;
}

/** The version of the object in the inbox, current or not. */
async function objectOf(
  { id, key }: FoundUpload,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<Traces['object']> {
  for await (const upload of versionsOf(key, deployment, signal)) {
    if (upload.id === id) return { versionId: upload.versionId };
  }
  return undefined;
}

/** What uploads of a key have in buckets, or below a prefix, that are not the inbox or the results any more. */
function elsewhereOf(
  key: string,
  entries: readonly TerminalEntry[],
  { settings: { inboxBucket, resultsBucket, resultsPrefix, resultsKey } }: Deployment,
): readonly string[] {
  const files = entries.filter(({ upload }) => upload.stage === undefined && upload.bucket !== inboxBucket);
  const results = entries.flatMap(({ assets, previous = [] }) => [assets, ...previous.map((end) => end.assets)].flat());
  // The receipts are in the folder too, unless the setting puts assets elsewhere.
  const folderOf = (at: string): string | undefined => {
    const length = `/${at}`.lastIndexOf(`/${key}/`);
    return length < 0 ? undefined : `${at.slice(0, length)}${key}/`;
  };
  const places = results.flatMap(({ bucket, key: at }) => {
    if (bucket !== resultsBucket) return `s3://${bucket}/${folderOf(at) ?? at}`;
    const folder = resultsKey.startsWith('{key}/') ? folderOf(at) : undefined;
    return folder === undefined || at.startsWith(`${resultsPrefix}${key}/`) ? [] : `s3://${bucket}/${folder}`;
  });
  return [...files.map(({ upload }) => `s3://${upload.bucket}/${key}`), ...new Set(places)];
}

/** The versions of a key in the inbox. */
async function* versionsOf(key: string, { inbox, settings: { inboxBucket } }: Deployment, signal: AbortSignal) {
  for await (const { uploads } of inbox.pages(inboxBucket, key, undefined, signal)) {
    yield* uploads.filter((upload) => upload.key === key);
    if (uploads.some((upload) => upload.key > key)) return;
  }
}

/** The objects of the results below a key, with its receipt. Each has the id of the upload that its metadata names. */
async function resultsBelow(key: string, { s3, settings }: Deployment, signal: AbortSignal): Promise<Below> {
  const { resultsBucket: bucket, resultsPrefix } = settings;
  const found = [];
  for await (const { Key = '' } of objects({ s3, bucket, prefix: `${resultsPrefix}${key}/` }, signal)) found.push(Key);
  // The key of the receipt may be a shortened one.
  const all = new Set([...found, receiptKey(resultsPrefix, key)]);
  return new Map(
    (await idsIn(all, { s3, settings }, signal)).filter(([, head]) => head.isThere).map(([at, { id }]) => [at, id]),
  );
}

type IdIn = readonly [key: string, head: { readonly isThere: boolean; readonly id: string | undefined }];

/** The ids of uploads in the metadata of objects of the results. */
const idsIn = (
  keys: Iterable<string>,
  { s3, settings }: Pick<Deployment, 's3' | 'settings'>,
  signal: AbortSignal,
): Promise<readonly IdIn[]> =>
  pMap(
    keys,
    async (Key): Promise<IdIn> => {
      const head = await headObject(s3, { Bucket: settings.resultsBucket, Key }, signal);
      return [Key, { isThere: head !== undefined, id: head?.Metadata?.[UPLOAD_METADATA] }];
    },
    { concurrency: READS_MAX },
  );

/**
 * What stands under the key of the upload and bears its id, or that of an upload of a later stage; and the results that
 * their entries name. Its own receipt comes last: the upload can be found by its key as long as that is there.
 */
async function resultsOf(
  { id, key, entry }: FoundUpload,
  parts: { readonly later: readonly TerminalEntry[]; readonly below: Below; readonly aliases: readonly string[] },
  { s3, settings }: Deployment,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const { later, below, aliases } = parts;
  const receipt = receiptKey(settings.resultsPrefix, key);
  const receipts = later.map(({ upload }) => receiptKey(settings.resultsPrefix, upload.key));
  const elsewhere = new Set([...assetsOf(entry), ...later.flatMap(assetsOf), ...aliases, ...receipts]).difference(
    below,
  );
  const others = await idsIn(elsewhere, { s3, settings }, signal);
  const ids = new Set([id, ...later.map(({ upload }) => upload.id)]);
  const own = [...others.map(([at, head]) => [at, head.id] as const), ...below]
    .filter(([, named]) => ids.has(named ?? ''))
    .map(([at]) => at);
  return [...own.filter((at) => at !== receipt), ...own.filter((at) => at === receipt)];
}

type Named = Pick<Entry['upload'], 'id' | 'key' | 'stage'>;

const aliasesOf = (state: Awaited<ReturnType<Deployment['aliases']['read']>>): readonly string[] =>
  state === undefined ? [] : [...state.files.map(({ alias }) => alias), ...state.stale];

const assetsOf = (entry: Entry | undefined): readonly string[] =>
  entry !== undefined && isTerminal(entry) ? entry.assets.map(({ key }) => key) : [];

/**
 * Deletes the traces of an upload, the object in the inbox first: without its entry, the sweep would submit it again. The
 * chain comes last: without it, an entry whose end is told again would begin the later stages once more. Before that, the
 * service is asked to delete the flows, because the entries name them.
 * @returns what became of each flow. One that could not be deleted keeps nothing else from being deleted.
 * @throws {UnderWayError}
 * @throws the error of S3 that stopped it. What is left can be forgotten by asking again.
 */
export async function forget(
  traces: Traces,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<readonly FlowLeft[]> {
  const { settings } = deployment;
  // Its flow may have been collected again since the traces were found.
  for (const { id, key } of [traces, ...traces.stages]) {
    const { entry, issue } = await readEntry(id, deployment, signal);
    requireReadable(key, issue);
    if (entry !== undefined) await atRest(entry, deployment, signal);
  }
  const flows = await deleteFlows([traces, ...traces.stages], deployment, signal);
  if (traces.object !== undefined) await removeUpload(traces, deployment, signal);
  for (const each of traces.results) await removeVersions(settings.resultsBucket, each, deployment, signal);
  for (const each of traces.ledger) await removeVersions(settings.ledgerBucket, each, deployment, signal);
  return flows;
}

/** What became of a flow at the service. */
export interface FlowLeft {
  readonly flowId: string;
  /** `gone`: the service did not know it. `kept`: it stays, or it is unknown whether it does. */
  readonly result: 'deleted' | 'gone' | 'kept';
  /** Why it is kept, in words. */
  readonly why?: string | undefined;
}

/** Has the collecting function, which has the token, delete flows at the service. */
async function deleteFlows(
  uploads: readonly Pick<Traces, 'id' | 'flowId'>[],
  { collecting, settings }: Deployment,
  signal: AbortSignal,
): Promise<readonly FlowLeft[]> {
  const named = uploads.flatMap(({ id, flowId }) => (flowId === undefined ? [] : [{ id, flowId }]));
  if (settings.service.delete === undefined) {
    const why = 'the description of the service has no way to delete it';
    return named.map(({ flowId }) => ({ flowId, result: 'kept', why }));
  }
  const left: FlowLeft[] = [];
  for (let from = 0; from < named.length; from += AT_ONCE_MAX) {
    const some = named.slice(from, from + AT_ONCE_MAX);
    const event = { delete: some.map(({ id }) => id) };
    const answer = await collecting.invoke(event, signal).then(resultsSchema.parse, (error: Error) => {
      signal.throwIfAborted();
      return event.delete.map((upload) => ({ upload, result: 'not asked', why: `it was not asked: ${error.message}` }));
    });
    for (const { id, flowId } of some) {
      const { result = 'unknown', why } = answer.find(({ upload }) => upload === id) ?? {};
      if (result === 'deleted' || result === 'gone') left.push({ flowId, result });
      else
        left.push({ flowId, result: 'kept', why: why ?? (result === 'shared' ? SHARED : `the upload is ${result}`) });
    }
  }
  return left;
}

const SHARED = 'another upload has the same flow';

/**
 * Deletes one version, and what marks it as deleted. Without versions, another file may have come to the key since:
 * that one stays.
 */
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
  // The delete markers of a key without versions name nothing but the key.
  const { versions, deleteMarkers } = await listVersions(s3, { bucket: inboxBucket, prefix: key }, abortSignal);
  if (!isPinned || versions.some((each) => each.Key === key)) return;
  for (const { VersionId: marker } of deleteMarkers.filter((each) => each.Key === key)) {
    await s3.send(new DeleteObjectCommand({ Bucket: inboxBucket, Key: key, VersionId: marker }), { abortSignal });
  }
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
