import { getEventListeners } from 'node:events';
import { beforeEach, describe, expect, it } from 'vitest';
import { ThrottledError } from '../../functions/flow-service/errors.ts';
import { Pacer, type Rank, type RequestKind } from '../../functions/flow-service/pacer.ts';
import { refusalOf } from '../../functions/flow-service/service-description.ts';
import { FLOWS } from '../../functions/flow-service/services.ts';
import type { TransportResponse } from '../../functions/flow-service/transport.ts';
import { Limiter, type Limits, type Rate } from '../../local/flow-service/limiter.ts';
import { VirtualTime } from '../support/virtual-time.ts';
import { never } from './scripted.ts';

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

/** Response time of the service, in milliseconds. */
const ANSWER_MS = 50;

/** Concurrent requests of a process, as in a tick. */
const SIDE_BY_SIDE = 64;

let time: VirtualTime;
beforeEach(() => {
  time = new VirtualTime();
});

/** Time after which a caller repeats a request that failed, in milliseconds. */
const CALLER_WAIT_MS = 5 * SECOND;

const response = (status: number, headers: Record<string, string> = {}): TransportResponse => ({
  status,
  headers,
  refusal: refusalOf(FLOWS.errors, status),
  body: (async function* () {})(),
  destroy() {},
});

type Send = (subject: string, kind: RequestKind) => Promise<TransportResponse>;

/** A service with these limits and no other trouble. */
function limited(limits: Limits): { readonly limiter: Limiter; readonly send: Send } {
  const limiter = new Limiter(limits, time);
  const send: Send = async (_, kind) => {
    await time.sleep(ANSWER_MS / 2);
    const admission = limiter.admit(kind === 'creation' ? 'createFlow' : 'getFlow');
    await time.sleep(ANSWER_MS / 2);
    if (!admission.isAdmitted) return response(admission.status, { ...admission.headers });
    admission.settle(undefined);
    return response(200, { ...admission.headers });
  };
  return { limiter, send };
}

interface Asked {
  readonly subject: string;
  readonly rank?: Rank;
}

/** The outcome of one request. Times are in seconds since the beginning. */
interface Outcome {
  readonly subject: string;
  readonly status: number | ThrottledError;
  readonly at: number;
}

/** One process that sends each request once, several of them concurrently. */
async function once(pacer: Pacer, asked: readonly Asked[], send: Send, kind: RequestKind = 'other') {
  const left = asked.values();
  const outcomes: Outcome[] = [];
  const worker = async (): Promise<void> => {
    for (const { subject, rank = 2 } of left) {
      let status: Outcome['status'];
      try {
        status = (await pacer.send(kind, { rank, subject }, never, () => send(subject, kind))).status;
      } catch (error) {
        if (!(error instanceof ThrottledError)) throw error;
        status = error;
      }
      outcomes.push({ subject, status, at: time.seconds });
    }
  };
  await Promise.all(Array.from({ length: SIDE_BY_SIDE }, worker));
  return outcomes;
}

const subjects = (count: number, prefix = 'flow'): Asked[] =>
  Array.from({ length: count }, (_, index) => ({ subject: `${prefix} ${index}` }));

const isAnswered = ({ status }: Outcome): boolean => status === 200;

/** Processes that share a service. Each repeats its failed requests until all are answered. */
function untilAnswered(count: number, { processes = 1, send }: { processes?: number; send: Send }): Promise<void> {
  return time.during(async () => {
    const one = async (index: number): Promise<void> => {
      const pacer = new Pacer(time);
      let left = subjects(count / processes, `${index}`);
      while (left.length > 0) {
        const outcomes = await once(pacer, left, send);
        left = outcomes.filter((outcome) => !isAnswered(outcome));
        if (left.length > 0) await time.sleep(CALLER_WAIT_MS);
      }
    };
    await Promise.all(Array.from({ length: processes }, (_, index) => one(index)));
  });
}

