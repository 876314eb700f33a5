import { describe, expect, it } from 'vitest';
import type { Json } from '../../functions/base/json.ts';
import type { PipelineSettings } from '../../functions/settings/settings.ts';
import type { Fault } from '../../local/flow-service/fault.ts';
import type { Variation } from '../../local/flow-service/variation.ts';
import { viewOf } from '../../operations/upload-view.ts';
import { answer, ECHO, MINUTE, RESULTS, SECOND, start, world } from '../support/world.ts';

/** An item of a listing of outputs. */
interface Item {
  readonly asset_id?: string | null;
  readonly status?: string;
}

/** The listing that the service shows, and an upload whose flow has completed. */
async function completed(
  outputs: readonly Item[],
  speaks: Json = {},
  variation: Partial<Variation> = {},
): Promise<{ outputs: readonly Item[] }> {
  await start({ speaks, service: { flowMs: 0, variation }, routes: [{ ...ECHO, parameters: { copies: 2 } }] });
  await world.send('a.bin', 'x', { ContentType: 'application/x-test' });
  const shown = { outputs };
  world.service.intercept = (_, { operation }) =>
    operation === 'listOutputs'
      ? { status: 200, headers: { 'content-type': 'application/json' }, body: JSON.stringify(shown) }
      : undefined;
  return shown;
}

const ids = (): string[] => world.service.flows[0]?.outputs.map(({ assetId }) => assetId) ?? [];
const obstacle = async () => viewOf(await world.entry(), world.ports.settings).obstacle?.message;
const stored = async () => (await world.keys(RESULTS)).length;

describe('the outputs of a completed flow', () => {
  it.each<[string, number, Json]>([
    ['are not found', 404, {}],
    ['are not ready', 202, { errors: { notReady: [202, 409] } }],
    ['are refused', 400, {}],
  ])('are asked for again if they %s, and that is told after three polls', async (_, status, speaks) => {
    await start({ speaks, service: { flowMs: 0 }, settings: { flowAgeMaxSeconds: 3600 } });
    await world.send('a.bin', 'x');
    world.service.intercept = (_, { operation }) =>
      operation === 'listOutputs' ? { status, headers: { 'content-type': 'application/json' }, body: '[]' } : undefined;
    for (let polls = 1; polls <= 2; polls += 1) await world.tickAfter(2 * MINUTE);
    expect(await obstacle()).toBeUndefined();
    await world.tickAfter(2 * MINUTE);
    expect(await obstacle()).toMatch(/^The flow has completed, but its outputs cannot be listed: outputs at .*: \d+/);
    await world.tickAfter(70 * MINUTE);
    await world.tickAfter(2 * MINUTE);
    expect((await world.receipt('a.bin')).failure).toMatchObject({
      code: 'timed-out',
      message: expect.stringMatching(
        /^The flow was not collected within its maximum age of 3600 seconds: The flow has completed, but its outputs cannot/,
      ),
    });
    expect(world.service.counts.changeFlow).toBe(0);
  });
});

it.each([404, 405])(
  'a flow that the service answers with %i, as its outputs, is told after three polls',
  async (status) => {
    await start({ service: { flowMs: 0 }, settings: { flowAgeMaxSeconds: 3600 } });
    await world.send('a.bin', 'x');
    world.service.intercept = (_, { operation }) =>
      operation === 'getFlow' || operation === 'listOutputs' ? { status, body: '' } : undefined;
    for (let polls = 1; polls <= 3; polls += 1) {
      expect(await obstacle()).toBeUndefined();
      await world.tickAfter(2 * MINUTE);
    }
    expect(await obstacle()).toMatch(/^The service shows neither the flow nor its outputs: outputs at .*: 40[45]/);
    await world.tickAfter(70 * MINUTE);
    await world.tickAfter(2 * MINUTE);
    const { failure } = await world.receipt('a.bin');
    expect(failure).toMatchObject({ code: 'timed-out', message: expect.stringContaining('neither the flow nor') });
  },
);

