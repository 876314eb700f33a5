import { describe, expect, it } from 'vitest';
import type { Operation } from '../../../local/flow-service/call.ts';
import { Limiter, type Limits } from '../../../local/flow-service/limiter.ts';
import { echo, handClock, standIn } from './support.ts';

function limiterOf(limits: Limits) {
  const clock = handClock();
  const limiter = new Limiter(limits, clock);
  const statusOf = (operation: Operation): number => {
    const answer = limiter.admit(operation);
    return answer.isAdmitted ? 200 : answer.status;
  };
  const statusesOf = (operation: Operation, times: number) => Array.from({ length: times }, () => statusOf(operation));
  return { clock, limiter, statusOf, statusesOf };
}

describe('a token bucket', () => {
  it('accepts a burst, and then one request for each token that comes back', () => {
    const { clock, statusesOf } = limiterOf({ everything: { requestsPerSecond: 5, burst: 3 } });
    expect(statusesOf('getFlow', 4)).toEqual([200, 200, 200, 429]);
    clock.pass(200);
    expect(statusesOf('getAsset', 2)).toEqual([200, 429]);
    clock.pass(10_000);
    expect(statusesOf('createFlow', 4)).toEqual([200, 200, 200, 429]);
  });

  it('can be separate for creations and all other requests', () => {
    const { statusesOf } = limiterOf({
      creations: { requestsPerSecond: 1, burst: 1 },
      others: { requestsPerSecond: 10, burst: 2 },
    });
    expect(statusesOf('createFlow', 2)).toEqual([200, 429]);
    expect(statusesOf('getFlow', 1)).toEqual([200]);
    expect(statusesOf('listFlows', 2)).toEqual([200, 429]);
  });
});

describe('a fixed window', () => {
  it('accepts its number of requests in each window, at any time within it', () => {
    const { clock, statusesOf } = limiterOf({ window: { requests: 20, seconds: 10 } });
    clock.pass(9_000);
    expect(statusesOf('getFlow', 21)).toEqual([...Array(20).fill(200), 429]);
    clock.pass(1_000);
    expect(statusesOf('getFlow', 21)).toEqual([...Array(20).fill(200), 429]);
  });
});

describe('places', () => {
  it('refuse only creations, while all of them are taken by unfinished flows', async () => {
    const clock = handClock();
    const { call, create, service } = await standIn({ clock, flowMs: 60_000, limits: { places: 2 } });
    const first = await create();
    clock.pass(30_000);
    await create();
    expect((await call('POST', '/flows', echo('third'))).status).toBe(429);
    expect((await call('GET', `/flows/${first}`)).status).toBe(200);
    expect((await call('GET', '/flows')).status).toBe(200);
    clock.pass(30_000);
    expect((await call('POST', '/flows', echo('third'))).status).toBe(201);
    expect((await call('POST', '/flows', echo('fourth'))).status).toBe(429);
    expect(service.flows).toHaveLength(3);
    expect(service.limiter.accepted).toEqual({ createFlow: 3, getFlow: 1, listFlows: 1 });
    expect(service.limiter.refused).toEqual({ createFlow: 2 });
  });

  it('are taken by a creation under way, and released if it fails', async () => {
    const { clock, limiter } = limiterOf({ places: 1 });
    const first = limiter.admit('createFlow');
    expect(limiter.admit('createFlow').isAdmitted).toBe(false);
    if (first.isAdmitted) first.settle(undefined);
    const second = limiter.admit('createFlow');
    const flow = { deleted: false, isTerminal: (now: number) => now >= endsAt };
    const endsAt = clock.now() + 1_000;
    if (second.isAdmitted) {
      second.settle(flow);
      second.settle(undefined);
    }
    expect(limiter.admit('createFlow').isAdmitted).toBe(false);
    clock.pass(1_000);
    expect(limiter.admit('createFlow').isAdmitted).toBe(true);
  });
});

it.each([402, 429] as const)('a budget refuses creations with %i for hours after it is spent', (status) => {
  const { clock, limiter, statusesOf } = limiterOf({ budget: { creations: 2, seconds: 7_200, status } });
  const create = (times: number) =>
    Array.from({ length: times }, () => {
      const answer = limiter.admit('createFlow');
      if (answer.isAdmitted) answer.settle({ deleted: false, isTerminal: () => true });
      return answer.isAdmitted ? 201 : `${answer.status} ${answer.headers['retry-after']}`;
    });
  expect(create(3)).toEqual([201, 201, `${status} 7200`]);
  expect(statusesOf('getFlow', 1)).toEqual([200]);
  clock.pass(7_199_000);
  expect(create(1)).toEqual([`${status} 1`]);
  clock.pass(1_000);
  expect(create(3)).toEqual([201, 201, `${status} 7200`]);
});

