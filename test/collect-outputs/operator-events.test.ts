import { DeleteObjectCommand } from '@aws-sdk/client-s3';
import { describe, expect, it } from 'vitest';
import { collect } from '../../functions/collect-outputs/collect-outputs.ts';
import { LEDGER, openWorld, RESULTS, type World } from '../support/world.ts';

const MINUTE = 60_000;

const ask = (world: World, event: object) => world.invoke((invocation) => collect(event, world.ports, invocation));
const idOf = async (world: World): Promise<string> => (await world.entry()).upload.id;

async function running(world: World): Promise<string> {
  await world.upload('a.png', 'content');
  await world.deliver();
  expect(await world.entry()).toMatchObject({ state: 'running' });
  return idOf(world);
}

describe('cancel', () => {
  it('ends a running upload, stops its flow, and leaves a receipt and no marker', async () => {
    const world = await openWorld();
    const upload = await running(world);
    expect(await ask(world, { cancel: [upload] })).toEqual([{ upload, result: 'cancelled', isAborted: true }]);
    expect(world.service.flows).toMatchObject([{ state: expect.stringMatching(/^abort/) }]);
    expect(await world.receipt('a.png')).toMatchObject({ status: 'failed', failure: { code: 'cancelled' } });
    expect(await world.keys(LEDGER, 'running/')).toEqual([]);
    expect(await world.keys(LEDGER, 'failed/')).toHaveLength(1);
    world.clock.advance(10 * MINUTE);
    await world.tick();
    expect(await world.entry()).toMatchObject({ state: 'failed', failure: { code: 'cancelled' } });
  });

  it('ends a waiting upload, which is never sent', async () => {
    const world = await openWorld();
    world.token = new Error('no token');
    await world.upload('a.png', 'content');
    await world.deliver();
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'unauthorised' });
    expect(await ask(world, { cancel: [await idOf(world)] })).toMatchObject([{ result: 'cancelled' }]);
    world.token = 'obviously-fake-token';
    world.clock.advance(60 * MINUTE);
    await world.settle();
    expect(world.service.flows).toEqual([]);
    expect(await world.keys(LEDGER, 'waiting/')).toEqual([]);
  });

  it('says that a flow may exist, if a request got no answer', async () => {
    const world = await openWorld();
    world.service.intercept = (_, { operation }) => (operation === 'createFlow' ? { status: 500 } : undefined);
    await world.upload('a.png', 'content');
    await world.deliver();
    expect(await ask(world, { cancel: [await idOf(world)] })).toMatchObject([{ result: 'cancelled', isInDoubt: true }]);
    expect((await world.receipt('a.png')).failure?.message).toContain('look for it at the service');
  });

  it('still ends the upload if the service cannot stop the flow', async () => {
    const world = await openWorld({ service: { variation: { changeFlow: 405 } } });
    const upload = await running(world);
    expect(await ask(world, { cancel: [upload] })).toEqual([{ upload, result: 'cancelled', isAborted: false }]);
  });

  it('leaves what has ended, and says so of what is unknown', async () => {
    const world = await openWorld();
    const upload = await running(world);
    await world.settle();
    const unknown = 'ab'.repeat(20);
    expect(await ask(world, { cancel: [upload, unknown] })).toEqual([
      { upload, result: 'ended already' },
      { upload: unknown, result: 'unknown' },
    ]);
  });

  it('is told although its invocation died before the receipt', async () => {
    const world = await openWorld();
    world.token = new Error('no token');
    await world.upload('a.png', 'content');
    await world.deliver();
    const { receipts } = world.ports;
    const put = receipts.put;
    receipts.put = () => Promise.reject(new Error('killed'));
    await expect(ask(world, { cancel: [await idOf(world)] })).rejects.toThrow('killed');
    receipts.put = put;
    world.clock.advance(60 * MINUTE);
    await world.settle();
    expect(await world.receipt('a.png')).toMatchObject({ status: 'failed', failure: { code: 'cancelled' } });
    expect(world.service.flows).toEqual([]);
  });

  it('changes nothing the second time', async () => {
    const world = await openWorld();
    const upload = await running(world);
    await ask(world, { cancel: [upload] });
    const { length } = world.events;
    expect(await ask(world, { cancel: [upload] })).toEqual([{ upload, result: 'ended already' }]);
    expect(world.events).toHaveLength(length);
  });
});

