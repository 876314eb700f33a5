import { describe, expect, it } from 'vitest';
import { answer, HOUR, MINUTE, start, world } from '../support/world.ts';

// A gateway may answer 403 to a revoked key. That is about the token, and no file must pay for it.

const FORBIDDEN = answer({ message: 'Forbidden' }, 403);

async function next(times: number, ms: number): Promise<void> {
  for (let time = 0; time < times; time += 1) {
    world.clock.advance(ms);
    await world.collect();
    await world.deliverAll();
  }
}

describe('a gateway that answers 403 to everything', () => {
  it.each(['retry', 'hold'] as const)(
    'keeps files waiting for the token, uncounted, with inDoubt %s',
    async (inDoubt) => {
      await start({ settings: { inDoubt } });
      world.service.intercept = () => FORBIDDEN;
      await world.send('a', 'x');
      await next(30, HOUR);
      const entry = await world.entry();
      expect(entry).toMatchObject({ state: 'waiting', reason: 'unauthorised', attempts: 0 });
      expect(entry).toMatchObject({ message: expect.stringContaining('403: Forbidden') });
      expect(entry.doubt).toBeUndefined();
      expect(world.count('TokenRejected')).toBeGreaterThan(0);
      world.service.intercept = undefined;
      await next(2, HOUR);
      expect((await world.settled('a')).status).toBe('succeeded');
      expect(world.service.flows).toHaveLength(1);
    },
  );

  it('fails no flow that runs, and no asset of it', async () => {
    await start();
    await world.send('a', 'x');
    world.service.intercept = () => FORBIDDEN;
    await next(20, 5 * MINUTE);
    expect(await world.entry()).toMatchObject({ state: 'running', attempts: 0 });
    world.service.intercept = undefined;
    await next(3, 15 * MINUTE);
    expect((await world.settled('a')).status).toBe('succeeded');
  });
});

it.each([
  ['the listing of flows is served', ['createFlow', 'listTemplates']],
  ['the listing of templates is served', ['createFlow', 'listFlows']],
])('a 403 is about the file if %s, and its end quotes the last answer', async (_, refused) => {
  await start({ settings: { attemptsMax: 2 } });
  world.service.intercept = (_, { operation }) => (refused.includes(operation) ? FORBIDDEN : undefined);
  await world.send('a', 'x');
  await next(12, HOUR);
  expect(await world.receipt('a')).toMatchObject({
    status: 'failed',
    failure: { code: 'attempts-exhausted', message: expect.stringContaining('403: Forbidden') },
  });
});
