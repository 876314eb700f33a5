import { getEventListeners } from 'node:events';
import { beforeEach, describe, expect, it } from 'vitest';
import { ThrottledError } from '../../functions/flow-service/errors.ts';
import { Pace, type Rank } from '../../functions/flow-service/pace.ts';
import { VirtualTime } from '../support/virtual-time.ts';
import { never } from './scripted.ts';

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

let time: VirtualTime;
let pace: Pace;
beforeEach(() => {
  time = new VirtualTime();
  pace = new Pace(time, Number.POSITIVE_INFINITY);
});

const turn = (subject: string, { rank = 0 as Rank, startBy = undefined as number | undefined, signal = never } = {}) =>
  pace.turn({ rank, subject, startBy }, signal);

/** Throttles one request, after `count` requests that were answered. */
async function throttled(retryAfterMs: number | undefined = undefined, count = 0): Promise<void> {
  for (let i = 0; i < count; i += 1) pace.answered(`answered ${i}`, await turn(`answered ${i}`));
  pace.throttled('throttled', await turn('throttled'), retryAfterMs);
}

/** The state of a promise after all work that is possible at this moment. */
async function outcomeOf(promise: Promise<unknown>): Promise<unknown> {
  let outcome: unknown = 'waits';
  promise.then(
    () => {
      outcome = 'granted';
    },
    (error) => {
      outcome = error;
    },
  );
  await time.pass(0);
  return outcome;
}

/** How long a request waits for its turn, in seconds. */
async function secondsTo(waiting: Promise<unknown>, maxMs?: number): Promise<number> {
  const from = time.seconds;
  await time.during(() => waiting, maxMs);
  return time.seconds - from;
}

/** Requests that are sent together. @returns their turns, by subject. */
const burstOf = async (count: number) =>
  Promise.all(Array.from({ length: count }, async (_, i) => [`${i}`, await turn(`${i}`)] as const));

/** The subjects of the requests, in the order in which they get their turns. */
function granted(requests: readonly { subject: string; rank: Rank }[]): Promise<string[]> {
  const order: string[] = [];
  return time.during(async () => {
    await Promise.all(requests.map(async ({ subject, rank }) => order.push(await turnOf(subject, rank))));
    return order;
  });
}

async function turnOf(subject: string, rank: Rank): Promise<string> {
  const { number } = await turn(subject, { rank });
  pace.answered(subject, { number });
  return subject;
}

describe('a pace without a throttled request', () => {
  it('lets every request go at once', async () => {
    await granted(Array.from({ length: 1_000 }, (_, index) => ({ subject: `${index}`, rank: 0 })));
    expect(time.seconds).toBe(0);
    expect(pace.learnt).toBeUndefined();
  });

  it('keeps to the ceiling that the operator has set', async () => {
    pace = new Pace(time, 10);
    await granted(Array.from({ length: 101 }, (_, index) => ({ subject: `${index}`, rank: 0 })));
    // Two turns may make up for a late timer.
    expect(time.seconds).toBeGreaterThanOrEqual(9.8);
    expect(time.seconds).toBeLessThan(10.2);
    expect(pace.learnt).toBeUndefined();
  });
});

