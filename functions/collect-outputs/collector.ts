import { randomUUID } from 'node:crypto';
import * as z from 'zod/mini';
import { CLOCK_SKEW_MAX_MS, type Clock } from '../base/clock.ts';
import { jsonIn } from '../base/json.ts';
import { orDropped } from '../base/stored-state.ts';
import { secondsBetween, type Telemetry } from '../base/telemetry.ts';
import { Document, type LedgerPorts } from '../ledger/document.ts';
import { collectorKey, type RunningMarker } from '../ledger/keys.ts';
import type { Ledger } from '../ledger/store.ts';
import { lineState } from '../resubmit/line.ts';
import { spreadOf } from '../uploads/upload.ts';

/** Duration of a lease, in milliseconds. It is renewed after a third of it. */
const LEASE_MS = 30_000;

/**
 * Duration of a lease that the previous invocation left to this one, in milliseconds. It is shorter, because it
 * must end within the tick's minute even if this invocation leaves it to one more.
 */
const LEFT_LEASE_MS = 10_000;

/** Maximum length of a state in a message, in characters. SQS takes 256 KiB, and a character may become three bytes. */
const LEFT_STATE_LENGTH_MAX = 50_000;

/**
 * Maximum lead of another machine's clock over ours, in milliseconds. Either may be off. Later times are taken to be
 * damaged.
 */
const COLLECTOR_CLOCK_SKEW_MS = 2 * CLOCK_SKEW_MAX_MS;

/** A round that was cut off before its end. */
const unfinishedRound = (time: z.ZodMiniNumber) =>
  z.object({
    startedAt: time,
    /** Key of the last marker that the round processed. */
    after: z.string(),
  });
export type UnfinishedRound = Readonly<z.infer<ReturnType<typeof unfinishedRound>>>;

/** An end that one poll has seen, and when. */
const unconfirmedEnd = (time: z.ZodMiniNumber) =>
  z.object({
    /** What the poll saw. The second poll must see the same. */
    digest: z.string(),
    at: time,
  });
export type UnconfirmedEnd = Readonly<z.infer<ReturnType<typeof unconfirmedEnd>>>;

/** The unclear polls of a flow in a row: each answer is an error, or does not fit the description of the service. */
const unclearPolls = z.object({
  /** The undeclared word that the last poll without an error saw, if it saw one. */
  word: z.optional(z.string()),
  polls: z.int().check(z.gte(1)),
});
export type UnclearPolls = Readonly<z.infer<typeof unclearPolls>>;

/** Number of unclear polls in a row after which the entry tells of them. Fewer may be a momentary trouble. */
export const TOLD_AFTER_POLLS = 3;

/**
 * The form of a collector's state. Times are in milliseconds since the epoch. A member is dropped if its time is
 * further ahead of ours than clocks can differ.
 */
function stateSchema(now: number) {
  const timeUpTo = (latest: number) => z.number().check(z.gte(0), z.lte(latest + COLLECTOR_CLOCK_SKEW_MS));
  const time = timeUpTo(now);
  /** Times by upload id, the earliest first. */
  const noted = z.record(z.string(), time);
  return z.object({
    /** End of the lease of the tick that holds it. 0 if no tick does. */
    heldUntil: orDropped(timeUpTo(now + LEASE_MS)),
    /** When the last tick that was not cut short ended. */
    tickCompletedAt: orDropped(time),
    /** When the last completed round began. Every flow that was due then has been looked at since. */
    lastCompletedAt: orDropped(time),
    unfinishedRound: orDropped(unfinishedRound(time)),
    /** Flows that have ended and are not stored yet. */
    ended: orDropped(noted),
    /** Flows whose last poll was slow, with its time. */
    slow: orDropped(noted),
    /** By upload id: ends that one poll has seen, and a second poll must confirm. */
    unconfirmedEnds: orDropped(z.record(z.string(), unconfirmedEnd(time))),
    /** When the service last showed a flow that it had not known before. */
    shownAgainAt: orDropped(time),
    /** By upload id. */
    unclear: orDropped(z.record(z.string(), unclearPolls)),
    /** The pace that the service allowed. */
    pace: orDropped(z.object({ requestsPerSecond: z.number().check(z.positive()), throttledAt: time })),
    /** When uploads last left the line, how many more may leave next, and whose turn it is then. */
    line: orDropped(lineState(time)),
  });
}

/** The state that a collector keeps between its ticks. */
export type CollectorState = Readonly<z.infer<ReturnType<typeof stateSchema>>>;

/** A state that cannot be read is empty. All flows are due then, and the next write replaces it. */
export const parsedState = (text: string, now: number): CollectorState =>
  stateSchema(now).safeParse(jsonIn(text)).data ?? {};

