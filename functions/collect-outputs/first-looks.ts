import type { FirstLook } from '../ledger/collector-state.ts';

/** How long a first look counts, in milliseconds: longer than the longest time between two looks. */
const LOOK_AGE_MAX_MS = 60 * 60_000;

/** First looks that are remembered. Beyond it a flow's end is only seen later. */
const FIRST_LOOKS_MAX = 1_000;

/**
 * Ends that one wrong answer could fake, and that cost a flow which is paid for. They are believed when two looks in a
 * row see the same, a poll interval apart. The first look is remembered here, beside the collector's lease.
 */
export class FirstLooks {
  readonly #looks: Map<string, FirstLook>;
  readonly #pollIntervalMs: number;

  constructor(remembered: Readonly<Record<string, FirstLook>>, pollIntervalMs: number) {
    this.#looks = new Map(Object.entries(remembered));
    this.#pollIntervalMs = pollIntervalMs;
  }

  /** Whether the look before this one, at least one poll interval ago, saw the same. */
  isSecond(uploadId: string, digest: string, now: number): boolean {
    const first = this.#looks.get(uploadId);
    const ageMs = first?.digest === digest ? now - first.at : Number.POSITIVE_INFINITY;
    // What was seen long ago may have been otherwise in between.
    if (ageMs <= Math.max(LOOK_AGE_MAX_MS, 3 * this.#pollIntervalMs)) return ageMs >= this.#pollIntervalMs;
    if (first !== undefined || this.#looks.size < FIRST_LOOKS_MAX) this.#looks.set(uploadId, { digest, at: now });
    return false;
  }

  /** A look saw something else: looks are no longer in a row. @param digest forgotten only if this is what was seen. */
  forget(uploadId: string, digest = this.#looks.get(uploadId)?.digest): void {
    if (this.#looks.get(uploadId)?.digest === digest) this.#looks.delete(uploadId);
  }

  /** Forgets the flows that are not running any more. */
  retain(uploadIds: ReadonlySet<string>): void {
    for (const uploadId of this.#looks.keys()) if (!uploadIds.has(uploadId)) this.#looks.delete(uploadId);
  }

  get remembered(): Readonly<Record<string, FirstLook>> | undefined {
    return this.#looks.size === 0 ? undefined : Object.fromEntries(this.#looks);
  }
}
