import type { Clock } from '../base/clock.ts';
import { ThrottledError } from './errors.ts';
import { type LearntPace, LearntRate } from './learnt-rate.ts';
import { ThrottledSubjects } from './throttled-subjects.ts';

/**
 * Priority of a request, highest first: 0 outputs and assets of ended flows, and aborts; 1 searches; 2 polls of running
 * flows, and the listings that take their place.
 */
export type Rank = 0 | 1 | 2;

/** A request that wants a turn. */
export interface PacedRequest {
  readonly rank: Rank;
  /** The flow or the upload that the request is about. */
  readonly subject: string;
  /** Latest time to send the request, in milliseconds since the epoch. Default: no limit. */
  readonly startBy?: number | undefined;
  /** How long a throttled request is sent again, in milliseconds. Default: the pacer's own. */
  readonly patienceMs?: number | undefined;
}

/** A turn. Turns are numbered in the order in which they are granted. */
export interface Turn {
  readonly number: number;
}

/** The last rank is for subjects that were throttled while others were answered. */
const RANKS = [0, 1, 2, 3];
const LAST_RANK = 3;

/** Turns of higher ranks after which a rank gets one: at least a tenth of all, so that nothing starves. */
const TURNS_SKIPPED_MAX = 9;

/** Timers are late. Turns that a late timer missed are made up for within this time, in milliseconds. */
const CATCH_UP_MS = 100;

/** Shortest wait of a throttled request, in milliseconds: `Retry-After: 0` must not cause a hot loop. */
const THROTTLED_WAIT_MS_MIN = 250;

/**
 * Longest hold on all requests after the first throttled one, in milliseconds, however long its `Retry-After` is. It
 * doubles with each further subject that is throttled in a row. One subject may be throttled for ever because of its
 * own trouble; a real limit soon reaches the `Retry-After`, because all subjects are throttled.
 */
const FIRST_HOLD_MS = 2_000;

/** Subjects in a row that are counted, which is enough for the longest hold. */
const SUBJECTS_IN_A_ROW_MAX = 10;

/**
 * Subjects in a row after which the rest of a burst is not counted. The others of the burst may yet be answered, and a
 * hold of 32 seconds is waited out in place until they are.
 */
const SUBJECTS_OF_A_BURST_MAX = 5;

/** Longest hold, in milliseconds. Then one request tries, because a bill may have been paid. */
const HOLD_MAX_MS = 15 * 60_000;

/** Longest hold that requests wait out in place, in milliseconds. */
export const HOLD_PATIENCE_MS = 60_000;

/** Ends a timer early. One shared error, because an error with its stack costs more than the timer. */
const RESCHEDULED = new Error('The pace has another timer');

