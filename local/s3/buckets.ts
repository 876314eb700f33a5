import { type Call, EMPTY, isoSeconds, type S3Response, type Service, xmlResponse } from './call.ts';
import type { Versioning } from './catalog.ts';
import { S3Error } from './errors.ts';
import { receiveText } from './incoming.ts';
import { childText, parseXml } from './xml.ts';

/** Between 3 and 63 characters, which are lower-case letters, digits, dots and hyphens. */
const BUCKET_NAME = /^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/;

const OK: S3Response = { status: 200, headers: {}, body: EMPTY };
const NO_CONTENT: S3Response = { status: 204, headers: {}, body: EMPTY };

export function addBucket({ catalog, now }: Service, name: string, versioning?: Versioning): void {
  if (!BUCKET_NAME.test(name)) throw new S3Error('InvalidBucketName', { details: { BucketName: name } });
  catalog.transaction(() => catalog.createBucket({ name, versioning, createdMs: now() }));
}

/** The region in the body, if any, is not looked at: there is one. */
export function createBucket(service: Service, { bucket }: Call): S3Response {
  addBucket(service, bucket);
  return { ...OK, headers: { location: `/${bucket}` } };
}

export function headBucket({ catalog }: Service, { bucket }: Call): S3Response {
  catalog.bucket(bucket);
  return { ...OK, headers: { 'x-amz-bucket-region': 'us-east-1' } };
}

export function deleteBucket({ catalog }: Service, { bucket }: Call): S3Response {
  catalog.transaction(() => {
    catalog.bucket(bucket);
    catalog.deleteBucket(bucket);
  });
  return NO_CONTENT;
}

export function listBuckets({ catalog }: Service): S3Response {
  const buckets = catalog.buckets().map(
    ({ name, createdMs }) =>
      [
        'Bucket',
        [
          ['Name', name],
          ['CreationDate', isoSeconds(createdMs)],
        ],
      ] as const,
  );
  return xmlResponse([
    'ListAllMyBucketsResult',
    [
      ['Owner', [['ID', 'embedded']]],
      ['Buckets', buckets],
    ],
  ]);
}

/** Empty, which stands for us-east-1. */
export function getBucketLocation({ catalog }: Service, { bucket }: Call): S3Response {
  catalog.bucket(bucket);
  return xmlResponse(['LocationConstraint', '']);
}

export function getBucketVersioning({ catalog }: Service, { bucket }: Call): S3Response {
  const { versioning } = catalog.bucket(bucket);
  return xmlResponse(['VersioningConfiguration', [versioning && ['Status', versioning]]]);
}

export async function putBucketVersioning({ catalog }: Service, call: Call): Promise<S3Response> {
  catalog.bucket(call.bucket);
  const status = childText(parseXml(await receiveText(call), 'VersioningConfiguration'), 'Status');
  if (status !== 'Enabled' && status !== 'Suspended') throw new S3Error('MalformedXML');
  catalog.setVersioning(call.bucket, status);
  return OK;
}
