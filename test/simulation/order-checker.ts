import type { Entry, TerminalEntry } from '../../functions/ledger/entry.ts';
import type { CompletedCall } from './s3.ts';

/** An invocation under way. */
interface AtWork {
  readonly endsAt: number;
  readonly keysToldOnce: ReadonlySet<string>;
}

interface LastWrite {
  readonly entry: Entry;
  readonly writer: string;
  readonly at: number;
}

/**
 * Watches every call as it takes effect, and says what came in the wrong order, or was done by whom it was not for. What
 * is made good later would not be seen by looking at the end alone.
 */
export class OrderChecker {
  /** What was seen to be broken. */
  readonly broken: string[] = [];
  /** Of which uploads and generations a receipt was ever written. */
  readonly receipted = new Set<string>();
  /** Every upload that ever had an entry, by its id. */
  readonly uploads = new Map<string, Entry['upload']>();
  /** Every end that the ledger ever knew, of every generation. */
  readonly endings = new Map<string, TerminalEntry>();
  readonly #now: () => number;
  /** Whether somebody may have been taken for dead who was not. */
  readonly #mayTakeOver: () => boolean;
  /** Whether a lease may run out under a healthy holder: clocks differ, or S3 is in trouble. */
  readonly #mayLoseLease: () => boolean;
  /** Who holds which lease, by their keys. */
  readonly #leases = new Map<string, string>();
  /** By their names. */
  readonly #atWork = new Map<string, AtWork>();
  /** By the ids of the uploads whose entries they are. */
  readonly #lastWrites = new Map<string, LastWrite>();
  /** Which uploads the ledger has called running, and with which flows. */
  readonly #hasRun = new Set<string>();
  /** Which generations of which uploads the ledger has called ended. */
  readonly #hasEnded = new Set<string>();

  constructor(now: () => number, may: { readonly takeOver: () => boolean; readonly loseLease: () => boolean }) {
    this.#now = now;
    this.#mayTakeOver = may.takeOver;
    this.#mayLoseLease = may.loseLease;
  }

  /**
   * @param endsAt its hard end, by its own clock.
   * @param keys of the uploads it is told of, each as often as it is told.
   */
  begins(invocation: string, endsAt: number, keys: readonly string[]): void {
    const keysToldOnce = new Set(keys.filter((key) => keys.indexOf(key) === keys.lastIndexOf(key)));
    this.#atWork.set(invocation, { endsAt, keysToldOnce });
  }

  ends(invocation: string): void {
    this.#atWork.delete(invocation);
  }

  /** A call of S3 that took effect, and the name of the invocation that had made it. */
  sees(invocation: string, { kind, key, body }: CompletedCall): void {
    if (kind === 'entry.create' || kind === 'entry.replace') this.#seesEntry(invocation, JSON.parse(body) as Entry);
    else if (kind === 'lease.put') this.#seesLease(invocation, key, body);
    else if (kind === 'marker.put') this.#seesMarker(key);
    else if (kind === 'receipt.put') this.#seesReceipt(body);
  }

  /** A claim is its holder's alone for as long as that one is at work, and may be at work. */
  #seesEntry(writer: string, entry: Entry): void {
    const { upload, state } = entry;
    this.uploads.set(upload.id, upload);
    const before = this.#lastWrites.get(upload.id);
    this.#seesDoubt(before?.entry, entry);
    this.#lastWrites.set(upload.id, { entry, writer, at: this.#now() });
    if (state === 'running') this.#hasRun.add(`${upload.id} ${entry.flow.id}`);
    if (entry.state === 'succeeded' || entry.state === 'failed') {
      this.#hasEnded.add(`${upload.id}-${entry.generation}`);
      this.endings.set(`${upload.id} ${entry.generation} ${entry.endedAt}`, entry);
    }
    const endsAt = this.#atWork.get(writer)?.endsAt ?? 0;
    if (state === 'claimed' && entry.deadline < endsAt) {
      this.broken.push(`a claim ends before its holder may be dead: ${writer}, ${upload.key}`);
    }
    if (before?.entry.state !== 'claimed' || before.writer === writer || !this.#atWork.has(before.writer)) return;
    if (this.#mayTakeOver()) return;
    this.broken.push(`a claim was taken over while its holder was at work: ${before.writer}, ${writer}, ${upload.key}`);
  }

  /** A claim that died is one more doubt: together they reach from the earliest claim to the latest byte. */
  #seesDoubt(before: Entry | undefined, { state, upload, doubt }: Entry): void {
    if (before?.state !== 'claimed' || before.doubt === undefined || state !== 'claimed' || doubt === undefined) return;
    if (doubt.claimedAt <= before.doubt.claimedAt && doubt.sentBy >= before.doubt.sentBy) return;
    this.broken.push(`a doubt was forgotten when another was added: ${upload.key}`);
  }

