import { type Call, demand, EMPTY, isoSeconds, type S3Response, type Service, xmlResponse } from './call.ts';
import type { Versioning } from './catalog.ts';
import { S3Error } from './errors.ts';
import { receive, receiveXml } from './incoming.ts';
import { childText, type XmlElement } from './xml.ts';

/** 3 to 63 lower-case letters, digits, dots and hyphens. */
const BUCKET_NAME = /^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/;

const OK: S3Response = { status: 200, headers: {}, body: EMPTY };

/** Throws BucketAlreadyOwnedByYou, InvalidBucketName. */
export function addBucket({ catalog, now }: Service, name: string, versioning?: Versioning): void {
  if (!BUCKET_NAME.test(name)) throw new S3Error('InvalidBucketName', { details: { BucketName: name } });
  catalog.createBucket({ name, versioning, createdMs: now() });
}

/** Some clients send it before an upload. The body names a region, and there is only one. */
export function createBucket(service: Service, call: Call): S3Response {
  demand(service, call, 's3:CreateBucket');
  addBucket(service, call.bucket);
  return { ...OK, headers: { location: `/${call.bucket}` } };
}

export function headBucket(service: Service, call: Call): S3Response {
  demand(service, call, 's3:ListBucket');
  service.catalog.bucket(call.bucket);
  return OK;
}

/** All buckets, on one page. */
export function listBuckets(service: Service, call: Call): S3Response {
  demand(service, call, 's3:ListAllMyBuckets', { bucket: '*' });
  const buckets = service.catalog.buckets().map(({ name, createdMs }): XmlElement => {
    const children: XmlElement[] = [
      ['Name', name],
      ['CreationDate', isoSeconds(createdMs)],
    ];
    return ['Bucket', children];
  });
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
  demand(service, call, 's3:GetBucketLocation');
  service.catalog.bucket(call.bucket);
  return xmlResponse(['LocationConstraint', '']);
}

export function getBucketVersioning(service: Service, call: Call): S3Response {
  demand(service, call, 's3:GetBucketVersioning');
  const { versioning } = service.catalog.bucket(call.bucket);
  return xmlResponse(['VersioningConfiguration', [versioning && ['Status', versioning]]]);
}

export async function putBucketVersioning(service: Service, call: Call): Promise<S3Response> {
  demand(service, call, 's3:PutBucketVersioning');
  service.catalog.bucket(call.bucket);
  const status = childText(await receiveXml(call, 'VersioningConfiguration'), 'Status');
  if (status !== 'Enabled' && status !== 'Suspended') throw new S3Error('MalformedXML');
  service.catalog.setVersioning(call.bucket, status);
  return OK;
}

/** Keeps the configuration as it is. It has no effect: the option `onEvent` gets every event. */
export async function putBucketNotification(service: Service, call: Call): Promise<S3Response> {
  demand(service, call, 's3:PutBucketNotification');
  service.catalog.bucket(call.bucket);
  service.notifications.set(call.bucket, Buffer.concat(await Array.fromAsync(receive(call).chunks)));
  return OK;
}

export function getBucketNotification(service: Service, call: Call): S3Response {
  demand(service, call, 's3:GetBucketNotification');
  service.catalog.bucket(call.bucket);
  const none = xmlResponse(['NotificationConfiguration', []]);
  return { ...none, body: service.notifications.get(call.bucket) ?? none.body };
}
