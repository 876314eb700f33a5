import type { Operation } from './flow-service.ts';

const SECOND_MS = 1_000;

/** `Retry-After` of a refusal for want of a place, in seconds: nobody knows when a place is free. */
const PLACE_RETRY_AFTER_SECONDS = 5;

/** A bucket of tokens. It begins full, every request takes a token, and tokens come back at a steady rate. */
export interface Rate {
  readonly requestsPerSecond: number;
  /** Tokens that the bucket holds, at least 1. */
  readonly burst: number;
}

/** The limits of a service. All that are given hold at the same time. */
export interface Limits {
  /** For all requests. */
  readonly everything?: Rate;
  /** For `POST /flows` alone. */
  readonly creations?: Rate;
  /** For all requests but `POST /flows`. */
  readonly others?: Rate;
  /** For all requests: so many in every window, and the windows follow each other without a gap. */
  readonly window?: { readonly requests: number; readonly seconds: number };
  /** Flows that have not ended yet, at a time. A creation beyond them is refused, and nothing else is. */
  readonly places?: number;
  /** After so many flows creations are refused for so long. Then there is as much again. */
  readonly budget?: { readonly creations: number; readonly seconds: number; readonly status: 402 | 429 };
  /** Status of a refusal, but for a spent budget. Default 429. */
  readonly status?: 429 | 503;
  /** How a refusal says when to come again. Default `seconds`. */
  readonly retryAfter?: 'seconds' | 'date' | 'none';
  /**
   * How every answer tells what is left of the tightest of the rates and the window. Default `none`. The reset is in
   * seconds from now in `RateLimit-Reset`, and in seconds since the epoch in `X-RateLimit-Reset`.
   */
  readonly headers?: 'none' | 'RateLimit' | 'X-RateLimit';
}

/** A request that was let in. */
export interface Admitted {
  readonly isAdmitted: true;
  readonly headers: Readonly<Record<string, string>>;
  /** Tells which flow a creation has made, or that it made none. Only the first call counts. */
  settle(flow: LimitedFlow | undefined): void;
}

/** A request that was turned away. It cost nothing. */
export interface Refused {
  readonly isAdmitted: false;
  readonly status: 402 | 429 | 503;
  readonly headers: Readonly<Record<string, string>>;
}

/** What the limiter has to know of a flow. */
export interface LimitedFlow {
  readonly deleted: boolean;
  isTerminal(now: number): boolean;
}

interface Gauge {
  readonly limit: number;
  readonly remaining: number;
  /** Until `remaining` is `limit` again, in milliseconds. */
  readonly resetMs: number;
}

/** What may refuse a request. `waitMs` is 0 where the request can be let in. */
interface RateLimit {
  waitMs(now: number): number;
  take(now: number): void;
  gauge(now: number): Gauge;
}

/** Refuses requests as a real service does: by rate, by window, by places, by budget. Downloads are not limited. */
export class Limiter {
  /** Requests by operation, for whoever counts what a file costs. */
  readonly accepted: Partial<Record<Operation, number>> = {};
  readonly refused: Partial<Record<Operation, number>> = {};
  readonly #clock: { now(): number };
  #limits: Limits = {};
  #everything: RateLimit[] = [];
  #creations: RateLimit[] = [];
  #others: RateLimit[] = [];
  #open = new Set<LimitedFlow>();
  /** Creations that were let in and have made no flow yet. Each may become one, so it holds a place. */
  #underWay = 0;
  #spent = 0;
  #spentAt = 0;

  constructor(limits: Limits, clock: { now(): number }) {
    this.#clock = clock;
    this.change(limits);
  }