/** A lease that one invocation left to the next. */
export interface LeftLease {
  /** ETag of the state that the invocation last wrote. */
  readonly etag: string;
  /** The present state, in JSON. */
  readonly state: string;
}

type LeasePorts = Omit<LedgerPorts, 'nonce'>;

const documentOf = ({ s3, bucket, clock }: LeasePorts, collector: number): Document<CollectorState> =>
  new Document({
    ...{ s3, bucket, clock, key: collectorKey(collector), nonce: randomUUID },
    parse: (text) => parsedState(text, clock.now()),
  });

/** Reads the state of a collector. It is empty if the collector never had a tick, or if it cannot be read. */
export async function readState(ports: LeasePorts, collector: number, signal: AbortSignal): Promise<CollectorState> {
  return (await documentOf(ports, collector).read(signal)).value ?? {};
}

/**
 * A collector's lease, and beside it the state that the collector keeps between its ticks.
 *
 * The lease prevents overlapping ticks from doing the same work. Their work is safe without it, so a tick that loses
 * its lease does not take it back. It stops writing the state, and begins no further round. An unbroken lease also
 * proves that no other tick polled in between.
 */
export class Lease {
  readonly #document: Document<CollectorState>;
  readonly #clock: Clock;
  readonly #ms: number;
  #state: CollectorState;
  /**
   * True if the last tick released the lease, or left it to this one. False if it died, or is still at work: it may have
   * polled flows after its last write, so the state does not hold what it saw last.
   */
  readonly wasReleased: boolean;
  #lost = false;
  #memory: () => Partial<CollectorState> = () => ({});
  /** Writes are made one after another, because each is conditional on the previous one. */
  #writing: Promise<void> = Promise.resolve();
  readonly #ended = new AbortController();
  #renewing: Promise<void> = Promise.resolve();

  private constructor(document: Document<CollectorState>, clock: Clock, state: CollectorState, isLeft: boolean) {
    this.#document = document;
    this.#clock = clock;
    this.#state = state;
    this.#ms = isLeft ? LEFT_LEASE_MS : LEASE_MS;
    this.wasReleased = isLeft || state.heldUntil === 0;
  }

