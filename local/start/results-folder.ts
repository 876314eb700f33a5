import { createHash, randomUUID } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { mkdir, rename, rm } from 'node:fs/promises';
import { dirname, extname, join } from 'node:path';
import { pipeline } from 'node:stream/promises';

/** Characters that some file system forbids in a name; and `%`, which marks an encoded character. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: The pattern looks for control characters.
const UNSAFE_CHARACTERS = /[\u0000-\u001f\u007f<>:"|?*\\%]/g;
/** Names that Windows reserves for devices, with any extension. */
const DEVICE_NAME = /^(con|prn|aux|nul|com\d|lpt\d)(?=\.|$)/i;

/** Errors for a key that cannot be a path: it is too long, or there is a folder in the place of the file. */
const NO_PLACE_CODES = new Set(['ENAMETOOLONG', 'ENOTDIR', 'EISDIR', 'EEXIST', 'ENOTEMPTY']);

/** The folder that gets the objects of a bucket. Each file's path is its key, as far as file systems allow. */
export class ResultsFolder {
  readonly #dir: string;

  constructor(dir: string) {
    this.#dir = dir;
  }

  /**
   * Writes an object to a temporary file, and moves it to its path when it is complete. Returns the path, which is
   * inside the folder for every key.
   */
  async write(key: string, body: Iterable<Uint8Array> | AsyncIterable<Uint8Array>): Promise<string> {
    await mkdir(this.#dir, { recursive: true });
    const aside = join(this.#dir, `.incoming-${randomUUID()}`);
    try {
      await pipeline(body, createWriteStream(aside));
      const path = join(this.#dir, ...key.split('/').map(safeName));
      return await this.#move(aside, path).catch((error) => {
        if (!NO_PLACE_CODES.has(error.code)) throw error;
        const hash = createHash('sha256').update(key).digest('hex').slice(0, 32);
        return this.#move(aside, join(this.#dir, `%${hash}${safeName(extname(key).slice(0, 16))}`));
      });
    } finally {
      await rm(aside, { force: true });
    }
  }

  async #move(from: string, to: string): Promise<string> {
    await mkdir(dirname(to), { recursive: true });
    await rename(from, to);
    return to;
  }
}

/** Encodes a segment of a key as a file name. Different segments get different names. */
function safeName(segment: string): string {
  if (segment === '') return '%';
  return segment
    .replace(UNSAFE_CHARACTERS, percent)
    .replace(/[. ]$/, percent) // Windows drops these. Without a final dot, no segment leads to a parent folder.
    .replace(DEVICE_NAME, (name) => percent(name.slice(0, 1)) + name.slice(1));
}

/** Percent-encodes an ASCII character, including those that `encodeURIComponent` keeps. */
const percent = (character: string) => `%${character.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}`;
