import { createHash } from 'node:crypto';
import {
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  GetObjectCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  type PutObjectCommandInput,
  type S3Client,
  S3ServiceException,
  UploadPartCommand,
} from '@aws-sdk/client-s3';
import { afterAll, test } from 'vitest';
import { type BucketKind, openTarget } from './target.ts';

/** The S3 of this test file. */
export const target = await openTarget();
afterAll(() => target.close());

export interface Given {
  readonly client: S3Client;
  readonly Bucket: string;
  /** A key that no other test uses. Keys that begin with it are free too. */
  readonly Key: string;
}

/** Tests one behaviour with a bucket of a kind. The names in behaviour.test.ts are the rows of docs/s3-behaviour.md. */
export function behaviour(name: string, kind: BucketKind | 'any', ask: (given: Given) => Promise<void>): void {
  test(name, async ({ skip }) => {
    const bucket = target.bucket(kind);
    if ('missing' in bucket) return skip(bucket.missing);
    const id = createHash('sha256').update(name).digest('hex').slice(0, 12);
    await ask({ client: target.client, Bucket: bucket.name, Key: `${target.prefix}${id}` });
  });
}

export function put({ client, Bucket, Key }: Given, Body: string | Buffer, more: Partial<PutObjectCommandInput> = {}) {
  return client.send(new PutObjectCommand({ Bucket, Key, Body, ...more }));
}

export async function read({ client, Bucket, Key }: Given, VersionId?: string): Promise<string | undefined> {
  return (await client.send(new GetObjectCommand({ Bucket, Key, VersionId }))).Body?.transformToString();
}

export async function list({ client, Bucket }: Given, input: Record<string, unknown>): Promise<string[]> {
  const { Contents = [] } = await client.send(new ListObjectsV2Command({ Bucket, ...input }));
  return Contents.map((object) => object.Key ?? '');
}

export interface Refusal {
  readonly status: number | undefined;
  readonly code: string;
  readonly headers: Readonly<Record<string, string>>;
}

export async function refused(call: Promise<unknown>): Promise<Refusal> {
  try {
    await call;
  } catch (error) {
    if (!(error instanceof S3ServiceException)) throw error;
    const { httpStatusCode: status } = error.$metadata;
    return { status, code: error.name, headers: error.$response?.headers ?? {} };
  }
  throw new Error('The request was not refused.');
}

export interface Multipart {
  readonly UploadId: string | undefined;
  readonly parts: readonly { readonly PartNumber: number; readonly ETag: string | undefined }[];
}

/** Uploads the bodies as parts 1, 2, ... of a new multipart upload. */
export async function upload(
  { client, Bucket, Key }: Given,
  bodies: readonly (string | Buffer)[],
  more: object = {},
): Promise<Multipart> {
  const { UploadId } = await client.send(new CreateMultipartUploadCommand({ Bucket, Key, ...more }));
  const parts = [];
  for (const [index, Body] of bodies.entries()) {
    const PartNumber = index + 1;
    const { ETag } = await client.send(new UploadPartCommand({ Bucket, Key, UploadId, PartNumber, Body }));
    parts.push({ PartNumber, ETag });
  }
  return { UploadId, parts };
}

export function complete({ client, Bucket, Key }: Given, { UploadId, parts }: Multipart, condition: object = {}) {
  const MultipartUpload = { Parts: [...parts] };
  return client.send(new CompleteMultipartUploadCommand({ Bucket, Key, UploadId, MultipartUpload, ...condition }));
}
