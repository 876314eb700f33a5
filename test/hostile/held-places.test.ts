import { expect, it, onTestFinished } from 'vitest';
import { systemClock } from '../../functions/clock.ts';
import { exhaustedMs } from '../../functions/flow-service/rate-limit-headers.ts';
import { httpTransport } from '../../functions/flow-service/transport.ts';
import { ECHO, RESULTS, World, type WorldOptions } from '../support/world.ts';

const MINUTE = 60_000;
const DAY = 24 * 60 * MINUTE;
let world: World;
const start = async (options?: WorldOptions) => {
  const started = await World.start(options);
  onTestFinished(() => started.close());
  world = started;
};
const impatient = (firstByteMs: number) => () =>
  httpTransport({ clock: systemClock, limits: { connectMs: 2_000, firstByteMs, idleMs: firstByteMs / 2 } });
const flowOf = (url: string) => /flows\/([^/?]+)/.exec(url)?.[1];
const hasReceipt = async (key: string) => (await world.keys(RESULTS)).includes(`${key}/receipt.json`);
const uploads = async (...keys: string[]) => {
  for (const key of keys) {
    await world.upload(key, 'x');
    while ((await world.deliver()) !== undefined);
  }
};

it('a reset that is a time in milliseconds is no wait of a day', () => {
  const now = Date.now();
  const headers = { 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': String(now + 5_000) };
  expect(exhaustedMs({ headers }, now)).toBeLessThan(60_000);
});

it('a service clock a minute ahead of ours does not stretch every window', () => {
  const now = Date.now();
  const theirs = now + 60_000;
  const headers = {
    date: new Date(theirs).toUTCString(),
    'x-ratelimit-remaining': '0',
    'x-ratelimit-reset': String(Math.ceil(theirs / 1000) + 5),
  };
  expect(exhaustedMs({ headers }, now)).toBeLessThan(10_000);
});

it('a listing that alone is refused does not hold up the looks', async () => {
  let flowMs = DAY;
  await start({ limits: { pollIntervalSeconds: 1 }, service: { flowMs: () => flowMs } });
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
