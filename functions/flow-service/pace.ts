import type { Clock } from '../base/clock.ts';
import { ThrottledError } from './errors.ts';
import { RefusedSubjects } from './refused-subjects.ts';

/** What goes first: 0 outputs and assets of flows that ended, 1 searches, 2 looks at running flows. */
export type Rank = 0 | 1 | 2;

/** A request that wants a turn. */
export interface PacedRequest {
  readonly rank: Rank;
  /** The flow or the upload that the request is about. */
  readonly subject: string;
  /** Milliseconds since the epoch. The request waits for a turn until then, and no longer. Default: no limit. */
  readonly startBy?: number | undefined;
  /** For how long it is sent again after a refusal, in milliseconds. Default: the pacer's own. */
  readonly patienceMs?: number | undefined;
}

/** A turn. Turns are numbered in the order in which they are given. */
export interface Turn {
  readonly number: number;
}

/** A rate that a process has learnt, for the next one to begin with. */
export interface LearntPace {
  readonly requestsPerSecond: number;
  /** Time of the last refusal, milliseconds since the epoch. */
  readonly refusedAt: number;
}

/** The last one is for subjects that were refused while others were answered. */
const RANKS = [0, 1, 2, 3];
const LAST_RANK = 3;

/** A rank gets a turn after so many turns of higher ones: at least a tenth of all, so that nothing starves. */
const TURNS_PASSED_OVER_MAX = 9;

/**
 * The rate after a refusal, as a share of the rate before. It is gentle if many requests got through since the refusal
 * before: then the rate is close to the limit, and only probed it. 0.7 is what the AWS SDK's adaptive mode uses.
 */
const DECREASE = 0.7;
const GENTLE_DECREASE = 0.9;
const GENTLE_FROM_ANSWERS = 8;

/**
 * Growth of the rate in a second in which requests waited, and at most by one turn. It is careful around the rate that
 * was refused, where each refusal costs its `Retry-After`. It is fast below that rate, and beyond it, where the limit
 * must have been raised.
 */
const FAST = { perSecond: 1.35, perTurnMax: 1.5 };
const CAREFUL = { perSecond: 1.06, perTurnMax: 1.015 };
const CAREFUL_FROM = 0.9;
const CAREFUL_TO = 1.1;

/**
 * Lowest rates, in requests a second: while the service lets some through, and while it lets none. Several processes may
 * share a limit of one a second. If they all went much slower than that, they would leave half of it unused.
 */
const RATE_MIN = 0.8;
const RATE_MIN_REFUSED = 0.1;

/** The service lets some through if it answered within this time, in milliseconds. */
const LETS_THROUGH_MS = 15_000;

/** The first rate is what got through in the last seconds, within this time in milliseconds. */
const MEASURED_MS_MIN = 1_000;
const MEASURED_MS_MAX = 10_000;

/** Timers are late: turns that a late one missed are made up for within this time, in milliseconds. */
const CATCH_UP_MS = 100;

/** A rate is forgotten after this time without a refusal, in milliseconds. */
const MEMORY_MS = 60 * 60_000;

/** Shortest wait after a refusal, in milliseconds: `Retry-After: 0` must not cause a hot loop. */
const REFUSED_WAIT_MS_MIN = 250;

/**
 * How long a first refusal holds back all requests, in milliseconds, if its `Retry-After` is longer. It doubles with
 * each further refusal in a row: a single one may be about one flow, and everybody's soon reach the `Retry-After`.
 */
const FIRST_HOLD_MS = 2_000;

/** After this time one request tries, in milliseconds, however long the `Retry-After` is: a bill may have been paid. */
const HOLD_MAX_MS = 15 * 60_000;

/** Nobody waits in place for a hold that is longer than this, in milliseconds. */
export const HOLD_PATIENCE_MS = 60_000;

interface Waiting extends PacedRequest {
  readonly since: number;
  readonly give: (turn: Turn) => void;
  readonly turnAway: (error: unknown) => void;
}

