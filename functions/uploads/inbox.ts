import { Readable } from 'node:stream';
import { GetObjectCommand, HeadObjectCommand, ListObjectVersionsCommand, type S3Client } from '@aws-sdk/client-s3';
import type { Clock } from '../base/clock.ts';
import { collectYoungGarbage } from '../base/young-generation.ts';
import type { InputSource } from '../flow-service/types.ts';
import { isAbsent, isArchived, isPreconditionFailed } from '../s3/errors.ts';
import { mediaTypeOf } from './routes.ts';
import { pinnedVersion, type Upload, unquoted, uploadId } from './upload.ts';

/** Files of more than this leave more garbage behind than a young generation holds, in bytes. */
const LARGE_BYTES_MIN = 5 * 1024 * 1024;

/**
 * How long the answer that opened an upload may stay unread, in milliseconds. A request to the service may have to wait
 * for its turn for minutes, and S3 closes a connection that is idle for long, without saying when. (Amazon S3 API
 * Reference, "Error responses": RequestTimeout.)
 */
const UNREAD_MAX_MS = 10_000;

/** The object, or that version of it, is not there any more. A newer upload at its key has an event of its own. */
export class UploadGoneError extends Error {
  override readonly name = 'UploadGoneError';
}

/** The object is there and its bytes could not be read: S3 failed, or the stream broke. Worth another try. */
export class UploadUnreadableError extends Error {
  override readonly name = 'UploadUnreadableError';
}

/** What names an upload before it was read. */
export type UploadReference = Pick<Upload, 'bucket' | 'key'> & Partial<Pick<Upload, 'versionId' | 'etag' | 'id'>>;

/** An upload that was opened: what it is, and its bytes, not read yet. */
export interface OpenedUpload {
  readonly upload: Upload;
  /** Whether its bytes cannot be had: what it is can be told all the same. */
  readonly isArchived: boolean;
  /** User metadata, its names in lower case. */
  readonly metadata: Readonly<Record<string, string>>;
  readonly source: InputSource;
  /** Lets go of whatever was opened and not read to its end. */
  discard(): void;
}

/** An upload as a listing tells of it: its media type is not known. */
export type ListedUpload = Omit<Upload, 'mediaType'> & {
  /** Whether this is what its key stands for now. */
  readonly isCurrent: boolean;
};

/** One answer of a listing, and where the next one goes on. */
export interface UploadPage {
  readonly uploads: readonly ListedUpload[];
  readonly last: VersionMarker | undefined;
}

interface VersionMarker {
  readonly key: string;
  readonly versionId: string;
}

/** Where the settings of today say that the inbox is. */
export interface InboxPlace {
  readonly inboxBucket: string;
  readonly inboxPrefix: string;
}

/** Whether an upload lies in that inbox. A deployment may have replaced the one that it was put into. */
export const isInside = (
  { inboxBucket, inboxPrefix }: InboxPlace,
  { bucket, key }: Pick<Upload, 'bucket' | 'key'>,
): boolean => bucket === inboxBucket && key.startsWith(inboxPrefix);

/** The inbox as both functions see it: one upload at a time, at exactly one version. */
export class Inbox {
  readonly #s3: S3Client;
  readonly #clock: Clock;

  constructor(s3: S3Client, clock: Clock) {
    this.#s3 = s3;
    this.#clock = clock;
  }

  /**
   * Opens exactly the version that is named: by its version id, else by its ETag.
   * @throws {UploadGoneError} it was replaced or deleted.
   * @throws {UploadUnreadableError} S3 did not give it.
   */
  async open(reference: UploadReference, signal: AbortSignal): Promise<OpenedUpload> {
    const first = await this.#get(reference, signal);
    const { upload } = first;
    if (reference.id !== undefined && reference.id !== upload.id) {
      first.body.destroy();
      throw new UploadGoneError(`${reference.bucket}/${reference.key} was put again with the same content`);
    }
    if (upload.bytes > LARGE_BYTES_MIN) collectYoungGarbage();
    const freshUntil = this.#clock.now() + UNREAD_MAX_MS;
    let unread: Readable | undefined = first.body;
    const opened = [first.body];
    const open = async (again: AbortSignal): Promise<AsyncIterable<Uint8Array>> => {
      let body = unread;
      unread = undefined;
      // A connection that broke while nothing was read from it is no fault of the file.
      if (body === undefined || body.destroyed || this.#clock.now() >= freshUntil) {
        body?.destroy();
        body = (await this.#get(upload, again)).body;
        opened.push(body);
      }
      return whileAlive(body, again);
    };
    const discard = (): void => {
      for (const body of opened) body.destroy();
    };
    const { metadata, isArchived } = first;
    return { upload, isArchived, metadata, source: { bytes: upload.bytes, open }, discard };
  }

  /** The upload that is current at a key; undefined if there is none. */
  async current(bucket: string, key: string, signal: AbortSignal): Promise<Upload | undefined> {
    try {
      const head = await this.#s3.send(new HeadObjectCommand({ Bucket: bucket, Key: key }), { abortSignal: signal });
      return uploadFrom({ bucket, key }, head);
    } catch (error) {
      if (isAbsent(error)) return undefined;
      throw error;
    }
  }

  /** All uploads below a prefix, in the order of their keys, from after `after` on. */
  async *pages(
    bucket: string,
    prefix: string,
    after: VersionMarker | undefined,
    signal: AbortSignal,
  ): AsyncGenerator<UploadPage> {
    let from = after;
    do {
      const answer = await this.#s3.send(
        new ListObjectVersionsCommand({
          Bucket: bucket,
          Prefix: prefix,
          KeyMarker: from?.key,
          VersionIdMarker: from?.versionId || undefined, // S3 refuses an empty one.
        }),
        { abortSignal: signal },
      );
      const uploads = (answer.Versions ?? []).map(
        ({ Key: key = '', VersionId, ETag, Size, LastModified, IsLatest }) => {
          const facts = {
            bucket,
            key,
            versionId: pinnedVersion(VersionId),
            etag: unquoted(ETag ?? ''),
            bytes: Size ?? 0,
            lastModified: LastModified?.getTime() ?? 0,
          };
          return { id: uploadId(facts), ...facts, isCurrent: IsLatest === true };
        },
      );
      const { NextKeyMarker: key, NextVersionIdMarker: versionId = '' } = answer;
      from = answer.IsTruncated === true && key !== undefined ? { key, versionId } : undefined;
      yield { uploads, last: from };
    } while (from !== undefined);
  }

