import { expect, it } from 'vitest';
import { AssetWriter } from '../../functions/results/asset-writer.ts';
import { Garbage } from '../../functions/results/garbage.ts';
import { PART_BYTES, PartBuffers } from '../../functions/results/part-buffers.ts';
import { openWorld, RESULTS } from '../support/world.ts';

const signal = new AbortController().signal;
const BUFFERS = 2;

it('writes more large assets at the same time than there are buffers, each whole', async () => {
  const world = await openWorld();
  const buffers = new PartBuffers(BUFFERS);
  const garbage = new Garbage();
  const assets = Array.from({ length: 2 * BUFFERS }, (_, index) => Buffer.alloc(PART_BYTES + index + 1, index + 1));
  await Promise.all(
    assets.map(async (bytes, index) => {
      const target = { Bucket: RESULTS, Key: `${index}`, ContentType: 'application/x-test', Metadata: {} };
      const writer = new AssetWriter({ s3: world.s3, target, bytesMax: undefined, buffers, garbage, signal });
      await writer.write(bytes.subarray(0, 1_000_000));
      await writer.write(bytes.subarray(1_000_000));
      expect(await writer.finish()).toBe('stored');
      writer.release();
    }),
  );
  for (const [index, bytes] of assets.entries()) {
    expect((await world.object(RESULTS, `${index}`)).bytes.equals(bytes)).toBe(true);
  }
});
