import type { Readable } from 'node:stream';
import { GetObjectCommand, PutObjectCommand, type S3Client } from '@aws-sdk/client-s3';
import type { Clock } from '../base/clock.ts';
import type { Semaphore } from '../base/semaphore.ts';
import { ifThere, isConditionUnmet, isConflict } from '../s3/errors.ts';
import { ContendedError, UnreadableEntryError } from './store.ts';

/** How long a change is tried while other processes write in between, in milliseconds. A large chain takes a second. */
const CHANGE_MAX_MS = 60_000;

/** Shortest and longest pause after a write that another process won, in milliseconds. It doubles each time. */
const PAUSE_MIN_MS = 10;
const PAUSE_MAX_MS = 1_000;

/** The bucket of a ledger, and the sources of time and chance. */
export interface LedgerPorts {
  readonly s3: S3Client;
  /** The ledger bucket. */
  readonly bucket: string;
  readonly clock: Clock;
  /** Returns a different string each time, of hexadecimal digits at its beginning. */
  readonly nonce: () => string;
}

interface DocumentPorts<T> extends LedgerPorts {
  readonly key: string;
  /** @throws {UnreadableEntryError} nothing may be done with the object. */
  readonly parse: (text: string) => T;
  /** Default: its JSON. */
  readonly print?: (value: T) => string;
  /** What does not happen while the object is larger than `bytesMax`. Default: an object of any size is read. */
  readonly tooLarge?: { readonly bytesMax: number; readonly consequence: string };
  /** Bounds how many documents are in memory. Default: no bound. */
  readonly inMemory?: Semaphore;
}

/** A document as this process knows it. */
interface Version<T> {
  /** Undefined if there is none. */
  readonly value: T | undefined;
  readonly etag: string | undefined;
  /** When it was written by us, or the reading began, in milliseconds since the epoch. */
  readonly at: number;
  /** When it was written, by S3's clock. Undefined if it was not read. */
  readonly writtenAt?: number | undefined;
}

/**
 * An object of the ledger that several processes change: the holds, a chain, the state of the sweep or of a collector. It
 * changes by conditional writes only, so S3 decides which process goes on.
 *
 * If another process has written in between, a change pauses, reads the object, and is made again. The pause doubles, and
 * is spread by chance, so that many writers do not meet again. If S3 has written our change and only its answer was lost,
 * the change is made again too. So a change that is made twice must change nothing the second time.
 */
export class Document<T> {
  readonly #ports: DocumentPorts<T>;
  readonly #inMemory: Pick<Semaphore, 'through'>;
  #known: Version<T> | undefined;
  #reading: Promise<Version<T>> | undefined;

  constructor(ports: DocumentPorts<T>) {
    this.#ports = ports;
    this.#inMemory = ports.inMemory ?? { through: (body) => body() };
  }

  /**
   * The document as it is, or as it was at most `ageMaxMs` ago. Those who read at the same time share a request.
   * @throws {UnreadableEntryError}
   */
  read(signal: AbortSignal, ageMaxMs?: number): Promise<Version<T>> {
    const known = this.#known;
    return known !== undefined && this.#isFresh(known, ageMaxMs)
      ? Promise.resolve(known)
      : this.#inMemory.through(() => this.#readNow(signal));
  }

  /**
   * Changes the document, which is read first, and returns its value then.
   * @param change returns the same value if there is nothing to change. If it throws, nothing is written.
   * @param ageMaxMs if given, the change is made from the document as this process knows it, so that most changes read
   * nothing. Only for the answer that there is nothing to change may it be no older, in milliseconds.
   * @throws {ContendedError} @throws {UnreadableEntryError}
   */
  async update(
    change: (value: T | undefined) => T | undefined,
    signal: AbortSignal,
    ageMaxMs?: number,
  ): Promise<T | undefined> {
    const { clock, nonce, key } = this.#ports;
    const endsAt = clock.now() + CHANGE_MAX_MS;
    let known = ageMaxMs === undefined ? undefined : this.#known;
    for (let pauseMs = PAUSE_MIN_MS; ; pauseMs = Math.min(PAUSE_MAX_MS, pauseMs * 2)) {
      const changed = await this.#inMemory.through(() => this.#tryToChange(known, change, ageMaxMs, signal));
      if (changed !== undefined) return changed.value;
      if (clock.now() >= endsAt) {
        throw new ContendedError(`${key} was written by others for ${CHANGE_MAX_MS / 1000} seconds`);
      }
      await clock.sleep(pauseMs * (0.5 + chanceOf(nonce())), signal);
      known = undefined;
    }
  }

