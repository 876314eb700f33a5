import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { collect } from '../../functions/collect-outputs/collect-outputs.ts';
import type { CollectorState } from '../../functions/collect-outputs/collector.ts';
import type { RunningEntry } from '../../functions/ledger/entry.ts';
import { InvalidCollectEventError, parseCollectEvent } from '../../functions/operator/collect-event.ts';
import type { Route } from '../../functions/uploads/route.ts';
import type { Fault } from '../../local/flow-service/fault.ts';
import type { Variation } from '../../local/flow-service/variation.ts';
import { viewOf } from '../../operations/upload-view.ts';
import { answer, DAY, ECHO, LEDGER, MINUTE, RESULTS, SECOND, start, world } from '../support/world.ts';

const sha256 = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');

async function running(key = 'a.bin', body: Buffer | string = 'x', more = {}): Promise<RunningEntry> {
  await world.send(key, body, { ContentType: 'application/x-test', ...more });
  const entry = await world.entry();
  if (entry.state !== 'running') throw new Error(`The upload is ${entry.state}`);
  return entry;
}

it('keeps long routes in the ledger for operators, once in a process, and short ones not at all', async () => {
  await start();
  const puts: string[] = [];
  world.beforeS3((call, { Key }) => {
    if (call === 'PutObject' && Key === 'state/routes.json') puts.push(Key);
  });
  const tick = () => world.invoke((invocation) => collect({}, world.ports, invocation));
  await tick();
  expect(puts).toEqual([]);
  world.redeploy({ areRoutesBeside: true });
  await tick();
  await world.invoke((invocation) => collect({ collector: { index: 1, of: 2 } }, world.ports, invocation));
  await tick();
  expect(puts).toHaveLength(1);
  expect(await world.json(LEDGER, 'state/routes.json')).toEqual({ routes: world.ports.settings.routes });
});

/** A route whose template makes files of any type. */
const ANYTHING = { ...ECHO, makes: ['*/*'] };

