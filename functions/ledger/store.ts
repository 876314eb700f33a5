import {
  type _Object,
  DeleteObjectCommand,
  GetObjectCommand,
  ListObjectsV2Command,
  type ListObjectsV2CommandInput,
  PutObjectCommand,
  type S3Client,
} from '@aws-sdk/client-s3';
import type * as z from 'zod/mini';
import { shorten } from '../base/printable.ts';
import { issuesTold } from '../base/validation.ts';
import { PUT_TOGETHER_MS } from '../flow-service/flow-search.ts';
import { CONFLICT_TRIES_MAX, ifThere, isConditionUnmet, isConflict, pastConflicts } from '../s3/errors.ts';
import { secondDigits, uploadId } from '../uploads/upload.ts';
import { type Entry, isTerminal } from './entry.ts';
import { entrySchema, LEDGER_FORMAT } from './entry-schema.ts';
import {
  entryKey,
  type FailedMarker,
  failedKey,
  LINE_PREFIX,
  parseEntryKey,
  parseRunningKey,
  parseWaitingKey,
  RUNNING_PREFIX,
  type RunningMarker,
  runningKey,
  UPLOADS_PREFIX,
  WAITING_PREFIX,
  type WaitingMarker,
  waitingDueKey,
  waitingKey,
} from './keys.ts';

/**
 * An entry as it was read or written, and its ETag. A conditional write needs the ETag to replace exactly this entry.
 */
export interface Stored<E extends Entry = Entry> {
  readonly entry: E;
  readonly etag: string;
  /** When it was written, by S3's clock, in milliseconds since the epoch. Undefined if it was not read. */
  readonly writtenAt?: number | undefined;
}

/** The result of a conditional write. If ours lost, `current` is the entry that is there; undefined if none is. */
type Written<E extends Entry> =
  | { readonly won: true; readonly stored: Stored<E> }
  | { readonly won: false; readonly current: Stored | undefined };

/** This version cannot read an object of the ledger: another version wrote it, or it is damaged. */
export class UnreadableEntryError extends Error {
  override readonly name = 'UnreadableEntryError';
}

/** Another version wrote the object. Its message is whole sentences, which say what to do. */
export class OtherFormatError extends UnreadableEntryError {}

/** True if an object can never be read again: another version of Flowdrop can read what it wrote. */
export const isDamaged = (error: unknown): error is UnreadableEntryError =>
  isUnreadable(error) && !(error instanceof OtherFormatError);

const isUnreadable = (error: unknown): error is UnreadableEntryError => error instanceof UnreadableEntryError;

/**
 * Awaits a read of the ledger. If the object cannot be read, returns what `instead` makes of the error.
 * @param isMeant which errors are replaced. Default: every {@link UnreadableEntryError}.
 * @throws any other error.
 */
export async function readableOr<T, U>(
  reading: Promise<T>,
  instead: (error: UnreadableEntryError) => U,
  isMeant = isUnreadable,
): Promise<T | U> {
  try {
    return await reading;
  } catch (error) {
    if (isMeant(error)) return instead(error);
    throw error;
  }
}

/**
 * Refuses an object of the ledger that has another format, older or newer.
 * @param value the object, from its JSON.
 * @param consequence what does not happen as long as it is there.
 * @throws {OtherFormatError}
 */
export function demandFormat(key: string, value: unknown, consequence: string): void {
  const { schema } = Object(value);
  if (typeof schema !== 'number' || schema === LEDGER_FORMAT) return;
  const [age, todo] =
    schema > LEDGER_FORMAT
      ? ['a newer', 'Deploy that version again.']
      : ['an older', 'Deploy that version until its uploads have ended. Then begin this one with an empty ledger.'];
  const what = `${key} has format ${schema} of the ledger: ${age} version of Flowdrop wrote it.`;
  const known = `This version reads format ${LEDGER_FORMAT}, and leaves the object as it is.`;
  throw new OtherFormatError(`${what} ${known} ${todo} Until then, ${consequence}.`);
}

