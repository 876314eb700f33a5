import { createHash } from 'node:crypto';
import { constants, type Stats } from 'node:fs';
import { type FileHandle, open, realpath, stat } from 'node:fs/promises';
import { isAbsolute, relative, sep } from 'node:path';

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
