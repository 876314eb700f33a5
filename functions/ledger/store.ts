import {
  type _Object,
  DeleteObjectCommand,
  GetObjectCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  type S3Client,
} from '@aws-sdk/client-s3';
import { isAbsent, isConflict, isPreconditionFailed } from '../s3/errors.ts';
import { ENTRY_SCHEMA, type Entry } from './entry.ts';
import { entrySchema } from './entry-schema.ts';
import {
  entryKey,
  parseEntryKey,
  parseRunningKey,
  parseWaitingKey,
  RUNNING_PREFIX,
  type RunningMarker,
  runningKey,
  THROTTLED_PREFIX,
  UPLOADS_PREFIX,
  WAITING_PREFIX,
  type WaitingMarker,
  waitingDueKey,
  waitingKey,
} from './keys.ts';

/** An entry as it was read or written, with what a conditional write needs to replace exactly it. */
export interface Stored<E extends Entry = Entry> {
  readonly entry: E;
  readonly etag: string;
}

/** How a conditional write ended: ours is there, or somebody else's is (`undefined`: nothing is). */
export type Written<E extends Entry> =
  | { readonly won: true; readonly stored: Stored<E> }
  | { readonly won: false; readonly current: Stored | undefined };

/** An entry that this version of the code cannot read: written by a newer one, or not by us. */
export class UnreadableEntryError extends Error {
  override readonly name = 'UnreadableEntryError';
}

/** S3 went on answering 409 to a conditional write. The write did not happen. */
export class LedgerContendedError extends Error {
  override readonly name = 'LedgerContendedError';
}

/** How often a conditional write is done again after S3 answered 409. */
const CONFLICT_TRIES_MAX = 10;

/** Entries that are read to find out whether any upload had a flow. With more of them one has. */
const FLOW_ENTRIES_READ_MAX = 20;

