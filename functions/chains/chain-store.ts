import { Semaphore } from '../base/semaphore.ts';
import { Document, type LedgerPorts } from '../ledger/document.ts';
import { chainKey } from '../ledger/keys.ts';
import { parsedObject } from '../ledger/store.ts';
import { type Chain, chainSchema } from './chain-schema.ts';
import { CHAIN_BYTES_MAX } from './chain-size.ts';

/** Chains that are read and written side by side. The memory of a function is enough for so many of the largest. */
const CONCURRENCY = 4;

/** Maximum size of a chain that is read, in bytes. What is larger was not written by Flowdrop, and could fill the memory. */
const READ_BYTES_MAX = 4 * CHAIN_BYTES_MAX;

/** What does not happen if a chain cannot be read. */
const CONSEQUENCE = 'its chain does not go on';

/** The chains in the ledger, a document for each. */
export class ChainStore {
  readonly #ports: LedgerPorts;
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
   * @throws {ContendedError} @throws {UnreadableEntryError}
   */
  update(
    firstId: string,
    change: (chain: Chain | undefined) => Chain | undefined,
    signal: AbortSignal,
  ): Promise<Chain | undefined> {
    return this.#document(firstId).update(change, signal);
  }

  /**
   * Writes a chain again as it is, if its last write was before the time `before`. Does nothing if there is no chain.
   * @throws {ContendedError} @throws {UnreadableEntryError}
   */
  async renew(firstId: string, before: number, signal: AbortSignal): Promise<void> {
    const { writtenAt = before } = await this.#document(firstId).read(signal);
    if (writtenAt < before) await this.update(firstId, (chain) => chain && { ...chain }, signal);
  }

  #document(firstId: string): Document<Chain> {
    const key = chainKey(firstId);
    return new Document({
      ...this.#ports,
      key,
      parse: (text) => parsedObject<Chain>(key, text, chainSchema, CONSEQUENCE).object,
      tooLarge: { bytesMax: READ_BYTES_MAX, consequence: CONSEQUENCE },
      inMemory: this.#inMemory,
    });
  }
}
