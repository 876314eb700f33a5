import type { Clock } from '../base/clock.ts';
import { untilAborted } from '../base/invocation.ts';
import { ThrottledError } from './errors.ts';
import { exhaustedMs, retryAfterMs } from './rate-limit-headers.ts';
import { isThrottled } from './status-errors.ts';
import { TimeLimit } from './time-limit.ts';
import type { TransportResponse } from './transport.ts';

/** Services limit the creation of flows apart from everything else. */
export type RequestKind = 'creation' | 'other';

/**
 * Priority of a request, highest first: 0 outputs and assets of ended flows, and aborts; 1 searches; 2 polls of running
 * flows, and the listings that take their place.
 */
export type Rank = 0 | 1 | 2;

export interface PacedRequest {
  readonly rank: Rank;
  /** The flow, the asset or the upload that the request is about. */
  readonly subject: string;
  /** Latest time to send the request, in milliseconds since the epoch. Default: no limit. */
  readonly startBy?: number | undefined;
  /** How long a refused request is retried, in milliseconds. Default: {@link PATIENCE_MS}, for polls less. */
  readonly patienceMs?: number | undefined;
  /** True if a person asks for it now. Then it waits for the rate, and for no backoff. Default false. */
  readonly isAsked?: boolean | undefined;
  /** Called with each refusal after which the request is sent again. It may read the response. */
  readonly onRefused?: ((response: TransportResponse) => Promise<void>) | undefined;
}

/** A rate that a process has learnt, for the next process to continue with. */
export interface LearntRate {
  readonly requestsPerSecond: number;
  /** When a request was last refused, in milliseconds since the epoch. */
  readonly throttledAt: number;
}

/**
 * How long a refused request is retried, in milliseconds. After that, an upload waits in the ledger, and a flow is
 * polled again by the next tick. The time for polls is short, because one flow's own trouble must not hold up a round.
 * That for outputs and assets is longer: if they were given up, the next poll of their flow would use up a limit of one
 * or two a minute.
 */
const PATIENCE_MS = 60_000;
const POLL_PATIENCE_MS = 20_000;

/** Longest backoff that a request waits out in place, in milliseconds. */
const BACKOFF_PATIENCE_MS = 60_000;

/** Longest backoff of a `RequestKind` after a 402 that names no time (no credit is left), in milliseconds. */
const SPENT_WAIT_MS = 5 * 60_000;

/** Shortest backoff, in milliseconds: `Retry-After: 0` must not cause a hot loop. */
const BACKOFF_MS_MIN = 250;

/** Longest backoff, in milliseconds. After it a request goes, to see whether the bill was paid meanwhile. */
const BACKOFF_MS_MAX = 15 * 60_000;

/**
 * Longest first backoff of a kind, in milliseconds, however long the `Retry-After` is. One flow may be refused for ever
 * because of its own trouble. The backoff doubles with each further subject that is refused in a row, up to the
 * `Retry-After`: with one of 60 seconds, it is 2, 4, 8, 16, 32 and then 60 seconds.
 */
const FIRST_BACKOFF_MS = 2_000;

/**
 * Maximum number of refusals of one burst that lengthen the backoff. Five make it 32 seconds, which requests still wait
 * out in place: {@link BACKOFF_PATIENCE_MS}. Not more, because other requests of the burst may yet be answered.
 */
const REFUSED_OF_A_BURST_MAX = 5;

/** Backoff after a refusal that names no time, in milliseconds. The rate slows the requests after it. */
const UNASKED_MS = 1_000;

/**
 * Number of refusals of one subject that make the trouble its own. A further refusal counts only if a later
 * request of another subject was answered in between.
 */
const OWN_FROM = 3;

/** Longest backoff of one subject, in milliseconds, unless its `Retry-After` is longer. */
const OWN_BACKOFF_MS_MAX = 60_000;

/** Maximum number of refused subjects that are remembered. The oldest is forgotten first. */
const SUBJECTS_MAX = 1_000;

/** The rate after a burst of refusals, as a share of the rate before. The AWS SDK's adaptive mode uses it too. */
const DECREASE = 0.7;

