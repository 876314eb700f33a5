import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { Receipt } from '../../functions/publish/receipts.ts';
import type { Fault } from '../../local/flow-service/fault.ts';
import { RESULTS, TOKEN, type World, type WorldOptions } from '../support/world.ts';
import { BOMB, html, NO_ANSWER_OF_EACH_KIND, nested, zipped } from './bad-answers.ts';
import { answering, endless, hostileWorld, MINUTE, onlyReceipt, saying } from './support.ts';

async function running(options: WorldOptions = {}, body = 'x'): Promise<World> {
  const world = await hostileWorld({ ...options, settings: { flowAgeMaxSeconds: 1_800, ...options.settings } });
  await world.upload('a', body, { ContentType: 'application/x-test' });
  await world.deliver();
  expect(await world.entry()).toMatchObject({ state: 'running' });
  return world;
}

describe('an answer to GET /flows/{id} that is', () => {
  const ill: readonly (readonly [what: string, fault: () => Fault])[] = [
    ...NO_ANSWER_OF_EACH_KIND,
    ['a list', () => saying('[]')],
    ['a record without an id', () => saying('{"state":"completed"}')],
    ['a record with an unusable id', () => saying('{"flow_id":"..","state":"completed"}')],
    ['a state that is no text', () => saying('{"flow_id":"1","state":{"toString":1,"valueOf":1}}')],
    ['a redirect', () => ({ status: 302, headers: { location: 'http://169.254.169.254/' } })],
    ['a refusal', () => ({ status: 400, body: html })],
    ['403', () => ({ status: 403, body: html })],
  ];
  it.each(ill)('%s leaves the flow running up to its greatest age, and then says so', async (_, fault) => {
    const world = await running();
    answering(world, 'getFlow', () => fault());
    await world.settle();
    const receipt = await onlyReceipt(world);
    expect(receipt).toMatchObject({ status: 'failed', failure: { code: 'timed-out' } });
    expect(receipt.failure?.message).toMatch(/1800 seconds.*: \S/);
    expect(await world.keys(RESULTS)).toEqual(['a/receipt.json']);
  });

  const odd: readonly (readonly [what: string, record: object])[] = [
    ['no state', {}],
    ['a state that is null', { state: null }],
    ['a state of no one', { state: 'pondering' }],
    ['a state that is a number', { state: 5 }],
    ['a progress beyond all', { state: 'running', progress: 1e300 }],
    ['times that are none', { state: 'running', created_at: 'yesterday', finished_at: {} }],
    ['a time beyond all', { state: 'running', created_at: 1e300 }],
    ['additional data that are a list', { state: 'running', additional: [[[]]] }],
  ];
  it.each(odd)('%s is a running flow', async (_, record) => {
    const world = await running();
    answering(world, 'getFlow', saying(JSON.stringify({ flow_id: 'any', ...record })));
    world.clock.advance(20 * MINUTE);
    expect(await world.tick()).toMatchObject({ result: 'completed', running: 1, failed: 0 });
    world.service.intercept = undefined;
    await world.settle();
    expect((await onlyReceipt(world)).status).toBe('succeeded');
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
    answering(world, 'getFlow', saying(JSON.stringify({ flow_id: 'any', state: 'failed', error })));
    await world.settle();
    const receipt = await onlyReceipt(world);
    expect(receipt).toMatchObject({ status: 'failed', failure: { code: 'flow-failed' } });
    expect(receipt.failure?.message).toContain(message);
    expect(receipt.failure?.message.length).toBeLessThan(400);
  });
});

