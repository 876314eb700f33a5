import { describe, expect, it } from 'vitest';
import { ECHO, LEDGER, openWorld, type World } from '../support/world.ts';

const HOUR = 60 * 60_000;

async function worldWithFailure(before: (world: World) => Promise<unknown> = async () => {}): Promise<World> {
  const world = await openWorld({ isVirtual: true });
  await before(world);
  world.fault('createFlow', { status: 422 });
  await world.send('a.png');
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
  it('is put for a flow that fails, before the marker of the running flow is gone', async () => {
    const world = await openWorld({ isVirtual: true, routes: [{ ...ECHO, parameters: { fail: true } }] });
    await world.upload('a.png', 'x');
    await world.settle();
    expect(await markers(world)).toEqual([await markerOfEntry(world)]);
    expect(await world.keys(LEDGER, 'running/')).toEqual([]);
  });

  it('is removed by a retry', async () => {
    const world = await worldWithFailure();
    await world.retry();
    expect(await markers(world)).toEqual([]);
    await world.settle();
    expect(await world.entry()).toMatchObject({ state: 'succeeded' });
    expect(await markers(world)).toEqual([]);
  });

  it('is put again by the sweep, which sends no second event for it', async () => {
    const world = await worldWithFailure((begun) => begun.sweep());
    const [Key = ''] = await markers(world);
    const eventCount = world.events.length;
    await world.remove(Key, LEDGER);
    world.clock.advance(HOUR);
    expect(await world.sweep()).toMatchObject({ complete: true, repaired: 1 });
    expect(await markers(world)).toEqual([Key]);
    expect(world.events).toHaveLength(eventCount);
  });
});