/**
 * The pace of one kind of request, learnt from the service's refusals.
 *
 *            first refusal                        an hour without a refusal
 *   open ────────────────────▶ limited to a rate ───────────────────────────▶ open
 *
 * While the pace is open, every request goes at once. While it is limited, requests take turns. The rate starts at
 * seven tenths of what really got through. A refusal lowers it to seven tenths, once for all requests that were under
 * way. It grows while requests wait for their turn. `Retry-After` holds back all requests of the kind.
 *
 * A refusal may also be one flow's own trouble. So it holds everybody back for two seconds at first, and for longer
 * only if others hear the same. A subject that is refused again and again while others are answered becomes a suspect:
 * its refusals concern nobody else until it is answered.
 *
 * Why not `DefaultRateLimiter` of `@smithy/core` (the AWS SDK's adaptive mode): it does not know `Retry-After`, an
 * order of requests, or a signal; its clock is the system's; and it never goes below one request in two seconds, which
 * several processes that share a limit of one a second must.
 */
export class Pace {
  readonly #clock: Clock;
  readonly #rateMax: number;
  /** Requests a second; undefined while the pace is open. */
  #rate: number | undefined;
  #refusedRate = 0;
  #refusedAt = Number.NEGATIVE_INFINITY;
  #heldUntil = 0;
  /** Refusals one after another, without an answer to a later turn. */
  #refusalsInARow = 0;
  #answersSinceRefusal = 0;
  #latestAnswerAt = Number.NEGATIVE_INFINITY;
  #latestRefusedTurn = 0;
  /** The last turn given before the latest refusal was heard. Refusals of turns up to it say the same thing again. */
  #lastTurnOfRefusal = 0;
  #turnCount = 0;
  #nextTurnAt = 0;
  #grownAt = 0;
  readonly #waiting: Waiting[] = [];
  readonly #passedOver: number[] = [];
  readonly #subjects = new RefusedSubjects();
  /** When the service answered what went while the pace was open. */
  #answeredAt: number[] = [];
  /** The last turn given while the pace was open, if the rate still rests on what got through then. */
  #lastOpenTurn = 0;
  #timer: AbortController | undefined;

  /** @param requestsPerSecondMax the operator's ceiling, which may be infinite. */
  constructor(clock: Clock, requestsPerSecondMax: number) {
    this.#clock = clock;
    this.#rateMax = requestsPerSecondMax;
  }

  /** What was learnt; undefined while the pace is open. */
  get learnt(): LearntPace | undefined {
    this.#forget(this.#clock.now());
    return this.#rate === undefined ? undefined : { requestsPerSecond: this.#rate, refusedAt: this.#refusedAt };
  }

