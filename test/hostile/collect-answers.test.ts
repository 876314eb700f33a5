import { describe, expect, it } from 'vitest';
import type { Receipt } from '../../functions/publish/receipts.ts';
import type { Fault } from '../../local/flow-service/fault.ts';
import { RESULTS, TOKEN, type World, type WorldOptions } from '../support/world.ts';
import { html, NO_ANSWER_OF_EACH_KIND, nested, zipped } from './bad-answers.ts';
import { endless, hostileWorld, MINUTE, saying, settledReceipt } from './support.ts';

async function running(options: WorldOptions = {}): Promise<World> {
  const world = await hostileWorld({ ...options, settings: { flowAgeMaxSeconds: 1_800, ...options.settings } });
  await world.send('a', 'x', { ContentType: 'application/x-test' });
  expect(await world.entry()).toMatchObject({ state: 'running' });
  return world;
}

describe.each(['getFlow', 'listOutputs'] as const)('an answer to %s that is', (operation) => {
  const ill: readonly (readonly [what: string, fault: () => Fault])[] = [
    ...NO_ANSWER_OF_EACH_KIND,
    [
      'a redirect to the metadata of a cloud',
      () => ({ status: 302, headers: { location: 'http://169.254.169.254/' } }),
    ],
    ['a redirect to another origin', () => ({ status: 307, headers: { location: 'https://evil.example/' } })],
    ['403', () => ({ status: 403, body: html })],
    ['a refusal', () => ({ status: 422, body: html })],
  ];
  it.each(ill)('%s leaves the flow uncollected up to its greatest age, and then says so', async (_, fault) => {
    const world = await running();
    world.fault(operation, fault);
    const receipt = await settledReceipt(world);
    expect(receipt).toMatchObject({ status: 'failed', failure: { code: 'timed-out' } });
    expect(receipt.failure?.message).toMatch(/1800 seconds.*: \S/);
    expect(await world.keys(RESULTS)).toEqual(['a/receipt.json']);
  });
});

describe('an answer to GET /flows/{id} that is', () => {
  const odd: readonly (readonly [what: string, record: object])[] = [
    ['a time beyond all', { state: 'running', created_at: 1e300 }],
    ['additional data that are a list', { state: 'running', additional: [[[]]] }],
  ];
  it.each(odd)('%s is a running flow', async (_, record) => {
    const world = await running();
    world.fault('getFlow', saying(JSON.stringify({ flow_id: 'any', ...record })));
    expect(await world.tickAfter(20 * MINUTE)).toMatchObject({ result: 'completed', running: 1, failed: 0 });
    world.service.intercept = undefined;
    expect((await settledReceipt(world)).status).toBe('succeeded');
  });

  const errors: readonly (readonly [what: string, error: unknown, message: string])[] = [
    ['text', 'No memory', 'The flow failed: No memory'],
    ['long text', 'x'.repeat(100_000), 'xxx…'],
    ['an object', { message: 'No memory' }, 'The flow failed: No memory'],
    ['objects in objects', { message: { message: {} } }, 'The flow failed: {"message"'],
    ['a list', ['No', 'memory'], '["No","memory"]'],
    ['our token', `Bearer ${TOKEN}`, 'Bearer [token]'],
    ['null', null, 'The flow failed'],
  ];
  it.each(errors)('a failure whose error is %s is told in the receipt', async (_, error, message) => {
    const world = await running();
    world.fault('getFlow', saying(JSON.stringify({ flow_id: 'any', state: 'failed', error })));
    const receipt = await settledReceipt(world);
    expect(receipt).toMatchObject({ status: 'failed', failure: { code: 'flow-failed' } });
    expect(receipt.failure?.message).toContain(message);
    expect(receipt.failure?.message.length).toBeLessThan(400);
  });
});

