import { DeleteObjectCommand } from '@aws-sdk/client-s3';
import { afterEach, describe, expect, it } from 'vitest';
import { LEDGER, World } from '../support/world.ts';

let world: World | undefined;
afterEach(() => world?.close());

describe('the marker of a wait that is over', () => {
  it('is replaced by the missing marker of the flow that the upload has by now', async () => {
    world = await World.start();
    await world.upload('a', 'hello');
    await world.deliver();
    const [running = ''] = await world.keys(LEDGER, 'running/');
    const { upload } = await world.entry();
    await world.s3.send(new DeleteObjectCommand({ Bucket: LEDGER, Key: running }));
    const due = { uploadId: upload.id, notBefore: world.clock.now() - 1 };
    await world.ports.ledger.putWaitingMarker(due, new AbortController().signal);

    await world.tick();

    expect(await world.keys(LEDGER, 'running/')).toEqual([running]);
    expect(await world.keys(LEDGER, 'waiting/')).toEqual([]);
  });
});

describe('an entry that cannot be read', () => {
  const damaged = async (count: number) => {
    const ids = Array.from({ length: count }, (_, index) => index.toString(16).padStart(40, '0'));
    const notBefore = (world as World).clock.now() - 60_000;
    await Promise.all(
      ids.map(async (uploadId) => {
        await world?.put(LEDGER, `uploads/${uploadId}.json`, '{"schema":99}');
        await world?.ports.ledger.putWaitingMarker({ uploadId, notBefore }, new AbortController().signal);
      }),
    );
  };

  it('is skipped, counted and postponed for an hour, and the tick goes on', async () => {
    world = await World.start();
    await damaged(2);
    expect(await world.tick()).toMatchObject({ result: 'completed', resubmitted: 0 });
    expect(world.count('EntriesUnreadable')).toBe(2);
    expect(world.logged.filter(({ level }) => level === 'error')).toHaveLength(2);
    await world.tick();
    expect(world.count('EntriesUnreadable')).toBe(2);
    expect(await world.keys(LEDGER, 'waiting/')).toHaveLength(2);
    world.clock.advance(61 * 60_000);
    await world.tick();
    expect(world.count('EntriesUnreadable')).toBe(4);
  });
});
