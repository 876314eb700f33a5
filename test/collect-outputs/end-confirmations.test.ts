import { describe, expect, it } from 'vitest';
import type { Json } from '../../functions/base/json.ts';
import type { CollectorState } from '../../functions/collect-outputs/collector.ts';
import type { Fault } from '../../local/flow-service/fault.ts';
import { answer, HOUR, LEDGER, MINUTE, start, type WorldOptions, world } from '../support/world.ts';

const STATE_KEY = 'state/collector-0.json';

const begin = async (options?: WorldOptions) => {
  await start(options);
  world.remainingMs = 10 * MINUTE;
};

const state = () => world.json<CollectorState>(LEDGER, STATE_KEY);
const put = (value: CollectorState) => world.put(LEDGER, STATE_KEY, JSON.stringify(value));
const runningCount = async () => (await world.keys(LEDGER, 'running/')).length;

/** A minute later, one tick runs. */
async function tick() {
  world.clock.advance(MINUTE);
  return world.tick();
}

/** A flow that answers, so that a 404 is about the other flow, and one that the service does not know at times. */
async function twoFlows(ageMs = 5 * MINUTE): Promise<{ isUnknown: boolean; isListed: boolean }> {
  for (const key of ['known', 'unknown']) await world.send(key);
  world.clock.advance(ageMs);
  const second = { isUnknown: false, isListed: false, id: world.service.flows[1]?.id ?? '' };
  world.service.intercept = ({ url }, { operation }) => {
    if (!second.isUnknown) return undefined;
    if (operation === 'listFlows' && !second.isListed) return answer({ flows: [] });
    return url.includes(second.id) ? { status: 404 } : undefined;
  };
  await tick();
  return second;
}

describe('a flow that the service does not know at two polls in a row', () => {
  it('is not gone within five minutes of its creation', async () => {
    await begin({ service: { flowMs: 10 * HOUR, variation: { listFlows: 404 } } });
    const second = await twoFlows(0);
    second.isUnknown = true;
    for (let polls = 1; polls <= 3; polls += 1) expect(await tick()).toMatchObject({ failed: 0 });
    world.clock.advance(5 * MINUTE);
    for (let polls = 1; polls <= 3; polls += 1) await tick();
    expect(await runningCount()).toBe(1);
  });

  /** From now on, the service answers so for each flow, and knows the outputs of none. */
  const answersFor = (fault: Fault): void => {
    world.service.intercept = (_, { operation }) => {
      if (operation === 'getFlow') return fault;
      return operation === 'listOutputs' ? { status: 404 } : undefined;
    };
  };

  it('is told after three polls if nothing shows that the service is there, and ends at twice its age with an abort', async () => {
    const variation = { listFlows: 404 } as const;
    await begin({ service: { flowMs: 10 * HOUR, variation }, settings: { flowAgeMaxSeconds: 3600 } });
    await world.send('only');
    await tick();
    answersFor(answer({ detail: 'no such job' }, 404));
    world.clock.advance(5 * MINUTE);
    for (let polls = 1; polls <= 3; polls += 1) {
      expect(await world.entry()).not.toHaveProperty('obstacle');
      await tick();
    }
    const words = 'The service does not know the flow: get: 404: no such job';
    expect(await world.entry()).toMatchObject({ state: 'running', obstacle: { message: words } });
    world.clock.advance(2 * HOUR);
    await tick();
    expect(await world.receipt('only')).toMatchObject({
      failure: { code: 'timed-out', message: expect.stringContaining(words) },
    });
    expect(world.service.flows[0]?.aborted).toBe(true);
  });

  it.each<[string, Fault, Json]>([
    ['410', answer({ detail: 'expired' }, 410), {}],
    ['a word that is declared for it', answer({ state: 'Task not found' }), { state: { gone: ['Task not found'] } }],
  ])(
    'is gone although nothing else shows that the service is there, if they say so by %s',
    async (_, fault, speaks) => {
      await begin({ service: { flowMs: 10 * HOUR, variation: { listFlows: 404 } }, speaks });
      await world.send('only');
      await tick();
      answersFor(fault);
      for (let polls = 1; polls <= 3; polls += 1) await tick();
      expect(await world.entry()).toMatchObject({ state: 'running' });
      world.clock.advance(5 * MINUTE);
      await tick();
      await world.tickAfter(2 * MINUTE);
      expect((await world.receipt('only')).failure).toMatchObject({ code: 'flow-gone' });
      expect(world.count('WordsUndeclared')).toBe(0);
    },
  );

  it('is not gone while the listing of flows shows it', async () => {
    await begin({ service: { flowMs: 10 * HOUR } });
    const second = await twoFlows();
    second.isUnknown = true;
    second.isListed = true;
    for (let polls = 1; polls <= 5; polls += 1) expect(await tick()).toMatchObject({ failed: 0 });
    second.isListed = false;
    for (let polls = 1; polls <= 3; polls += 1) await tick();
    expect(await runningCount()).toBe(1);
  });

  it('is not gone if a tick that died, or is still at work, may have polled it in between', async () => {
    await begin({ service: { flowMs: 10 * HOUR } });
    const second = await twoFlows();
    second.isUnknown = true;
    await tick();
    const left = await state();
    // The next tick sees the flow, and dies before it writes its state. Only its lease is left.
    second.isUnknown = false;
    await tick();
    await put({ ...left, heldUntil: world.clock.now() + 20_000 });

    second.isUnknown = true;
    expect(await tick()).toMatchObject({ result: 'completed', polled: 2, failed: 0 });
    // Until then, the tick that left its lease may have been at work. So this is the first poll that counts.
    expect(await tick()).toMatchObject({ polled: 2, failed: 0 });
    expect(await runningCount()).toBe(2);
    world.clock.advance(MINUTE);
    expect(await tick()).toMatchObject({ polled: 2, failed: 1 });
  });

  it('is not gone if another flow was unknown and shown again: the replicas of the service may each know their own', async () => {
    await begin({ service: { flowMs: 40 * HOUR }, settings: { flowAgeMaxSeconds: 7 * 86_400 } });
    const second = await twoFlows(6 * MINUTE);
    second.isUnknown = true;
    await tick();
    second.isUnknown = false;
    await tick();
    second.isUnknown = true;
    for (let hours = 0; hours < 23; hours += 1) {
      for (let minutes = 0; minutes < 4; minutes += 1) await tick();
      world.clock.advance(56 * MINUTE);
    }
    expect(await runningCount()).toBe(2);
    // Nothing was shown again for a day, so 404 is believed again.
    world.clock.advance(HOUR);
    for (let polls = 0; polls < 60; polls += 1) await tick();
    expect(await runningCount()).toBe(1);
  });

  it('has its assets, although its service did not know them at many polls, if it showed an unknown flow again', async () => {
    await begin({ service: { flowMs: 30 * MINUTE } });
    const second = await twoFlows(6 * MINUTE);
    second.isUnknown = true;
    await tick();
    second.isUnknown = false;
    await tick();
    let areUnknown = true;
    world.service.intercept = (_, { operation }) =>
      areUnknown && operation === 'getAsset' ? { status: 404 } : undefined;
    // A 404 for an asset ends a flow after five attempts, some minutes apart.
    for (let polls = 0; polls < 50; polls += 1) await tick().catch(() => {});
    expect(await runningCount()).toBe(2);
    areUnknown = false;
    for (let polls = 0; polls < 30; polls += 1) await tick();
    expect(world.count('FlowsSucceeded')).toBe(2);
  });

  it('is not gone within two minutes, in which outputs may come late', async () => {
    await begin({ service: { flowMs: 10 * HOUR } });
    const second = await twoFlows();
    second.isUnknown = true;
    for (let polls = 1; polls <= 2; polls += 1) expect(await tick()).toMatchObject({ polled: 2, failed: 0 });
    expect(await tick()).toMatchObject({ polled: 2, failed: 1 });
  });

  it('is not gone if another tick took the lease in between', async () => {
    let during: (() => Promise<unknown>) | undefined;
    await begin({
      service: { flowMs: 10 * HOUR },
      transport: (direct) => async (request, signal) => {
        const act = during;
        during = undefined;
        await act?.();
        return direct(request, signal);
      },
    });
    const second = await twoFlows();
    second.isUnknown = true;
    await tick();
    during = async () => put({ ...(await state()), heldUntil: 0 });
    expect(await tick()).toMatchObject({ polled: 2, failed: 0 });
    expect(await runningCount()).toBe(2);
  });
});

