import { describe, expect, it } from 'vitest';
import { openWorld, type World, type WorldOptions } from '../support/world.ts';

const MINUTE = 60_000;

/** Calls `onRead` for each read of an entry. */
const watchingReads = (onRead: () => void): WorldOptions['s3'] => ({
  authorize: ({ request, resource }) => {
    // A conditional PUT of an entry is authorised to read as well.
    if (request.method === 'GET' && resource.includes('/uploads/')) onRead();
    return true;
  },
});

async function ended(world: World): Promise<void> {
  await world.send('a.bin');
  world.clock.advance(2 * MINUTE);
}

describe('a flow that ended', () => {
  it('has its entry read while its outputs are listed', async () => {
    const read = Promise.withResolvers<void>();
    let onRead = () => {};
    const world = await openWorld({
      s3: watchingReads(() => onRead()),
      transport: (direct) => async (request, signal) => {
        const response = await direct(request, signal);
        if (request.url.pathname.endsWith('/outputs')) await read.promise;
        return response;
      },
    });
    await ended(world);
    onRead = read.resolve;
    // A listing that waits for ever cuts the tick off.
    world.remainingMs = 60_000;
    expect(await world.tick()).toMatchObject({ result: 'completed', succeeded: 1 });
  });

  it('has its entry read no second time, and leaves a running flow without any read', async () => {
    let reads = 0;
    const world = await openWorld({
      s3: watchingReads(() => {
        reads += 1;
      }),
    });
    await world.send('a.bin');
    reads = 0;
    expect(await world.tick()).toMatchObject({ polled: 1, succeeded: 0 });
    expect(reads).toBe(0);
    expect(await world.tickAfter(2 * MINUTE)).toMatchObject({ succeeded: 1 });
    expect(reads).toBe(1);
  });

  it('fails its poll alone if the listing and the read of its entry fail', async () => {
    let isFailing = false;
    const world = await openWorld({
      s3: { authorize: ({ resource }) => !(isFailing && resource.includes('/uploads/')) },
    });
    await ended(world);
    isFailing = true;
    world.fault('listOutputs', { status: 422 });
    expect(await world.tick()).toMatchObject({ succeeded: 0, failed: 0 });
    isFailing = false;
    world.service.intercept = undefined;
    await world.settle();
    expect((await world.receipt('a.bin')).status).toBe('succeeded');
  });
});
