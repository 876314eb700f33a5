import { type Inbox, isCanary } from '../uploads/inbox.ts';
import type { Route } from '../uploads/route.ts';
import { NO_METADATA } from '../uploads/route-snapshot.ts';
import { routeFor } from '../uploads/routes.ts';
import { hashIn, secondDigits, secondsIn, type Upload, uploadId } from '../uploads/upload.ts';
import { type Entry, hasGivenWay, type Input } from './entry.ts';
import { isDamaged, type Ledger, readableOr, type Stored } from './store.ts';
import { SWEEP_REACH_MS } from './waits.ts';

/*
 * S3 announces a change of metadata, storage class or encryption as a copy of the object onto itself. The content stays,
 * so such a copy is no new upload. Only a file that waits until it is still gives way to a copy.
 */

/** LastModified counts in whole seconds. */
const SECOND_MS = 1_000;

/** Versions of a key that are looked at, the newest first. Each may cost a request. */
const VERSIONS_MAX = 20;

/** How far before its end the entry of an upload is looked for, in milliseconds, and in how many pages each time. */
const REACHES_MS = [60_000, SWEEP_REACH_MS];
const PAGES_MAX = 10;

export interface CopyPorts {
  readonly inbox: Pick<Inbox, 'pages' | 'facts' | 'current'>;
  readonly ledger: Pick<Ledger, 'read' | 'entryPages'>;
  readonly receipts: { uploadAt(key: string, signal: AbortSignal): Promise<string | undefined> };
  readonly settings: { readonly inboxBucket: string; readonly canaryKey: string; readonly routes: readonly Route[] };
}

/**
 * The entry of the upload of this key that had the same content before: the same size, and the same ETag or checksum. It
 * had not failed when this one was put, and the metadata that Flowdrop reads are the same. Undefined if there is none: then
 * the upload is meant. So is the hourly canary, a copy of an upload whose entry is damaged, and one at its key of an upload
 * that was not there any more.
 * @param known the id of an upload that may be the one before it.
 * @throws any error of S3.
 */
export async function copiedEntry(
  upload: Upload,
  ports: CopyPorts,
  signal: AbortSignal,
  known?: string,
): Promise<Entry | undefined> {
  if (isCanary(upload, ports.settings)) return undefined;
  const find = upload.versionId === undefined ? unversionedBefore : versionBefore;
  // What a damaged entry was about can never be known.
  const before = await readableOr(find(upload, ports, signal, known), () => undefined, isDamaged);
  if (before?.state !== 'failed') return before;
  if (before.endedAt < upload.lastModified + SECOND_MS) return undefined;
  if (!hasGivenWay(before)) return before;
  // It was not at its key any more, so it stands for no file that is: that was put there later.
  const current = await ports.inbox.current(upload.bucket, upload.key, signal);
  return current?.id === upload.id ? undefined : before;
}

/** What is current at a key. Without members if nothing is there. */
interface Current {
  /** The id of the current upload. If the object is a copy, that of the upload that it repeats. */
  readonly id?: string | undefined;
  /** The object at the key, as S3 shows it. */
  readonly current?: Upload | undefined;
  /** If that is a copy: the entry of the upload that it repeats. */
  readonly copied?: Entry | undefined;
}

/**
 * Looks up which upload is current at a key. The given id is the one that is most probably current, and saves requests.
 * @throws any error of S3.
 */
export async function currentUpload(
  { bucket, key, id: known }: Pick<Upload, 'bucket' | 'key' | 'id'>,
  ports: CopyPorts,
  signal: AbortSignal,
): Promise<Current> {
  const current = await ports.inbox.current(bucket, key, signal);
  const id = current?.id;
  if (current === undefined || id === known) return { id, current };
  // It has an entry, which may be damaged or of a newer version.
  if ((await readableOr(ports.ledger.read(current.id, signal), () => true)) !== undefined) return { id, current };
  const copied = await copiedEntry(current, ports, signal, known);
  return { id: copied?.upload.id ?? id, current, copied };
}

async function versionBefore(upload: Upload, { inbox, ledger }: CopyPorts, signal: AbortSignal) {
  let own: Awaited<ReturnType<Inbox['facts']>>;
  let left = VERSIONS_MAX;
  let isOlder = false;
  for await (const { uploads } of inbox.pages(upload.bucket, upload.key, undefined, signal)) {
    for (const each of uploads) {
      if (each.key !== upload.key || left === 0) return undefined;
      left -= 1;
      if (!isOlder) {
        isOlder = each.versionId === upload.versionId;
        continue;
      }
      if (each.bytes !== upload.bytes) return undefined;
      // Most uploads have no version before them with as many bytes, and cost no request more.
      own ??= await inbox.facts(upload, signal);
      const facts = await inbox.facts(each, signal);
      if (own === undefined || facts === undefined || own.metadata !== facts.metadata) return undefined;
      const isSame = each.etag === upload.etag || (own.checksum !== undefined && own.checksum === facts.checksum);
      if (!isSame) return undefined;
      const stored = await ledger.read(each.id, signal);
      // Without an entry, it may be a copy itself, of the one before it.
      if (stored !== undefined) return stored.entry;
    }
  }
  return undefined;
}

