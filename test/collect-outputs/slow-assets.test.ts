import { afterEach, expect, it } from 'vitest';
import type { PipelineSettings } from '../../functions/settings/settings.ts';
import { DAY, ECHO, HOUR, MINUTE, RESULTS, SECOND, start, world } from '../support/world.ts';

const MIB = 1024 * 1024;

async function begin(settings: Partial<PipelineSettings> = {}, flowMs: () => number = () => SECOND): Promise<void> {
  isOver = false;
  await start({
    routes: [{ ...ECHO, name: 'many', suffixes: ['.many'], parameters: { copies: 8 } }, ECHO],
    service: { flowMs },
    settings: { pollIntervalSeconds: 15, ...settings },
  });
  world.remainingMs = 15 * MINUTE;
}
const named = (count: number, suffix = 'bin') => Array.from({ length: count }, (_, n) => `${n}.${suffix}`);
const flowOf = (url: string) => /flows\/([^/?]+)/.exec(url)?.[1];
const hasReceipt = async (key: string) => (await world.keys(RESULTS)).includes(`${key}/receipt.json`);

/** True at the end of a test. Then the slow answers end. */
let isOver = false;

/** An answer with an asset: `first` at once, then `piece` every `gapMs`, for ever. */
function trickle(gapMs: number, piece: string | Buffer, first = '', headers = {}): object {
  async function* body(): AsyncGenerator<Uint8Array> {
    if (first !== '') yield Buffer.from(first);
    while (!isOver) {
      yield Buffer.from(piece);
      await world.clock.sleep(gapMs);
    }
  }
  return { status: 200, headers: { 'content-type': 'x/y', 'transfer-encoding': 'chunked', ...headers }, body: body() };
}

/** Every answer with an asset of these uploads is slow. All flows have ended when this returns. */
async function slowAssets(keys: readonly string[], answer: (asset: number) => object): Promise<void> {
  for (const key of keys) await world.send(key);
  const slow = new Set(world.service.flows.map(({ id }) => id));
  let asked = 0;
  world.service.intercept = ({ url }, { operation }) => {
    if (operation !== 'getAsset' || !slow.has(flowOf(url) ?? '')) return undefined;
    asked += 1;
    return answer(asked);
  };
}

/** Every poll of these uploads' flows fails, and no listing takes the place of polls. */
async function withFailingPolls(keys: readonly string[]): Promise<void> {
  const before = world.service.flows.length;
  for (const key of keys) await world.send(key);
  const failing = new Set(world.service.flows.slice(before).map(({ id }) => id));
  const { intercept } = world.service;
  world.service.intercept = (request, call) => {
    if (call.operation === 'listFlows') return { status: 404 };
    const isBad = call.operation === 'getFlow' && failing.has(flowOf(request.url) ?? '');
    return isBad ? { status: 500 } : intercept?.(request, call);
  };
}

/** The tick that is under way. */
let ticking: Promise<void> | undefined;

/** Runs a tick a minute, one at a time, until the condition holds. Returns the minutes that it took. */
async function minutesUntil(isDone: () => Promise<boolean>, minutesMax: number): Promise<number> {
  const { clock } = world;
  const from = clock.now();
  const minutes = () => (clock.now() - from) / MINUTE;
  const isEnough = async () => minutes() > minutesMax || (await isDone());
  for (;;) {
    const startedAt = clock.now();
    // It throws for the flows that failed.
    ticking ??= Promise.allSettled([world.tick()]).then(() => {
      ticking = undefined;
    });
    while (ticking !== undefined && !(await isEnough())) await Promise.race([ticking, clock.sleep(10 * SECOND)]);
    if (await isEnough()) return minutes();
    clock.advance(Math.max(0, startedAt + MINUTE - clock.now()));
  }
}

afterEach(async () => {
  world.service.intercept = undefined;
  isOver = true;
  await ticking;
});

const byte = () => trickle(25 * SECOND, 'x');
const whiteSpace = () => trickle(25 * SECOND, ' ', '{', { 'content-type': 'application/json' });
const justAboveTheMinimum = () => trickle(SECOND, Buffer.alloc(5_000), '', { 'content-length': String(20 * MIB) });
const aLittleFaster = () => trickle(10 * SECOND, Buffer.alloc(1_000_000), '', { 'content-length': String(20 * MIB) });
/** Half of the downloads break off at once. The flow cannot hide behind them. */
const nowAndThen = (asset: number) => (asset % 2 === 0 ? { status: 409 } : byte());