describe('under a limit of requests a second, all work is done in nearly the shortest time', () => {
  const rate = (requestsPerSecond: number, burst: number): Rate => ({ requestsPerSecond, burst });
  it.each([
    { everything: rate(20, 20), count: 600, processes: 1, times: 1.5 },
    { everything: rate(20, 20), count: 1_200, processes: 5, times: 1.5 },
    { everything: rate(5, 5), count: 200, processes: 1, times: 1.5 },
    { everything: rate(5, 5), count: 200, processes: 5, times: 1.5 },
    { everything: rate(1, 5), count: 100, processes: 1, times: 1.5 },
    { everything: rate(1, 5), count: 100, processes: 5, times: 1.5 },
    { everything: rate(1, 1), count: 100, processes: 1, times: 1.5 },
    { everything: rate(1_000, 1_000), count: 8_000, processes: 1, times: 1.5 },
    // At three a minute, each refusal that does not stop all others at once costs a large part of a minute.
    { everything: rate(0.05, 1), count: 20, processes: 1, times: 2.5, throttledShare: 8 },
    // Without a burst, each of five processes is throttled whenever another one was a moment earlier. Fewer tries would
    // leave half of the allowance unused.
    { everything: rate(1, 1), count: 100, processes: 5, times: 2, throttledShare: 4 },
  ])('$everything, shared by $processes', async ({ everything, count, processes, times, throttledShare = 0.5 }) => {
    for (const retryAfter of ['seconds', 'date', 'none'] as const) {
      time = new VirtualTime();
      const { limiter, send } = limited({ everything, retryAfter });
      await untilAnswered(count, { processes, send });
      const ideal = (count - everything.burst) / everything.requestsPerSecond;
      expect(time.seconds).toBeLessThan(times * ideal);
      // Throttled requests load the service too. Many of them look like an attack.
      expect(limiter.refusedCount).toBeLessThan(throttledShare * count + SIDE_BY_SIDE * processes);
    }
  });

  it.each(['seconds', 'date', 'none'] as const)('20 in every 10 seconds, Retry-After: %s', async (retryAfter) => {
    const { send } = limited({ window: { requests: 20, seconds: 10 }, retryAfter });
    await untilAnswered(200, { send });
    // At best the tenth window has begun.
    expect(time.seconds).toBeLessThan(1.5 * 90);
  });

  it.each(['RateLimit', 'X-RateLimit'] as const)('20 in every 10 seconds, told in %s headers', async (headers) => {
    const { limiter, send } = limited({ window: { requests: 20, seconds: 10 }, headers, retryAfter: 'none' });
    await untilAnswered(200, { send });
    expect(time.seconds).toBeLessThan(1.5 * 90);
    // Only requests that were under way when the allowance ended are throttled.
    expect(limiter.refusedCount).toBeLessThan(2 * SIDE_BY_SIDE);
  });
});

