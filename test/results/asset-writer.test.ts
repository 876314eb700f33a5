import { getEventListeners } from 'node:events';
import { describe, expect, it } from 'vitest';
import { AssetWriter, PART_BYTES, PartBuffers } from '../../functions/results/asset-writer.ts';
import { RESULTS, start, world } from '../support/world.ts';

const signal = new AbortController().signal;
const BUFFERS = 2;

it('writes more large assets at the same time than there are buffers, each whole', async () => {
  await start();
  const buffers = new PartBuffers(BUFFERS);
  const assets = Array.from({ length: 2 * BUFFERS }, (_, index) => Buffer.alloc(PART_BYTES + index + 1, index + 1));
  await Promise.all(
    assets.map(async (bytes, index) => {
      const target = { Bucket: RESULTS, Key: `${index}`, ContentType: 'application/x-test', Metadata: {} };
      const writer = new AssetWriter({ s3: world.s3, target, bytesMax: undefined, buffers, signal });
      await writer.write(bytes.subarray(0, 1_000_000));
      await writer.write(bytes.subarray(1_000_000));
      expect(await writer.finish()).toBeDefined();
      writer.release();
    }),
  );
  for (const [index, bytes] of assets.entries()) {
    expect((await world.object(RESULTS, `${index}`)).bytes.equals(bytes)).toBe(true);
  }
});

const settled = () => new Promise((resolve) => setImmediate(resolve));

describe('the buffers of parts', () => {
  it('are as many as the limit, and then wait for a release in the order of the calls', async () => {
    const buffers = new PartBuffers(2);
    const [first, second] = await Promise.all([buffers.take(signal), buffers.take(signal)]);
    expect([first?.byteLength, second?.byteLength]).toEqual([PART_BYTES, PART_BYTES]);
    const order: string[] = [];
    const third = buffers.take(signal).then((buffer) => {
      order.push('third');
      return buffer;
    });
    const fourth = buffers.take(signal).then(() => order.push('fourth'));
    await settled();
    expect(order).toEqual([]);
    buffers.release(second);
    expect(await third).toBe(second);
    expect(order).toEqual(['third']);
    buffers.release(first);
    await fourth;
    expect(order).toEqual(['third', 'fourth']);
  });

  it('are reused, unless a request may still read them', async () => {
    const buffers = new PartBuffers(2);
    const kept = await buffers.take(signal);
    const sent = await buffers.take(signal);
    buffers.release(sent);
    expect(await buffers.take(signal)).toBe(sent);
    const waiting = buffers.take(signal);
    buffers.release();
    const fresh = await waiting;
    expect(fresh.byteLength).toBe(PART_BYTES);
    expect(fresh === kept || fresh === sent).toBe(false);
  });

  it('are not waited for after the time is over', async () => {
    const buffers = new PartBuffers(1);
    const held = await buffers.take(signal);
    const controller = new AbortController();
    const late = buffers.take(controller.signal);
    const next = buffers.take(signal);
    controller.abort(new Error('over'));
    await expect(late).rejects.toThrow('over');
    await expect(buffers.take(controller.signal)).rejects.toThrow('over');
    expect(getEventListeners(controller.signal, 'abort')).toEqual([]);
    buffers.release(held);
    expect(await next).toBe(held);
  });
});