/**
 * Lowest rate while the service answers some requests, in requests a second. Creations have a higher one: at 0.2 each,
 * two or three invocations would use only half of a limit of one a second.
 */
const RATE_MIN: Readonly<Record<RequestKind, number>> = { creation: 0.7, other: 0.2 };

/** Lowest rate while it answers none. */
const RATE_MIN_UNANSWERED = 0.2;

/** Time since the last answer within which the service counts as answering, in milliseconds. */
const ANSWERING_MS = 15_000;

/**
 * Growth of the rate per second in which requests wait, and its maximum from one request to the next. Both are factors,
 * because no fixed step fits both a limit of 20 a minute and one of 1,000 a second. Between the first refusal and the
 * second, it grows fast: the answers before the first may say little of the limit.
 */
const GROWTH = { perSecond: 1.05, perRequestMax: 1.5 };
const FIRST_GROWTH = { perSecond: 1.35, perRequestMax: 1.5 };

/** Time over which the first rate is measured, in milliseconds. */
const MEASURED_MS = 1_000;

/** Time without a refusal after which the rate is forgotten, in milliseconds. */
const MEMORY_MS = 60 * 60_000;

/**
 * How far requests may run ahead of the pace, in milliseconds, because timers are late. In addition, one request may
 * always go. At 50 requests a second, 6 may go at once.
 */
const BUCKET_MS = 100;

/** After this many requests of higher ranks, a rank gets one: at least a tenth of all, so that nothing starves. */
const SKIPPED_MAX = 9;

/**
 * Keeps to the limits of a service without knowing them. It stands between the operations of the client and HTTP: all
 * requests of a process go through one pacer. It has one pace for creations and one for all other requests, because a
 * refusal of the one says nothing about the other.
 *
 * A refused request is sent again here. Callers see a refusal only if its repetition cannot help, would take too long,
 * or might take effect twice.
 */
export class Pacer {
  readonly #clock: Clock;
  readonly #paces: Readonly<Record<RequestKind, Pace>>;

  /** @param ceiling the operator's limit for each kind, in requests a second. */
  constructor(clock: Clock, ceiling: number | 'unlimited' = 'unlimited') {
    const max = ceiling === 'unlimited' ? Number.POSITIVE_INFINITY : ceiling;
    this.#clock = clock;
    this.#paces = { creation: new Pace('creation', clock, max), other: new Pace('other', clock, max) };
  }

  /** The learnt rate of all requests but creations. Undefined if no limit is known. */
  get learnt(): LearntRate | undefined {
    return this.#paces.other.learnt;
  }

  /** True if the service refused a creation within the last hour because of a limit. */
  get isCreationLimited(): boolean {
    return this.#paces.creation.learnt !== undefined;
  }

  /** Continues with the rate of another process, unless it is too old or this process was refused since. */
  resume(learnt: LearntRate): void {
    this.#paces.other.resume(learnt);
  }

  /**
   * Sends a request when the pace allows, and again if it is refused. Returns the last response. That is a refusal if
   * another request cannot help, would take too long, or might take effect twice.
   * @param send sends the request once. It is called anew each time.
   * @throws {ThrottledError} the request was not sent, because it would have waited too long. Also any error of `send`.
   */
  async send(
    kind: RequestKind,
    request: PacedRequest,
    signal: AbortSignal,
    send: () => Promise<TransportResponse>,
  ): Promise<TransportResponse> {
    const pace = this.#paces[kind];
    const { subject, startBy = Number.POSITIVE_INFINITY } = request;
    const { patienceMs = request.rank === 2 ? POLL_PATIENCE_MS : PATIENCE_MS } = request;
    let firstRefusedAt: number | undefined;
    for (;;) {
      const wasRefused = firstRefusedAt !== undefined;
      const isAsked = request.isAsked === true && !wasRefused;
      const number = await pace.wait({ ...request, startBy, wasRefused, isAsked }, signal);
      const response = await send();
      const now = this.#clock.now();
      if (!isThrottled(response)) {
        pace.answered(subject, number, exhaustedMs(response, now));
        return response;
      }
      firstRefusedAt ??= now;
      const askedMs = retryAfterMs(response, now) ?? exhaustedMs(response, now);
      const isSpent = response.refusal === 'outOfCredit' && askedMs === undefined;
      const againAt = pace.refused(request, number, askedMs, isSpent ? SPENT_WAIT_MS : undefined);
      const endsAt = Math.min(startBy, firstRefusedAt + patienceMs);
      // Nobody pays a bill within seconds. So the caller repeats the request, and decides when.
      if (isSpent || againAt === undefined || againAt > endsAt || mayHaveTakenEffect(kind, response)) return response;
      await request.onRefused?.(response);
      response.destroy();
    }
  }
}