describe('a flow that ended', () => {
  it('has every output stored unchanged, has a receipt, and has no marker any more', async () => {
    await start({ routes: [{ ...ECHO, parameters: { copies: 3 } }] });
    const bytes = Buffer.from('some bytes');
    const { upload, flow } = await running('in/a.bin', bytes);
    expect(await world.tickAfter(2 * MINUTE)).toMatchObject({ result: 'completed', succeeded: 1, failed: 0 });

    const receipt = await world.receipt('in/a.bin');
    expect(receipt).toMatchObject({
      receipt: 1,
      status: 'succeeded',
      upload: { id: upload.id, bucket: 'inbox', key: 'in/a.bin', versionId: upload.versionId, bytes: bytes.length },
      route: 'echo',
      template: 'bytes_echo',
      generation: 1,
      flow: { id: flow.id },
      failedOutputs: [],
    });
    expect(receipt).not.toHaveProperty('failure');
    expect(receipt.assets).toHaveLength(3);
    for (const asset of receipt.assets) {
      expect(asset).toMatchObject({ bytes: bytes.length, mediaType: 'application/x-test', sha256: sha256(bytes) });
      expect(asset.key).toMatch(`in/a.bin/${flow.id}/`);
      const stored = await world.object(RESULTS, asset.key);
      expect(stored.bytes.equals(bytes)).toBe(true);
      expect(stored.metadata).toEqual({
        'flowdrop-upload': upload.id,
        'flowdrop-flow': flow.id,
        'flowdrop-asset': asset.id,
        'flowdrop-template': 'bytes_echo',
      });
    }
    expect(await world.entry()).toMatchObject({ state: 'succeeded' });
    expect(await world.keys(LEDGER, 'running/')).toEqual([]);
    const { lastCompletedAt } = await world.json<CollectorState>(LEDGER, 'state/collector-0.json');
    expect(lastCompletedAt).toBeGreaterThanOrEqual(flow.createdAt + 2 * MINUTE);
  });

  it('has the time from its upload to its receipt measured if it succeeded', async () => {
    await start({
      routes: [
        { ...ECHO, suffixes: ['.bin'] },
        { ...ECHO, name: 'bad', parameters: { fail: true } },
      ],
    });
    await running('good.bin');
    await world.send('bad.png');
    expect(await world.tickAfter(2 * MINUTE)).toMatchObject({ succeeded: 1, failed: 1 });
    // S3 dates an upload in whole seconds.
    expect(world.count('SecondsToResult')).toBeGreaterThanOrEqual(120);
    expect(world.count('SecondsToResult')).toBeLessThan(240);
  });

  it('is settled once, however many ticks overlap', async () => {
    await start({ routes: [{ ...ECHO, parameters: { copies: 4 } }] });
    await running('a.bin', Buffer.alloc(1_000, 7));
    world.clock.advance(2 * MINUTE);
    // A lease keeps ticks apart. Without it, the result must be the same.
    const key = 'state/collector-0.json';
    const ticks = [];
    for (let i = 0; i < 4; i += 1) {
      ticks.push(world.tick());
      await world.remove(key, LEDGER);
    }
    await Promise.all(ticks);
    expect((await world.receipt('a.bin')).assets).toHaveLength(4);
    expect(await world.keys(RESULTS)).toHaveLength(5);
    expect(await world.keys(LEDGER, 'running/')).toEqual([]);
    const receipt = await world.object(RESULTS, 'a.bin/receipt.json');
    await world.tickAfter(20 * MINUTE);
    expect((await world.object(RESULTS, 'a.bin/receipt.json')).bytes.equals(receipt.bytes)).toBe(true);
  });

  const ends: readonly (readonly [
    what: string,
    parameters: Route['parameters'],
    code: string | undefined,
    stored: number,
    lost: readonly string[],
  ])[] = [
    ['in failure', { fail: true, copies: 3, partial: 2 }, 'flow-failed', 2, []],
    ['with a failed output', { copies: 3, failed_outputs: 1 }, undefined, 2, ['output-failed']],
    ['with none but a failed output', { copies: 1, failed_outputs: 1 }, 'outputs-failed', 0, ['output-failed']],
  ];
  it.each(ends)(
    '%s has the others stored, and a receipt that says what failed',
    async (_, parameters, code, stored, lost) => {
      await start({ routes: [{ ...ECHO, parameters }] });
      await running();
      const receipt = await world.settled('a.bin');
      expect(receipt.status).toBe(code === undefined ? 'succeeded' : 'failed');
      expect(receipt.failure?.code).toBe(code);
      expect(receipt.assets).toHaveLength(stored);
      expect(receipt.failedOutputs.map((output) => output.code)).toEqual(lost);
      expect(await world.keys(LEDGER, 'failed/')).toHaveLength(code === undefined ? 0 : 1);
    },
  );

  it('in failure with a reason has it in its receipt', async () => {
    await start();
    await running();
    world.fault('getFlow', answer({ flow_id: 'any', state: 'failed', error: { message: 'No memory' } }));
    const failure = { code: 'flow-failed', message: 'The flow failed: No memory' };
    expect(await world.settled('a.bin')).toMatchObject({ status: 'failed', failure });
  });

  it('in success has the words of its error in the log', async () => {
    await start();
    await running();
    world.fault('getFlow', answer({ flow_id: 'any', state: 'completed', error: '2 of 4 pictures were left out' }));
    expect(await world.settled('a.bin')).toMatchObject({ status: 'succeeded' });
    const told = world.logged.filter(({ fields }) => fields.said === '2 of 4 pictures were left out');
    expect(told.map(({ level, fields }) => [level, fields.key])).toEqual([['warn', 'a.bin']]);
  });

  it('in failure has its outputs stored if its error stands beside their list', async () => {
    await start();
    await running();
    world.service.intercept = ({ url }, { operation }) => {
      const error = 'No memory';
      if (operation === 'listOutputs') return answer({ outputs: [{ id: 'a1' }], success: false, error });
      if (operation === 'getAsset') return { status: 200, body: 'v 0 0 0', headers: { 'content-type': 'model/obj' } };
      return operation === 'getFlow' ? answer({ flow_id: url, state: 'failed', error }) : undefined;
    };
    expect(await world.settled('a.bin')).toMatchObject({ failure: { code: 'flow-failed' }, assets: [{ id: 'a1' }] });
  });

  it('with ten thousand outputs has as many stored as the settings allow, and a receipt that counts the others', async () => {
    await start({ settings: { outputsMax: 20 }, routes: [ANYTHING] });
    await running();
    const outputs = Array.from({ length: 10_000 }, (_, index) => ({ id: `${index}` }));
    world.service.intercept = (_, { operation }) =>
      operation === 'listOutputs' ? answer({ outputs }) : operation === 'getAsset' ? answer({}) : undefined;
    const receipt = await world.settled('a.bin');
    expect(receipt.assets).toHaveLength(20);
    expect(receipt.failedOutputs).toEqual([
      { id: '', code: 'too-many-outputs', message: '9980 outputs beyond the limit of 20 were not stored.' },
    ]);
    expect(world.service.counts.getAsset).toBe(20);
    expect(world.events).toHaveLength(1);
  });

  it('completed without any output is a failure, once a second poll confirms it', async () => {
    await start();
    await running();
    world.fault('listOutputs', { status: 200, body: '{"outputs":[]}', at: 'after-effect' }, 1);
    await world.tickAfter(2 * MINUTE);
    expect(await world.entry()).toMatchObject({ state: 'running' });
    world.fault('listOutputs', { status: 200, body: '{"outputs":[]}', at: 'after-effect' });
    expect(await world.settled('a.bin')).toMatchObject({ status: 'failed', failure: { code: 'no-outputs' } });
  });

  it('completed without any output is a failure with the words of the service', async () => {
    await start();
    await running();
    world.service.intercept = ({ url }, { operation }) => {
      if (operation === 'listOutputs') return answer({ outputs: [] });
      return operation === 'getFlow' ? answer({ flow_id: url, state: 'completed', error: 'no face found' }) : undefined;
    };
    const message = 'The flow completed without any output: no face found.';
    expect(await world.settled('a.bin')).toMatchObject({ status: 'failed', failure: { code: 'no-outputs', message } });
  });
});

