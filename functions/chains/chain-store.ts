import type { Readable } from 'node:stream';
import { GetObjectCommand, PutObjectCommand, type S3Client } from '@aws-sdk/client-s3';
import type { Clock } from '../base/clock.ts';
import { Semaphore } from '../base/semaphore.ts';
import { chainKey } from '../ledger/keys.ts';
import { Contention, LedgerContendedError, parsedObject, UnreadableEntryError } from '../ledger/store.ts';
import { isAbsent, isConflict, isPreconditionFailed } from '../s3/errors.ts';
import { type Chain, chainSchema } from './chain.ts';
import { CHAIN_BYTES_MAX } from './chain-size.ts';

/** How long a change is tried while other processes write in between, in milliseconds. A large chain takes a second. */
const CHANGE_MAX_MS = 60_000;

/** Tries of a change without pauses. Each further one follows the write of another process. */
const UNPAUSED_TRIES_MAX = 200;

/**
 * Chains whose last state a process remembers, so that it need not read them before it writes them; and how large such a
 * chain may be, in bytes.
 */
const REMEMBERED_MAX = 16;
const REMEMBERED_BYTES_MAX = 256 * 1024;

/** Chains that are read and written side by side. The memory of a function is enough for so many of the largest. */
const CONCURRENCY = 4;

/** Maximum size of a chain that is read, in bytes. An older version had no limit, and its object could fill the memory. */
const READ_BYTES_MAX = 4 * CHAIN_BYTES_MAX;

interface StoredChain {
  /** Undefined if none is stored. */
  readonly chain: Chain | undefined;
  readonly etag: string | undefined;
  /** Undefined if it was not read. */
  readonly writtenAt?: number | undefined;
}

interface ChainStorePorts {
  readonly clock: Clock;
  /** Returns a different string each time, of hexadecimal digits at its beginning. */
  readonly nonce: () => string;
}

const NOTHING: StoredChain = { chain: undefined, etag: undefined };

/** The chains in the ledger, an object for each. They change only by conditional writes. */
export class ChainStore {
  readonly #s3: S3Client;
  readonly #bucket: string;
  readonly #ports: ChainStorePorts | undefined;
  readonly #remembered = new Map<string, StoredChain>();
  readonly #inMemory = new Semaphore(CONCURRENCY);

  /** @param ports for the pauses after a write that another process won. Without them, it is tried again at once. */
  constructor(s3: S3Client, bucket: string, ports?: ChainStorePorts) {
    this.#s3 = s3;
    this.#bucket = bucket;
    this.#ports = ports;
  }

  /** Undefined if there is no chain of this first file. @throws {UnreadableEntryError} */
  async read(firstId: string, signal: AbortSignal): Promise<Chain | undefined> {
    return this.#inMemory.through(async () => (await this.#read(firstId, signal)).chain);
  }

  /**
   * Changes a chain and returns the new one. If another invocation writes in between, `change` is applied again.
   * @param change returns the same chain if there is nothing to change.
   * @param mayExist false if the caller most likely makes the chain. Then it is not read before it is written.
   * @throws {LedgerContendedError} @throws {UnreadableEntryError}
   */
  async update(
    firstId: string,
    change: (chain: Chain | undefined) => Chain | undefined,
    signal: AbortSignal,
    mayExist = true,
  ): Promise<{ readonly chain: Chain | undefined; readonly isChanged: boolean }> {
    const contention = this.#ports && new Contention(chainKey(firstId), CHANGE_MAX_MS, this.#ports);
    let known = this.#remembered.get(firstId) ?? (mayExist ? undefined : NOTHING);
    for (let tries = 1; ; tries += 1) {
      const changed = await this.#inMemory.through(() => this.#tryToChange(firstId, known, change, signal));
      if (changed !== undefined) return changed;
      // If our write succeeded and only its answer was lost, `change` finds its work done.
      known = undefined;
      if (contention !== undefined) await contention.pause(signal);
      else if (tries >= UNPAUSED_TRIES_MAX) {
        throw new LedgerContendedError(`${chainKey(firstId)} was written by others ${tries} times in a row`);
      }
    }
  }

