import { expect, it, onTestFinished } from 'vitest';
import { systemClock } from '../../functions/base/clock.ts';
import { httpTransport } from '../../functions/flow-service/http-transport.ts';
import { ECHO, RESULTS, World, type WorldOptions } from '../support/world.ts';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

let world: World;
const start = async (options?: WorldOptions) => {
  const started = await World.start(options);
  onTestFinished(() => started.close());
  world = started;
};
/** 60 s without an answer are scaled down. */
const impatient = (firstByteMs: number) => () =>
  httpTransport({ clock: systemClock, limits: { connectMs: 2_000, firstByteMs, idleMs: firstByteMs / 2 } });
const secondTakesADay = () => {
  const ids: string[] = [];
  return ({ id }: { id: string }) => {
    if (!ids.includes(id)) ids.push(id);
    return ids[1] === id ? DAY : 1_500;
  };
};
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
const flowOf = (url: string) => /flows\/([^/?]+)/.exec(url)?.[1];
const hasReceipt = async (key: string) => (await world.keys(RESULTS)).includes(`${key}/receipt.json`);
const uploads = async (...keys: string[]) => {
  for (const key of keys) {
    await world.upload(key, 'x');
    while ((await world.deliver()) !== undefined);
  }
};

it('flows past their age whose abort hangs are given up side by side', async () => {
  await start({
    settings: { flowAgeMaxSeconds: 3600, pollIntervalSeconds: 1 },
    service: { flowMs: 1_000 },
    transport: impatient(1_500),
  });
  await uploads(...Array.from({ length: 8 }, (_, n) => `old${n}.bin`));
  const old = new Set(world.service.flows.map(({ id }) => id));
  world.clock.advance(2 * HOUR);
  await uploads('young.bin');
  world.service.intercept = ({ url }, { operation }) => {
    if (!old.has(flowOf(url) ?? '')) return undefined;
    return operation === 'getFlow' ? { status: 400 } : operation === 'changeFlow' ? { hang: true } : undefined;
  };
  world.remainingMs = 60_000;
  const startedAt = Date.now();
  const ticking = world.tick();
  while (!(await hasReceipt('young.bin')) && Date.now() - startedAt < 20_000) await pause(20);
  const seconds = (Date.now() - startedAt) / 1000;
  await ticking.catch(() => {});
  expect(seconds).toBeLessThan(4);
}, 90_000);

it('two flows whose assets hang do not keep the memory of everybody else', async () => {
  await start({
    routes: [{ ...ECHO, name: 'many', suffixes: ['.many'], parameters: { copies: 40 } }, ECHO],
    service: { flowMs: 0 },
    transport: impatient(600),
    settings: { attemptsMax: 5 },
  });
  await uploads('a.many', 'b.many');
  const bad = new Set(world.service.flows.map(({ id }) => id));
  await uploads('good.bin');
  world.service.intercept = ({ url }, { operation }) =>
    operation === 'getAsset' && bad.has(flowOf(url) ?? '') ? { hang: true } : undefined;
  // Scaled by 100: 600 ms stand for 60 s, and the function's 15 minutes are 9 s.
  world.remainingMs = 12_000;
  for (let tick = 1; tick <= 6; tick += 1) {
    world.clock.advance(2 * MINUTE);
    await world.tick().catch(() => {});
    if (await hasReceipt('good.bin')) break;
  }
  expect(await hasReceipt('good.bin')).toBe(true);
}, 90_000);

it('an asset that is ready a little after its flow is not given up within seconds', async () => {
  await start({ settings: { pollIntervalSeconds: 1 }, service: { flowMs: 500 } });
  await uploads('a.bin');
  // With the default interval these 5 s are 75 s.
  const readyAt = Date.now() + 5_000;
  world.service.intercept = (_, { operation }) =>
    operation === 'getAsset' && Date.now() < readyAt ? { status: 409 } : undefined;
  world.remainingMs = 60_000;
  await world.tick();
  const receipt = await world.receipt('a.bin');
  expect(receipt.status).toBe('succeeded');
}, 90_000);

it('of two uploads with one flow the younger is not collected after the older one was ended', async () => {
  let made = 0;
  await start({
    settings: { flowAgeMaxSeconds: 3600 },
    service: { flowMs: 0 },
    transport: (direct) => async (request, signal) => {
      const response = await direct(request, signal);
      if (request.method !== 'POST') return response;
      made += 1;
      const id = world.service.flows[0]?.id;
      response.destroy();
      return {
        ...response,
        body: (async function* () {
          yield Buffer.from(JSON.stringify({ flow_id: id }));
        })(),
      };
    },
  });
  // The service's records bear no tags.
  await uploads('theirs.bin');
  world.clock.advance(30 * MINUTE);
  await uploads('mine.bin');
  expect(made).toBe(2);
  world.service.intercept = ({ url, method }, { operation }) =>
    operation === 'getFlow' && method === 'GET'
      ? { status: 200, body: JSON.stringify({ flow_id: flowOf(url), status: 'completed' }) }
      : undefined;
  for (let minute = 0; minute < 120; minute += 5) {
    await world.tick();
    world.clock.advance(5 * MINUTE);
  }
  const mine = await world.receipt('mine.bin');
  expect(mine).toMatchObject({ status: 'failed', failure: { code: 'flow-shared' } });
}, 90_000);

