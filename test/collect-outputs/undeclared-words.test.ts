import { describe, expect, it } from 'vitest';
import type { CollectorState } from '../../functions/collect-outputs/collector.ts';
import { viewOf } from '../../operations/upload-view.ts';
import { answer, HOUR, LEDGER, MINUTE, start, type WorldOptions, world } from '../support/world.ts';

/** A flow that the service shows with this word for its state, in each of its answers about flows. */
async function shownAs(word: string, options: WorldOptions = {}): Promise<{ word: string }> {
  await start({ settings: { flowAgeMaxSeconds: 3 * 3600 }, ...options });
  await world.send('a.bin');
  const shown = { word };
  world.service.intercept = ({ url }, { operation }) => {
    if (operation === 'getFlow') return answer({ state: shown.word });
    const isListed = operation === 'listFlows' && !url.includes('page=2');
    if (isListed) return answer({ flows: world.service.flows.map(({ id }) => ({ id, state: shown.word })) });
    return undefined;
  };
  return shown;
}

const obstacle = async () => viewOf(await world.entry(), world.ports.settings).obstacle?.message;
const warned = () => world.logged.filter(({ fields }) => fields.word === 'succeed').map(({ level }) => level);

describe('a word for the state of a flow that is not declared', () => {
  it('counts as running, and is told after three polls', async () => {
    await shownAs('succeed');
    for (let polls = 1; polls <= 2; polls += 1) await world.tickAfter(2 * MINUTE);
    expect([await obstacle(), world.count('WordsUndeclared'), warned()]).toEqual([undefined, 0, []]);
    await world.tickAfter(2 * MINUTE);
    expect(await world.entry()).toMatchObject({ state: 'running' });
    expect(await obstacle()).toMatch(/^The service shows the flow as "succeed", a word that the description/);
    expect([world.count('WordsUndeclared'), warned()]).toEqual([1, ['warn']]);
    await world.tickAfter(2 * MINUTE);
    expect([world.count('WordsUndeclared'), warned()]).toEqual([2, ['warn', 'warn']]);
  });

  it('is told once it is clear in another process, and no more when the word is a declared one', async () => {
    const shown = await shownAs('queued');
    await world.tickAfter(2 * MINUTE);
    shown.word = 'in_progress';
    await world.tickAfter(2 * MINUTE);
    const { unclear } = await world.json<CollectorState>(LEDGER, 'state/collector-0.json');
    expect(Object.values(unclear ?? {})).toMatchObject([{ word: 'in_progress', polls: 2 }]);
    await world.tickAfter(2 * MINUTE);
    expect(await obstacle()).toContain('"in_progress"');
    shown.word = 'running';
    await world.tickAfter(2 * MINUTE);
    expect(await world.entry()).not.toHaveProperty('obstacle');
    expect(await world.json(LEDGER, 'state/collector-0.json')).not.toHaveProperty('unclear');
    expect(world.count('WordsUndeclared')).toBe(1);
  });

  it('ends the flow at its age without an abort, and its outputs can be collected once the word is declared', async () => {
    await shownAs('succeed');
    for (let polls = 1; polls <= 5; polls += 1) await world.tickAfter(20 * MINUTE);
    await world.tickAfter(2 * HOUR);
    const { status, failure } = await world.receipt('a.bin');
    expect({ status, failure }).toMatchObject({
      status: 'failed',
      failure: { code: 'undeclared-word' },
    });
    expect(failure?.message).toMatch(/10800 seconds\. The service last showed "succeed", a word/);
    expect(failure?.advice).toContain('flowdrop collect');
    expect(world.service.counts.changeFlow).toBe(0);
    expect(await world.keys(LEDGER, 'running/')).toEqual([]);
  });

  it('ends the flow without an abort too if no poll is answered any more', async () => {
    await shownAs('succeed');
    await world.tickAfter(20 * MINUTE);
    world.service.intercept = () => ({ status: 500 });
    await world.tickAfter(7 * HOUR);
    expect((await world.receipt('a.bin')).failure).toMatchObject({ code: 'undeclared-word' });
    expect(world.service.counts.changeFlow).toBe(0);
  });

  it.each([
    ['a word', () => answer({ state: 'succeed' })],
    ['a refusal', () => answer({ detail: 'Missing X-Version header' }, 400)],
  ])('ends no flow with an abort, however many flows have %s like it', async (_, shown) => {
    await shownAs('succeed');
    world.service.intercept = (__, { operation }) => (operation === 'getFlow' ? shown() : undefined);
    const seen: Record<string, { word: string; polls: number }> = {};
    for (let n = 0; n < 1_000; n += 1) {
      const uploadId = n.toString(16).padStart(40, '0');
      seen[uploadId] = { word: 'succeed', polls: 5 };
      const marker = { uploadId, flowId: `f${n}`, ageFrom: world.clock.now() + 3 * HOUR };
      await world.ports.ledger.putRunningMarker(marker, new AbortController().signal);
    }
    await world.put(LEDGER, 'state/collector-0.json', JSON.stringify({ unclear: seen }));
    await world.tickAfter(3 * HOUR).catch(() => {});
    expect(world.service.counts.changeFlow).toBe(0);
    expect(await world.receipt('a.bin')).toMatchObject({ status: 'failed' });
  });

  it('is named at the end, although the last polls were answered with an error', async () => {
    await shownAs('succeed');
    for (let polls = 1; polls <= 3; polls += 1) await world.tickAfter(20 * MINUTE);
    world.fault('getFlow', { status: 400 });
    for (let polls = 1; polls <= 2; polls += 1) await world.tickAfter(20 * MINUTE).catch(() => {});
    await world.tickAfter(3 * HOUR).catch(() => {});
    expect((await world.receipt('a.bin')).failure).toMatchObject({
      code: 'undeclared-word',
      // Not how often: the last polls did not show it.
      message: expect.stringMatching(/400.*The service last showed "succeed", a word/),
    });
  });

  it('is seen by polls of each flow, although the listing of flows shows them too', async () => {
    await shownAs('succeed');
    for (let n = 0; n < 20; n += 1) await world.send(`b${n}.bin`);
    for (let polls = 1; polls <= 3; polls += 1) await world.tickAfter(20 * MINUTE);
    expect(world.service.counts.listFlows).toBeGreaterThan(0);
    expect(world.count('WordsUndeclared')).toBe(21);
  });
});