describe('every way in which a service may answer', () => {
  const variations: Partial<Variation>[] = [
    {},
    { outputsPath: 'root' },
    { getFlow: 404 },
    { getFlow: 405 },
    { getFlow: 501 },
    { getFlow: 404, earlyOutputs: 'not-found' },
    { getFlow: 404, earlyOutputs: 'empty' },
    { getFlow: 404, earlyOutputs: 'pending' },
    { getFlow: 404, listFlows: 405, changeFlow: 501, outputsPath: 'root' },
    { flowIdName: 'id', assetIdName: 'id', outputsShape: 'bare', assetForm: 'json', assetLength: 'chunked' },
  ];
  it.each(variations.map((variation) => [JSON.stringify(variation), variation] as const))(
    'comes to the same results: %s',
    async (_, variation) => {
      await start({ service: { variation }, routes: [{ ...ECHO, parameters: { copies: 2 } }] });
      const bytes = Buffer.from(Array.from({ length: 10_003 }, (_, i) => (i * 7) % 256));
      await running('a.bin', bytes);
      const receipt = await world.settled('a.bin');
      expect(receipt.status).toBe('succeeded');
      expect(receipt.assets).toHaveLength(2);
      for (const { key, mediaType } of receipt.assets) {
        expect(mediaType).toBe('application/x-test');
        expect((await world.object(RESULTS, key)).bytes.equals(bytes)).toBe(true);
      }
      expect(world.service.flows).toHaveLength(1);
    },
  );
});

describe('a flow that runs for ever', () => {
  it('fails when it is too old, and is aborted', async () => {
    await start({ service: { flowMs: 100 * DAY }, settings: { flowAgeMaxSeconds: 3600 } });
    await running();
    await world.tickAfter(59 * MINUTE);
    expect(await world.entry()).toMatchObject({ state: 'running' });
    await world.tickAfter(20 * MINUTE);
    expect(await world.receipt('a.bin')).toMatchObject({ status: 'failed', failure: { code: 'timed-out' } });
    expect(world.service.flows[0]?.aborted).toBe(true);
    expect(await world.keys(LEDGER, 'running/')).toEqual([]);
  });

  it('is not said of one whose end the listing of its outputs shows only then', async () => {
    await start({
      service: { variation: { getFlow: 404 }, flowMs: 10 * MINUTE },
      settings: { flowAgeMaxSeconds: 3600 },
    });
    await running();
    await world.tickAfter(90 * MINUTE);
    expect(await world.entry()).toMatchObject({ state: 'running' });
    await world.tickAfter(20 * MINUTE);
    expect(await world.receipt('a.bin')).toMatchObject({ status: 'succeeded' });
  });

  it('ends at twice its maximum age, even if its outputs differ at each poll', async () => {
    await start({ service: { variation: { getFlow: 404 }, flowMs: 0 }, settings: { flowAgeMaxSeconds: 3600 } });
    await running();
    let polls = 0;
    world.service.intercept = ({ url }) => {
      if (!url.includes('/outputs')) return undefined;
      polls += 1;
      return { status: 200, body: JSON.stringify({ outputs: [{ id: `asset-${polls}`, status: 'ready' }] }) };
    };
    await world.tickAfter(90 * MINUTE);
    expect(await world.entry()).toMatchObject({ state: 'running' });
    // A run past that age that stores nothing counts, and the second one ends the flow.
    for (let runs = 1; runs <= 2; runs += 1) await world.tickAfter(45 * MINUTE).catch(() => {});
    expect(await world.receipt('a.bin')).toMatchObject({ status: 'failed', failure: { code: 'outputs-failed' } });
  });
});