it('a flow that the listing shows as running between two 404s is not gone', async () => {
  await start({ service: { flowMs: 10 * DAY } });
  await uploads(...Array.from({ length: 20 }, (_, n) => `${n}.bin`));
  const [first] = world.service.flows;
  world.service.intercept = ({ url }, { operation }) =>
    operation === 'getFlow' && flowOf(url) === first?.id ? { status: 404 } : undefined;
  for (let i = 0; i < 8; i += 1) {
    world.clock.advance(MINUTE);
    await world.tick();
  }
  expect(world.service.flows[0]?.aborted).toBe(false);
}, 90_000);

/** Time passes fifteen times as fast. */
const SPEED = 15;

/** How long after its upload a file has its receipt, in seconds of the functions' time, while a tick is under way. */
async function secondsToReceipt(key: string): Promise<number> {
  await uploads(key);
  const uploadedAt = world.clock.now();
  while (!(await hasReceipt(key)) && world.clock.now() - uploadedAt < 5 * MINUTE) await pause(20);
  return (world.clock.now() - uploadedAt) / 1000;
}

it.each<[string, () => object]>([
  ['hangs', () => ({ hang: true })],
  [
    'trickles',
    () => ({
      status: 200,
      body: (async function* () {
        for (;;) {
          yield Buffer.from(' ');
          await pause(100);
        }
      })(),
    }),
  ],
])('a look whose answer %s holds up the others for less than a minute', { timeout: 60_000 }, async (_, fault) => {
  await start({ settings: { pollIntervalSeconds: 15 }, service: { flowMs: secondTakesADay() }, speed: SPEED });
  world.remainingMs = 5 * MINUTE;
  await uploads('bad.bin', 'healthy.slow');
  const bad = world.service.flows[0]?.id as string;
  world.service.intercept = ({ url }, { operation }) =>
    operation === 'getFlow' && flowOf(url) === bad ? fault() : undefined;
  const ticking = world.tick();
  await pause(300);
  expect(await secondsToReceipt('good.bin')).toBeLessThan(60);
  world.service.intercept = undefined;
  await ticking.catch(() => {});
});

it('a listing of slow pages leaves the flows their looks', { timeout: 60_000 }, async () => {
  await start({ service: { flowMs: 0, variation: { pageSize: 2, paging: 'next' } }, speed: SPEED });
  await uploads(...Array.from({ length: 40 }, (_, n) => `${n}.bin`));
  // Twenty pages of 15 seconds are five minutes.
  world.service.intercept = (_, { operation }) => (operation === 'listFlows' ? { delayMs: 15_000 } : undefined);
  world.remainingMs = 3 * MINUTE;
  world.clock.advance(MINUTE);
  await world.tick();
  expect(world.count('FlowsSucceeded')).toBe(40);
});

it('a listing that alone is refused does not hold up the looks', async () => {
  let flowMs = DAY;
  await start({ settings: { pollIntervalSeconds: 1 }, service: { flowMs: () => flowMs } });
  world.remainingMs = 15_000;
  await uploads(...Array.from({ length: 20 }, (_, n) => `${n}.slow`));
  world.service.intercept = (_, { operation }) =>
    operation === 'listFlows' ? { status: 429, headers: { 'retry-after': '15' } } : undefined;
  const looks: number[] = [];
  const timer = setInterval(() => looks.push(world.service.counts.getFlow), 1_000);
  const ticking = world.tick();
  await ticking.catch(() => {});
  clearInterval(timer);
  flowMs = 1;
  expect(looks[5]).toBeGreaterThan(0);
}, 120_000);

it('a sound flow is not failed because the assets of others hang', async () => {
  await start({
    routes: [{ ...ECHO, name: 'many', suffixes: ['.many'], parameters: { copies: 40 } }, ECHO],
    service: { flowMs: 0 },
    transport: impatient(600),
  });
  await uploads(...[1, 2, 3, 4, 5, 6].map((n) => `${n}.many`));
  const bad = new Set(world.service.flows.map(({ id }) => id));
  await uploads('good.bin');
  world.service.intercept = ({ url }, { operation }) =>
    operation === 'getAsset' && bad.has(flowOf(url) ?? '') ? { hang: true } : undefined;
  world.remainingMs = 12_000;
  for (let tick = 1; tick <= 6 && !(await hasReceipt('good.bin')); tick += 1) {
    world.clock.advance(2 * MINUTE);
    await world.tick();
  }
  const receipt = await world.receipt('good.bin');
  expect(receipt.status).toBe('succeeded');
}, 120_000);
