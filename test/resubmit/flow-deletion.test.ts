import { describe, expect, it } from 'vitest';
import type { TerminalEntry } from '../../functions/ledger/entry.ts';
import type { Changed } from '../../functions/operator/changes.ts';
import { parseContext } from '../../functions/settings/context.ts';
import type { Route } from '../../functions/uploads/route.ts';
import { DAY, dyingAt, ECHO, HOUR, LEDGER, MINUTE, start, world } from '../support/world.ts';

const DELETES: Route = { ...ECHO, deleteFlow: true };
const LATER: Route = { ...DELETES, name: 'later', after: 'echo' };

const begin = (...routes: readonly Route[]) => start({ routes, settings: { inDoubt: 'ask' } });
const deleted = (): readonly boolean[] => world.service.flows.map((flow) => flow.deleted);
const deletion = async () => ((await world.entry()) as TerminalEntry).flowDeletion;
const waiting = () => world.keys(LEDGER, 'waiting/');
const ask = async (event: object): Promise<readonly unknown[]> =>
  ((await world.collect(event)) as readonly Changed[]).map(({ result }) => result);
const idOf = async (route = 'echo'): Promise<string> =>
  (await world.entries()).find((entry) => entry.route.name === route)?.upload.id ?? '';

/** Sends a file, and has it succeed. */
async function succeed(): Promise<void> {
  await world.send('a');
  await world.tickAfter(2 * MINUTE);
}

it('the flow of a success is deleted five minutes after its end, and not before', async () => {
  await begin(DELETES);
  await succeed();
  await world.tickAfter(4 * MINUTE);
  expect([deleted(), (await waiting()).length]).toEqual([[false], 1]);
  await world.tickAfter(2 * MINUTE);
  expect([deleted(), await waiting()]).toEqual([[true], []]);
  expect(await deletion()).toMatchObject({ attempts: 1, deletedAt: expect.any(Number) });
  expect([world.count('FlowsDeleted'), world.queue.counts().visible]).toEqual([1, 0]);
});

it('flows are deleted although it takes long to list what waits', async () => {
  await begin(DELETES);
  await succeed();
  let isSlow = true;
  world.beforeS3((call, { Prefix }) =>
    isSlow && call === 'ListObjectsV2' && Prefix?.startsWith('waiting/') ? world.clock.sleep(11_000) : undefined,
  );
  await world.tickAfter(6 * MINUTE);
  isSlow = false;
  expect([deleted(), await waiting()]).toEqual([[true], []]);
});

it('the markers of an upload become one while its deletion has no turn', async () => {
  await begin(DELETES);
  await succeed();
  const uploadId = await idOf();
  for (let n = 1; n < 4; n += 1) {
    await world.ports.ledger.putWaitingMarker(
      { uploadId, notBefore: world.clock.now() + n },
      AbortSignal.timeout(5_000),
    );
  }
  expect(await waiting()).toHaveLength(4);
  let isSlow = true;
  let reads = 0;
  world.beforeS3((call, { Key }) => {
    if (!isSlow || call !== 'GetObject' || !Key?.startsWith('uploads/')) return undefined;
    reads += 1;
    return world.clock.sleep(11_000 + reads);
  });
  await world.tickAfter(6 * MINUTE);
  expect([deleted(), (await waiting()).length]).toEqual([[false], 1]);
  isSlow = false;
  await world.tickAfter(2 * MINUTE);
  expect([deleted(), await waiting()]).toEqual([[true], []]);
});

it.each([
  ['without the setting', ECHO],
  ['of a failure', { ...DELETES, parameters: { fail: true } }],
])('a flow stays: %s', async (_, route) => {
  await begin(route);
  await succeed();
  await world.settle();
  expect(deleted()).toEqual([false]);
});

it('a flow is not deleted before its receipt is out', async () => {
  await begin(DELETES);
  await world.send('a');
  const live = dyingAt(world.ports.ledger, 'deleteRunningMarker');
  for (let ticks = 0; ticks < 3; ticks += 1) await world.tickAfter(6 * MINUTE).catch(() => {});
  expect(deleted()).toEqual([false]);
  live();
  await world.settle();
  expect(deleted()).toEqual([true]);
});

it('the flows of a chain are deleted after the end of all of it', async () => {
  await begin(DELETES, LATER, { ...LATER, name: 'last', after: 'later', deleteFlow: false });
  await succeed();
  await world.collect({ hold: { action: 'pause', route: 'last' } });
  await world.deliverAndTick(6, 20 * MINUTE);
  expect(deleted()).toEqual([false, false]);
  await world.collect({ hold: { action: 'resume', route: 'last' } });
  await world.settle();
  expect(deleted()).toEqual([true, true, false]);
  expect(await waiting()).toEqual([]);
});

it('a success that is made anew takes the flows of the ones before along', async () => {
  await begin(DELETES);
  await succeed();
  expect(await ask({ again: [await idOf()] })).toEqual(['resubmitted']);
  await world.deliverAndTick(1, 2 * MINUTE);
  expect(deleted()).toEqual([false, false]);
  await world.settle();
  expect(deleted()).toEqual([true, true]);
});

