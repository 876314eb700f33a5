import type { FirstLook } from '../ledger/collector-state.ts';

/** How long a first observation waits for its confirmation, in milliseconds: longer than the longest poll gap. */
const OBSERVATION_AGE_MAX_MS = 60 * 60_000;

/** First observations that are remembered. Beyond this number, the end of a flow is only confirmed later. */
const OBSERVATIONS_MAX = 1_000;

/**
 * Confirms by a second poll any end that a single bad response could fake: it would cost a flow that is paid for. Two
 * polls in a row must see the same, at least one poll interval apart. The first observation is remembered beside the
 * collector's lease.
 */
export class EndConfirmations {
  readonly #observations: Map<string, FirstLook>;
  readonly #pollIntervalMs: number;

  constructor(remembered: Readonly<Record<string, FirstLook>>, pollIntervalMs: number) {
    this.#observations = new Map(Object.entries(remembered));
    this.#pollIntervalMs = pollIntervalMs;
  }

  /** Returns true if the last poll, at least one poll interval ago, saw the same. Else remembers this observation. */
  confirms(uploadId: string, digest: string, now: number): boolean {
    const first = this.#observations.get(uploadId);
    const ageMs = first?.digest === digest ? now - first.at : Number.POSITIVE_INFINITY;
    // After an old observation, other polls may have seen something else.
    if (ageMs <= Math.max(OBSERVATION_AGE_MAX_MS, 3 * this.#pollIntervalMs)) return ageMs >= this.#pollIntervalMs;
    const hasRoom = first !== undefined || this.#observations.size < OBSERVATIONS_MAX;
    if (hasRoom) this.#observations.set(uploadId, { digest, at: now });
    return false;
  }

  /** A poll saw something else, so the next two polls must agree. @param digest forget only this observation. */
  forget(uploadId: string, digest = this.#observations.get(uploadId)?.digest): void {
    if (this.#observations.get(uploadId)?.digest === digest) this.#observations.delete(uploadId);
  }

  /** Forgets all uploads but these, whose flows are still running. */
  retain(uploadIds: ReadonlySet<string>): void {
    for (const uploadId of this.#observations.keys()) if (!uploadIds.has(uploadId)) this.#observations.delete(uploadId);
  }

  get remembered(): Readonly<Record<string, FirstLook>> | undefined {
    return this.#observations.size === 0 ? undefined : Object.fromEntries(this.#observations);
  }
}
