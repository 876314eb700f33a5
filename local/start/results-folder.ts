import { createHash, randomUUID } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { mkdir, rename, rm } from 'node:fs/promises';
import { dirname, extname, join } from 'node:path';
import { pipeline } from 'node:stream/promises';

/** What some file system or other does not allow in a name, and the sign that marks an encoded character. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: They are what is looked for.
const UNSAFE_CHARACTERS = /[\u0000-\u001f\u007f<>:"|?*\\%]/g;
/** Names that Windows keeps for devices, whatever their extension. */
const DEVICE_NAME = /^(con|prn|aux|nul|com\d|lpt\d)(?=\.|$)/i;

/** What a file system answers where a key has no place of its own: too long, or a folder where a file must go. */
const NO_PLACE_CODES = new Set(['ENAMETOOLONG', 'ENOTDIR', 'EISDIR', 'EEXIST', 'ENOTEMPTY']);

/** A folder into which the objects of a bucket are written, each under its key as far as file systems allow. */
export class ResultsFolder {
  readonly #dir: string;

  constructor(dir: string) {
    this.#dir = dir;
  }

  /**
   * Writes an object aside and moves it to its place when it is whole. Returns the path.
   * Whatever the key is, the path is within the folder.
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

/** A segment of a key as the name of a file. No two segments come to the same name. */
function safeName(segment: string): string {
  if (segment === '') return '%';
  return segment
    .replace(UNSAFE_CHARACTERS, percent)
    .replace(/[. ]$/, percent) // Windows drops these, and without a dot at its end no segment is a way up.
    .replace(DEVICE_NAME, (name) => percent(name.slice(0, 1)) + name.slice(1));
}

/** Also of the characters that `encodeURIComponent` leaves alone. All that come here are ASCII. */
const percent = (character: string) => `%${character.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}`;
