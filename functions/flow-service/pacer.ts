import type { Clock } from '../base/clock.ts';
import { ThrottledError } from './errors.ts';
import { HOLD_PATIENCE_MS, type LearntPace, Pace, type PacedRequest, type Turn } from './pace.ts';
import { exhaustedMs, retryAfterMs } from './rate-limit-headers.ts';
import type { TransportResponse } from './transport.ts';

/** For how long a request is sent again after its first refusal, in milliseconds. Creations wait as their callers say. */
const PATIENCE_MS = 60_000;

/** The same if others were answered since: the refusal may be the flow's own, and must not hold up its round. */
const CONTRADICTED_PATIENCE_MS = 20_000;

/** How long requests wait after a 402 (the account's budget is spent) that names no time, in milliseconds. */
const SPENT_WAIT_MS = 5 * 60_000;

/** Services limit the creation of flows apart from everything else. */
export type RequestKind = 'creation' | 'other';

/**
 * Everything that a process asks of the flow service goes through its pacer: one pace for creations and one for all
 * other requests, because one being refused says nothing of the other.
 *
 * A refused request goes again by itself. Callers see a throttle only if they cannot wait for so long.
 */
export class Pacer {
  readonly #clock: Clock;
  readonly #paces: Readonly<Record<RequestKind, Pace>>;

  /** @param ceiling requests a second of each kind, at most. */
  constructor(clock: Clock, ceiling: number | 'unlimited' = 'unlimited') {
    const max = ceiling === 'unlimited' ? Number.POSITIVE_INFINITY : ceiling;
    this.#clock = clock;
    this.#paces = { creation: new Pace(clock, max), other: new Pace(clock, max) };
  }

  /** What was learnt of all requests but creations; undefined if no limit is known. */
  get learnt(): LearntPace | undefined {
    return this.#paces.other.learnt;
  }

  /** Whether the service has refused creations within the last hour. */
  get isCreationLimited(): boolean {
    return this.#paces.creation.learnt !== undefined;
  }

  resume(learnt: LearntPace): void {
    this.#paces.other.resume(learnt);
  }

  /**
   * Sends a request when its turn has come, again if it is refused. Returns the last answer, which is a refusal if
   * waiting on is in vain or would take too long.
   * @param send sends it once. It is called anew for each try.
   * @throws {ThrottledError} it was not sent, for there was no turn in time. Also whatever `send` throws.
   */
  async send(
    kind: RequestKind,
    request: PacedRequest,
    signal: AbortSignal,
    send: () => Promise<TransportResponse>,
  ): Promise<TransportResponse> {
    const pace = this.#paces[kind];
    const { subject, startBy = Number.POSITIVE_INFINITY } = request;
    let firstRefusedAt: number | undefined;
    for (;;) {
      const turn = await turnAt(pace, request, signal, firstRefusedAt !== undefined);
      const response = await send();
      const now = this.#clock.now();
      if (!isRefusal(response)) {
        pace.answered(subject, turn, exhaustedMs(response, now));
        return response;
      }
      firstRefusedAt ??= now;
      const waitMs = retryAfterMs(response, now) ?? exhaustedMs(response, now);
      const againAt = pace.refused(subject, turn, waitMs ?? (response.status === 402 ? SPENT_WAIT_MS : undefined));
      const ownPatienceMs = pace.isContradicted(subject) ? CONTRADICTED_PATIENCE_MS : PATIENCE_MS;
      const { patienceMs = ownPatienceMs } = request;
      const patienceEndsAt = kind === 'creation' ? startBy : firstRefusedAt + patienceMs;
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
    throw new ThrottledError(`${error.message}, after a refusal`, { retryAfterMs: error.retryAfterMs, cause: error });
  }
}

const isRefusal = ({ status, headers }: TransportResponse): boolean =>
  status === 429 || status === 402 || (status === 503 && headers['retry-after'] !== undefined);

/** A 503 to a creation that was sent to its end leaves a doubt, which is not the pacer's to settle. */
const mayHaveTakenEffect = (kind: RequestKind, { status, sent = 'all' }: TransportResponse): boolean =>
  kind === 'creation' && status === 503 && sent === 'all';
