import type { Operation } from './call.ts';
import type { Flow } from './flow.ts';

const SECOND_MS = 1_000;

/** `Retry-After` if all places are taken, in seconds. It is a guess: the service cannot know when a place is free. */
const PLACE_RETRY_AFTER_SECONDS = 5;

/** A token bucket. It starts full, each request takes a token, and tokens come back at a steady rate. */
export interface Rate {
  readonly requestsPerSecond: number;
  /** Capacity of the bucket, at least 1. */
  readonly burst: number;
}

/** The limits of a service. All given limits apply at the same time. */
export interface Limits {
  /** For all requests. */
  readonly everything?: Rate;
  /** For `POST /flows` only. */
  readonly creations?: Rate;
  /** For all requests except `POST /flows`. */
  readonly others?: Rate;
  /** For all requests: a maximum number in each window. The windows follow each other without a gap. */
  readonly window?: { readonly requests: number; readonly seconds: number };
  /** Maximum number of unfinished flows. Only creations are refused above it. */
  readonly places?: number;
  /** After this number of creations, further ones are refused for this time. Then the budget is full again. */
  readonly budget?: { readonly creations: number; readonly seconds: number; readonly status: 402 | 429 };
  /** Status of a refusal, except for a spent budget. Default 429. */
  readonly status?: 429 | 503;
  /** Format of a refusal's `Retry-After`. Default `seconds`. */
  readonly retryAfter?: 'seconds' | 'date' | 'none';
  /**
   * Headers with the remaining requests of the tightest limit (rates and window). Default `none`. `RateLimit-Reset` is
   * in seconds from now, `X-RateLimit-Reset` in seconds since the epoch.
   */
  readonly headers?: 'none' | 'RateLimit' | 'X-RateLimit';
}

/** An accepted request. */
export interface Admitted {
  readonly isAdmitted: true;
  readonly headers: Readonly<Record<string, string>>;
  /** Reports the flow that a creation made, or that it made none. Only the first call counts. */
  settle(flow: LimitedFlow | undefined): void;
}

/** A refused request. It takes no token. */
export interface Refused {
  readonly isAdmitted: false;
  readonly status: 402 | 429 | 503;
  readonly headers: Readonly<Record<string, string>>;
}

/** The part of a flow that the limiter needs. */
type LimitedFlow = Pick<Flow, 'deleted' | 'isTerminal'>;

interface Gauge {
  readonly limit: number;
  readonly remaining: number;
  /** Time until a request is accepted, in milliseconds. 0: now. */
  readonly waitMs: number;
  /** Time until `remaining` equals `limit` again, in milliseconds. */
  readonly resetMs: number;
}

/** A limit on the rate of requests. */
interface RateLimit {
  gauge(now: number): Gauge;
  take(now: number): void;
}

/** Refuses requests as real services do: by rate, window, places and budget. */
export class Limiter {
  /** Accepted requests by operation. Tests count with it what a file costs. */
  readonly accepted: Partial<Record<Operation, number>> = {};
  readonly refused: Partial<Record<Operation, number>> = {};
  readonly #clock: { now(): number };
  #limits: Limits = {};
  #rates: { readonly rate: RateLimit; readonly of: 'everything' | 'creations' | 'others' }[] = [];
  #open = new Set<LimitedFlow>();
  /** Accepted creations that have made no flow yet. Each holds a place, because it may make one. */
  #underWay = 0;
  #spent = 0;
  #spentAt = 0;

  constructor(limits: Limits, clock: { now(): number }) {
    this.#clock = clock;
    this.change(limits);
  }

  /** Replaces the limits. Buckets and windows start afresh; places and the budget keep their counts. */
  change(limits: Limits): void {
    const now = this.#clock.now();
    this.#limits = limits;
    this.#rates = (['everything', 'creations', 'others'] as const).flatMap((of) => {
      const rate = limits[of];
      return rate ? [{ rate: new TokenBucket(rate, now), of }] : [];
    });
    if (limits.window) this.#rates.push({ rate: new Window(limits.window), of: 'everything' });
  }

  /** Number of accepted requests of all operations. */
  get acceptedCount(): number {
    return sum(this.accepted);
  }

  /** Number of refused requests of all operations. */
  get refusedCount(): number {
    return sum(this.refused);
  }

  /** Accepts or refuses a request before its body is read. */
  admit(operation: Operation): Admitted | Refused {
    const now = this.#clock.now();
    const isCreation = operation === 'createFlow';
    const limits = this.#rates.flatMap(({ rate, of }) =>
      of === 'everything' || (of === 'creations') === isCreation ? rate : [],
    );
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

  #refuseByRate(limits: readonly RateLimit[], now: number): { status: 429 | 503; waitMs: number } | undefined {
    const waitMs = Math.max(0, ...limits.map((limit) => limit.gauge(now).waitMs));
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

  /** Whole seconds, rounded up: a request at that time is accepted. */
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
    this.#rate = rate;
    this.#tokens = rate.burst;
    this.#at = now;
  }

  take(now: number): void {
    this.#fill(now);
    this.#tokens -= 1;
  }

  gauge(now: number): Gauge {
    this.#fill(now);
    const { burst } = this.#rate;
    return {
      limit: burst,
      remaining: Math.floor(this.#tokens),
      waitMs: this.#msFor(Math.max(0, 1 - this.#tokens)),
      resetMs: this.#msFor(burst - this.#tokens),
    };
  }

  #msFor(tokens: number): number {
    return (tokens / this.#rate.requestsPerSecond) * SECOND_MS;
  }

  #fill(now: number): void {
    const { requestsPerSecond, burst } = this.#rate;
    const back = ((now - this.#at) / SECOND_MS) * requestsPerSecond;
    this.#at = now;
    // Rounded to a millionth of a token, because sums of fractions can miss a whole number by a tiny error.
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

  take(now: number): void {
    this.#roll(now);
    this.#taken += 1;
  }

  gauge(now: number): Gauge {
    this.#roll(now);
    const remaining = this.#requests - this.#taken;
    const resetMs = this.#startedAt + this.#ms - now;
    return { limit: this.#requests, remaining, waitMs: remaining > 0 ? 0 : resetMs, resetMs };
  }

  #roll(now: number): void {
    const startedAt = Math.floor(now / this.#ms) * this.#ms;
    if (startedAt === this.#startedAt) return;
    this.#startedAt = startedAt;
    this.#taken = 0;
  }
}

function sum(counts: Partial<Record<Operation, number>>): number {
  return Object.values(counts).reduce((total, count) => total + count, 0);
}