describe('a throttled request', () => {
  it('lowers the rate to seven tenths of what was answered', async () => {
    await time.during(async () => {
      for (let i = 0; i < 50; i += 1) {
        pace.answered(`${i}`, await turn(`${i}`));
        await time.sleep(100);
      }
      pace.throttled('throttled', await turn('throttled'), undefined);
    });
    expect(pace.learnt?.requestsPerSecond).toBeCloseTo(7, 0);
    expect(pace.learnt?.throttledAt).toBe(time.now());
  });

  it('counts once for all requests that were under way together', async () => {
    await throttled(undefined, 100);
    const before = pace.learnt?.requestsPerSecond as number;
    await time.pass(10 * MINUTE);
    const turns = await time.during(() => Promise.all(Array.from({ length: 10 }, (_, i) => turn(`${i}`))));
    const grown = pace.learnt?.requestsPerSecond as number;
    expect(grown).toBeGreaterThanOrEqual(before);
    for (const [index, each] of turns.entries()) pace.throttled(`${index}`, each, undefined);
    expect(pace.learnt?.requestsPerSecond).toBeCloseTo(grown * 0.7, 5);
  });

  it('never stops a process that shares a limit with many others', async () => {
    for (let i = 0; i < 30; i += 1) {
      pace.throttled(`${i}`, await time.during(() => turn(`${i}`)), undefined);
    }
    expect(pace.learnt?.requestsPerSecond).toBeCloseTo(0.1, 5);
    const { number } = await time.during(() => turn('another'), MINUTE);
    pace.answered('another', { number });
    await granted([{ subject: 'next', rank: 0 }]);
  });

  it('holds back all requests for two seconds at most if it is the only one', async () => {
    await throttled(10 * MINUTE, 100);
    expect(await secondsTo(turn('another'))).toBe(2);
  });

  it('that comes late, after the answer to a newer one, holds back all requests for two seconds too', async () => {
    const [late, first, newer] = [await turn('late'), await turn('first'), await turn('newer')];
    pace.throttled('first', first, 9 * SECOND);
    pace.answered('newer', newer);
    await time.pass(1_500);
    pace.throttled('late', late, 9 * SECOND);
    await granted([{ subject: 'other', rank: 0 }]);
    expect(time.seconds).toBeGreaterThanOrEqual(3.5);
    expect(time.seconds).toBeLessThan(4);
  });

  it('that others follow in a row holds back all requests up to the Retry-After', async () => {
    const from = time.seconds;
    for (let i = 0; time.seconds - from < 50; i += 1) {
      pace.throttled(`${i}`, await time.during(() => turn(`${i}`)), 50 * SECOND);
      expect(i).toBeLessThan(7);
    }
    expect(await secondsTo(turn('another'))).toBeCloseTo(50, 0);
  });

  it('that others of one burst follow holds back all requests for half a minute, however late they come', async () => {
    for (const [subject, each] of await burstOf(9)) pace.throttled(subject, each, 10 * MINUTE);
    expect(await secondsTo(turn('another'))).toBe(32);
  });

  it('that others of one burst follow obeys a shorter Retry-After in full', async () => {
    for (const [subject, each] of await burstOf(9)) pace.throttled(subject, each, 9 * SECOND);
    expect(await secondsTo(turn('another'))).toBeGreaterThanOrEqual(9);
  });

  it('holds back all requests for two seconds only once a later one of its burst is answered', async () => {
    const [last, ...others] = (await burstOf(9)).reverse();
    for (const [subject, each] of others.reverse()) pace.throttled(subject, each, 10 * MINUTE);
    const waiting = turn('another');
    if (last !== undefined) pace.answered(...last);
    expect(await secondsTo(waiting)).toBeLessThan(3);
  });

  it('delays the others by seconds only, however often the same flow is throttled', async () => {
    for (let i = 0; i < 12; i += 1) {
      pace.throttled('poisoned', await time.during(() => turn('poisoned'), HOUR), i < 11 ? SECOND : HOUR);
    }
    // The hold takes two seconds. The learnt rate is one turn in ten seconds at least.
    expect(await secondsTo(turn('another'), HOUR)).toBeLessThanOrEqual(10);
  });

  it('cannot cause a hot loop with a Retry-After of 0', async () => {
    const againAt = pace.throttled('a', await turn('a'), 0);
    expect((againAt as number) - time.now()).toBeGreaterThanOrEqual(250);
  });

  it('that asks for hours makes further requests fail at once, with the time to wait', async () => {
    for (let i = 0; i < 6; i += 1) {
      const next = turn(`${i}`);
      pace.throttled(`${i}`, await time.during(() => next, HOUR), HOUR);
    }
    const from = time.seconds;
    const error = await outcomeOf(turn('another'));
    expect(error).toBeInstanceOf(ThrottledError);
    expect(error).toMatchObject({ wasSent: false, retryAfterMs: 64 * SECOND });
    expect(time.seconds).toBe(from);
  });
});

