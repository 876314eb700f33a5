import { Semaphore } from '../base/semaphore.ts';
import { Document, type LedgerPorts } from '../ledger/document.ts';
import { chainKey } from '../ledger/keys.ts';
import { parsedObject } from '../ledger/store.ts';
import { type Chain, chainSchema } from './chain-schema.ts';
import { CHAIN_BYTES_MAX } from './chain-size.ts';

/**
 * Chains whose last state a process remembers, so that it need not read them before it writes them; and how many uploads
 * and assets such a chain may have. Each takes some kilobytes of memory.
 */
const REMEMBERED_MAX = 16;
const REMEMBERED_PARTS_MAX = 1_000;

/** Chains that are read and written side by side. The memory of a function is enough for so many of the largest. */
const CONCURRENCY = 4;

/** Maximum size of a chain that is read, in bytes. What is larger was not written by Flowdrop, and could fill the memory. */
const READ_BYTES_MAX = 4 * CHAIN_BYTES_MAX;

/** What does not happen if a chain cannot be read. */
const CONSEQUENCE = 'its chain does not go on';

/** The chains in the ledger, a document for each. */
export class ChainStore {
  readonly #ports: LedgerPorts;
  readonly #remembered = new Map<string, Document<Chain>>();
  readonly #inMemory = new Semaphore(CONCURRENCY);

  constructor(ports: LedgerPorts) {
    this.#ports = ports;
  }

  /** Undefined if there is no chain of this first file. @throws {UnreadableEntryError} */
  async read(firstId: string, signal: AbortSignal): Promise<Chain | undefined> {
    return (await this.#document(firstId).read(signal)).value;
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
    const document = this.#document(firstId);
    const { value: chain, isChanged } = await document.update(change, signal, { begin: mayExist ? 'known' : 'none' });
    this.#remember(firstId, document, chain);
    return { chain, isChanged };
  }

  /**
   * Writes a chain again as it is, if its last write was before the time `before`. Does nothing if there is no chain.
   * @throws {LedgerContendedError} @throws {UnreadableEntryError}
   */
  async renew(firstId: string, before: number, signal: AbortSignal): Promise<void> {
    const { writtenAt = before } = await this.#document(firstId).read(signal);
    if (writtenAt < before) await this.update(firstId, (chain) => chain && { ...chain }, signal);
  }

  #document(firstId: string): Document<Chain> {
    const key = chainKey(firstId);
    const remembered = this.#remembered.get(firstId);
    if (remembered !== undefined) return remembered;
    return new Document({
      ...this.#ports,
      key,
      parse: (text) => parsedObject<Chain>(key, text, chainSchema, CONSEQUENCE).object,
      tooLarge: { bytesMax: READ_BYTES_MAX, consequence: CONSEQUENCE },
      inMemory: this.#inMemory,
    });
  }

  #remember(firstId: string, document: Document<Chain>, { endedAt, uploads = [] }: Partial<Chain> = {}): void {
    this.#remembered.delete(firstId);
    const parts = uploads.reduce((sum, { assets }) => sum + 1 + assets.length, 0);
    // Nothing more is expected of a chain that has ended.
    if (endedAt === undefined && parts <= REMEMBERED_PARTS_MAX) this.#remembered.set(firstId, document);
    const [oldest] = this.#remembered.keys();
    if (oldest !== undefined && this.#remembered.size > REMEMBERED_MAX) this.#remembered.delete(oldest);
  }
}
