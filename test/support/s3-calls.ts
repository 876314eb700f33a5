import {
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  type CreateMultipartUploadCommandInput,
  DeleteObjectCommand,
  type DeleteObjectCommandInput,
  GetObjectCommand,
  HeadObjectCommand,
  type HeadObjectCommandInput,
  ListObjectsV2Command,
  PutObjectCommand,
  type PutObjectCommandInput,
  type S3Client,
  S3ServiceException,
  UploadPartCommand,
} from '@aws-sdk/client-s3';

/** Where an object is or will be, and the client that asks for it. */
export interface Place {
  readonly client: S3Client;
  readonly Bucket: string;
  readonly Key: string;
}

type Body = string | Buffer;

export function put({ client, Bucket, Key }: Place, Body: Body, more: Partial<PutObjectCommandInput> = {}) {
  return client.send(new PutObjectCommand({ Bucket, Key, Body, ...more }));
}

export async function read({ client, Bucket, Key }: Place, VersionId?: string): Promise<string | undefined> {
  return (await client.send(new GetObjectCommand({ Bucket, Key, VersionId }))).Body?.transformToString();
}

export function head({ client, Bucket, Key }: Place, more: Partial<HeadObjectCommandInput> = {}) {
  return client.send(new HeadObjectCommand({ Bucket, Key, ...more }));
}

export function remove({ client, Bucket, Key }: Place, more: Partial<DeleteObjectCommandInput> = {}) {
  return client.send(new DeleteObjectCommand({ Bucket, Key, ...more }));
}

/** The keys of the first page of a listing. */
export async function list({ client, Bucket }: Omit<Place, 'Key'>, input: object = {}): Promise<string[]> {
  const { Contents = [] } = await client.send(new ListObjectsV2Command({ Bucket, ...input }));
  return Contents.map((object) => object.Key ?? '');
}

export interface Multipart {
  readonly UploadId: string | undefined;
  readonly parts: readonly Part[];
}

export interface Part {
  readonly PartNumber: number;
  readonly ETag: string | undefined;
}

/** Uploads the bodies as parts 1, 2, ... of a new multipart upload. */
export async function uploadParts(
  place: Place,
  bodies: readonly Body[],
  more: Partial<CreateMultipartUploadCommandInput> = {},
): Promise<Multipart> {
  const { client, Bucket, Key } = place;
  const { UploadId } = await client.send(new CreateMultipartUploadCommand({ Bucket, Key, ...more }));
  const parts: Part[] = [];
  for (const [index, body] of bodies.entries()) parts.push(await uploadPart(place, UploadId, index + 1, body));
  return { UploadId, parts };
}

export async function uploadPart(
  { client, Bucket, Key }: Place,
  UploadId: string | undefined,
  PartNumber: number,
  Body: Body,
): Promise<Part> {
  const { ETag } = await client.send(new UploadPartCommand({ Bucket, Key, UploadId, PartNumber, Body }));
  return { PartNumber, ETag };
}

export function complete({ client, Bucket, Key }: Place, { UploadId, parts }: Multipart, more: object = {}) {
  const MultipartUpload = { Parts: [...parts] };
  return client.send(new CompleteMultipartUploadCommand({ Bucket, Key, UploadId, MultipartUpload, ...more }));
}

/** The error of a refused call. If the call succeeds, the test fails. */
export async function refused(call: Promise<unknown>): Promise<S3ServiceException> {
  const error = await call.then(() => new Error('The call was not refused.')).catch((reason) => reason);
  if (error instanceof S3ServiceException) return error;
  throw error;
}

/** The status and the code of a refused call, such as `404 NoSuchKey`. If the call succeeds, the test fails. */
export async function refusal(call: Promise<unknown>): Promise<string> {
  const { name, $metadata } = await refused(call);
  return `${$metadata.httpStatusCode} ${name}`;
}
