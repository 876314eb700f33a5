import { GetObjectCommand, PutObjectCommand, type S3Client } from '@aws-sdk/client-s3';
import { chainKey } from '../ledger/keys.ts';
import { LedgerContendedError, parsedObject } from '../ledger/store.ts';
import { isAbsent, isConflict, isPreconditionFailed } from '../s3/errors.ts';
import { type Chain, chainSchema } from './chain.ts';

/** Maximum number of times that a change is written. Each further one follows the write of another invocation. */
const WRITES_MAX = 20;

/**
 * Chains whose last state a process remembers, so that it need not read them before it writes them; and how many uploads
 * such a chain may have. So they take a few MiB at most.
 */
const REMEMBERED_MAX = 16;
const REMEMBERED_UPLOADS_MAX = 1_000;

interface StoredChain {
  /** Undefined if none is stored. */
  readonly chain: Chain | undefined;
  readonly etag: string | undefined;
  /** Undefined if it was not read. */
  readonly writtenAt?: number | undefined;
}

const NOTHING: StoredChain = { chain: undefined, etag: undefined };

/** The chains in the ledger, an object for each. They change only by conditional writes. */
export class ChainStore {
  readonly #s3: S3Client;
  readonly #bucket: string;
  readonly #remembered = new Map<string, StoredChain>();

  constructor(s3: S3Client, bucket: string) {
    this.#s3 = s3;
    this.#bucket = bucket;
  }

  /** Undefined if there is no chain of this first file. @throws {UnreadableEntryError} */
  async read(firstId: string, signal: AbortSignal): Promise<Chain | undefined> {
    return (await this.#read(firstId, signal)).chain;
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
    const remembered = this.#remembered.get(firstId);
    let stored = remembered ?? (mayExist ? await this.#read(firstId, signal) : NOTHING);
    for (let written = 0; written < WRITES_MAX; written += 1) {
      const { chain, etag } = stored;
      const next = change(chain);
      if (next === undefined || next === chain) {
        if (stored !== remembered) return { chain, isChanged: false };
        // Another process may have written it since. What it wrote may make this change possible.
        stored = await this.#read(firstId, signal);
        continue;
      }
      try {
        this.#remember(firstId, { chain: next, etag: await this.#write(firstId, next, etag, signal) });
        return { chain: next, isChanged: true };
      } catch (error) {
        // If our write succeeded and only its answer was lost, `change` finds its work done.
        if (!isConflict(error) && !isPreconditionFailed(error) && !isAbsent(error)) throw error;
        stored = await this.#read(firstId, signal);
      }
    }
    throw new LedgerContendedError(`${chainKey(firstId)} was written by others ${WRITES_MAX} times in a row`);
  }

  /**
   * Writes a chain again as it is, if its last write was before the time `before`. Does nothing if there is no chain.
   * @throws {LedgerContendedError} @throws {UnreadableEntryError}
   */
  async renew(firstId: string, before: number, signal: AbortSignal): Promise<void> {
    const { writtenAt = before } = await this.#read(firstId, signal);
    if (writtenAt < before) await this.update(firstId, (chain) => chain && { ...chain }, signal);
  }

  async #write(firstId: string, chain: Chain, etag: string | undefined, signal: AbortSignal): Promise<string> {
    const put = new PutObjectCommand({
      Bucket: this.#bucket,
      Key: chainKey(firstId),
      Body: JSON.stringify(chain),
      ContentType: 'application/json',
      ...(etag === undefined ? { IfNoneMatch: '*' } : { IfMatch: etag }),
    });
    const { ETag } = await this.#s3.send(put, { abortSignal: signal });
    return ETag as string;
  }

  async #read(firstId: string, signal: AbortSignal): Promise<StoredChain> {
    this.#remembered.delete(firstId);
    try {
      const where = { Bucket: this.#bucket, Key: chainKey(firstId) };
      const { Body, ETag, LastModified } = await this.#s3.send(new GetObjectCommand(where), { abortSignal: signal });
      const text = (await Body?.transformToString()) ?? '';
      const { object: chain } = parsedObject<Chain>(chainKey(firstId), text, chainSchema, 'its chain does not go on');
      return { chain, etag: ETag as string, writtenAt: LastModified?.getTime() };
    } catch (error) {
      if (isAbsent(error)) return NOTHING;
      throw error;
    }
  }

  #remember(firstId: string, stored: StoredChain): void {
    this.#remembered.delete(firstId);
    const { endedAt, uploads = [] } = stored.chain ?? {};
    // Nothing more is expected of a chain that has ended.
    if (endedAt === undefined && uploads.length <= REMEMBERED_UPLOADS_MAX) this.#remembered.set(firstId, stored);
    const [oldest] = this.#remembered.keys();
    if (oldest !== undefined && this.#remembered.size > REMEMBERED_MAX) this.#remembered.delete(oldest);
  }
}