/** The subject of a request about one flow. Encoded, so that an id with a slash cannot name another flow's asset. */
export const flowSubject = (flowId: string): string => encodeURIComponent(flowId);

/**
 * The subject of a request for a flow's outputs. With one subject for both, each answered poll would clear the refusals
 * of the outputs.
 */
export const outputsSubject = (flowId: string): string => `outputs ${flowSubject(flowId)}`;

/** The subject of a request about one asset. */
export const assetSubject = (flowId: string, assetId: string): string =>
  `${encodeURIComponent(flowId)}/${encodeURIComponent(assetId)}`;

/**
 * The subject of a redirected request about an asset. Each redirect has a subject of its own. With one subject, each
 * answer that redirects would clear the refusals of its target.
 * @param hops number of redirects before.
 */
export const redirectSubject = (subject: string, hops: number): string =>
  `${subject}/redirected${hops === 0 ? '' : `/${hops}`}`;

/** True for a 503 to a creation that was sent to its last byte. A flow may exist, which the caller must find out. */
const mayHaveTakenEffect = (kind: RequestKind, { status, sent = 'all' }: TransportResponse): boolean =>
  kind === 'creation' && status === 503 && sent === 'all';

interface Waiting extends Pick<PacedRequest, 'rank' | 'subject'> {
  readonly startBy: number;
  readonly isAsked: boolean;
  readonly since: number;
  /** True if the service has refused this request before. */
  readonly wasRefused: boolean;
  readonly grant: (number: number) => void;
  readonly reject: (error: unknown) => void;
}

/** A flow, an asset or an upload that was refused, and not answered since. */
interface Refused {
  /** Number of refusals that count: see {@link OWN_FROM}. */
  count: number;
  readonly number: number;
  /** True if a later request of another subject was answered. Then the next refusal counts. */
  isContradicted: boolean;
  readonly backoffUntil: number;
}

/**
 * The pace of one kind of request.
 *
 *        first refusal                   an hour without a refusal
 *   open ─────────────▶ limited to a rate ─────────────────────────▶ open
 *
 * While the pace is open, requests go at once, up to the operator's ceiling. The first rate is seven tenths of what was
 * answered in the last second. Each burst of refusals lowers it once, and it grows while requests wait. Each burst also
 * begins a backoff, in which no request of the kind goes unless an operator asks. If 20 requests were answered in the
 * second before the first refusal, the rate is 14 a second. After a second in which requests wait, it is 18.9. The next
 * burst makes it 13.2, and from then on it grows by a twentieth a second: 13.9, 14.6.
 *
 * A refusal may be the trouble of one flow. It counts as such if the flow is refused three times, and others are
 * answered in between. Then the flow has a backoff of its own, and its refusals slow no other.
 */
