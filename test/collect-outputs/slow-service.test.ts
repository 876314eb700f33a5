import { expect, it } from 'vitest';
import type { Fault } from '../../local/flow-service/fault.ts';
import { DAY, ECHO, HOUR, MINUTE, RESULTS, SECOND, start, type WorldOptions, world } from '../support/world.ts';

const begin = async (options?: WorldOptions) => {
  await start(options);
  world.remainingMs = 15 * MINUTE;
};
const flowOf = (url: string) => /flows\/([^/?]+)/.exec(url)?.[1];
const hasReceipt = async (key: string) => (await world.keys(RESULTS)).includes(`${key}/receipt.json`);
const uploads = async (...keys: string[]) => {
  for (const key of keys) await world.send(key);
};
const named = (count: number) => Array.from({ length: count }, (_, n) => `${n}.bin`);

/** Waits for a file's receipt while a tick is under way. Returns the time that it took, in milliseconds. */
async function untilReceipt(key: string): Promise<number> {
  const from = world.clock.now();
  while (!(await hasReceipt(key)) && world.clock.now() - from < 5 * MINUTE) await world.clock.sleep(SECOND / 2);
  return world.clock.now() - from;
}

it('flows past their maximum age whose abort hangs are abandoned side by side', async () => {
  await begin({ settings: { flowAgeMaxSeconds: 3600, pollIntervalSeconds: 15 }, service: { flowMs: SECOND } });
  await uploads(...named(8));
  const old = new Set(world.service.flows.map(({ id }) => id));
  world.clock.advance(2 * HOUR);
  await uploads('young.bin');
  world.service.intercept = ({ url }, { operation }) => {
    if (!old.has(flowOf(url) ?? '')) return undefined;
    return operation === 'getFlow' ? { status: 400 } : operation === 'changeFlow' ? { hang: true } : undefined;
  };
  const ticking = world.tick();
  // One hanging abort takes 20 seconds.
  expect(await untilReceipt('young.bin')).toBeLessThan(50 * SECOND);
  expect(await ticking).toMatchObject({ succeeded: 1, failed: 8 });
});

it('two flows whose assets hang neither hold up nor fail a sound one', async () => {
  await begin({
    routes: [{ ...ECHO, name: 'many', suffixes: ['.many'], parameters: { copies: 40 } }, ECHO],
    service: { flowMs: 0 },
  });
  await uploads('0.many', '1.many');
  const bad = new Set(world.service.flows.map(({ id }) => id));
  await uploads('good.bin');
  world.service.intercept = ({ url }, { operation }) =>
    operation === 'getAsset' && bad.has(flowOf(url) ?? '') ? { hang: true } : undefined;
  for (let tick = 1; tick <= 6 && !(await hasReceipt('good.bin')); tick += 1) {
    await world.tickAfter(2 * MINUTE);
  }
  expect((await world.receipt('good.bin')).status).toBe('succeeded');
});

/** Polls side by side. With fewer than by default, fewer flows show how many take turns. */
const pollConcurrency = 8;

it.each<[number, string, Fault, number]>([
  [17, 'take 19 seconds', { delayMs: 19 * SECOND }, 30],
  [25, 'hang', { hang: true }, 60],
])('%i flows whose polls %s delay other flows by less than a minute', async (count, _, fault, secondsMax) => {
  let areSlow = true;
  const flowMs = () => (areSlow ? DAY : SECOND);
  await begin({ settings: { pollIntervalSeconds: 15, pollConcurrency }, service: { flowMs } });
  await uploads(...Array.from({ length: count }, (_, n) => `slow-${n}.bin`));
  areSlow = false;
  const slow = new Set(world.service.flows.map(({ id }) => id));
  world.service.intercept = ({ url }, { operation }) => {
    if (operation === 'listFlows') return { status: 404 };
    return operation === 'getFlow' && slow.has(flowOf(url) ?? '') ? fault : undefined;
  };
  // The first polls learn which flows are slow.
  for (let tick = 1; tick <= 3; tick += 1) await Promise.allSettled([world.tickAfter(MINUTE)]);
  const good = named(8);
  await uploads(...good);
  const endedAt = world.clock.now() + SECOND;
  for (let tick = 1; tick <= 3; tick += 1) {
    const startedAt = world.clock.now();
    await Promise.allSettled([world.tick()]);
    world.clock.advance(Math.max(0, startedAt + MINUTE - world.clock.now()));
  }
  for (const key of good) {
    const delayMs = Date.parse((await world.receipt(key)).endedAt) - endedAt;
    expect(delayMs).toBeLessThan(secondsMax * SECOND);
  }
});

