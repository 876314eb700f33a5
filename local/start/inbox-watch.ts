import { Semaphore } from '../../functions/base/semaphore.ts';
import { type Content, contentOf, FileChangedError, type InboxFile, isSameVersion } from './inbox-file.ts';
import type { InboxFolder } from './inbox-folder.ts';
import type { KnownFiles } from './known-files.ts';

/** Maximum number of files that are uploaded at the same time. */
export const UPLOADS_MAX = 4;
/**
 * A file that could not be uploaded is tried again after this time in milliseconds, doubled each time up to an hour.
 */
const RETRY_MS = 60_000;
const RETRY_MAX_MS = 3_600_000;

/** A file that is in the inbox bucket. */
export interface WatchedUpload {
  readonly content: Content;
  /** Resolves when its results are in the results folder. Never rejects. It may stay unresolved. */
  readonly delivered: Promise<void>;
}

export interface InboxWatchOptions {
  readonly inbox: InboxFolder;
  readonly known: KnownFiles;
  /** When a content counts as dealt with, so that later runs skip it. */
  readonly remember: 'uploaded' | 'ended';
  readonly signal: AbortSignal;
  /** Returns undefined if no route wants the file. */
  readonly upload: (file: InboxFile, signal: AbortSignal) => Promise<WatchedUpload | undefined>;
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
 *   settled ──▶ queued ──▶ known? ──▶ uploaded ──▶ ended, results delivered
 *      ▲                     │            │ remember: 'uploaded'    │ remember: 'ended'
 *      │                     ▼            ▼                         ▼
 *      │                  skipped      written down              written down, unless a newer content was uploaded
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

  /** Begins to upload what has settled since the last call. */
  async poll(): Promise<void> {
    for (const file of await this.#options.inbox.poll()) {
      const before = this.#work.get(file.key) ?? Promise.resolve();
      const work = before.then(() => this.#slots.through(() => this.#take(file)));
      this.#work.set(file.key, work);
      work.finally(() => {
        if (this.#work.get(file.key) === work) this.#work.delete(file.key);
      });
    }
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
    const { known, remember, signal, upload, isUploaded } = this.#options;
    if (await known.has(file, signal)) return;
    // A run may have been killed after S3 had the file, and before that was written down.
    if (remember === 'uploaded' && (await isUploaded(file, signal))) {
      const content = await contentOf(file, signal);
      known.uploaded(file.key, content);
      await known.done(file.key, content);
      return;
    }
    const uploaded = await upload(file, signal);
    if (uploaded === undefined) return;
    const { content, delivered } = uploaded;
    known.uploaded(file.key, content);
    if (remember === 'uploaded') this.#note(known.done(file.key, content));
    else delivered.then(() => this.#note(known.done(file.key, content)));
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
