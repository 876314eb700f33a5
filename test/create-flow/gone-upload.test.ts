import { DeleteObjectCommand } from '@aws-sdk/client-s3';
import { describe, expect, it } from 'vitest';
import { dyingAt, INBOX, MINUTE, start, world } from '../support/world.ts';

// A message may come again after its object was deleted or replaced. If the upload has an entry, the entry settles it.

/** The invocation dies after the service has made the flow. */
async function dieAfterCreation(key: string): Promise<void> {
  const revive = dyingAt(world.ports.ledger, 'replace');
  await world.send(key, 'x');
  revive();
  expect(await world.entry()).toMatchObject({ state: 'claimed' });
  expect(world.service.flows).toHaveLength(1);
}

/** Deletes the object for good. */
async function destroy(): Promise<void> {
  const { key, versionId } = (await world.entry()).upload;
  await world.s3.send(new DeleteObjectCommand({ Bucket: INBOX, Key: key, VersionId: versionId }));
}

describe.each([undefined, 'Enabled'] as const)('in a bucket whose versioning is %s', (versioning) => {
  it('an upload that was deleted after it was sent succeeds within half an hour', async () => {
    await start({ versioning });
    await dieAfterCreation('a');
    await destroy();
    for (let minute = 0; minute < 30; minute += 1) {
      world.clock.advance(MINUTE);
      await world.deliverAll();
      await world.tick();
    }
    expect(await world.receipt('a')).toMatchObject({ status: 'succeeded' });
    expect(world.service.flows).toHaveLength(1);
  });
});

it('an upload that was replaced after it was sent is settled beside the new one', async () => {
  await start({ versioning: undefined });
  await dieAfterCreation('a');
  world.clock.advance(2 * MINUTE);
  await world.upload('a', 'another');
  for (let minute = 0; minute < 30; minute += 1) {
    world.clock.advance(MINUTE);
    await world.deliverAll();
    await world.tick();
  }
  expect((await world.entries()).map(({ state }) => state)).toEqual(['succeeded', 'succeeded']);
  expect(world.service.flows).toHaveLength(2);
});

it('an error of S3 while the holds are read is told as that, and is no hold', async () => {
  await start();
  world.beforeS3((call, { Key }) => {
    if (call === 'GetObject' && Key === 'state/holds.json')
      throw Object.assign(new Error('Slow down'), { name: 'SlowDown' });
  });
  await world.send('a', 'x');
  const entry = await world.entry();
  expect(entry).toMatchObject({ state: 'waiting', reason: 'unavailable', attempts: 0 });
  expect(entry).toMatchObject({ message: expect.stringContaining('Slow down') });
  expect(world.service.counts.createFlow).toBe(0);
});