describe('collect', () => {
  it('fetches a deleted result again, without a new flow', async () => {
    const world = await openWorld();
    const upload = await running(world);
    await world.settle();
    const [asset = ''] = (await world.receipt('a.png')).assets.map(({ key }) => key);
    await world.s3.send(new DeleteObjectCommand({ Bucket: RESULTS, Key: asset }));
    expect(await ask(world, { collect: [upload] })).toEqual([{ upload, result: 'begun' }]);
    await world.settle();
    expect((await world.object(RESULTS, asset)).bytes.toString()).toBe('content');
    expect(await world.receipt('a.png')).toMatchObject({ status: 'succeeded', generation: 1 });
    expect(world.service.flows).toHaveLength(1);
  });

  it('keeps the results that are there, although the service has forgotten the flow', async () => {
    const world = await openWorld();
    const upload = await running(world);
    await world.settle();
    const { assets } = await world.receipt('a.png');
    world.service.intercept = (_, { operation }) =>
      operation === 'getFlow' || operation === 'listOutputs' ? { status: 404 } : undefined;
    await ask(world, { collect: [upload] });
    for (let i = 0; i < 5; i += 1) {
      world.clock.advance(10 * MINUTE);
      await world.tick();
    }
    expect(await world.entry()).toMatchObject({ assets });
  });

  it('fetches the results of a flow whose upload failed', async () => {
    const world = await openWorld({ settings: { attemptsMax: 1 } });
    world.service.intercept = (_, { operation }) => (operation === 'getAsset' ? { status: 403 } : undefined);
    const upload = await running(world);
    for (let i = 0; i < 8; i += 1) {
      world.clock.advance(10 * MINUTE);
      await world.tick().catch(() => {});
    }
    expect(await world.entry()).toMatchObject({ state: 'failed' });
    world.service.intercept = undefined;
    expect(await ask(world, { collect: [upload] })).toEqual([{ upload, result: 'begun' }]);
    expect(await world.keys(LEDGER, 'failed/')).toEqual([]);
    await world.settle();
    expect(await world.receipt('a.png')).toMatchObject({ status: 'succeeded', generation: 1 });
    expect(world.service.flows).toHaveLength(1);
  });

  it('goes on although its invocation died before it put the marker of the flow', async () => {
    const world = await openWorld();
    const upload = await running(world);
    await world.settle();
    const [asset = ''] = (await world.receipt('a.png')).assets.map(({ key }) => key);
    await world.s3.send(new DeleteObjectCommand({ Bucket: RESULTS, Key: asset }));
    const { ledger } = world.ports;
    const put = ledger.putRunningMarker;
    ledger.putRunningMarker = () => Promise.reject(new Error('killed'));
    await expect(ask(world, { collect: [upload] })).rejects.toThrow('killed');
    ledger.putRunningMarker = put;
    expect(await world.entry()).toMatchObject({ state: 'running' });
    expect(await world.keys(LEDGER, 'running/')).toEqual([]);
    world.clock.advance(20 * MINUTE);
    await world.tick();
    await world.settle();
    expect((await world.object(RESULTS, asset)).bytes.toString()).toBe('content');
  });

  it('never fetches results that may be those of another upload', async () => {
    const world = await openWorld();
    const upload = await running(world);
    await world.settle();
    const entry = await world.entry();
    const failure = { code: 'flow-shared', message: 'shared' };
    const shared = { ...entry, state: 'failed', failure, isTold: true, assets: [] };
    await world.put(LEDGER, `uploads/${upload}.json`, JSON.stringify(shared));
    expect(await ask(world, { collect: [upload] })).toEqual([{ upload, result: 'shared' }]);
  });

  it('leaves what is under way, and what never had a flow', async () => {
    const world = await openWorld();
    const upload = await running(world);
    expect(await ask(world, { collect: [upload] })).toEqual([{ upload, result: 'under way' }]);
    const other = await openWorld();
    await other.upload('empty.png', '');
    await other.deliver();
    const empty = await idOf(other);
    expect(await ask(other, { collect: [empty] })).toEqual([{ upload: empty, result: 'without a flow' }]);
  });
});
