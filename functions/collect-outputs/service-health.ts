import { MisaddressedError, ThrottledError, UnauthorisedError, UnavailableError } from '../flow-service/errors.ts';

/** Different flows that must fail in a row before the service is taken to have an outage. */
const OUTAGE_FLOWS = 10;

/** Why the service answers for no flow. */
export type Outage = 'unauthorised' | 'throttled' | 'unavailable' | 'misaddressed';

/**
 * Tells an outage of the service from the trouble of single flows, by the answers of one tick.
 *
 * A refused token, a throttle, or a failure may be one flow's own trouble for ever. It is an outage only if several
 * different flows fail and none is answered in between.
 */
export class ServiceHealth {
  /** By flow id: the flows that failed in a row, and how. */
  readonly #failing = new Map<string, Outage>();
  /** Flows that were answered. Two are enough to tell whether a flow other than the given one was answered. */
  readonly #answered = new Set<string>();

  answered(flowId: string): void {
    this.#failing.clear();
    if (this.#answered.size < 2) this.#answered.add(flowId);
  }

  /** Takes in the error of a flow. An error that is no outage counts as an answer. */
  failed(flowId: string, error: unknown): void {
    const outage = outageOf(error);
    if (outage === undefined) this.answered(flowId);
    else this.#failing.set(flowId, outage);
  }

  /** True if any flow was answered in this tick. */
  get hasAnswered(): boolean {
    return this.#answered.size > 0;
  }

  /** Returns true if the service has answered for another flow in this tick: then this flow's trouble is its own. */
  hasAnsweredForAnother(flowId: string): boolean {
    return this.#answered.size > (this.#answered.has(flowId) ? 1 : 0);
  }

  /** The outage, once enough flows have failed in a row. Until then the tick goes on. */
  get outage(): Outage | undefined {
    return this.#failing.size >= OUTAGE_FLOWS ? [...this.#failing.values()].at(-1) : undefined;
  }

  /** True if flows were polled, and none was answered in this tick. */
  get isUnanswered(): boolean {
    return !this.hasAnswered && this.#failing.size > 0;
  }

  /** The outage at the end of a round: few failing flows are enough if none was answered. */
  get outageOfRound(): Outage | undefined {
    return this.hasAnswered ? this.outage : [...this.#failing.values()].at(-1);
  }
}

/** Returns undefined for an error that is an answer about the flow itself. */
export function outageOf(error: unknown): Outage | undefined {
  if (error instanceof UnauthorisedError) return 'unauthorised';
  if (error instanceof ThrottledError) return 'throttled';
  if (error instanceof MisaddressedError) return 'misaddressed';
  return error instanceof UnavailableError ? 'unavailable' : undefined;
}
