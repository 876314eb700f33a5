import { describe, expect, it, onTestFinished } from 'vitest';
import { LEDGER, World } from '../support/world.ts';

const MINUTE = 60_000;
const signal = new AbortController().signal;

describe('the ledger', () => {
  it('finds a flow from before a time, even after the flow ended', async () => {
    const world = await World.start();
    onTestFinished(() => world.close());
    const { ledger } = world.ports;
    expect(await ledger.hadFlowBefore(world.clock.now(), signal)).toBe(false);

    const before = world.clock.now();
    world.clock.advance(MINUTE);
    await world.upload('a.bin', 'x');
    await world.deliver();
    world.clock.advance(MINUTE);
    expect(await ledger.hadFlowBefore(before, signal)).toBe(false);
    expect(await ledger.hadFlowBefore(world.clock.now(), signal)).toBe(true);

    await world.settle();
    expect(await ledger.hadFlowBefore(world.clock.now(), signal)).toBe(true);
  });

  it('finds no flow of an upload that was refused', async () => {
    const world = await World.start();
    onTestFinished(() => world.close());
    await world.upload('empty.bin', '');
    await world.deliver();
    expect(await world.entry()).toMatchObject({ state: 'failed' });
    expect(await world.ports.ledger.hadFlowBefore(world.clock.now() + MINUTE, signal)).toBe(false);
  });

  it('takes an entry that cannot be read for one of an upload with a flow', async () => {
    const world = await World.start();
    onTestFinished(() => world.close());
    // Damaged, or written by a newer version.
    for (const body of ['{"schema":1,"st', '{"schema":2}']) {
      await world.put(LEDGER, `uploads/${'a'.repeat(40)}.json`, body);
      expect(await world.ports.ledger.hadFlowBefore(world.clock.now(), signal)).toBe(true);
    }
  });
});