/** Without versions, the object before is gone. Its ETag is part of its upload id, and its entry has what was sent. */
async function unversionedBefore(
  upload: Upload,
  ports: CopyPorts,
  signal: AbortSignal,
  known?: string,
): Promise<Entry | undefined> {
  const { inbox, ledger, receipts, settings } = ports;
  const isSame = (id: string) => id !== upload.id && hashIn(id) === hashIn(upload.id);
  const told = await receipts.uploadAt(upload.key, signal);
  // One that is under way has no receipt yet. But it must be newer than the one that has it: that may have had another
  // content.
  const isNewer = (id: string) => told === undefined || secondsIn(id) > secondsIn(told);
  const underWay = await findEntry(ledger, upload.lastModified, (id) => isSame(id) && isNewer(id), signal);
  // Among very many entries, the search does not get to the one that asks.
  const asking = known !== undefined && isSame(known) && isNewer(known) ? known : told;
  const stored = underWay ?? (asking !== undefined && isSame(asking) ? await ledger.read(asking, signal) : undefined);
  if (stored === undefined) {
    // Versioning may have been suspended since. An upload in between would have the receipt.
    const before = await versionBefore(upload, ports, signal);
    return told === undefined || told === before?.upload.id ? before : undefined;
  }
  if (stored.entry.upload.bytes !== upload.bytes) return undefined;
  const route = routeFor(settings.routes, upload);
  // Only a route with overrides reads the metadata.
  if (route?.overrides !== true) return stored.entry;
  const facts = await inbox.facts(upload, signal);
  return facts?.metadata === (stored.entry.route.metadata ?? NO_METADATA) ? stored.entry : undefined;
}

/**
 * The entry of an upload whose object is gone, by what its message says. Its id begins with the time of LastModified,
 * which nobody tells any more: a second before the message as a rule, hours before it for a multipart upload. The rest of
 * the id follows from the message.
 */
export function entryOfGone(
  { bucket, key, versionId, etag = '' }: Pick<Upload, 'bucket' | 'key'> & Partial<Pick<Upload, 'versionId' | 'etag'>>,
  announcedAt: number,
  ledger: CopyPorts['ledger'],
  signal: AbortSignal,
): Promise<Stored | undefined> {
  const hash = hashIn(uploadId({ bucket, key, versionId, etag, lastModified: announcedAt }));
  return findEntry(ledger, announcedAt, (id) => hashIn(id) === hash, signal);
}

/** The newest entry of an upload from before that time whose id is sought. */
async function findEntry(
  ledger: CopyPorts['ledger'],
  until: number,
  isSought: (id: string) => boolean,
  signal: AbortSignal,
): Promise<Stored | undefined> {
  const end = secondDigits(until);
  for (const reachMs of REACHES_MS) {
    let pages = 0;
    let found: string | undefined;
    for await (const { entries } of ledger.entryPages(secondDigits(until - reachMs), signal)) {
      const before = entries.filter(({ id }) => secondsIn(id) <= end);
      found = before.findLast(({ id }) => isSought(id))?.id ?? found;
      pages += 1;
      if (pages >= PAGES_MAX || before.length < entries.length) break;
    }
    if (found !== undefined) return ledger.read(found, signal);
  }
  return undefined;
}

/** Tells whether an input still has the content that it had before: the same size, and the same ETag or checksum. */
export async function isSameContent(
  input: Input,
  before: Input,
  { inbox }: Pick<CopyPorts, 'inbox'>,
  signal: AbortSignal,
): Promise<boolean> {
  if (input.bytes !== before.bytes) return false;
  if (input.etag === before.etag) return true;
  // Without versions, what was there before is gone.
  if (before.versionId === undefined) return false;
  const own = await inbox.facts(input, signal);
  return own?.checksum !== undefined && own.checksum === (await inbox.facts(before, signal))?.checksum;
}

/** Says of a copy why nothing is sent of it. */
export const copyWords = ({ upload, state }: Entry): string =>
  `A copy with the same content and the same metadata for Flowdrop as upload ${upload.id}, which ${
    state === 'succeeded' ? 'succeeded' : state === 'failed' ? 'failed later' : 'is under way'
  }: nothing is sent of it. To have it sent, put the file again, or retry that upload.`;
