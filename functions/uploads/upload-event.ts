import { iso } from '../base/clock.ts';
import { isObject } from '../base/json.ts';
import { essenceOf } from '../base/media-type.ts';
import { quoted } from '../base/printable.ts';
import { decodedKey } from '../s3/encoded-keys.ts';
import { KEY_BYTES_MAX } from '../s3/limits.ts';
import { firstOf, pinnedVersion, SEQUENCER_DIGITS_MAX, UPLOAD_ID, type Upload } from './upload.ts';

/** The facts of an upload in a message. Only bucket and key are always known. */
export interface UploadEvent {
  readonly bucket: string;
  readonly key: string;
  /** Undefined if the bucket is not versioned. */
  readonly versionId?: string | undefined;
  /** Without quotes. */
  readonly etag?: string | undefined;
  readonly bytes?: number | undefined;
  /** When S3 had finished the put, in milliseconds since the epoch. */
  readonly currentAt?: number | undefined;
  readonly sequencer?: string | undefined;
  /** When its message came into the queue, in milliseconds since the epoch. Undefined without a queue. */
  readonly arrivedAt?: number | undefined;
  /** True if S3 has copied the object: its content may be that of the upload before it at this key. */
  readonly isCopy?: true | undefined;
  /** Only in messages of our own, for an upload that the ledger knows already. */
  readonly uploadId?: string | undefined;
  /** Only in messages of our own. True if live files go first. */
  readonly late?: true | undefined;
}

/** The queue of uploads, as a sender sees it. */
export interface UploadQueue {
  send(message: string, signal: AbortSignal): Promise<void>;
  /** About how many messages wait to be received. */
  waitingCount(signal: AbortSignal): Promise<number>;
}

/** A message of no known kind. It belongs in the dead-letter queue, for an operator to look at. */
export class UnrecognisedEventError extends Error {
  override readonly name = 'UnrecognisedEventError';
}

/** Maximum length of a quotation from a message, in characters. */
const EXCERPT_LENGTH_MAX = 200;

/** Matches the time of an event. Its year has four digits. */
const ISO_TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z$/;

const SEQUENCER = new RegExp(`^[0-9A-Fa-f]{1,${SEQUENCER_DIGITS_MAX}}$`);

/** Tells whether an upload is a folder as consoles and sync tools make it: an empty object with a slash at its end. */
export function isFolderMarker(upload: Pick<UploadEvent, 'key' | 'bytes'>): boolean {
  return upload.key.endsWith('/') && (upload.bytes ?? 0) === 0;
}

/** The media type of a folder, as tools that mount a bucket put it. */
export const isFolderType = (mediaType: string): boolean => essenceOf(mediaType) === 'application/x-directory';

/**
 * Returns the uploads in a message. The message is an S3 notification (`Records`; its keys are URL-encoded, with `+`
 * for a space) or an EventBridge event (`detail`; its keys are not encoded). SNS wraps either of them as a text, unless
 * its subscription delivers raw messages. An `s3:TestEvent` and events of other kinds have no uploads.
 * @throws {UnrecognisedEventError} for any other message.
 */
export function uploadsOf(message: unknown): readonly UploadEvent[] {
  if (isObject(message)) {
    if (message.Event === 's3:TestEvent') return [];
    if (isName(message.Type) && isName(message.Message)) return fromSns(message);
    if (Array.isArray(message.Records)) return message.Records.flatMap(fromRecord);
    if (message.source === 'aws.s3' && isObject(message.detail)) return fromEventBridge(message);
  }
  throw new UnrecognisedEventError(`Neither an S3 notification nor an EventBridge event: ${excerpt(message)}`);
}

/**
 * The message that resubmits a waiting upload: an S3 notification as S3 itself would write it. It also has the upload
 * id, so that the upload's entry is found even after the object was deleted. An upload of a later stage has no object:
 * its message names the first file.
 * @param late true for an upload without an entry, if live files go first.
 */
