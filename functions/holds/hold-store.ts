import { GetObjectCommand, PutObjectCommand, type S3Client } from '@aws-sdk/client-s3';
import type { Clock } from '../base/clock.ts';
import { HOLDS_KEY } from '../ledger/keys.ts';
import { Contention, demandFormat, OtherFormatError, UnreadableEntryError } from '../ledger/store.ts';
import { isAbsent, isConflict, isPreconditionFailed } from '../s3/errors.ts';
import { type Holds, holdsSchema, NO_HOLDS } from './holds.ts';

/** How old a state may be that is only looked at, in milliseconds. The uploads of a batch share a reading. */
export const HOLDS_AGE_MAX_MS = 1_000;

/** How long a change is tried while other processes write in between, in milliseconds. */
const CHANGE_MAX_MS = 30_000;

interface Known {
  readonly text: string;
  readonly etag: string | undefined;
  /** When it was read or written, in milliseconds since the epoch. */
  readonly at: number;
}

interface Change {
  readonly apply: (draft: Holds) => () => void;
  readonly reject: (error: unknown) => void;
  readonly signal: AbortSignal;
}

interface HoldStorePorts {
  readonly s3: S3Client;
  /** The ledger bucket. */
  readonly bucket: string;
  readonly key?: string;
  readonly clock: Clock;
  /** Returns a different string each time, of hexadecimal digits at its beginning. */
  readonly nonce: () => string;
}

/** The holds of a pipeline: one object of the ledger. It changes only by conditional writes. */
export class HoldStore {
  readonly #s3: S3Client;
  readonly #bucket: string;
  readonly #key: string;
  readonly #clock: Clock;
  readonly #nonce: () => string;
  #known: Known | undefined;
  #reading: Promise<Known> | undefined;
  #changes: Change[] = [];
  #later: ((draft: Holds) => void)[] = [];
  #isUrgent = false;
  #writing: Promise<void> | undefined;

  /** @param ports of the ledger. Another key is for tests that share a bucket. */
  constructor({ s3, bucket, key = HOLDS_KEY, clock, nonce }: HoldStorePorts) {
    this.#key = key;
    this.#s3 = s3;
    this.#bucket = bucket;
    this.#clock = clock;
    this.#nonce = nonce;
  }

  /** The holds, as they were a second ago or later. @throws {UnreadableEntryError} */
  async read(signal: AbortSignal): Promise<Holds> {
    const isFresh = this.#known !== undefined && this.#clock.now() - this.#known.at <= HOLDS_AGE_MAX_MS;
    const known = isFresh ? (this.#known as Known) : await this.#readNow(signal);
    return parsed(known.text);
  }

  /**
   * Changes the holds. Changes that are asked for at the same time share a write. If another process writes in between,
   * all are applied again, so a change that was applied already must change nothing.
   * @param change changes the draft, and returns what the caller wants to know.
   * @throws {LedgerContendedError} @throws {UnreadableEntryError}
   */
  change<T>(change: (draft: Holds) => T, signal: AbortSignal): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    const apply = (draft: Holds) => {
      const value = change(draft);
      return () => resolve(value);
    };
    this.#changes.push({ apply, reject, signal });
    this.#writing ??= this.#writeAll();
    return promise;
  }

  /**
   * Changes the holds with the next write. If this process dies before, a tick does it.
   * @param isUrgent true if {@link flush} makes a write for it.
   */
  later(change: (draft: Holds) => void, isUrgent: boolean): void {
    this.#later.push(change);
    this.#isUrgent ||= isUrgent;
  }

  /** Writes what was left for later, if some of it is urgent. */
  async flush(signal: AbortSignal): Promise<void> {
    if (this.#isUrgent) await this.change(() => undefined, signal);
  }

  async #writeAll(): Promise<void> {
    // Changes that come before the next microtask are part of the first write.
    await undefined;
    while (this.#changes.length > 0) {
      const changes = this.#changes;
      this.#changes = [];
      try {
        const values = await this.#write(changes);
        for (const tell of values) tell();
      } catch (error) {
        // The write was given up with the signal of one change. The others go on, if they may.
        const going = changes.filter(({ signal }) => !signal.aborted);
        const isGivenUp = going.length < changes.length;
        for (const { reject } of isGivenUp ? changes.filter(({ signal }) => signal.aborted) : changes) reject(error);
        if (isGivenUp) this.#changes.unshift(...going);
      }
    }
    this.#writing = undefined;
  }

  async #write(changes: readonly Change[]): Promise<readonly (() => void)[]> {
    const { signal } = changes[0] as Change;
    const contention = new Contention(HOLDS_KEY, CHANGE_MAX_MS, { clock: this.#clock, nonce: this.#nonce });
    let known = this.#known ?? (await this.#readNow(signal));
    for (;;) {
      const draft = parsed(known.text);
      const later = [...this.#later];
      for (const change of later) change(draft);
      const tells = changes.map(({ apply }) => apply(draft));
      const text = JSON.stringify(draft);
      if (text === known.text) {
        if (this.#clock.now() - known.at <= HOLDS_AGE_MAX_MS) return this.#done(later, tells);
        known = await this.#readNow(signal);
        continue;
      }
      try {
        const etag = await this.#put(text, known.etag, signal);
        this.#known = { text, etag, at: this.#clock.now() };
        return this.#done(later, tells);
      } catch (error) {
        this.#known = undefined;
        if (!isConflict(error) && !isPreconditionFailed(error) && !isAbsent(error)) throw error;
        await contention.pause(signal);
        known = await this.#readNow(signal);
      }
    }
  }

  #done<T>(later: readonly unknown[], tells: T): T {
    // More may have been left for later meanwhile.
    this.#later = this.#later.slice(later.length);
    if (this.#later.length === 0) this.#isUrgent = false;
    return tells;
  }

  async #put(Body: string, etag: string | undefined, signal: AbortSignal): Promise<string> {
    const put = new PutObjectCommand({
      ...{ Bucket: this.#bucket, Key: this.#key, Body, ContentType: 'application/json' },
      ...(etag === undefined ? { IfNoneMatch: '*' } : { IfMatch: etag }),
    });
    const { ETag } = await this.#s3.send(put, { abortSignal: signal });
    return ETag as string;
  }

  #readNow(signal: AbortSignal): Promise<Known> {
    this.#reading ??= this.#get(signal).finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  async #get(signal: AbortSignal): Promise<Known> {
    const at = this.#clock.now();
    try {
      const where = { Bucket: this.#bucket, Key: this.#key };
      const { Body, ETag } = await this.#s3.send(new GetObjectCommand(where), { abortSignal: signal });
      // The state in its canonical form, so that two texts can be compared.
      const text = JSON.stringify(parsed((await Body?.transformToString()) ?? ''));
      this.#known = { text, etag: ETag as string, at };
    } catch (error) {
      if (!isAbsent(error)) throw error;
      this.#known = { text: JSON.stringify(NO_HOLDS), etag: undefined, at };
    }
    return this.#known;
  }
}

/** @throws {UnreadableEntryError} Nothing may be sent then: it is unknown what is held, and what is spent. */
function parsed(text: string): Holds {
  try {
    const value: unknown = JSON.parse(text);
    demandFormat(HOLDS_KEY, value, 'nothing is sent');
    return holdsSchema.parse(value);
  } catch (cause) {
    if (cause instanceof OtherFormatError) throw cause;
    const remedy = 'Nothing is sent. Restore an older version of the object.';
    throw new UnreadableEntryError(`${HOLDS_KEY} is damaged. ${remedy}`, { cause });
  }
}