  /**
   * Changes a chain once.
   * @param known its state, if it need not be read.
   * @returns undefined if another process has written it since.
   */
  async #tryToChange(
    firstId: string,
    known: StoredChain | undefined,
    change: (chain: Chain | undefined) => Chain | undefined,
    signal: AbortSignal,
  ): Promise<{ readonly chain: Chain | undefined; readonly isChanged: boolean } | undefined> {
    let { chain, etag } = known ?? (await this.#read(firstId, signal));
    let next = change(chain);
    if (known !== undefined && known !== NOTHING && next === chain) {
      // Another process may have written it since. What it wrote may make this change possible.
      ({ chain, etag } = await this.#read(firstId, signal));
      next = change(chain);
    }
    if (next === undefined || next === chain) return { chain, isChanged: false };
    try {
      await this.#write(firstId, next, etag, signal);
      return { chain: next, isChanged: true };
    } catch (error) {
      if (isConflict(error) || isPreconditionFailed(error) || isAbsent(error)) return undefined;
      throw error;
    }
  }

  /**
   * Writes a chain again as it is, if its last write was before the time `before`. Does nothing if there is no chain.
   * @throws {LedgerContendedError} @throws {UnreadableEntryError}
   */
  async renew(firstId: string, before: number, signal: AbortSignal): Promise<void> {
    const { writtenAt = before } = await this.#inMemory.through(() => this.#read(firstId, signal));
    if (writtenAt < before) await this.update(firstId, (chain) => chain && { ...chain }, signal);
  }

  async #write(firstId: string, chain: Chain, etag: string | undefined, signal: AbortSignal): Promise<void> {
    this.#remembered.delete(firstId);
    const body = JSON.stringify(chain);
    const put = new PutObjectCommand({
      Bucket: this.#bucket,
      Key: chainKey(firstId),
      Body: body,
      ContentType: 'application/json',
      ...(etag === undefined ? { IfNoneMatch: '*' } : { IfMatch: etag }),
    });
    const { ETag } = await this.#s3.send(put, { abortSignal: signal });
    this.#remember(firstId, { chain, etag: ETag as string }, Buffer.byteLength(body));
  }

  async #read(firstId: string, signal: AbortSignal): Promise<StoredChain> {
    this.#remembered.delete(firstId);
    try {
      const where = { Bucket: this.#bucket, Key: chainKey(firstId) };
      const get = new GetObjectCommand(where);
      const { Body, ETag, LastModified, ContentLength = 0 } = await this.#s3.send(get, { abortSignal: signal });
      if (ContentLength > READ_BYTES_MAX) {
        (Body as Readable).destroy();
        const sizes = `${ContentLength} bytes, and at most ${READ_BYTES_MAX} are read`;
        throw new UnreadableEntryError(`${chainKey(firstId)} has ${sizes}: its chain does not go on`);
      }
      const text = (await Body?.transformToString()) ?? '';
      const { object: chain } = parsedObject<Chain>(chainKey(firstId), text, chainSchema, 'its chain does not go on');
      return { chain, etag: ETag as string, writtenAt: LastModified?.getTime() };
    } catch (error) {
      if (isAbsent(error)) return NOTHING;
      throw error;
    }
  }

  #remember(firstId: string, stored: StoredChain, bytes: number): void {
    // Nothing more is expected of a chain that has ended.
    if (stored.chain?.endedAt === undefined && bytes <= REMEMBERED_BYTES_MAX) this.#remembered.set(firstId, stored);
    const [oldest] = this.#remembered.keys();
    if (oldest !== undefined && this.#remembered.size > REMEMBERED_MAX) this.#remembered.delete(oldest);
  }
}
