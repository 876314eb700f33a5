import { describe, expect, it } from 'vitest';
import { LEDGER, openWorld } from '../support/world.ts';

const MINUTE = 60_000;
const signal = new AbortController().signal;

describe('the ledger', () => {
  it('finds a flow from before a time, even after the flow ended', async () => {
    const world = await openWorld();
    const { ledger } = world.ports;
    expect(await ledger.hadFlowBefore(world.clock.now(), signal)).toBe(false);

    const before = world.clock.now();
    world.clock.advance(MINUTE);
    await world.send('a.bin');
    world.clock.advance(MINUTE);
    expect(await ledger.hadFlowBefore(before, signal)).toBe(false);
    expect(await ledger.hadFlowBefore(world.clock.now(), signal)).toBe(true);

    await world.settle();
    expect(await ledger.hadFlowBefore(world.clock.now(), signal)).toBe(true);
  });

  it('takes an entry that cannot be read for one of an upload with a flow', async () => {
    const world = await openWorld();
    // Damaged, or written by a newer version.
    for (const body of ['{"schema":1,"st', '{"schema":2}']) {
      await world.put(LEDGER, `uploads/${'a'.repeat(40)}.json`, body);
      expect(await world.ports.ledger.hadFlowBefore(world.clock.now(), signal)).toBe(true);
    }
  });

  it('finds no flow of a refused upload, and reads all pages of the listing: S3 may end a page early', async () => {
    const world = await openWorld({ s3: { keysMax: 1 } });
    const { ledger } = world.ports;
    await world.send('empty.bin', '');
    expect(await ledger.hadFlowBefore(world.clock.now(), signal)).toBe(false);
    await world.put(LEDGER, `uploads/${'f'.repeat(40)}.json`, 'damaged');
    expect(await ledger.hadFlowBefore(world.clock.now(), signal)).toBe(true);
  });

  it('takes a ledger with many entries for one with a flow, however short the pages are', async () => {
    const world = await openWorld({ s3: { keysMax: 5 } });
    const { ledger } = world.ports;
    const uploadEmpty = async (count: number) => {
      for (let number = 1; number <= count; number += 1) await world.upload(`empty-${count}-${number}.bin`, '');
      await world.deliverAll();
    };
    await uploadEmpty(20);
    expect(await ledger.hadFlowBefore(world.clock.now(), signal)).toBe(false);
    await uploadEmpty(1);
    expect(await ledger.hadFlowBefore(world.clock.now(), signal)).toBe(true);
  });
});