describe('an answer about a flow that does not fit the description', () => {
  const answers = async (body: object) => {
    await shownAs('running', { service: { flowMs: 24 * HOUR } });
    world.service.intercept = (_, { operation }) => (operation === 'getFlow' ? answer(body) : undefined);
  };

  it('is told after three polls, with the member to correct, and no more once an answer fits', async () => {
    await answers({ status: 'running', at: 1 });
    for (let polls = 1; polls <= 2; polls += 1) await world.tickAfter(2 * MINUTE).catch(() => {});
    expect(await obstacle()).toBeUndefined();
    await world.tickAfter(2 * MINUTE).catch(() => {});
    expect(await obstacle()).toMatch(/no word for the state at \/state: correct "state\.word".*has \/status, \/at/);
    world.service.intercept = undefined;
    await world.tickAfter(2 * MINUTE);
    expect(await world.entry()).not.toHaveProperty('obstacle');
    expect(await world.json(LEDGER, 'state/collector-0.json')).not.toHaveProperty('unfit');
  });

  it('ends the flow at its age without an abort: it may have ended', async () => {
    await answers({ status: 'done' });
    for (let polls = 1; polls <= 3; polls += 1) await world.tickAfter(2 * HOUR).catch(() => {});
    const { failure } = await world.receipt('a.bin');
    expect(failure).toMatchObject({ code: 'timed-out', message: expect.stringContaining('"state.word"') });
    expect(world.service.counts.changeFlow).toBe(0);
  });
});