describe('ids of the service', () => {
  /** Ids that are special in paths, URLs, headers and keys. */
  const IDS = [
    ...['../x', '...', '/', 'a\\b', 'a?b=c#d', 'a%2Fb', '%', 'a+b c', 'a\r\nX-Evil: b', 'a\0b', 'naïve ☃', "'();!*"],
    ...['__proto__', 'receipt.json', 'constructor', '/'.repeat(256), '🪑'.repeat(64)],
  ];

  it('are those of flows and assets like any other, whatever they are', async () => {
    // Each is the id of a flow and of its asset. They go over the wire.
    const ids = IDS.flatMap((id) => [id, id]);
    await start({ isVirtual: false, service: { newId: () => ids.shift() ?? 'another' }, routes: [ANYTHING] });
    for (const id of IDS) await world.send(`${IDS.indexOf(id)}`, id);
    await world.settle();
    for (const [index, id] of IDS.entries()) {
      const { status, flow, assets } = await world.receipt(`${index}`);
      expect({ status, flow, assets }).toMatchObject({ status: 'succeeded', flow: { id }, assets: [{ id }] });
      const [{ key } = { key: '' }] = assets;
      expect(key).toMatch(/^\d+\/[ -~]+\/[ -~]+$/);
      expect(key.split('/')).toHaveLength(3);
      expect(key.split('/')).not.toContain('..');
      expect((await world.object(RESULTS, key)).bytes.toString()).toBe(id);
    }
  });

  it('fit into the metadata of an asset if they are long, beside a long template', async () => {
    const id = '/'.repeat(256);
    await start({
      isVirtual: false,
      service: { newId: () => id },
      routes: [{ ...ANYTHING, template: 'é'.repeat(80) }],
    });
    world.service.intercept = (_, { operation }) => {
      if (operation === 'createFlow') return answer({ flow_id: id });
      if (operation === 'getFlow') return answer({ flow_id: id, state: 'completed' });
      return operation === 'listOutputs' ? answer([{ id }]) : operation === 'getAsset' ? answer({}) : undefined;
    };
    await running();
    expect(await world.settled('a.bin')).toMatchObject({ status: 'succeeded', assets: [{ id, bytes: 2 }] });
  });
});