  async #get(reference: UploadReference, signal: AbortSignal) {
    let gone: UploadGoneError | undefined;
    for (const pin of pinsOf(reference)) {
      try {
        return await this.#getPinned(reference, pin, signal);
      } catch (error) {
        if (!(error instanceof UploadGoneError)) throw error;
        gone = error;
      }
    }
    throw gone;
  }

  async #getPinned(reference: UploadReference, pin: Pin, signal: AbortSignal) {
    const pinned = { Bucket: reference.bucket, Key: reference.key, ...pin };
    try {
      const answer = await this.#s3.send(new GetObjectCommand(pinned), { abortSignal: signal });
      const body = answer.Body as Readable;
      // A stream that nobody reads yet may fail before anybody listens; whoever reads it later still sees the error.
      body.on('error', () => {});
      return { upload: uploadFrom(reference, answer), metadata: answer.Metadata ?? {}, body, isArchived: false };
    } catch (error) {
      signal.throwIfAborted();
      if (isArchived(error)) {
        const head = await this.#s3.send(new HeadObjectCommand(pinned), { abortSignal: signal });
        const upload = uploadFrom(reference, head);
        return { upload, metadata: head.Metadata ?? {}, body: Readable.from([]), isArchived: true };
      }
      const name = `${reference.bucket}/${reference.key}`;
      if (isAbsent(error) || isPreconditionFailed(error)) {
        throw new UploadGoneError(`${name} was replaced or deleted`, { cause: error });
      }
      throw new UploadUnreadableError(`${name} could not be opened`, { cause: error });
    }
  }
}

interface Pin {
  readonly VersionId?: string;
  readonly IfMatch?: string;
}

/**
 * What pins an upload, in the order of trying. One without a version id may be the null version of its key: it stays as
 * it is, behind newer ones or a delete marker, once versioning is switched on again.
 */
function pinsOf({ versionId, etag }: UploadReference): readonly Pin[] {
  const pinned = pinnedVersion(versionId);
  if (pinned !== undefined) return [{ VersionId: pinned }];
  if (etag === undefined) return [{}];
  const IfMatch = `"${etag}"`;
  return [{ IfMatch }, { IfMatch, VersionId: 'null' }];
}

interface ObjectFacts {
  readonly VersionId?: string | undefined;
  readonly ETag?: string | undefined;
  readonly ContentLength?: number | undefined;
  readonly LastModified?: Date | undefined;
  readonly ContentType?: string | undefined;
}

function uploadFrom({ bucket, key }: Pick<Upload, 'bucket' | 'key'>, facts: ObjectFacts): Upload {
  const upload = {
    bucket,
    key,
    versionId: pinnedVersion(facts.VersionId),
    etag: unquoted(facts.ETag ?? ''),
    bytes: facts.ContentLength ?? 0,
    lastModified: facts.LastModified?.getTime() ?? 0,
    mediaType: mediaTypeOf(facts.ContentType, key),
  };
  return { id: uploadId(upload), ...upload };
}

/** The stream's chunks; the stream is destroyed when the signal aborts, and when the loop over it is left. */
async function* whileAlive(body: Readable, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  const destroy = (): void => {
    body.destroy(signal.reason);
  };
  if (signal.aborted) destroy();
  signal.addEventListener('abort', destroy);
  try {
    yield* body;
  } catch (cause) {
    signal.throwIfAborted();
    throw new UploadUnreadableError('The upload could not be read to its end', { cause });
  } finally {
    signal.removeEventListener('abort', destroy);
    body.destroy();
  }
}
