import { describe, expect, it } from 'vitest';
import type { Entry } from '../../functions/ledger/entry.ts';
import type { Route } from '../../functions/uploads/route.ts';
import { answer, ECHO, HOUR, MINUTE, start, world } from '../support/world.ts';

// An upload that certainly has no flow takes the configuration of the moment in which it is sent, whatever it waited
// for. What it has pinned stays pinned. An upload in doubt keeps its route.

const PAUSE = { action: 'pause', route: 'echo' } as const;
const RESUME = { action: 'resume', route: 'echo' } as const;
const ONE: Route = { ...ECHO, parameters: { copies: 1 } };
const TWO: Route = { ...ECHO, parameters: { copies: 2 } };
const DAILY = { per: 'day', timezone: 'UTC' } as const;

async function next(times = 1, ms = MINUTE): Promise<void> {
  for (let time = 0; time < times; time += 1) {
    world.clock.advance(ms);
    await world.collect();
    await world.deliverAll();
  }
}

const entryOf = async (key: string): Promise<Entry> =>
  (await world.entries()).find(({ upload }) => upload.key === key) as Entry;

const holds = (): Promise<{ routes: Record<string, { spent?: { flows: number } }>; pipeline: { spent?: object } }> =>
  world.json('ledger', 'state/holds.json');

const sent = () => world.service.flows.map(({ parameters }) => parameters);

describe('the route of an upload that waited', () => {
  it('for a pause is the one that is configured when it is sent', async () => {
    await start({ routes: [ONE] });
    await world.collect({ hold: PAUSE });
    await world.send('a.txt', 'hello');
    world.redeploy({ routes: [TWO] });
    await next();
    await world.collect({ hold: RESUME });
    await next(2);
    expect(sent()).toEqual([{ copies: 2 }]);
    expect((await world.settled('a.txt')).status).toBe('succeeded');
    expect(await world.entry()).toMatchObject({ route: { parameters: { copies: 2 } } });
  });

  it('for a budget is the one that is configured when it is sent', async () => {
    await start({ routes: [ONE], settings: { budget: { ...DAILY, flows: 0 } } });
    await world.send('a.txt', 'hello');
    world.redeploy({ routes: [TWO], budget: { ...DAILY, flows: 1 } });
    await next(2);
    expect(sent()).toEqual([{ copies: 2 }]);
  });

  it.each([
    ['its turn', 429],
    ['a permission', 403],
    ['the service', 503],
    ['a token', 401],
  ])('for %s is the one that is configured when it is sent', async (_, status) => {
    await start({ routes: [ONE] });
    // The service says that it has made nothing, or the connection ended before it had the file.
    world.fault(
      'createFlow',
      status === 503 ? { status, headers: { 'retry-after': '60' } } : answer({ detail: 'No' }, status),
    );
    await world.send('a.txt', 'hello');
    world.redeploy({ routes: [TWO] });
    world.service.intercept = undefined;
    expect(await world.entry()).toMatchObject({ state: 'waiting', route: { parameters: { copies: 1 } } });
    await next(8, 20 * MINUTE);
    expect(sent()).toEqual([{ copies: 2 }]);
  });

  it.each([
    ['its own as long as its flow may exist', { listFlows: 404 }, 1],
    ['the present one once it is proven that it has no flow', {}, 2],
  ] as const)('in doubt is %s', async (_, variation, copies) => {
    await start({ routes: [ONE], service: { variation } });
    world.fault('createFlow', { status: 500 }, 1);
    await world.upload('a.txt', 'hello');
    await world.deliverAll();
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'in-doubt' });
    world.redeploy({ routes: [TWO] });
    await next(8, 20 * MINUTE);
    expect(sent()).toEqual([{ copies }]);
  });

  it('keeps the parameters that the operator gave for its retry, beside the rest of the present route', async () => {
    const open: Route = { ...ONE, overrides: true };
    await start({ routes: [open] });
    world.fault('createFlow', answer({ detail: 'No' }, 422), 1);
    await world.send('a.txt', 'hello');
    await world.collect({ hold: PAUSE });
    await world.retry({ parameters: { copies: 3 } });
    await next(2);
    expect(await world.entry()).toMatchObject({ reason: 'paused', route: { parameters: { copies: 3 } } });
    world.redeploy({ routes: [{ ...open, additional: { order: 7 } }] });
    await world.collect({ hold: RESUME });
    await next(2);
    expect(world.service.flows).toMatchObject([{ parameters: { copies: 3 }, additional: { order: 7 } }]);
  });

  it('costs no write if the configuration is the same', async () => {
    await start({ routes: [ONE] });
    await world.collect({ hold: PAUSE });
    await world.send('a.txt', 'hello');
    await world.collect({ hold: RESUME });
    await world.collect();
    const puts: string[] = [];
    world.beforeS3((call, { Key }) => {
      if (call === 'PutObject' && Key?.startsWith('uploads/')) puts.push(Key);
    });
    await world.deliverAll();
    expect(sent()).toEqual([{ copies: 1 }]);
    // The claim, and the flow.
    expect(puts).toHaveLength(2);
  });
});

