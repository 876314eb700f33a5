import { addAbortSignal, Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import {
  GetObjectCommand,
  type GetObjectCommandOutput,
  HeadObjectCommand,
  type HeadObjectCommandOutput,
  PutObjectCommand,
  type S3Client,
} from '@aws-sdk/client-s3';
import { CLOCK_SKEW_MAX_MS, type Clock } from '../base/clock.ts';
import type { JsonObject } from '../base/json.ts';
import { codingsOf, mediaTypeOf } from '../base/media-type.ts';
import type { InputAddress, InputSource } from '../flow-service/types.ts';
import { isAbsent, isArchived, isDenied, isPreconditionFailed } from '../s3/errors.ts';
import { headObject, type ListedVersion, listVersions, presignedGet, type VersionMarker } from '../s3/objects.ts';
import type { Job } from './job.ts';
import { filesFor, folderOf, inputKey } from './job-keys.ts';
import type { OpenedInput, OpenedUpload } from './opened-upload.ts';
import { flowMetadata } from './route-snapshot.ts';
import { pinnedVersion, type Upload, unquoted, uploadId } from './upload.ts';
import {
  UploadArchivedError,
  UploadDeniedError,
  UploadEncodedError,
  UploadGoneError,
  UploadUnreadableError,
} from './upload-errors.ts';

/**
 * Time for which the answer that opened an upload may stay unread, in milliseconds. A request to the service may wait
 * for minutes before its turn. S3 closes a connection that is idle for long, and does not document after how long.
 * (Amazon S3 API Reference, "Error responses": RequestTimeout.)
 */
const UNREAD_MAX_MS = 10_000;

/**
 * Maximum number of pages that are listed to find one version of a key, of 1,000 versions each. S3 limits the versions
 * of a key nowhere.
 */
const VERSION_PAGES_MAX = 100;

/**
 * Maximum number of pages of a job's folder that are listed to find a file whose name is written in another form, of
 * 1,000 versions each.
 */
const FOLDER_PAGES_MAX = 10;

/** The facts that name an upload before it was opened. */
export type UploadReference = Pick<Upload, 'bucket' | 'key'> &
  Partial<Pick<Upload, 'versionId' | 'etag' | 'id' | 'currentAt' | 'sequencer'>>;

/** An object, in exactly this version. */
export type PinnedObject = Pick<Upload, 'bucket' | 'key' | 'versionId' | 'bytes' | 'mediaType'> & {
  /** Undefined if it is not known. Then the object is taken as it is. */
  readonly etag?: string | undefined;
};

/** An upload in a listing. Its media type is unknown. */
export type ListedUpload = Omit<Upload, 'mediaType'> & {
  /** True if this is the current version of its key. */
  readonly isCurrent: boolean;
};

/** The upload that is current at a key. */
export interface CurrentUpload extends Upload {
  /** True if S3 refuses to show it. Its media type is guessed from the key then. */
  readonly isDenied?: true;
}

/** One page of a listing. */
export interface UploadPage {
  readonly uploads: readonly ListedUpload[];
  /** Where the next page begins. Undefined on the last page. */
  readonly last: VersionMarker | undefined;
}

interface ContentFacts {
  /** The metadata that may replace parts of a route, as a text to be compared. */
  readonly metadata: string;
  /** Undefined if S3 keeps none. */
  readonly checksum: string | undefined;
}

/**
 * Tells whether a file is in the inbox of the current configuration. A deployment may have replaced the inbox that it was
 * put into.
 */
export const isInside = (
  { inboxBucket, inboxPrefix }: { readonly inboxBucket: string; readonly inboxPrefix: string },
  { bucket, key }: Pick<Upload, 'bucket' | 'key'>,
): boolean => bucket === inboxBucket && key.startsWith(inboxPrefix);

/** Tells whether a file is the hourly canary. */
export const isCanary = (
  { bucket, key }: Pick<Upload, 'bucket' | 'key'>,
  { inboxBucket, canaryKey }: { readonly inboxBucket: string; readonly canaryKey: string },
): boolean => bucket === inboxBucket && key === canaryKey;

/** The inbox bucket: opens exactly one version of an object, finds the current one, and lists them all. */
export class Inbox {
  readonly #s3: S3Client;
  readonly #clock: Clock;

  constructor(s3: S3Client, clock: Clock) {
    this.#s3 = s3;
    this.#clock = clock;
  }

  /**
   * Opens exactly the named version: by its version id, else by its ETag.
   * @throws {UploadGoneError} it was replaced or deleted.
   * @throws {UploadDeniedError} S3 refuses to hand it out.
   * @throws {UploadUnreadableError} S3 did not return it.
   */
  async open(reference: UploadReference, signal: AbortSignal): Promise<OpenedUpload> {
    const first = await this.#get(reference, signal);
    const { upload } = first;
    if (reference.id !== undefined && reference.id !== upload.id) {
      first.body.destroy();
      throw new UploadGoneError(reference, 'was put again with the same content', { isReplaced: true });
    }
    const freshUntil = this.#clock.now() + UNREAD_MAX_MS;
    let unread: Readable | undefined = first.body;
    const opened = [first.body];
    const openBody = async (openSignal: AbortSignal): Promise<AsyncIterable<Uint8Array>> => {
      let body = unread;
      unread = undefined;
      // Reopen a connection that broke while it stayed unread. The file is not at fault.
      if (body === undefined || body.destroyed || this.#clock.now() >= freshUntil) {
        body?.destroy();
        body = (await this.#get(upload, openSignal)).body;
        opened.push(body);
      }
      return whileAlive(body, openSignal);
    };
    const discard = (): void => {
      for (const body of opened) body.destroy();
    };
    const { metadata, isArchived, coding } = first;
    const input = { ...this.#inputOf(upload, openBody), coding };
    return { upload, isArchived, metadata, inputs: [input], discard };
  }

  /** The upload of a later stage, with its assets. Each of them is opened when it is sent, one after the other. */
  openAssets(upload: Upload, assets: readonly PinnedObject[]): OpenedUpload {
    const inputs = assets.map((asset) => this.#pinnedInput(asset));
    return { upload, isArchived: false, metadata: {}, inputs, discard: () => {} };
  }

  /**
   * A job, with its inputs in the order of the job file. Each file is opened when it is sent, one after the other.
   * @param opened the job file.
   * @param files those of the job's inputs that are there.
   */
  openJob(opened: OpenedUpload, { inputs }: Job, files: readonly PinnedObject[]): OpenedUpload {
    const { key: jobKey } = opened.upload;
    const named = inputs.flatMap((input) => ('name' in input ? [inputKey(jobKey, input.name)] : []));
    const all = inputs.flatMap((input): OpenedInput | readonly [] => {
      if ('text' in input) return textInput(input.text, input.additional);
      const [file] = filesFor(inputKey(jobKey, input.name), named, files);
      return file === undefined ? [] : this.#pinnedInput(file, input.additional);
    });
    return { ...opened, inputs: all };
  }

  #pinnedInput(object: PinnedObject, additional?: JsonObject): OpenedInput {
    return this.#inputOf(object, (signal) => this.#openPinned(object, signal), additional);
  }

  /** An object as an input. The flow is told where it came from. */
  #inputOf(object: PinnedObject, open: InputSource['open'], additional?: JsonObject): OpenedInput {
    const { bucket, key, versionId, bytes, mediaType } = object;
    const place = { bucket, key, ...(versionId === undefined ? {} : { versionId }) };
    const address = versionId === undefined ? undefined : this.#addressOf({ ...object, versionId });
    return { key, mediaType, source: { bytes, open }, address, additional: { ...additional, ...place } };
  }

  #addressOf(object: PinnedObject & { readonly versionId: string }): InputAddress {
    return async (seconds, signal) => {
      // An address is signed of any object. The first bytes tell whether it can be read.
      for await (const _ of await this.#openPinned(object, signal)) break;
      const { bucket: Bucket, key: Key, versionId: VersionId, mediaType: ResponseContentType } = object;
      try {
        return await presignedGet(
          this.#s3,
          { Bucket, Key, VersionId, ResponseContentType },
          { seconds, now: this.#clock.now() },
        );
      } catch (cause) {
        throw new UploadUnreadableError(`No address of ${object.bucket}/${object.key} could be signed`, { cause });
      }
    };
  }

  async #openPinned(pinned: PinnedObject, signal: AbortSignal): Promise<AsyncIterable<Uint8Array>> {
    const { body, upload } = await this.#getPlain(pinned, signal);
    if (upload.bytes === pinned.bytes) return whileAlive(body, signal);
    body.destroy();
    throw new UploadGoneError(pinned, 'was replaced');
  }

  /** The upload that is current at a key. Undefined if there is none. */
  async current(bucket: string, key: string, signal: AbortSignal): Promise<CurrentUpload | undefined> {
    try {
      const head = await headObject(this.#s3, { Bucket: bucket, Key: key }, signal);
      return head && uploadFrom({ bucket, key }, head, this.#clock.now());
    } catch (error) {
      signal.throwIfAborted();
      if (!isDenied(error)) throw error;
      const listed = await this.#listed({ bucket, key }, {}, signal);
      if (listed === undefined) throw error;
      if (listed === 'absent') return undefined;
      return { ...deniedUpload({ bucket, key }, listed, this.#clock.now()), isDenied: true };
    }
  }

  /**
   * The keys of the files in the folder of a job and in the folders below it. Those beyond {@link FOLDER_PAGES_MAX} pages
   * are left out, and all of them if S3 does not allow to list them: files with exactly the right names are found by
   * themselves.
   */
  async keysBeside(bucket: string, jobKey: string, signal: AbortSignal): Promise<readonly string[]> {
    const keys: string[] = [];
    let pages = 0;
    try {
      for await (const { uploads } of this.pages(bucket, folderOf(jobKey), undefined, signal)) {
        for (const { key, isCurrent } of uploads) if (isCurrent && key !== jobKey) keys.push(key);
        pages += 1;
        if (pages === FOLDER_PAGES_MAX) break;
      }
    } catch (error) {
      if (!isDenied(error)) throw error;
    }
    return keys;
  }

  /**
   * What tells the contents of two objects apart, and what Flowdrop reads of their metadata. Undefined if the object is
   * gone, or may not be looked at.
   */
  async facts(object: UploadReference, signal: AbortSignal): Promise<ContentFacts | undefined> {
    const VersionId = pinnedVersion(object.versionId);
    const where = { Bucket: object.bucket, Key: object.key, ...(VersionId && { VersionId }) };
    for (const mode of [{ ChecksumMode: 'ENABLED' }, {}] as const) {
      try {
        const head = await headObject(this.#s3, { ...where, ...mode }, signal);
        if (head === undefined) return undefined;
        return { metadata: flowMetadata(head.Metadata ?? {}), checksum: checksumOf(head) };
      } catch (error) {
        signal.throwIfAborted();
        // To show a checksum, S3 must be allowed to decrypt. The ETag may do.
        if (!isDenied(error)) throw error;
      }
    }
    return undefined;
  }

  /**
   * Puts the object that is current at a key once more. That is a new upload of the same content.
   * @throws as {@link open} does. @throws {UploadArchivedError} @throws {UploadEncodedError}
   * @throws {RangeError} it has more than `bytesMax` bytes. Nothing is put then.
   */
  async putAgain({ bucket, key }: UploadReference, bytesMax: number, signal: AbortSignal): Promise<void> {
    const { upload, metadata, body } = await this.#getPlain({ bucket, key }, signal);
    if (upload.bytes > bytesMax) {
      body.destroy();
      throw new RangeError(`${bucket}/${key} has ${upload.bytes} bytes, and may have ${bytesMax}`);
    }
    const command = new PutObjectCommand({
      ...{ Bucket: bucket, Key: key, Body: await buffer(whileAlive(body, signal)) },
      ...{ ContentType: upload.mediaType, Metadata: metadata },
      // If somebody puts another file meanwhile, that one stays.
      IfMatch: `"${upload.etag}"`,
    });
    await this.#s3.send(command, { abortSignal: signal });
  }

  /** Lists all uploads below a prefix, in the order of their keys. Begins behind `after`. */
  async *pages(
    bucket: string,
    prefix: string,
    after: VersionMarker | undefined,
    signal: AbortSignal,
  ): AsyncGenerator<UploadPage> {
    let from = after;
    do {
      const page = await listVersions(this.#s3, { bucket, prefix, after: from }, signal);
      const uploads = page.versions.map((version) => listedUpload(bucket, version));
      from = page.next;
      yield { uploads, last: from };
    } while (from !== undefined);
  }

  /** An object that can be read, and is not compressed. @throws {UploadArchivedError} @throws {UploadEncodedError} */
  async #getPlain(reference: UploadReference, signal: AbortSignal) {
    const object = await this.#get(reference, signal);
    if (!object.isArchived && object.coding === undefined) return object;
    object.body.destroy();
    const name = `${reference.bucket}/${reference.key}`;
    throw object.coding === undefined
      ? new UploadArchivedError(`${name} is archived`)
      : new UploadEncodedError(codingMessage(name, object.coding));
  }

  async #get(reference: UploadReference, signal: AbortSignal) {
    let gone: UploadGoneError | undefined;
    for (const pin of pinsOf(reference)) {
      try {
        return await this.#getPinned(reference, pin, signal);
      } catch (error) {
        if (!(error instanceof UploadGoneError)) throw error;
        // The first pin tells what is current at the key.
        gone ??= error;
      }
    }
    throw gone;
  }

  async #getPinned(reference: UploadReference, pin: Pin, signal: AbortSignal) {
    const pinned = { Bucket: reference.bucket, Key: reference.key, ...pin };
    try {
      const answer = await this.#s3.send(new GetObjectCommand(pinned), { abortSignal: signal });
      const body = answer.Body as Readable;
      // The stream may fail before it has a reader. A later reader still gets the error.
      body.on('error', () => {});
      const upload = uploadFrom(reference, answer, this.#clock.now());
      const [coding] = codingsOf(answer.ContentEncoding);
      return { upload, metadata: answer.Metadata ?? {}, body, isArchived: false, coding };
    } catch (error) {
      signal.throwIfAborted();
      if (isArchived(error)) {
        const head = await this.#s3.send(new HeadObjectCommand(pinned), { abortSignal: signal });
        const upload = uploadFrom(reference, head, this.#clock.now());
        return { upload, metadata: head.Metadata ?? {}, body: Readable.from([]), isArchived: true, coding: undefined };
      }
      const name = `${reference.bucket}/${reference.key}`;
      if (isPreconditionFailed(error)) {
        throw new UploadGoneError(reference, 'was replaced', { cause: error, isReplaced: true });
      }
      if (isAbsent(error)) throw new UploadGoneError(reference, 'was deleted', { cause: error });
      const listed = isDenied(error) ? await this.#listed(reference, pin, signal) : undefined;
      if (listed === 'absent') {
        throw new UploadGoneError(reference, 'was deleted: S3 refuses it, and a listing lacks it', { cause: error });
      }
      if (listed !== undefined) {
        throw new UploadDeniedError(deniedUpload(reference, listed, this.#clock.now()), error as Error);
      }
      throw new UploadUnreadableError(`${name} could not be opened`, { cause: error });
    }
  }

  /**
   * Finds a version that S3 refuses to show in a listing of all versions of its key. A listing shows all that an upload
   * id is made of, even if nobody may read the object. S3 documents 404 for an absent object if the caller may list the
   * bucket, and says nothing of absent versions.
   * @returns undefined if the listing gives no proof.
   * @see https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetObject.html ("Permissions")
   */
  async #listed(
    { bucket, key, id }: UploadReference,
    pin: Pin,
    signal: AbortSignal,
  ): Promise<ListedUpload | 'absent' | undefined> {
    let after: VersionMarker | undefined;
    for (let pages = 0; pages < VERSION_PAGES_MAX; pages += 1) {
      const page = await listVersions(this.#s3, { bucket, prefix: key, after }, signal).catch(() => undefined);
      signal.throwIfAborted();
      if (!page?.isEncoded) return undefined;
      const found = page.versions.find((version) => version.Key === key && isPinned(version, pin));
      if (found !== undefined) {
        const upload = listedUpload(bucket, found);
        // Without versions, the same content may have been put again.
        return id === undefined || id === upload.id ? upload : 'absent';
      }
      if (page.isLast) return 'absent';
      if (page.next === undefined) return undefined;
      // Other keys may begin with this key. They come after it.
      if (page.next.key !== key) return 'absent';
      after = page.next;
    }
    return undefined;
  }
}

/** Says of an object that its bytes are not those of the file. @param what names the object. */
export const codingMessage = (what: string, coding: string): string =>
  `${what} is compressed (Content-Encoding: ${coding}), and would be sent as it is stored. ` +
  'Put the file without compression, and without that header.';

function textInput(text: string, additional: JsonObject): OpenedInput {
  const bytes = Buffer.from(text);
  const open = async () => Readable.from([bytes]);
  return { key: undefined, as: 'text', mediaType: 'text/plain', source: { bytes: bytes.byteLength, open }, additional };
}

interface Pin {
  readonly VersionId?: string;
  readonly IfMatch?: string;
}

/**
 * The conditions that pin a GET to an upload, in the order in which they are tried. An upload without a version id may
 * be the null version of its key. When versioning is on again, newer versions or a delete marker can hide it.
 */
function pinsOf({ versionId, etag }: UploadReference): readonly Pin[] {
  const pinned = pinnedVersion(versionId);
  if (pinned !== undefined) return [{ VersionId: pinned }];
  if (etag === undefined) return [{}];
  const IfMatch = `"${etag}"`;
  return [{ IfMatch }, { IfMatch, VersionId: 'null' }];
}

/** Tells whether a version in a listing of a key is the one that a GET with this pin would return. */
const isPinned = ({ VersionId, ETag, IsLatest }: ListedVersion, pin: Pin): boolean =>
  (pin.VersionId === undefined ? IsLatest === true : VersionId === pin.VersionId) &&
  (pin.IfMatch === undefined || ETag === pin.IfMatch);

const listedUpload = (bucket: string, version: ListedVersion): ListedUpload => ({
  ...identified({ bucket, key: version.Key }, version, version.Size),
  isCurrent: version.IsLatest === true,
});

/** What a GET and a listing tell of an upload, with its id. */
function identified(
  { bucket, key }: Pick<Upload, 'bucket' | 'key'>,
  { VersionId, ETag = '', LastModified }: Partial<ListedVersion>,
  bytes = 0,
): Omit<Upload, 'mediaType'> {
  const lastModified = LastModified?.getTime() ?? 0;
  const facts = { bucket, key, versionId: pinnedVersion(VersionId), etag: unquoted(ETag), bytes, lastModified };
  return { id: uploadId(facts), ...facts };
}

function deniedUpload(reference: UploadReference, { isCurrent: _, ...facts }: ListedUpload, now: number): Upload {
  // A listing may be more precise than a GET, whose seconds are in every other entry.
  const lastModified = Math.floor(facts.lastModified / 1000) * 1000;
  const mediaType = mediaTypeOf(undefined, facts.key);
  return { ...facts, lastModified, mediaType, ...rankOf(reference, lastModified, now) };
}

/** The checksum that S3 keeps of an object, with its kind. The client knows ten, and S3 adds others now and then. */
function checksumOf(head: HeadObjectCommandOutput): string | undefined {
  const facts = Object.entries(head).filter(([name, value]) => name.startsWith('Checksum') && value !== undefined);
  return facts.some(([name]) => name !== 'ChecksumType') ? JSON.stringify(facts.toSorted()) : undefined;
}

function uploadFrom(
  reference: UploadReference,
  facts: GetObjectCommandOutput | HeadObjectCommandOutput,
  now: number,
): Upload {
  const upload = identified(reference, facts, facts.ContentLength);
  const mediaType = mediaTypeOf(facts.ContentType, reference.key);
  return { ...upload, mediaType, ...rankOf(reference, upload.lastModified, now) };
}

/**
 * The facts that rank the receipt of an upload, if its event or the sweep gave them. A time in the future is left out:
 * it is forged, and would keep the receipt for ever.
 */
function rankOf(
  { versionId, currentAt, sequencer }: UploadReference,
  lastModified: number,
  now: number,
): Partial<Upload> {
  if (currentAt === undefined || currentAt > now + CLOCK_SKEW_MAX_MS) return {};
  // Without a version id, an event from before LastModified belongs to an earlier put of the same content.
  if (currentAt < lastModified && pinnedVersion(versionId) === undefined) return {};
  return { currentAt: Math.max(currentAt, lastModified), sequencer };
}

/** Yields the stream's chunks. Destroys the stream when the signal aborts, and when the loop over it ends. */
async function* whileAlive(body: Readable, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  try {
    yield* addAbortSignal(signal, body);
  } catch (cause) {
    signal.throwIfAborted();
    throw new UploadUnreadableError('The upload could not be read to its end', { cause });
  } finally {
    body.destroy();
  }
}
