import { REGION } from '../endpoint.ts';
import type { Version } from './catalog.ts';

const ACCOUNT = '000000000000';

export type S3EventName =
  | 'ObjectCreated:Put'
  | 'ObjectCreated:Copy'
  | 'ObjectCreated:CompleteMultipartUpload'
  | 'ObjectRemoved:Delete'
  | 'ObjectRemoved:DeleteMarkerCreated';

/**
 * One record of S3's notification message.
 * @see https://docs.aws.amazon.com/AmazonS3/latest/userguide/notification-content-structure.html
 */
export interface S3EventRecord {
  readonly eventVersion: string;
  readonly eventSource: 'aws:s3';
  readonly awsRegion: string;
  /** ISO 8601, with milliseconds. */
  readonly eventTime: string;
  readonly eventName: S3EventName;
  readonly userIdentity: { readonly principalId: string };
  readonly requestParameters: { readonly sourceIPAddress: string };
  readonly responseElements: { readonly 'x-amz-request-id': string; readonly 'x-amz-id-2': string };
  readonly s3: {
    readonly s3SchemaVersion: '1.0';
    readonly configurationId: string;
    readonly bucket: {
      readonly name: string;
      readonly ownerIdentity: { readonly principalId: string };
      readonly arn: string;
    };
    readonly object: {
      /** Encoded by `encodeKey`. */
      readonly key: string;
      /** Undefined, like `eTag`, if an object was removed. */
      readonly size?: number;
      /** Without quotes. */
      readonly eTag?: string;
      /** Undefined in a bucket that never had versioning. */
      readonly versionId?: string;
      /** Hexadecimal. Of two records of one key, the greater one is later. */
      readonly sequencer: string;
    };
  };
}

/**
 * URL-encodes a key as S3 does in notifications and in listings with `encoding-type=url`. Letters, digits, `/` and
 * `-_.*` stay, a space becomes `+`, and all other characters become percent-encoded UTF-8.
 */
export function encodeKey(key: string): string {
  return encodeURIComponent(key)
    .replace(/[!'()~]/g, (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`)
    .replaceAll('%20', '+')
    .replaceAll('%2F', '/');
}

/** A change of an object. */
interface ObjectChange {
  readonly eventName: S3EventName;
  readonly version: Version;
  /** The bucket has or had versioning. */
  readonly versioned: boolean;
  readonly timeMs: number;
  readonly requestId: string;
  /** Sequence number of the commit. It is greater than the version's if an older version was removed. */
  readonly sequence: number;
}

export function eventRecord({
  eventName,
  version,
  versioned,
  timeMs,
  requestId,
  sequence,
}: ObjectChange): S3EventRecord {
  const created = eventName.startsWith('ObjectCreated:');
  return {
    eventVersion: '2.1',
    eventSource: 'aws:s3',
    awsRegion: REGION,
    eventTime: new Date(timeMs).toISOString(),
    eventName,
    userIdentity: { principalId: 'AWS:EMBEDDED' },
    requestParameters: { sourceIPAddress: '127.0.0.1' },
    responseElements: { 'x-amz-request-id': requestId, 'x-amz-id-2': requestId },
    s3: {
      s3SchemaVersion: '1.0',
      configurationId: 'embedded',
      bucket: {
        name: version.bucket,
        ownerIdentity: { principalId: 'EMBEDDED' },
        arn: `arn:aws:s3:::${version.bucket}`,
      },
      object: {
        key: encodeKey(version.key),
        ...(created || eventName.endsWith('MarkerCreated') ? { eTag: version.etag || EMPTY_ETAG } : {}),
        ...(created ? { size: version.bytes } : {}),
        ...(versioned ? { versionId: version.versionId } : {}),
        sequencer: sequence.toString(16).toUpperCase().padStart(18, '0'),
      },
    },
  };
}

/** The ETag of an empty object. S3 reports it for a delete marker. */
const EMPTY_ETAG = 'd41d8cd98f00b204e9800998ecf8427e';

const REASONS = {
  'ObjectCreated:Put': 'PutObject',
  'ObjectCreated:Copy': 'CopyObject',
  'ObjectCreated:CompleteMultipartUpload': 'CompleteMultipartUpload',
} as const;

/**
 * Converts a record to S3's EventBridge event. Undefined for a removal, which is no `Object Created` event.
 * @see https://docs.aws.amazon.com/AmazonS3/latest/userguide/ev-events.html
 */
export function eventBridgeEvent(record: S3EventRecord) {
  const { eventName } = record;
  const { bucket, object } = record.s3;
  if (eventName === 'ObjectRemoved:Delete' || eventName === 'ObjectRemoved:DeleteMarkerCreated') return undefined;
  const requestId = record.responseElements['x-amz-request-id'];
  return {
    version: '0',
    id: `00000000-0000-4000-8000-${object.sequencer.slice(-12).toLowerCase()}`,
    'detail-type': 'Object Created',
    source: 'aws.s3',
    account: ACCOUNT,
    time: record.eventTime.replace(/\.\d{3}Z$/, 'Z'),
    region: record.awsRegion,
    resources: [bucket.arn],
    detail: {
      version: '0',
      bucket: { name: bucket.name },
      object: {
        key: decodeURIComponent(object.key.replaceAll('+', ' ')),
        size: object.size ?? 0,
        etag: object.eTag ?? '',
        ...(object.versionId === undefined ? {} : { 'version-id': object.versionId }),
        sequencer: object.sequencer,
      },
      'request-id': requestId,
      requester: ACCOUNT,
      'source-ip-address': record.requestParameters.sourceIPAddress,
      reason: REASONS[eventName],
    },
  };
}

/**
 * The message that S3 sends when notifications are configured. It has no records.
 * @see https://docs.aws.amazon.com/AmazonS3/latest/userguide/notification-content-structure.html
 */
export function testEvent(bucket: string, timeMs: number = Date.now()) {
  return {
    Service: 'Amazon S3',
    Event: 's3:TestEvent',
    Time: new Date(timeMs).toISOString(),
    Bucket: bucket,
    RequestId: 'EMBEDDED',
    HostId: 'EMBEDDED',
  };
}