describe('an output of a completed flow', () => {
  it.each<[string, Item, RegExp]>([
    [
      'that is pending',
      { status: 'processing' },
      /^The output \S+ is not ready: the service shows it as "processing"\.$/,
    ],
    [
      'with a word that is not declared',
      { status: 'brewing' },
      /"brewing", a word that the description of the service/,
    ],
    ['that is pending and has no id', { asset_id: null, status: 'pending' }, /^An output without an id is not ready/],
  ])('%s is not fetched, says why, and is stored once it is ready', async (_, unready, words) => {
    const shown = await completed([]);
    const [first, second] = ids();
    const ready = [
      { asset_id: first, status: 'ready' },
      { asset_id: second, status: 'ready' },
    ] as Item[];
    shown.outputs = [ready[0] as Item, { asset_id: second as string, ...unready }];
    await world.tickAfter(2 * MINUTE);
    await world.tickAfter(20 * MINUTE);
    expect(await world.entry()).toMatchObject({ state: 'running', attempts: 0, assets: [{ id: first }] });
    expect(await obstacle()).toMatch(words);
    expect(world.service.counts.getAsset).toBe(1);
    expect(world.logged.filter(({ level }) => level === 'error')).toEqual([]);

    shown.outputs = ready;
    expect(await world.settled('a.bin')).toMatchObject({ status: 'succeeded', failedOutputs: [] });
    expect(await stored()).toBe(3);
  });

  it.each<[string, Item, object]>([
    ['that stays pending', { status: 'pending' }, { code: 'not-ready', message: expect.stringContaining('"pending"') }],
    [
      'whose word stays undeclared',
      { status: 'brewing' },
      { code: 'undeclared-word', message: expect.stringContaining('"brewing"') },
    ],
    ['that never gets an id', { asset_id: null, status: 'pending' }, { id: '', code: 'not-ready' }],
  ])('%s fails after an hour, and the others are stored', async (_, unready, failed) => {
    const shown = await completed([]);
    const [first, second] = ids();
    shown.outputs = [{ asset_id: first as string }, { asset_id: second as string, ...unready }];
    await world.tickAfter(2 * MINUTE);
    await world.tickAfter(45 * MINUTE);
    expect(await world.entry()).toMatchObject({ state: 'running' });
    await world.tickAfter(30 * MINUTE);
    const receipt = await world.receipt('a.bin');
    expect(receipt).toMatchObject({ status: 'succeeded', assets: [{ id: first }], failedOutputs: [failed] });
    expect(world.service.counts.getAsset).toBe(1);
  });

  const NOT_YET: readonly [string, Fault, string][] = [
    ['409', { status: 409 }, 'not-ready'],
    ['423', { status: 423 }, 'not-ready'],
    ['425', { status: 425 }, 'not-ready'],
    ['202', { status: 202, body: '{}' }, 'not-ready'],
    ['204', { status: 204 }, 'not-ready'],
    [
      'a success without bytes',
      { status: 200, body: '', headers: { 'content-type': 'model/gltf-binary' } },
      'not-an-asset',
    ],
  ];

  /** Has one of two assets answered so, and lets the ticks run for that time. */
  async function answeredWith(fault: Fault, minutes: number): Promise<void> {
    await start({ service: { flowMs: 0 }, routes: [{ ...ECHO, parameters: { copies: 2 } }] });
    await world.send('a.bin', 'x', { ContentType: 'application/x-test' });
    const [, second = ''] = ids();
    world.service.intercept = ({ url }, { operation }) =>
      operation === 'getAsset' && url.includes(second) ? fault : undefined;
    for (let passed = 0; passed < minutes; passed += 5) await world.tickAfter(5 * MINUTE);
  }

  it.each(NOT_YET)('whose asset is answered with %s is waited for, without an attempt', async (_, fault) => {
    await answeredWith(fault, 45);
    expect(await world.entry()).toMatchObject({ state: 'running', attempts: 0, assets: [{ id: ids()[0] }] });
    expect(await obstacle()).toMatch(/./);
    world.service.intercept = undefined;
    expect(await world.settled('a.bin')).toMatchObject({ status: 'succeeded', failedOutputs: [] });
  });

  it.each(NOT_YET)('whose asset is answered with %s for more than an hour fails', async (_, fault, code) => {
    await answeredWith(fault, 75);
    const failed = [{ id: ids()[1], code }];
    expect(await world.receipt('a.bin')).toMatchObject({ assets: [{ id: ids()[0] }], failedOutputs: failed });
  });

  it('that is pending is not waited for if the flow failed', async () => {
    await start({ service: { flowMs: 0 }, routes: [{ ...ECHO, parameters: { copies: 1, fail: true, partial: 1 } }] });
    await world.send('a.bin');
    const [id] = ids();
    world.service.intercept = (_, { operation }) =>
      operation === 'listOutputs'
        ? { status: 200, body: JSON.stringify({ outputs: [{ id: id ?? 'x', status: 'pending' }] }) }
        : undefined;
    await world.tickAfter(2 * MINUTE);
    expect(await world.receipt('a.bin')).toMatchObject({
      failure: { code: 'flow-failed' },
      failedOutputs: [{ code: 'not-ready' }],
    });
  });
});

