import { isJobFile } from '../../functions/uploads/job-keys.ts';
import type { RoutedFile } from '../api.ts';
import { messageOf, putFile, RequestFailedError, route, type Sending } from './server.ts';

/**
 * `checking`: its route is being asked for. `ready`: a route takes it, and the user has not sent it yet. `refused`: no
 * flow would come of it. `stopped`: by the user. `failed`: it did not reach the inbox, and can be sent again.
 */
export type Phase = 'checking' | 'ready' | 'refused' | 'queued' | 'sending' | 'sent' | 'stopped' | 'failed';

/** A file that the user has chosen. */
export interface OutboxItem {
  /** Below the inbox's prefix. */
  readonly key: string;
  readonly file: File;
  phase: Phase;
  routed?: RoutedFile;
  /** Bytes that are on their way or have arrived. */
  sentBytes: number;
  /** Why it was refused, or did not arrive. */
  problem?: string;
  uploadId?: string;
  sending?: Sending;
}

/** A file with its key below the inbox's prefix: its path in the folder that was dropped. */
export interface ChosenFile {
  readonly key: string;
  readonly file: File;
}

/**
 * A file was cut off on its way. The browser tells late how much it has sent, and the server passes on what is complete.
 * A second upload would be paid for as well.
 */
const MAY_HAVE_ARRIVED =
  'If nearly all of it was sent, it may be in the inbox all the same. Look in the list before you send it again.';

/**
 * Files that are sent at the same time. A browser makes six connections to a server, and the page needs some itself.
 */
const CONCURRENCY = 3;
/** Files in one question for routes. The server takes 10,000. */
const ROUTED_TOGETHER = 1_000;
/** A larger job file is refused, so its content is not sent, in bytes. */
const JOB_BYTES_MAX = 256 * 1024;
/** Files that are on the list at the same time. */
export const ITEMS_MAX = 10_000;

/** Tells whether a file is a job, as the server says. */
export const isJob = ({ missing }: RoutedFile): boolean => missing !== undefined;

/** The files on their way from the user to the inbox. Dispatches `change` after each change. */
export class Outbox extends EventTarget {
  #items = new Map<string, OutboxItem>();

  get items(): readonly OutboxItem[] {
    return [...this.#items.values()];
  }

  get isSending(): boolean {
    return this.items.some(({ phase }) => phase === 'sending' || phase === 'queued');
  }

  /**
   * Takes files in, and asks which routes take them. A file replaces one with the same key that was not sent.
   * @returns how many files were left out because there are too many, and the keys of files that were replaced.
   */
  async add(files: readonly ChosenFile[]): Promise<{ readonly leftOut: number; readonly replaced: readonly string[] }> {
    const added: OutboxItem[] = [];
    const replaced: string[] = [];
    let leftOut = 0;
    for (const { key, file } of files) {
      const phase = this.#items.get(key)?.phase;
      if (phase === 'sending' || phase === 'queued' || (phase === undefined && this.#items.size >= ITEMS_MAX)) {
        leftOut += 1;
        continue;
      }
      if (phase !== undefined && phase !== 'sent') replaced.push(key);
      const item: OutboxItem = { key, file, phase: 'checking', sentBytes: 0 };
      this.#items.delete(key);
      this.#items.set(key, item);
      added.push(item);
    }
    this.#changed();
    // The files of a job are asked for together.
    const together = added.some(({ key }) => isJobFile(key)) ? ITEMS_MAX : ROUTED_TOGETHER;
    for (let at = 0; at < added.length; at += together) await this.#check(added.slice(at, at + together));
    return { leftOut, replaced };
  }

  async #check(items: readonly OutboxItem[]): Promise<void> {
    try {
      const files = await Promise.all(
        items.map(async ({ key, file }) => ({
          ...{ key, bytes: file.size },
          ...(file.type !== '' && { mediaType: file.type }),
          // The server needs it in order to route the files beside it.
          ...(isJobFile(key) && file.size <= JOB_BYTES_MAX && { job: await file.text() }),
        })),
      );
      const answers = await route({ files });
      for (const [i, item] of items.entries()) {
        const routed = answers[i];
        if (item.phase !== 'checking' || routed === undefined) continue;
        item.routed = routed;
        item.phase = routed.reason === undefined ? 'ready' : 'refused';
        if (routed.reason !== undefined) item.problem = routed.reason;
      }
    } catch (error) {
      for (const item of items) this.#fail(item, error);
    }
    this.#changed();
  }

  /** Sends all that is ready. */
  send(): void {
    for (const item of this.items) if (item.phase === 'ready') item.phase = 'queued';
    this.#sendNext();
    this.#changed();
  }

  /** Sends a file again that did not arrive. Its route is asked for first if it is not known. */
  sendAgain(item: OutboxItem): void {
    item.sentBytes = 0;
    delete item.problem;
    if (item.routed === undefined) {
      item.phase = 'checking';
      void this.#check([item]);
    } else {
      item.phase = 'queued';
      this.#sendNext();
    }
    this.#changed();
  }

  #sendNext(): void {
    const sending = this.items.filter(({ phase }) => phase === 'sending').length;
    const underWay = this.items.filter(({ phase }) => phase === 'sending' || phase === 'queued');
    // A job is sent after its inputs, so that it need not wait for them.
    const held = new Set(underWay.flatMap(({ routed }) => routed?.inputOf ?? []));
    const next = underWay.filter(({ phase, routed }) => phase === 'queued' && !held.has(routed?.key ?? ''));
    for (const item of next.slice(0, CONCURRENCY - sending)) void this.#sendOne(item);
  }

