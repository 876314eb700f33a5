import { describe, expect, it } from 'vitest';
import { ECHO, openWorld, type World, type WorldOptions } from '../support/world.ts';

const MINUTE = 60_000;

/** True for a GET of an entry. A conditional PUT of one is authorised to read as well. */
const isEntryRead = ({ request, resource }: Parameters<NonNullable<NonNullable<WorldOptions['s3']>['authorize']>>[0]) =>
  request.method === 'GET' && resource.includes('/uploads/');

/** Resolves when S3 is asked for an entry. */
function entryRead(): { readonly s3: NonNullable<WorldOptions['s3']>; readonly expect: () => Promise<void> } {
  let resolve: () => void = () => {};
  return {
    s3: {
      authorize: (access) => {
        if (isEntryRead(access)) resolve();
        return true;
      },
    },
    expect: () =>
      new Promise((asked) => {
        resolve = asked;
      }),
  };
}

/** Answers an outputs listing only when `until` has resolved. */
const holdingOutputs =
  (until: () => Promise<void>): NonNullable<WorldOptions['transport']> =>
  (direct) =>
  async (request, signal) => {
    const isOutputs = request.url.pathname.endsWith('/outputs');
    const response = await direct(request, signal);
    if (isOutputs) await until();
    return response;
  };

async function ended(world: World): Promise<void> {
  await world.upload('a.bin', 'x');
  await world.deliver();
  world.clock.advance(2 * MINUTE);
}

describe('a flow that ended', () => {
  it('has its entry read while its outputs are listed', async () => {
    const entry = entryRead();
    let read: Promise<void> = Promise.resolve();
    const world = await openWorld({ routes: [ECHO], s3: entry.s3, transport: holdingOutputs(() => read) });
    await ended(world);
    // A listing that waits for ever cuts the tick off.
    world.remainingMs = 5_000;
    read = entry.expect();
    expect(await world.tick()).toMatchObject({ result: 'completed', succeeded: 1 });
  });

  it('has its entry read no second time, and leaves a running flow without any read', async () => {
    let reads = 0;
    const world = await openWorld({
      s3: {
        authorize: (access) => {
          if (isEntryRead(access)) reads += 1;
          return true;
        },
      },
    });
    await world.upload('a.bin', 'x');
    await world.deliver();
    reads = 0;
    expect(await world.tick()).toMatchObject({ polled: 1, succeeded: 0 });
    expect(reads).toBe(0);
    world.clock.advance(2 * MINUTE);
    expect(await world.tick()).toMatchObject({ succeeded: 1 });
    expect(reads).toBe(1);
  });

  it('fails its poll alone if the listing and the read of its entry fail', async () => {
    let isFailing = false;
    const world = await openWorld({
      s3: { authorize: ({ resource }) => !(isFailing && resource.includes('/uploads/')) },
    });
    await ended(world);
    isFailing = true;
    world.service.intercept = (_, { operation }) => (operation === 'listOutputs' ? { status: 422 } : undefined);
    expect(await world.tick()).toMatchObject({ succeeded: 0, failed: 0 });
    isFailing = false;
    world.service.intercept = undefined;
    await world.settle();
    expect((await world.receipt('a.bin')).status).toBe('succeeded');
  });
});
