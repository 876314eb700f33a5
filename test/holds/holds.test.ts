import { describe, expect, it } from 'vitest';
import type { HoldRequest } from '../../functions/holds/hold-request.ts';
import type { Holds } from '../../functions/holds/holds.ts';
import type { HoldAnswer } from '../../functions/operator/operator.ts';
import type { Route } from '../../functions/uploads/routes.ts';
import { answer, dyingAt, ECHO, HOUR, LEDGER, MINUTE, start, world } from '../support/world.ts';

const HOLDS = 'state/holds.json';

const holds = (): Promise<Holds> => world.json<Holds>(LEDGER, HOLDS);
const hold = (request: HoldRequest): Promise<HoldAnswer> => world.collect({ hold: request }) as Promise<HoldAnswer>;
const flows = (): number => world.service.flows.length;
/** What each upload waits for, in the order of the uploads. */
const reasons = async () =>
  (await world.entries()).map((entry) => (entry.state === 'waiting' ? entry.reason : entry.state));
/** Time passes, a tick runs, and what it sent is delivered. */
async function next(ms = MINUTE): Promise<void> {
  world.clock.advance(ms);
  await world.collect();
  await world.deliverAll();
}
async function sendAll(count: number, prefix = 'f'): Promise<void> {
  for (let n = 0; n < count; n += 1) await world.upload(`${prefix}${n}`, `file ${prefix}${n}`);
  await world.deliverAll();
}

describe('a pause', () => {
  it('of the pipeline keeps new files in the ledger until it is ended', async () => {
    await start();
    expect((await hold({ action: 'pause', why: 'Invoice is not paid.' })).result).toBe('paused');
    await sendAll(2);
    expect(await reasons()).toEqual(['paused', 'paused']);
    expect(await world.entries()).toMatchObject([{ message: 'The pipeline is paused. Invoice is not paid.' }, {}]);
    expect(flows()).toBe(0);
    await next();
    expect(flows()).toBe(0);
    expect((await hold({ action: 'resume' })).result).toBe('resumed');
    await next();
    await next();
    expect(flows()).toBe(2);
    expect((await hold({ action: 'resume' })).result).toBe('not held');
  });

  it('of a route leaves the others alone', async () => {
    const routes: Route[] = [
      { ...ECHO, name: 'a', prefixes: ['a'] },
      { ...ECHO, name: 'b', prefixes: ['b'] },
    ];
    await start({ routes });
    expect((await hold({ action: 'pause', route: 'nope' })).result).toBe('unknown route');
    await hold({ action: 'pause', route: 'a' });
    await sendAll(1, 'a');
    await sendAll(1, 'b');
    expect(world.sentKeys).toEqual(['b0']);
    await hold({ action: 'resume', route: 'a' });
    await next();
    expect(world.sentKeys).toEqual(['b0', 'a0']);
  });

  it('stops files that wait for another reason, and lets one be cancelled', async () => {
    await start();
    world.fault('createFlow', answer({ detail: 'Too many' }, 429));
    await sendAll(2);
    expect(await reasons()).toEqual(['throttled', 'throttled']);
    await hold({ action: 'pause' });
    world.service.intercept = undefined;
    await next(10 * MINUTE);
    // They do not even leave the line.
    expect(await reasons()).toEqual(['throttled', 'throttled']);
    expect(flows()).toBe(0);
    const [entry] = await world.entries();
    expect(await world.collect({ cancel: [entry?.upload.id] })).toMatchObject([{ result: 'cancelled' }]);
    await hold({ action: 'resume' });
    await next();
    await next();
    expect(flows()).toBe(1);
  });
});