describe('the listing of a completed flow', () => {
  it('that is empty is waited for longer than a poll interval', async () => {
    const shown = await completed([]);
    world.redeploy({ pollIntervalSeconds: 15 });
    world.remainingMs = 20 * SECOND;
    for (let i = 0; i < 5; i += 1) await world.tickAfter(16 * SECOND);
    expect(await world.entry()).toMatchObject({ state: 'running' });
    shown.outputs = ids().map((id) => ({ asset_id: id }));
    expect((await world.settled('a.bin')).assets).toHaveLength(2);
  });

  it('is looked at once if a completed flow is whole', async () => {
    const shown = await completed([]);
    shown.outputs = ids().map((id) => ({ asset_id: id }));
    await world.tickAfter(2 * MINUTE);
    expect((await world.receipt('a.bin')).assets).toHaveLength(2);
  });
});

describe('a failed flow whose outputs', () => {
  const REFUSED = answer({ detail: 'The job has failed' }, 400);
  /** The service shows the flow as failed, and answers so for its outputs, until it shows them. */
  const failedWith = async (fault: Fault): Promise<{ fault: Fault | undefined }> => {
    await start({ service: { flowMs: 0 } });
    await world.send('a.bin', 'x', { ContentType: 'application/x-test' });
    const shown: { fault: Fault | undefined } = { fault };
    world.service.intercept = (_, { operation }) => {
      if (operation === 'getFlow') return answer({ state: 'failed', error: 'The file is broken.' });
      return operation === 'listOutputs' ? shown.fault : undefined;
    };
    return shown;
  };

  it.each<[string, Fault]>([
    ['are refused', REFUSED],
    ['are forbidden', answer({ detail: 'The job has failed' }, 403)],
    ['are answered with the status of its failure', answer({ detail: 'The worker ran out of memory' }, 500)],
    ['have no list', answer({ status: 'failed' })],
  ])('%s has failed after two minutes, and its receipt tells its own error and this one', async (_, fault) => {
    await failedWith(fault);
    await world.tickAfter(2 * MINUTE);
    expect(await world.entry()).toMatchObject({ state: 'running' });
    await world.tickAfter(2 * MINUTE);
    expect(await world.receipt('a.bin')).toMatchObject({
      failure: {
        code: 'flow-failed',
        message: expect.stringMatching(
          /^The flow failed: The file is broken; its outputs cannot be listed: outputs at/,
        ),
      },
    });
  });

  it('come within two minutes has them stored', async () => {
    const shown = await failedWith(REFUSED);
    await world.tickAfter(MINUTE);
    shown.fault = undefined;
    await world.tickAfter(MINUTE);
    expect(await world.receipt('a.bin')).toMatchObject({ failure: { code: 'flow-failed' }, assets: [{}] });
  });

  it('get no answer about themselves is asked for them again, for as long as that takes', async () => {
    const shown = await failedWith({ status: 429, headers: { 'retry-after': '60' }, body: '' });
    for (let polls = 1; polls <= 5; polls += 1) await world.tickAfter(2 * MINUTE).catch(() => {});
    expect(await world.entry()).toMatchObject({ state: 'running' });
    shown.fault = undefined;
    await world.tickAfter(2 * MINUTE);
    expect(await world.receipt('a.bin')).toMatchObject({ failure: { code: 'flow-failed' }, assets: [{}] });
  });
});