class Pace {
  readonly #clock: Clock;
  readonly #ceiling: number;
  readonly #kind: RequestKind;
  /** In the order of their arrival. */
  readonly #waiting = new Set<Waiting>();
  readonly #subjects = new Map<string, Refused>();
  /** By rank: requests of higher ranks that went while one of this rank was ready. */
  readonly #skipped = [0, 0, 0];
  /** Requests a second. Undefined while no limit is known. */
  #rate: number | undefined;
  /** True from the first refusal to the second one. */
  #isFirstRate = false;
  #refusedAt = Number.NEGATIVE_INFINITY;
  #grownAt = 0;
  /** Times of the latest answers to requests that were sent while no limit was known. */
  #answeredAt: number[] = [];
  #backoffUntil = 0;
  /** The longer backoff after several refusals in a row. An answer to a later request ends it. */
  #longBackoffUntil = 0;
  /** Number of subjects that were refused in a row. An answer to a later request halves it. */
  #refusedInARow = 0;
  #latestRefused = 0;
  /** Requests are numbered in the order in which they go. */
  #sent = 0;
  /** The last request that went before the rate was last lowered. Refusals up to it lower the rate no further. */
  #lastOfBurst = 0;
  #nextAt = 0;
  #lastAnswerAt = Number.NEGATIVE_INFINITY;
  #timer: TimeLimit | undefined;

  constructor(kind: RequestKind, clock: Clock, ceiling: number) {
    this.#kind = kind;
    this.#clock = clock;
    this.#ceiling = ceiling;
  }