describe('a listing of outputs that is', () => {
  /** What becomes of outputs whose every download would succeed. */
  async function collected(
    outputs: readonly unknown[],
    settings: WorldOptions['settings'] = {},
  ): Promise<[World, Receipt]> {
    const world = await running({ settings });
    world.service.intercept = (_, { operation }) => {
      if (operation === 'listOutputs') return saying(JSON.stringify({ outputs }));
      if (operation === 'getAsset') return saying('asset', { headers: { 'content-type': 'text/plain' } });
      return undefined;
    };
    return [world, await settledReceipt(world)];
  }

  it('one of an unusable id beside a good one loses only that one, by name', async () => {
    const [world, receipt] = await collected([{ asset_id: 'x'.repeat(10_000) }, { asset_id: 'good' }]);
    expect(receipt).toMatchObject({
      status: 'succeeded',
      assets: [{ id: 'good' }],
      failedOutputs: [{ code: 'output-failed', message: expect.stringContaining('unusable id') }],
    });
    expect(await world.keys(RESULTS)).toHaveLength(2);
  });

  it('ids that differ only in how they are written stay apart', async () => {
    const ids = ['a', 'A', 'a ', ' a', 'a/', 'a%2F', 'a.txt', 'a\u0301', '\u00e1', 'receipt.json', 'receipt', '../a'];
    const [world, receipt] = await collected(ids.map((id) => ({ id })));
    expect(receipt.assets.map(({ id }) => id)).toEqual(ids);
    expect(new Set(receipt.assets.map(({ key }) => key)).size).toBe(ids.length);
    expect(await world.keys(RESULTS)).toHaveLength(ids.length + 1);
    for (const { key } of receipt.assets) expect(key).toMatch(/^a\/[^/]+\/[^/]+$/);
  });

  it('ten thousand outputs long is stored up to the limit, and the receipt says how many were not', async () => {
    const [world, receipt] = await collected(
      Array.from({ length: 10_000 }, (_, i) => ({ id: `${i}` })),
      { outputsMax: 20 },
    );
    expect(receipt.assets).toHaveLength(20);
    expect(receipt.failedOutputs).toEqual([
      { id: '', code: 'too-many-outputs', message: '9980 outputs beyond the limit of 20 were not stored.' },
    ]);
    expect(world.service.counts.getAsset).toBe(20);
    expect(world.events).toHaveLength(1);
  });
});

