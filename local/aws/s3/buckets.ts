import {
  type Call,
  demand,
  EMPTY,
  integer,
  isoSeconds,
  OWNER,
  type S3Response,
  type Service,
  xmlResponse,
} from './call.ts';
import type { Versioning } from './catalog.ts';
import { S3Error } from './errors.ts';
import { REGION } from './events.ts';
import { receiveXml } from './incoming.ts';
import { childText } from './xml.ts';

/** 3 to 63 lower-case letters, digits, dots and hyphens. */
const BUCKET_NAME = /^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/;
/**
 * Two dots in a row, addresses, and the prefixes and suffixes that S3 keeps for itself.
 * @see https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html
 */
const RESERVED_BUCKET_NAME =
  /\.\.|^\d+\.\d+\.\d+\.\d+$|^(?:xn--|sthree-|amzn-s3-demo-)|(?:-s3alias|--ol-s3|--x-s3|--table-s3|\.mrap)$/;
const BUCKETS_MAX = 10_000;

const OK: S3Response = { status: 200, headers: {}, body: EMPTY };
const NO_CONTENT: S3Response = { status: 204, headers: {}, body: EMPTY };

export function addBucket({ database, catalog, now }: Service, name: string, versioning?: Versioning): void {
  if (!BUCKET_NAME.test(name) || RESERVED_BUCKET_NAME.test(name)) {
    throw new S3Error('InvalidBucketName', { details: { BucketName: name } });
  }
  database.transaction(() => catalog.createBucket({ name, versioning, createdMs: now() }));
}

/** Ignores the region in the body: there is only one. */
export async function createBucket(service: Service, call: Call): Promise<S3Response> {
  const { bucket, headers } = call;
  demand(service, call, 's3:CreateBucket');
  if (Number(headers['content-length'] ?? 0) > 0) await receiveXml(call, 'CreateBucketConfiguration');
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
  const { query } = call;
  demand(service, call, 's3:ListAllMyBuckets', { bucket: '*' });
  const prefix = query.get('prefix') ?? '';
  const after = query.get('continuation-token') ?? '';
  const max = integer(call, 'max-buckets', BUCKETS_MAX, BUCKETS_MAX);
  if (max === 0) throw new S3Error('InvalidArgument', { details: { ArgumentName: 'max-buckets', ArgumentValue: '0' } });
  const rest = service.catalog.buckets().filter(({ name }) => name.startsWith(prefix) && name > after);
  const buckets = rest.slice(0, max).map(
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
      OWNER,
      ['Buckets', buckets],
      query.has('prefix') ? ['Prefix', prefix] : undefined,
      rest.length > max ? ['ContinuationToken', rest[max - 1]?.name ?? after] : undefined,
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
  const request = await receiveXml(call, 'VersioningConfiguration');
  const status = childText(request, 'Status');
  if (childText(request, 'MfaDelete') === 'Enabled') throw new S3Error('NotImplemented');
  if (status === undefined) throw new S3Error('IllegalVersioningConfigurationException');
  if (status !== 'Enabled' && status !== 'Suspended') throw new S3Error('MalformedXML');
  catalog.setVersioning(call.bucket, status);
  return OK;
}
