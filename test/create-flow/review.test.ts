import { expect, it } from 'vitest';
import type { Entry } from '../../functions/ledger/entry.ts';
import type { Route } from '../../functions/uploads/route.ts';
import { dyingAt, ECHO, HOUR, MINUTE, SECOND, start, world } from '../support/world.ts';

// An upload of a later route with `review` is sent only after the operator has approved it.

const REFINED: Route = { ...ECHO, name: 'refined', after: 'echo', review: true };

const begin = (later: Partial<Route> = {}, settings = {}): Promise<void> =>
  start({ routes: [ECHO, { ...REFINED, ...later }], settings });

/** Sends a file, and lets time pass until its second stage waits. */
async function sendFirst(key = 'a'): Promise<Entry> {
  await world.send(key, 'x');
  await world.deliverAndTick(8, 15 * SECOND);
  return stage();
}

const stage = async (): Promise<Entry> =>
  (await world.entries()).find(({ upload }) => upload.stage !== undefined) as Entry;

const flowCount = (): number => world.service.flows.length;

const wanted = () => world.events.filter(({ detailType }) => detailType === 'Review Wanted');

it('a later stage waits to be approved, is told of once, and is sent once it is approved', async () => {
  await begin({ price: { amount: 2, currency: 'EUR' } });
  const { upload } = await sendFirst();
  await world.deliverAndTick(20, HOUR);
  expect(await stage()).toMatchObject({ state: 'waiting', reason: 'review', waits: 0 });
  expect(flowCount()).toBe(1);
  const ids = new Set(wanted().map(({ detail }) => JSON.parse(detail).id));
  expect(ids.size).toBe(1);
  expect(JSON.parse(wanted()[0]?.detail ?? '')).toMatchObject({
    ...{ route: 'refined', upload: { id: upload.id }, first: { key: 'a' }, inputCount: 1 },
    price: { amount: 2, currency: 'EUR' },
    approve: expect.stringContaining(`approve ${upload.id}`),
  });
  expect(await world.collect({ approve: [upload.id] })).toEqual([{ upload: upload.id, result: 'approved' }]);
  await world.deliverAndTick(8, 15 * SECOND);
  expect(await stage()).toMatchObject({ state: 'succeeded', review: { approvedAt: expect.any(Number) } });
  expect(flowCount()).toBe(2);
  // A marker that the request put first is deleted when it is due.
  await world.deliverAndTick(2, HOUR);
  expect(await world.keys('ledger', 'waiting/')).toEqual([]);
});

it('a retry takes the place of no approval', async () => {
  await begin();
  const { upload } = await sendFirst();
  expect(await world.collect({ retry: [upload.id] })).toEqual([{ upload: upload.id, result: 'not approved' }]);
  await world.deliverAndTick(8, 15 * SECOND);
  expect(flowCount()).toBe(1);
});

it('an approved upload that failed is sent again without another approval', async () => {
  await begin({ parameters: { fail: true } });
  const { upload } = await sendFirst();
  await world.collect({ approve: [upload.id] });
  await world.deliverAndTick(8, 15 * SECOND);
  expect(await stage()).toMatchObject({ state: 'failed' });
  await world.collect({ retry: [upload.id] });
  await world.deliverAndTick(8, 15 * SECOND);
  expect(flowCount()).toBe(3);
});

it('what nobody approved in time is cancelled, and waits for an approval again if it is retried', async () => {
  await begin({ reviewHours: 2 });
  const { upload } = await sendFirst();
  await world.deliverAndTick(16, 10 * MINUTE);
  expect(await stage()).toMatchObject({
    failure: { code: 'cancelled', message: 'Nobody approved it within 2 hours.' },
  });
  expect(world.count('UploadsFailed')).toBe(0);
  await world.collect({ retry: [upload.id] });
  await world.deliverAndTick(4, 15 * SECOND);
  expect(await stage()).toMatchObject({ state: 'waiting', reason: 'review' });
  expect(flowCount()).toBe(1);
});

it('is not sent without an approval although the invocation died that was to ask for it', async () => {
  await begin({}, { inDoubt: 'retry' });
  const revive = dyingAt(world.ports.ledger, 'putWaitingMarker', 2);
  await world.send('a', 'x');
  await world.deliverAndTick(4, 15 * SECOND);
  revive();
  await world.deliverAndTick(12, 10 * MINUTE);
  expect(flowCount()).toBe(1);
  expect(await stage()).toMatchObject({ state: 'waiting', reason: 'review' });
  expect(wanted()).not.toEqual([]);
});

it.each(['cancel', 'approve'] as const)(
  'a request to %s it is done although its invocation died half-way',
  async (action) => {
    await begin();
    const { upload } = await sendFirst();
    const revive = action === 'cancel' ? dyingAt(world.ports.receipts, 'put') : dyingAt(world.ports.queue, 'send');
    await expect(world.collect({ [action]: [upload.id] })).rejects.toThrow('killed');
    revive();
    await world.deliverAndTick(6, 10 * MINUTE);
    expect(await stage()).toMatchObject({ state: action === 'cancel' ? 'failed' : 'succeeded' });
    expect(await world.receipt(upload.key)).toMatchObject({ upload: { id: upload.id } });
    await world.deliverAndTick(2, HOUR);
    expect(await world.keys('ledger', 'waiting/')).toEqual([]);
  },
);

it('a stage that waited for something else waits to be approved if its route wants that by now', async () => {
  await begin({ review: false });
  await world.send('a', 'x');
  await world.collect({ hold: { action: 'pause', route: 'refined' } });
  await world.deliverAndTick(8, 15 * SECOND);
  expect(await stage()).toMatchObject({ state: 'waiting', reason: 'paused' });
  world.redeploy({ routes: [ECHO, REFINED] });
  await world.collect({ hold: { action: 'resume', route: 'refined' } });
  await world.deliverAndTick(8, 15 * SECOND);
  expect(await stage()).toMatchObject({ state: 'waiting', reason: 'review' });
  expect(flowCount()).toBe(1);
});

it.each([{}, { reviewHours: 2 }])(
  'what waits to be approved is sent after that only, although its route asks for it no more (%j)',
  async (later) => {
    await begin(later);
    const { upload } = await sendFirst();
    world.redeploy({ routes: [ECHO, { ...REFINED, review: undefined }] });
    await world.deliverAndTick(16, 10 * MINUTE);
    expect(await world.collect({ retry: [upload.id] })).toEqual([{ upload: upload.id, result: 'not approved' }]);
    await world.deliverAndTick(16, 10 * MINUTE);
    expect(await stage()).toMatchObject({ state: 'waiting', reason: 'review' });
    expect(flowCount()).toBe(1);
    await world.collect({ approve: [upload.id] });
    await world.deliverAndTick(8, 15 * SECOND);
    expect(await stage()).toMatchObject({ state: 'succeeded' });
    expect(flowCount()).toBe(2);
  },
);

it('what waits to be approved ends if its route is gone when it is approved', async () => {
  await begin();
  const { upload } = await sendFirst();
  world.redeploy({ routes: [ECHO] });
  await world.collect({ approve: [upload.id] });
  await world.deliverAndTick(8, 15 * SECOND);
  expect(await stage()).toMatchObject({ failure: { code: 'unrouted' } });
});

it('the operator can cancel it', async () => {
  await begin();
  const { upload } = await sendFirst();
  expect(await world.collect({ cancel: [upload.id] })).toEqual([{ upload: upload.id, result: 'cancelled' }]);
  expect(await world.collect({ approve: [upload.id] })).toEqual([{ upload: upload.id, result: 'ended already' }]);
});
