import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { type Content, contentOf, type InboxFile } from './inbox-file.ts';
import { PRIVATE_FILE_MODE, PRIVATE_FOLDER_MODE } from './private-folder.ts';

/** A content that was dealt with. Version 0.1.0 did not remember the last two facts. */
type Known = Pick<Content, 'bytes' | 'modifiedMs'> & Partial<Pick<Content, 'changedMs' | 'sha256'>>;

/**
 * Which content of each file of the inbox folder was dealt with, so that no content is uploaded twice and none is
 * forgotten. What this run has uploaded is kept in memory. What later runs need not upload is also kept in a file.
 */
export class KnownFiles {
  readonly #path: string;
  /** What later runs skip, by key. */
  readonly #done: Map<string, Known>;
  /** The latest content of each key that this run has uploaded. */
  readonly #uploaded = new Map<string, Known>();
  #saved: Promise<void> = Promise.resolve();
  /** A writing that has not begun. */
  #nextSave: Promise<void> | undefined;

  static async load(path: string): Promise<KnownFiles> {
    const text = await readFile(path, 'utf8').catch((error) => {
      if (error.code === 'ENOENT') return '{}';
      throw error;
    });
    const entries = Object.entries<Known | string>(JSON.parse(text));
    return new KnownFiles(path, new Map(entries.map(([key, known]) => [key, parse(known)])));
  }

  private constructor(path: string, done: Map<string, Known>) {
    this.#path = path;
    this.#done = done;
  }

  get count(): number {
    return this.#done.size;
  }

  /**
   * True if this content was uploaded by this run, or dealt with by an earlier one. If size and modification time are
   * the same, but something has changed (the mode, or the content by a program that keeps the time), the file is read.
   * @throws {FileChangedError}
   */
  async has(file: InboxFile, signal: AbortSignal): Promise<boolean> {
    const known = this.#uploaded.get(file.key) ?? this.#done.get(file.key);
    if (known?.bytes !== file.bytes || known.modifiedMs !== file.modifiedMs) return false;
    if (known.changedMs === undefined || known.changedMs === file.changedMs) return true;
    const content = await contentOf(file, signal);
    if (content.sha256 !== known.sha256) return false;
    if (this.#uploaded.get(file.key) === known) this.#uploaded.set(file.key, content);
    if (this.#done.get(file.key) === known) await this.#keep(file.key, content);
    return true;
  }

  /** Takes note that this run has uploaded a content. It becomes the latest of its key. */
  uploaded(key: string, content: Content): void {
    this.#uploaded.set(key, content);
  }

  /**
   * Lets later runs skip a content, unless this run has uploaded a newer one at its key. Resolves when that is on disk.
   */
  async done(key: string, { sha256, bytes, modifiedMs }: Content): Promise<void> {
    const latest = this.#uploaded.get(key);
    // Its other facts may have been updated since.
    if (latest?.sha256 === sha256 && latest.bytes === bytes && latest.modifiedMs === modifiedMs) {
      await this.#keep(key, latest);
    }
  }

  #keep(key: string, known: Known): Promise<void> {
    this.#done.set(key, known);
    // One writing for all that is noted while the one before is under way.
    this.#nextSave ??= this.#saved
      .catch(() => undefined)
      .then(() => {
        this.#nextSave = undefined;
        return this.#save();
      });
    this.#saved = this.#nextSave;
    return this.#saved;
  }

  async #save(): Promise<void> {
    const next = `${this.#path}.new`;
    await mkdir(dirname(this.#path), { recursive: true, mode: PRIVATE_FOLDER_MODE });
    await writeFile(next, JSON.stringify(Object.fromEntries(this.#done), undefined, 2), {
      mode: PRIVATE_FILE_MODE,
      flush: true, // Otherwise a power cut could leave an empty file behind the new name.
    });
    await rename(next, this.#path);
  }
}

/** Version 0.1.0 wrote a text. Without its entries, files that were paid for would be sent again. */
function parse(known: Known | string): Known {
  if (typeof known !== 'string') return known;
  const [, bytes, modifiedMs] = /^(\d+) bytes, changed (.+)$/.exec(known) ?? [];
  return { bytes: Number(bytes), modifiedMs: Number(modifiedMs) };
}
