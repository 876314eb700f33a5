import { createHash, randomUUID } from 'node:crypto';
import { constants } from 'node:fs';
import { mkdir, open, readdir, realpath, rename, rm } from 'node:fs/promises';
import { extname, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { isAlive } from '../operations/local-run.ts';
import { OpenFolder, PRIVATE_FILE_MODE, PRIVATE_FOLDER_MODE } from './private-folder.ts';

/**
 * Characters that some file system forbids in a name or ignores in comparisons, that a terminal obeys, or that are
 * invisible: control and format characters, separators of lines, halves of a surrogate pair. `~` before a digit may
 * be a short name of Windows: `GIT~1` is `.git` there. `%` marks an encoded character.
 */
const UNSAFE_CHARACTERS = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}<>:"|?*\\%]|~(?=\d)/gu;
/** Names that Windows reserves for devices, with any extension. */
const DEVICE_NAME = /^(con|prn|aux|nul|com\d|lpt\d)(?=\.|$)/i;

/**
 * Errors for a key that cannot be a path: it is too long, or a symlink, or something of another kind, is in its way.
 */
const NO_PLACE_CODES = new Set(['ENAMETOOLONG', 'ENOTDIR', 'EISDIR', 'EEXIST', 'ENOTEMPTY', 'ELOOP']);

/** A file that is being written. The number is the process that writes it. */
const INCOMING = /^\.incoming-(\d+)-/;

/** A file of the results folder has other bytes than were written there. It stays. */
export class ChangedFileError extends Error {
  override readonly name = 'ChangedFileError';
  constructor(path: string) {
    super(`${path} was changed after it was written, so it stays although the object is gone`);
  }
}

/** The folder that gets the objects of a bucket. Each file's path is its key, as far as file systems allow. */
export class ResultsFolder {
  readonly #dir: string;
  #isTidy = false;

  /** @param dir may be a symlink to a folder. What is in it may not. */
  constructor(dir: string) {
    this.#dir = dir;
  }

  /**
   * Writes an object to a temporary file, and moves it to its path when it is complete. Returns the path, which is
   * inside the folder for every key. No symlink is followed: a symlink in the place of the file is replaced, and with
   * one in the place of a parent folder, the file gets another path.
   * @param onWritten called with the path of the complete temporary file.
   */
  async write(
    key: string,
    body: Iterable<Uint8Array> | AsyncIterable<Uint8Array>,
    onWritten?: (path: string) => Promise<void> | undefined,
  ): Promise<string> {
    await mkdir(this.#dir, { recursive: true, mode: PRIVATE_FOLDER_MODE });
    await using root = await OpenFolder.open(await realpath(this.#dir));
    await this.#tidy(root);
    const aside = root.entry(`.incoming-${process.pid}-${randomUUID()}`);
    try {
      // Opened first. Otherwise, if the body fails at once, the file is created after it was removed, and stays.
      const file = await open(aside, 'wx', PRIVATE_FILE_MODE);
      await pipeline(body, file.createWriteStream());
      await onWritten?.(aside);
      const [own, other] = placesOf(key);
      const moveTo = async (names: readonly string[]): Promise<string> => {
        await at(root, names, (path) => rename(aside, path), { makesFolders: true });
        return join(this.#dir, ...names);
      };
      return await moveTo(own).catch((error) => {
        if (!NO_PLACE_CODES.has(error.code)) throw error;
        return moveTo(other);
      });
    } finally {
      await rm(aside, { force: true });
    }
  }

  /**
   * Removes the file of an object, if it is there. No symlink is followed, and none is removed.
   * @param sha256 of what was written, in hexadecimal.
   * @throws {ChangedFileError}
   */
  async remove(key: string, sha256: string): Promise<void> {
    for (const names of placesOf(key)) {
      const remove = async (path: string): Promise<void> => {
        if ((await sha256Of(path)) !== sha256) throw new ChangedFileError(join(this.#dir, ...names));
        await rm(path);
      };
      try {
        await using root = await OpenFolder.open(await realpath(this.#dir));
        return await at(root, names, remove, { makesFolders: false });
      } catch (error) {
        const { code = '' } = error as NodeJS.ErrnoException;
        if (code !== 'ENOENT' && !NO_PLACE_CODES.has(code)) throw error;
      }
    }
  }

  /** Removes what a killed process was writing. Another run may be writing into the folder now. */
  async #tidy(root: OpenFolder): Promise<void> {
    if (this.#isTidy) return;
    this.#isTidy = true;
    for (const name of await readdir(root.entry('.'))) {
      const pid = INCOMING.exec(name)?.[1];
      if (pid !== undefined && !isAlive(Number(pid))) await rm(root.entry(name), { force: true });
    }
  }
}

/** The names that lead to the file of a key: its own and, if these can be no path, one that is made of a hash. */
function placesOf(key: string): readonly [readonly string[], readonly string[]] {
  const hash = createHash('sha256').update(key).digest('hex').slice(0, 32);
  // An extension is no whole name, so it may begin with a dot.
  const extension = safeName(`_${extname(key).slice(0, 16)}`).slice(1);
  return [key.split('/').map(safeName), [`%${hash}${extension}`]];
}

/** @throws an error with one of the codes above if there is no file, but a folder or a symlink. */
async function sha256Of(path: string): Promise<string> {
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW);
  const hash = createHash('sha256');
  for await (const chunk of file.createReadStream()) hash.update(chunk);
  return hash.digest('hex');
}

/**
 * Changes what is at a path below `root`, which is reached through folders only.
 * @throws an error with one of the codes above.
 */
async function at(
  root: OpenFolder,
  names: readonly string[],
  change: (path: string) => Promise<void>,
  how: { readonly makesFolders: boolean },
): Promise<void> {
  let folder = root;
  try {
    for (const name of names.slice(0, -1)) {
      const parent = folder;
      folder = await parent.subfolder(name, how);
      if (parent !== root) await parent.close();
    }
    if (!(await folder.isInPlace())) {
      throw Object.assign(new Error(`${folder.path} was moved while a file in it was changed`), { code: 'ELOOP' });
    }
    await change(folder.entry(names.at(-1) as string));
  } finally {
    if (folder !== root) await folder.close();
  }
}

/**
 * Encodes a segment of a key as a file name. Different segments get different names. No name begins with a dot: such
 * files configure programs (`.git/config`, `.flowdrop/run.json`), and some file systems take `.GIT` for `.git`.
 */
function safeName(segment: string): string {
  if (segment === '') return '%';
  return segment
    .replace(UNSAFE_CHARACTERS, percent)
    .replace(/^\./, percent)
    .replace(/[. ]$/, percent) // Windows drops these. Without a final dot, no segment leads to a parent folder.
    .replace(DEVICE_NAME, (name) => percent(name.slice(0, 1)) + name.slice(1));
}

/** Percent-encodes the UTF-8 of a character. Half of a surrogate pair has none: it becomes `%u` and its code. */
function percent(character: string): string {
  if (!character.isWellFormed()) return `%u${character.charCodeAt(0).toString(16).toUpperCase()}`;
  return Array.from(Buffer.from(character), (byte) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`).join('');
}