  /**
   * Takes the lease of a collector. Undefined if another tick holds it, or takes it at the same time.
   * @param left the lease that was left to this invocation. Another invocation may have taken it since.
   */
  static async take(
    ports: LeasePorts,
    collector: number,
    signal: AbortSignal,
    left?: LeftLease,
  ): Promise<Lease | undefined> {
    const document = documentOf(ports, collector);
    const state = left ? document.assume(left.state, left.etag) : ((await document.read(signal)).value ?? {});
    if (left === undefined && ports.clock.now() < (state.heldUntil ?? 0)) return undefined;
    const lease = new Lease(document, ports.clock, state, left !== undefined);
    await lease.write(signal);
    if (lease.#lost) return undefined;
    lease.#renewing = lease.#keepRenewing(signal);
    return lease;
  }

  /** True if another tick has taken the lease. This tick should begin nothing more then. */
  get isLost(): boolean {
    return this.#lost;
  }

  get state(): CollectorState {
    return this.#state;
  }

  /** Writes the collector's state with every renewal from now on. A tick that dies then loses little of it. */
  keeps(memory: () => Partial<CollectorState>): void {
    this.#memory = memory;
  }

  /** Renews the lease and writes the collector's present state, with these changes. */
  write(signal: AbortSignal, change: Partial<CollectorState> = {}): Promise<void> {
    this.#writing = this.#writing.catch(() => {}).then(() => this.#put({ ...this.#memory(), ...change }, signal));
    return this.#writing;
  }

  /** Renews the lease, which proves that no other tick had it since this one took it. */
  async isStillHeld(signal: AbortSignal): Promise<boolean> {
    await this.write(signal);
    return !this.#lost;
  }

  /**
   * Releases the lease at once. If that fails, it expires by itself, so the error can be ignored.
   * @param last what else the state holds from now on.
   */
  async release(signal: AbortSignal, last: Partial<CollectorState> = {}): Promise<void> {
    this.#ended.abort();
    await this.#renewing;
    await this.write(signal, { ...last, heldUntil: 0 }).catch(() => {});
  }

  /**
   * Leaves the lease to the next invocation, which must be given what is returned. That saves a write. The first write
   * of that invocation is conditional on the ETag, so of two copies of a message only one takes the lease. If the
   * message is lost, the lease expires. The lease is released instead if it would last beyond `until`, into the next
   * tick, or if the state is too long for a message.
   * @param last what else the state holds from now on.
   * @returns undefined if the lease was released.
   */
  async leave(signal: AbortSignal, last: Partial<CollectorState>, until: number): Promise<LeftLease | undefined> {
    this.#ended.abort();
    await this.#renewing;
    const { etag } = this.#document;
    const state = JSON.stringify({ ...this.#state, ...this.#memory(), ...last });
    const isShort = (this.#state.heldUntil ?? 0) <= until && state.length <= LEFT_STATE_LENGTH_MAX;
    if (isShort && etag !== undefined) return { etag, state };
    await this.release(signal, last);
    return undefined;
  }

  async #keepRenewing(signal: AbortSignal): Promise<void> {
    const until = AbortSignal.any([signal, this.#ended.signal]);
    while (!until.aborted && !this.#lost) {
      try {
        await this.#clock.sleep(this.#ms / 3, until);
        await this.write(signal);
      } catch {
        // The tick ended, or the lease could not be renewed. Then the lease expires, and at worst two ticks do the same
        // work.
      }
    }
  }

  async #put(change: Partial<CollectorState>, signal: AbortSignal): Promise<void> {
    if (this.#lost) return;
    const state = { ...this.#state, heldUntil: this.#clock.now() + this.#ms, ...change };
    // The state may have changed by a write of our own whose answer was lost. Then the lease expires, and a later tick
    // takes it.
    if (await this.#document.put(state, signal)) this.#state = state;
    else this.#lost = true;
  }
}

/** The share of the uploads that a collector is responsible for. */
export interface CollectorShare {
  readonly index: number;
  readonly of: number;
}

/** Returns true for the uploads of this collector. */
export const isIn = ({ index, of }: CollectorShare, uploadId: string): boolean =>
  Math.floor(spreadOf(uploadId) * of) === index;

interface RunningMarkers {
  /** This collector's markers, the greatest age first, without those that share a flow. */
  readonly ours: readonly RunningMarker[];
  /** The markers of each flow that belongs to several uploads, at least one of which is this collector's. */
  readonly shared: readonly (readonly RunningMarker[])[];
}

/** Lists the markers of all running flows, and measures them. */
export async function listRunningMarkers(
  { ledger, telemetry }: { readonly ledger: Ledger; readonly telemetry: Telemetry },
  share: CollectorShare,
  now: number,
  signal: AbortSignal,
): Promise<RunningMarkers> {
  const all = await Array.fromAsync(ledger.runningMarkers(signal));
  const [oldest] = all;
  // Each collector reports all markers, so the maximum of the metric is right, and not its sum. It also includes the
  // flows of a collector that does not run.
  telemetry.metrics.add('FlowsRunning', all.length);
  if (oldest !== undefined) telemetry.metrics.add('OldestRunningSeconds', secondsBetween(oldest.ageFrom, now));
  const isOurs = ({ uploadId }: RunningMarker): boolean => isIn(share, uploadId);
  const shared = [...Map.groupBy(all, ({ flowId }) => flowId).values()].filter(([first, ...others]) =>
    others.some(({ uploadId }) => uploadId !== first?.uploadId),
  );
  const sharing = new Set(shared.flat());
  return {
    ours: all.filter((marker) => isOurs(marker) && !sharing.has(marker)),
    shared: shared.filter((markers) => markers.some(isOurs)),
  };
}

/** What a collector remembers of uploads from tick to tick, by their ids. */
export class Remembered<T> {
  protected readonly noted: Map<string, T>;

  constructor(remembered: Readonly<Record<string, T>> = {}) {
    this.noted = new Map(Object.entries(remembered));
  }

  has(uploadId: string): boolean {
    return this.noted.has(uploadId);
  }

  /** Undefined if nothing is remembered of the upload. */
  of(uploadId: string): T | undefined {
    return this.noted.get(uploadId);
  }

  forget(uploadId: string): void {
    this.noted.delete(uploadId);
  }

  /** Forgets all other uploads. */
  retain(uploadIds: ReadonlySet<string>): void {
    for (const id of this.noted.keys()) if (!uploadIds.has(id)) this.noted.delete(id);
  }

  /** Undefined if nothing is remembered of any. */
  get remembered(): Record<string, T> | undefined {
    return this.noted.size === 0 ? undefined : Object.fromEntries(this.noted);
  }
}

/** Uploads with the times at which they were noted, the one that was noted longest ago first. */
export class NotedUploads extends Remembered<number> {
  /** Notes an upload. It is the last one then. */
  note(uploadId: string, at: number): void {
    this.noted.delete(uploadId);
    this.noted.set(uploadId, at);
  }

  /** Returns those of the markers whose uploads were noted, in the order of the notes, with their times. */
  among(markers: readonly RunningMarker[]): readonly { readonly marker: RunningMarker; readonly at: number }[] {
    const byUpload = new Map(markers.map((marker) => [marker.uploadId, marker]));
    return [...this.noted].flatMap(([uploadId, at]) => {
      const marker = byUpload.get(uploadId);
      return marker === undefined ? [] : [{ marker, at }];
    });
  }
}