describe('requests that wait for their turn', () => {
  beforeEach(() => throttled(undefined, 100));

  it('go by rank, and in the order of arrival within a rank', async () => {
    const request = (subject: string, rank: Rank) => ({ subject, rank });
    const order = await granted([
      request('look 1', 2),
      request('look 2', 2),
      request('search', 1),
      request('asset 1', 0),
      request('asset 2', 0),
    ]);
    expect(order).toEqual(['asset 1', 'asset 2', 'search', 'look 1', 'look 2']);
  });

  it('get a tenth of the turns, however many of a higher rank there are', async () => {
    const assets = Array.from({ length: 200 }, (_, i) => ({ subject: `asset ${i}`, rank: 0 as const }));
    const looks = Array.from({ length: 200 }, (_, i) => ({ subject: `look ${i}`, rank: 2 as const }));
    const order = await granted([...assets, ...looks]);
    const isLook = (subject: string) => subject.startsWith('look');
    expect(order.slice(0, 100).filter(isLook)).toHaveLength(10);
    expect(order.slice(100, 200).filter(isLook)).toHaveLength(10);
  });

  it('fail by their deadline', async () => {
    pace.throttled('again', await time.during(() => turn('again')), undefined);
    const from = time.now();
    const waiting = Array.from({ length: 100 }, (_, i) => turn(`${i}`, { startBy: from + 1 * SECOND }));
    const outcomes = await time.during(() => Promise.allSettled(waiting));
    expect(time.now() - from).toBeLessThanOrEqual(1 * SECOND + 1);
    const rejected = outcomes.flatMap((outcome) => (outcome.status === 'rejected' ? [outcome.reason] : []));
    expect(rejected.length).toBeGreaterThan(0);
    for (const error of rejected) {
      expect(error).toBeInstanceOf(ThrottledError);
      expect(error).toMatchObject({ wasSent: false });
    }
  });

  it('fail at once if the next turn comes too late', async () => {
    await time.during(() => turn('first'));
    pace.throttled('more', await time.during(() => turn('more')), 30 * SECOND);
    const from = time.now();
    const error = await outcomeOf(turn('late', { startBy: from + 100 }));
    expect(error).toBeInstanceOf(ThrottledError);
    expect(time.now()).toBe(from);
  });

  it('leave no timer and no listener behind, whether they are sent, aborted or rejected', async () => {
    const controller = new AbortController();
    const { signal } = controller;
    const from = time.now();
    const sent = turn('sent', { signal });
    const outcomes = Promise.allSettled([
      sent,
      turn('rejected', { signal, startBy: from + 1 }),
      ...Array.from({ length: 10 }, (_, i) => turn(`${i}`, { signal })),
    ]);
    await time.during(() => sent);
    expect(getEventListeners(signal, 'abort').length).toBeGreaterThan(0);
    controller.abort(new Error('No more'));
    const reasons = (await outcomes).flatMap((outcome) => (outcome.status === 'rejected' ? [outcome.reason] : []));
    expect(reasons).toContain(signal.reason);
    expect(getEventListeners(signal, 'abort')).toEqual([]);
    await time.pass(0);
    expect(time.sleepers).toBe(0);
    expect(() => turn('later', { signal })).toThrow('No more');
  });

  it('take the place of an aborted one', async () => {
    const controller = new AbortController();
    const first = turn('first', { signal: controller.signal });
    first.catch(() => {});
    const second = turn('second');
    controller.abort();
    await time.during(() => second, MINUTE);
  });
});

describe('the learnt pace', () => {
  it('is where another process continues', async () => {
    pace.resume({ requestsPerSecond: 2, throttledAt: time.now() - 10 * MINUTE });
    await granted(Array.from({ length: 21 }, (_, index) => ({ subject: `${index}`, rank: 0 })));
    // The rate grows while requests wait, so this takes less than the ten seconds of the learnt rate.
    expect(time.seconds).toBeGreaterThan(6);
    expect(time.seconds).toBeLessThan(10.1);
    expect(pace.learnt?.throttledAt).toBe(time.now() - time.seconds * SECOND - 10 * MINUTE);
  });

  it('is ignored if it is an hour old, or older than the pace that the process learnt itself', async () => {
    pace.resume({ requestsPerSecond: 2, throttledAt: time.now() - HOUR - 1 });
    expect(pace.learnt).toBeUndefined();
    await throttled(undefined, 100);
    const own = pace.learnt;
    pace.resume({ requestsPerSecond: 2, throttledAt: time.now() - 1 });
    expect(pace.learnt).toEqual(own);
  });

  it('is forgotten after an hour without a throttled request', async () => {
    await throttled();
    await time.pass(HOUR);
    expect(pace.learnt).toBeDefined();
    await time.pass(SECOND);
    expect(pace.learnt).toBeUndefined();
    const from = time.seconds;
    await granted(Array.from({ length: 100 }, (_, index) => ({ subject: `${index}`, rank: 0 })));
    // Of the old rate, only the gap after the last turn is left.
    expect(time.seconds - from).toBeLessThan(2);
  });
});
