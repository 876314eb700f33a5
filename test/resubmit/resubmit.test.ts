import { beforeEach, describe, expect, it } from 'vitest';
import { LEDGER, openWorld, type World } from '../support/world.ts';

let world: World;
beforeEach(async () => {
  world = await openWorld();
});

describe('the marker of a wait that is over', () => {
  it('is replaced by the missing marker of the flow that the upload has by now', async () => {
    await world.send('a', 'hello');
    const [running = ''] = await world.keys(LEDGER, 'running/');
    const { upload } = await world.entry();
    await world.remove(running, LEDGER);
    const due = { uploadId: upload.id, notBefore: world.clock.now() - 1 };
    await world.ports.ledger.putWaitingMarker(due, new AbortController().signal);

    await world.tick();

    expect(await world.keys(LEDGER, 'running/')).toEqual([running]);
    expect(await world.keys(LEDGER, 'waiting/')).toEqual([]);
  });
});

describe('an entry that cannot be read', () => {
  it('is skipped, counted and postponed for an hour, and the tick goes on', async () => {
    for (const uploadId of ['0'.repeat(40), '1'.repeat(40)]) {
      await world.put(LEDGER, `uploads/${uploadId}.json`, '{"schema":99}');
      const notBefore = world.clock.now() - 60_000;
      await world.ports.ledger.putWaitingMarker({ uploadId, notBefore }, new AbortController().signal);
    }
    expect(await world.tick()).toMatchObject({ result: 'completed', resubmitted: 0 });
    expect(world.count('EntriesUnreadable')).toBe(2);
    expect(world.logged.filter(({ level }) => level === 'error')).toHaveLength(2);
    await world.tick();
    expect(world.count('EntriesUnreadable')).toBe(2);
    expect(await world.keys(LEDGER, 'waiting/')).toHaveLength(2);
    await world.tickAfter(61 * 60_000);
    expect(world.count('EntriesUnreadable')).toBe(4);
  });
});
