import { describe, expect, it } from 'vitest';
import type { Fault } from '../../local/flow-service/fault.ts';
import { answer, DAY, MINUTE, start, type WorldOptions, world } from '../support/world.ts';

// A service may be down for a night. No file is to blame for that, so none may fail, and nobody need do anything.

const KEYS: WorldOptions = { service: { variation: { idempotencyHours: 24 } } };

/** More than is sent before an answer comes. */
const BYTES = 400 * 1024;

/** Lets hours pass, with a tick every quarter of an hour. Puts a file in the middle of each of the first hours. */
async function passHours(hours: number, files = 0): Promise<void> {
  for (let hour = 0; hour < hours; hour += 1) {
    await world.deliverAndTick(2, 15 * MINUTE);
    if (hour < files) await world.upload(`file${hour}`, Buffer.alloc(BYTES, `File ${hour}. `));
    await world.deliverAndTick(2, 15 * MINUTE);
  }
}

const DOWN: Fault = { status: 503, body: 'upstream connect error' };
const PAGE: Fault = { status: 502, headers: { 'content-type': 'text/html' }, body: '<html>502 Bad Gateway</html>' };

/** How a service that is down answers to creations, and to all others. */
const OUTAGES: readonly (readonly [string, Fault, Fault])[] = [
  ['503', DOWN, DOWN],
  ['503 before it has read the file', { ...DOWN, at: 'before-body' }, DOWN],
  ['503 with a time, and later without one', { ...DOWN, headers: { 'retry-after': '600' } }, DOWN],
  ['503, with a time to others', DOWN, { ...DOWN, headers: { 'retry-after': '600' } }],
  ['a lost connection in the middle of the file', { reset: 'mid-body' }, DOWN],
  ['503, a page to others', DOWN, PAGE],
  ['504 once it has made the flow', { status: 504, at: 'after-effect' }, { status: 504 }],
  ['a lost connection once it has made the flow', { reset: 'after-effect' }, { reset: 'before-body' }],
];

/** Puts a file before the outage, and two in it. */
async function passOutage(options: WorldOptions, toCreations: Fault, toOthers: Fault): Promise<void> {
  await start(options);
  await world.upload('before', 'before');
  await world.settle();
  world.service.intercept = (_request, { operation }) => (operation === 'createFlow' ? toCreations : toOthers);
  // Without an outage, attempts last for some two hours.
  await passHours(6, 2);
  world.service.intercept = undefined;
  await passHours(3);
}

describe.each<[string, WorldOptions]>([
  ['retry', { settings: { inDoubt: 'retry' } }],
  ['ask', { settings: { inDoubt: 'ask' } }],
  ['retry, while the service honours keys', KEYS],
])('with inDoubt %s, a service that is down for six hours', (_, options) => {
  it.each(OUTAGES)('and answers %s, gets each file once when it is back', async (__, toCreations, toOthers) => {
    await passOutage(options, toCreations, toOthers);
    expect((await world.entries()).map(({ state }) => state)).toEqual(Array(3).fill('succeeded'));
    expect(world.service.flows).toHaveLength(3);
    expect(world.count('UploadsFailed') + world.count('DoubtsHeld') + world.count('DoubtsRetried')).toBe(0);
  });
});

describe.each<[string, number, WorldOptions]>([
  ['retry', 2, { speaks: { list: null }, settings: { inDoubt: 'retry' } }],
  ['retry, while the service honours keys', 1, { ...KEYS, speaks: { list: null } }],
])('with inDoubt %s, a service without a listing that is down for six hours', (_, flowsOfLost, options) => {
  it.each(OUTAGES)('and answers %s, gets each file when it is back', async (what, toCreations, toOthers) => {
    await passOutage(options, toCreations, toOthers);
    expect((await world.entries()).map(({ state }) => state)).toEqual(Array(3).fill('succeeded'));
    // Nothing shows a flow whose answer was lost.
    expect(world.service.flows).toHaveLength(what.includes('has made the flow') ? 1 + 2 * flowsOfLost : 3);
    expect(world.count('UploadsFailed') + world.count('DoubtsHeld')).toBe(0);
  });
});

it.each([404, 400, 403, 500, 501])(
  'a service without a listing that answers %i for a flow that nobody made gets a file again within ten minutes',
  async (status) => {
    await start({ speaks: { list: null }, settings: { inDoubt: 'retry' } });
    world.service.intercept = (_request, { operation, n }) => {
      if (operation === 'createFlow') return n === 1 ? { ...DOWN, at: 'after-body' } : undefined;
      return world.service.flows.length === 0 ? answer({ detail: 'No such flow.' }, status) : undefined;
    };
    await world.upload('a', 'x');
    await world.deliverAndTick(2, 5 * MINUTE);
    expect(world.service.flows).toHaveLength(1);
  },
);

