import { createHash } from 'node:crypto';
import { KEY_BYTES_MAX } from '../s3/limits.ts';

/**
 * What an event says of an upload. Only bucket and key are certain: a version id is absent on an unversioned bucket,
 * and `uploadId` is set only where we sent the message ourselves, for an upload that the ledger already knows.
 */
export interface UploadEvent {
  readonly bucket: string;
  readonly key: string;
  readonly versionId?: string | undefined;
  /** Unquoted. */
  readonly etag?: string | undefined;
  readonly bytes?: number | undefined;
  readonly uploadId?: string | undefined;
}

/** One version of one object, as the answer to a GET or a listing described it. */
export interface Upload {
  readonly id: string;
  readonly bucket: string;
  readonly key: string;
  /** Absent where the bucket is not versioned, or was not when the object was put. */
  readonly versionId?: string | undefined;
  /** Unquoted. */
  readonly etag: string;
  readonly bytes: number;
  /** Milliseconds since the epoch, in whole seconds: HTTP dates carry no more. */
  readonly lastModified: number;
  readonly mediaType: string;
}

/** A message that is no notification of any kind that we know. It belongs into the dead-letter queue, to be looked at. */
export class UnrecognisedEventError extends Error {
  override readonly name = 'UnrecognisedEventError';
}

/** Length of an upload id: 160 bits of SHA-256 in hexadecimal digits. */
const UPLOAD_ID_DIGITS = 40;

/** What every upload id looks like. */
export const UPLOAD_ID = /^[0-9a-f]{40}$/;

/**
 * The upload id: what pins a version of an object, hashed. A bucket without versioning (and a suspended one, which says
 * `null`) has only ETag and LastModified to tell an upload from the next one at the same key; whole seconds, because
 * a GET says no more than that while a listing does.
 */
export function uploadId(object: Pick<Upload, 'bucket' | 'key' | 'versionId' | 'etag' | 'lastModified'>): string {
  const versionId = pinnedVersion(object.versionId);
  const pin =
    versionId === undefined
      ? ['etag', unquoted(object.etag), Math.floor(object.lastModified / 1000)]
      : ['version', versionId];
  return createHash('sha256')
    .update(JSON.stringify([object.bucket, object.key, ...pin]))
    .digest('hex')
    .slice(0, UPLOAD_ID_DIGITS);
}

/** The version id if it pins anything: not where it is absent, empty, or the `null` of an unversioned object. */
export function pinnedVersion(versionId: string | undefined | null): string | undefined {
  return versionId === undefined || versionId === null || versionId === '' || versionId === 'null'
    ? undefined
    : versionId;
}

/** S3 quotes ETags in headers and listings, and does not in events. */
export function unquoted(etag: string): string {
  return etag.replace(/^(?:W\/)?"(.*)"$/, '$1');
}

/** A folder as consoles and sync tools make it: an empty object whose key ends with a slash. */
export function isFolderMarker(upload: Pick<UploadEvent, 'key' | 'bytes'>): boolean {
  return upload.key.endsWith('/') && (upload.bytes ?? 0) === 0;
}

/**
 * The uploads that one message tells of, in either shape: an S3 notification (`Records`, keys URL-encoded with `+` for
 * a space) or an EventBridge event (`detail`, keys as they are). `s3:TestEvent` and events of other kinds tell of none.
 * @throws {UnrecognisedEventError} for anything else.
 */
export function uploadsOf(message: unknown): readonly UploadEvent[] {
  if (isObject(message)) {
    if (message.Event === 's3:TestEvent') return [];
    if (Array.isArray(message.Records)) return message.Records.flatMap(fromNotification);
    if (message.source === 'aws.s3' && isObject(message.detail)) return fromEventBridge(message);
  }
  throw new UnrecognisedEventError(`Neither an S3 notification nor an EventBridge event: ${excerpt(message)}`);
}