  get learnt(): LearntRate | undefined {
    if (this.#clock.now() - this.#refusedAt > MEMORY_MS) this.#rate = undefined;
    return this.#rate === undefined ? undefined : { requestsPerSecond: this.#rate, throttledAt: this.#refusedAt };
  }

  resume({ requestsPerSecond, throttledAt }: LearntRate): void {
    if (throttledAt <= this.#refusedAt || this.#clock.now() - throttledAt > MEMORY_MS) return;
    this.#rate = Math.max(RATE_MIN_UNANSWERED, requestsPerSecond);
    this.#refusedAt = throttledAt;
  }

  /**
   * Resolves with the number of the request when it may go. The caller then reports {@link answered} or {@link
   * refused}.
   * @throws {ThrottledError} it would wait too long. Also the signal's reason.
   */
  wait(request: Omit<Waiting, 'since' | 'grant' | 'reject'>, signal: AbortSignal): Promise<number> {
    signal.throwIfAborted();
    const onAbort = (): void => {
      this.#waiting.delete(waiting);
      this.#go();
    };
    const { promise, resolve: grant, reject } = untilAborted<number>(signal, onAbort);
    const waiting: Waiting = { ...request, since: this.#clock.now(), grant, reject };
    this.#waiting.add(waiting);
    this.#go();
    return promise;
  }

  /** The service answered. @param exhaustedMs how long the allowance is used up, as its headers say. */
  answered(subject: string, number: number, exhaustedMs = 0): void {
    const now = this.#clock.now();
    if (this.#rate === undefined || (this.#isFirstRate && number <= this.#lastOfBurst)) this.#measure(now);
    this.#lastAnswerAt = now;
    this.#subjects.delete(subject);
    for (const other of this.#subjects.values()) if (other.number < number) other.isContradicted = true;
    if (number > this.#latestRefused) {
      this.#refusedInARow = Math.floor(this.#refusedInARow / 2);
      if (this.#longBackoffUntil > now) {
        this.#longBackoffUntil = 0;
        this.#go();
      }
    }
    if (exhaustedMs > 0) this.#backOff(now + Math.min(exhaustedMs, BACKOFF_PATIENCE_MS));
  }

  /**
   * The service refused. Returns when the request may go again, in milliseconds since the epoch. Returns undefined for
   * a poll if the trouble is the flow's own: another request now cannot help.
   *
   * If three polls are refused at time 0, with a `Retry-After` of 60 seconds, each returns 60,000. All other requests
   * of the kind wait until 8,000, or until 2,000 if a request that was sent later has been answered. If a flow is refused
   * without a `Retry-After`, and others are answered in between, its third refusal returns undefined. The flow then
   * backs off for 2 seconds, at the next refusals for 4, 8, 16, 32 and 60, and nothing else does.
   * @param longMaxMs longest backoff of the kind. Default: what this refusal asks for.
   */
  refused(
    { subject, rank }: Pick<Waiting, 'subject' | 'rank'>,
    number: number,
    retryAfterMs?: number,
    longMaxMs?: number,
  ): number | undefined {
    const now = this.#clock.now();
    const waitMs = Math.min(BACKOFF_MS_MAX, Math.max(BACKOFF_MS_MIN, retryAfterMs ?? UNASKED_MS));
    const { count: before = 0, isContradicted = true } = this.#subjects.get(subject) ?? {};
    const count = before + (isContradicted ? 1 : 0);
    const isOwn = count >= OWN_FROM;
    const ownMs = isOwn ? Math.min(OWN_BACKOFF_MS_MAX, FIRST_BACKOFF_MS * 2 ** (count - OWN_FROM)) : 0;
    const backoffUntil = now + Math.max(waitMs, ownMs);
    this.#remember(subject, { count, number, isContradicted: false, backoffUntil });
    // A poll is given up. Any other request is sent again here. Its caller would repeat it only once a minute, and just
    // before that, other requests of its flow would use up the limit.
    if (isOwn) return rank === 2 ? undefined : backoffUntil;
    const isNewBurst = number > this.#lastOfBurst;
    if (isNewBurst) {
      this.#lastOfBurst = this.#sent;
      this.#lower(now);
    }
    this.#latestRefused = Math.max(this.#latestRefused, number);
    // If one subject is refused again, and no other was answered in between, that is no further sign of a limit.
    if (isContradicted && (isNewBurst || this.#refusedInARow < REFUSED_OF_A_BURST_MAX)) this.#refusedInARow += 1;
    this.#backOff(now + Math.min(waitMs, FIRST_BACKOFF_MS));
    const longMs = Math.min(longMaxMs ?? waitMs, FIRST_BACKOFF_MS * 2 ** (this.#refusedInARow - 1));
    this.#longBackoffUntil = Math.max(this.#longBackoffUntil, now + longMs);
    this.#refusedAt = now;
    this.#grownAt = now;
    return Math.max(backoffUntil, this.#heldUntil);
  }

  #remember(subject: string, refused: Refused): void {
    this.#subjects.delete(subject); // Inserts it again at the end, as the newest.
    this.#subjects.set(subject, refused);
    const [oldest] = this.#subjects.keys();
    if (this.#subjects.size > SUBJECTS_MAX && oldest !== undefined) this.#subjects.delete(oldest);
  }

  #backOff(until: number): void {
    this.#backoffUntil = Math.max(this.#backoffUntil, until);
  }

  get #heldUntil(): number {
    return Math.max(this.#backoffUntil, this.#longBackoffUntil);
  }

  /** Answers to requests of the first burst may come after its first refusal. They count too. */
  #measure(now: number): void {
    this.#answeredAt.push(now);
    // Old times are dropped only when the oldest has twice the age that counts, so that many of them go at once.
    if ((this.#answeredAt[0] as number) < now - 2 * MEASURED_MS) this.#answeredAt = this.#latestAnswers(now);
    if (this.#rate !== undefined) this.#rate = Math.max(this.#rate, this.#firstRate(now));
  }

  #latestAnswers(now: number): number[] {
    return this.#answeredAt.filter((at) => at > now - MEASURED_MS);
  }

  #firstRate(now: number): number {
    return DECREASE * Math.max(1, this.#latestAnswers(now).length * (1000 / MEASURED_MS));
  }

  #lower(now: number): void {
    this.#isFirstRate = this.#rate === undefined;
    const min = now - this.#lastAnswerAt < ANSWERING_MS ? RATE_MIN[this.#kind] : RATE_MIN_UNANSWERED;
    this.#rate = this.#rate === undefined ? this.#firstRate(now) : Math.max(min, DECREASE * this.#rate);
  }

  /** Lets requests go, for as long as the pace allows. */
  #go(): void {
    this.#timer?.end();
    for (;;) {
      const now = this.#clock.now();
      const rate = Math.min(this.learnt?.requestsPerSecond ?? Number.POSITIVE_INFINITY, this.#ceiling);
      const opensAt = rate === Number.POSITIVE_INFINITY ? this.#heldUntil : Math.max(this.#heldUntil, this.#nextAt);
      this.#rejectLate(now, opensAt);
      if (this.#waiting.size === 0) return;
      const asked = this.#nextAt > now ? undefined : this.#waiting.values().find(({ isAsked }) => isAsked);
      const next = asked ?? (opensAt > now ? undefined : this.#next(now));
      if (next === undefined) {
        const askedAt = this.#waiting.values().some(({ isAsked }) => isAsked) ? this.#nextAt : Number.POSITIVE_INFINITY;
        const ready = Math.min(...this.#waiting.values().map(({ subject }) => this.#ownBackoffUntil(subject)));
        const startBy = Math.min(...this.#waiting.values().map((waiting) => waiting.startBy));
        // One millisecond later, the request is certainly too late.
        const goesAt = Math.min(Math.max(opensAt, ready), askedAt, startBy + 1);
        this.#timer = new TimeLimit(this.#clock, () => this.#go());
        this.#timer.set(goesAt - now, 'the turn of a request');
        return;
      }
      this.#spend(next, now);
      this.#sent += 1;
      this.#waiting.delete(next);
      next.grant(this.#sent);
    }
  }

  /** Rejects requests that would wait too long. Their callers postpone them. */
  #rejectLate(now: number, opensAt: number): void {
    for (const waiting of this.#waiting) {
      const { subject, startBy, wasRefused, isAsked, rank } = waiting;
      if (isAsked && this.#nextAt <= Math.max(now, startBy)) continue;
      const ownUntil = this.#ownBackoffUntil(subject);
      const backoffMs = Math.max(this.#heldUntil, ownUntil) - now;
      const isOwn = rank === 2 && ownUntil > now && (this.#subjects.get(subject)?.count ?? 0) >= OWN_FROM;
      const goesAt = Math.max(opensAt, ownUntil);
      if (!isOwn && backoffMs <= BACKOFF_PATIENCE_MS && (goesAt <= now || goesAt <= startBy)) continue;
      const message = 'The request was not sent: the service refuses too many requests at present';
      this.#waiting.delete(waiting);
      waiting.reject(
        new ThrottledError(wasRefused ? `${message}, and has refused this one` : message, {
          retryAfterMs: backoffMs > 0 ? backoffMs : undefined,
          wasSent: wasRefused,
          isOthersTrouble: !wasRefused && ownUntil <= now,
        }),
      );
    }
  }

  /** The first request of the highest rank that may go. A rank that was passed over nine times has the next one. */
  #next(now: number): Waiting | undefined {
    const ready = ([0, 1, 2] as const).flatMap((rank) => {
      const first = this.#waiting
        .values()
        .find((one) => one.rank === rank && this.#ownBackoffUntil(one.subject) <= now);
      return first ?? [];
    });
    const chosen = ready.find(({ rank }) => (this.#skipped[rank] ?? 0) >= SKIPPED_MAX) ?? ready[0];
    if (chosen === undefined) return undefined;
    for (const { rank } of ready) this.#skipped[rank] = rank > chosen.rank ? (this.#skipped[rank] ?? 0) + 1 : 0;
    return chosen;
  }

  #ownBackoffUntil(subject: string): number {
    return this.#subjects.get(subject)?.backoffUntil ?? 0;
  }

  /** Takes one turn. Before that, the rate grows by the time during which requests have been waiting. */
  #spend({ since }: Waiting, now: number): void {
    if (this.#rate !== undefined && this.#rate < this.#ceiling) {
      const { perSecond, perRequestMax } = this.#isFirstRate ? FIRST_GROWTH : GROWTH;
      const waitedSeconds = (now - Math.max(since, this.#grownAt)) / 1000;
      this.#rate *= Math.min(perRequestMax, perSecond ** waitedSeconds);
    }
    this.#grownAt = now;
    const rate = Math.min(this.#rate ?? Number.POSITIVE_INFINITY, this.#ceiling);
    this.#nextAt = Math.max(this.#nextAt, now - BUCKET_MS) + 1000 / rate;
  }
}