describe('a route that is renamed or removed', () => {
  it('gives what its budget holds to the budget of the new name', async () => {
    const route: Route = { ...ECHO, name: 'pictures', budget: { ...DAILY, flows: 2 } };
    await start({ routes: [route] });
    for (let n = 0; n < 12; n += 1) await world.upload(`f${n}`, `file ${n}`);
    await world.deliverAll();
    expect(world.service.flows).toHaveLength(2);
    world.redeploy({ routes: [{ ...route, name: 'photos' }] });
    await next(10);
    expect(world.service.flows).toHaveLength(4);
    expect((await holds()).routes.photos?.spent?.flows).toBe(2);
    const waiting = (await world.entries()).filter(({ state }) => state === 'waiting');
    expect(waiting.map(({ route }) => route.name)).toEqual(Array.from({ length: 8 }, () => 'photos'));
  });

  it('ends what no other route takes, with a receipt, and sends nothing', async () => {
    const price = { amount: 1, currency: 'EUR' };
    const a: Route = { ...ECHO, name: 'a', price };
    const b: Route = { ...ECHO, name: 'b', price, prefixes: ['b'] };
    await start({ routes: [a], settings: { budget: { ...DAILY, amount: 2, currency: 'EUR' } } });
    for (let n = 0; n < 6; n += 1) await world.upload(`f${n}`, `file ${n}`);
    await world.deliverAll();
    expect(world.service.flows).toHaveLength(2);
    world.redeploy({ routes: [b] });
    await next(3, 24 * HOUR);
    expect(world.service.flows).toHaveLength(2);
    for (const entry of (await world.entries()).filter(({ flow }: { flow?: unknown } & Entry) => flow === undefined)) {
      expect(entry).toMatchObject({ state: 'failed', failure: { code: 'unrouted' } });
      expect(await world.receipt(entry.upload.key)).toMatchObject({ status: 'failed', failure: { code: 'unrouted' } });
    }
  });

  it('counts the price of an upload in doubt, which is sent with it', async () => {
    const a: Route = { ...ECHO, name: 'a', price: { amount: 1, currency: 'EUR' } };
    const b: Route = { ...ECHO, name: 'b', price: { amount: 1, currency: 'EUR' }, prefixes: ['b'] };
    const budget = { ...DAILY, amount: 3, currency: 'EUR' } as const;
    await start({ routes: [a], settings: { budget }, service: { variation: { listFlows: 404 } } });
    world.fault('createFlow', { status: 500 }, 1);
    await world.upload('f', 'file');
    await world.deliverAll();
    world.redeploy({ routes: [b] });
    await next(4, 20 * MINUTE);
    expect(world.service.flows).toHaveLength(1);
    // Both attempts may have made a flow.
    expect((await holds()).pipeline.spent).toMatchObject({ micros: 2_000_000 });
  });
});

