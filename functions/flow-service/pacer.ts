import type { Clock } from '../base/clock.ts';
import { ThrottledError } from './errors.ts';
import type { LearntPace } from './learnt-rate.ts';
import { HOLD_PATIENCE_MS, Pace, type PacedRequest, type Turn } from './pace.ts';
import { exhaustedMs, retryAfterMs } from './rate-limit-headers.ts';
import { isThrottled } from './status-errors.ts';
import type { TransportResponse } from './transport.ts';

/**
 * How long a throttled request is sent again, in milliseconds. For a creation, the caller's `startBy` counts instead.
 */
const PATIENCE_MS = 60_000;

/** The same if others were answered since. The trouble may be the flow's own and must not hold up the round. */
const CONTRADICTED_PATIENCE_MS = 20_000;

/** Wait after a 402 (the account's budget is spent) that names no time, in milliseconds. */
const SPENT_WAIT_MS = 5 * 60_000;

/** Services limit the creation of flows apart from everything else. */
export type RequestKind = 'creation' | 'other';

/**
 * The one way to the flow service for all requests of a process. It has one pace for creations and one for all other
 * requests, because throttling of the one says nothing about the other.
 *
 * A throttled request is sent again here. Callers see a throttle only if they cannot wait that long.
 */
export class Pacer {
  readonly #clock: Clock;
  readonly #paces: Readonly<Record<RequestKind, Pace>>;

  /** @param ceiling the operator's limit for each kind, in requests a second. */
  constructor(clock: Clock, ceiling: number | 'unlimited' = 'unlimited') {
    const max = ceiling === 'unlimited' ? Number.POSITIVE_INFINITY : ceiling;
    this.#clock = clock;
    this.#paces = { creation: new Pace(clock, max), other: new Pace(clock, max) };
  }

  /** The learnt pace of all requests but creations. Undefined if no limit is known. */
  get learnt(): LearntPace | undefined {
    return this.#paces.other.learnt;
  }

  /** True if the service throttled a creation within the last hour. */
  get isCreationLimited(): boolean {
    return this.#paces.creation.learnt !== undefined;
  }

  resume(learnt: LearntPace): void {
    this.#paces.other.resume(learnt);
  }

  /**
   * Sends a request when its turn has come, and again if it is throttled. Returns the last response. That is a
   * throttled one if further waiting cannot help or would take too long.
   * @param send sends the request once. Each try calls it anew.
   * @throws {ThrottledError} the request was not sent, because there was no turn in time. Also any error of `send`.
   */
  async send(
    kind: RequestKind,
    request: PacedRequest,
    signal: AbortSignal,
    send: () => Promise<TransportResponse>,
  ): Promise<TransportResponse> {
    const pace = this.#paces[kind];
    const { subject, startBy = Number.POSITIVE_INFINITY } = request;
    // A resubmitted upload comes about once a minute. With one try each time, it would starve beside a busy collector.
    if (kind === 'creation') pace.pardon(subject);
    let firstThrottledAt: number | undefined;
    for (;;) {
      const turn = await turnAt(pace, request, signal, firstThrottledAt !== undefined);
      const response = await send();
      const now = this.#clock.now();
      if (!isThrottled(response)) {
        pace.answered(subject, turn, exhaustedMs(response, now));
        return response;
      }
      firstThrottledAt ??= now;
      const waitMs = retryAfterMs(response, now) ?? exhaustedMs(response, now);
      const againAt = pace.throttled(subject, turn, waitMs ?? (response.status === 402 ? SPENT_WAIT_MS : undefined));
      const ownPatienceMs = pace.isContradicted(subject) ? CONTRADICTED_PATIENCE_MS : PATIENCE_MS;
      const { patienceMs = ownPatienceMs } = request;
      const patienceEndsAt = kind === 'creation' ? startBy : firstThrottledAt + patienceMs;
      const isWorthWaiting = againAt !== undefined && againAt <= Math.min(patienceEndsAt, now + HOLD_PATIENCE_MS);
      if (!isWorthWaiting || mayHaveTakenEffect(kind, response)) return response;
      response.destroy();
    }
  }
}

async function turnAt(pace: Pace, request: PacedRequest, signal: AbortSignal, wasSent: boolean): Promise<Turn> {
  try {
    return await pace.turn(request, signal);
  } catch (error) {
    if (!(error instanceof ThrottledError) || !wasSent) throw error;
    const message = `${error.message}, after the request was throttled`;
    throw new ThrottledError(message, { retryAfterMs: error.retryAfterMs, cause: error });
  }
}

/** True for a 503 to a creation that was sent to its last byte. A flow may exist, which the caller must find out. */
const mayHaveTakenEffect = (kind: RequestKind, { status, sent = 'all' }: TransportResponse): boolean =>
  kind === 'creation' && status === 503 && sent === 'all';