describe('a flow that is there when it is asked for once more before it is given up', () => {
  it('is given up only after two further polls in a row', async () => {
    // Only the outputs tell of a flow. A 409 says that it runs.
    await begin({ service: { flowMs: 10 * HOUR, variation: { getFlow: 405, earlyOutputs: 'conflict' } } });
    for (const key of ['known', 'unknown']) await world.send(key);
    world.clock.advance(5 * MINUTE);
    const [knownId, flowId] = world.service.flows.map(({ id }) => id);
    // How many requests for the outputs of the flow are answered with 404 in a tick, from the first on.
    let unknownMax = 0;
    let asked = 0;
    world.service.intercept = ({ url }, { operation }) => {
      if (operation === 'listFlows') return answer({ flows: [] });
      // Without a listing of outputs, a 404 could mean that the service does not serve any.
      if (url.includes(`${knownId}/outputs`)) return { status: 200, body: '{"outputs":[]}' };
      if (!url.includes(`${flowId}/outputs`)) return undefined;
      asked += 1;
      return asked <= unknownMax ? { status: 404 } : undefined;
    };
    const tickWith = async (max: number) => {
      unknownMax = max;
      asked = 0;
      world.clock.advance(MINUTE);
      return tick();
    };
    await tickWith(0);
    expect(await tickWith(Number.POSITIVE_INFINITY)).toMatchObject({ failed: 0 });
    expect(await tickWith(1)).toMatchObject({ failed: 0 });
    expect(asked).toBe(2);
    expect(await tickWith(Number.POSITIVE_INFINITY)).toMatchObject({ failed: 0 });
    expect(await tickWith(Number.POSITIVE_INFINITY)).toMatchObject({ failed: 1 });
  });
});

describe('a flow whose end only the listing of its outputs tells', () => {
  /** What a tick sees of the outputs: all, or none. A tick may also die after it has seen them all. */
  type Seen = 'all' | 'none' | 'all, and dies';
  it.each<readonly [what: string, ticks: readonly Seen[]]>([
    ['the second poll that sees the same, two minutes after the first', ['all', 'all']],
    ['the second such poll in a row', ['all', 'none', 'all', 'all']],
    ['the second such poll, although a tick died in between', ['all, and dies', 'all']],
  ])('ends at %s', async (_, ticks) => {
    await start({ service: { variation: { getFlow: 404 }, flowMs: 0 } }); // There is time for one round.
    await world.send('a.bin');
    for (const [n, seen] of ticks.entries()) {
      world.service.intercept = (_, { operation }) =>
        operation === 'listOutputs' && seen === 'none' ? { status: 200, body: '{"outputs":[]}' } : undefined;
      world.clock.advance(MINUTE);
      expect(await tick()).toMatchObject({ polled: 1, succeeded: n === ticks.length - 1 ? 1 : 0 });
      if (seen === 'all, and dies') await put({ ...(await state()), heldUntil: world.clock.now() + 20_000 });
    }
  });
});
