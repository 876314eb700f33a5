import {
  AbortMultipartUploadCommand,
  type CompletedPart,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  type S3Client,
  UploadPartCommand,
  UploadPartCopyCommand,
} from '@aws-sdk/client-s3';
import pMap from 'p-map';
import { ifThere } from '../s3/errors.ts';

/** Size of a part that S3 copies itself, in bytes. It takes a few seconds. */
const COPIED_PART_BYTES = 256 * 1024 * 1024;

/** Parts that S3 copies side by side. */
const COPIES_MAX = 8;

/** An object that is copied, in exactly this version. */
export interface CopySource {
  readonly bucket: string;
  readonly key: string;
  /** Without quotes. */
  readonly etag: string;
  readonly bytes: number;
}

/** The object that an upload makes. */
export interface UploadTarget {
  readonly Bucket: string;
  readonly Key: string;
  readonly ContentType: string;
  readonly ContentDisposition?: string;
  readonly Metadata: Record<string, string>;
  readonly Tagging?: string;
}

/** What tells one version of an object from others, in S3's words. */
export interface ObjectVersion {
  readonly ETag?: string | undefined;
  readonly VersionId?: string | undefined;
}

/** One multipart upload. It begins with its first part, sends one part at a time, and ends completed or aborted. */
export class MultipartUpload {
  readonly #s3: S3Client;
  readonly #target: UploadTarget;
  readonly #signal: AbortSignal;
  /** Undefined before the first part and after the end. */
  #uploadId: string | undefined;
  #sending: Promise<void> = Promise.resolve();
  readonly #parts: CompletedPart[] = [];

  constructor(s3: S3Client, target: UploadTarget, signal: AbortSignal) {
    this.#s3 = s3;
    this.#target = target;
    this.#signal = signal;
  }

  get isOpen(): boolean {
    return this.#uploadId !== undefined;
  }

  /** Resolves when a part can be sent: the upload exists, and the part before has arrived. */
  async ready(): Promise<void> {
    this.#uploadId ??= await this.#create();
    await this.#sending;
  }

  /**
   * Begins to send a part; {@link ready} must have resolved before. The next `ready` rejects if sending fails.
   * @param onEnd called once, when the part has arrived or has failed.
   */
  send(body: Uint8Array, onEnd: (outcome: 'sent' | 'failed') => void): void {
    const PartNumber = this.#parts.length + 1;
    const part: CompletedPart = { PartNumber };
    this.#parts.push(part);
    this.#sending = this.#s3
      .send(new UploadPartCommand({ ...this.#key(), UploadId: this.#uploadId, PartNumber, Body: body }), {
        abortSignal: this.#signal,
      })
      .then(
        ({ ETag, ChecksumCRC32 }) => {
          part.ETag = ETag;
          part.ChecksumCRC32 = ChecksumCRC32;
          onEnd('sent');
        },
        (error) => {
          onEnd('failed');
          throw error;
        },
      );
    // The next `ready` or `complete` awaits this promise. Until then its rejection must not count as unhandled.
    this.#sending.catch(() => {});
  }

  /** Makes S3 copy a whole object as its parts. @throws 404 or 412 if that object is not there any more. */
  async copy({ bucket, key, etag, bytes }: CopySource): Promise<void> {
    this.#uploadId ??= await this.#create();
    const source = {
      ...this.#key(),
      UploadId: this.#uploadId,
      CopySource: `${bucket}/${key.split('/').map(encodeURIComponent).join('/')}`,
      CopySourceIfMatch: `"${etag}"`,
    };
    const count = Math.max(1, Math.ceil(bytes / COPIED_PART_BYTES));
    const parts = await pMap(
      Array.from({ length: count }, (_, index) => index),
      async (index): Promise<CompletedPart> => {
        const first = index * COPIED_PART_BYTES;
        const last = Math.min(bytes, first + COPIED_PART_BYTES) - 1;
        // S3 refuses a range of a small object.
        const range = count > 1 && { CopySourceRange: `bytes=${first}-${last}` };
        const part = new UploadPartCopyCommand({ ...source, ...range, PartNumber: index + 1 });
        const { CopyPartResult } = await this.#s3.send(part, { abortSignal: this.#signal });
        return { ...done(CopyPartResult), PartNumber: index + 1 };
      },
      { concurrency: COPIES_MAX },
    );
    this.#parts.push(...parts);
  }

  /**
   * Makes the object appear under its key.
   * @param condition default: the key is free.
   * @throws 412 if the condition is not met: see `isPreconditionFailed`.
   */
  async complete(
    condition: { readonly IfNoneMatch: '*' } | { readonly IfMatch: string | undefined } = { IfNoneMatch: '*' },
  ): Promise<ObjectVersion> {
    await this.#sending;
    const complete = new CompleteMultipartUploadCommand({
      ...this.#key(),
      UploadId: this.#uploadId,
      MultipartUpload: { Parts: this.#parts },
      ...condition,
    });
    const { ETag, VersionId } = done(await this.#s3.send(complete, { abortSignal: this.#signal }));
    this.#uploadId = undefined;
    return { ETag, VersionId };
  }

  /** Removes the parts of an upload that is still open. Ignores the signal, which may be the reason for the abort. */
  async abort(): Promise<void> {
    await this.#sending.catch(() => {}); // Only wait for the part in progress: the caller handles its error already.
    const UploadId = this.#uploadId;
    this.#uploadId = undefined;
    if (UploadId === undefined) return;
    // If it is not there, it was completed, and only the answer was lost.
    await ifThere(this.#s3.send(new AbortMultipartUploadCommand({ ...this.#key(), UploadId })));
  }

  async #create(): Promise<string> {
    const { UploadId } = await this.#s3.send(
      new CreateMultipartUploadCommand({ ...this.#target, ChecksumAlgorithm: 'CRC32' }),
      { abortSignal: this.#signal },
    );
    return UploadId as string;
  }

  #key() {
    const { Bucket, Key } = this.#target;
    return { Bucket, Key };
  }
}

/**
 * S3 may fail after it has begun to answer 200, and the SDK does not see every error behind that.
 * @see https://docs.aws.amazon.com/AmazonS3/latest/API/API_CompleteMultipartUpload.html
 */
function done<T extends { readonly ETag?: string | undefined }>(answer: T | undefined): T {
  if (answer?.ETag === undefined) throw new Error('S3 answered 200, and did not do it');
  return answer;
}