it('a service whose polls are all slow is asked about every flow in one tick', async () => {
  await begin({ settings: { pollIntervalSeconds: 15, pollConcurrency }, service: { flowMs: 10 * DAY } });
  await uploads(...named(40));
  world.clock.advance(2 * HOUR);
  world.service.intercept = (_, { operation }) =>
    operation === 'listFlows' ? { status: 404 } : operation === 'getFlow' ? { delayMs: 6 * SECOND } : undefined;
  await world.tick(); // Its polls learn that each flow is slow.
  expect(await world.tickAfter(15 * MINUTE)).toMatchObject({ result: 'completed', polled: 40 });
});

it('an asset that is ready a little after its flow is not abandoned within seconds', async () => {
  await begin({ settings: { pollIntervalSeconds: 15 }, service: { flowMs: 7 * SECOND } });
  await uploads('a.bin');
  const readyAt = world.clock.now() + 75 * SECOND;
  world.service.intercept = (_, { operation }) =>
    operation === 'getAsset' && world.clock.now() < readyAt ? { status: 409 } : undefined;
  for (let tick = 1; tick <= 3; tick += 1) await world.tick();
  expect((await world.receipt('a.bin')).status).toBe('succeeded');
});

it('a flow that the listing shows as running between two 404s is not gone', async () => {
  // By its id, a flow is polled itself in one round of ten. With this one, it is so in several rounds, never in a row.
  const ids = Array.from({ length: 40 }, (_, n) => `id${n + 1}`);
  await begin({ service: { flowMs: 10 * DAY, newId: () => ids.shift() ?? 'used up' } });
  await uploads(...named(20));
  const [first] = world.service.flows;
  let polls = 0;
  world.service.intercept = (request, { operation }) => {
    if (request.method !== 'GET' || flowOf(request.url) !== first?.id) return undefined;
    if (operation === 'getFlow') polls += 1;
    return { status: 404 };
  };
  world.remainingMs = 20 * SECOND;
  await world.deliverAndTick(30, MINUTE);
  expect(polls).toBeGreaterThan(1);
  expect(world.service.flows[0]?.aborted).toBe(false);
});

async function* trickle(): AsyncGenerator<Uint8Array> {
  for (;;) {
    yield Buffer.from(' ');
    await world.clock.sleep(SECOND);
  }
}

it.each([201, 502])(
  'a creation whose %i trickles holds its invocation for two minutes, and its flow is found',
  async (status) => {
    await begin({ service: { flowMs: SECOND } });
    world.fault('createFlow', () => ({ status, at: 'after-effect', body: trickle() }), 1);
    const startedAt = world.clock.now();
    await uploads('a.bin');
    expect(world.clock.now() - startedAt).toBeLessThan(2.5 * MINUTE);
    expect(world.count('FlowsAdopted')).toBe(1);
    await world.tickAfter(MINUTE);
    expect((await world.receipt('a.bin')).status).toBe('succeeded');
    expect(world.service.flows).toHaveLength(1);
  },
);

it.each<[string, () => object]>([
  ['hangs', () => ({ hang: true })],
  ['trickles', () => ({ status: 200, body: trickle() })],
])('a poll whose answer %s holds up the others for less than a minute', async (_, fault) => {
  const ids: string[] = [];
  await begin({
    settings: { pollIntervalSeconds: 15 },
    service: {
      flowMs: ({ id }) => {
        if (!ids.includes(id)) ids.push(id);
        return ids[1] === id ? DAY : 1.5 * SECOND;
      },
    },
  });
  await uploads('bad.bin', 'healthy.slow');
  const bad = world.service.flows[0]?.id as string;
  world.service.intercept = ({ url }, { operation }) =>
    operation === 'getFlow' && flowOf(url) === bad ? fault() : undefined;
  const ticking = world.tick();
  await world.clock.sleep(5 * SECOND);
  await uploads('good.bin');
  expect(await untilReceipt('good.bin')).toBeLessThan(MINUTE);
  world.service.intercept = undefined;
  await ticking;
});

it('a listing of slow pages leaves the flows their polls', async () => {
  await begin({ service: { flowMs: 0, variation: { pageSize: 2, paging: 'cursor' } } });
  await uploads(...named(40));
  // Twenty pages of 15 seconds are five minutes.
  world.fault('listFlows', { delayMs: 15 * SECOND });
  world.remainingMs = 3 * MINUTE;
  await world.tickAfter(MINUTE);
  expect(world.count('FlowsSucceeded')).toBe(40);
});

it('a listing that alone is refused does not hold up the polls', async () => {
  await begin({ service: { flowMs: DAY } });
  await uploads(...named(20));
  world.fault('listFlows', { status: 429, headers: { 'retry-after': '15' } });
  world.remainingMs = 15 * SECOND;
  const ticking = world.tick();
  await world.clock.sleep(6 * SECOND);
  expect(world.service.counts.getFlow).toBeGreaterThan(0);
  await ticking;
});
