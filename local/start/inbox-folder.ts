import type { Dirent } from 'node:fs';
import { lstat, readdir, realpath, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { shownPath } from '../../command-line/texts.ts';
import type { Clock } from '../../functions/base/clock.ts';
import { type InboxFile, isBelow, isSameVersion, versionOf } from './inbox-file.ts';

/** A file counts as complete when it has not changed for this time, in milliseconds. */
const SETTLE_MS = 1_000;
/** A file that grows with pauses must rest for this many times its longest pause. */
const SETTLE_PAUSES = 3;
/**
 * The longest rest, in milliseconds. Two changes that are further apart count as two edits, not as one writer's pause:
 * a user who saves a file every minute should not have to wait for minutes.
 */
const SETTLE_MAX_MS = 30_000;

/**
 * The same for a file that was already taken, in milliseconds. A later change is a correction, which the user waits
 * for. If it grows again soon after that, a writer makes long pauses, and the longest rest is the limit again.
 */
const TAKEN_PAUSE_MAX_MS = 3_000;

interface Seen {
  readonly file: InboxFile;
  /** When this version was first seen. */
  readonly since: number;
  /** Longest time between two changes that made the file larger, in milliseconds. */
  readonly longestPauseMs: number;
  /** True if an earlier version of it was seen. */
  readonly hasChanged: boolean;
  readonly taken: boolean;
  /** True if it grew soon after it had been taken. */
  readonly hasRegrown: boolean;
}

/**
 * The folder into which the user puts files. It is polled, not watched. Chokidar 6.0.0 was tried: when a busy process
 * misses events (Linux drops them above 16,384), it never learns of the files, and its rest before an event has one
 * length and heeds only the size, so a file that grew with pauses of 1.5 s came three times.
 */
export class InboxFolder {
  readonly #dir: string;
  readonly #clock: Pick<Clock, 'now'>;
  readonly #isLeftOut: (key: string) => boolean;
  #seen = new Map<string, Seen>();
  #troubles: string[] = [];

  /** @param isLeftOut tells of the path of a file within the folder whether it has the name of no person's file. */
  constructor(dir: string, clock: Pick<Clock, 'now'>, isLeftOut: (key: string) => boolean) {
    this.#dir = dir;
    this.#clock = clock;
    this.#isLeftOut = isLeftOut;
  }

  /** What the last poll had to leave out, each as a sentence. */
  get troubles(): readonly string[] {
    return this.#troubles;
  }

  /** The files that were seen to change, and are not complete yet. */
  get changing(): readonly InboxFile[] {
    return Array.from(
      this.#seen.values().filter(({ hasChanged, taken }) => hasChanged && !taken),
      ({ file }) => file,
    );
  }

  /**
   * Returns the files that have become complete since the last poll: they have not changed for a second, or for longer
   * if they were growing with pauses. Each file is returned once, and again after a change. Hidden files, files in
   * hidden folders, files that are left out by their names, such as unfinished downloads, and symlinks that lead out
   * of the folder are ignored.
   */
  async poll(): Promise<InboxFile[]> {
    const files = await this.files();
    if (files === undefined) return []; // The folder is gone, perhaps for a moment. What was in it is not forgotten.
    const now = this.#clock.now();
    const seen = new Map<string, Seen>();
    const settled: InboxFile[] = [];
    for (const file of files) {
      const next = nextSeen(this.#seen.get(file.key), file, now);
      const isSettled = now - next.since >= restMs(next);
      if (isSettled && !next.taken) settled.push(file);
      seen.set(file.key, { ...next, taken: next.taken || isSettled });
    }
    this.#seen = seen;
    return settled;
  }

  /**
   * Lets a later poll return a file again that could not be uploaded, `delayMs` later than a new file at the earliest.
   */
  offerAgain(key: string, delayMs = 0): void {
    const seen = this.#seen.get(key);
    if (seen) this.#seen.set(key, { ...seen, since: this.#clock.now() + delayMs, taken: false });
  }

  /** The files in the folder. Undefined if the folder itself cannot be read. */
  async files(): Promise<InboxFile[] | undefined> {
    this.#troubles = [];
    try {
      const root = await realpath(this.#dir);
      const files: InboxFile[] = [];
      for await (const { entry, key } of this.#entries('')) {
        const file = await this.#file(entry, key, root);
        if (file) files.push(file);
      }
      return files;
    } catch (error) {
      const why = isGone(error)
        ? 'is gone. Make it again, and its files are taken'
        : `cannot be read (${codeOf(error)})`;
      this.#troubles = [`The inbox ${shownPath(this.#dir)} ${why}.`];
      return undefined;
    }
  }

  /** What is in a folder and below it, apart from folders. A folder that cannot be read holds up no other one. */
  async *#entries(folder: string): AsyncGenerator<{ readonly entry: Dirent; readonly key: string }> {
    for (const entry of await readdir(join(this.#dir, folder), { withFileTypes: true })) {
      if (entry.name.startsWith('.')) continue;
      const key = folder === '' ? entry.name : `${folder}/${entry.name}`;
      if (!entry.isDirectory()) {
        yield { entry, key };
        continue;
      }
      try {
        yield* this.#entries(key);
      } catch (error) {
        // It may have been removed, or replaced by a file, since its parent was read.
        if (!isGone(error)) this.#leaveOut('folder', key, `cannot be read (${codeOf(error)}). Its files are left out`);
      }
    }
  }

  /** Undefined if the entry is no file to take. */
  async #file(entry: Dirent, key: string, root: string): Promise<InboxFile | undefined> {
    if (this.#isLeftOut(key)) return undefined;
    const path = join(this.#dir, key);
    try {
      if (entry.isSymbolicLink() && !isBelow(root, await realpath(path))) {
        this.#leaveOut('link', key, 'leads out of the inbox, so it is not followed. Copy the file');
        return undefined;
      }
      const facts = await (entry.isSymbolicLink() ? stat(path) : lstat(path));
      return facts.isFile() ? { path, key, root, ...versionOf(facts) } : undefined;
    } catch (error) {
      if (!isGone(error)) this.#leaveOut('file', key, `cannot be read (${codeOf(error)})`);
      // Node puts this character in the place of bytes that are not UTF-8. Such a name leads to no file.
      else if (key.includes('\ufffd')) this.#leaveOut('file', key, 'has a name that is not UTF-8. Rename it');
      return undefined; // Removed since, or a link that leads nowhere.
    }
  }

  #leaveOut(kind: string, key: string, why: string): void {
    this.#troubles.push(`The ${kind} ${shownPath(join(this.#dir, key))} ${why}.`);
  }
}

const codeOf = (error: unknown): string => (error as NodeJS.ErrnoException).code ?? String(error);
const isGone = (error: unknown): boolean => ['ENOENT', 'ENOTDIR', 'ELOOP'].includes(codeOf(error));

/** What is known of a file that was seen now. */
function nextSeen(before: Seen | undefined, file: InboxFile, now: number): Seen {
  if (before === undefined)
    return { file, since: now, longestPauseMs: 0, hasChanged: false, taken: false, hasRegrown: false };
  if (isSameVersion(before.file, file)) return before;
  const pauseMs = now - before.since;
  const pauseMaxMs = before.taken && !before.hasRegrown ? TAKEN_PAUSE_MAX_MS : SETTLE_MAX_MS;
  const isLarger = file.bytes > before.file.bytes;
  const isGrowing = isLarger && pauseMs <= pauseMaxMs;
  const hasRegrown = isLarger && pauseMs <= SETTLE_MAX_MS && (before.taken || before.hasRegrown);
  const longestPauseMs = isGrowing ? Math.max(before.longestPauseMs, pauseMs) : 0;
  return { file, since: now, longestPauseMs, hasChanged: true, taken: false, hasRegrown };
}

const restMs = ({ longestPauseMs }: Seen): number =>
  Math.min(SETTLE_MAX_MS, Math.max(SETTLE_MS, SETTLE_PAUSES * longestPauseMs));
