import { ThrottledError, UnauthorisedError, UnavailableError } from '../flow-service/errors.ts';

/** So many different flows in a row must hear the same before it is taken to hold for all. */
const EVERYBODY_FLOWS = 10;

/** What the service says to everybody. */
export type Outage = 'unauthorised' | 'throttled' | 'unavailable';

/**
 * What the answers of one tick say about the service as a whole.
 *
 * A refused token, a throttle, or a failure may be one flow's own trouble for ever. It says something about all flows
 * only if several different ones hear it and none is answered in between.
 */
export class ServiceHealth {
  /** Flows that failed in a row, and how the last of them did. */
  readonly #failing = new Map<string, Outage>();
  /** Two flows that were answered: enough to know of another one than any given flow. */
  readonly #answered = new Set<string>();

  answered(flowId: string): void {
    this.#failing.clear();
    if (this.#answered.size < 2) this.#answered.add(flowId);
  }

  /** Takes in why a flow could not be dealt with. Any other error than an outage's is an answer. */
  failed(flowId: string, error: unknown): void {
    const outage = outageOf(error);
    if (outage === undefined) this.answered(flowId);
    else this.#failing.set(flowId, outage);
  }

  /** Whether any flow was answered in this tick. */
  get hasAnswered(): boolean {
    return this.#answered.size > 0;
  }

  /** Whether the service has answered for another flow in this tick, so that this one's trouble is its own. */
  hasAnsweredForAnother(flowId: string): boolean {
    return this.#answered.size > (this.#answered.has(flowId) ? 1 : 0);
  }

  /** What everybody hears, as far as one may go on asking. */
  get outage(): Outage | undefined {
    return this.#failing.size >= EVERYBODY_FLOWS ? [...this.#failing.values()].at(-1) : undefined;
  }

  /** Whether flows were asked for, and none was answered in this tick. */
  get isInVain(): boolean {
    return !this.hasAnswered && this.#failing.size > 0;
  }

  /** What everybody has heard by the end of a round, however few they are. */
  get outageOfRound(): Outage | undefined {
    return this.hasAnswered ? this.outage : [...this.#failing.values()].at(-1);
  }
}

/** Undefined for an error that is an answer about the flow itself. */
export function outageOf(error: unknown): Outage | undefined {
  if (error instanceof UnauthorisedError) return 'unauthorised';
  if (error instanceof ThrottledError) return 'throttled';
  return error instanceof UnavailableError ? 'unavailable' : undefined;
}
