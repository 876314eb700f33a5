import { DeleteObjectCommand } from '@aws-sdk/client-s3';
import { describe, expect, it, onTestFinished } from 'vitest';
import { retryUploads } from '../../functions/resubmit/retry.ts';
import { LEDGER, World } from '../support/world.ts';

const HOUR = 60 * 60_000;
const signal = new AbortController().signal;

async function worldWithFailure(before: (world: World) => Promise<unknown> = async () => {}): Promise<World> {
  const world = await World.start();
  onTestFinished(() => world.close());
  await before(world);
  world.service.intercept = (_, { operation }) => (operation === 'createFlow' ? { status: 422 } : undefined);
  await world.upload('a.png', 'x');
  await world.deliver();
  world.service.intercept = undefined;
  return world;
}

const markers = (world: World): Promise<readonly string[]> => world.keys(LEDGER, 'failed/');

/** The key, written out as the design has it. */
async function markerOfEntry(world: World): Promise<string> {
  const entry = await world.entry();
  if (entry.state !== 'failed') throw new Error(`The entry is ${entry.state}`);
  return `failed/${new Date(entry.endedAt).toISOString()}/${entry.upload.id}`;
}

describe('the marker of a failure', () => {
  it('is put for an upload that the service refuses', async () => {
    const world = await worldWithFailure();
    expect(await markers(world)).toEqual([await markerOfEntry(world)]);
  });

  it('is put for a flow that fails, before the marker of the running flow is gone', async () => {
    const world = await World.start({
      routes: [{ name: 'all', input: 'file', template: 'bytes_echo', parameters: { fail: true } }],
    });
    onTestFinished(() => world.close());
    await world.upload('a.png', 'x');
    await world.settle();
    expect(await markers(world)).toEqual([await markerOfEntry(world)]);
    expect(await world.keys(LEDGER, 'running/')).toEqual([]);
  });

  it('is put for no upload that succeeds', async () => {
    const world = await World.start();
    onTestFinished(() => world.close());
    await world.upload('a.png', 'x');
    await world.settle();
    expect(await world.entry()).toMatchObject({ state: 'succeeded' });
    expect(await markers(world)).toEqual([]);
  });

  it('is removed by a retry', async () => {
    const world = await worldWithFailure();
    await retryUploads([(await world.entry()).upload.id], world.ports, signal);
    expect(await markers(world)).toEqual([]);
    await world.settle();
    expect(await world.entry()).toMatchObject({ state: 'succeeded' });
    expect(await markers(world)).toEqual([]);
  });

  it('is put again by the sweep, which sends no second event for it', async () => {
    const world = await worldWithFailure((begun) => begun.sweep());
    const [Key = ''] = await markers(world);
    const eventCount = world.events.length;
    await world.s3.send(new DeleteObjectCommand({ Bucket: LEDGER, Key }));
    world.clock.advance(HOUR);
    expect(await world.sweep()).toMatchObject({ complete: true, repaired: 1 });
    expect(await markers(world)).toEqual([Key]);
    expect(world.events).toHaveLength(eventCount);
  });
});
