import { describe, expect, it } from 'vitest';
import type { HoldRequest } from '../../functions/holds/hold-request.ts';
import { type Holds, NO_HOLDS } from '../../functions/holds/holds.ts';
import type { HoldAnswer } from '../../functions/operator/operator.ts';
import type { Route } from '../../functions/uploads/route.ts';
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

  it.each(['__proto__', 'constructor', 'toString'])(
    'of a route %s that is not there touches nothing',
    async (route) => {
      await start();
      for (const action of ['pause', 'resume'] as const) {
        expect((await hold({ action, route })).result).toBe('unknown route');
      }
      await sendAll(1);
      expect(flows()).toBe(1);
      // As if the route had been there.
      const routes = `{"${route}": {"paused": {"since": 1}}}`;
      await world.put(LEDGER, HOLDS, JSON.stringify(NO_HOLDS).replace('"routes":{}', `"routes":${routes}`));
      await next();
      await sendAll(1, 'g');
      expect(flows()).toBe(2);
      expect(Object.keys((await holds()).routes).sort()).toEqual([route, 'echo'].sort());
      expect((await hold({ action: 'resume', route })).result).toBe('resumed');
    },
  );

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
    expect(held).toMatchObject({ attempts: 0 });
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

  it('is one budget everywhere after its period was changed and changed back', async () => {
    const week = { flows: 3, per: 'week', timezone: 'UTC' } as const;
    await start({ settings: { budget: week } });
    await sendAll(3);
    for (let day = 0; day < 3; day += 1) {
      world.redeploy({ budget: { flows: 1, per: 'day', timezone: 'UTC' } });
      await sendAll(5, `day${day}-`);
      await next(day < 2 ? 24 * HOUR : MINUTE);
    }
    expect(flows()).toBe(6);
    world.redeploy({ budget: week });
    let resubmitted = 0;
    for (let n = 0; n < 10; n += 1) {
      world.clock.advance(MINUTE);
      resubmitted += Object(await world.collect()).resubmitted;
      await world.deliverAll();
    }
    // It has no room, so nothing leaves the line, and nothing is told again.
    expect(resubmitted).toBe(0);
    expect(flows()).toBe(6);
    const told = world.events.filter(({ detail }) => detail.includes('week of'));
    expect(told).toHaveLength(1);
    // Next week it has.
    await next(7 * 24 * HOUR);
    await next();
    expect(flows()).toBe(9);
  });

  it('of a route that is removed for days and comes back is the same', async () => {
    const two: Route = { ...ECHO, name: 'two', suffixes: ['.two'] };
    const week = { flows: 1, per: 'week', timezone: 'UTC' } as const;
    await start({ routes: [{ ...two, budget: week }, ECHO] });
    await world.send('1.two');
    world.redeploy({ routes: [{ ...two, budget: { ...week, per: 'day' } }, ECHO] });
    await next(24 * HOUR);
    await world.send('2.two');
    world.redeploy({ routes: [ECHO] });
    await next();
    world.redeploy({ routes: [{ ...two, budget: week }, ECHO] });
    await world.send('3.two');
    expect(flows()).toBe(2);
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
    expect(Object(held).message).toContain('0.80 of 1.00 EUR in 2026-01 (UTC)');
  });

  it('does not count what the service refused or rejected', async () => {
    await start({ settings: { budget } });
    world.fault('createFlow', answer({ detail: 'No such template' }, 422), 1);
    await sendAll(1, 'rejected');
    world.fault('createFlow', answer({ detail: 'Too many' }, 429));
    await sendAll(1, 'refused');
    world.service.intercept = undefined;
    expect((await holds()).pipeline.spent?.flows).toBe(0);
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

  it('has room for one flow less in its period, if an invocation dies that had counted one and not sent it', async () => {
    await start({ settings: { budget: { ...budget, flows: 2 } } });
    world.fault('createFlow', answer({ detail: 'Too many' }, 429));
    // The invocation dies before it can uncount the flow.
    const live = dyingAt(world.ports.holds, 'flush');
    await sendAll(1);
    live();
    world.redeploy({});
    world.service.intercept = undefined;
    expect((await holds()).pipeline.spent?.flows).toBe(1);
    await sendAll(1, 'other');
    for (let i = 0; i < 4; i += 1) await next(10 * MINUTE);
    expect(flows()).toBe(1);
    await next(24 * HOUR);
    await world.settle();
    expect(flows()).toBe(2);
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

  it('is told again at its shares after its cap was raised, by events with other ids', async () => {
    await start({ settings: { budget: { ...budget, flows: 5 } } });
    await sendAll(5);
    await next();
    world.redeploy({ budget: { ...budget, flows: 10 } });
    await sendAll(2, 'more');
    await next();
    await sendAll(1, 'eighth');
    await next();
    await next();
    await sendAll(2, 'last');
    await next();
    const told = world.events
      .filter(({ detailType }) => detailType === 'Budget Reached')
      .map(({ detail }) => JSON.parse(detail));
    expect(told.map(({ percent, spent }) => [percent, spent.flows])).toEqual([
      [100, 5],
      [80, 8],
      [100, 10],
    ]);
    expect(new Set(told.map(({ id }) => id)).size).toBe(3);
  });

  it.each([
    [1, 0.4, 0.8],
    [0.3, 0.4, 0],
  ])('of %f EUR is told as spent if what is left pays for no flow of %f', async (amount, price, spent) => {
    const cap = { amount, currency: 'EUR', per: 'day', timezone: 'UTC' } as const;
    await start({ settings: { budget: cap }, routes: [{ ...ECHO, price: { amount: price, currency: 'EUR' } }] });
    await sendAll(4);
    await next();
    expect(await reasons()).toContain('budget');
    const told = world.events.filter(({ detailType }) => detailType === 'Budget Reached');
    expect(told.map(({ detail }) => JSON.parse(detail))).toMatchObject([{ percent: 100, spent: { amount: spent } }]);
  });
});

describe('failures alike', () => {
  const ONE_BY_ONE = { uploadConcurrency: 1 };
  const SAYS_NO = answer({ detail: 'The input is no image' }, 422);
  const rejectAll = (): void => world.fault('createFlow', SAYS_NO);
  const failing = async () => (await holds()).routes.echo?.failing;
  const told = () =>
    world.events.filter(({ detailType }) => detailType === 'Failures Alike').map(({ detail }) => JSON.parse(detail));
  const count = async (reason: string) => (await reasons()).filter((each) => each === reason).length;
  const retryAll = async (): Promise<void> => {
    const ids = (await world.entries()).flatMap(({ state, upload }) => (state === 'failed' ? [upload.id] : []));
    await world.collect({ retry: ids });
    await next();
  };

  it('of one customer hold no file of another one, and are told by one event', async () => {
    await start({ settings: ONE_BY_ONE });
    rejectAll();
    await sendAll(30, 'alice/');
    world.service.intercept = undefined;
    await sendAll(5, 'bob/');
    expect(await count('failed')).toBe(30);
    expect(flows()).toBe(5);
    // Bob's files were taken by the service, so the route does not fail any more. The event is not sent.
    await next();
    expect(told()).toEqual([]);
    rejectAll();
    await sendAll(30, 'alice/again');
    await next();
    await next();
    expect(world.count('RoutesFailing')).toBe(2);
    const where = { id: expect.any(String), pipeline: 'test', route: 'echo', since: expect.any(String) };
    const said = { code: 'rejected', message: expect.stringContaining('The input is no image') };
    expect(told()).toEqual([
      {
        ...{ ...where, ...said, customers: ['alice/'], moreCustomers: 0 },
        pause: 'flowdrop pause --route echo --function test-collect-outputs',
      },
    ]);
    await sendAll(25, 'carol/');
    await next();
    expect(told()).toHaveLength(1);
    expect(await count('failed')).toBe(85);
  });

  it('are twenty, whatever fails otherwise in between, and begin anew after a success', async () => {
    await start({ settings: ONE_BY_ONE });
    rejectAll();
    await sendAll(19, 'a');
    world.service.intercept = undefined;
    await sendAll(1, 'good');
    rejectAll();
    await sendAll(19, 'b');
    world.fault('createFlow', answer({ detail: 'Another reason altogether' }, 422));
    await sendAll(19, 'c');
    expect(await failing()).toBeUndefined();
    rejectAll();
    await sendAll(1, 'd');
    expect(await failing()).toMatchObject({ message: 'create: 422: The input is no image' });
  });

  it('have the same words apart from ids, numbers and names', async () => {
    await start({ settings: ONE_BY_ONE });
    let asked = 0;
    world.service.intercept = (_, { operation }) => {
      if (operation !== 'createFlow') return undefined;
      asked += 1;
      return answer({ detail: `No template ${asked} for "file ${asked}"` }, 422);
    };
    await sendAll(20);
    expect(await failing()).toMatchObject({ message: expect.stringContaining('No template 1 for') });
  });

  it('are about ten files at least, whatever their versions and generations', async () => {
    await start({ settings: ONE_BY_ONE });
    rejectAll();
    await sendAll(9);
    for (let n = 0; n < 3; n += 1) await retryAll();
    expect((await holds()).routes.echo?.alike?.map(({ ends }) => ends.length)).toEqual([20]);
    expect(await failing()).toBeUndefined();
    await sendAll(9);
    expect(await failing()).toBeUndefined();
    await sendAll(1, 'tenth');
    expect(await failing()).toBeDefined();
  });

  it('name five customers at most, and files in no folder', async () => {
    await start({ settings: ONE_BY_ONE });
    rejectAll();
    await sendAll(6, 'x');
    for (let n = 0; n < 7; n += 1) await sendAll(2, `customer-${n}/`);
    await next();
    const customers = ['', 'customer-0/', 'customer-1/', 'customer-2/', 'customer-3/'];
    expect(told()).toMatchObject([{ customers, moreCustomers: 3 }]);
  });

  it('do not heed the canary, which is the same file every hour', async () => {
    await start({ settings: { ...ONE_BY_ONE, canaryKey: 'canary.txt' } });
    rejectAll();
    await sendAll(19, 'a');
    world.service.intercept = undefined;
    await world.send('canary.txt', 'good');
    rejectAll();
    for (let n = 0; n < 3; n += 1) await world.send('canary.txt', `${n}`);
    expect(await failing()).toBeUndefined();
    await sendAll(1, 'b');
    expect(await failing()).toBeDefined();
  });

  it('of flows end with the success of a flow, and not with its beginning', async () => {
    await start({ routes: [{ ...ECHO, parameters: { fail: true }, overrides: true }], settings: ONE_BY_ONE });
    await sendAll(20);
    for (let n = 0; n < 4; n += 1) await next();
    expect(await failing()).toMatchObject({ code: 'flow-failed' });
    await world.send('good', 'good', { Metadata: { 'flow-parameters': '{}' } });
    expect(flows()).toBe(21);
    expect(await failing()).toBeDefined();
    for (let n = 0; n < 4; n += 1) await next();
    expect(await failing()).toBeUndefined();
  });

  it('stop what was submitted in bulk, apart from one file an hour, and a success lets it go on', async () => {
    await start({ settings: ONE_BY_ONE });
    rejectAll();
    await sendAll(40, 'alice/');
    await retryAll();
    for (let n = 0; n < 5; n += 1) await next();
    // Not one of them was sent, and they do not even leave the line.
    expect(await count('retried')).toBe(40);
    await sendAll(3, 'live');
    expect(await count('failed')).toBe(3);
    for (let hour = 1; hour <= 3; hour += 1) {
      await next(HOUR);
      for (let n = 0; n < 3; n += 1) await next();
      expect(await count('failed')).toBe(3 + hour);
    }
    world.service.intercept = undefined;
    await sendAll(1, 'good');
    expect(await failing()).toBeUndefined();
    for (let n = 0; n < 40; n += 1) await next();
    expect(flows()).toBe(1 + 37);
  });

  it('hold a file of a bulk that was on its way, and it takes the route of the time in which it is sent', async () => {
    const route: Route = { ...ECHO, template: 'misspelt' };
    await start({ routes: [route], settings: ONE_BY_ONE });
    await sendAll(40);
    const ids = (await world.entries()).map(({ upload }) => upload.id);
    await hold({ action: 'resume', route: 'echo' });
    await world.collect({ retry: ids });
    for (let n = 0; n < 20; n += 1) await next();
    expect(await failing()).toBeDefined();
    expect(await count('failing')).toBeGreaterThan(0);
    expect(
      (await world.entries()).find((entry) => entry.state === 'waiting' && entry.reason === 'failing'),
    ).toMatchObject({
      late: true,
      message: expect.stringMatching(/^The last files of the route echo failed alike, so/),
    });
    world.redeploy({ routes: [ECHO] });
    expect(await hold({ action: 'resume', route: 'echo' })).toMatchObject({ result: 'resumed' });
    expect(await hold({ action: 'resume', route: 'echo' })).toMatchObject({ result: 'not held' });
    for (let n = 0; n < 40; n += 1) await next();
    expect(await count('failing')).toBe(0);
    expect(flows()).toBeGreaterThan(0);
    expect(world.service.flows.every(({ template }) => template === 'bytes_echo')).toBe(true);
  });

  it('stop a backfill too', async () => {
    await start({ settings: ONE_BY_ONE });
    rejectAll();
    await sendAll(20, 'live');
    for (let n = 0; n < 15; n += 1) await world.upload(`old/${n}`);
    while (world.takeMessages().length > 0);
    world.clock.advance(30 * MINUTE);
    await world.sweep({ since: '2025-01-01' });
    await world.deliverAll();
    expect(await count('failing')).toBe(15);
    world.service.intercept = undefined;
    await next(HOUR);
    for (let n = 0; n < 10; n += 1) await next();
    expect(flows()).toBe(15);
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

  it('is counted for a customer of any name, who waits and goes on like others', async () => {
    const names = ['__proto__', 'constructor', 'toString'];
    await start({ routes, settings: { uploadConcurrency: 1 } });
    await hold({ action: 'pause' });
    for (const name of names) await sendAll(1, `${name}/`);
    await hold({ action: 'resume' });
    for (let n = 0; n < 6; n += 1) await next();
    expect(flows()).toBe(3);
    const day = Object((await holds()).costs['2026-01-01']);
    expect(Object.keys(day).sort()).toEqual(names.map((name) => `["echo","${name}/","EUR"]`).sort());
  });

  it('does not count what was not made, and tells what may have been paid twice', async () => {
    await start({ routes, speaks: { list: null } });
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
    const state = { schema: 6, pipeline: {}, routes: {}, changes: [], costs };
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
