import { describe, expect, it } from 'vitest';
import { ECHO, MINUTE, openWorld } from './support/world.ts';

/** The requests of a step, by server. One more for every file costs money, and one fewer may break a promise. */
interface Requests {
  readonly s3: readonly string[];
  readonly service: readonly string[];
  readonly events: number;
}

/** A deployment that has worked before: its token is read, and its state is stored. */
async function started() {
  const world = await openWorld({ isVirtual: true, routes: [{ ...ECHO, suffixes: ['.bin'] }] });
  await world.send('first.bin');
  await world.settle();
  await world.collect();
  const s3: string[] = [];
  world.beforeS3((call) => void s3.push(call));
  const during = async (step: () => Promise<unknown>): Promise<Requests> => {
    const [before, events] = [{ ...world.service.counts }, world.events.length];
    s3.length = 0;
    await step();
    const service = Object.entries(world.service.counts).flatMap(([name, count]) =>
      Array.from({ length: count - before[name as keyof typeof before] }, () => name),
    );
    return { s3: s3.toSorted(), service: service.toSorted(), events: world.events.length - events };
  };
  const tickAfter = (ms: number): Promise<Requests> => {
    world.clock.advance(ms);
    return during(() => world.collect());
  };
  return { world, during, tickAfter };
}

/** Those of `all` without those of `part`. */
function without(all: readonly string[], part: readonly string[]): readonly string[] {
  const left = [...all];
  for (const name of part) if (left.includes(name)) left.splice(left.indexOf(name), 1);
  return left;
}

describe('the requests of', () => {
  it('a tick, a file from its event to its receipt, and its duplicates', async () => {
    const { world, during, tickAfter } = await started();
    const tick = await tickAfter(5 * MINUTE);
    expect(tick).toEqual({
      s3: [...Array(3).fill('GetObject'), ...Array(2).fill('ListObjectsV2'), ...Array(2).fill('PutObject')],
      service: [],
      events: 0,
    });

    await world.upload('a.bin');
    const messages = world.queue.receive({ max: 10 });
    for (const { body } of messages) world.queue.send(body);
    world.clock.advance(2_000);
    const created = await during(() => world.deliver());
    // One reading is of the file, and one of the holds.
    expect(created).toEqual({
      s3: ['GetObject', 'GetObject', 'PutObject', 'PutObject', 'PutObject'],
      service: ['createFlow'],
      events: 0,
    });

    for (const { body } of messages) world.queue.send(body);
    const duplicate = await during(() => world.deliver());
    expect(duplicate).toEqual({
      s3: ['GetObject', 'GetObject', 'PutObject', 'PutObject'],
      service: [],
      events: 0,
    });

    const poll = await tickAfter(MINUTE / 2);
    expect(without(poll.s3, tick.s3)).toEqual([]);
    expect(poll.service).toEqual(['getFlow']);

    const collected = await tickAfter(MINUTE);
    expect(without(collected.s3, tick.s3)).toEqual([
      'DeleteObject',
      'GetObject',
      'PutObject',
      'PutObject',
      'PutObject',
    ]);
    expect(collected).toMatchObject({ service: ['getAsset', 'getFlow', 'listOutputs'], events: 1 });

    for (const { body } of messages) world.queue.send(body);
    // The next tick publishes the end again.
    const duplicateOfEnded = await during(() => world.deliver());
    expect(duplicateOfEnded).toEqual({
      s3: ['GetObject', 'GetObject', 'PutObject', 'PutObject'],
      service: [],
      events: 0,
    });
  });

  it('a file whose key no route wants', async () => {
    const { world, during } = await started();
    await world.upload('a.doc');
    expect(await during(() => world.deliver())).toEqual({ s3: [], service: [], events: 0 });
    expect(world.count('UploadsUnrouted')).toBe(1);
  });

  it('a file that the service throttles, and that is sent again', async () => {
    const { world, during, tickAfter } = await started();
    const tick = await tickAfter(5 * MINUTE);
    world.fault('createFlow', { status: 429, headers: { 'retry-after': '120' } });
    await world.upload('a.bin');
    const refused = await during(() => world.deliver());
    expect(refused).toEqual({
      s3: ['GetObject', 'PutObject', 'PutObject', 'PutObject'],
      service: ['createFlow'],
      events: 0,
    });
    world.service.intercept = undefined;
    const resubmitted = await tickAfter(3 * MINUTE);
    expect(without(resubmitted.s3, tick.s3)).toEqual([
      ...['DeleteObject', 'GetObject'],
      // Its route, its segment and its marker.
      ...Array(3).fill('ListObjectsV2'),
      'PutObject',
    ]);
    const retry = await during(() => world.deliver());
    expect(retry).toEqual({
      s3: ['GetObject', 'GetObject', 'PutObject', 'PutObject', 'PutObject'],
      service: ['createFlow'],
      events: 0,
    });
  });
});
