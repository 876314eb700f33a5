import { receiptKey, UPLOAD_METADATA } from '../functions/results/results-keys.ts';
import { headObject } from '../functions/s3/objects.ts';
import { comparable } from '../functions/uploads/job-keys.ts';
import { isStageKey, UPLOAD_ID } from '../functions/uploads/upload.ts';
import { isFolderMarker } from '../functions/uploads/upload-event.ts';
import { chainBegunBy } from './chains.ts';
import type { Deployment } from './deployment.ts';
import { type FoundUpload, objects, readEntries, readEntry } from './listing.ts';
import { stageOfName } from './upload-name.ts';

/** A stage of a chain may have several uploads, which have the same name. */
export class AmbiguousNameError extends Error {
  override readonly name = 'AmbiguousNameError';
}

/** Uploads below a prefix that are looked at. More of them are not read, and the answer says so. */
const PREFIX_UPLOADS_MAX = 10_000;

/** What an operator named. */
export type Found =
  | { readonly kind: 'upload'; readonly upload: FoundUpload }
  | {
      readonly kind: 'prefix';
      readonly prefix: string;
      readonly uploads: readonly FoundUpload[];
      /** True if there are more than {@link PREFIX_UPLOADS_MAX}. */
      readonly isCut: boolean;
    };

/**
 * Finds what a text names: an upload by its id or its key, or else all current uploads whose keys begin with the text.
 * A key may lack the prefix of the inbox, and may have its letters and blanks in another form. A key whose object is gone
 * is found by its receipt. The name of a later stage, such as `robot.png › optimised`, means all uploads of the stage in
 * the chain of the file.
 */
export async function find(text: string, deployment: Deployment, signal: AbortSignal): Promise<Found> {
  const upload = await findByKey(text, deployment, signal);
  if (upload !== undefined) return { kind: 'upload', upload };
  const [named, ...others] = await findByName(text, deployment, signal);
  if (named !== undefined && others.length === 0) return { kind: 'upload', upload: named };
  if (named !== undefined) return { kind: 'prefix', prefix: text, uploads: [named, ...others], isCut: false };
  const prefix = withPrefix(text, deployment);
  return { kind: 'prefix', prefix, ...(await findBelow(prefix, deployment, signal)) };
}

/** The key, or the beginning of keys, that a text means. */
export const withPrefix = (
  text: string,
  { settings: { inboxPrefix } }: { readonly settings: Pick<Deployment['settings'], 'inboxPrefix'> },
): string => (text.startsWith(inboxPrefix) ? text : `${inboxPrefix}${text}`);

/**
 * Finds the one upload that a text names: by its id, its key or its name. Undefined if the text names none.
 * @throws {AmbiguousNameError}
 */