/**
 * The ledger: entries and markers in one bucket, changed only by conditional writes.
 *
 * What exists when: a claim puts the entry; once the service has answered, the entry is replaced and then the running
 * marker is put; at the end the entry is replaced, and after receipt and event are out the marker is deleted. So a
 * marker without its entry never exists, and an entry without its marker is repaired by the next delivery or sweep.
 *
 * Every write of an entry carries a nonce. Where S3 answers 412 the entry is read back: our own nonce in it means that
 * the write had succeeded and only its answer was lost.
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

  /** Puts an upload's first entry, if it has none. */
  create<E extends Entry>(entry: E, signal: AbortSignal): Promise<Written<E>> {
    return this.#write(entry, { IfNoneMatch: '*' }, signal);
  }

  /** Replaces exactly the entry that was read or written before. */
  replace<E extends Entry>(previous: Stored, entry: E, signal: AbortSignal): Promise<Written<E>> {
    return this.#write(entry, { IfMatch: previous.etag }, signal);
  }

  putRunningMarker(marker: RunningMarker, signal: AbortSignal): Promise<void> {
    return this.#putMarker(runningKey(marker), signal);
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

  /** The markers of all running flows, oldest flow first. */
  async *runningMarkers(signal: AbortSignal): AsyncGenerator<RunningMarker> {
    for await (const key of this.#keys(RUNNING_PREFIX, signal)) {
      const marker = parseRunningKey(key);
      if (marker !== undefined) yield marker;
    }
  }

  /** The markers of all uploads that wait and are due at `now`, longest due first. */
  async *waitingMarkersDue(now: number, signal: AbortSignal): AsyncGenerator<WaitingMarker> {
    const last = waitingDueKey(now);
    for await (const key of this.#keys(WAITING_PREFIX, signal)) {
      if (key > last) return;
      const marker = parseWaitingKey(key);
      if (marker !== undefined) yield marker;
    }
  }

  /** The markers of uploads that wait because the service is throttling, longest waiting first, and when each was put. */
  async *throttledMarkers(signal: AbortSignal): AsyncGenerator<WaitingMarker & { readonly putAt: number }> {
    for await (const objects of this.#pages(THROTTLED_PREFIX, signal)) {
      for (const { Key = '', LastModified } of objects) {
        const marker = parseWaitingKey(Key);
        if (marker !== undefined) yield { ...marker, putAt: LastModified?.getTime() ?? 0 };
      }
    }
  }

  /** All entries by their upload ids, in the order of these, from after `after` on. */
  async *entryPages(after: string | undefined, signal: AbortSignal): AsyncGenerator<EntryPage> {
    const startAfter = after === undefined ? undefined : entryKey(after);
    for await (const objects of this.#pages(UPLOADS_PREFIX, signal, startAfter)) {
      const entries = objects.flatMap(({ Key = '', LastModified }) => {
        const uploadId = parseEntryKey(Key);
        return uploadId === undefined ? [] : [{ id: uploadId, lastModified: LastModified?.getTime() ?? 0 }];
      });
      yield { entries, last: entries.at(-1)?.id ?? after };
    }
  }

  /** Whether any upload had a flow before a time. A ledger with many entries is taken to have had one. */
  async hasFlowFrom(before: number, signal: AbortSignal): Promise<boolean> {
    for await (const { entries } of this.entryPages(undefined, signal)) {
      if (entries.length > FLOW_ENTRIES_READ_MAX) return true;
      const all = await Promise.all(entries.map(({ id }) => this.read(id, signal)));
      // A later generation follows a flow that failed, as a rule.
      const hadFlow = (entry: Entry | undefined): boolean =>
        entry !== undefined &&
        (entry.generation > 1 || ('flow' in entry && (entry.flow?.createdAt ?? before) < before));
      return all.some((stored) => hadFlow(stored?.entry));
    }
    return false;
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
    for (let tries = 1; ; tries += 1) {
      try {
        const { ETag } = await this.#s3.send(put, { abortSignal: signal });
        return { won: true, stored: { entry, etag: ETag as string } };
      } catch (error) {
        if (isConflict(error)) {
          if (tries < CONFLICT_TRIES_MAX) continue;
          throw new LedgerContendedError(`S3 answered 409 ${tries} times to a write of ${entryKey(entry.upload.id)}`, {
            cause: error,
          });
        }
        // 404 is S3's answer to If-Match where the entry is not there at all any more.
        if (!isPreconditionFailed(error) && !isAbsent(error)) throw error;
        const current = await this.#readBack(entry.upload.id, signal);
        if (current?.nonce === nonce) return { won: true, stored: { entry, etag: current.stored.etag } };
        return { won: false, current: current?.stored };
      }
    }
  }

  async #readBack(
    uploadId: string,
    signal: AbortSignal,
  ): Promise<{ readonly stored: Stored; readonly nonce: string } | undefined> {
    try {
      const key = entryKey(uploadId);
      const { Body, ETag } = await this.#s3.send(new GetObjectCommand({ Bucket: this.#bucket, Key: key }), {
        abortSignal: signal,
      });
      const text = (await Body?.transformToString()) ?? '';
      const { nonce, ...entry } = parsedEntry(key, text);
      return { stored: { entry, etag: ETag as string }, nonce };
    } catch (error) {
      if (isAbsent(error)) return undefined;
      throw error;
    }
  }

  async #putMarker(key: string, signal: AbortSignal): Promise<void> {
    await this.#s3.send(new PutObjectCommand({ Bucket: this.#bucket, Key: key, Body: new Uint8Array() }), {
      abortSignal: signal,
    });
  }

  async #deleteMarker(key: string, signal: AbortSignal): Promise<void> {
    await this.#s3.send(new DeleteObjectCommand({ Bucket: this.#bucket, Key: key }), { abortSignal: signal });
  }

  async *#keys(prefix: string, signal: AbortSignal): AsyncGenerator<string> {
    for await (const objects of this.#pages(prefix, signal)) {
      for (const { Key } of objects) if (Key !== undefined) yield Key;
    }
  }

  async *#pages(prefix: string, signal: AbortSignal, startAfter?: string): AsyncGenerator<readonly _Object[]> {
    let token: string | undefined;
    do {
      const page = await this.#s3.send(
        new ListObjectsV2Command({
          Bucket: this.#bucket,
          Prefix: prefix,
          StartAfter: startAfter,
          ContinuationToken: token,
        }),
        { abortSignal: signal },
      );
      yield page.Contents ?? [];
      token = page.NextContinuationToken;
    } while (token !== undefined);
  }
}

/** One answer of a listing of entries. */
export interface EntryPage {
  readonly entries: readonly { readonly id: string; readonly lastModified: number }[];
  /** Where the next one goes on. */
  readonly last: string | undefined;
}

function parsedEntry(key: string, text: string): Entry & { readonly nonce: string } {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new UnreadableEntryError(`${key} is not JSON: ${text.slice(0, 100)}`, { cause });
  }
  const schema = typeof value === 'object' && value !== null && 'schema' in value ? value.schema : undefined;
  if (typeof schema === 'number' && schema !== ENTRY_SCHEMA) {
    const remedy = `this version reads ${ENTRY_SCHEMA}: deploy the version that wrote it`;
    throw new UnreadableEntryError(`${key} has schema ${schema}, and ${remedy}`);
  }
  const { success, error } = entrySchema.safeParse(value);
  if (!success) {
    const issues = error.issues.map(({ path, message }) => `${path.join('.') || 'the whole'}: ${message}`);
    throw new UnreadableEntryError(`${key} is damaged: ${issues.join('; ')}`);
  }
  const entry = value as Entry & { readonly nonce: string };
  // It would be written back to the other's key.
  if (entryKey(entry.upload.id) !== key) throw new UnreadableEntryError(`${key} is that of ${entry.upload.id}`);
  return entry;
}
