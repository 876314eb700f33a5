import { DeleteObjectCommand } from '@aws-sdk/client-s3';
import { describe, expect, it } from 'vitest';
import { downloadAsset } from '../../functions/flow-service/asset-download.ts';
import { createFlowService } from '../../functions/flow-service/client.ts';
import { httpTransport } from '../../functions/flow-service/http-transport.ts';
import { dyingAt, INBOX, LEDGER, MINUTE, RESULTS, start, TOKEN, type WorldOptions, world } from '../support/world.ts';

const idOf = async (): Promise<string> => (await world.entry()).upload.id;

/** A world with one running upload. Returns the upload's id. */
async function running(options?: WorldOptions): Promise<string> {
  await start(options);
  await world.send('a.png', 'content');
  expect(await world.entry()).toMatchObject({ state: 'running' });
  return idOf();
}

/** A world with one upload that waits, because the token cannot be read. Returns the upload's id. */
async function waiting(): Promise<string> {
  await start();
  world.token = new Error('no token');
  await world.send('a.png', 'content');
  expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'unauthorised' });
  return idOf();
}

/** A world with one upload whose flow has succeeded, and whose only result was deleted. */
async function lost(options?: WorldOptions) {
  const upload = await running(options);
  const [asset = ''] = (await world.settled('a.png')).assets.map(({ key }) => key);
  await world.remove(asset, RESULTS);
  return { upload, content: async () => (await world.object(RESULTS, asset)).bytes.toString() };
}

/** The service forgets the flow. */
const forget = (): void => {
  world.service.intercept = (_, { operation }) =>
    operation === 'getFlow' || operation === 'listOutputs' ? { status: 404 } : undefined;
};

describe('delete', () => {
  it('removes the flow of an ended upload at the service, and changes nothing else', async () => {
    const upload = await running();
    expect(await world.collect({ delete: [upload] })).toEqual([{ upload, result: 'under way' }]);
    await world.settled('a.png');
    const before = await world.entry();
    expect(await world.collect({ delete: [upload] })).toEqual([{ upload, result: 'deleted' }]);
    expect(world.service.flows).toMatchObject([{ deleted: true }]);
    expect(await world.collect({ delete: [upload] })).toEqual([{ upload, result: 'gone' }]);
    expect(await world.entry()).toEqual(before);
    expect(await world.collect({ delete: [upload.replace(/^./, '0')] })).toMatchObject([{ result: 'unknown' }]);
  });

  it('says why a flow stays, also if only the request to delete it is unknown', async () => {
    const upload = await running();
    await world.settled('a.png');
    for (const status of [404, 405, 409, 500, 503]) {
      world.service.intercept = (_, { operation }) => (operation === 'deleteFlow' ? { status } : undefined);
      const [answer] = (await world.collect({ delete: [upload] })) as readonly { readonly why?: string }[];
      expect(answer).toMatchObject({
        upload,
        result: 'not deleted',
        why: expect.stringContaining(`delete: ${status}`),
      });
      expect(JSON.stringify(answer)).not.toContain(TOKEN);
    }
    world.service.intercept = undefined;
    expect(world.service.flows).not.toMatchObject([{ deleted: true }]);
  });

  it('has nothing to do for an upload without a flow', async () => {
    const upload = await waiting();
    await world.collect({ cancel: [upload] });
    expect(await world.collect({ delete: [upload] })).toEqual([{ upload, result: 'without a flow' }]);
  });
});

