import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { PRIVATE_FILE_MODE, PRIVATE_FOLDER_MODE } from '../../command-line/private-folder.ts';
import { Semaphore } from '../../functions/base/semaphore.ts';
import { folderOf, isJobFile } from '../../functions/uploads/job-keys.ts';
import { type Content, contentOf, FileChangedError, type InboxFile, isSameVersion } from './inbox-file.ts';
import type { InboxFolder } from './inbox-folder.ts';

/** Maximum number of files that are uploaded at the same time. */
export const UPLOADS_MAX = 4;
/**
 * A file that could not be uploaded is tried again after this time in milliseconds, doubled each time up to an hour.
 */
const RETRY_MS = 60_000;
const RETRY_MAX_MS = 3_600_000;

export interface InboxWatchOptions {
  readonly inbox: InboxFolder;
  readonly known: KnownFiles;
  readonly signal: AbortSignal;
  /** Returns what was uploaded. Undefined if no route wants the file. */
  readonly upload: (file: InboxFile, signal: AbortSignal) => Promise<Content | undefined>;
  /** True if S3 has an object of exactly this version. */
  readonly isUploaded: (file: InboxFile, signal: AbortSignal) => Promise<boolean>;
  /** Called when a file could not be uploaded. It is tried again later. */
  readonly onFailure: (file: InboxFile, error: unknown) => void;
  /** Called when the signal aborted before S3 had the file. */
  readonly onInterruption: (file: InboxFile) => void;
  /** Called when it could not be written down that a content was dealt with. */
  readonly onError: (error: unknown) => void;
}

/**
 * Uploads what the inbox folder offers, each content once. What is tracked is the content: a key may get a new one
 * while the old one waits, is uploaded or runs.
 *
 *   settled ──▶ queued ──▶ known? ──▶ uploaded ──▶ written down, so that later runs skip it
 *      ▲                     │
 *      │                     ▼
 *      │                  skipped
 *      │
 *      └── changed or gone before its end was read (S3 gets nothing), or the upload failed
 */
export class InboxWatch {
  readonly #options: InboxWatchOptions;
  readonly #slots = new Semaphore(UPLOADS_MAX);
  /** The work on each key, one content after the other: otherwise S3 could take the older one for the current one. */
  readonly #work = new Map<string, Promise<void>>();
  readonly #failures = new Map<string, number>();
  /** The latest version of each key that was found changed. */
  readonly #changed = new Map<string, InboxFile>();
  readonly #notes = new Set<Promise<void>>();

  constructor(options: InboxWatchOptions) {
    this.#options = options;
  }

  /**
   * Begins to upload what has settled since the last call. A job file comes after all files of its folder: the job would
   * take what an earlier run has sent of them.
   */
  async poll(): Promise<void> {
    const settled = await this.#options.inbox.poll();
    for (const file of settled.toSorted((one, other) => Number(isJobFile(one.key)) - Number(isJobFile(other.key)))) {
      const before = isJobFile(file.key) ? this.#workBelow(folderOf(file.key)) : [this.#work.get(file.key)];
      const work = Promise.all(before).then(() => this.#slots.through(() => this.#take(file)));
      this.#work.set(file.key, work);
      work.finally(() => {
        if (this.#work.get(file.key) === work) this.#work.delete(file.key);
      });
    }
  }

  #workBelow(folder: string): readonly Promise<void>[] {
    return Array.from(this.#work).flatMap(([key, work]) => (key.startsWith(folder) ? [work] : []));
  }

  /** Resolves when nothing is being uploaded or written down. Soon, if the signal has aborted. */
  async idle(): Promise<void> {
    while (this.#work.size + this.#notes.size > 0) await Promise.all([...this.#work.values(), ...this.#notes]);
  }

  /** Never rejects. */
  async #take(file: InboxFile): Promise<void> {
    const { inbox, signal, onFailure, onInterruption } = this.#options;
    try {
      signal.throwIfAborted();
      await this.#uploadUnlessKnown(file);
      this.#failures.delete(file.key);
      this.#changed.delete(file.key);
    } catch (error) {
      if (signal.aborted) {
        onInterruption(file);
        return;
      }
      if (error instanceof FileChangedError && !this.#isUnchanged(file)) {
        inbox.offerAgain(file.key); // Offers the version that is there by then.
        return;
      }
      const failures = this.#failures.get(file.key) ?? 0;
      this.#failures.set(file.key, failures + 1);
      inbox.offerAgain(file.key, Math.min(RETRY_MAX_MS, RETRY_MS * 2 ** failures));
      onFailure(file, error);
    }
  }

  async #uploadUnlessKnown(file: InboxFile): Promise<void> {
    const { known, signal, upload, isUploaded } = this.#options;
    if (await known.has(file, signal)) return;
    // A run may have been killed after S3 had the file, and before that was written down.
    if (await isUploaded(file, signal)) {
      const content = await contentOf(file, signal);
      known.uploaded(file.key, content);
      await known.done(file.key, content);
      return;
    }
    const content = await upload(file, signal);
    if (content === undefined) return;
    known.uploaded(file.key, content);
    this.#note(known.done(file.key, content));
  }

  /**
   * True if the folder offered the same version again after it was said to have changed. Its file system may be at
   * fault.
   */
  #isUnchanged(file: InboxFile): boolean {
    const before = this.#changed.get(file.key);
    this.#changed.set(file.key, file);
    return before !== undefined && isSameVersion(before, file);
  }

  #note(written: Promise<void>): void {
    const note = written.catch(this.#options.onError).finally(() => this.#notes.delete(note));
    this.#notes.add(note);
  }
}

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
