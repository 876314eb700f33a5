import { type Call, demand, EMPTY, isoSeconds, type S3Response, type Service, xmlResponse } from './call.ts';
import type { Versioning } from './catalog.ts';
import { S3Error } from './errors.ts';
import { REGION } from './events.ts';
import { receiveXml } from './incoming.ts';
import { childText } from './xml.ts';

/** 3 to 63 lower-case letters, digits, dots and hyphens. */
const BUCKET_NAME = /^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/;

const OK: S3Response = { status: 200, headers: {}, body: EMPTY };
const NO_CONTENT: S3Response = { status: 204, headers: {}, body: EMPTY };

export function addBucket({ database, catalog, now }: Service, name: string, versioning?: Versioning): void {
  if (!BUCKET_NAME.test(name)) throw new S3Error('InvalidBucketName', { details: { BucketName: name } });
  database.transaction(() => catalog.createBucket({ name, versioning, createdMs: now() }));
}

/** Ignores the region in the body: there is only one. */
export function createBucket(service: Service, call: Call): S3Response {
  const { bucket } = call;
  demand(service, call, 's3:CreateBucket');
  addBucket(service, bucket);
  return { ...OK, headers: { location: `/${bucket}` } };
}

export function headBucket(service: Service, call: Call): S3Response {
  const { catalog } = service;
  const { bucket } = call;
  demand(service, call, 's3:ListBucket');
  catalog.bucket(bucket);
  return { ...OK, headers: { 'x-amz-bucket-region': REGION } };
}

export function deleteBucket(service: Service, call: Call): S3Response {
  const { database, catalog } = service;
  const { bucket } = call;
  demand(service, call, 's3:DeleteBucket');
  database.transaction(() => {
    catalog.bucket(bucket);
    catalog.deleteBucket(bucket);
  });
  return NO_CONTENT;
}

export function listBuckets(service: Service, call: Call): S3Response {
  const { catalog } = service;
  demand(service, call, 's3:ListAllMyBuckets', { bucket: '*' });
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

/** Answers an empty location, which means us-east-1. */
export function getBucketLocation(service: Service, call: Call): S3Response {
  const { catalog } = service;
  const { bucket } = call;
  demand(service, call, 's3:GetBucketLocation');
  catalog.bucket(bucket);
  return xmlResponse(['LocationConstraint', '']);
}

export function getBucketVersioning(service: Service, call: Call): S3Response {
  const { catalog } = service;
  const { bucket } = call;
  demand(service, call, 's3:GetBucketVersioning');
  const { versioning } = catalog.bucket(bucket);
  return xmlResponse(['VersioningConfiguration', [versioning && ['Status', versioning]]]);
}

export async function putBucketVersioning(service: Service, call: Call): Promise<S3Response> {
  const { catalog } = service;
  demand(service, call, 's3:PutBucketVersioning');
  catalog.bucket(call.bucket);
  const status = childText(await receiveXml(call, 'VersioningConfiguration'), 'Status');
  if (status !== 'Enabled' && status !== 'Suspended') throw new S3Error('MalformedXML');
  catalog.setVersioning(call.bucket, status);
  return OK;
}