it.each<[string, string[], (asset: number) => object]>([
  ['eight assets of one flow bring a byte every 25 seconds', ['slow.many'], byte],
  ['eight flows send white space', named(8), whiteSpace],
  ['20 flows with eight assets bring a byte every 25 seconds', named(20, 'many'), byte],
  ['20 flows bring assets just above the minimum rate', named(20), justAboveTheMinimum],
  ['eight flows bring large assets slowly', named(8), aLittleFaster],
  ['eight flows are slow now and then', named(8), nowAndThen],
  ['eight flows never begin to answer', named(8), () => ({ hang: true })],
  ['40 flows never begin to answer', named(40), () => ({ hang: true })],
])('a sound flow has its receipt within a minute although %s', async (_, keys, answer) => {
  await begin();
  await slowAssets(keys, answer);
  await world.send('good.bin');
  expect(await minutesUntil(() => hasReceipt('good.bin'), 20)).toBeLessThan(2.3);
  expect((await world.receipt('good.bin')).status).toBe('succeeded');
  // The next flow meets lagging ones only.
  await world.send('next.bin');
  expect(await minutesUntil(() => hasReceipt('next.bin'), 20)).toBeLessThan(2.3);
});

it('flows that end one after the other have their receipts although 40 others never begin to answer', async () => {
  await begin();
  await slowAssets(named(40), () => ({ hang: true }));
  for (let n = 0; n < 12; n += 1) {
    await world.send(`good${n}.bin`);
    expect(await minutesUntil(() => hasReceipt(`good${n}.bin`), 20), `good${n}.bin`).toBeLessThan(2.3);
  }
});

it('a flow that ends is collected within minutes although the polls of twelve others fail and a slow asset comes', async () => {
  let flowMs = SECOND;
  await begin({}, () => flowMs);
  await slowAssets(['slow.bin'], aLittleFaster);
  flowMs = 2 * MINUTE;
  await world.send('good.bin');
  flowMs = DAY;
  await withFailingPolls(named(12));
  expect(await minutesUntil(() => hasReceipt('good.bin'), 20)).toBeLessThan(2 + 2.3);
});

it('flows whose assets wait for a slot are collected, whatever their age, although the polls of others fail', async () => {
  let flowMs = 30 * MINUTE;
  await begin({ flowAgeMaxSeconds: 3_600 }, () => flowMs);
  const old = Array.from({ length: 120 }, (_, n) => `old-${n}.bin`);
  await slowAssets(old, () => ({ delayMs: 2.5 * SECOND }));
  world.clock.advance(3 * HOUR);
  flowMs = DAY;
  await withFailingPolls(named(12));
  const areAllOver = async () => (await Promise.all(old.map(hasReceipt))).every(Boolean);
  expect(await minutesUntil(areAllOver, 20)).toBeLessThan(5);
  expect(world.count('FlowsSucceeded')).toBe(old.length);
});

it.each<[string, (asset: number) => object, string]>([
  ['a byte every 25 seconds', byte, 'too-slow'],
  ['white space before the data', whiteSpace, 'too-slow'],
  ['white space within the data', () => trickle(SECOND, '\\n', '{"data":"data:x/y;base64,'), 'too-slow'],
  ['white space behind the data', () => trickle(SECOND, ' ', '{"data":"data:x/y;base64,QUJD"'), 'too-slow'],
  ['an error that never ends', () => ({ ...trickle(SECOND, 'x'), status: 400 }), 'rejected'],
])('a flow whose asset is %s fails after its attempts, with a receipt that says so', async (_, answer, code) => {
  await begin();
  await slowAssets(['slow.bin'], answer);
  expect(await minutesUntil(() => hasReceipt('slow.bin'), 60)).toBeLessThan(12);
  const { failure, failedOutputs } = await world.receipt('slow.bin');
  expect([failure?.code, failedOutputs?.[0]?.code]).toEqual(['outputs-failed', code]);
});

it('a slow asset that is faster than the minimum rate is stored', async () => {
  await begin();
  await slowAssets(['slow.bin'], () => {
    async function* body() {
      for (let second = 0; second < 120; second += 1) {
        yield Buffer.alloc(5_000, 'x ');
        await world.clock.sleep(SECOND);
      }
    }
    return { status: 200, headers: { 'content-length': '600000' }, body: body() };
  });
  expect(await minutesUntil(() => hasReceipt('slow.bin'), 20)).toBeLessThan(3);
  expect(await world.receipt('slow.bin')).toMatchObject({ status: 'succeeded', assets: [{ bytes: 600_000 }] });
});

