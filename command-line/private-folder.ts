import { chmodSync, constants, existsSync, mkdirSync, readdirSync } from 'node:fs';
import { type FileHandle, lstat, mkdir, open } from 'node:fs/promises';
import { join } from 'node:path';
import { ConfigurationError } from '../functions/base/validation.ts';

/**
 * Modes of what only the user of this run may read: uploads, results, logs and the ledger are copies of private files.
 */
export const PRIVATE_FOLDER_MODE = 0o700;
export const PRIVATE_FILE_MODE = 0o600;

/**
 * Makes a folder, or takes one that is there, and closes it to other users, with all that is in it. An earlier run may
 * have left it open, or another program may have written into it.
 * @throws {ConfigurationError} the folder belongs to another user.
 */
export function makePrivate(dir: string): void {
  mkdirSync(dir, { recursive: true, mode: PRIVATE_FOLDER_MODE });
  // From the top: once a folder is closed, no other user can exchange what is in it.
  chmod(dir, PRIVATE_FOLDER_MODE);
  closeAll(dir);
}

function closeAll(dir: string): void {
  for (const entry of readdirSync(dir, { withFileTypes: true })) {
    const path = join(dir, entry.name);
    try {
      if (entry.isDirectory()) {
        chmod(path, PRIVATE_FOLDER_MODE);
        closeAll(path);
      } else if (entry.isFile()) {
        chmod(path, PRIVATE_FILE_MODE);
      }
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error; // Another run has just removed it.
    }
  }
}

function chmod(path: string, mode: number): void {
  try {
    chmodSync(path, mode);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EPERM') throw error;
    const issue = `${path} belongs to another user, who could read your files in it. Delete it, or start elsewhere.`;
    throw new ConfigurationError([issue], { cause: error });
  }
}

/** Linux has a path for each open folder, which leads to that folder even if another one has taken its name. */
const DESCRIPTORS = '/proc/self/fd';
const HAS_DESCRIPTORS = existsSync(DESCRIPTORS);

/**
 * A folder that is held open, so that nobody can put a symlink in its place. Node has no `openat`: on Linux the paths
 * of descriptors stand in for it. Elsewhere the path is checked before each use, and an attacker has the time in
 * between.
 */
export class OpenFolder implements AsyncDisposable {
  /** Its path when it was opened. */
  readonly path: string;
  readonly #handle: FileHandle;

  /**
   * @param path has no symlink in it.
   * @throws an error with the code ELOOP or ENOTDIR if the path leads to a symlink, or to no folder.
   */
  static open(path: string): Promise<OpenFolder> {
    return OpenFolder.#open(path, path);
  }

  static async #open(through: string, path: string): Promise<OpenFolder> {
    return new OpenFolder(path, await open(through, constants.O_DIRECTORY | constants.O_NOFOLLOW));
  }

  private constructor(path: string, handle: FileHandle) {
    this.path = path;
    this.#handle = handle;
  }

  /** A path that leads to an entry of this folder. */
  entry(name: string): string {
    return join(this.#itself, name);
  }

  /**
   * Opens a folder in this one.
   * @param makesFolders true to make it if it is missing.
   * @throws as `open` does, and ENOTDIR for a file.
   */
  async subfolder(name: string, { makesFolders }: { readonly makesFolders: boolean }): Promise<OpenFolder> {
    if (makesFolders) {
      await mkdir(this.entry(name), PRIVATE_FOLDER_MODE).catch((error) => {
        if (error.code !== 'EEXIST') throw error;
      });
    }
    return OpenFolder.#open(this.entry(name), join(this.path, name));
  }

  /** True if the folder still is where it was opened. */
  async isInPlace(): Promise<boolean> {
    const [held, there] = await Promise.all([this.#handle.stat(), lstat(this.path).catch(() => undefined)]);
    return there?.ino === held.ino && there.dev === held.dev;
  }

  /** Closing it again changes nothing. */
  close(): Promise<void> {
    return this.#handle.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  get #itself(): string {
    return HAS_DESCRIPTORS ? join(DESCRIPTORS, String(this.#handle.fd)) : this.path;
  }
}
