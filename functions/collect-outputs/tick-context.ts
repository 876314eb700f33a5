import type { Invocation } from '../base/invocation.ts';
import { LISTING_DELAY_MAX_MS } from '../flow-service/flow-search.ts';
import type { RunningMarker } from '../ledger/keys.ts';
import type { AssetSlots } from './asset-slots.ts';
import {
  type CollectorShare,
  type Lease,
  type NotedUploads,
  Remembered,
  type UnclearPolls,
  type UnconfirmedEnd,
} from './collector.ts';
import type { FailureIsolation } from './failure-isolation.ts';

/** How long a first observation waits for its confirmation, in milliseconds: longer than the longest poll gap. */
const OBSERVATION_AGE_MAX_MS = 60 * 60_000;

/**
 * How long a 404 proves nothing after the service has shown a flow that it had not known, in milliseconds. Some of its
 * replicas know only the flows that they have made, so a flow may be unknown to several polls in a row.
 */
const FORGETFUL_MS = 24 * 60 * 60_000;

/** Maximum number of first observations that are remembered. Beyond it, the end of a flow is confirmed later. */
const OBSERVATIONS_MAX = 1_000;

/** Maximum number of flows whose unclear polls are counted. The alarm does not need more. */
const UNCLEAR_MAX = 1_000;

/** The failure code of a flow that the service no longer knows. */
export const GONE = 'flow-gone';

/**
 * Prefix of the digest of complete outputs. For an end without outputs, such as {@link GONE}, the digest is the code of
 * the failure.
 */
export const OUTPUTS = 'outputs ';

/** What the parts of a tick share. */
export interface TickContext {
  readonly share: CollectorShare;
  readonly invocation: Invocation;
  readonly isolation: FailureIsolation;
  readonly confirmations: EndConfirmations;
  readonly unclear: UnclearFlows;
  /**
   * Flows that have ended, and are not stored yet. The time of each is when one of its assets last had a slot; before
   * that, when it ended. The next tick stores these flows first, the earliest time before all others. So each has its
   * turn, even if a tick is too short for all.
   */
  readonly ended: NotedUploads;
  readonly slots: AssetSlots;
  /**
   * Ended flows whose assets take slow slots in this tick: see `AssetSlots`. The one that has waited longest comes first.
   */
  readonly lagging: NotedUploads;
  /** Running flows whose last poll was slow. Each round polls them after all others. */
  readonly slow: NotedUploads;
}

/**
 * Counts the polls in a row that were answered with an error, or with what does not fit the description of the service,
 * such as a word that is not declared.
 */
export class UnclearFlows extends Remembered<UnclearPolls> {
  /** Counts such a poll. Returns the number of them in a row. @param word the word that is not declared. */
  note(uploadId: string, word: string | undefined): number {
    const before = this.of(uploadId);
    const polls = (before?.polls ?? 0) + 1;
    if (before !== undefined || this.noted.size < UNCLEAR_MAX) this.noted.set(uploadId, { word, polls });
    return polls;
  }
}

/**
 * Confirms by a second poll any end that a single bad response could fake: a false end costs a flow that is paid for.
 * Two polls in a row must see the same, at least one poll interval apart. The first observation is remembered beside
 * the collector's lease.
 *
 * A loss is an end without outputs. It is confirmed only if no other tick has had the lease since the first of the two
 * polls: another tick may have polled in between. If the last tick did not release its lease, this tick ignores losses:
 * the last tick died before it wrote what it saw, or still polls. Complete outputs need no lease: they are still there
 * after a poll of another tick.
 */
export class EndConfirmations extends Remembered<UnconfirmedEnd> {
  readonly #lease: Lease;
  readonly #pollIntervalMs: number;
  #shownAgainAt: number | undefined;

  constructor(lease: Lease, pollIntervalMs: number) {
    super(lease.state.unconfirmedEnds);
    this.#lease = lease;
    this.#pollIntervalMs = pollIntervalMs;
    this.#shownAgainAt = lease.state.shownAgainAt;
    for (const [uploadId, { digest }] of this.noted) if (!this.#isObserved(digest)) this.noted.delete(uploadId);
  }

  /**
   * Returns true if this was first seen at least one poll interval ago. Remembers a first observation.
   * @param apartMs shortest time between the two, if it is longer than a poll interval.
   */
  confirms(uploadId: string, digest: string, now: number, apartMs = 0): boolean {
    if (!this.#isObserved(digest)) return false;
    const first = this.of(uploadId);
    const ageMs = first?.digest === digest ? now - first.at : Number.POSITIVE_INFINITY;
    // After an old observation, other polls may have seen something else.
    if (ageMs <= Math.max(OBSERVATION_AGE_MAX_MS, 3 * this.#pollIntervalMs))
      return ageMs >= Math.max(apartMs, this.#pollIntervalMs);
    const hasRoom = first !== undefined || this.noted.size < OBSERVATIONS_MAX;
    if (hasRoom) this.noted.set(uploadId, { digest, at: now });
    return false;
  }

  /** When the service last showed a flow that it had not known before. */
  get shownAgainAt(): number | undefined {
    return this.#shownAgainAt;
  }

  /** Notes that the service shows this flow, whatever it said before. */
  noteShown({ uploadId, ageFrom }: RunningMarker, now: number): void {
    const before = this.of(uploadId);
    // A replica may not know a young flow yet, and knows it soon.
    if (before?.digest === GONE && before.at - ageFrom >= LISTING_DELAY_MAX_MS) this.#shownAgainAt = now;
    this.forget(uploadId, GONE);
  }

  /** True if the service has lately shown a flow that it had not known. Then no 404 proves that a flow is gone. */
  isForgetful(now: number): boolean {
    return this.#shownAgainAt !== undefined && now - this.#shownAgainAt < FORGETFUL_MS;
  }

  /** True if no other tick had the lease since this one took it. Another may have seen the flow in between. */
  areInRow(signal: AbortSignal): Promise<boolean> {
    return this.#lease.isStillHeld(signal);
  }

  /**
   * Forgets what was seen, because a poll saw something else: the next two must agree. @param digest forget only this
   * observation.
   */
  override forget(uploadId: string, digest = this.of(uploadId)?.digest): void {
    if (this.of(uploadId)?.digest === digest) this.noted.delete(uploadId);
  }

  /** Forgets an end without outputs, because a poll saw some. Complete outputs that were seen stay remembered. */
  forgetLoss(uploadId: string): void {
    if (this.of(uploadId)?.digest.startsWith(OUTPUTS) === false) this.forget(uploadId);
  }

  /** Keeps only what was seen of running flows since their markers were put. */
  retainSince(running: readonly RunningMarker[]): void {
    const since = new Map(running.map(({ uploadId, ageFrom }) => [uploadId, ageFrom]));
    for (const [uploadId, { at }] of this.noted) {
      if (at < (since.get(uploadId) ?? Number.POSITIVE_INFINITY)) this.noted.delete(uploadId);
    }
  }

  #isObserved(digest: string): boolean {
    return this.#lease.wasReleased || digest.startsWith(OUTPUTS);
  }
}