it.each<[string, Json, string]>([
  ['its words say so', [{ status: 500, says: 'worker failed' }], 'flow-failed'],
  ['they do not', [422], 'timed-out'],
])('a flow whose state is answered with an error has failed if %s', async (_, failed, code) => {
  const outputs = { addresses: ['/output'], failed, isWhole: true };
  await start({ speaks: { outputs }, settings: { flowAgeMaxSeconds: 3600 } });
  await world.send('a.bin', 'x');
  world.service.intercept = (__, { operation }) =>
    operation === 'getFlow' ? answer({ detail: 'The worker failed: out of memory' }, 500) : undefined;
  for (let polls = 1; polls <= 2; polls += 1) await world.tickAfter(61 * MINUTE).catch(() => {});
  expect(await world.receipt('a.bin')).toMatchObject({
    failure: { code, message: expect.stringContaining('The worker failed: out of memory') },
  });
});

describe('a list of outputs that may grow', () => {
  const GROWS = { outputs: { isWhole: false } };
  const items = () => ids().map((id) => ({ asset_id: id }));
  const tickFor = async (ms: number) => {
    for (let passed = 0; passed < ms; passed += 15 * SECOND) await world.tickAfter(15 * SECOND).catch(() => {});
  };
  /** The flow has completed, and its first output is listed. */
  const begun = async (settings: Partial<PipelineSettings> = {}, variation: Partial<Variation> = {}) => {
    const shown = await completed([], GROWS, variation);
    world.redeploy({ pollIntervalSeconds: 15, ...settings });
    world.remainingMs = 20 * SECOND;
    shown.outputs = items().slice(0, 1);
    return shown;
  };

  it.each<[string, Partial<Variation>]>([
    ['the flow has completed', {}],
    ['the service shows no state', { getFlow: 405 }],
  ])('must stay the same for two minutes, although %s', async (_, variation) => {
    const shown = await begun({}, variation);
    await tickFor(110 * SECOND);
    shown.outputs = items();
    await tickFor(110 * SECOND);
    expect(await stored()).toBe(0);
    await tickFor(45 * SECOND);
    expect((await world.receipt('a.bin')).assets).toHaveLength(2);
  });

  it('is not waited for anew if an asset of it failed, or the tick had no more time', async () => {
    await begun();
    let failed = 0;
    const { intercept } = world.service;
    world.service.intercept = (request, call) => {
      if (call.operation !== 'getAsset' || failed === 1) return intercept?.(request, call);
      failed += 1;
      return { status: 500 };
    };
    while (failed === 0) await tickFor(15 * SECOND);
    await tickFor(15 * SECOND);
    expect((await world.receipt('a.bin')).assets).toHaveLength(1);
  });

  it('is stored as far as it goes if it grows until the flow has twice its maximum age', async () => {
    const shown = await begun({ flowAgeMaxSeconds: 60 });
    await tickFor(60 * SECOND);
    shown.outputs = items();
    await tickFor(90 * SECOND);
    expect((await world.receipt('a.bin')).assets).toHaveLength(2);
  });
});