  /** From now on these limits hold. Buckets and windows begin anew; places and the budget remember their flows. */
  change(limits: Limits): void {
    const { everything, creations, others, window } = limits;
    const now = this.#clock.now();
    this.#limits = limits;
    this.#everything = [
      ...(everything ? [new TokenBucket(everything, now)] : []),
      ...(window ? [new Window(window)] : []),
    ];
    this.#creations = creations ? [new TokenBucket(creations, now)] : [];
    this.#others = others ? [new TokenBucket(others, now)] : [];
  }

  /** Requests that were let in, of all operations. */
  get acceptedCount(): number {
    return sum(this.accepted);
  }

  /** Requests that were refused, of all operations. */
  get refusedCount(): number {
    return sum(this.refused);
  }

  /** Judges a request before its body is read. */
  admit(operation: Operation): Admitted | Refused {
    const now = this.#clock.now();
    const limits = this.#limitsOf(operation);
    const isCreation = operation === 'createFlow';
    const refusal = (isCreation ? this.#refuseCreation(now) : undefined) ?? this.#refuseByRate(limits, now);
    if (refusal !== undefined) {
      this.refused[operation] = (this.refused[operation] ?? 0) + 1;
      const headers = { ...this.#gaugeHeaders(limits, now), ...this.#retryAfter(now, refusal.waitMs) };
      return { isAdmitted: false, status: refusal.status, headers };
    }
    this.accepted[operation] = (this.accepted[operation] ?? 0) + 1;
    for (const limit of limits) limit.take(now);
    let isSettled = !isCreation;
    if (isCreation) this.#underWay += 1;
    return {
      isAdmitted: true,
      headers: this.#gaugeHeaders(limits, now),
      settle: (flow) => {
        if (!isSettled) this.#settleCreation(flow);
        isSettled = true;
      },
    };
  }

  #limitsOf(operation: Operation): readonly RateLimit[] {
    if (operation === 'download') return [];
    return [...this.#everything, ...(operation === 'createFlow' ? this.#creations : this.#others)];
  }

  #refuseByRate(limits: readonly RateLimit[], now: number): { status: 429 | 503; waitMs: number } | undefined {
    const waitMs = Math.max(0, ...limits.map((limit) => limit.waitMs(now)));
    return waitMs > 0 ? { status: this.#limits.status ?? 429, waitMs } : undefined;
  }

  #refuseCreation(now: number): { status: 402 | 429 | 503; waitMs: number } | undefined {
    const { places, budget, status = 429 } = this.#limits;
    if (budget !== undefined) {
      const renewedAt = this.#spentAt + budget.seconds * SECOND_MS;
      if (this.#spent >= budget.creations && this.#spentAt > 0 && now >= renewedAt) this.#spent = 0;
      if (this.#spent + this.#underWay >= budget.creations) {
        return { status: budget.status, waitMs: this.#spentAt > 0 ? Math.max(0, renewedAt - now) : SECOND_MS };
      }
    }
    if (places !== undefined) {
      for (const flow of this.#open) if (flow.deleted || flow.isTerminal(now)) this.#open.delete(flow);
      if (this.#open.size + this.#underWay >= places) return { status, waitMs: PLACE_RETRY_AFTER_SECONDS * SECOND_MS };
    }
    return undefined;
  }

  #settleCreation(flow: LimitedFlow | undefined): void {
    this.#underWay -= 1;
    if (flow === undefined) return;
    this.#open.add(flow);
    this.#spent += 1;
    if (this.#spent === this.#limits.budget?.creations) this.#spentAt = this.#clock.now();
  }

  /** Whole seconds, rounded up: whoever comes then is let in. */
  #retryAfter(now: number, waitMs: number): Record<string, string> {
    const { retryAfter = 'seconds' } = this.#limits;
    if (retryAfter === 'none') return {};
    if (retryAfter === 'seconds') return { 'retry-after': String(Math.ceil(waitMs / SECOND_MS)) };
    const at = Math.ceil((now + waitMs) / SECOND_MS) * SECOND_MS;
    return { 'retry-after': new Date(at).toUTCString() };
  }

  #gaugeHeaders(limits: readonly RateLimit[], now: number): Record<string, string> {
    const { headers = 'none' } = this.#limits;
    const [tightest] = limits.map((limit) => limit.gauge(now)).sort((a, b) => a.remaining - b.remaining);
    if (headers === 'none' || tightest === undefined) return {};
    const { limit, remaining, resetMs } = tightest;
    const reset = headers === 'RateLimit' ? resetMs : now + resetMs;
    const prefix = headers === 'RateLimit' ? 'ratelimit' : 'x-ratelimit';
    return {
      [`${prefix}-limit`]: String(limit),
      [`${prefix}-remaining`]: String(remaining),
      [`${prefix}-reset`]: String(Math.ceil(reset / SECOND_MS)),
    };
  }
}

class TokenBucket implements RateLimit {
  readonly #rate: Rate;
  #tokens: number;
  #at: number;

  constructor(rate: Rate, now: number) {
    if (!(rate.requestsPerSecond > 0) || !(rate.burst >= 1)) {
      throw new RangeError(
        `A rate needs requests per second above 0 and a burst of at least 1, got ${JSON.stringify(rate)}`,
      );
    }
    this.#rate = rate;
    this.#tokens = rate.burst;
    this.#at = now;
  }

  waitMs(now: number): number {
    this.#fill(now);
    return this.#tokens >= 1 ? 0 : this.#msFor(1 - this.#tokens);
  }

  take(now: number): void {
    this.#fill(now);
    this.#tokens -= 1;
  }

  gauge(now: number): Gauge {
    this.#fill(now);
    const { burst } = this.#rate;
    return { limit: burst, remaining: Math.floor(this.#tokens), resetMs: this.#msFor(burst - this.#tokens) };
  }

  #msFor(tokens: number): number {
    return (tokens / this.#rate.requestsPerSecond) * SECOND_MS;
  }

  #fill(now: number): void {
    const { requestsPerSecond, burst } = this.#rate;
    const back = ((now - this.#at) / SECOND_MS) * requestsPerSecond;
    this.#at = now;
    // Sums of fractions miss a whole number by a hair: a millionth of a token is nothing.
    this.#tokens = Math.min(burst, Math.round((this.#tokens + back) * 1e6) / 1e6);
  }
}

class Window implements RateLimit {
  readonly #requests: number;
  readonly #ms: number;
  #startedAt = 0;
  #taken = 0;

  constructor({ requests, seconds }: { readonly requests: number; readonly seconds: number }) {
    this.#requests = requests;
    this.#ms = seconds * SECOND_MS;
  }

  waitMs(now: number): number {
    this.#turn(now);
    return this.#taken < this.#requests ? 0 : this.#startedAt + this.#ms - now;
  }

  take(now: number): void {
    this.#turn(now);
    this.#taken += 1;
  }

  gauge(now: number): Gauge {
    this.#turn(now);
    return {
      limit: this.#requests,
      remaining: this.#requests - this.#taken,
      resetMs: this.#startedAt + this.#ms - now,
    };
  }

  #turn(now: number): void {
    const startedAt = Math.floor(now / this.#ms) * this.#ms;
    if (startedAt === this.#startedAt) return;
    this.#startedAt = startedAt;
    this.#taken = 0;
  }
}

function sum(counts: Partial<Record<Operation, number>>): number {
  return Object.values(counts).reduce((total, count) => total + count, 0);
}
