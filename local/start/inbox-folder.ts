import { mkdir, readdir, readFile, rename, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Clock } from '../../functions/base/clock.ts';
import { PRIVATE_FILE_MODE, PRIVATE_FOLDER_MODE } from './private-folder.ts';

export interface InboxFile {
  readonly path: string;
  /** The path below the folder, with slashes. It becomes the key of the upload. */
  readonly key: string;
  readonly bytes: number;
  readonly modifiedMs: number;
}

/** A file counts as complete when it has not changed for this time, in milliseconds. */
const SETTLE_MS = 1_000;

/** Names that browsers, editors and copy tools give to unfinished files. */
const UNFINISHED = /(\.(part|partial|crdownload|download|filepart|tmp|temp|swp)|~)$|^~\$/i;

interface Seen {
  readonly version: string;
  readonly since: number;
  readonly taken: boolean;
}

/**
 * The folder into which the user puts files. It is polled. The system's file events differ by platform, do not come
 * from network drives, and never say that a file is complete.
 */
export class InboxFolder {
  readonly #dir: string;
  readonly #clock: Pick<Clock, 'now'>;
  #seen = new Map<string, Seen>();

  constructor(dir: string, clock: Pick<Clock, 'now'>) {
    this.#dir = dir;
    this.#clock = clock;
  }

  /**
   * Returns the files that have become complete since the last poll: same size and modification time for a second. Each
   * file is returned once, and again after a change. Hidden files, files in hidden folders, and files with the name of
   * an unfinished download are ignored.
   */
  async poll(): Promise<InboxFile[]> {
    const now = this.#clock.now();
    const seen = new Map<string, Seen>();
    const settled: InboxFile[] = [];
    for (const file of await this.#files()) {
      const version = versionOf(file);
      const before = this.#seen.get(file.key);
      const same = before?.version === version;
      const since = same ? before.since : now;
      const isSettled = now - since >= SETTLE_MS;
      if (isSettled && !(same && before.taken)) settled.push(file);
      seen.set(file.key, { version, since, taken: isSettled });
    }
    this.#seen = seen;
    return settled;
  }

  async #files(): Promise<InboxFile[]> {
    const entries = await readdir(this.#dir, { recursive: true, withFileTypes: true });
    const files: InboxFile[] = [];
    for (const entry of entries) {
      if (entry.isDirectory()) continue;
      const path = join(entry.parentPath, entry.name);
      const segments = path.slice(this.#dir.length).split(/[\\/]/).filter(Boolean);
      if (segments.some((segment) => segment.startsWith('.')) || UNFINISHED.test(entry.name)) continue;
      // If the file is gone, or is a broken link, there is nothing to do.
      const facts = await stat(path).catch(() => undefined);
      if (!facts?.isFile()) continue;
      files.push({ path, key: segments.join('/'), bytes: facts.size, modifiedMs: facts.mtimeMs });
    }
    return files;
  }
}

/** Remembers, in a file, which files were processed, so that no restart uploads them again. */
export class KnownFiles {
  readonly #path: string;
  readonly #versions: Map<string, string>;
  #saved: Promise<void> = Promise.resolve();

  static async load(path: string): Promise<KnownFiles> {
    const text = await readFile(path, 'utf8').catch((error) => {
      if (error.code === 'ENOENT') return '{}';
      throw error;
    });
    return new KnownFiles(path, new Map(Object.entries(JSON.parse(text))));
  }

  private constructor(path: string, versions: Map<string, string>) {
    this.#path = path;
    this.#versions = versions;
  }

  get count(): number {
    return this.#versions.size;
  }

  has(file: InboxFile): boolean {
    return this.#versions.get(file.key) === versionOf(file);
  }

  /** Resolves when the file is remembered on disk. */
  add(file: InboxFile): Promise<void> {
    this.#versions.set(file.key, versionOf(file));
    this.#saved = this.#saved.then(() => this.#save());
    return this.#saved;
  }

  async #save(): Promise<void> {
    await mkdir(dirname(this.#path), { recursive: true, mode: PRIVATE_FOLDER_MODE });
    await writeFile(`${this.#path}.new`, JSON.stringify(Object.fromEntries(this.#versions), undefined, 2), {
      mode: PRIVATE_FILE_MODE,
    });
    await rename(`${this.#path}.new`, this.#path);
  }
}

const versionOf = ({ bytes, modifiedMs }: InboxFile) => `${bytes} bytes, changed ${modifiedMs}`;