/** Other writers won every try of a conditional write, or S3 answered each with 409. The next attempt makes it. */
export class ContendedError extends Error {
  override readonly name = 'ContendedError';
}

/** Maximum number of entries that are read to find a flow. A ledger with more entries is taken to have had one. */
export const FLOW_ENTRIES_READ_MAX = 20;

/**
 * The ledger: entries and markers in one bucket. Entries change only by conditional writes.
 *
 *   claim            put the entry
 *   flow was made    replace the entry, then put the running marker
 *   end              replace the entry; send receipt and event; put the failed marker of a failure; then delete the
 *                    running marker
 *
 * So a running marker never exists without its entry. A waiting marker may: it is put before the entry of an old file.
 * If an entry lacks its marker, the next delivery or sweep puts it.
 *
 * Every write of an entry carries a nonce. If S3 answers 412, the entry is read back. If it holds our nonce, our write
 * had succeeded and only its answer was lost.
 */
export class Ledger {
  readonly #s3: S3Client;
  readonly #bucket: string;
  readonly #nonce: () => string;

  constructor(s3: S3Client, bucket: string, nonce: () => string) {
    this.#s3 = s3;
    this.#bucket = bucket;
    this.#nonce = nonce;
  }

  /** @throws {UnreadableEntryError} */
  async read(uploadId: string, signal: AbortSignal): Promise<Stored | undefined> {
    return (await this.#readBack(uploadId, signal))?.stored;
  }

  /** Puts an upload's first entry. Loses if there is one already. */
  create<E extends Entry>(entry: E, signal: AbortSignal): Promise<Written<E>> {
    return this.#write(entry, { IfNoneMatch: '*' }, signal);
  }

  /** Replaces exactly the previous entry. Loses if another one is there by now. */
  replace<E extends Entry>(previous: Stored, entry: E, signal: AbortSignal): Promise<Written<E>> {
    return this.#write(entry, { IfMatch: previous.etag }, signal);
  }

  putRunningMarker(marker: RunningMarker, signal: AbortSignal): Promise<void> {
    return this.#putMarker(runningKey(marker), signal);
  }

  hasRunningMarker(marker: RunningMarker, signal: AbortSignal): Promise<boolean> {
    return this.#hasKey(runningKey(marker), signal);
  }

  putWaitingMarker(marker: WaitingMarker, signal: AbortSignal): Promise<void> {
    return this.#putMarker(waitingKey(marker), signal);
  }

  deleteRunningMarker(marker: RunningMarker, signal: AbortSignal): Promise<void> {
    return this.#deleteMarker(runningKey(marker), signal);
  }

  deleteWaitingMarker(marker: WaitingMarker, signal: AbortSignal): Promise<void> {
    return this.#deleteMarker(waitingKey(marker), signal);
  }

  putFailedMarker(marker: FailedMarker, signal: AbortSignal): Promise<void> {
    return this.#putMarker(failedKey(marker), signal);
  }

  hasFailedMarker(marker: FailedMarker, signal: AbortSignal): Promise<boolean> {
    return this.#hasKey(failedKey(marker), signal);
  }

  deleteFailedMarker(marker: FailedMarker, signal: AbortSignal): Promise<void> {
    return this.#deleteMarker(failedKey(marker), signal);
  }

  /** The markers of all running flows, the greatest age first. */
  async *runningMarkers(signal: AbortSignal): AsyncGenerator<RunningMarker> {
    for await (const { objects } of this.#pages(RUNNING_PREFIX, signal)) {
      yield* objects.flatMap(({ Key = '' }) => parseRunningKey(Key) ?? []);
    }
  }

  /**
   * What waits at `now`: up to `max` markers of wanted uploads that are due, earliest due first, and whether uploads wait
   * in the line. The line sorts last, so the listing of the due ones mostly shows it too.
   */
  async waitingAt(
    now: number,
    { max, isWanted }: { readonly max: number; readonly isWanted: (uploadId: string) => boolean },
    signal: AbortSignal,
  ): Promise<{ readonly due: WaitingMarker[]; readonly isLine: boolean }> {
    const last = waitingDueKey(now);
    const due: WaitingMarker[] = [];
    for await (const { objects, isLast } of this.#pages(WAITING_PREFIX, signal)) {
      for (const { Key = '' } of objects) {
        const marker = Key > last || due.length === max ? undefined : parseWaitingKey(Key);
        if (marker !== undefined && isWanted(marker.uploadId)) due.push(marker);
      }
      const end = objects.at(-1)?.Key ?? '';
      if (isLast || end >= LINE_PREFIX) return { due, isLine: end >= LINE_PREFIX };
      if (end > last || due.length === max) break;
    }
    return { due, isLine: await this.#hasKey(LINE_PREFIX, signal) };
  }

  /** The ids of all uploads that wait, by pages. Begins after the key `after`. */
  async *waitingPages(after: string | undefined, signal: AbortSignal): AsyncGenerator<WaitingPage> {
    for await (const { objects } of this.#pages(WAITING_PREFIX, signal, { StartAfter: after })) {
      yield { ids: objects.flatMap(({ Key = '' }) => parseWaitingKey(Key)?.uploadId ?? []), last: objects.at(-1)?.Key };
    }
  }

  /**
   * The folders directly below a prefix of the line, in their order, after the folder `after`.
   * @returns `max` at most, and whether there are more.
   */
  async foldersBelow(
    prefix: string,
    { after, max }: { readonly after?: string | undefined; readonly max: number },
    signal: AbortSignal,
  ): Promise<{ readonly folders: readonly string[]; readonly isTruncated: boolean }> {
    // The slash sorts before `0`. So this is after all keys of the folder, and before the next one.
    const StartAfter = after === undefined ? undefined : `${prefix}${after}0`;
    const { CommonPrefixes = [], IsTruncated = false } = await this.#list(
      { Prefix: prefix, Delimiter: '/', StartAfter, MaxKeys: max },
      signal,
    );
    const folders = CommonPrefixes.flatMap(({ Prefix = '' }) => Prefix.slice(prefix.length, -1) || []);
    return { folders, isTruncated: IsTruncated };
  }

  /** The markers below a prefix of the line, in their order, by pages of `max`. Begins after the key `after`. */
  async *markersInLine(
    prefix: string,
    max: number,
    signal: AbortSignal,
    after?: string,
  ): AsyncGenerator<readonly WaitingMarker[]> {
    for await (const { objects } of this.#pages(prefix, signal, { MaxKeys: max, StartAfter: after })) {
      yield objects.flatMap(({ Key = '' }) => parseWaitingKey(Key) ?? []);
    }
  }

  /** The upload ids of all entries, earliest upload first. Begins after the upload id `after`, or its first digits. */
  async *entryPages(after: string | undefined, signal: AbortSignal): AsyncGenerator<EntryPage> {
    const startAfter = after === undefined ? undefined : entryKey(after);
    for await (const { objects } of this.#pages(UPLOADS_PREFIX, signal, { StartAfter: startAfter })) {
      const entries = objects.flatMap(({ Key = '', LastModified }) => {
        const uploadId = parseEntryKey(Key);
        return uploadId === undefined ? [] : [{ id: uploadId, lastModified: LastModified?.getTime() ?? 0 }];
      });
      yield { entries, last: entries.at(-1)?.id ?? after };
    }
  }

  /**
   * True if any upload had a flow before the time `before`. A ledger with many entries is taken to have had one, and so
   * is an entry that cannot be read. Otherwise one damaged entry would keep all other uploads in doubt for ever.
   */
  async hadFlowBefore(before: number, signal: AbortSignal): Promise<boolean> {
    let count = 0;
    // S3 may end a page early, so the first one may lack the upload that had a flow.
    for await (const { entries } of this.entryPages(undefined, signal)) {
      count += entries.length;
      if (count > FLOW_ENTRIES_READ_MAX) return true;
      const answers = await Promise.all(entries.map(({ id }) => this.#mayHaveHadFlow(id, before, signal)));
      if (answers.includes(true)) return true;
    }
    return false;
  }

  #mayHaveHadFlow(uploadId: string, before: number, signal: AbortSignal): Promise<boolean> {
    const hadFlow = (entry: Entry): boolean =>
      // As a rule, a later generation follows a flow that failed.
      entry.generation > 1 || ('flow' in entry && (entry.flow?.createdAt ?? before) < before);
    const reading = this.read(uploadId, signal).then((stored) => stored !== undefined && hadFlow(stored.entry));
    return readableOr(reading, () => true);
  }

  /**
   * The ids of flows that were made between two times, and that the service should still know: those of uploads that run or
   * have succeeded. Only the {@link FLOW_ENTRIES_READ_MAX} files that were put next to the earlier time are looked at.
   */
  async flowsMade(
    { since, before }: { readonly since: number; readonly before: number },
    signal: AbortSignal,
  ): Promise<readonly string[]> {
    const from = since - PUT_TOGETHER_MS;
    for await (const { entries } of this.entryPages(secondDigits(from), signal)) {
      const middle = entries.filter(({ id }) => id < secondDigits(since)).length;
      const half = FLOW_ENTRIES_READ_MAX / 2;
      const near = entries.slice(Math.max(0, middle - half), middle + half);
      const read = await Promise.all(near.map(({ id }) => readableOr(this.read(id, signal), () => undefined)));
      return read.flatMap((stored) => {
        const { entry } = stored ?? {};
        if (entry?.state !== 'running' && entry?.state !== 'succeeded') return [];
        const { flow, arrivedAt } = entry;
        const isDeleted = isTerminal(entry) && entry.flowDeletion !== undefined;
        // A flow that was found by a search is older than the entry says, and never older than the message.
        const isMade = flow !== undefined && arrivedAt >= from && flow.createdAt <= before;
        return isMade && !isDeleted ? [flow.id] : [];
      });
    }
    return [];
  }

  async #write<E extends Entry>(
    entry: E,
    condition: { IfNoneMatch: '*' } | { IfMatch: string },
    signal: AbortSignal,
  ): Promise<Written<E>> {
    const nonce = this.#nonce();
    const put = new PutObjectCommand({
      Bucket: this.#bucket,
      Key: entryKey(entry.upload.id),
      Body: JSON.stringify({ ...entry, nonce }),
      ContentType: 'application/json',
      ...condition,
    });
    try {
      const { ETag } = await pastConflicts(() => this.#s3.send(put, { abortSignal: signal }));
      return { won: true, stored: { entry, etag: ETag as string } };
    } catch (cause) {
      if (isConflict(cause)) {
        const what = `S3 answered 409 ${CONFLICT_TRIES_MAX} times to a write of ${entryKey(entry.upload.id)}`;
        throw new ContendedError(what, { cause });
      }
      if (!isConditionUnmet(cause)) throw cause;
      const current = await this.#readBack(entry.upload.id, signal);
      if (current?.nonce === nonce) return { won: true, stored: { entry, etag: current.stored.etag } };
      return { won: false, current: current?.stored };
    }
  }

  async #readBack(
    uploadId: string,
    signal: AbortSignal,
  ): Promise<{ readonly stored: Stored; readonly nonce: unknown } | undefined> {
    const key = entryKey(uploadId);
    const get = new GetObjectCommand({ Bucket: this.#bucket, Key: key });
    const answer = await ifThere(this.#s3.send(get, { abortSignal: signal }));
    if (answer === undefined) return undefined;
    const { entry, nonce } = parsedEntry(key, (await answer.Body?.transformToString()) ?? '');
    return { stored: { entry, etag: answer.ETag as string, writtenAt: answer.LastModified?.getTime() }, nonce };
  }

  /** True if a key begins so. It is a listing, because a HEAD would need the permission to read. */
  async #hasKey(prefix: string, signal: AbortSignal): Promise<boolean> {
    for await (const { objects } of this.#pages(prefix, signal, { MaxKeys: 1 })) if (objects.length > 0) return true;
    return false;
  }

  async #putMarker(key: string, signal: AbortSignal): Promise<void> {
    await this.#s3.send(new PutObjectCommand({ Bucket: this.#bucket, Key: key, Body: new Uint8Array() }), {
      abortSignal: signal,
    });
  }

  async #deleteMarker(key: string, signal: AbortSignal): Promise<void> {
    await this.#s3.send(new DeleteObjectCommand({ Bucket: this.#bucket, Key: key }), { abortSignal: signal });
  }