describe.each([400, 403, 422])('a flow that the service answers with %i', (status) => {
  const refused = async () => {
    await start({ service: { flowMs: 24 * HOUR }, settings: { flowAgeMaxSeconds: 3 * 3600 } });
    await world.send('a.bin');
    const detail = 'Missing X-Version header';
    world.service.intercept = (_, { operation }) =>
      operation === 'getFlow' || operation === 'listOutputs' ? answer({ detail }, status) : undefined;
  };

  it('is told after three polls, and no more once it is shown', async () => {
    await refused();
    for (let polls = 1; polls <= 2; polls += 1) await world.tickAfter(2 * MINUTE).catch(() => {});
    expect(await obstacle()).toBeUndefined();
    await world.tickAfter(2 * MINUTE).catch(() => {});
    expect(await obstacle()).toBe(`get: ${status}: Missing X-Version header`);
    world.service.intercept = undefined;
    await world.tickAfter(2 * MINUTE);
    expect(await world.entry()).not.toHaveProperty('obstacle');
  });

  it('ends at its age without an abort: it may have ended', async () => {
    await refused();
    for (let polls = 1; polls <= 3; polls += 1) await world.tickAfter(2 * HOUR).catch(() => {});
    const { failure } = await world.receipt('a.bin');
    expect(failure).toMatchObject({ code: 'timed-out', message: expect.stringContaining('X-Version') });
    expect(world.service.counts.changeFlow).toBe(0);
  });
});

it.each([202, 409])('a flow that is not ready (%i) runs until its state is shown, or it is too old', async (status) => {
  await start({
    speaks: { errors: { notReady: [202, 409] } },
    service: { flowMs: 24 * HOUR },
    settings: { flowAgeMaxSeconds: 3 * 3600 },
  });
  await world.send('a.bin');
  world.service.intercept = (_, { operation }) => (operation === 'getFlow' ? { status, body: '' } : undefined);
  for (let polls = 1; polls <= 4; polls += 1) await world.tickAfter(2 * MINUTE);
  expect(await obstacle()).toBeUndefined();
  await world.tickAfter(3 * HOUR);
  const { failure } = await world.receipt('a.bin');
  expect(failure).toMatchObject({ code: 'timed-out', message: expect.stringContaining(`${status}`) });
  expect(world.service.flows[0]?.aborted).toBe(true);
});

describe('a word for an output that is not declared', () => {
  it('is told after three polls if the service shows only the outputs', async () => {
    await start({ service: { variation: { getFlow: 404 } }, settings: { flowAgeMaxSeconds: 3 * 3600 } });
    await world.send('a.bin');
    world.fault('listOutputs', answer({ outputs: [{ id: 'x', status: 'brewing' }] }));
    for (let polls = 1; polls <= 3; polls += 1) await world.tickAfter(20 * MINUTE);
    expect(await obstacle()).toMatch(/^The service shows an output as "brewing"/);
    expect(world.count('WordsUndeclared')).toBe(1);
    await world.tickAfter(3 * HOUR);
    expect((await world.receipt('a.bin')).failure).toMatchObject({ code: 'undeclared-word' });
    expect(world.service.counts.changeFlow).toBe(0);
  });

  it('raises the alarm after three polls of a completed flow', async () => {
    await start({ service: { flowMs: 0 } });
    await world.send('a.bin');
    world.fault('listOutputs', answer({ outputs: [{ id: 'x', status: 'brewing' }] }));
    for (let polls = 1; polls <= 3; polls += 1) await world.tickAfter(15 * MINUTE);
    expect(world.count('WordsUndeclared')).toBe(1);
  });
});

describe('pointers to addresses that find nothing', () => {
  const failureWith = async (addresses: readonly string[]) => {
    await start({ service: { flowMs: 0 }, speaks: { outputs: { addresses: [...addresses], isWhole: true } } });
    await world.send('a.bin');
    for (let polls = 1; polls <= 3; polls += 1) await world.tickAfter(2 * MINUTE);
    return (await world.receipt('a.bin')).failure;
  };

  it('are told by the failure, with the member to correct and the members that the answer has', async () => {
    const { code, message } = (await failureWith(['/result/files'])) ?? {};
    expect(code).toBe('no-outputs');
    expect(message).toMatch(/no address at \/result\/files: correct "outputs\.addresses".*the answer has .*\/state/);
  });

  it('are not to blame if they find an empty place', async () => {
    expect((await failureWith(['/parameters']))?.message).toBe('The flow completed without any output.');
  });
});