/**
 * The message by which an upload that waited is sent again: an S3 notification as S3 itself would write it, with the
 * upload id beside it, so that its entry is found even when the object is not there any more.
 */
export function messageFor(upload: Omit<Upload, 'mediaType' | 'lastModified'>): string {
  const notification = {
    eventSource: 'aws:s3',
    eventName: 'ObjectCreated:Resubmitted',
    flowdrop: { uploadId: upload.id },
    s3: {
      bucket: { name: upload.bucket },
      object: {
        key: encodeURIComponent(upload.key),
        size: upload.bytes,
        eTag: upload.etag,
        ...(upload.versionId === undefined ? {} : { versionId: upload.versionId }),
      },
    },
  };
  return JSON.stringify({ Records: [notification] });
}

function fromNotification(record: unknown): readonly UploadEvent[] {
  const s3 = isObject(record) && isObject(record.s3) ? record.s3 : undefined;
  const bucket = s3 !== undefined && isObject(s3.bucket) ? s3.bucket.name : undefined;
  const object = s3 !== undefined && isObject(s3.object) ? s3.object : undefined;
  if (!isObject(record) || object === undefined || !isName(bucket) || !isName(object.key)) {
    throw new UnrecognisedEventError(`A record without s3.bucket.name and s3.object.key: ${excerpt(record)}`);
  }
  if (typeof record.eventName !== 'string' || !/^(s3:)?ObjectCreated:/.test(record.eventName)) return [];
  const known = isObject(record.flowdrop) ? text(record.flowdrop.uploadId) : undefined;
  return [
    {
      bucket,
      key: possibleKey(decodedKey(object.key)),
      versionId: pinnedVersion(text(object.versionId)),
      etag: text(object.eTag),
      bytes: size(object.size),
      // It becomes part of a key of the ledger, and the message may be anybody's who may send to the queue.
      uploadId: known !== undefined && UPLOAD_ID.test(known) ? known : undefined,
    },
  ];
}

function fromEventBridge(event: Record<string, unknown>): readonly UploadEvent[] {
  if (event['detail-type'] !== 'Object Created') return [];
  const detail = event.detail as Record<string, unknown>;
  const bucket = isObject(detail.bucket) ? detail.bucket.name : undefined;
  const object = isObject(detail.object) ? detail.object : undefined;
  if (object === undefined || !isName(bucket) || !isName(object.key)) {
    throw new UnrecognisedEventError(`An event without detail.bucket.name and detail.object.key: ${excerpt(event)}`);
  }
  return [
    {
      bucket,
      key: possibleKey(object.key),
      versionId: pinnedVersion(text(object['version-id'])),
      etag: text(object.etag),
      bytes: size(object.size),
    },
  ];
}

function decodedKey(key: string): string {
  try {
    return decodeURIComponent(key.replaceAll('+', ' '));
  } catch (cause) {
    throw new UnrecognisedEventError(`A key that is not URL-encoded UTF-8: ${excerpt(key)}`, { cause });
  }
}

/** A key that no object can have is nothing that S3 has sent. */
function possibleKey(key: string): string {
  if (key.isWellFormed() && Buffer.byteLength(key) <= KEY_BYTES_MAX) return key;
  throw new UnrecognisedEventError(`A key that S3 would not take: ${excerpt(key)}`);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isName(value: unknown): value is string {
  return typeof value === 'string' && value !== '';
}

function text(value: unknown): string | undefined {
  return isName(value) ? value : undefined;
}

function size(value: unknown): number | undefined {
  return typeof value === 'number' ? value : undefined;
}

/** Enough of a message to recognise it by; never the whole of it. */
function excerpt(value: unknown): string {
  try {
    return (JSON.stringify(value) ?? String(value)).slice(0, 200);
  } catch {
    return 'it is nested too deeply to be shown'; // What JSON.parse makes can be deeper than what the stack can hold.
  }
}