describe('a budget', () => {
  const budget = { flows: 2, per: 'day', timezone: 'UTC' } as const;

  it('lets as many flows through as it has room for, and the others on the next day', async () => {
    await start({ settings: { budget } });
    await sendAll(5);
    expect(flows()).toBe(2);
    expect((await reasons()).filter((reason) => reason === 'budget')).toHaveLength(3);
    const held = (await world.entries()).find((entry) => entry.state === 'waiting');
    expect(held).toMatchObject({ attempts: 0, schema: 3 });
    expect(Object(held).message).toBe(
      'The budget of the pipeline has no room: 2 of 2 flows in 2026-01-01 (UTC). The day ends at 2026-01-02T00:00:00Z.',
    );
    await next(HOUR);
    expect(flows()).toBe(2);
    for (let i = 0; i < 5; i += 1) await next(i === 0 ? 24 * HOUR : MINUTE);
    expect(flows()).toBe(4);
    for (let i = 0; i < 5; i += 1) await next(i === 0 ? 24 * HOUR : MINUTE);
    expect(flows()).toBe(5);
  });

  it('counts exactly if many are sent at the same time, and takes one write for several', async () => {
    await start({ settings: { budget: { ...budget, flows: 7 }, uploadConcurrency: 10 } });
    let writes = 0;
    world.beforeS3((call, { Key }) => {
      if (call === 'PutObject' && Key === HOLDS) writes += 1;
    });
    await sendAll(10);
    expect(flows()).toBe(7);
    expect((await holds()).pipeline.spent).toMatchObject({ flows: 7 });
    expect(writes).toBeLessThanOrEqual(7);
  });

  it('lets files through within a minute after the cap was raised', async () => {
    await start({ settings: { budget } });
    await sendAll(4);
    world.redeploy({ budget: { ...budget, flows: 3 } });
    await next();
    await next();
    expect(flows()).toBe(3);
    expect((await holds()).pipeline.spent?.flows).toBe(3);
    world.redeploy({ budget: { ...budget, flows: 1 } });
    await next();
    world.redeploy({ budget: 'unlimited' });
    await next();
    expect(flows()).toBe(4);
  });

  it('costs a tick no request for an upload that it holds', async () => {
    await start({ settings: { budget: { ...budget, flows: 1 } } });
    await sendAll(12);
    await next();
    const calls: string[] = [];
    world.beforeS3((call, { Key = '', Prefix = '' }) => calls.push(`${call} ${Key}${Prefix}`));
    await next(10 * MINUTE);
    expect(calls.filter((call) => /uploads\/|turn\//.test(call)).length).toBeLessThan(4);
    expect(world.queue.counts().visible).toBe(0);
    expect(flows()).toBe(1);
  });

  it('of a route and that of the pipeline must both allow a flow', async () => {
    const routes: Route[] = [
      { ...ECHO, name: 'a', prefixes: ['a'], budget: { ...budget, flows: 1 } },
      { ...ECHO, name: 'b', prefixes: ['b'] },
    ];
    await start({ routes, settings: { budget: { ...budget, flows: 3 } } });
    await sendAll(2, 'a');
    await sendAll(3, 'b');
    expect(world.sentKeys.filter((key) => key.startsWith('a'))).toHaveLength(1);
    expect(world.sentKeys.filter((key) => key.startsWith('b'))).toHaveLength(2);
    const messages = (await world.entries()).flatMap((entry) => ('message' in entry ? [entry.message] : []));
    expect(messages.some((message) => message.startsWith('The budget of the route a has no room: 1 of 1 flows'))).toBe(
      true,
    );
    expect(messages.some((message) => message.startsWith('The budget of the pipeline has no room: 3 of 3'))).toBe(true);
  });

  it('in money counts the prices of the flows', async () => {
    const price = { amount: 0.4, currency: 'EUR' };
    const money = { amount: 1, currency: 'EUR', per: 'month', timezone: 'UTC' } as const;
    await start({ routes: [{ ...ECHO, price, budget: money }] });
    await sendAll(3);
    expect(flows()).toBe(2);
    const held = (await world.entries()).find((entry) => entry.state === 'waiting');
    expect(Object(held).message).toContain('0.8 of 1 EUR in 2026-01 (UTC)');
  });

  it('does not count what the service refused or rejected', async () => {
    await start({ settings: { budget } });
    world.fault('createFlow', answer({ detail: 'No such template' }, 422), 1);
    await sendAll(1, 'rejected');
    world.fault('createFlow', answer({ detail: 'Too many' }, 429));
    await sendAll(1, 'refused');
    world.service.intercept = undefined;
    expect((await holds()).pipeline.spent?.flows).toBe(0);
    expect((await holds()).reservations).toEqual({});
    world.clock.advance(10 * MINUTE);
    await sendAll(2);
    await next();
    expect(flows()).toBe(2);
    expect((await holds()).pipeline.spent?.flows).toBe(2);
  });

  it('counts a flow whose answer was lost once, if it is found or proven absent', async () => {
    await start({ settings: { budget: { ...budget, flows: 10 } } });
    await sendAll(1, 'known');
    world.fault('createFlow', { reset: 'after-effect' }, 2);
    await sendAll(1, 'lost');
    await world.waitOutDoubt();
    expect(flows()).toBeLessThanOrEqual(3);
    expect((await holds()).pipeline.spent?.flows).toBe(2);
  });

  it('gives back what a dead invocation had counted and not sent, within the hour', async () => {
    await start({ settings: { budget: { ...budget, flows: 1 } } });
    world.fault('createFlow', answer({ detail: 'Too many' }, 429));
    // The invocation dies before it can give the flow back.
    const live = dyingAt(world.ports.holds, 'flush');
    await sendAll(1);
    live();
    world.redeploy({});
    world.service.intercept = undefined;
    expect(Object.values((await holds()).reservations)).toHaveLength(1);
    await hold({ action: 'pause' });
    for (let i = 0; i < 4; i += 1) await next(10 * MINUTE);
    expect((await holds()).pipeline.spent?.flows).toBe(0);
    expect((await holds()).reservations).toEqual({});
  });

  it('stops everything while its meter cannot be read, and goes on when it can', async () => {
    await start({ settings: { budget } });
    await world.put(LEDGER, HOLDS, '{"schema": 99}');
    await sendAll(1);
    expect(flows()).toBe(0);
    expect(await reasons()).toEqual(['budget']);
    expect(world.count('HoldsUnreadable')).toBeGreaterThan(0);
    await world.remove(HOLDS, LEDGER);
    await next();
    expect(flows()).toBe(1);
  });

  it('is told by an event at 80 and at 100 percent, once each', async () => {
    await start({ settings: { budget: { ...budget, flows: 5 } } });
    await sendAll(4);
    await next();
    await next();
    await sendAll(1, 'last');
    await next();
    await next();
    const told = world.events
      .filter(({ detailType }) => detailType === 'Budget Reached')
      .map(({ detail }) => JSON.parse(detail));
    expect(told).toMatchObject([
      { pipeline: 'test', percent: 80, spent: { period: '2026-01-01', flows: 4 }, endsAt: '2026-01-02T00:00:00.000Z' },
      { percent: 100, spent: { flows: 5 } },
    ]);
    expect(new Set(told.map(({ id }) => id)).size).toBe(2);
  });
});

describe('a circuit', () => {
  const REJECTION = answer({ detail: 'No template 17 for job 4711' }, 422);
  const ONE_BY_ONE = { uploadConcurrency: 1 };
  const rejectAll = (): void => world.fault('createFlow', REJECTION);
  const circuit = async () => (await holds()).routes.echo?.circuit;

  it('holds a route after twenty equal rejections, and lets no further file through', async () => {
    await start();
    let asked = 0;
    world.service.intercept = (_, { operation }) => {
      if (operation !== 'createFlow') return undefined;
      asked += 1;
      return answer({ detail: `No template ${asked} for "file ${asked}"` }, 422);
    };
    await sendAll(25);
    expect(asked).toBeLessThan(30);
    expect(asked).toBeGreaterThanOrEqual(20);
    const before = asked;
    expect((await reasons()).filter((reason) => reason === 'circuit').length).toBe(25 - asked);
    await next();
    await next();
    expect(asked).toBe(before);
    const held = world.events
      .filter(({ detailType }) => detailType === 'Route Held')
      .map(({ detail }) => JSON.parse(detail));
    expect(held).toMatchObject([{ route: 'echo', code: 'rejected', message: expect.stringContaining('No template') }]);
  });

  it('does not count what says nothing of the route, and begins anew after a success', async () => {
    await start({ routes: [{ ...ECHO, circuit: { after: 3 } }], settings: ONE_BY_ONE });
    rejectAll();
    await sendAll(2, 'a');
    world.service.intercept = undefined;
    await sendAll(1, 'good');
    rejectAll();
    await sendAll(2, 'b');
    world.fault('createFlow', answer({ detail: 'Another reason altogether' }, 422));
    await sendAll(1, 'c');
    rejectAll();
    await sendAll(2, 'd');
    expect(await circuit()).toBeUndefined();
    await sendAll(1, 'e');
    expect(await circuit()).toMatchObject({ code: 'rejected' });
  });

  it('needs rejections of different files', async () => {
    await start({ routes: [{ ...ECHO, circuit: { after: 3 } }], settings: ONE_BY_ONE });
    rejectAll();
    await sendAll(1);
    for (let i = 0; i < 4; i += 1) {
      await world.retry();
      await world.deliverAll();
    }
    expect(await circuit()).toBeUndefined();
  });

  it('does not heed the canary, which is the same file every hour', async () => {
    const settings = { ...ONE_BY_ONE, canaryKey: 'canary.txt' };
    await start({ routes: [{ ...ECHO, circuit: { after: 2 } }], settings });
    const sendCanary = () => world.send('canary.txt', String(world.clock.now()));
    rejectAll();
    await sendAll(1, 'a');
    world.service.intercept = undefined;
    await sendCanary();
    rejectAll();
    for (let i = 0; i < 3; i += 1) await sendCanary();
    expect(await circuit()).toBeUndefined();
    await sendAll(1, 'b');
    expect(await circuit()).toMatchObject({ code: 'rejected' });
    // It may be the probe, and then it counts.
    await sendCanary();
    world.service.intercept = undefined;
    await hold({ action: 'probe', route: 'echo' });
    for (let i = 0; i < 3; i += 1) await next();
    expect(await circuit()).toBeUndefined();
  });

  it('lets one more file through if the operator asks for it while a probe is under way', async () => {
    await start({ routes: [{ ...ECHO, circuit: { after: 3 }, template: 'always_fails' }], settings: ONE_BY_ONE });
    rejectAll();
    await sendAll(8);
    const tried = async () => (await reasons()).filter((reason) => reason !== 'circuit').length;
    const before = await tried();
    world.fault('createFlow', answer({ detail: 'No room' }, 503));
    await hold({ action: 'probe', route: 'echo' });
    await next();
    expect(await circuit()).toMatchObject({ probe: expect.anything() });
    await hold({ action: 'probe', route: 'echo' });
    rejectAll();
    for (let i = 0; i < 30; i += 1) await next();
    expect(await tried()).toBe(before + 2);
  });

  it('keeps its probe in the line while a budget has no room', async () => {
    const route = { ...ECHO, circuit: { after: 2 }, budget: { flows: 1, per: 'day', timezone: 'UTC' } } as const;
    await start({ routes: [route], settings: ONE_BY_ONE });
    await sendAll(1, 'good');
    rejectAll();
    world.redeploy({ routes: [{ ...route, budget: { ...route.budget, flows: 9 } }] });
    await sendAll(4);
    world.service.intercept = undefined;
    world.redeploy({ routes: [route] });
    for (let i = 0; i < 3; i += 1) await next();
    await hold({ action: 'probe', route: 'echo' });
    const entries = await world.entries();
    for (let i = 0; i < 3; i += 1) await next();
    expect(await world.entries()).toEqual(entries);
    await next(24 * HOUR);
    await next();
    expect(await circuit()).toBeUndefined();
  });

  it('is off for a route that says so', async () => {
    await start({ routes: [{ ...ECHO, circuit: false }] });
    rejectAll();
    await sendAll(25);
    expect((await reasons()).every((reason) => reason === 'failed')).toBe(true);
  });

  it('opens when a probe that the operator allowed succeeds, and the others go on', async () => {
    await start({ routes: [{ ...ECHO, circuit: { after: 3 } }], settings: ONE_BY_ONE });
    rejectAll();
    await sendAll(6);
    const waiting = (await reasons()).filter((reason) => reason === 'circuit').length;
    expect((await hold({ action: 'probe', route: 'echo' })).result).toBe('probe allowed');
    await next();
    // The same rejection: held again, and only one was tried.
    expect((await reasons()).filter((reason) => reason === 'circuit').length).toBe(waiting - 1);
    await next();
    expect((await reasons()).filter((reason) => reason === 'circuit').length).toBe(waiting - 1);
    world.service.intercept = undefined;
    await hold({ action: 'probe', route: 'echo' });
    await next();
    expect(await circuit()).toBeUndefined();
    for (let i = 0; i < 4; i += 1) await next();
    expect(await reasons()).not.toContain('circuit');
    expect(flows()).toBe(waiting - 1);
  });

  it('lets one file through, with the new route, when a deployment changes the route', async () => {
    const route = { ...ECHO, circuit: { after: 3 } };
    await start({ routes: [{ ...route, template: 'misspelt' }], settings: ONE_BY_ONE });
    await sendAll(6);
    expect(await circuit()).toBeDefined();
    world.redeploy({ routes: [{ ...route, template: 'misspelt again' }] });
    for (let i = 0; i < 3; i += 1) await next();
    const held = (await reasons()).filter((reason) => reason === 'circuit').length;
    expect(await circuit()).toBeDefined();
    world.redeploy({ routes: [route] });
    for (let i = 0; i < 6; i += 1) await next();
    expect(await circuit()).toBeUndefined();
    expect(flows()).toBe(held);
    expect(world.service.flows.every(({ template }) => template === 'bytes_echo')).toBe(true);
  });

  it('opens although the invocation of the probe died before it noted the success', async () => {
    await start({ routes: [{ ...ECHO, circuit: { after: 3 } }], settings: ONE_BY_ONE });
    rejectAll();
    await sendAll(5);
    world.service.intercept = undefined;
    await hold({ action: 'probe', route: 'echo' });
    world.clock.advance(MINUTE);
    await world.collect();
    let changes = 0;
    world.beforeS3((call, { Key }) => {
      if (call === 'PutObject' && Key === HOLDS && ++changes === 2) throw new Error('killed');
    });
    await world.deliverAll();
    expect(flows()).toBe(1);
    expect(await circuit()).toBeDefined();
    for (let i = 0; i < 4; i += 1) await next();
    expect(await circuit()).toBeUndefined();
    expect(await reasons()).not.toContain('circuit');
  });

  it('lets another file through if the probe was cancelled', async () => {
    const route = { ...ECHO, circuit: { after: 3 } };
    await start({ routes: [{ ...route, template: 'misspelt' }], settings: ONE_BY_ONE });
    await sendAll(6);
    world.fault('createFlow', answer({ detail: 'Later' }, 503));
    world.redeploy({ routes: [route] });
    for (let i = 0; i < 3; i += 1) await next();
    const probe = (await circuit())?.probe?.split('.')[0];
    expect(await world.collect({ cancel: [probe] })).toMatchObject([{ result: 'cancelled' }]);
    world.service.intercept = undefined;
    for (let i = 0; i < 6; i += 1) await next();
    expect(await circuit()).toBeUndefined();
    expect(await reasons()).not.toContain('circuit');
  });

  it('lets another file through if the probe waits in the line', async () => {
    const route = { ...ECHO, circuit: { after: 3 } };
    await start({ routes: [{ ...route, template: 'misspelt' }], settings: ONE_BY_ONE });
    await sendAll(6);
    world.redeploy({ routes: [route] });
    world.fault('createFlow', answer({ detail: 'Too many' }, 429));
    for (let i = 0; i < 2; i += 1) await next();
    expect(await circuit()).toMatchObject({ probe: expect.anything() });
    world.clock.advance(6 * MINUTE);
    await world.collect();
    expect(await circuit()).toMatchObject({ isProbeAllowed: true });
    expect(await circuit()).not.toHaveProperty('probe');
    world.service.intercept = undefined;
    for (let i = 0; i < 6; i += 1) await next();
    expect(await circuit()).toBeUndefined();
  });

  it('lets another file through if the probe is in doubt and then waits in the line, because of a pause', async () => {
    const route = { ...ECHO, circuit: { after: 3 } };
    await start({ routes: [{ ...route, template: 'misspelt' }], settings: { ...ONE_BY_ONE, flowListing: 'none' } });
    await sendAll(6);
    world.redeploy({ routes: [route], flowListing: 'none' });
    world.fault('createFlow', answer({ detail: 'Bad gateway' }, 502));
    for (let i = 0; i < 2; i += 1) await next();
    world.service.intercept = undefined;
    expect(await circuit()).toMatchObject({ probe: expect.anything() });
    await hold({ action: 'pause', route: 'echo' });
    for (let i = 0; i < 6; i += 1) await next(20 * MINUTE);
    expect(new Set(await reasons())).toEqual(new Set(['failed', 'circuit', 'paused']));
    await hold({ action: 'resume', route: 'echo' });
    for (let i = 0; i < 8; i += 1) await next(20 * MINUTE);
    expect(await circuit()).toBeUndefined();
    expect(new Set(await reasons())).toEqual(new Set(['failed', 'succeeded']));
  });

  it('never lets a file through as its probe that was made for the rejected route', async () => {
    const route: Route = { ...ECHO, circuit: { after: 3 }, overrides: true };
    await start({ routes: [{ ...route, template: 'misspelt' }], settings: ONE_BY_ONE });
    await sendAll(6);
    // A retry with parameters of its own.
    const failed = (await world.entries()).find(({ state }) => state === 'failed')?.upload.id ?? '';
    await world.collect({ retry: [failed], parameters: { copies: 3 } });
    await world.deliverAll();
    expect((await reasons()).filter((reason) => reason === 'circuit')).toHaveLength(4);
    world.redeploy({ routes: [route] });
    for (let i = 0; i < 8; i += 1) await next();
    expect(await circuit()).toBeUndefined();
    expect(await reasons()).not.toContain('circuit');
    expect(world.service.flows.every(({ template }) => template === 'bytes_echo')).toBe(true);
    expect(world.service.flows.filter(({ parameters }) => Object(parameters).copies === 3)).toHaveLength(1);
  });

  it('lets a file in doubt through after a deployment, although it says nothing of the new route', async () => {
    const route = { ...ECHO, circuit: { after: 3 } };
    const settings = { ...ONE_BY_ONE, flowListing: 'none' } as const;
    await start({ routes: [{ ...route, template: 'misspelt' }], settings });
    world.fault('createFlow', { reset: 'after-effect' }, 1);
    await sendAll(1, 'lost');
    await sendAll(3);
    await world.waitOutDoubt();
    expect((await reasons()).sort()).toEqual(['circuit', 'failed', 'failed', 'failed']);
    world.redeploy({ routes: [route], ...settings });
    for (let i = 0; i < 3; i += 1) await next(20 * MINUTE);
    expect(await reasons()).not.toContain('circuit');
    expect(await circuit()).toMatchObject({ isProbeAllowed: true });
    await sendAll(1, 'new');
    expect(await circuit()).toBeUndefined();
  });
});

describe('what flows cost', () => {
  const routes: Route[] = [{ ...ECHO, price: { amount: 0.4, currency: 'EUR' } }];
  const totals = async () => Object.values((await holds()).costs);

  it('is counted by route and prefix, and moves away when the day has ended', async () => {
    await start({ routes });
    await sendAll(2, 'anna/');
    await sendAll(1, 'b');
    const day = {
      '["echo","anna/","EUR"]': { flows: 2, micros: 800_000 },
      '["echo","","EUR"]': { flows: 1, micros: 400_000 },
    };
    expect((await holds()).costs).toEqual({ '2026-01-01': day });
    await next(25 * HOUR);
    expect((await holds()).costs).toEqual({ '2026-01-01': day });
    await next(24 * HOUR);
    expect((await holds()).costs).toEqual({});
    expect(await world.json(LEDGER, 'state/costs/2026-01-01.json')).toEqual(day);
  });

  it('does not count what was not made, and tells what may have been paid twice', async () => {
    await start({ routes, settings: { flowListing: 'none' } });
    world.fault('createFlow', answer({ detail: 'No' }, 422), 1);
    await sendAll(1, 'rejected');
    expect(await totals()).toEqual([{ '["echo","","EUR"]': { flows: 0, micros: 0 } }]);
    world.fault('createFlow', { reset: 'after-effect' }, 2);
    await sendAll(1, 'lost');
    await world.waitOutDoubt();
    expect(await totals()).toEqual([{ '["echo","","EUR"]': { flows: 2, micros: 800_000, again: 1 } }]);
  });

  it('is counted for at most 500 prefixes of a day, and for all others together', async () => {
    await start({ routes, settings: { uploadConcurrency: 16 } });
    const costs: Holds['costs'] = { '2026-01-01': {} };
    for (let n = 0; n < 500; n += 1)
      Object(costs['2026-01-01'])[JSON.stringify(['echo', `${n}/`, 'EUR'])] = { flows: 1, micros: 1 };
    const state = { schema: 1, pipeline: {}, routes: {}, reservations: {}, costs };
    await world.put(LEDGER, HOLDS, JSON.stringify(state));
    await sendAll(2, 'one more/');
    await sendAll(1, '7/');
    const day = Object((await holds()).costs['2026-01-01']);
    expect(Object.keys(day)).toHaveLength(501);
    expect(day['["echo","…","EUR"]']).toEqual({ flows: 2, micros: 800_000 });
    expect(day['["echo","7/","EUR"]']).toEqual({ flows: 2, micros: 400_001 });
  });
});

it('the price of a flow is in its entry, its receipt and its event, and that of no flow in none', async () => {
  const price = { amount: 0.4, currency: 'EUR' };
  await start({ routes: [{ ...ECHO, price, overrides: true }] });
  await sendAll(1, 'good');
  world.fault('createFlow', answer({ detail: 'No such template' }, 422));
  await sendAll(1, 'bad');
  world.service.intercept = undefined;
  await next();
  expect((await world.entries()).map(({ route }) => route.price)).toEqual([price, price]);
  const told = world.events.map(({ detail }) => JSON.parse(detail));
  expect(told.find(({ upload }) => upload.key === 'good0')).toMatchObject({ status: 'succeeded', price });
  expect(told.find(({ upload }) => upload.key === 'bad0')).not.toHaveProperty('price');
});
