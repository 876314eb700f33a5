/** A rate that a process has learnt, for the next process to continue with. */
export interface LearntPace {
  readonly requestsPerSecond: number;
  /** When a request was last throttled, in milliseconds since the epoch. */
  readonly throttledAt: number;
}

/**
 * The rate after a throttled request, as a share of the rate before. The decrease is gentle if many requests were
 * answered since the last decrease: then the rate is close to the limit and only probed it. The AWS SDK's adaptive mode
 * uses 0.7 too.
 */
const DECREASE = 0.7;
const GENTLE_DECREASE = 0.9;
const GENTLE_FROM_ANSWERS = 8;

/**
 * Growth of the rate in each second in which requests wait, and its maximum for one turn. Growth is careful around the
 * rate that was throttled, because each throttled request there costs its `Retry-After`. It is fast below that rate.
 * It is also fast beyond that rate, because the limit must have been raised.
 */
const FAST = { perSecond: 1.35, perTurnMax: 1.5 };
const CAREFUL = { perSecond: 1.06, perTurnMax: 1.015 };
const CAREFUL_FROM = 0.9;
const CAREFUL_TO = 1.1;

/**
 * Lowest rates, in requests a second: while the service answers some requests, and while it answers none. Several
 * processes may share a limit of one a second. At much lower rates they would leave half of it unused.
 */
const RATE_MIN = 0.8;
const RATE_MIN_UNANSWERED = 0.1;

/** Time since the last answer within which the service counts as answering some requests, in milliseconds. */
const ANSWERING_MS = 15_000;

/** Shortest and longest time over which the first rate is measured, in milliseconds. */
const MEASURED_MS_MIN = 1_000;
const MEASURED_MS_MAX = 10_000;

/** Time without a throttled request after which the rate is forgotten, in milliseconds. */
const MEMORY_MS = 60 * 60_000;

/** The rate of requests that the service allows, learnt from the requests that it answers and throttles. */
export class LearntRate {
  readonly #ceiling: number;
  /** Requests a second. Undefined while no limit is known. */
  #rate: number | undefined;
  /** The rate that was last throttled. */
  #throttledRate = 0;
  #throttledAt = Number.NEGATIVE_INFINITY;
  #answersSinceLowered = 0;
  #latestAnswerAt = Number.NEGATIVE_INFINITY;
  #grownAt = 0;
  /** Times of the answers to requests that were sent while no limit was known. */
  #answeredAt: number[] = [];
  /** The last turn granted while no limit was known. 0 if the rate no longer rests on what was answered then. */
  #lastOpenTurn = 0;

  /** @param ceiling the operator's limit in requests a second, which may be infinite. */
  constructor(ceiling: number) {
    this.#ceiling = ceiling;
  }

  /** The learnt rate without the ceiling. Undefined while no limit is known. */
  get requestsPerSecond(): number | undefined {
    return this.#rate;
  }

  /** The rate at which requests go: the learnt rate or the ceiling, whichever is lower. It may be infinite. */
  get effective(): number {
    return Math.min(this.#rate ?? Number.POSITIVE_INFINITY, this.#ceiling);
  }

  get learnt(): LearntPace | undefined {
    return this.#rate === undefined ? undefined : { requestsPerSecond: this.#rate, throttledAt: this.#throttledAt };
  }

  /** Continues with the rate of another process, unless it is too old or this process was throttled since. */
  resume({ requestsPerSecond, throttledAt }: LearntPace, now: number): void {
    if (throttledAt <= this.#throttledAt || now - throttledAt > MEMORY_MS) return;
    this.#rate = Math.max(RATE_MIN_UNANSWERED, requestsPerSecond);
    this.#throttledRate = this.#rate;
    this.#throttledAt = throttledAt;
  }

  restore(rate: number | undefined): void {
    this.#rate = rate;
  }

  forgetIfOld(now: number): void {
    if (this.#rate !== undefined && now - this.#throttledAt > MEMORY_MS) this.#rate = undefined;
  }

  answered(turn: number, now: number): void {
    if (this.#rate === undefined) this.#measure(now);
    else if (turn <= this.#lastOpenTurn) this.#raiseFirstRate(now);
    this.#answersSinceLowered += 1;
    this.#latestAnswerAt = now;
  }

  /** @param turnCount the number of turns granted so far. */
  lower(now: number, turnCount: number): void {
    this.#lastOpenTurn = this.#rate === undefined ? turnCount : 0;
    this.#throttledRate = this.#rate ?? Math.max(RATE_MIN / DECREASE, this.#measuredRate(now));
    const isGentle = this.#rate !== undefined && this.#answersSinceLowered >= GENTLE_FROM_ANSWERS;
    const min = now - this.#latestAnswerAt < ANSWERING_MS ? RATE_MIN : RATE_MIN_UNANSWERED;
    this.#rate = Math.max(min, this.#throttledRate * (isGentle ? GENTLE_DECREASE : DECREASE));
    this.#answersSinceLowered = 0;
    if (this.#lastOpenTurn === 0) this.#answeredAt = [];
  }

  noteThrottled(now: number): void {
    this.#throttledAt = now;
    this.#grownAt = now;
  }

  /** Grows the rate for the time during which a request has been waiting. @param since when it began to wait. */
  grow(since: number, now: number): void {
    if (this.#rate === undefined) return;
    const waitedSeconds = (now - Math.max(since, this.#grownAt)) / 1000;
    if (this.#rate <= this.#ceiling) this.#rate = this.#grown(this.#rate, waitedSeconds);
    this.#grownAt = now;
  }

  #grown(rate: number, seconds: number): number {
    const carefulFrom = this.#throttledRate * CAREFUL_FROM;
    const by = ({ perSecond, perTurnMax }: typeof FAST): number => rate * Math.min(perTurnMax, perSecond ** seconds);
    if (rate < carefulFrom) return Math.min(carefulFrom, by(FAST));
    return rate < this.#throttledRate * CAREFUL_TO ? by(CAREFUL) : by(FAST);
  }

  /** Counts requests that were under way when the first one was throttled, if they are answered after all. */
  #raiseFirstRate(now: number): void {
    this.#measure(now);
    const measured = this.#measuredRate(now);
    if (measured <= this.#throttledRate) return;
    this.#throttledRate = measured;
    this.#rate = Math.max(this.#rate ?? 0, measured * DECREASE);
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
}