export function messageFor(upload: Omit<Upload, 'mediaType' | 'lastModified'>, late?: true): string {
  const notification = {
    eventSource: 'aws:s3',
    eventName: 'ObjectCreated:Resubmitted',
    eventTime: upload.currentAt === undefined ? undefined : iso(upload.currentAt),
    flowdrop: { uploadId: upload.id, late },
    s3: {
      bucket: { name: upload.bucket },
      object: {
        key: encodeURIComponent(firstOf(upload).key),
        size: upload.bytes,
        eTag: upload.etag,
        versionId: upload.versionId,
        sequencer: upload.sequencer,
      },
    },
  };
  return JSON.stringify({ Records: [notification] });
}

/**
 * The uploads in a message of SNS.
 * @see https://docs.aws.amazon.com/sns/latest/dg/sns-message-and-json-formats.html
 */
function fromSns({ Type = 'Notification', TopicArn, Message }: Record<string, unknown>): readonly UploadEvent[] {
  if (Type !== 'Notification') {
    throw new UnrecognisedEventError(
      `SNS sent ${excerpt(Type)} for the topic ${excerpt(TopicArn)}. ` +
        'To subscribe the queue, open the SubscribeURL in this message.',
    );
  }
  return uploadsOf(parsedMessage(Message));
}

function parsedMessage(message: unknown): unknown {
  try {
    return JSON.parse(message as string);
  } catch (cause) {
    throw new UnrecognisedEventError(`A message of SNS that is not JSON: ${excerpt(message)}`, { cause });
  }
}

/** The uploads in a record: of S3, or of SNS where it calls a function itself. */
function fromRecord(record: unknown): readonly UploadEvent[] {
  return isObject(record) && isObject(record.Sns) ? fromSns(record.Sns) : fromNotification(record);
}

function fromNotification(record: unknown): readonly UploadEvent[] {
  const s3 = isObject(record) && isObject(record.s3) ? record.s3 : undefined;
  const bucket = s3 !== undefined && isObject(s3.bucket) ? s3.bucket.name : undefined;
  const object = s3 !== undefined && isObject(s3.object) ? s3.object : undefined;
  if (!isObject(record) || object === undefined || !isName(bucket) || !isName(object.key)) {
    throw new UnrecognisedEventError(`A record without s3.bucket.name and s3.object.key: ${excerpt(record)}`);
  }
  if (typeof record.eventName !== 'string' || !/^(s3:)?ObjectCreated:/.test(record.eventName)) return [];
  const ours = isObject(record.flowdrop) ? record.flowdrop : {};
  const known = text(ours.uploadId);
  return [
    {
      bucket,
      key: possibleKey(keyOf(object.key)),
      versionId: pinnedVersion(text(object.versionId)),
      etag: text(object.eTag),
      bytes: size(object.size),
      currentAt: instant(record.eventTime),
      sequencer: sequencerOf(object.sequencer),
      // The id becomes part of a ledger key, and any principal that may send to the queue could have written it.
      uploadId: known !== undefined && UPLOAD_ID.test(known) ? known : undefined,
      late: ours.late === true ? true : undefined,
      isCopy: record.eventName.endsWith(':Copy') ? true : undefined,
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
      currentAt: instant(event.time),
      sequencer: sequencerOf(object.sequencer),
      isCopy: detail.reason === 'CopyObject' ? true : undefined,
    },
  ];
}

function keyOf(encoded: string): string {
  try {
    return decodedKey(encoded);
  } catch (cause) {
    throw new UnrecognisedEventError(`A key that is not URL-encoded UTF-8: ${excerpt(encoded)}`, { cause });
  }
}

/** Rejects a key that no object can have: S3 cannot have sent it. */
function possibleKey(key: string): string {
  if (key.isWellFormed() && Buffer.byteLength(key) <= KEY_BYTES_MAX) return key;
  throw new UnrecognisedEventError(`A key that S3 would not take: ${excerpt(key)}`);
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

/** The time of an event in milliseconds since the epoch. Undefined for a text of another form. */
function instant(value: unknown): number | undefined {
  return typeof value === 'string' && ISO_TIME.test(value) ? Date.parse(value) || undefined : undefined;
}

function sequencerOf(value: unknown): string | undefined {
  return typeof value === 'string' && SEQUENCER.test(value) ? value : undefined;
}

/** The beginning of a message, never the whole of it. */
const excerpt = (value: unknown): string => quoted(value, EXCERPT_LENGTH_MAX);