interface Waiting extends PacedRequest {
  readonly since: number;
  readonly grant: (turn: Turn) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * The pace of one kind of request, learnt from the requests that the service throttles.
 *
 *        first throttled request          an hour without a throttled request
 *   open ───────────────────────▶ limited ───────────────────────────────────▶ open
 *
 * While the pace is open, requests go at once, up to the operator's ceiling. While it is limited, requests take turns.
 * The rate starts at seven tenths of what was really answered. A throttled request lowers it to seven tenths, once for
 * all requests that were under way. It grows while requests wait for their turn. `Retry-After` holds back all requests
 * of the kind.
 *
 * A throttled request may also be the trouble of one flow. So it holds back all requests for two seconds at first, and
 * for longer only if others are throttled too. A subject that is throttled again and again while others are answered
 * becomes a suspect: its throttled requests slow no other subject until it is answered.
 *
 * Why not `DefaultRateLimiter` of `@smithy/core` (the AWS SDK's adaptive mode)? It does not know `Retry-After`, an
 * order of requests, or a signal. Its clock is the system's. It never goes below one request in two seconds, even if
 * nothing is answered.
 */
export class Pace {
  readonly #clock: Clock;
  readonly #rate: LearntRate;
  readonly #subjects = new ThrottledSubjects();
  readonly #waiting: Waiting[] = [];
  /** By rank: turns granted to higher ranks while a request of the rank was ready. */
  readonly #skipped: number[] = [];
  /** The hold that the service asked for in headers, and the first hold after a throttled request. */
  #firstHoldUntil = 0;
  /** The longer hold after several throttled subjects in a row. An answer to a later turn ends it. */
  #longHoldUntil = 0;
  #turnCount = 0;
  #nextTurnAt = 0;
  /** Subjects throttled one after another, without an answer to a later turn. */
  readonly #throttledInARow = new Set<string>();
  #latestThrottledTurn = 0;
  /**
   * The last turn granted when the rate was last lowered. Ignore a throttle of an earlier turn: the rate was already
   * lowered for it.
   */
  #lastTurnOfDecrease = 0;
  #timer: AbortController | undefined;

  /** @param ceiling the operator's limit in requests a second, which may be infinite. */
  constructor(clock: Clock, ceiling: number) {
    this.#clock = clock;
    this.#rate = new LearntRate(ceiling);
  }

  /** The learnt rate. Undefined while the pace is open. */
  get learnt(): LearntPace | undefined {
    this.#rate.forgetIfOld(this.#clock.now());
    return this.#rate.learnt;
  }

  /** Continues with the rate of another process, unless it is too old or this process was throttled since. */
  resume(learnt: LearntPace): void {
    this.#rate.resume(learnt, this.#clock.now());
  }

  /**
   * Resolves when the request may go. The caller then reports the outcome to {@link answered} or {@link throttled}.
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
      grant: (turn) => {
        leave();
        resolve(turn);
      },
      reject: (error) => {
        leave();
        reject(error);
      },
    };
    const abort = (): void => {
      waiting.reject(signal.reason);
      this.#grantTurns();
    };
    signal.addEventListener('abort', abort);
    this.#waiting.push(waiting);
    this.#grantTurns();
    return promise;
  }

  /** The service answered. @param exhaustedMs how long nothing is left of the allowance, according to its headers. */
  answered(subject: string, turn: Turn, exhaustedMs = 0): void {
    const now = this.#clock.now();
    this.#rate.answered(turn.number, now);
    this.#subjects.answered(subject, turn.number);
    if (exhaustedMs > 0) {
      this.#firstHoldUntil = Math.max(this.#firstHoldUntil, now + Math.min(exhaustedMs, HOLD_PATIENCE_MS));
    }
    if (turn.number <= this.#latestThrottledTurn) return;
    this.#throttledInARow.clear();
    if (this.#longHoldUntil <= now) return;
    this.#longHoldUntil = now;
    this.#grantTurns();
  }

  /**
   * The service throttled the request. Returns when it may go again, in milliseconds since the epoch. Returns undefined
   * if the subject is a suspect: another try now cannot help.
   */
  throttled(subject: string, turn: Turn, retryAfterMs: number | undefined): number | undefined {
    const now = this.#clock.now();
    const rate = this.#rate.requestsPerSecond;
    const waitMs = Math.min(HOLD_MAX_MS, Math.max(THROTTLED_WAIT_MS_MIN, retryAfterMs ?? 1000 / (rate ?? 1)));
    this.#subjects.throttled(subject, turn.number, now + waitMs);
    if (this.#subjects.isSuspect(subject)) {
      const before = this.#subjects.takeRateBeforeSuspects();
      if (before !== undefined) {
        this.#rate.restore(before.rate);
        this.#firstHoldUntil = now;
        this.#longHoldUntil = now;
      }
      this.#grantTurns();
      return undefined;
    }
    const isNews = turn.number > this.#lastTurnOfDecrease;
    this.#latestThrottledTurn = Math.max(this.#latestThrottledTurn, turn.number);
    const countedMax = isNews ? SUBJECTS_IN_A_ROW_MAX : SUBJECTS_OF_A_BURST_MAX;
    if (this.#throttledInARow.size < countedMax) this.#throttledInARow.add(subject);
    if (isNews) {
      this.#lastTurnOfDecrease = this.#turnCount;
      this.#subjects.keepRateBefore(rate);
      this.#rate.lower(now, this.#turnCount);
    }
    this.#subjects.noteLowered(subject);
    this.#rate.noteThrottled(now);
    this.#firstHoldUntil = Math.max(this.#firstHoldUntil, now + Math.min(waitMs, FIRST_HOLD_MS));
    const longHoldMs = Math.min(waitMs, FIRST_HOLD_MS * 2 ** Math.max(0, this.#throttledInARow.size - 1));
    this.#longHoldUntil = Math.max(this.#longHoldUntil, now + longHoldMs);
    this.#grantTurns();
    return Math.max(now + waitMs, this.#heldUntil);
  }

  /** True if others were answered since the subject was throttled. Then the trouble may be the subject's own. */
  isContradicted(subject: string): boolean {
    return this.#subjects.isContradicted(subject);
  }

  /** Gives a suspect as many tries as any other subject. */
  pardon(subject: string): void {
    this.#subjects.pardon(subject);
  }

  get #heldUntil(): number {
    return Math.max(this.#firstHoldUntil, this.#longHoldUntil);
  }

  #grantTurns(): void {
    this.#timer?.abort(RESCHEDULED);
    this.#timer = undefined;
    for (;;) {
      const now = this.#clock.now();
      this.#rate.forgetIfOld(now);
      const opensAt = this.#opensAt();
      this.#rejectLate(now, opensAt);
      if (this.#waiting.length === 0) return;
      const next = opensAt > now ? undefined : this.#next(now);
      if (next === undefined) {
        const heldUntil = Math.min(...this.#waiting.map(({ subject }) => this.#subjects.heldUntil(subject)));
        const startBy = Math.min(...this.#waiting.map((waiting) => waiting.startBy ?? Number.POSITIVE_INFINITY));
        // One millisecond later, the request is certainly too late.
        void this.#wakeAt(Math.min(Math.max(opensAt, heldUntil), startBy + 1));
        return;
      }
      this.#spend(next, now);
      this.#turnCount += 1;
      next.grant({ number: this.#turnCount });
    }
  }

  #opensAt(): number {
    return this.#rate.effective === Number.POSITIVE_INFINITY
      ? this.#heldUntil
      : Math.max(this.#heldUntil, this.#nextTurnAt);
  }

  /** Rejects requests that would wait too long. Their callers postpone them. */
  #rejectLate(now: number, opensAt: number): void {
    for (const waiting of [...this.#waiting]) {
      const { subject, startBy = Number.POSITIVE_INFINITY } = waiting;
      const subjectHeldUntil = this.#subjects.heldUntil(subject);
      const heldUntil = Math.max(this.#heldUntil, subjectHeldUntil);
      const goesAt = Math.max(opensAt, heldUntil);
      const isHeldLong =
        heldUntil - now > HOLD_PATIENCE_MS || (subjectHeldUntil > now && this.#subjects.isSuspect(subject));
      if (!isHeldLong && (goesAt <= now || goesAt <= startBy)) continue;
      const retryAfterMs = heldUntil > now ? heldUntil - now : undefined;
      const message = 'The request was not sent: its turn comes too late, or the service has asked us to wait';
      const isOthersTrouble = subjectHeldUntil <= now;
      waiting.reject(new ThrottledError(message, { retryAfterMs, wasSent: false, isOthersTrouble }));
    }
  }

  /**
   * The first ready request of the highest rank. A throttled subject goes after the others of its rank. If others were
   * answered since, it goes after all ranks for a while: it may be poisoned.
   */
  #next(now: number): Waiting | undefined {
    const ranks: (Waiting | undefined)[] = RANKS.map(() => undefined);
    for (const waiting of this.#waiting) {
      const { subject } = waiting;
      if (this.#subjects.heldUntil(subject) > now) continue;
      const rank = this.#subjects.isDeferred(subject, now) ? LAST_RANK : waiting.rank;
      const first = ranks[rank];
      if (first === undefined || (this.#subjects.has(first.subject) && !this.#subjects.has(subject))) {
        ranks[rank] = waiting;
      }
    }
    const isOverdue = (rank: number): boolean => (this.#skipped[rank] ?? 0) >= TURNS_SKIPPED_MAX;
    const ready = RANKS.filter((rank) => ranks[rank] !== undefined);
    const chosen = ready.find(isOverdue) ?? ready[0];
    if (chosen === undefined) return undefined;
    for (const rank of ready) this.#skipped[rank] = rank > chosen ? (this.#skipped[rank] ?? 0) + 1 : 0;
    return ranks[chosen];
  }

  /** Takes the time of one turn. The rate grows by the time during which requests have been waiting. */
  #spend({ since }: Waiting, now: number): void {
    this.#rate.grow(since, now);
    const gapMs = 1000 / this.#rate.effective;
    this.#nextTurnAt = Math.max(this.#nextTurnAt, now - CATCH_UP_MS) + gapMs;
  }

  async #wakeAt(at: number): Promise<void> {
    const timer = new AbortController();
    this.#timer = timer;
    try {
      await this.#clock.sleep(Math.max(0, at - this.#clock.now()), timer.signal);
    } catch {
      return; // Another timer took its place.
    }
    this.#grantTurns();
  }
}