  /** A collector's lease is its holder's for as long as that one is at work. */
  #seesLease(writer: string, key: string, body: string): void {
    const { heldUntil } = JSON.parse(body) as { heldUntil: number };
    const holder = this.#leases.get(key);
    if (heldUntil === 0) this.#leases.delete(key);
    else this.#leases.set(key, writer);
    if (holder === undefined || holder === writer || !this.#atWork.has(holder) || this.#mayLoseLease()) return;
    this.broken.push(`a lease was taken while its holder was at work: ${holder}, ${writer}, ${key}`);
  }

  /** A flow is given up only where nobody is left to whom it may be given. */
  seesAbort(invocation: string, uploadId: string, generation: number): void {
    const last = this.#lastWrites.get(uploadId)?.entry;
    if (last?.state !== 'waiting' || last.generation !== generation) return;
    this.broken.push(`a flow was aborted that its upload waits for: ${invocation}, ${last.upload.key}`);
  }

  /** The entry commits, the marker follows. */
  #seesMarker(key: string): void {
    const [, uploadId = '', flowId = ''] = /^running\/[^/]+\/([^/]+)\/([^/]+)$/.exec(key) ?? [];
    if (flowId === '' || this.#hasRun.has(`${uploadId} ${decodeURIComponent(flowId)}`)) return;
    this.broken.push(`a marker was put before its entry was written: ${key}`);
  }

  /** The terminal entry decides, the receipt follows. */
  #seesReceipt(body: string): void {
    const { upload, generation } = JSON.parse(body) as { upload: { id: string; key: string }; generation: number };
    const id = `${upload.id}-${generation}`;
    this.receipted.add(id);
    if (!this.#hasEnded.has(id)) this.broken.push(`a receipt was put before its entry was at its end: ${upload.key}`);
  }

  /** The same of its event. */
  seesEvent(detail: string): void {
    const { upload, generation } = JSON.parse(detail) as { upload: { id: string }; generation: number };
    const id = `${upload.id}-${generation}`;
    if (!this.#hasEnded.has(id)) this.broken.push(`an end was told of before the entry was at it: ${id}`);
  }

  /** A claim turns others away, and never its own holder, however the answer to its writing was lost. */
  seesTurnedAway(invocation: string, uploadId: string, key: string): void {
    const last = this.#lastWrites.get(uploadId);
    if (last?.entry.state !== 'claimed' || last.writer !== invocation) return;
    if (!this.#atWork.get(invocation)?.keysToldOnce.has(key)) return;
    this.broken.push(`an invocation was turned away by its own claim: ${invocation}, ${key}`);
  }

  /**
   * A message is deleted by an invocation that began at `since`. Should the holder of a live claim die, a message is all
   * there is. By a version alone it can be told what a message is about.
   */
  seesDeletion(
    { key, versionId }: { readonly key: string; readonly versionId?: string | undefined },
    since: number,
  ): void {
    if (versionId === undefined) return;
    for (const { entry, at } of this.#lastWrites.values()) {
      const isIt = entry.upload.key === key && entry.upload.versionId === versionId;
      if (isIt && entry.state === 'claimed' && at < since) {
        this.broken.push(`a message was deleted while its upload was claimed by another: ${key}`);
      }
    }
  }
}