describe('a route that stays, and has no room', () => {
  const OPEN: Route = { ...ECHO, name: 'open', parameters: { copies: 2 } };

  it.each<[string, Partial<Route>, string]>([
    ['a prefix', { prefixes: ['in/'] }, 'in/a.txt'],
    ['a suffix', { suffixes: ['.txt', '.md'] }, 'a.txt'],
    ['a media type', { mediaTypes: ['text/*'] }, 'a.txt'],
    ['a prefix of jobs', { jobs: 'in/' }, 'in/1/job.json'],
  ])('gives what its pause holds to the route that takes it now: %s has moved', async (_, condition, key) => {
    const old: Route = { ...ECHO, ...condition };
    await start({ routes: [old] });
    await world.collect({ hold: PAUSE });
    await world.upload('in/1/a.png', 'a picture');
    await world.upload(key, condition.jobs ? JSON.stringify({ inputs: ['a.png'] }) : 'hello');
    await world.deliverAll();
    await next(2);
    expect(await entryOf(key)).toMatchObject({ state: 'waiting', reason: 'paused', route: { name: 'echo' } });
    const elsewhere = { prefixes: ['elsewhere/'], ...(condition.jobs && { prefixes: undefined, jobs: 'elsewhere/' }) };
    world.redeploy({
      routes: [
        { ...old, ...elsewhere },
        { ...OPEN, ...condition },
      ],
    });
    await next(4);
    expect(await entryOf(key)).toMatchObject({ state: 'succeeded', route: { name: 'open' } });
  });

  it('gives a big line that its budget holds to the budget of the route that takes it now', async () => {
    const full: Route = { ...ECHO, budget: { ...DAILY, flows: 1 } };
    await start({ routes: [full] });
    for (let n = 0; n < 40; n += 1) await world.upload(`in/${n}`, `file ${n}`);
    await world.upload('kept/1', 'of the old route');
    await world.deliverAll();
    await next(2);
    expect(world.service.flows).toHaveLength(1);
    world.redeploy({
      routes: [
        { ...full, prefixes: ['kept/'] },
        { ...OPEN, budget: { ...DAILY, flows: 30 } },
      ],
    });
    await next(30);
    expect(world.service.flows).toHaveLength(31);
    expect(await entryOf('kept/1')).toMatchObject({ state: 'waiting', reason: 'budget', route: { name: 'echo' } });
    expect((await holds()).routes.open?.spent?.flows).toBe(30);
    const waiting = (await world.entries()).filter(({ state }) => state === 'waiting').map(({ route }) => route.name);
    expect(waiting.toSorted()).toEqual(['echo', ...Array.from({ length: 9 }, () => 'open')]);
  });

  it('holds what it takes now, and what another route held before', async () => {
    await start({ routes: [OPEN] });
    await world.collect({ hold: { action: 'pause', route: 'open' } });
    await world.send('a.txt', 'hello');
    world.redeploy({ routes: [ECHO, { ...OPEN, prefixes: ['elsewhere/'] }] });
    await world.collect({ hold: PAUSE });
    await world.collect({ hold: { action: 'resume', route: 'open' } });
    await next(4);
    expect(world.service.flows).toEqual([]);
    await world.collect({ hold: RESUME });
    await next(4);
    expect(await entryOf('a.txt')).toMatchObject({ state: 'succeeded', route: { name: 'echo' } });
  });
});

describe('a job that has taken its inputs', () => {
  const JOBS: Route = { ...ECHO, name: 'views', jobs: 'multi/' };

  async function held(): Promise<void> {
    await start({ routes: [JOBS] });
    await world.collect({ hold: { action: 'pause', route: 'views' } });
    await world.upload('multi/3/front.png', 'front 3');
    await world.upload('multi/3/job.json', JSON.stringify({ inputs: ['front.png'] }));
    await world.deliverAll();
    expect(await entryOf('multi/3/job.json')).toMatchObject({
      state: 'waiting',
      reason: 'paused',
      inputs: [{ bytes: 7 }],
    });
  }

  async function release(): Promise<void> {
    world.clock.advance(3 * HOUR); // The deadline of the job is an hour.
    await world.collect({ hold: { action: 'resume', route: 'views' } });
    await next(4);
  }

  it('sends them after a hold, although one was deleted', async () => {
    await held();
    await world.remove('multi/3/front.png');
    await release();
    expect(await entryOf('multi/3/job.json')).toMatchObject({ state: 'succeeded' });
  });

  it('sends these versions, and none that came later', async () => {
    await held();
    await world.upload('multi/3/front.png', 'another front, of the next customer');
    await world.deliverAll();
    await release();
    expect(world.service.flows.map(({ inputs }) => inputs[0]?.bytes)).toEqual([7]);
  });

  it('takes the present route with them', async () => {
    await held();
    world.redeploy({ routes: [{ ...JOBS, name: 'renamed', parameters: { copies: 2 } }] });
    await world.remove('multi/3/front.png');
    await next(4);
    expect(sent()).toEqual([{ copies: 2 }]);
    expect(await entryOf('multi/3/job.json')).toMatchObject({ state: 'succeeded', route: { name: 'renamed' } });
  });
});
