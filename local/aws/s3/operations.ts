import {
  createBucket,
  deleteBucket,
  getBucketLocation,
  getBucketVersioning,
  headBucket,
  listBuckets,
  putBucketVersioning,
} from './buckets.ts';
import type { Call, S3Response, Service } from './call.ts';
import { copyObject, uploadPartCopy } from './copy.ts';
import { deleteObject, deleteObjects } from './deletions.ts';
import { S3Error } from './errors.ts';
import { listObjectsV1, listObjectsV2, listObjectVersions } from './listing.ts';
import { abortMultipartUpload, completeMultipartUpload, createMultipartUpload, uploadPart } from './multipart.ts';
import { listMultipartUploads, listParts } from './multipart-listing.ts';
import { getBucketNotification, putBucketNotification } from './notifications.ts';
import { putObject, readObject } from './objects.ts';
import {
  deleteBucketTagging,
  deleteObjectTagging,
  getBucketTagging,
  getObjectTagging,
  putBucketTagging,
  putObjectTagging,
} from './tags.ts';

type Operation = (service: Service, call: Call) => S3Response | Promise<S3Response>;

/** Features of S3 that are not implemented. Ignoring them would be more lenient than S3. */
const UNSUPPORTED_QUERIES = [
  ...['accelerate', 'acl', 'analytics', 'attributes', 'cors', 'encryption', 'intelligent-tiering', 'inventory'],
  ...['legal-hold', 'lifecycle', 'logging', 'metrics', 'object-lock', 'ownershipControls', 'policy'],
  ...['policyStatus', 'publicAccessBlock', 'renameObject', 'replication', 'requestPayment', 'restore', 'retention'],
  ...['select', 'torrent', 'website'],
];

const UNSUPPORTED_HEADERS = [
  ...['x-amz-object-lock-mode', 'x-amz-object-lock-legal-hold', 'x-amz-server-side-encryption-customer-algorithm'],
  ...['x-amz-website-redirect-location', 'x-amz-write-offset-bytes'],
];

/**
 * The operation that a request names. Throws NotImplemented, MethodNotAllowed, InvalidArgument, InvalidStorageClass.
 */
export function operationOf(call: Call): Operation {
  const { query, headers, bucket, key } = call;
  const unsupported =
    UNSUPPORTED_QUERIES.find((name) => query.has(name)) ??
    UNSUPPORTED_HEADERS.find((name) => headers[name] !== undefined);
  if (unsupported !== undefined) {
    throw new S3Error('NotImplemented', { message: `${unsupported} is not implemented.` });
  }
  checkStorageClass(headers['x-amz-storage-class']);
  const operation = bucket === '' ? serviceOperation(call) : key === '' ? bucketOperation(call) : objectOperation(call);
  if (operation === undefined) throw new S3Error('MethodNotAllowed', { details: { Method: call.method } });
  return operation;
}

/** The others of S3. Objects in some of them could not be read at once. */
const UNSUPPORTED_STORAGE_CLASSES = [
  ...['REDUCED_REDUNDANCY', 'STANDARD_IA', 'ONEZONE_IA', 'INTELLIGENT_TIERING', 'GLACIER', 'DEEP_ARCHIVE'],
  ...['OUTPOSTS', 'GLACIER_IR', 'SNOW', 'EXPRESS_ONEZONE', 'FSX_OPENZFS'],
];

function checkStorageClass(storageClass = 'STANDARD'): void {
  if (UNSUPPORTED_STORAGE_CLASSES.includes(storageClass)) {
    throw new S3Error('NotImplemented', { message: `The storage class ${storageClass} is not implemented.` });
  }
  if (storageClass !== 'STANDARD') throw new S3Error('InvalidStorageClass');
}

function serviceOperation({ method }: Call): Operation | undefined {
  return method === 'GET' ? listBuckets : undefined;
}

/** Parts of a bucket or object that a request can name. Such a request must not reach the whole by mistake. */
const SUBRESOURCES = ['delete', 'location', 'notification', 'tagging', 'uploads', 'versioning', 'versions'];

function namesSubresource(query: Call['query']): boolean {
  return SUBRESOURCES.some((name) => query.has(name));
}

function bucketOperation({ method, query }: Call): Operation | undefined {
  switch (method) {
    case 'GET':
      if (query.has('location')) return getBucketLocation;
      if (query.has('versioning')) return getBucketVersioning;
      if (query.has('notification')) return getBucketNotification;
      if (query.has('tagging')) return getBucketTagging;
      if (query.has('versions')) return listObjectVersions;
      if (query.has('uploads')) return listMultipartUploads;
      return listing(query);
    case 'HEAD':
      return headBucket;
    case 'PUT':
      if (query.has('versioning')) return putBucketVersioning;
      if (query.has('tagging')) return putBucketTagging;
      if (query.has('notification')) return putBucketNotification;
      return namesSubresource(query) ? undefined : createBucket;
    case 'POST':
      return query.has('delete') ? deleteObjects : undefined;
    case 'DELETE':
      if (query.has('tagging')) return deleteBucketTagging;
      return namesSubresource(query) ? undefined : deleteBucket;
  }
}

function listing(query: Call['query']): Operation {
  const type = query.get('list-type') ?? '1';
  if (type === '2') return listObjectsV2;
  if (type === '1') return listObjectsV1;
  throw new S3Error('InvalidArgument', {
    message: 'Invalid List Type specified in Request',
    details: { ArgumentName: 'list-type', ArgumentValue: type },
  });
}

function objectOperation({ method, query, headers }: Call): Operation | undefined {
  const inUpload = query.has('uploadId');
  switch (method) {
    case 'GET':
      if (query.has('tagging')) return getObjectTagging;
      if (inUpload) return listParts;
      return readObject;
    case 'HEAD':
      return readObject;
    case 'PUT':
      if (query.has('tagging')) return putObjectTagging;
      if (namesSubresource(query)) return undefined;
      if (headers['x-amz-copy-source'] !== undefined) return inUpload ? uploadPartCopy : copyObject;
      return inUpload ? uploadPart : putObject;
    case 'POST':
      if (query.has('uploads')) return createMultipartUpload;
      return inUpload ? completeMultipartUpload : undefined;
    case 'DELETE':
      if (query.has('tagging')) return deleteObjectTagging;
      if (namesSubresource(query)) return undefined;
      return inUpload ? abortMultipartUpload : deleteObject;
  }
}