export async function findUpload(
  text: string,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<FoundUpload | undefined> {
  const upload = await findByKey(text, deployment, signal);
  if (upload !== undefined) return upload;
  const [named, ...others] = await findByName(text, deployment, signal);
  if (named === undefined || others.length === 0) return named;
  throw new AmbiguousNameError(
    `${text} is the name of ${others.length + 1} uploads. Name one of them by its id, such as ${named.id}.`,
  );
}

/** The uploads that a name of a later stage means. Empty if the text is no such name. */
async function findByName(text: string, deployment: Deployment, signal: AbortSignal): Promise<readonly FoundUpload[]> {
  const stage = stageOfName(text);
  const first = stage && (await findByKey(stage.firstKey, deployment, signal));
  const chain = first && (await chainBegunBy(first, deployment, signal));
  const uploads = chain?.uploads.filter(({ id, route }) => id !== first?.id && route === stage?.route) ?? [];
  const entries = await readEntries(
    uploads.map(({ id }) => id),
    deployment,
    signal,
  );
  // An upload is in its chain a moment before it has an entry.
  return entries.flatMap(({ entry }) =>
    entry === undefined ? [] : [{ id: entry.upload.id, key: entry.upload.key, entry }],
  );
}

async function findByKey(text: string, deployment: Deployment, signal: AbortSignal): Promise<FoundUpload | undefined> {
  if (UPLOAD_ID.test(text)) {
    const { entry, issue } = await readEntry(text, deployment, signal);
    if (entry !== undefined) return { id: text, key: entry.upload.key, entry };
    if (issue?.kind === 'unreadable') return { id: text, key: text, issue };
  }
  if (text === '') return undefined;
  const { inbox, settings } = deployment;
  const key = withPrefix(text, deployment);
  // An object with such a key is no upload.
  const stage = isStageKey(key) ? await findLaterStage(key, deployment, signal) : undefined;
  if (stage !== undefined) return stage;
  const current = await inbox.current(settings.inboxBucket, key, signal);
  if (current !== undefined) {
    const { id, bytes, lastModified, versionId, mediaType } = current;
    const { entry, issue } = await readEntry(id, deployment, signal);
    return { id, key, current: { bytes, lastModified, versionId, mediaType }, entry, issue };
  }
  const id = await idInReceipt(key, deployment, signal);
  if (id !== undefined) {
    const { entry, issue } = await readEntry(id, deployment, signal);
    return { id, key, entry, issue };
  }
  const other = await keyInOtherForm(key, deployment, signal);
  return other === undefined ? undefined : findByKey(other, deployment, signal);
}

/**
 * The key of the inbox that a person takes for this one: macOS decomposes letters, and its screenshots have a blank that
 * no key types. Undefined if there is none, or more than one.
 * @internal
 */
export async function keyInOtherForm(
  key: string,
  { s3, settings }: Deployment,
  signal: AbortSignal,
): Promise<string | undefined> {
  const at = key.search(/[^!-~]/);
  if (at === -1) return undefined;
  // The letter before may be a part of what is composed elsewhere.
  const prefix = key.slice(0, Math.max(0, at - 1));
  const alike: string[] = [];
  let looked = 0;
  for await (const { Key = '' } of objects({ s3, bucket: settings.inboxBucket, prefix }, signal)) {
    if (Key !== key && comparable(Key) === comparable(key)) alike.push(Key);
    looked += 1;
    if (looked === PREFIX_UPLOADS_MAX) break;
  }
  return alike.length === 1 ? alike[0] : undefined;
}

/** The upload of a later stage with this address. It has no object of the inbox, and may have no receipt yet. */
async function findLaterStage(
  key: string,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<FoundUpload | undefined> {
  const id = key.slice(key.lastIndexOf('/') + 1);
  const { entry } = await readEntry(id, deployment, signal);
  return entry?.upload.key === key ? { id, key, entry } : undefined;
}

/** The upload whose receipt stands at a key. */
async function idInReceipt(
  key: string,
  { s3, settings }: Deployment,
  signal: AbortSignal,
): Promise<string | undefined> {
  const address = { Bucket: settings.resultsBucket, Key: receiptKey(settings.resultsPrefix, key) };
  const id = (await headObject(s3, address, signal))?.Metadata?.[UPLOAD_METADATA];
  return id !== undefined && UPLOAD_ID.test(id) ? id : undefined;
}

/** The current uploads below a prefix. */
async function findBelow(prefix: string, deployment: Deployment, signal: AbortSignal) {
  const { inbox, settings } = deployment;
  const listed = [];
  let isCut = false;
  for await (const page of inbox.pages(settings.inboxBucket, prefix, undefined, signal)) {
    listed.push(...page.uploads.filter((upload) => upload.isCurrent && !isFolderMarker(upload)));
    isCut = listed.length > PREFIX_UPLOADS_MAX;
    if (isCut) break;
  }
  const shown = listed.slice(0, PREFIX_UPLOADS_MAX);
  const entries = await readEntries(
    shown.map(({ id }) => id),
    deployment,
    signal,
  );
  const uploads = shown.map(({ id, key, bytes, lastModified, versionId }, index): FoundUpload => {
    const { entry, issue } = entries[index] as (typeof entries)[number];
    return { id, key, current: { bytes, lastModified, versionId }, entry, issue };
  });
  return { uploads, isCut };
}
