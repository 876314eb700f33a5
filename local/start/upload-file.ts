import { Readable } from 'node:stream';
import { AbortMultipartUploadCommand, ListMultipartUploadsCommand, type S3Client } from '@aws-sdk/client-s3';
import { Upload } from '@aws-sdk/lib-storage';
import { partBytesOf } from '../../functions/s3/limits.ts';
import { headObject } from '../../functions/s3/objects.ts';
import { type Content, type FileVersion, type InboxFile, readVersion } from './inbox-file.ts';

/** Parts of one upload that are on their way at the same time. Each takes up to three times its size of memory. */
const PARTS_IN_FLIGHT_MAX = 2;

/** The name of the metadata that holds the version of the file that an object was made of. */
const VERSION_METADATA = 'flowdrop-local-file';

export interface UploadTerms {
  readonly s3: S3Client;
  readonly bucket: string;
  readonly key: string;
  readonly signal: AbortSignal;
  /** Called with the bytes that S3 has, after every part. */
  readonly onProgress?: (bytes: number) => void;
  /** Called when all bytes were read. From now on S3 may have the object, although it has not answered. */
  readonly onRead?: () => void;
}

/** A file as S3 has it. */
export interface UploadedFile {
  readonly versionId: string | undefined;
  readonly content: Content;
}

/**
 * Uploads one version of a file: with one request, or in parts if it is larger than a part. If the file changes before
 * its end was read, S3 gets no object. When this rejects, S3 keeps no parts either, unless it could not be reached.
 * @throws {FileChangedError}
 * @throws the signal's reason if it aborts before all bytes were read.
 * @throws the errors of the file system and of S3.
 */
export async function uploadFile(file: InboxFile, terms: UploadTerms): Promise<UploadedFile> {
  const { s3, bucket, key, signal, onProgress, onRead } = terms;
  let content: Content | undefined;
  async function* body(): AsyncGenerator<Uint8Array, void> {
    content = yield* readVersion(file, signal);
    onRead?.();
  }
  const stream = Readable.from(body(), { objectMode: false });
  const upload = new Upload({
    client: s3,
    // The body fails when the signal aborts. The abort controller of Upload does not wait for its parts to be removed.
    params: { Bucket: bucket, Key: key, Body: stream, Metadata: { [VERSION_METADATA]: textOf(file) } },
    partSize: partBytesOf(file.bytes),
    queueSize: PARTS_IN_FLIGHT_MAX,
  });
  upload.on('httpUploadProgress', ({ loaded = 0 }) => onProgress?.(loaded));
  try {
    const { VersionId: versionId } = await upload.done();
    return { versionId, content: content as Content };
  } finally {
    stream.destroy(); // Closes the file if S3 failed before its end.
  }
}

/** True if the current object at a key was made of exactly this version of the file. */
export async function isUploaded(
  version: FileVersion,
  { s3, bucket, key, signal }: Pick<UploadTerms, 's3' | 'bucket' | 'key' | 'signal'>,
): Promise<boolean> {
  const head = await headObject(s3, { Bucket: bucket, Key: key }, signal);
  return head?.Metadata?.[VERSION_METADATA] === textOf(version);
}

/** Removes the parts of uploads that a killed process left. Call it while nobody uploads. */
export async function abortUnfinishedUploads(s3: S3Client, bucket: string): Promise<void> {
  for (;;) {
    const { Uploads = [] } = await s3.send(new ListMultipartUploadsCommand({ Bucket: bucket }));
    if (Uploads.length === 0) return;
    for (const { Key, UploadId } of Uploads) {
      await s3.send(new AbortMultipartUploadCommand({ Bucket: bucket, Key, UploadId }));
    }
  }
}

const textOf = ({ bytes, modifiedMs, changedMs }: FileVersion): string => `${bytes} ${modifiedMs} ${changedMs}`;