it.each<[string, Fault, WorldOptions, number]>([
  ['lists its flows, and answers 503', { ...DOWN, at: 'after-body' }, {}, 2],
  ['lists no flows, and answers 503', { ...DOWN, at: 'after-body' }, { speaks: { list: null } }, 2],
  ['lists its flows, and loses its answers', { reset: 'after-effect' }, {}, 2],
  ['lists no flows, and loses its answers', { reset: 'after-effect' }, { speaks: { list: null } }, 3],
])('a service that is down for longer than it honours keys, %s, fails no file', async (_, fault, options, flows) => {
  await start({ ...options, service: { variation: { idempotencyHours: 2 } } });
  await world.upload('before', 'before');
  await world.settle();
  world.service.intercept = (_request, { operation }) => (operation === 'createFlow' ? fault : DOWN);
  await world.upload('a', 'x');
  await passHours(6);
  world.service.intercept = undefined;
  await passHours(3);
  expect((await world.entries()).map(({ state }) => state)).toEqual(['succeeded', 'succeeded']);
  expect(world.service.flows).toHaveLength(flows);
});

it('a doubt that the operator decides is undecided at once, although the service is down', async () => {
  await start({ speaks: { list: null }, settings: { inDoubt: 'ask' } });
  world.service.intercept = (_request, { operation }) =>
    operation === 'createFlow' ? { status: 504, at: 'after-effect' } : DOWN;
  await world.upload('a', 'x');
  await world.deliverAndTick(2, 5 * MINUTE);
  expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'undecided' });
});

it('many doubts ask once whether a service without a listing is there, and say that a flow may exist', async () => {
  await start({ speaks: { list: null }, settings: { inDoubt: 'retry' } });
  let asked = 0;
  world.service.intercept = (_request, { operation }) => {
    asked += operation === 'getFlow' ? 1 : 0;
    return { ...DOWN, at: 'after-body' };
  };
  for (let n = 0; n < 10; n += 1) await world.upload(`file${n}`, 'x');
  await world.deliverAll();
  expect(asked).toBe(1);
  const [{ message }] = (await world.entries()) as unknown as readonly [{ readonly message: string }];
  expect(message).toMatch(/^The service may have created a flow\. .* get: 503: upstream connect error$/);
});

it('the last attempt is not charged if it leaves a doubt while the service is down', async () => {
  await start();
  world.service.intercept = (_request, { operation, n }) =>
    operation === 'createFlow' && n <= 4 ? { reset: 'mid-body' } : DOWN;
  await passHours(1, 1);
  await passHours(9);
  expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'in-doubt', attempts: 4 });
  world.service.intercept = undefined;
  await passHours(3);
  expect(await world.entry()).toMatchObject({ state: 'succeeded' });
});

it.each<[string, WorldOptions]>([
  ['with', {}],
  ['without', { speaks: { list: null } }],
])(
  'the last attempt is not charged if a service %s a listing does not answer before the time is over',
  async (_, options) => {
    await start(options);
    world.service.intercept = (_request, { operation }) =>
      operation === 'createFlow' ? { reset: 'mid-body' } : { hang: true };
    await passHours(1, 1);
    await passHours(5);
    expect(await world.entry()).toMatchObject({ state: 'waiting', attempts: 4 });
    world.service.intercept = undefined;
    await passHours(3);
    expect(await world.entry()).toMatchObject({ state: 'succeeded' });
  },
);

it('a file that has waited for days is kept as long as any other', async () => {
  await start();
  await world.collect({ hold: { action: 'pause' } });
  await passHours(1, 1);
  world.clock.advance(3 * DAY);
  await world.collect({ hold: { action: 'resume' } });
  world.service.intercept = (_request, { operation }) => (operation === 'createFlow' ? { reset: 'mid-body' } : DOWN);
  await passHours(10);
  world.service.intercept = undefined;
  await passHours(3);
  expect(await world.entry()).toMatchObject({ state: 'succeeded' });
});

it('a file fails a day after its last attempt if the service is down for longer', async () => {
  await start();
  world.service.intercept = (_request, { operation }) => (operation === 'createFlow' ? { reset: 'mid-body' } : DOWN);
  await passHours(1, 1);
  await passHours(22);
  expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'unavailable', attempts: 4 });
  await passHours(5);
  expect(await world.entry()).toMatchObject({ state: 'failed', failure: { code: 'attempts-exhausted' } });
});

it('a file that alone breaks its connection fails within three hours', async () => {
  await start();
  world.service.intercept = (_request, { operation }) =>
    operation === 'createFlow' ? { reset: 'mid-body' } : undefined;
  await passHours(1, 1);
  await passHours(2);
  expect(await world.entry()).toMatchObject({ state: 'failed', failure: { code: 'attempts-exhausted' } });
});
