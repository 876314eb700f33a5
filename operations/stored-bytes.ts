import type { Readable } from 'node:stream';
import { GetObjectCommand, type GetObjectCommandInput } from '@aws-sdk/client-s3';
import type { Entry, Input } from '../functions/ledger/entry.ts';
import { isAbsent, isArchived, isPreconditionFailed } from '../functions/s3/errors.ts';
import { UPLOAD_ID } from '../functions/uploads/upload.ts';
import type { Deployment } from './deployment.ts';
import { type ReadEntry, readEntry } from './listing.ts';

/** The bytes of an object, or a part of them. They are not read yet. */
export interface StoredBytes {
  readonly body: Readable;
  /** Number of bytes that come. */
  readonly bytes: number | undefined;
  /** As S3 writes it, if a part was asked for. */
  readonly contentRange: string | undefined;
  /** User metadata by names in lower case. */
  readonly metadata: Readonly<Record<string, string>>;
}

/** First and last byte, counted from 0. */
export interface ByteRange {
  readonly first: number;
  readonly last: number;
}

export const isUploadId = (text: string): boolean => UPLOAD_ID.test(text);

/** The entry of an upload id. Undefined if the text is none. */
export const entryOf = async (
  text: string,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<ReadEntry | undefined> => (isUploadId(text) ? readEntry(text, deployment, signal) : undefined);

/** The objects that a flow of an upload gets: its file, or the assets of the stage before it. */
export const inputsOf = ({ upload, inputs }: Entry): readonly Input[] => inputs ?? [upload];

/** Opens exactly the version that a flow gets. Undefined if it is gone. */
export function openInput(
  { bucket, key, versionId, etag }: Pick<Input, 'bucket' | 'key' | 'versionId' | 'etag'>,
  range: ByteRange | undefined,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<StoredBytes | undefined> {
  const match = etag === undefined ? {} : { IfMatch: `"${etag}"` };
  const pin = versionId === undefined ? match : { VersionId: versionId };
  return open({ Bucket: bucket, Key: key, ...pin }, range, deployment, signal);
}

/** Opens an object of the results. Undefined if it is gone. */
export function openResult(
  key: string,
  range: ByteRange | undefined,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<StoredBytes | undefined> {
  return open({ Bucket: deployment.settings.resultsBucket, Key: key }, range, deployment, signal);
}

async function open(
  where: Pick<GetObjectCommandInput, 'Bucket' | 'Key' | 'VersionId' | 'IfMatch'>,
  range: ByteRange | undefined,
  { s3 }: Deployment,
  abortSignal: AbortSignal,
): Promise<StoredBytes | undefined> {
  const Range = range && `bytes=${range.first}-${range.last}`;
  try {
    const answer = await s3.send(new GetObjectCommand({ ...where, Range }), { abortSignal });
    const { Body, ContentLength: bytes, ContentRange: contentRange, Metadata: metadata = {} } = answer;
    return { body: Body as Readable, bytes, contentRange, metadata };
  } catch (error) {
    if (isAbsent(error) || isPreconditionFailed(error) || isArchived(error)) return undefined;
    throw error;
  }
}
