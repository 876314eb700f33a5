import { Document, type LedgerPorts } from '../ledger/document.ts';
import { HOLDS_KEY } from '../ledger/keys.ts';
import { parsedObject } from '../ledger/store.ts';
import { type Holds, holdsSchema, NO_HOLDS } from './holds.ts';

/** Maximum age of the holds that are read, in milliseconds. So the uploads of a batch share one request to S3. */
export const HOLDS_AGE_MAX_MS = 1_000;

interface Change {
  readonly apply: (draft: Holds) => () => void;
  readonly reject: (error: unknown) => void;
  readonly signal: AbortSignal;
}

/** The holds of a pipeline: one document of the ledger. */
export class HoldStore {
  readonly #document: Document<Holds>;
  #changes: Change[] = [];
  #later: ((draft: Holds) => void)[] = [];
  #writing: Promise<void> | undefined;

  /** @param ports those of the ledger. Tests that share a bucket give another `key`. */
  constructor({ key = HOLDS_KEY, ...ports }: LedgerPorts & { readonly key?: string }) {
    this.#document = new Document({ ...ports, key, parse: parsed });
  }

  /** The holds, at most a second old. @throws {UnreadableEntryError} */
  async read(signal: AbortSignal): Promise<Holds> {
    return (await this.#document.read(signal, HOLDS_AGE_MAX_MS)).value ?? NO_HOLDS;
  }

  /**
   * Changes the holds. Changes that are asked for at the same time share a write. If another process writes in between,
   * or S3's answer is lost, all of them are applied again. So a change that was written already must change nothing.
   * @param change changes the draft, and returns what the caller wants to know.
   * @throws {ContendedError} @throws {UnreadableEntryError}
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

  /** Keeps a change for the next write. If this process dies before that, the change is not made. */
  later(change: (draft: Holds) => void): void {
    this.#later.push(change);
  }

  /**
   * Writes what was left for later. If the write fails, those changes are dropped: S3 may have made them all the same,
   * and the next write could repeat them.
   */
  async flush(signal: AbortSignal): Promise<void> {
    try {
      if (this.#later.length > 0) await this.change(() => undefined, signal);
    } finally {
      this.#later = [];
    }
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
        // If the signal of one change has aborted the shared write, the changes with other signals are tried again.
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
    let later: readonly unknown[] = [];
    let tells: readonly (() => void)[] = [];
    const change = (before = NO_HOLDS): Holds => {
      const text = JSON.stringify(before);
      const draft = parsed(text);
      later = [...this.#later];
      for (const each of this.#later) each(draft);
      tells = changes.map(({ apply }) => apply(draft));
      return JSON.stringify(draft) === text ? before : draft;
    };
    await this.#document.update(change, signal, HOLDS_AGE_MAX_MS);
    // Further changes may have been left for later during the write. They stay.
    this.#later = this.#later.slice(later.length);
    return tells;
  }
}

/** @throws {UnreadableEntryError} Nothing may be sent then: it is unknown what is held, and what is spent. */
const parsed = (text: string): Holds => parsedObject<Holds>(HOLDS_KEY, text, holdsSchema, 'nothing is sent').object;