  async *#pages(
    Prefix: string,
    signal: AbortSignal,
    options: Pick<ListObjectsV2CommandInput, 'StartAfter' | 'MaxKeys'> = {},
  ): AsyncGenerator<{ readonly objects: readonly _Object[]; readonly isLast: boolean }> {
    let ContinuationToken: string | undefined;
    do {
      const { Contents: objects = [], NextContinuationToken } = await this.#list(
        { Prefix, ContinuationToken, ...options },
        signal,
      );
      ContinuationToken = NextContinuationToken;
      yield { objects, isLast: ContinuationToken === undefined };
    } while (ContinuationToken !== undefined);
  }

  #list(options: Omit<ListObjectsV2CommandInput, 'Bucket'>, abortSignal: AbortSignal) {
    return this.#s3.send(new ListObjectsV2Command({ Bucket: this.#bucket, ...options }), { abortSignal });
  }
}

/** One page of a listing of waiting markers. */
interface WaitingPage {
  readonly ids: readonly string[];
  /** The next page begins after this key. Undefined if the page is empty. */
  readonly last: string | undefined;
}

/** One page of a listing of entries. */
interface EntryPage {
  readonly entries: readonly { readonly id: string; readonly lastModified: number }[];
  /** The next page begins after this upload id. */
  readonly last: string | undefined;
}