describe('a listing of outputs that is', () => {
  const ill: readonly (readonly [what: string, fault: () => Fault])[] = [
    ...NO_ANSWER_OF_EACH_KIND,
    ['an empty object', () => saying('{}')],
    ['an object whose outputs are null', () => saying('{"outputs":null}')],
    ['an object whose outputs are an object', () => saying('{"outputs":{}}')],
    ['a list of null', () => saying('[null]')],
    ['a list of numbers', () => saying('[1,2]')],
    ['a list of lists', () => saying('[[]]')],
    ['a redirect', () => ({ status: 307, headers: { location: 'https://evil.example/' } })],
    ['a refusal', () => ({ status: 422, body: html })],
  ];
  it.each(ill)('%s leaves the flow uncollected up to its greatest age, and then says so', async (_, fault) => {
    const world = await running();
    answering(world, 'listOutputs', () => fault());
    await world.settle();
    const receipt = await onlyReceipt(world);
    expect(receipt).toMatchObject({ status: 'failed', failure: { code: 'timed-out' } });
    expect(receipt.failure?.message).toMatch(/1800 seconds.*: \S/);
  });

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
    await world.settle();
    return [world, await onlyReceipt(world)];
  }

  it('cut into pages is stored whole', async () => {
    const world = await running();
    world.service.intercept = ({ url }, { operation }) => {
      if (operation === 'getAsset') return saying('asset', { headers: { 'content-type': 'text/plain' } });
      if (operation !== 'listOutputs') return undefined;
      const page = Number(/page=(\d)/.exec(url)?.[1] ?? 1);
      const ids = [['1', '2'], ['3', '4'], ['5']][page - 1] ?? [];
      return saying(JSON.stringify({ outputs: ids.map((id) => ({ id })), total: 5 }));
    };
    await world.settle();
    const receipt = await onlyReceipt(world);
    expect(receipt.status).toBe('succeeded');
    expect(receipt.assets.map(({ id }) => id)).toEqual(['1', '2', '3', '4', '5']);
  });

  it('cut off is never called a success', async () => {
    const world = await running();
    answering(world, 'listOutputs', saying('{"outputs":[{"id":"1"},{"id":"2"}],"total":5}'));
    await world.settle();
    const receipt = await onlyReceipt(world);
    expect(receipt).toMatchObject({ status: 'failed', failure: { code: 'timed-out' } });
    expect(receipt.failure?.message).toContain('not all outputs can be listed');
  });

  it.each([undefined, 'x'.repeat(10_000)])(
    'one of an unusable id beside a good one loses only that one, by name (%#)',
    async (id) => {
      const [world, receipt] = await collected([{ asset_id: id }, { asset_id: 'good' }]);
      expect(receipt).toMatchObject({
        status: 'succeeded',
        assets: [{ id: 'good' }],
        failedOutputs: [{ code: 'output-failed' }],
      });
      expect(receipt.failedOutputs[0]?.message).toContain('unusable id');
      expect(receipt.failedOutputs[0]?.message.length).toBeLessThan(200);
      expect(await world.keys(RESULTS)).toHaveLength(2);
    },
  );

  it.each([0, 3, 50])('the same id %i times more is one output', async (more) => {
    const [world, receipt] = await collected(Array.from({ length: more + 1 }, () => ({ id: 'one', status: 'ready' })));
    expect(receipt.assets).toHaveLength(1);
    expect(world.service.counts.getAsset).toBe(1);
  });

  it('ids that differ only in how they are written stay apart', async () => {
    const ids = [
      'a',
      'A',
      'a ',
      ' a',
      'a/',
      'a%2F',
      'a.txt',
      'a\u0301',
      '\u00e1',
      'receipt.json',
      'receipt',
      '../a',
      './a',
    ];
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

  it('empty, of a flow that is complete, is a failure that says so', async () => {
    const [, receipt] = await collected([]);
    expect(receipt).toMatchObject({ status: 'failed', failure: { code: 'no-outputs' }, assets: [], failedOutputs: [] });
  });
});

describe('an asset that comes as', () => {
  const json = { 'content-type': 'application/json' };
  const uri = (data: string, more = '') => saying(`{"data":"${data}"${more}}`);
  const damaged: readonly (readonly [what: string, fault: () => Fault, code: string])[] = [
    ['nothing, said to be so', () => ({ status: 204 }), 'unintelligible-answer'],
    ['a part', () => ({ status: 206, body: 'x' }), 'unintelligible-answer'],
    ['a refusal', () => ({ status: 400, body: html }), 'rejected'],
    ['something that is not there', () => ({ status: 404 }), 'not-found'],
    ['something that is gone', () => ({ status: 410 }), 'not-found'],
    ['something not ready', () => ({ status: 409 }), 'not-ready'],
    ['something forbidden', () => ({ status: 403 }), 'forbidden'],
    ['gzip', () => zipped('asset', 'text/plain'), 'damaged-asset'],
    ['a bomb of gzip', () => zipped(BOMB, 'text/plain'), 'damaged-asset'],
    ['brotli', () => saying('x', { headers: { 'content-encoding': 'br' } }), 'damaged-asset'],
    ['more bytes than there may be', () => saying('x'.repeat(10_001), { headers: {} }), 'asset-too-large'],
    ['bytes without end', () => ({ status: 200, body: endless('x') }), 'asset-too-large'],
    ['JSON without end', () => ({ status: 200, headers: json, body: endless('{"a":[') }), 'asset-too-large'],
    [
      'base64 without end',
      () => ({ status: 200, headers: json, body: after('{"data":"data:;base64,', 'AAAA') }),
      'asset-too-large',
    ],
    [
      'escapes without end',
      () => ({ status: 200, headers: json, body: after('{"data":"data:;base64,', '\\n') }),
      'out-of-time',
    ],
    [
      'a media type without end',
      () => ({ status: 200, headers: json, body: after('{"data":"data:', 'x') }),
      'damaged-asset',
    ],
    [
      'a tail without end',
      () => ({ status: 200, headers: json, body: after('{"data":"data:,a"', ' ') }),
      'damaged-asset',
    ],
    ['a data URI that is cut', () => saying('{"data":"data:text/plain;base64,AAAA'), 'damaged-asset'],
    ['an envelope of lists 100,000 deep', () => uri('data:,a', `,"x":${nested(100_000)},`), 'damaged-asset'],
  ];
  it.each(damaged)('%s is never stored, and the receipt says why', async (_, fault, code) => {
    const world = await running({ settings: { attemptsMax: 2, assetBytesMax: 10_000 } });
    world.remainingMs = code === 'out-of-time' ? 2_000 : world.remainingMs;
    answering(world, 'getAsset', () => fault());
    await world.settle();
    const receipt = await onlyReceipt(world);
    expect(receipt).toMatchObject({
      status: 'failed',
      failure: { code: 'outputs-failed' },
      assets: [],
      failedOutputs: [{ code }],
    });
    expect(receipt.failedOutputs[0]?.message).not.toBe('');
    expect(await world.keys(RESULTS)).toEqual(['a/receipt.json']);
  });

  const stored: readonly (readonly [what: string, fault: () => Fault, bytes: string | Buffer, mediaType: string])[] = [
    ['nothing', () => saying('', { headers: { 'content-type': 'text/plain' } }), '', 'text/plain'],
    ['no media type', () => saying('x', { headers: {} }), 'x', 'application/octet-stream'],
    [
      'garbage for a media type',
      () => saying('x', { headers: { 'content-type': 'garbage' } }),
      'x',
      'application/octet-stream',
    ],
    ['a range of media types', () => saying('x', { headers: { 'content-type': 'image/*' } }), 'x', 'image/*'],
    ['an upper-case media type', () => saying('x', { headers: { 'content-type': 'IMAGE/PNG' } }), 'x', 'IMAGE/PNG'],
    [
      'two media types',
      () => saying('x', { headers: { 'content-type': 'image/png, text/html' } }),
      'x',
      'application/octet-stream',
    ],
    [
      'a media type of 8,000 characters',
      () => saying('x', { headers: { 'content-type': `a/${'b'.repeat(8_000)}` } }),
      'x',
      'application/octet-stream',
    ],
    [
      'parameters of 8,000 characters',
      () => saying('x', { headers: { 'content-type': `image/png;a=${'b'.repeat(8_000)}` } }),
      'x',
      'image/png',
    ],
    [
      'parameters in quotes',
      () => saying('x', { headers: { 'content-type': 'text/plain; charset="utf-8"' } }),
      'x',
      'text/plain;charset=utf-8',
    ],
    ['a page', () => saying(html, { headers: { 'content-type': 'text/html' } }), html, 'text/html'],
    ['JSON that is itself the asset', () => saying('{"a":[1]}'), '{"a":[1]}', 'application/json'],
    ['lists 4,000 deep', () => saying(nested(4_000)), nested(4_000), 'application/json'],
  ];
  it.each(stored)('%s is stored as it is', async (_, fault, bytes, mediaType) => {
    const world = await running({ settings: { assetBytesMax: 10_000 } });
    answering(world, 'getAsset', () => fault());
    await world.settle();
    const receipt = await onlyReceipt(world);
    expect(receipt).toMatchObject({ status: 'succeeded', assets: [{ mediaType }] });
    const object = await world.object(RESULTS, receipt.assets[0]?.key ?? '');
    expect(object.bytes.equals(Buffer.from(bytes))).toBe(true);
    expect(object.mediaType).toBe(mediaType);
  });

  /** A server that answers whatever it is asked with these very bytes. */
  async function rawServer(answer: string): Promise<URL> {
    const server = createServer((socket) => {
      socket.on('error', () => {});
      socket.once('data', () => socket.end(Buffer.from(answer, 'latin1')));
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    onTestFinished(() => void server.close());
    return new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  }

  const head = 'HTTP/1.1 200 OK\r\n';
  const raw: readonly (readonly [what: string, answer: string])[] = [
    ['no HTTP', 'hello\r\n\r\n'],
    ['nothing at all', ''],
    ['a head that is cut', 'HTTP/1.1 200 OK\r\nContent-Ty'],
    ['a header of 100,000 bytes', `${head}X: ${'x'.repeat(100_000)}\r\nContent-Length: 1\r\n\r\nx`],
    ['a NUL in a header', `${head}X: a\0b\r\nContent-Length: 1\r\n\r\nx`],
    ['two lengths', `${head}Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx`],
    ['a length that is none', `${head}Content-Length: many\r\n\r\nx`],
    ['a negative length', `${head}Content-Length: -1\r\n\r\nx`],
    ['a length and chunks', `${head}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n`],
    ['chunks that are none', `${head}Transfer-Encoding: chunked\r\n\r\nzz\r\nx\r\n`],
    ['chunks without an end', `${head}Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n`],
    ['less than it announced', `${head}Content-Length: 100\r\n\r\nx`],
    ['no length and no chunks', `${head}Connection: close\r\n\r\nx`],
    ['a status beyond all', 'HTTP/1.1 999 What\r\nContent-Length: 0\r\n\r\n'],
  ];
  it.each(raw)('%s is never stored, and ends the flow at its greatest age at the latest', async (_, answer) => {
    const asset = await rawServer(answer);
    const world = await running({
      transport: (direct) => (request, signal) => {
        const { pathname } = request.url;
        const isAsset = /^\/flows\/[^/]+\/outputs\/./.test(pathname);
        return direct(isAsset ? { ...request, url: new URL(pathname, asset) } : request, signal);
      },
    });
    await world.settle();
    const receipt = await onlyReceipt(world);
    expect(receipt).toMatchObject({ status: 'failed', assets: [], failedOutputs: [{}] });
    expect(await world.keys(RESULTS)).toEqual(['a/receipt.json']);
  });
});

/** A beginning, and then the same for ever. */
async function* after(beginning: string, chunk: string): AsyncGenerator<Uint8Array> {
  yield Buffer.from(beginning);
  yield* endless(chunk);
}