  /** The files of this list that are inputs of a job. */
  inputsOf({ routed }: OutboxItem): readonly OutboxItem[] {
    if (routed === undefined || !isJob(routed)) return [];
    return this.items.filter((each) => each.routed?.inputOf?.includes(routed.key) === true);
  }

  async #sendOne(item: OutboxItem): Promise<void> {
    item.phase = 'sending';
    item.sending = putFile(item.routed?.key ?? item.key, item.file, (bytes) => {
      item.sentBytes = Math.min(bytes, item.file.size);
      this.#changed();
    });
    try {
      const { id } = await item.sending.done;
      item.uploadId = id;
      item.sentBytes = item.file.size;
      item.phase = 'sent';
    } catch (error) {
      // The user may have stopped it meanwhile.
      if ((item.phase as Phase) !== 'stopped') this.#fail(item, error);
    }
    delete item.sending;
    this.#sendNext();
    this.#changed();
  }

  #fail(item: OutboxItem, error: unknown): void {
    // The server may refuse a file before it has all of it.
    const isAnswered = error instanceof RequestFailedError && error.code !== 'unreachable';
    const isSure = item.phase !== 'sending' || (isAnswered && item.sentBytes < item.file.size);
    item.phase = 'failed';
    item.problem = isSure ? messageOf(error) : `${messageOf(error)} ${MAY_HAVE_ARRIVED}`;
  }

  /** Stops all that has not arrived. What is stopped can be sent again. */
  stop(): void {
    for (const item of this.items) {
      if (item.phase !== 'queued' && item.phase !== 'sending') continue;
      item.problem = item.phase === 'queued' ? 'You stopped it.' : `You stopped it. ${MAY_HAVE_ARRIVED}`;
      item.phase = 'stopped';
      item.sending?.stop();
    }
    this.#changed();
  }

  /** A job goes with the inputs that are not on their way. */
  remove(item: OutboxItem): void {
    this.#items.delete(item.key);
    for (const { key, phase } of this.inputsOf(item)) {
      if (phase !== 'sending' && phase !== 'queued') this.#items.delete(key);
    }
    this.#changed();
  }

  /** Forgets all that is not on its way. */
  clear(): void {
    for (const { key, phase } of this.items) if (phase !== 'sending' && phase !== 'queued') this.#items.delete(key);
    this.#changed();
  }

  #changed(): void {
    this.dispatchEvent(new Event('change'));
  }
}