describe('a refusal', () => {
  it('comes before the body is read, and takes no token', async () => {
    const clock = handClock();
    const limits: Limits = { everything: { requestsPerSecond: 1, burst: 1 } };
    const { service, create, call } = await standIn({ clock, limits });
    await create();
    let read = 0;
    const refused = await service.handle({
      method: 'POST',
      url: '/flows',
      headers: { authorization: 'Bearer fake-token', 'content-length': '5' },
      body: (async function* () {
        read += 1;
        yield Buffer.from('{}   ');
      })(),
    });
    expect([refused.status, read]).toEqual([429, 0]);
    const { status, json } = await call('POST', '/flows', echo('x'));
    expect([status, json]).toEqual([429, { detail: 'Too many requests' }]);
    clock.pass(1_000);
    await create();
    expect(service.limiter.refused).toEqual({ createFlow: 2 });
  });

  it.each([
    ['seconds', '2'],
    ['date', 'Tue, 01 Jan 2030 00:00:02 GMT'],
    ['none', null],
  ] as const)('reports when to retry: %s', (retryAfter, header) => {
    const limits: Limits = { everything: { requestsPerSecond: 0.5, burst: 1 }, retryAfter };
    const { limiter } = limiterOf(limits);
    expect(limiter.admit('listFlows').headers).toEqual({});
    const headers = header === null ? {} : { 'retry-after': header };
    expect(limiter.admit('listFlows')).toEqual({ isAdmitted: false, status: 429, headers });
  });

  it.each([
    [{ everything: { requestsPerSecond: 3, burst: 1 } }],
    [{ window: { requests: 3, seconds: 7 } }],
    [{ everything: { requestsPerSecond: 0.3, burst: 2 }, window: { requests: 3, seconds: 7 } }],
  ] satisfies [Limits][])('has a correct Retry-After: a request at that time is accepted (%o)', (limits) => {
    const { clock, limiter } = limiterOf(limits);
    clock.pass(1_234);
    for (let times = 0; times < 50; times += 1) {
      const answer = limiter.admit('getFlow');
      if (answer.isAdmitted) continue;
      clock.pass(Number(answer.headers['retry-after']) * 1_000);
      expect(limiter.admit('getFlow').isAdmitted).toBe(true);
    }
  });

  it('can be a 503', () => {
    const { statusesOf } = limiterOf({ everything: { requestsPerSecond: 1, burst: 1 }, status: 503 });
    expect(statusesOf('getFlow', 2)).toEqual([200, 503]);
  });
});

describe('every answer', () => {
  it.each([
    ['RateLimit', 'ratelimit', '20'],
    ['X-RateLimit', 'x-ratelimit', String(Date.parse('2030-01-01T00:00:20Z') / 1_000)],
  ] as const)('can report the remaining requests: %s', async (headers, prefix, reset) => {
    const limits: Limits = { window: { requests: 2, seconds: 20 }, headers };
    const { call } = await standIn({ clock: handClock(), limits });
    const told = async () => {
      const { status, headers } = await call('GET', '/flows');
      return [status, ...['limit', 'remaining', 'reset'].map((name) => headers.get(`${prefix}-${name}`))];
    };
    expect(await told()).toEqual([200, '2', '1', reset]);
    expect(await told()).toEqual([200, '2', '0', reset]);
    expect(await told()).toEqual([429, '2', '0', reset]);
  });

  it('reports the tightest of several limits', () => {
    const { limiter } = limiterOf({
      everything: { requestsPerSecond: 1, burst: 9 },
      others: { requestsPerSecond: 1, burst: 4 },
      headers: 'RateLimit',
    });
    expect(limiter.admit('getFlow').headers).toMatchObject({ 'ratelimit-remaining': '3' });
    expect(limiter.admit('createFlow').headers).toMatchObject({ 'ratelimit-remaining': '7' });
  });
});

it('limits can be lowered while the service runs', () => {
  const { limiter, statusesOf } = limiterOf({});
  expect(statusesOf('getFlow', 3)).toEqual([200, 200, 200]);
  limiter.change({ everything: { requestsPerSecond: 1, burst: 1 } });
  expect(statusesOf('getFlow', 2)).toEqual([200, 429]);
  expect([limiter.acceptedCount, limiter.refusedCount]).toEqual([4, 1]);
});