describe('a wait that the service asks for', () => {
  const until = (seconds: number) => new Date(time.now() + seconds * SECOND).toUTCString();
  const epoch = (seconds: number) => String(Math.ceil(time.now() / SECOND) + seconds);
  const HINTS: readonly (readonly [string, number, () => Record<string, string>])[] = [
    ['Retry-After in seconds', 429, () => ({ 'retry-after': '2' })],
    ['Retry-After as a date', 429, () => ({ 'retry-after': until(2) })],
    ['RateLimit-Reset with a 429', 429, () => ({ 'ratelimit-remaining': '0', 'ratelimit-reset': '2' })],
    ['X-RateLimit-Reset with a 429', 429, () => ({ 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': epoch(2) })],
    ['RateLimit-Reset with an answer', 200, () => ({ 'ratelimit-remaining': '0', 'ratelimit-reset': '2' })],
    ['X-RateLimit-Reset with an answer', 200, () => ({ 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': epoch(2) })],
    ['RateLimit with an answer', 200, () => ({ ratelimit: '"default";r=0;t=2' })],
    ['an older RateLimit with an answer', 200, () => ({ ratelimit: 'limit=20, remaining=0, reset=2' })],
  ];

  for (const kind of ['other', 'creation'] as const) {
    it.each(HINTS)(`holds back all requests of its kind, and no other: %s (${kind})`, async (_, status, headers) => {
      const pacer = new Pacer(time);
      const sent: { kind: RequestKind; at: number }[] = [];
      const send: Send = async (_subject, asked) => {
        sent.push({ kind: asked, at: time.seconds });
        return sent.length === 1 ? response(status, headers()) : response(200);
      };
      await time.during(async () => {
        const request = { rank: 0 as const, startBy: time.now() + HOUR };
        const ask = (subject: string, asked: RequestKind) =>
          pacer.send(asked, { ...request, subject }, never, () => send(subject, asked));
        const first = ask('first', kind);
        await time.sleep(1);
        await Promise.all([first, ask('second', 'creation'), ask('third', 'other'), ask('fourth', kind)]);
      });
      const [, ...later] = sent;
      for (const each of later) {
        if (each.kind === kind) expect(each.at).toBeGreaterThanOrEqual(2);
        else expect(each.at).toBeLessThan(0.1);
      }
    });
  }
});

describe('subjects that are always throttled', () => {
  const isPoisoned = (subject: string) => subject.startsWith('poisoned');
  const THROTTLED = [
    ['429 without Retry-After', response.bind(undefined, 429, {})],
    ['429 with Retry-After: 1', response.bind(undefined, 429, { 'retry-after': '1' })],
    ['429 with Retry-After: 3600', response.bind(undefined, 429, { 'retry-after': '3600' })],
    ['402', response.bind(undefined, 402, {})],
    ['503 with Retry-After: 5', response.bind(undefined, 503, { 'retry-after': '5' })],
  ] as const;

  it.each(THROTTLED)('delay the others by seconds only, and fail: eight with %s', async (_, throttled) => {
    const pacer = new Pacer(time);
    const send: Send = async (subject) => {
      await time.sleep(ANSWER_MS);
      return isPoisoned(subject) ? throttled() : response(200);
    };
    const asked = [...subjects(8, 'poisoned'), ...subjects(200)];
    const outcomes = await time.during(() => once(pacer, asked, send));
    const others = outcomes.filter(({ subject }) => !isPoisoned(subject));
    expect(others.filter(isAnswered)).toHaveLength(200);
    expect(Math.max(...others.map(({ at }) => at))).toBeLessThan(15);
    for (const { subject, status, at } of outcomes) {
      if (!isPoisoned(subject)) continue;
      expect(status).not.toBe(200);
      expect(at).toBeLessThan(90);
    }
  });

  it('delay the others by seconds only, however often their callers repeat them', async () => {
    const pacer = new Pacer(time);
    const send: Send = async (subject) => {
      await time.sleep(ANSWER_MS);
      return isPoisoned(subject) ? response(429) : response(200);
    };
    await time.during(() => once(pacer, [...subjects(3, 'poisoned'), ...subjects(500)], send));
    // Their callers repeat them, as ticks do.
    for (let i = 0; i < 4; i += 1) {
      await time.during(() => once(pacer, [...subjects(3, 'poisoned'), ...subjects(50, `round ${i}`)], send));
    }
    const from = time.seconds;
    const outcomes = await time.during(() => once(pacer, [...subjects(3, 'poisoned'), ...subjects(500)], send));
    const others = outcomes.filter(({ subject }) => !isPoisoned(subject));
    expect(Math.max(...others.map(({ at }) => at)) - from).toBeLessThan(15);
  });

  it('hold others back for seconds only, if two are refused again and again and no other is asked in between', async () => {
    const pacer = new Pacer(time);
    const send: Send = async (subject) => {
      await time.sleep(ANSWER_MS);
      return isPoisoned(subject) ? response(503, { 'retry-after': '30' }) : response(200);
    };
    for (let round = 0; round < 4; round += 1) {
      for (const one of subjects(2, 'poisoned')) await time.during(() => once(pacer, [one], send));
      await time.pass(MINUTE);
    }
    for (const one of subjects(2, 'poisoned')) await time.during(() => once(pacer, [one], send));
    const from = time.seconds;
    const [healthy] = await time.during(() => once(pacer, subjects(1), send));
    expect(healthy).toMatchObject({ status: 200 });
    expect((healthy?.at ?? Number.POSITIVE_INFINITY) - from).toBeLessThan(10);
  });

  it.each([
    [0, 200],
    [1, 200],
    [2, 429],
  ] as const)(
    'are asked again in place for a minute, but a poll is left to the next tick: rank %i',
    async (rank, status) => {
      const pacer = new Pacer(time);
      let refusals = 0;
      const send: Send = async (subject) => {
        await time.sleep(ANSWER_MS);
        if (!isPoisoned(subject) || refusals === 5) return response(200);
        refusals += 1;
        return response(429);
      };
      const one = { subject: 'poisoned', rank };
      const outcomes = await time.during(() => once(pacer, [one, ...subjects(1_500)], send));
      expect(outcomes.find(({ subject }) => subject === 'poisoned')).toMatchObject({ status });
    },
  );

  it('do not hide a real limit', async () => {
    const limit = limited({ everything: { requestsPerSecond: 10, burst: 10 } });
    const send: Send = (subject, kind) =>
      isPoisoned(subject) ? Promise.resolve(response(429)) : limit.send(subject, kind);
    const pacer = new Pacer(time);
    const outcomes = await time.during(() => once(pacer, [...subjects(8, 'poisoned'), ...subjects(300)], send));
    const others = outcomes.filter(({ subject }) => !isPoisoned(subject));
    expect(others.filter(isAnswered)).toHaveLength(300);
    expect(Math.max(...others.map(({ at }) => at))).toBeLessThan(1.5 * 29 + 35);
    expect(limit.limiter.refusedCount).toBeLessThan(200);
  });
});

describe('a request', () => {
  const ask = (pacer: Pacer, kind: RequestKind, answers: readonly TransportResponse[], startBy?: number) => {
    const left = [...answers];
    const sentAt: number[] = [];
    const outcome = time.during(() =>
      pacer.send(kind, { rank: 0, subject: 'a', startBy }, never, async () => {
        sentAt.push(time.seconds);
        return left.length > 1 ? (left.shift() as TransportResponse) : (left[0] as TransportResponse);
      }),
    );
    return { outcome, sentAt };
  };

  const slower = response(429, { 'retry-after': '40' });
  const busy = (sent: 'part' | 'all') => ({ ...response(503, { 'retry-after': '1' }), sent });
  it.each<[string, RequestKind, readonly TransportResponse[], status: number, tries: number]>([
    ['that is throttled is sent again', 'other', [response(429), response(429), response(200)], 200, 3],
    ['on a spent account fails at once', 'other', [response(402)], 402, 1],
    ['that creates a flow fails if its caller would have no time left', 'creation', [slower], 429, 1],
    // A flow may exist.
    ['that creates a flow and got 503 after its last byte is not sent again', 'creation', [busy('all')], 503, 1],
    ['that creates a flow and got 503 before it is sent again', 'creation', [busy('part'), response(201)], 201, 2],
  ])('%s', async (_, kind, answers, status, tries) => {
    const { outcome, sentAt } = ask(new Pacer(time), kind, answers, time.now() + 30 * SECOND);
    expect((await outcome).status).toBe(status);
    expect(sentAt).toHaveLength(tries);
    if (tries === 1) expect(time.seconds).toBe(0);
  });

  it('that is throttled has its answer closed before it is sent again', async () => {
    let closed = 0;
    const throttled = {
      ...response(429),
      destroy() {
        closed += 1;
      },
    };
    await ask(new Pacer(time), 'other', [throttled, response(200)]).outcome;
    expect(closed).toBe(1);
  });

  it('that is always throttled fails after a minute', async () => {
    const { outcome, sentAt } = ask(new Pacer(time), 'other', [response(429)]);
    await expect(outcome).resolves.toMatchObject({ status: 429 });
    expect(time.seconds).toBeLessThanOrEqual(60);
    expect(sentAt.length).toBeLessThan(30);
  });

  it('that creates a flow is handed back after a minute too, however much time its caller has', async () => {
    const throttled = response(429, { 'retry-after': '40' });
    const { outcome } = ask(new Pacer(time), 'creation', [throttled], time.now() + 10 * MINUTE);
    expect((await outcome).status).toBe(429);
    expect(time.seconds).toBeLessThanOrEqual(60);
  });

  it('on an account that is spent no more goes within seconds of another’s answer', async () => {
    const pacer = new Pacer(time);
    const ask = (subject: string, status: number) =>
      time.during(() => pacer.send('creation', { rank: 0, subject }, never, async () => response(status)));
    expect((await ask('a', 402)).status).toBe(402);
    expect((await ask('b', 201)).status).toBe(201);
    expect((await ask('a', 201)).status).toBe(201);
    expect(time.seconds).toBeLessThan(5);
  });

  it('that a person asks for goes before the others and through every backoff, at the rate', async () => {
    const pacer = new Pacer(time);
    const ask = (subject: string, status: number, isAsked?: boolean) =>
      time.during(() => pacer.send('creation', { rank: 0, subject, isAsked }, never, async () => response(status)));
    for (const { subject } of subjects(8)) await Promise.allSettled([ask(subject, 402)]);
    await expect(ask('other', 201)).rejects.toThrow(ThrottledError);
    const from = time.seconds;
    for (const { subject } of subjects(5)) expect((await ask(subject, 402, true)).status).toBe(402);
    expect(time.seconds - from).toBeGreaterThan(5);
    expect(time.seconds - from).toBeLessThan(30);
  });

  it('whose connection breaks fails with that error', async () => {
    const pacer = new Pacer(time);
    const broken = pacer.send('other', { rank: 0, subject: 'a' }, never, async () => {
      throw new Error('reset');
    });
    await expect(broken).rejects.toThrow('reset');
    expect((await ask(pacer, 'other', [response(200)]).outcome).status).toBe(200);
  });

  it('that is aborted while it waits to be sent again leaves no timer and no listener behind', async () => {
    const controller = new AbortController();
    const { signal } = controller;
    const pacer = new Pacer(time);
    const waiting = pacer.send('other', { rank: 0, subject: 'a' }, signal, async () => response(429));
    const outcome = Promise.allSettled([waiting]);
    await time.pass(100);
    expect(getEventListeners(signal, 'abort')).toHaveLength(1);
    controller.abort(new Error('No more'));
    expect(await outcome).toMatchObject([{ status: 'rejected', reason: signal.reason }]);
    expect(getEventListeners(signal, 'abort')).toEqual([]);
    await time.pass(0);
    expect(time.sleepers).toBe(0);
  });

  it('of one kind is not limited if the other kind is throttled', async () => {
    const pacer = new Pacer(time);
    await Promise.allSettled([ask(pacer, 'creation', [response(429)], time.now() + 20 * SECOND).outcome]);
    expect(pacer.isCreationLimited).toBe(true);
    expect(pacer.learnt).toBeUndefined();
    const from = time.seconds;
    await time.during(() => once(pacer, subjects(500), async () => response(200)));
    expect(time.seconds).toBe(from);
  });

  it('goes no more often than the ceiling allows, for each kind', async () => {
    const pacer = new Pacer(time, 5);
    const send = async () => response(200);
    await time.during(() =>
      Promise.all([once(pacer, subjects(51), send), once(pacer, subjects(51), send, 'creation')]),
    );
    expect(time.seconds).toBeGreaterThan(9.5);
    expect(time.seconds).toBeLessThan(10.5);
  });
});
