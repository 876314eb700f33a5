import type { RunningMarker } from '../ledger/keys.ts';
import type { Lease, UnconfirmedEnd } from './collector.ts';

/** How long a first observation waits for its confirmation, in milliseconds: longer than the longest poll gap. */
const OBSERVATION_AGE_MAX_MS = 60 * 60_000;

/** First observations that are remembered. Beyond this number, the end of a flow is only confirmed later. */
const OBSERVATIONS_MAX = 1_000;

/** The digest of complete outputs begins with this. The digest of a loss is the code of its failure. */
const OUTPUTS = 'outputs ';

/** The lease of the tick. It tells whether other ticks may have polled since the first observation. */
export type TickLease = Pick<Lease, 'state' | 'wasReleased' | 'isStillHeld'>;

/**
 * Confirms by a second poll any end that a single bad response could fake: it would cost a flow that is paid for. Two
 * polls in a row must see the same, at least one poll interval apart. The first observation is remembered beside the
 * collector's lease.
 *
 * Losses are confirmed only under one unbroken lease: otherwise another tick may have polled in between. A tick
 * observes no loss if the last tick did not release its lease: that tick died without writing what it saw last, or
 * still polls. Complete outputs need no lease: a second poll cannot lose them.
 */
export class EndConfirmations {
  readonly #observations: Map<string, UnconfirmedEnd>;
  readonly #lease: TickLease | undefined;
  readonly #pollIntervalMs: number;

  constructor(lease: TickLease | undefined, pollIntervalMs: number) {
    this.#lease = lease;
    this.#pollIntervalMs = pollIntervalMs;
    const remembered = Object.entries(lease?.state.unconfirmedEnds ?? {});
    this.#observations = new Map(remembered.filter(([, { digest }]) => this.#isObserved(digest)));
  }

  /** Like {@link confirms}, for outputs that are complete. @param digest of the outputs. */
  confirmsOutputs(uploadId: string, digest: string, now: number): boolean {
    return this.confirms(uploadId, `${OUTPUTS}${digest}`, now);
  }

  /** Returns true if the last poll, at least one poll interval ago, saw the same. Else remembers this observation. */
  confirms(uploadId: string, digest: string, now: number): boolean {
    if (!this.#isObserved(digest)) return false;
    const first = this.#observations.get(uploadId);
    const ageMs = first?.digest === digest ? now - first.at : Number.POSITIVE_INFINITY;
    // After an old observation, other polls may have seen something else.
    if (ageMs <= Math.max(OBSERVATION_AGE_MAX_MS, 3 * this.#pollIntervalMs)) return ageMs >= this.#pollIntervalMs;
    const hasRoom = first !== undefined || this.#observations.size < OBSERVATIONS_MAX;
    if (hasRoom) this.#observations.set(uploadId, { digest, at: now });
    return false;
  }

  /** Returns true if no other tick had the lease until now. Another tick may have seen the flow since our last poll. */
  async areInRow(signal: AbortSignal): Promise<boolean> {
    return (await this.#lease?.isStillHeld(signal)) === true;
  }

  /** A poll saw something else, so the next two polls must agree. @param digest forget only this observation. */
  forget(uploadId: string, digest = this.#observations.get(uploadId)?.digest): void {
    if (this.#observations.get(uploadId)?.digest === digest) this.#observations.delete(uploadId);
  }

  /** Keeps only what was seen of running flows, and of each since its marker was put. */
  retain(running: readonly RunningMarker[]): void {
    const since = new Map(running.map(({ uploadId, ageFrom }) => [uploadId, ageFrom]));
    for (const [uploadId, { at }] of this.#observations) {
      if (at < (since.get(uploadId) ?? Number.POSITIVE_INFINITY)) this.#observations.delete(uploadId);
    }
  }

  get remembered(): Readonly<Record<string, UnconfirmedEnd>> | undefined {
    return this.#observations.size === 0 ? undefined : Object.fromEntries(this.#observations);
  }

  #isObserved(digest: string): boolean {
    return this.#lease?.wasReleased === true || digest.startsWith(OUTPUTS);
  }
}
