import type { Entry, TerminalEntry } from '../../functions/ledger/entry.ts';
import { isTerminal } from './invariants/facts.ts';
import type { CompletedCall } from './s3.ts';

/** A running invocation. */
interface AtWork {
  readonly endsAt: number;
  readonly keysToldOnce: ReadonlySet<string>;
}

interface LastWrite {
  readonly entry: Entry;
  readonly writer: string;
  readonly at: number;
}

/** The invocation that wrote an end, when it wrote that, and when it last wrote its lease before. */
interface EndWrite {
  readonly writer: string;
  readonly at: number;
  readonly leasedAt: number | undefined;
}

const nameOf = ({ upload, generation, endedAt }: TerminalEntry): string => `${upload.id} ${generation} ${endedAt}`;

/**
 * Watches every call when it takes effect, and finds those that came in the wrong order or from the wrong invocation.
 * The state at the end would not show mistakes that were repaired later.
 */
export class OrderChecker {
  /** Messages about everything that was wrong. */
  readonly broken: string[] = [];
  /** The uploads and generations whose receipt was ever written. */
  readonly receipted = new Set<string>();
  /** The uploads and generations whose end was told by an event, after the receipt. */
  readonly told = new Set<string>();
  /** Every upload that ever had an entry, by its id. */
  readonly uploads = new Map<string, Entry['upload']>();
  /** When the first entry of each upload was written, by its id. */
  readonly begunAt = new Map<string, number>();
  /** How often the claim of an upload was taken over from an invocation that still worked, by the upload's id. */
  readonly takeovers = new Map<string, number>();
  /** All terminal entries that were ever in the ledger. */
  readonly endings = new Map<string, TerminalEntry>();
  readonly #now: () => number;
  /** True if a living invocation may have been taken for dead. */
  readonly #mayTakeOver: () => boolean;
  /** True if a healthy holder may lose its lease, because clocks differ or S3 has faults. */
  readonly #mayLoseLease: () => boolean;
  /** The first write of each end. */
  readonly #endWrites = new Map<string, EndWrite>();
  /** When each invocation last wrote the lease of its collector. */
  readonly #leasedAt = new Map<string, number>();
  /** The holders of the leases, by the keys of the leases. */
  readonly #leases = new Map<string, string>();
  /** Running invocations by their names. */
  readonly #atWork = new Map<string, AtWork>();
  /** The latest write of each entry, by the upload's id. */
  readonly #lastWrites = new Map<string, LastWrite>();
  /** The uploads and flows that an entry has named as running. */
  readonly #hasRun = new Set<string>();
  /** The invocations whose creation of a flow was answered with a success, by the uploads and generations. */
  readonly #accepted = new Map<string, string>();
  /** The uploads and generations of which most probably a flow exists, and whose entries say that they wait for it. */
  readonly #awaited = new Set<string>();
  /** The uploads and generations that ever had a terminal entry. */
  readonly #hasEnded = new Set<string>();

  constructor(now: () => number, may: { readonly takeOver: () => boolean; readonly loseLease: () => boolean }) {
    this.#now = now;
    this.#mayTakeOver = may.takeOver;
    this.#mayLoseLease = may.loseLease;
  }

  /**
   * @param endsAt the hard end of the invocation, by its own clock.
   * @param keys the keys of the uploads in its event, each as often as it is there.
   */
  begins(invocation: string, endsAt: number, keys: readonly string[]): void {
    const keysToldOnce = new Set(keys.filter((key) => keys.indexOf(key) === keys.lastIndexOf(key)));
    this.#atWork.set(invocation, { endsAt, keysToldOnce });
  }

  ends(invocation: string): void {
    this.#atWork.delete(invocation);
  }

