import { createHash } from 'node:crypto';
import { constants, type Stats } from 'node:fs';
import { type FileHandle, open, realpath, stat } from 'node:fs/promises';
import { isAbsolute, relative, sep } from 'node:path';
import { Readable } from 'node:stream';
import { AbortMultipartUploadCommand, ListMultipartUploadsCommand, type S3Client } from '@aws-sdk/client-s3';
import { Upload } from '@aws-sdk/lib-storage';
import { partBytesOf } from '../../functions/s3/limits.ts';
import { headObject } from '../../functions/s3/objects.ts';

/** What tells one content of a file from the next without reading it. Times in milliseconds since the epoch. */
export interface FileVersion {
  readonly bytes: number;
  readonly modifiedMs: number;
  /** Time of the last change of content, name or mode (ctime). Unlike `modifiedMs`, no program can set it. */
  readonly changedMs: number;
}

/** One version of a file to upload. */
export interface InboxFile extends FileVersion {
  readonly path: string;
  /** The path below the inbox folder, with slashes. It becomes the key of the upload. */
  readonly key: string;
  /**
   * The inbox folder without symlinks in its path. The file is not read if it is outside. Default: it may be anywhere.
   */
  readonly root?: string;
}

/** The content of one version of a file. */
export interface Content extends FileVersion {
  /** Hexadecimal. */
  readonly sha256: string;
}

/** The file is no longer the version that was to be read. Another one may be there, or none. */
export class FileChangedError extends Error {
  override readonly name = 'FileChangedError';
}

/** Bytes that are read at a time. */
const BLOCK_BYTES = 1024 * 1024;

export const versionOf = ({ size: bytes, mtimeMs: modifiedMs, ctimeMs: changedMs }: Stats): FileVersion => ({
  bytes,
  modifiedMs,
  changedMs,
});

export const isSameVersion = (a: FileVersion, b: FileVersion): boolean =>
  a.bytes === b.bytes && a.modifiedMs === b.modifiedMs && a.changedMs === b.changedMs;

/** True if a path is in a folder. Neither has a symlink in it. */
export function isBelow(folder: string, path: string): boolean {
  const below = relative(folder, path);
  return below !== '' && below !== '..' && !below.startsWith(`..${sep}`) && !isAbsolute(below);
}

/**
 * Reads exactly one version of a file, in blocks. Returns its content after the last block.
 * @throws {FileChangedError} after the last block, if the file changed while it was read. Discard what was read then.
 * @throws the signal's reason when it aborts.
 */
export async function* readVersion(file: InboxFile, signal: AbortSignal): AsyncGenerator<Uint8Array, Content> {
  const handle = await openVersion(file);
  try {
    const sha256 = createHash('sha256');
    for (let position = 0; position < file.bytes; ) {
      signal.throwIfAborted();
      const block = Buffer.allocUnsafeSlow(Math.min(BLOCK_BYTES, file.bytes - position));
      const { bytesRead } = await handle.read(block, 0, block.length, position);
      if (bytesRead === 0) break; // It was cut meanwhile. The check below says so.
      position += bytesRead;
      sha256.update(block.subarray(0, bytesRead));
      yield block.subarray(0, bytesRead);
    }
    signal.throwIfAborted();
    await checkVersion(file, handle);
    const { bytes, modifiedMs, changedMs } = file;
    return { bytes, modifiedMs, changedMs, sha256: sha256.digest('hex') };
  } finally {
    await handle.close();
  }
}

/** The content of a version. @throws as {@link readVersion} does. */
export async function contentOf(file: InboxFile, signal: AbortSignal): Promise<Content> {
  const blocks = readVersion(file, signal);
  for (;;) {
    const { done, value } = await blocks.next();
    if (done) return value;
  }
}

/** True if the file still is this version. */
export async function isUnchanged(file: InboxFile): Promise<boolean> {
  try {
    await (await openVersion(file)).close();
    return true;
  } catch (error) {
    if (error instanceof FileChangedError) return false;
    throw error;
  }
}

async function openVersion(file: InboxFile): Promise<FileHandle> {
  // If a pipe took the file's place, opening it without O_NONBLOCK would block until another process writes into it.
  const handle = await open(file.path, constants.O_RDONLY | constants.O_NONBLOCK).catch((error) => {
    if (error.code === 'ENOENT') throw new FileChangedError(`${file.path} is gone`, { cause: error });
    throw error;
  });
  try {
    await checkVersion(file, handle);
    return handle;
  } catch (error) {
    await handle.close();
    throw error;
  }
}

/**
 * Checks that the open file is the version, and that it is what the path leads to: it may have been replaced or moved.
 */
async function checkVersion(file: InboxFile, handle: FileHandle): Promise<void> {
  const opened = await handle.stat();
  const path = await realpath(file.path).catch(() => undefined);
  const there = path === undefined ? undefined : await stat(path).catch(() => undefined);
  if (!opened.isFile() || !isSameVersion(file, versionOf(opened))) throw new FileChangedError(`${file.path} changed`);
  if (path === undefined || there === undefined || there.ino !== opened.ino || there.dev !== opened.dev) {
    throw new FileChangedError(`${file.path} was replaced or moved`);
  }
  if (file.root !== undefined && !isBelow(file.root, path)) {
    throw new FileChangedError(`${file.path} leads out of the inbox folder`);
  }
}

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