it('eight large assets that take longer than an invocation end after their attempts, and let others through', async () => {
  await begin({ attemptsMax: 2, assetBytesPerSecondMin: 500 });
  // 1 kB a second: a run of 15 minutes does not bring the gigabyte that was announced.
  await slowAssets(named(8), () =>
    trickle(10 * SECOND, Buffer.alloc(10_000), '', { 'content-length': String(1024 * MIB) }),
  );
  await world.send('good.bin');
  expect(await minutesUntil(() => hasReceipt('good.bin'), 20)).toBeLessThan(2.3);
  const areAllOver = async () => (await world.keys(RESULTS)).filter((key) => key.endsWith('receipt.json')).length === 9;
  // Two runs of 15 minutes, and a third one for those that gave way to another flow.
  expect(await minutesUntil(areAllOver, 120)).toBeLessThan(46);
  const { failedOutputs } = await world.receipt('0.bin');
  expect(failedOutputs?.[0]?.code).toBe('out-of-time');
});

it.each([
  ['is slow', byte],
  ['cannot be read', () => ({ status: 401 })],
])('a finished flow whose asset %s ends at twice its maximum age', async (_, answer) => {
  await begin({ attemptsMax: 100, flowAgeMaxSeconds: 1_800 });
  await slowAssets(['slow.bin'], answer);
  expect(await minutesUntil(() => hasReceipt('slow.bin'), 120)).toBeLessThan(76);
  expect(await world.receipt('slow.bin')).toMatchObject({ status: 'failed' });
});

it('flows at twice their maximum age are not given up while their assets wait for those of others', async () => {
  await begin({ flowAgeMaxSeconds: 3_600, assetConcurrency: 3 });
  const old = named(40);
  await slowAssets(old, () => ({ delayMs: 20 * SECOND }));
  world.clock.advance(3 * HOUR);
  // Too short for all of them.
  world.remainingMs = 5 * MINUTE;
  const areAllOver = async () => (await Promise.all(old.map(hasReceipt))).every(Boolean);
  expect(await minutesUntil(areAllOver, 40)).toBeLessThan(15);
  expect(world.count('FlowsSucceeded')).toBe(old.length);
});

it('flows that pass their maximum age in an outage are not given up because an asset still comes', async () => {
  let flowMs = 58 * MINUTE;
  await begin({ flowAgeMaxSeconds: 3_600 }, () => flowMs);
  for (const key of named(20)) await world.send(key);
  world.clock.advance(56 * MINUTE);
  flowMs = SECOND;
  await world.send('slow.bin');
  const slow = world.service.flows.at(-1)?.id;
  const downFrom = world.clock.now() + MINUTE;
  world.service.intercept = ({ url }, { operation }) => {
    if (operation === 'getAsset' && flowOf(url) === slow) return justAboveTheMinimum();
    const now = world.clock.now();
    return now >= downFrom && now < downFrom + 10 * MINUTE ? { status: 500 } : undefined;
  };
  const areAllOver = async () => (await Promise.all(named(20).map(hasReceipt))).every(Boolean);
  expect(await minutesUntil(areAllOver, 40)).toBeLessThan(11 + 6);
  expect(world.count('FlowsSucceeded')).toBe(20);
});

it.each([
  ['never begin', () => ({ hang: true })],
  ['come slowly', byte],
])('flows have their turn although a tick is too short for those of others, whose assets %s', async (_, answer) => {
  await begin({ assetConcurrency: 2 });
  world.remainingMs = 5 * MINUTE;
  // One of the two slots is fast, and an asset that lags keeps it for three seconds. So a tick has time for 100 flows.
  await slowAssets(named(250), answer);
  for (const key of ['good.bin', 'next.bin']) {
    await world.send(key);
    expect(await minutesUntil(() => hasReceipt(key), 60), key).toBeLessThan(20);
  }
});

it.each([
  ['at once', {}],
  ['in 15 seconds', { 'retry-after': '15' }],
])(
  'sound flows have their receipts although the service refuses the outputs of 40 others every time, %s',
  async (_, headers) => {
    await begin();
    for (const key of named(40)) await world.send(key);
    const refused = new Set(world.service.flows.map(({ id }) => id));
    world.service.intercept = ({ url }, { operation }) =>
      operation === 'listOutputs' && refused.has(flowOf(url) ?? '') ? { status: 429, headers } : undefined;
    for (const key of ['good.bin', 'next.bin', 'third.bin']) {
      await world.send(key);
      expect(await minutesUntil(() => hasReceipt(key), 20), key).toBeLessThan(4);
    }
  },
);