  /** A call of S3 took effect. The invocation that made it may be over. */
  sees(invocation: string, { kind, key, body }: CompletedCall): void {
    if (kind === 'entry.create' || kind === 'entry.replace') this.#seesEntry(invocation, JSON.parse(body) as Entry);
    else if (kind === 'lease.put') this.#seesLease(invocation, key, body);
    else if (kind === 'marker.put') this.#seesMarker(key);
    else if (kind === 'receipt.put' && !key.endsWith('/chain.json')) this.#seesReceipt(body);
  }

  /** True if the entry of an upload ever was at its end in a generation. */
  hasEnded(uploadId: string, generation: number): boolean {
    return this.#hasEnded.has(`${uploadId}-${generation}`);
  }

  /** The state that was last written of an upload. */
  stateOf(uploadId: string): Entry['state'] | undefined {
    return this.#lastWrites.get(uploadId)?.entry.state;
  }

  /** How an end was first written. It is written again when it was told of. */
  endWriteOf(end: TerminalEntry): EndWrite | undefined {
    return this.#endWrites.get(nameOf(end));
  }

  /** No invocation takes over a claim while its holder works, and the claim holds until the holder's hard end. */
  #seesEntry(writer: string, entry: Entry): void {
    const { upload, state } = entry;
    this.uploads.set(upload.id, upload);
    if (!this.begunAt.has(upload.id)) this.begunAt.set(upload.id, this.#now());
    const before = this.#lastWrites.get(upload.id);
    this.#seesDoubt(before?.entry, entry);
    this.#lastWrites.set(upload.id, { entry, writer, at: this.#now() });
    const name = `${upload.id} ${entry.generation}`;
    // A search that proves absence ends the doubt. If it is not written before the next one, that one began later.
    const { doubt } = entry;
    if (doubt === undefined || doubt.claimedAt > (before?.entry.doubt?.claimedAt ?? 0)) this.#awaited.delete(name);
    if (state === 'waiting' && this.#accepted.get(name) === writer) this.#awaited.add(name);
    if (state === 'running') this.#hasRun.add(`${upload.id} ${entry.flow.id}`);
    if (isTerminal(entry)) {
      this.#hasEnded.add(`${upload.id}-${entry.generation}`);
      const end = nameOf(entry);
      const write = { writer, at: this.#now(), leasedAt: this.#leasedAt.get(writer) };
      if (!this.#endWrites.has(end)) this.#endWrites.set(end, write);
      this.endings.set(end, entry);
    }
    const endsAt = this.#atWork.get(writer)?.endsAt ?? 0;
    if (state === 'claimed' && entry.deadline < endsAt) {
      this.broken.push(`a claim ends before its holder may be dead: ${writer}, ${upload.key}`);
    }
    if (before?.entry.state !== 'claimed' || before.writer === writer || !this.#atWork.has(before.writer)) return;
    this.takeovers.set(upload.id, (this.takeovers.get(upload.id) ?? 0) + 1);
    if (this.#mayTakeOver()) return;
    this.broken.push(`a claim was taken over while its holder was at work: ${before.writer}, ${writer}, ${upload.key}`);
  }

  /** The claim of a dead invocation adds a doubt. Joined doubts reach from the earliest claim to the latest byte. */
  #seesDoubt(before: Entry | undefined, { state, upload, doubt }: Entry): void {
    if (before?.state !== 'claimed' || before.doubt === undefined || state !== 'claimed' || doubt === undefined) return;
    if (doubt.claimedAt <= before.doubt.claimedAt && doubt.sentBy >= before.doubt.sentBy) return;
    this.broken.push(`a doubt was forgotten when another was added: ${upload.key}`);
  }

  /** No invocation takes a collector's lease while its holder works. */
  #seesLease(writer: string, key: string, body: string): void {
    this.#leasedAt.set(writer, this.#now());
    const { heldUntil } = JSON.parse(body) as { heldUntil: number };
    const holder = this.#leases.get(key);
    if (heldUntil === 0) this.#leases.delete(key);
    else this.#leases.set(key, writer);
    if (holder === undefined || holder === writer || !this.#atWork.has(holder) || this.#mayLoseLease()) return;
    this.broken.push(`a lease was taken while its holder was at work: ${holder}, ${writer}, ${key}`);
  }

  /** A tick leaves its lease to the next. Its invocation may still be at work on a sweep. */
  leavesLease(key: string): void {
    this.#leases.delete(key);
  }

  /** A file is sent while its invocation has time by the clock of its process. @param now by that clock. */
  seesCreation(invocation: string, now: number): void {
    const { endsAt = Number.POSITIVE_INFINITY } = this.#atWork.get(invocation) ?? {};
    if (now <= endsAt) return;
    this.broken.push(`a file was sent after the time of its invocation: ${invocation}`);
  }

  /** A flow is not aborted while its upload waits for it. */
  seesAbort(invocation: string, uploadId: string, generation: number): void {
    const last = this.#lastWrites.get(uploadId)?.entry;
    if (last?.state !== 'waiting' || last.generation !== generation) return;
    this.broken.push(`a flow was aborted that its upload waits for: ${invocation}, ${last.upload.key}`);
  }

  /** The marker of a flow or of a failure comes after its entry. */
  #seesMarker(key: string): void {
    const [, endedAt = '', failedId = ''] = /^failed\/([^/]+)\/([^/]+)$/.exec(key) ?? [];
    if (failedId !== '') {
      const ends = [...this.endings.values()].filter(
        ({ upload, state }) => upload.id === failedId && state === 'failed',
      );
      if (ends.some((end) => end.endedAt === Date.parse(endedAt))) return;
      this.broken.push(`a marker of a failure was put before its entry was written: ${key}`);
      return;
    }
    const [, uploadId = '', flowId = ''] = /^running\/[^/]+\/([^/]+)\/([^/]+)$/.exec(key) ?? [];
    if (flowId === '' || this.#hasRun.has(`${uploadId} ${decodeURIComponent(flowId)}`)) return;
    this.broken.push(`a marker was put before its entry was written: ${key}`);
  }

  /** A process got an answer to a creation that says success, whether or not it can be read. */
  seesAccepted(invocation: string, uploadId: string, generation: number): void {
    this.#accepted.set(`${uploadId} ${generation}`, invocation);
  }

  /** An upload is sent again although a flow may exist: never after a success, unless an operator asked for that. */
  seesResent(uploadId: string, isAsked: boolean): void {
    const generation = this.#lastWrites.get(uploadId)?.entry.generation;
    if (isAsked || !this.#awaited.has(`${uploadId} ${generation}`)) return;
    this.broken.push(`an upload was sent again after an answer that says success: ${uploadId}`);
  }

  /** The receipt comes after the terminal entry. */
  #seesReceipt(body: string): void {
    const { upload, generation } = JSON.parse(body) as { upload: { id: string; key: string }; generation: number };
    this.receipted.add(`${upload.id}-${generation}`);
    if (!this.hasEnded(upload.id, generation))
      this.broken.push(`a receipt was put before its entry was at its end: ${upload.key}`);
  }

  /** The event comes after the terminal entry. */
  seesEvent(detail: string): void {
    const { upload, generation } = JSON.parse(detail) as { upload: { id: string }; generation: number };
    this.told.add(`${upload.id}-${generation}`);
    if (this.hasEnded(upload.id, generation)) return;
    this.broken.push(`an end was told of before the entry was at it: ${upload.id}-${generation}`);
  }

  /** A claim never turns its own holder away, not even if the answer to its write was lost. */
  seesTurnedAway(invocation: string, uploadId: string, key: string): void {
    const last = this.#lastWrites.get(uploadId);
    if (last?.entry.state !== 'claimed' || last.writer !== invocation) return;
    if (!this.#atWork.get(invocation)?.keysToldOnce.has(key)) return;
    this.broken.push(`an invocation was turned away by its own claim: ${invocation}, ${key}`);
  }

  /**
   * An invocation that began at `since` deletes a message. It must not do so while another invocation holds the claim:
   * if the holder dies, the message is all that is left. Only a version tells which upload a message is about.
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