describe('if the service does not delete it', () => {
  const refuse = (status: number): void => {
    world.service.intercept = (_, { operation }) => (operation === 'deleteFlow' ? { status } : undefined);
  };

  it('it is tried again, less and less often, and given up after a week', async () => {
    await begin(DELETES);
    await succeed();
    refuse(500);
    const tries: number[] = [];
    let attempts = 0;
    for (let hours = 0, step = 1; hours < 24 * 20; hours += step) {
      step = hours < 24 ? 1 : 4;
      await world.tickAfter(step * HOUR);
      const now = (await deletion())?.attempts ?? 0;
      if (now > attempts) tries.push(hours);
      attempts = now;
    }
    expect(attempts).toBe(15);
    expect(tries.at(-1)).toBeGreaterThan(5 * 24);
    expect([await waiting(), world.count('FlowsNotDeleted'), deleted()]).toEqual([[], 1, [false]]);
    expect(await deletion()).toMatchObject({ message: expect.stringContaining('delete: 500') });
    expect((await world.entry()).state).toBe('succeeded');
  });

  it.each([404, 410])('a %d means that it is gone, if the service does not know the flow', async (status) => {
    await begin(DELETES);
    await succeed();
    world.service.intercept = (_, { operation }) =>
      ['deleteFlow', 'getFlow', 'listOutputs'].includes(operation) ? { status } : undefined;
    await world.settle();
    expect(await deletion()).toHaveProperty('deletedAt');
  });

  it('a 404 of the request alone means nothing', async () => {
    await begin(DELETES);
    await succeed();
    refuse(404);
    await world.tickAfter(6 * MINUTE);
    expect(await deletion()).toMatchObject({ attempts: 1, message: expect.stringContaining('404') });
  });

  it.each([404, 405] as const)('a 404 means nothing if the service serves no single flow: %d', async (getFlow) => {
    const service = { variation: { getFlow } };
    await start({ routes: [DELETES], settings: { inDoubt: 'ask' }, service });
    await succeed();
    await world.tickAfter(2 * MINUTE);
    refuse(404);
    await world.tickAfter(6 * MINUTE);
    expect(await deletion()).toMatchObject({ attempts: 1, message: expect.stringContaining('404') });
    world.service.intercept = undefined;
    await world.settle();
    expect(deleted()).toEqual([true]);
  });

  it('an answer that was lost is found out by the next attempt', async () => {
    await begin(DELETES);
    await succeed();
    let calls = 0;
    world.service.intercept = (_, { operation }) => {
      if (operation !== 'deleteFlow') return undefined;
      calls += 1;
      return calls === 1 ? { reset: 'after-effect' } : undefined;
    };
    await world.settle();
    expect([await deletion(), deleted()]).toMatchObject([{ attempts: 2, deletedAt: expect.any(Number) }, [true]]);
  });
});

it('an invocation may die between all steps', async () => {
  await begin(DELETES);
  await succeed();
  for (const method of ['replace', 'deleteWaitingMarker'] as const) {
    for (const from of [1, 2]) {
      const live = dyingAt(world.ports.ledger, method, from);
      await world.tickAfter(6 * MINUTE).catch(() => {});
      live();
    }
  }
  await world.settle();
  expect([deleted(), await waiting()]).toEqual([[true], []]);
});

it('the daily sweep finds a flow whose marker was lost', async () => {
  await begin(DELETES);
  await world.sweep();
  await succeed();
  for (const key of await waiting()) await world.remove(key, LEDGER);
  world.clock.advance(DAY / 2);
  await world.sweep();
  expect(await waiting()).toHaveLength(1);
  await world.settle();
  expect(deleted()).toEqual([true]);
  world.clock.advance(DAY / 2);
  await world.sweep();
  expect(await waiting()).toEqual([]);
});

describe('what an operator asks for', () => {
  it('is no collection of a flow that was deleted', async () => {
    await begin(DELETES);
    await succeed();
    expect(await ask({ collect: [await idOf()] })).toEqual(['begun']);
    await world.settle();
    expect(deleted()).toEqual([true]);
    expect(await ask({ collect: [await idOf()] })).toEqual(['flow deleted']);
    expect((await world.entry()).state).toBe('succeeded');
    expect(await ask({ delete: [await idOf()] })).toEqual(['gone']);
  });
});

describe('a configuration', () => {
  const parsed = (more: object) => () =>
    parseContext({
      baseUrl: 'https://flows.example.com',
      routes: [{ name: 'a', template: 't', deleteFlow: true }],
      ...more,
    });

  it.each([
    ['the description has no way to delete a flow', { service: 'tripo' }, /has no "delete", got true/],
    ['only the listing proves anything in a doubt', {}, /inDoubt to "ask".*, got true/],
  ])('is refused if %s', (_, more, message) => {
    expect(parsed(more)).toThrow(message);
  });

  it.each([
    ['the operator is asked', { settings: { inDoubt: 'ask' } }],
    ['the service honours a key', { service: { from: 'flows', create: { idempotency: { hours: 24 } } } }],
    ['the service lists no flows', { service: { from: 'flows', list: null } }],
  ])('is taken if %s', (_, more) => {
    expect(parsed(more)).not.toThrow();
  });
});