describe('cancel', () => {
  it('ends a running upload, stops its flow, and leaves a receipt and no marker', async () => {
    const upload = await running();
    expect(await world.collect({ cancel: [upload] })).toEqual([{ upload, result: 'cancelled', isAborted: true }]);
    expect(world.service.flows).toMatchObject([{ state: expect.stringMatching(/^abort/) }]);
    expect(await world.receipt('a.png')).toMatchObject({ status: 'failed', failure: { code: 'cancelled' } });
    expect(await world.keys(LEDGER, 'running/')).toEqual([]);
    expect(await world.keys(LEDGER, 'failed/')).toHaveLength(1);
    await world.tickAfter(10 * MINUTE);
    expect(await world.entry()).toMatchObject({ state: 'failed', failure: { code: 'cancelled' } });
  });

  it('ends a waiting upload, which is never sent', async () => {
    const upload = await waiting();
    expect(await world.collect({ cancel: [upload] })).toMatchObject([{ result: 'cancelled' }]);
    world.token = TOKEN;
    world.clock.advance(60 * MINUTE);
    await world.settle();
    expect(world.service.flows).toEqual([]);
    expect(await world.keys(LEDGER, 'waiting/')).toEqual([]);
  });

  it('of many changes all others although two cannot be changed, and says how many', async () => {
    await start();
    const keys = ['a.png', 'b.png', 'c.png'];
    for (const key of keys) await world.send(key);
    const ids = (await world.entries()).map(({ upload }) => upload.id);
    for (const id of ids.slice(0, 2)) await world.put(LEDGER, `uploads/${id}.json`, '{');
    await expect(world.collect({ cancel: ids })).rejects.toThrow('2 of 3 uploads failed: UnreadableEntryError');
    const receipts = await world.keys(RESULTS);
    expect(receipts).toEqual([expect.stringMatching(/receipt\.json$/)]);
  });

  it('says that a flow may exist, if a request got no answer', async () => {
    await start();
    world.fault('createFlow', { status: 500 });
    await world.send('a.png', 'content');
    expect(await world.collect({ cancel: [await idOf()] })).toMatchObject([{ result: 'cancelled', isInDoubt: true }]);
    expect((await world.receipt('a.png')).failure?.message).toContain('look for it at the service');
  });

  it('still ends the upload if the service cannot stop the flow', async () => {
    const upload = await running({ service: { variation: { changeFlow: 405 } } });
    expect(await world.collect({ cancel: [upload] })).toEqual([{ upload, result: 'cancelled', isAborted: false }]);
  });

  it('leaves what has ended, and says so of what is unknown', async () => {
    const upload = await running();
    await world.collect({ cancel: [upload] });
    const { length } = world.events;
    const unknown = 'ab'.repeat(20);
    expect(await world.collect({ cancel: [upload, unknown] })).toEqual([
      { upload, result: 'ended already' },
      { upload: unknown, result: 'unknown' },
    ]);
    expect(world.events).toHaveLength(length);
  });

  it('is told although its invocation died before the receipt', async () => {
    const upload = await waiting();
    const revive = dyingAt(world.ports.receipts, 'put');
    await expect(world.collect({ cancel: [upload] })).rejects.toThrow('killed');
    revive();
    world.clock.advance(60 * MINUTE);
    expect(await world.settled('a.png')).toMatchObject({ status: 'failed', failure: { code: 'cancelled' } });
    expect(world.service.flows).toEqual([]);
  });

  it('is told although its invocation died before the receipt, while the upload is held in the line', async () => {
    await start();
    await world.collect({ hold: { action: 'pause' } });
    await world.send('a.png', 'content');
    expect((await world.keys(LEDGER, 'waiting/')).join()).toContain('/live');
    const revive = dyingAt(world.ports.receipts, 'put');
    await expect(world.collect({ cancel: [await idOf()] })).rejects.toThrow('killed');
    revive();
    for (let ticks = 0; ticks < 4; ticks += 1) {
      await world.tickAfter(10 * MINUTE);
      await world.deliverAll();
    }
    expect(await world.receipt('a.png')).toMatchObject({ status: 'failed', failure: { code: 'cancelled' } });
  });

  it('is told although both its invocation and the one that made the flow died', async () => {
    await start();
    const put = dyingAt(world.ports.ledger, 'putRunningMarker');
    await world.send('a.png', 'content').catch(() => {});
    put();
    expect(await world.keys(LEDGER, 'running/')).toEqual([]);
    const publish = dyingAt(world.ports.receipts, 'put');
    await expect(world.collect({ cancel: [await idOf()] })).rejects.toThrow('killed');
    publish();
    await world.tickAfter(MINUTE);
    expect(await world.receipt('a.png')).toMatchObject({ status: 'failed', failure: { code: 'cancelled' } });
  });

  it('keeps the assets that were stored before it', async () => {
    const upload = await running();
    const object = { bucket: RESULTS, key: 'a.png/f/1.png', etag: 'e' };
    const assets = [{ ...object, id: '1', bytes: 1, mediaType: 'image/png', sha256: '0'.repeat(64) }];
    await world.put(LEDGER, `uploads/${upload}.json`, JSON.stringify({ ...(await world.entry()), assets }));
    await world.collect({ cancel: [upload] });
    expect(await world.receipt('a.png')).toMatchObject({ failure: { code: 'cancelled' }, assets });
  });

  it('leaves an upload that another invocation changes meanwhile', async () => {
    const upload = await running();
    world.ports.ledger.replace = async () => ({ won: false, current: undefined });
    expect(await world.collect({ cancel: [upload] })).toEqual([{ upload, result: 'being sent' }]);
    expect(world.service.flows).toMatchObject([{ aborted: false }]);
    expect(world.events).toEqual([]);
  });
});

