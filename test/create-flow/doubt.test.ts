import { describe, expect, it } from 'vitest';
import { LEDGER, openWorld, type World, type WorldOptions } from '../support/world.ts';

const SECOND = 1_000;
const MINUTE = 60 * SECOND;

const FLOWS_PER_PAGE = { paging: 'cursor', pageSize: 2 } as const;

/** A world with some ended flows, in which the answers to later creations are lost. They have their effect, or none. */
async function doubting(effect: 'made' | 'not made', settings: WorldOptions['settings'] = {}): Promise<World> {
  const world = await openWorld({ isVirtual: true, settings, service: { flowMs: SECOND, variation: FLOWS_PER_PAGE } });
  for (const key of ['1', '2', '3', '4', '5']) await world.upload(key);
  await world.settle();
  world.fault('createFlow', effect === 'made' ? { reset: 'after-effect' } : { status: 500 });
  return world;
}

/** The service answers creations again. The ticks and deliveries of seven minutes follow. */
async function passDelay(world: World): Promise<void> {
  world.service.intercept = undefined;
  await world.deliverAndTick(4, 2 * MINUTE);
}

describe('uploads in doubt', () => {
  it('share searches', async () => {
    const world = await doubting('not made', { uploadConcurrency: 10 });
    const keys = Array.from('abcdefghij');
    for (const key of keys) await world.upload(key);
    await world.deliver();
    const before = world.service.counts.listFlows;
    await passDelay(world);
    // Ten searches of their own would read three pages twice each.
    expect(world.service.counts.listFlows - before).toBeLessThan((10 * 6) / 2);
    await world.settle();
    for (const key of keys) expect((await world.receipt(key)).status).toBe('succeeded');
    expect(world.service.flows).toHaveLength(15);
  });

  it('whose search was under way in an earlier version are searched for anew', async () => {
    const world = await doubting('made');
    await world.send('a');
    const entries = await Promise.all(
      (await world.keys(LEDGER, 'uploads/')).map(async (key) => ({
        key,
        entry: await world.json<object>(LEDGER, key),
      })),
    );
    for (const { key, entry } of entries) {
      if (!('doubt' in entry)) continue;
      const doubt = { ...(entry.doubt as object), place: { kind: 'plain', looks: 3 }, isSearched: true };
      await world.put(LEDGER, key, JSON.stringify({ ...entry, doubt }));
    }
    await passDelay(world);
    await world.settle();
    expect(world.service.flows).toHaveLength(6);
    expect((await world.receipt('a')).status).toBe('succeeded');
  });

  it('are not settled by a listing that was read before the flow had to be listed, however late it comes', async () => {
    let isFrozen = false;
    const world: World = await openWorld({
      isVirtual: true,
      service: { flowMs: SECOND, variation: { listingDelayMs: 3 * MINUTE } },
      transport: (direct) => async (request, signal) => {
        const answer = await direct(request, signal);
        if (request.method === 'GET' && request.url.pathname.endsWith('/flows') && !isFrozen) {
          isFrozen = true;
          world.clock.advance(6 * MINUTE); // The process is frozen after the service has answered.
        }
        return answer;
      },
    });
    world.fault('createFlow', { reset: 'after-effect' }, 1);
    await world.send('a');
    expect(isFrozen).toBe(true);
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'in-doubt' });
    await world.settle();
    expect(world.service.flows).toHaveLength(1);
    expect((await world.receipt('a')).status).toBe('succeeded');
  });
});