/**
 * Reads an object of the ledger.
 * @param consequence what does not happen as long as the object is there and cannot be read.
 * @returns the object, and its JSON with all members.
 * @throws {UnreadableEntryError}
 */
export function parsedObject<T>(
  key: string,
  text: string,
  schema: z.ZodMiniType<T>,
  consequence: string,
): { readonly object: T; readonly json: unknown } {
  const unreadable = (what: string, cause?: unknown): UnreadableEntryError =>
    new UnreadableEntryError(`${key} is ${what}. Until it is mended, ${consequence}.`, { cause });
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (cause) {
    throw unreadable(`not JSON: ${shorten(text, 100)}`, cause);
  }
  demandFormat(key, json, consequence);
  const { success, data: object, error } = schema.safeParse(json);
  if (success) return { object, json };
  throw unreadable(`damaged: ${issuesTold(error, 'the whole')}`);
}

/** @throws {UnreadableEntryError} */
function parsedEntry(key: string, text: string): { readonly entry: Entry; readonly nonce: unknown } {
  const { object: entry, json } = parsedObject<Entry>(key, text, entrySchema, 'its upload does not go on');
  // Otherwise it would be written back to the key of another upload.
  if (entryKey(entry.upload.id) !== key) {
    throw new UnreadableEntryError(`${key} holds the entry of upload ${entry.upload.id}`);
  }
  // The id holds a hash of the bucket, the key and the version. So an entry cannot be turned to another object.
  if (uploadId(entry.upload) !== entry.upload.id) {
    const { bucket, key: objectKey } = entry.upload;
    throw new UnreadableEntryError(`${key} names an object that is not its upload: ${bucket}/${objectKey}`);
  }
  return { entry, nonce: Object(json).nonce };
}