describe('collect', () => {
  it('fetches a deleted result again, without a new flow', async () => {
    const { upload, content } = await lost();
    expect(await world.collect({ collect: [upload] })).toEqual([{ upload, result: 'begun' }]);
    await world.settle();
    expect(await content()).toBe('content');
    expect(await world.receipt('a.png')).toMatchObject({ status: 'succeeded', generation: 1 });
    expect(world.service.flows).toHaveLength(1);
  });

  it('gives the receipt back to an upload that is current again, because a newer one was deleted', async () => {
    const upload = await running();
    await world.settle();
    world.clock.advance(10 * MINUTE);
    await world.send('a.png', 'newer');
    const newer = (await world.settled('a.png')).upload;
    expect(newer.id).not.toBe(upload);
    world.clock.advance(30 * MINUTE);
    await world.s3.send(new DeleteObjectCommand({ Bucket: INBOX, Key: 'a.png', VersionId: newer.versionId }));
    await world.collect({ collect: [newer.id] });
    expect((await world.settled('a.png')).upload.id).toBe(newer.id);
    await world.collect({ collect: [upload] });
    expect((await world.settled('a.png')).upload.id).toBe(upload);
  });

  it('keeps the results that are there, although the service has forgotten the flow', async () => {
    const upload = await running();
    const { assets } = await world.settled('a.png');
    forget();
    await world.collect({ collect: [upload] });
    for (let i = 0; i < 5; i += 1) await world.tickAfter(10 * MINUTE);
    expect(await world.entry()).toMatchObject({ assets });
  });

  it('fetches the results of a flow whose upload failed', async () => {
    const upload = await running({ settings: { attemptsMax: 1 } });
    world.fault('getAsset', { status: 403 });
    for (let i = 0; i < 8; i += 1) await world.tickAfter(10 * MINUTE).catch(() => {});
    expect(await world.entry()).toMatchObject({ state: 'failed' });
    world.service.intercept = undefined;
    expect(await world.collect({ collect: [upload] })).toEqual([{ upload, result: 'begun' }]);
    expect(await world.keys(LEDGER, 'failed/')).toEqual([]);
    expect(await world.settled('a.png')).toMatchObject({ status: 'succeeded', generation: 1 });
    expect(world.service.flows).toHaveLength(1);
  });

  it('goes on if the previous end is still being published', async () => {
    const upload = await running();
    const { events } = world.ports;
    const { send } = events;
    const [publishing, held] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    events.send = async (event, signal) => {
      events.send = send;
      publishing.resolve();
      await held.promise;
      return send(event, signal);
    };
    const ending = world.tickAfter(2 * MINUTE);
    await publishing.promise;
    expect(await world.collect({ collect: [upload] })).toEqual([{ upload, result: 'begun' }]);
    held.resolve();
    await ending;
    await world.tickAfter(2 * MINUTE);
    expect(await world.entry()).toMatchObject({ state: 'succeeded' });
    expect(await world.keys(LEDGER, 'running/')).toEqual([]);
  });

  it('publishes the previous end first, if that was not done', async () => {
    const upload = await running();
    const revive = dyingAt(world.ports.events, 'send');
    await world.tickAfter(2 * MINUTE).catch(() => {});
    expect(await world.entry()).toMatchObject({ state: 'succeeded' });
    expect(world.events).toEqual([]);
    revive();
    expect(await world.collect({ collect: [upload] })).toEqual([{ upload, result: 'begun' }]);
    expect(world.events).toHaveLength(1);
    expect(await world.keys(LEDGER, 'running/')).toHaveLength(1);
  });

  it('goes on under its new marker alone if an old one comes back', async () => {
    const upload = await running();
    const [old = ''] = await world.keys(LEDGER, 'running/');
    const [asset = ''] = (await world.settled('a.png')).assets.map(({ key }) => key);
    await world.remove(asset, RESULTS);
    world.clock.advance(MINUTE);
    await world.collect({ collect: [upload] });
    const [own = ''] = await world.keys(LEDGER, 'running/');
    expect(own).not.toBe(old);
    await world.remove(own, LEDGER);
    await world.put(LEDGER, old, '');
    await world.tick();
    expect(await world.keys(LEDGER, 'running/')).toEqual([own]);
    await world.tickAfter(2 * MINUTE);
    expect(await world.entry()).toMatchObject({ state: 'succeeded' });
    expect((await world.object(RESULTS, asset)).bytes.toString()).toBe('content');
  });

  it('needs two new polls that agree', async () => {
    const upload = await running();
    world.ports.flows.outputs = async () => [];
    for (let i = 0; i < 3; i += 1) await world.tickAfter(2 * MINUTE);
    expect(await world.entry()).toMatchObject({ state: 'failed', failure: { code: 'no-outputs' } });
    await world.collect({ collect: [upload] });
    await world.tickAfter(3 * MINUTE);
    expect(await world.entry()).toMatchObject({ state: 'running' });
  });

  it('ends soon if a service with no other flow has forgotten an old one', async () => {
    const upload = await running({ isVirtual: false });
    await world.settle();
    world.clock.advance(30 * 24 * 60 * MINUTE);
    // A new process has not seen that the service knows this address.
    const { clock, ports } = world;
    const token = { get: async () => TOKEN, renew: async () => TOKEN };
    const transport = httpTransport({ clock });
    world.ports = {
      ...ports,
      flows: createFlowService({ download: downloadAsset, ...ports.settings, clock, token, transport }),
    };
    forget();
    await world.collect({ collect: [upload] });
    await world.tickAfter(MINUTE);
    await world.tickAfter(10 * MINUTE);
    expect(await world.entry()).toMatchObject({ state: 'succeeded' });
  });

  it.each([
    ['flow', 'getFlow', 400],
    ['asset', 'getAsset', 503],
  ])('gives an old flow its full time again, even if a request for its %s fails', async (_, refused, status) => {
    const { upload, content } = await lost({ settings: { flowAgeMaxSeconds: 3600 } });
    world.clock.advance(180 * MINUTE);
    await world.collect({ collect: [upload] });
    world.service.intercept = (_, { operation }) => (operation === refused ? { status } : undefined);
    await world.tickAfter(MINUTE);
    expect(await world.entry()).toMatchObject({ state: 'running' });
    world.service.intercept = undefined;
    await world.settle();
    expect(await content()).toBe('content');
  });

  it('goes on although its invocation died before it put the marker of the flow', async () => {
    const { upload, content } = await lost();
    const revive = dyingAt(world.ports.ledger, 'putRunningMarker');
    await expect(world.collect({ collect: [upload] })).rejects.toThrow('killed');
    revive();
    expect(await world.entry()).toMatchObject({ state: 'running' });
    expect(await world.keys(LEDGER, 'running/')).toEqual([]);
    await world.tickAfter(20 * MINUTE);
    await world.settle();
    expect(await content()).toBe('content');
  });

  it('never fetches results that may be those of another upload', async () => {
    const upload = await running();
    await world.settle();
    const failure = { code: 'timed-out', message: 'too old' };
    const shared = { ...(await world.entry()), failure, isShared: true, state: 'failed', isTold: true, assets: [] };
    await world.put(LEDGER, `uploads/${upload}.json`, JSON.stringify(shared));
    expect(await world.collect({ collect: [upload] })).toEqual([{ upload, result: 'shared' }]);
  });

  it('leaves what is under way, and what never had a flow', async () => {
    const upload = await running();
    expect(await world.collect({ collect: [upload] })).toEqual([{ upload, result: 'under way' }]);
    await start();
    await world.send('empty.png', '');
    const empty = await idOf();
    expect(await world.collect({ collect: [empty] })).toEqual([{ upload: empty, result: 'without a flow' }]);
  });
});