describe('an asset that comes damaged', () => {
  const page: Fault = { status: 200, body: '<html>', headers: { 'content-type': 'text/html' } };
  it.each<[string, Fault, string, tries: number]>([
    ['with a wrong byte', { garble: true }, 'damaged-asset', 2],
    ['as a part', { status: 206, body: 'x' }, 'damaged-asset', 2],
    ['as a refusal', { status: 400, body: 'x' }, 'rejected', 2],
    ['as something that is not there', { status: 404 }, 'not-found', 2],
    ['as something forbidden', { status: 403 }, 'forbidden', 2],
    ['as a page', page, 'not-an-asset', 2],
    ['too large', { status: 200, body: 'too large '.repeat(1_001) }, 'asset-too-large', 1],
  ])('%s at every attempt is not stored, and the receipt says why', async (_, fault, code, tries) => {
    await start({
      service: { variation: { assetForm: 'json' } },
      settings: { attemptsMax: 2, assetBytesMax: 10_000 },
    });
    await running('a.bin', Buffer.alloc(1_000));
    world.fault('getAsset', fault);
    expect(await world.settled('a.bin')).toMatchObject({
      status: 'failed',
      failure: { code: 'outputs-failed' },
      failedOutputs: [{ code, message: expect.stringMatching(/./) }],
    });
    expect(await world.keys(RESULTS)).toEqual(['a.bin/receipt.json']);
    expect(world.service.counts.getAsset).toBe(tries);
  });

  it('as a page is one if its route makes pages', async () => {
    await start({ routes: [{ ...ECHO, makes: ['text/html', 'model/*'] }] });
    await running();
    world.fault('getAsset', page);
    const { status, assets } = await world.settled('a.bin');
    expect({ status, assets }).toMatchObject({ status: 'succeeded', assets: [{ mediaType: 'text/html' }] });
    expect((await world.object(RESULTS, assets[0]?.key ?? '')).bytes.toString()).toBe('<html>');
  });

  it('is never stored and is fetched again, alone', async () => {
    await start({ routes: [{ ...ECHO, parameters: { copies: 3 } }] });
    const bytes = Buffer.alloc(1_000, 'flowdrop');
    await running('a.bin', bytes);
    world.service.intercept = (_, { operation, n }) =>
      operation === 'getAsset' && n === 2 ? { truncate: 10 } : undefined;
    await world.tickAfter(2 * MINUTE);
    expect(await world.keys(RESULTS)).toHaveLength(2);
    expect((await world.settled('a.bin')).assets).toMatchObject(Array(3).fill({ sha256: sha256(bytes) }));
    expect(world.service.counts.getAsset).toBe(4);
  });
});

describe('an asset that is refused again and again', () => {
  const mended = { at: false };
  const bucketRefuses = () =>
    world.beforeS3((call, { Bucket, Key = '' }) => {
      if (mended.at || call !== 'PutObject' || Bucket !== RESULTS || Key.endsWith('receipt.json')) return;
      throw Object.assign(new Error('Access Denied'), { name: 'AccessDenied', $metadata: { httpStatusCode: 403 } });
    });
  const serviceAnswers = (status: number) => () => world.fault('getAsset', () => (mended.at ? {} : { status }));

  /** Lets the ticks pause for an hour. The first run after that is refused its asset, and no other is. */
  async function pauseAndRefuseOnce(): Promise<void> {
    world.clock.advance(60 * MINUTE);
    world.fault('getAsset', { status: 503, body: '' });
    await world.tickAfter(0);
    world.service.intercept = undefined;
    await world.tickAfter(10 * MINUTE);
  }

  it('does not end an old flow in its first run', async () => {
    await start({ settings: { flowAgeMaxSeconds: 60 } });
    await world.send('a');
    await pauseAndRefuseOnce();
    expect((await world.receipt('a')).status).toBe('succeeded');
  });

  it('does not end an old flow in the first run after a pause, although an asset was refused before', async () => {
    await start({ settings: { flowAgeMaxSeconds: 600 } });
    await world.send('a');
    world.fault('getAsset', answer({ detail: 'no' }, 404));
    await world.tickAfter(2 * MINUTE);
    await world.tickAfter(SECOND);
    await pauseAndRefuseOnce();
    expect((await world.receipt('a')).status).toBe('succeeded');
  });

  it('does not end an old flow while each run stores another asset', async () => {
    await start({ routes: [{ ...ECHO, parameters: { copies: 3 } }], settings: { flowAgeMaxSeconds: 60 } });
    await world.send('a');
    world.clock.advance(60 * MINUTE);
    let isFirst = true;
    world.service.intercept = (_, { operation }) => {
      if (operation !== 'getAsset') return undefined;
      const isServed = isFirst;
      isFirst = false;
      return isServed ? undefined : { status: 503, body: '' };
    };
    for (let tick = 0; tick < 3; tick += 1) {
      isFirst = true;
      await world.tickAfter(10 * MINUTE);
    }
    expect((await world.receipt('a')).assets).toHaveLength(3);
  });

  it.each<[string, () => void, RegExp, isCounted: boolean]>([
    ['by the results bucket', bucketRefuses, /^The asset could not be stored: AccessDenied: Access Denied$/, false],
    ['by the service, with an error', serviceAnswers(500), /^asset: 500/, false],
    ['by the service, as something forbidden', serviceAnswers(403), /^asset: 403/, true],
  ])('%s has its reason in the entry, which is written once for it', async (_, refuse, words, isCounted) => {
    mended.at = false;
    await start();
    await running();
    refuse();
    const begunAt = world.clock.now();
    let writes = 0;
    world.beforeS3((call, { Bucket, Key = '' }) => {
      if (call === 'PutObject' && Bucket === LEDGER && Key.startsWith('uploads/')) writes += 1;
    });
    await world.tickAfter(2 * MINUTE).catch(() => undefined);
    const entry = await world.entry();
    expect(entry).toMatchObject({ state: 'running', obstacle: { message: expect.stringMatching(words) } });
    const obstacle = viewOf(entry, world.ports.settings).obstacle;
    expect(obstacle?.message).toMatch(words);
    expect(Date.parse(obstacle?.since ?? '')).toBeGreaterThan(begunAt);
    await world.tickAfter(2 * MINUTE).catch(() => undefined);
    expect(viewOf(await world.entry(), world.ports.settings).obstacle).toEqual(obstacle);
    // One that is counted is written down as such.
    expect(writes).toBe(isCounted ? 2 : 1);

    mended.at = true;
    expect((await world.settled('a.bin')).status).toBe('succeeded');
    expect(await world.entry()).not.toHaveProperty('obstacle');
  });
});