describe('an asset that comes as', () => {
  const damaged: readonly (readonly [what: string, fault: () => Fault, code: string])[] = [
    ['a part', () => ({ status: 206, body: 'x' }), 'unintelligible-answer'],
    ['a refusal', () => ({ status: 400, body: html }), 'rejected'],
    ['something that is not there', () => ({ status: 404 }), 'not-found'],
    ['something not ready', () => ({ status: 409 }), 'not-ready'],
    ['something forbidden', () => ({ status: 403 }), 'forbidden'],
    ['gzip', () => zipped('asset', 'text/plain'), 'damaged-asset'],
    ['a page', () => saying(html, { headers: { 'content-type': 'text/html' } }), 'not-an-asset'],
    ['a page that calls itself JSON', () => saying(html), 'not-an-asset'],
    ['a page without end', () => ({ status: 200, body: after('<html>', 'x') }), 'not-an-asset'],
    ['bytes without end', () => ({ status: 200, body: endless('x') }), 'asset-too-large'],
    ['JSON without end', () => saying(endless('{"a":[')), 'asset-too-large'],
    ['a media type without end', () => saying(after('{"data":"data:', 'x')), 'damaged-asset'],
    ['a tail without end', () => saying(after('{"data":"data:,a"', ' ')), 'damaged-asset'],
    ['base64 without end', () => saying(after('{"data":"data:;base64,', 'AAAA')), 'asset-too-large'],
    ['escapes without end', () => saying(after('{"data":"data:;base64,', '\\n')), 'out-of-time'],
  ];
  it.each(damaged)('%s is never stored, and the receipt says why', async (_, fault, code) => {
    const world = await running({ settings: { attemptsMax: 2, assetBytesMax: 10_000 } });
    world.remainingMs = code === 'out-of-time' ? 2_000 : world.remainingMs;
    world.fault('getAsset', fault);
    const receipt = await settledReceipt(world);
    expect(receipt).toMatchObject({
      status: 'failed',
      failure: { code: 'outputs-failed' },
      assets: [],
      failedOutputs: [{ code }],
    });
    expect(receipt.failedOutputs[0]?.message).not.toBe('');
    expect(await world.keys(RESULTS)).toEqual(['a/receipt.json']);
  });

  const quoting: readonly (readonly [what: string, mediaType: string])[] = [
    ['our token', `application/x-${TOKEN}`],
    ['our token in base64', `application/x-${Buffer.from(`Bearer ${TOKEN}`).toString('base64url')}`],
    ['our token in capitals', `application/x-${TOKEN.toUpperCase()}`],
  ];
  it.each(quoting)('a media type with %s is stored without it', async (_, mediaType) => {
    for (const fault of [
      saying('x', { headers: { 'content-type': mediaType } }),
      saying(JSON.stringify({ data: `data:${mediaType};base64,eA==` })),
    ]) {
      const world = await running();
      world.fault('getAsset', fault);
      const receipt = await settledReceipt(world);
      expect(receipt).toMatchObject({ status: 'succeeded', assets: [{ mediaType: 'application/octet-stream' }] });
      expect((await world.object(RESULTS, receipt.assets[0]?.key ?? '')).mediaType).toBe('application/octet-stream');
    }
  });

  const stored: readonly (readonly [what: string, fault: () => Fault, bytes: string | Buffer, mediaType: string])[] = [
    ['nothing', () => saying('', { headers: { 'content-type': 'text/plain' } }), '', 'text/plain'],
    [
      'parameters of 8,000 characters',
      () => saying('x', { headers: { 'content-type': `image/png;a=${'b'.repeat(8_000)}` } }),
      'x',
      'image/png',
    ],
    ['JSON that is itself the asset', () => saying('{"a":[1]}'), '{"a":[1]}', 'application/json'],
    ['lists 4,000 deep', () => saying(nested(4_000)), nested(4_000), 'application/json'],
  ];
  const pageAs = (mediaType: string) => saying(html, { headers: { 'content-type': mediaType } });
  /** The body and the media type of a page in the form of the service, which no proxy knows. */
  const enveloped = saying(JSON.stringify({ data: `data:text/html;base64,${Buffer.from(html).toString('base64')}` }));
  const pages: readonly (readonly [what: string, fault: Fault, htmlTemplates: readonly string[], mediaType: string])[] =
    [
      ['a page of a template that makes pages', pageAs('text/html'), ['other', 'bytes_echo'], 'text/html'],
      [
        'a page of such a template, as bytes',
        pageAs('application/octet-stream'),
        ['bytes_echo'],
        'application/octet-stream',
      ],
      ['a page in the form of the service', enveloped, [], 'text/html'],
    ];
  it.each(pages)('%s is stored', async (_, fault, htmlTemplates, mediaType) => {
    const world = await running({ settings: { htmlTemplates } });
    world.fault('getAsset', fault);
    const receipt = await settledReceipt(world);
    expect(receipt).toMatchObject({ status: 'succeeded', assets: [{ mediaType }] });
    expect((await world.object(RESULTS, receipt.assets[0]?.key ?? '')).bytes.toString()).toBe(html);
  });

  it('a page, and then as itself, is tried again and stored', async () => {
    const world = await running({ settings: { attemptsMax: 2 } });
    world.fault('getAsset', pageAs('text/html'), 1);
    const receipt = await settledReceipt(world);
    expect(receipt).toMatchObject({ status: 'succeeded', assets: [{ mediaType: 'application/x-test' }] });
    expect((await world.entry()).attempts).toBe(1);
  });

  it.each(stored)('%s is stored as it is', async (_, fault, bytes, mediaType) => {
    const world = await running({ settings: { assetBytesMax: 10_000 } });
    world.fault('getAsset', fault);
    const receipt = await settledReceipt(world);
    expect(receipt).toMatchObject({ status: 'succeeded', assets: [{ mediaType }] });
    const object = await world.object(RESULTS, receipt.assets[0]?.key ?? '');
    expect(object.bytes.equals(Buffer.from(bytes))).toBe(true);
    expect(object.mediaType).toBe(mediaType);
  });
});

/** A beginning, and then the same for ever. */
async function* after(beginning: string, chunk: string): AsyncGenerator<Uint8Array> {
  yield Buffer.from(beginning);
  yield* endless(chunk);
}