  /** Begins with what another process learnt, unless that is too old or this one has heard a refusal since. */
  resume({ requestsPerSecond, refusedAt }: LearntPace): void {
    if (refusedAt <= this.#refusedAt || this.#clock.now() - refusedAt > MEMORY_MS) return;
    this.#rate = Math.max(RATE_MIN_REFUSED, requestsPerSecond);
    this.#refusedRate = this.#rate;
    this.#refusedAt = refusedAt;
  }

  /**
   * Resolves when the request may go. The caller reports what became of it to {@link answered} or {@link refused}.
   * @throws {ThrottledError} there is no turn in time. Also the signal's reason.
   */
  turn(request: PacedRequest, signal: AbortSignal): Promise<Turn> {
    signal.throwIfAborted();
    const { promise, resolve, reject } = Promise.withResolvers<Turn>();
    const leave = (): void => {
      signal.removeEventListener('abort', abort);
      this.#waiting.splice(this.#waiting.indexOf(waiting), 1);
    };
    const waiting: Waiting = {
      ...request,
      since: this.#clock.now(),
      give: (turn) => {
        leave();
        resolve(turn);
      },
      turnAway: (error) => {
        leave();
        reject(error);
      },
    };
    const abort = (): void => {
      waiting.turnAway(signal.reason);
      this.#giveTurns();
    };
    signal.addEventListener('abort', abort);
    this.#waiting.push(waiting);
    this.#giveTurns();
    return promise;
  }

  /** The service answered. @param exhaustedMs for how long, by its headers, nothing is left of the allowance. */
  answered(subject: string, turn: Turn, exhaustedMs = 0): void {
    const now = this.#clock.now();
    if (this.#rate === undefined) this.#measure(now);
    else if (turn.number <= this.#lastOpenTurn) this.#measureFirstRate(now);
    this.#subjects.answered(subject, turn.number);
    this.#answersSinceRefusal += 1;
    this.#latestAnswerAt = now;
    if (turn.number > this.#latestRefusedTurn) this.#refusalsInARow = 0;
    if (exhaustedMs > 0) this.#heldUntil = Math.max(this.#heldUntil, now + Math.min(exhaustedMs, HOLD_PATIENCE_MS));
  }

  /**
   * The service refused. Returns when the request may go again, in milliseconds since the epoch. Undefined: the
   * refusals are the subject's own, and another try now is in vain.
   */
  refused(subject: string, turn: Turn, retryAfterMs: number | undefined): number | undefined {
    const now = this.#clock.now();
    const waitMs = Math.min(HOLD_MAX_MS, Math.max(REFUSED_WAIT_MS_MIN, retryAfterMs ?? 1000 / (this.#rate ?? 1)));
    if (this.#subjects.refused(subject, turn.number, now + waitMs) === 'suspect') {
      const before = this.#subjects.takeRateBeforeSuspects();
      if (before !== undefined) {
        this.#rate = before.rate;
        this.#heldUntil = now;
      }
      this.#giveTurns();
      return undefined;
    }
    const isNews = turn.number > this.#lastTurnOfRefusal;
    this.#latestRefusedTurn = Math.max(this.#latestRefusedTurn, turn.number);
    if (isNews) {
      this.#lastTurnOfRefusal = this.#turnCount;
      this.#refusalsInARow += 1;
      this.#lower(now);
    }
    this.#subjects.noteLowered(subject);
    this.#refusedAt = now;
    this.#grownAt = now;
    const holdMs = Math.min(waitMs, FIRST_HOLD_MS * 2 ** Math.min(this.#refusalsInARow - 1, 20));
    this.#heldUntil = Math.max(this.#heldUntil, now + holdMs);
    this.#giveTurns();
    return Math.max(now + waitMs, this.#heldUntil);
  }

  /** Whether others were answered since the subject was refused, so that the refusal may be its own. */
  isContradicted(subject: string): boolean {
    return this.#subjects.isContradicted(subject);
  }

  #lower(now: number): void {
    this.#subjects.keepRateBefore(this.#rate);
    this.#lastOpenTurn = this.#rate === undefined ? this.#turnCount : 0;
    this.#refusedRate = this.#rate ?? Math.max(RATE_MIN / DECREASE, this.#measuredRate(now));
    const isGentle = this.#rate !== undefined && this.#answersSinceRefusal >= GENTLE_FROM_ANSWERS;
    const min = now - this.#latestAnswerAt < LETS_THROUGH_MS ? RATE_MIN : RATE_MIN_REFUSED;
    this.#rate = Math.max(min, this.#refusedRate * (isGentle ? GENTLE_DECREASE : DECREASE));
    this.#answersSinceRefusal = 0;
    if (this.#lastOpenTurn === 0) this.#answeredAt = [];
  }

  /** What was under way at the first refusal got through as well, if it is answered. */
  #measureFirstRate(now: number): void {
    this.#measure(now);
    const refusedRate = this.#measuredRate(now);
    if (refusedRate <= this.#refusedRate) return;
    this.#refusedRate = refusedRate;
    this.#rate = Math.max(this.#rate ?? 0, refusedRate * DECREASE);
  }

  #measure(now: number): void {
    this.#answeredAt.push(now);
    // Twice the time, so that old times are dropped many at once.
    if ((this.#answeredAt[0] as number) >= now - 2 * MEASURED_MS_MAX) return;
    this.#answeredAt = this.#answeredAt.filter((at) => at > now - MEASURED_MS_MAX);
  }

  #measuredRate(now: number): number {
    const recent = this.#answeredAt.filter((at) => at > now - MEASURED_MS_MAX);
    const elapsedMs = Math.max(MEASURED_MS_MIN, now - (recent[0] ?? now));
    return (recent.length * 1000) / elapsedMs;
  }

  #forget(now: number): void {
    if (this.#rate !== undefined && now - this.#refusedAt > MEMORY_MS) this.#rate = undefined;
  }

  #giveTurns(): void {
    this.#timer?.abort(RESCHEDULED);
    this.#timer = undefined;
    for (;;) {
      const now = this.#clock.now();
      this.#forget(now);
      const opensAt = this.#opensAt();
      this.#turnAwayInVain(now, opensAt);
      if (this.#waiting.length === 0) return;
      const next = opensAt > now ? undefined : this.#next(now);
      if (next === undefined) {
        const heldUntil = Math.min(...this.#waiting.map(({ subject }) => this.#subjects.heldUntil(subject)));
        const startBy = Math.min(...this.#waiting.map((waiting) => waiting.startBy ?? Number.POSITIVE_INFINITY));
        // One millisecond later the request is surely too late.
        void this.#wakeAt(Math.min(Math.max(opensAt, heldUntil), startBy + 1));
        return;
      }
      this.#spend(next, now);
      this.#turnCount += 1;
      next.give({ number: this.#turnCount });
    }
  }

  get #effectiveRate(): number {
    return Math.min(this.#rate ?? Number.POSITIVE_INFINITY, this.#rateMax);
  }

  #opensAt(): number {
    return this.#effectiveRate === Number.POSITIVE_INFINITY
      ? this.#heldUntil
      : Math.max(this.#heldUntil, this.#nextTurnAt);
  }

  /** Turns away requests that would wait for too long. Their callers put them off. */
  #turnAwayInVain(now: number, opensAt: number): void {
    for (const waiting of [...this.#waiting]) {
      const { subject, startBy = Number.POSITIVE_INFINITY } = waiting;
      const subjectHeldUntil = this.#subjects.heldUntil(subject);
      const heldUntil = Math.max(this.#heldUntil, subjectHeldUntil);
      const goesAt = Math.max(opensAt, heldUntil);
      const isHeldLong =
        heldUntil - now > HOLD_PATIENCE_MS || (subjectHeldUntil > now && this.#subjects.isSuspect(subject));
      if (!isHeldLong && (goesAt <= now || goesAt <= startBy)) continue;
      const retryAfterMs = heldUntil > now ? heldUntil - now : undefined;
      const message = 'The flow service allows no further request in the time that is left';
      waiting.turnAway(new ThrottledError(message, { retryAfterMs, wasSent: false }));
    }
  }

  /**
   * The first request of the highest rank whose turn it is. A refused subject goes after the others of its rank. If
   * others were answered since, it goes after all ranks for a while: it may be poisoned.
   */
  #next(now: number): Waiting | undefined {
    const ranks: (Waiting | undefined)[] = RANKS.map(() => undefined);
    for (const waiting of this.#waiting) {
      const { subject } = waiting;
      if (this.#subjects.heldUntil(subject) > now) continue;
      const rank = this.#subjects.isPutBack(subject, now) ? LAST_RANK : waiting.rank;
      const first = ranks[rank];
      if (first === undefined || (this.#subjects.has(first.subject) && !this.#subjects.has(subject))) {
        ranks[rank] = waiting;
      }
    }
    const isOverdue = (rank: number): boolean => (this.#passedOver[rank] ?? 0) >= TURNS_PASSED_OVER_MAX;
    const ready = RANKS.filter((rank) => ranks[rank] !== undefined);
    const chosen = ready.find(isOverdue) ?? ready[0];
    if (chosen === undefined) return undefined;
    for (const rank of ready) this.#passedOver[rank] = rank > chosen ? (this.#passedOver[rank] ?? 0) + 1 : 0;
    return ranks[chosen];
  }

  /** A turn costs its share of a second. The rate grows by the time for which requests have been waiting. */
  #spend({ since }: Waiting, now: number): void {
    if (this.#rate !== undefined) {
      const waitedSeconds = (now - Math.max(since, this.#grownAt)) / 1000;
      if (this.#rate <= this.#rateMax) this.#rate = this.#grown(this.#rate, waitedSeconds);
      this.#grownAt = now;
    }
    const gapMs = 1000 / this.#effectiveRate;
    this.#nextTurnAt = Math.max(this.#nextTurnAt, now - CATCH_UP_MS) + gapMs;
  }

  #grown(rate: number, seconds: number): number {
    const carefulFrom = this.#refusedRate * CAREFUL_FROM;
    const by = ({ perSecond, perTurnMax }: typeof FAST): number => rate * Math.min(perTurnMax, perSecond ** seconds);
    if (rate < carefulFrom) return Math.min(carefulFrom, by(FAST));
    return rate < this.#refusedRate * CAREFUL_TO ? by(CAREFUL) : by(FAST);
  }

  async #wakeAt(at: number): Promise<void> {
    const timer = new AbortController();
    this.#timer = timer;
    try {
      await this.#clock.sleep(Math.max(0, at - this.#clock.now()), timer.signal);
    } catch {
      return; // Another timer took its place.
    }
    this.#giveTurns();
  }
}

/** Why a timer ends early. One for all, because an error with its stack costs more than the timer. */
const RESCHEDULED = new Error('The pace has another timer');