describe('an object at the key of an asset that another writer put there', () => {
  it('stays as it is, and the receipt names it', async () => {
    await start({ settings: { attemptsMax: 2 }, routes: [ANYTHING] });
    const { flow } = await running('a');
    world.service.intercept = (_, { operation }) =>
      operation === 'listOutputs' ? answer([{ id: 'a1' }]) : operation === 'getAsset' ? answer({}) : undefined;
    const key = `a/${flow.id}/a1.json`;
    await world.put(RESULTS, key, 'not ours', { owner: 'me' });
    await expect(world.tickAfter(2 * MINUTE)).rejects.toThrow('1 uploads could not be processed');
    await world.tickAfter(30 * MINUTE);
    const failedOutputs = [{ code: 'key-taken', message: expect.stringContaining(key) }];
    expect(await world.receipt('a')).toMatchObject({ status: 'failed', assets: [], failedOutputs });
    expect((await world.object(RESULTS, key)).bytes.toString()).toBe('not ours');
  });
});

describe('a tick', () => {
  it('keeps its lease for as long as it works', async () => {
    await start({
      transport: (direct) => async (request, signal) => {
        if (request.method === 'GET') await world.clock.sleep(MINUTE);
        return direct(request, signal);
      },
    });
    await running();
    /** When the lease was written, and until when it is held then. */
    const writes: { readonly at: number; readonly heldUntil: number }[] = [];
    world.beforeS3((_, { Key, Body }) => {
      if (Key !== 'state/collector-0.json' || Body === undefined) return;
      writes.push({ at: world.clock.now(), heldUntil: JSON.parse(Body).heldUntil });
    });
    world.remainingMs = 2 * MINUTE;
    await world.tick();
    expect(writes.length).toBeGreaterThan(5);
    for (const [n, { at }] of writes.slice(1).entries()) expect(writes[n]?.heldUntil).toBeGreaterThan(at + 15_000);
    expect(writes.at(-1)?.heldUntil).toBeLessThanOrEqual(world.clock.now());
  });

  it('ends at once if its lease is taken, and takes over one that ran out', async () => {
    await start();
    await world.put(LEDGER, 'state/collector-0.json', JSON.stringify({ heldUntil: world.clock.now() + 30_000 }));
    expect(await world.tick()).toMatchObject({ result: 'lease taken', polled: 0 });
    expect(await world.tickAfter(31_000)).toMatchObject({ result: 'completed' });
  });

  it.each<[string, object, number]>([
    ['unauthorised', { status: 401 }, 1],
    ['throttled', { status: 429, headers: { 'retry-after': '700' } }, 0],
  ])('ends if its only flow is refused, and no upload fails: %s', async (result, fault, tokensRejected) => {
    await start();
    await running();
    world.service.intercept = () => fault;
    expect(await world.tickAfter(2 * MINUTE)).toMatchObject({ result, succeeded: 0, failed: 0 });
    expect(world.count('TokenRejected')).toBe(tokensRejected);
    world.service.intercept = undefined;
    // The tick was cut short, so the flow is due at once.
    expect(await world.tickAfter(700_000)).toMatchObject({ result: 'completed', succeeded: 1 });
  });

  it('stops before its deadline, and the next one resumes its work', async () => {
    await start({ routes: [{ ...ECHO, parameters: { copies: 6 } }] });
    await running('a.bin', Buffer.alloc(10));
    world.remainingMs = 3_000;
    world.service.intercept = (_, { operation, n }) =>
      operation === 'getAsset' && n > 3 ? { delayMs: 4_000 } : undefined;
    expect(await world.tickAfter(2 * MINUTE)).toMatchObject({ result: 'out of time', succeeded: 0 });
    const stored = ((await world.entry()) as RunningEntry).assets?.length ?? 0;
    expect(stored).toBeGreaterThan(0);
    const before = world.service.counts.getAsset;
    world.service.intercept = undefined;
    expect(await world.tick()).toMatchObject({ result: 'completed', succeeded: 1 });
    expect(world.service.counts.getAsset - before).toBe(6 - stored);
    expect((await world.receipt('a.bin')).assets).toHaveLength(6);
  });

  it('does several rounds in its minute while a young flow runs', async () => {
    await start({ settings: { pollIntervalSeconds: 15 }, service: { flowMs: 20_000 } });
    world.remainingMs = 5 * MINUTE;
    await running();
    expect(await world.tick()).toMatchObject({ result: 'completed', succeeded: 1 });
  });

  it('drops a marker without an entry, and is not held up by keys that are none', async () => {
    await start();
    const { upload } = await running();
    const at = '2026-01-01T00:00:00.000Z';
    const stale = [`running/${at}/${'0'.repeat(40)}/nothing`, `running/${at}/${upload.id}/another-flow`];
    const foreign = ['running/x', `running/${at}/${upload.id}/..`, 'waiting/~'];
    for (const key of [...stale, `waiting/${at}/${'0'.repeat(40)}`, ...foreign]) await world.put(LEDGER, key, 'any');
    for (let i = 0; i < 3; i += 1) expect(await world.tickAfter(5 * MINUTE)).toMatchObject({ result: 'completed' });
    expect(await world.keys(LEDGER, 'running/')).toEqual(foreign.slice(0, 2).toSorted());
    expect(await world.keys(LEDGER, 'waiting/')).toEqual(foreign.slice(2));
    expect((await world.receipt('a.bin')).status).toBe('succeeded');
    expect(world.service.counts.getFlow).toBeLessThanOrEqual(1 + stale.length);
  });

  it('publishes the receipt, and drops the marker, of an ended entry that a killed tick left', async () => {
    await start();
    const { flow, upload } = await running();
    await world.settle();
    await world.remove('a.bin/receipt.json', RESULTS);
    await world.ports.ledger.putRunningMarker(
      { ageFrom: flow.createdAt, uploadId: upload.id, flowId: flow.id },
      new AbortController().signal,
    );
    expect((await world.settled('a.bin')).status).toBe('succeeded');
    expect(await world.keys(LEDGER, 'running/')).toEqual([]);
  });

  it('leaves each flow to one of several collectors, and counts those of all', async () => {
    await start({ service: { flowMs: 10 * MINUTE } });
    for (let i = 0; i < 12; i += 1) await world.upload(`${i}`);
    await world.deliverAll();
    world.clock.advance(2 * MINUTE);
    const { running: share } = await world.tick({ index: 1, of: 3 });
    expect(share).toBeLessThan(12);
    expect(world.count('FlowsRunning')).toBe(12);
    world.clock.advance(10 * MINUTE);
    const ticks = await Promise.all([0, 1, 2].map((index) => world.tick({ index, of: 3 })));
    expect(ticks.reduce((sum, { polled }) => sum + polled, 0)).toBe(12);
    expect(ticks.reduce((sum, { succeeded }) => sum + succeeded, 0)).toBe(12);
  });
});

describe('the event of the collecting function', () => {
  it('means a tick of the only collector if it is empty', () => {
    for (const event of [{}, null, undefined])
      expect(parseCollectEvent(event)).toEqual({ collector: { index: 0, of: 1 } });
  });

  it.each([
    ['a word', 'tick'],
    ['a typo', { retyr: [] }],
    ['no uploads', { retry: [] }],
    ['what is no upload id', { retry: ['../x'] }],
    ['an index out of range', { collector: { index: 2, of: 2 } }],
    ['a negative index', { collector: { index: -1, of: 2 } }],
    ['half an index', { collector: { index: 0.5, of: 2 } }],
  ])('is refused by name if it is %s', (_, event) => {
    expect(() => parseCollectEvent(event)).toThrow(InvalidCollectEventError);
  });
});
