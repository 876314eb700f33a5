import {
  createBucket,
  getBucketLocation,
  getBucketNotification,
  getBucketVersioning,
  headBucket,
  listBuckets,
  putBucketNotification,
  putBucketVersioning,
} from './buckets.ts';
import { type Call, notImplemented, type S3Response, type Service } from './call.ts';
import { copyObject, uploadPartCopy } from './copies.ts';
import { deleteObject, deleteObjects } from './deletions.ts';
import { listObjectsV1, listObjectsV2, listObjectVersions } from './listing.ts';
import {
  abortMultipartUpload,
  completeMultipartUpload,
  createMultipartUpload,
  listMultipartUploads,
  uploadPart,
} from './multipart.ts';
import { putObject, readObject } from './objects.ts';
import { deleteObjectTagging, getObjectTagging, putObjectTagging } from './tagging.ts';

type Operation = (service: Service, call: Call) => S3Response | Promise<S3Response>;

/** An operation, and the parameters that it knows beside those that name it. */
type Entry = readonly [operation: Operation, parameters?: readonly string[]];

const LISTING = ['prefix', 'delimiter', 'max-keys', 'encoding-type'];

/**
 * The operations by method, by what the path names, and by the parameters or the header that name them. This is all that
 * is served: what the functions, the command, the page and common clients use. Every other request answers
 * NotImplemented.
 */
const OPERATIONS: Readonly<Record<string, Entry>> = {
  'GET service': [listBuckets],
  'GET bucket': [listObjectsV1, [...LISTING, 'marker']],
  'GET bucket list-type': [listObjectsV2, [...LISTING, 'continuation-token', 'start-after']],
  'GET bucket versions': [listObjectVersions, [...LISTING, 'key-marker', 'version-id-marker']],
  'GET bucket uploads': [listMultipartUploads, ['prefix', 'encoding-type']],
  'GET bucket location': [getBucketLocation],
  'GET bucket notification': [getBucketNotification],
  'GET bucket versioning': [getBucketVersioning],
  'HEAD bucket': [headBucket],
  'PUT bucket': [createBucket],
  'PUT bucket versioning': [putBucketVersioning],
  'PUT bucket notification': [putBucketNotification],
  'POST bucket delete': [deleteObjects],
  'GET object': [readObject, ['versionId', 'response-content-type']],
  'HEAD object': [readObject, ['versionId']],
  'PUT object': [putObject],
  'PUT object x-amz-copy-source': [copyObject],
  'DELETE object': [deleteObject, ['versionId']],
  'POST object uploads': [createMultipartUpload],
  'PUT object uploadId': [uploadPart, ['partNumber']],
  'PUT object uploadId x-amz-copy-source': [uploadPartCopy, ['partNumber']],
  'POST object uploadId': [completeMultipartUpload],
  'DELETE object uploadId': [abortMultipartUpload],
  'GET object tagging': [getObjectTagging, ['versionId']],
  'PUT object tagging': [putObjectTagging, ['versionId']],
  'DELETE object tagging': [deleteObjectTagging, ['versionId']],
};

/** The parameters that name an operation. */
const NAMING: readonly string[] = [
  ...['list-type', 'versions', 'uploads', 'location', 'notification', 'versioning', 'delete', 'uploadId', 'tagging'],
];

/** The only header that names an operation. */
const NAMING_HEADER = 'x-amz-copy-source';

/** Headers that ask for more than is served. Ignoring them would be more lenient than S3. */
const UNSUPPORTED_HEADERS = [
  ...['x-amz-website-redirect-location', 'x-amz-write-offset-bytes'],
  ...['x-amz-object-lock-mode', 'x-amz-object-lock-legal-hold', 'x-amz-server-side-encryption-customer-algorithm'],
  'x-amz-copy-source-server-side-encryption-customer-algorithm',
];

/** The operation that a request names. Throws NotImplemented. */
export function operationOf({ method, bucket, key, query, headers }: Call): Operation {
  const header = UNSUPPORTED_HEADERS.find((name) => headers[name] !== undefined);
  if (header !== undefined) throw notImplemented(header);
  const storageClass = headers['x-amz-storage-class'] ?? 'STANDARD';
  if (storageClass !== 'STANDARD') throw notImplemented(`The storage class ${storageClass}`);
  const place = bucket === '' ? 'service' : key === '' ? 'bucket' : 'object';
  // The SDK names each operation in `x-id`. The `X-Amz-*` of a presigned address count as headers.
  const names = [...query.keys()].filter((name) => name !== 'x-id' && !/^x-amz-/i.test(name));
  const naming = names.filter((name) => NAMING.includes(name));
  if (headers[NAMING_HEADER] !== undefined) naming.push(NAMING_HEADER);
  const [operation, parameters = []] = OPERATIONS[[method, place, ...naming].join(' ')] ?? [];
  const unknown = names.find((name) => !naming.includes(name) && !parameters.includes(name));
  if (operation === undefined || unknown !== undefined) {
    throw notImplemented([method, place, ...naming, ...(unknown === undefined ? [] : [unknown])].join(' '));
  }
  return operation;
}