  /** ETag of the document as this process knows it. Undefined if it knows none. */
  get etag(): string | undefined {
    return this.#known?.etag;
  }

  /** Takes another process's word for the document, and its ETag. A put finds out if it was written since. */
  assume(text: string, etag: string): T {
    const value = this.#ports.parse(text);
    this.#known = { value, etag, at: Number.NEGATIVE_INFINITY };
    return value;
  }

  /**
   * Writes the document over the one that this process knows.
   * @returns false if another process has written it since, or made or deleted it.
   */
  put(value: T, signal: AbortSignal): Promise<boolean> {
    return this.#put(value, this.#known?.etag, signal);
  }

  async #put(value: T, etag: string | undefined, signal: AbortSignal): Promise<boolean> {
    const { s3, bucket, key, clock, print = JSON.stringify } = this.#ports;
    const put = new PutObjectCommand({
      ...{ Bucket: bucket, Key: key, Body: print(value), ContentType: 'application/json' },
      ...(etag === undefined ? { IfNoneMatch: '*' } : { IfMatch: etag }),
    });
    try {
      const { ETag } = await s3.send(put, { abortSignal: signal });
      this.#known = { value, etag: ETag, at: clock.now() };
      return true;
    } catch (error) {
      if (!isConflict(error) && !isConditionUnmet(error)) throw error;
      this.#known = undefined;
      return false;
    }
  }

  /** @returns undefined if another process has written it since. */
  async #tryToChange(
    known: Version<T> | undefined,
    change: (value: T | undefined) => T | undefined,
    ageMaxMs: number | undefined,
    signal: AbortSignal,
  ): Promise<Pick<Version<T>, 'value'> | undefined> {
    let version = known ?? (await this.#readNow(signal));
    let next = change(version.value);
    if (version === known && next === version.value && !this.#isFresh(known, ageMaxMs)) {
      // Another process may have written since. What it wrote may make this change possible.
      version = await this.#readNow(signal);
      next = change(version.value);
    }
    if (next === undefined || next === version.value) return version;
    return (await this.#put(next, version.etag, signal)) ? { value: next } : undefined;
  }

  #isFresh({ at }: Version<T>, ageMaxMs = -1): boolean {
    return this.#ports.clock.now() - at <= ageMaxMs;
  }

  #readNow(signal: AbortSignal): Promise<Version<T>> {
    this.#reading ??= this.#get(signal).finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  async #get(signal: AbortSignal): Promise<Version<T>> {
    const { s3, bucket, key, clock, parse, tooLarge } = this.#ports;
    const at = clock.now();
    this.#known = undefined;
    const get = new GetObjectCommand({ Bucket: bucket, Key: key });
    const answer = await ifThere(s3.send(get, { abortSignal: signal }));
    const { Body, ETag, LastModified, ContentLength = 0 } = answer ?? {};
    if (tooLarge !== undefined && ContentLength > tooLarge.bytesMax) {
      (Body as Readable).destroy();
      const sizes = `${ContentLength} bytes, and at most ${tooLarge.bytesMax} are read`;
      throw new UnreadableEntryError(`${key} has ${sizes}: ${tooLarge.consequence}`);
    }
    const value = answer && parse((await Body?.transformToString()) ?? '');
    this.#known = { value, etag: ETag, at, writtenAt: LastModified?.getTime() };
    return this.#known;
  }
}

/** A number from 0 to 1 of a random hexadecimal text. */
const chanceOf = (nonce: string): number => Number.parseInt(nonce.slice(0, 4), 16) / 0xffff;
