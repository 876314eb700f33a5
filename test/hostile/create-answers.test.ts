import { describe, expect, it } from 'vitest';
import type { Fault } from '../../local/flow-service/fault.ts';
import { LEDGER, RESULTS, TOKEN } from '../support/world.ts';
import { html, NO_ANSWER_OF_EACH_KIND, nested } from './bad-answers.ts';
import { answering, hostileWorld, MINUTE, onlyReceipt, saying } from './support.ts';

/** Sends the upload and looks for its flow ten minutes later. The doubt is held, and the upload is not sent again. */
async function expectHeldDoubt(world: Awaited<ReturnType<typeof hostileWorld>>): Promise<void> {
  await world.deliver();
  world.clock.advance(10 * MINUTE);
  await world.tick();
  await world.deliver();
  expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'held' });
  expect(world.service.flows).toHaveLength(1);
}

describe('an answer to POST /flows that is', () => {
  const unusable: readonly (readonly [what: string, fault: () => Fault])[] = [
    ...NO_ANSWER_OF_EACH_KIND,
    ['an empty list', () => saying('[]')],
    ['an empty object', () => saying('{}')],
    ['an unusable id', () => saying('{"flow_id":".."}')],
    ['See Other', () => ({ status: 303, headers: { location: '/flows/65f0' } })],
  ];
  it.each(unusable)('%s, after the flow was made, leads to that flow by its tag', async (_, fault) => {
    const world = await hostileWorld();
    answering(world, 'createFlow', (n) => (n === 1 ? { ...fault(), at: 'after-effect' } : undefined));
    await world.upload('a', 'x');
    expect(await world.deliver()).toEqual({ batchItemFailures: [] });
    await world.settle();
    expect(world.service.flows).toHaveLength(1);
    expect((await onlyReceipt(world)).status).toBe('succeeded');
  });

  it.each(unusable)(
    '%s, every time and without a flow, uses up the attempts, and the receipt says so',
    async (_, fault) => {
      const world = await hostileWorld({ settings: { attemptsMax: 2 } });
      answering(world, 'createFlow', () => fault());
      await world.upload('a', 'x');
      await world.settle();
      expect(await onlyReceipt(world)).toMatchObject({ status: 'failed', failure: { code: 'attempts-exhausted' } });
      expect(world.service.counts.createFlow).toBe(2);
    },
  );

  const refusals: readonly (readonly [what: string, fault: Fault, message: string])[] = [
    ...[400, 404, 406, 409, 410, 411, 413, 414, 415, 418, 422, 431, 451].map(
      (status) =>
        [`${status}`, { status, headers: { location: 'http://evil.example/flows' } }, `create: ${status}`] as const,
    ),
    ['a page', { status: 422, body: html }, '<h1>Bad Gateway</h1>'],
    ['a long page', { status: 422, body: html.repeat(10_000) }, '<h1>Bad Gateway</h1>'],
    ['lists in lists, 30,000 deep', { status: 422, body: nested(30_000) }, 'create: 422'],
    ['a detail of lists in lists', { status: 422, body: `{"detail":${nested(30_000)}}` }, 'create: 422'],
    ['details of lists in lists', { status: 422, body: `{"detail":[${nested(30_000)}]}` }, 'create: 422'],
    [
      'a place of lists in lists',
      { status: 422, body: `{"detail":[{"loc":${nested(30_000)},"msg":"x"}]}` },
      'create: 422',
    ],
    ['a place that is not text', { status: 422, body: '{"detail":[{"loc":[{"toString":1}],"msg":"Wrong"}]}' }, 'Wrong'],
    [
      'a message that is not text',
      { status: 422, body: '{"detail":[{"msg":{"toString":1,"valueOf":1}}]}' },
      'toString',
    ],
    ['details that are null', { status: 422, body: '{"detail":[null]}' }, 'create: 422'],
    [
      'ten thousand details',
      { status: 422, body: JSON.stringify({ detail: Array(2_000).fill({ msg: 'Wrong' }) }) },
      'Wrong; Wrong',
    ],
    ['half a character', { status: 422, body: JSON.stringify({ detail: '\ud800' }) }, '\ufffd'],
    ['our token', { status: 422, body: `Who is ${TOKEN}?` }, 'Who is [token]?'],
    ['our token in JSON', { status: 422, body: JSON.stringify({ detail: `Bearer ${TOKEN}` }) }, 'Bearer [token]'],
    [
      'our token in JSON, with escapes',
      {
        status: 422,
        body: `{"detail":"${TOKEN.replace(/[a-m-]/g, (c) => `\\u00${c.charCodeAt(0).toString(16).toUpperCase()}`)}"}`,
      },
      '[token]',
    ],
    ['our token at the cut', { status: 422, body: `${'x'.repeat(290)}${TOKEN}` }, 'xxx'],
  ];
  it.each(refusals)('a refusal (%s) ends the upload at once, with a receipt', async (_, fault, message) => {
    const world = await hostileWorld();
    answering(world, 'createFlow', fault);
    await world.upload('a', 'x');
    expect(await world.deliver()).toEqual({ batchItemFailures: [] });
    const receipt = await onlyReceipt(world);
    expect(receipt).toMatchObject({ status: 'failed', failure: { code: 'rejected' } });
    expect(receipt.failure?.message).toContain(message);
    expect(receipt.failure?.message.length).toBeLessThan(400);
    expect(world.service.counts.createFlow).toBe(1);
  });

  it.each([300, 301, 304, 307, 308, 405, 501])('%i, which no file can cause, leaves it waiting', async (status) => {
    const world = await hostileWorld();
    answering(world, 'createFlow', { status, headers: { location: 'http://evil.example/flows' } });
    await world.upload('a', 'x');
    expect(await world.deliver()).toEqual({ batchItemFailures: [] });
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'misaddressed', attempts: 0 });
    expect(world.service.counts.createFlow).toBe(1);
  });

  it('302 after the flow was made leads to that flow by its tag', async () => {
    const world = await hostileWorld();
    answering(world, 'createFlow', { status: 302, headers: { location: '/flows/65f0' }, at: 'after-effect' });
    await world.upload('a', 'x');
    expect(await world.deliver()).toEqual({ batchItemFailures: [] });
    await world.settle();
    expect(world.service.flows).toHaveLength(1);
    expect((await onlyReceipt(world)).status).toBe('succeeded');
  });
});

describe('a flow whose id is', () => {
  const usable = [
    '../x',
    '...',
    '/',
    '//',
    'a/b',
    'a\\b',
    'a?b=c',
    'a#b',
    'a%2Fb',
    '%',
    'a+b',
    'a b',
    'a\nb',
    'a\r\nX-Evil: b',
    'a\0b',
    '\u0001',
    'naïve ☃',
    '🪑',
    '__proto__',
    'receipt.json',
    "'();!*",
    'x'.repeat(256),
    '/'.repeat(256),
    '🪑'.repeat(64),
    'null',
    '-1',
  ];
  it.each(usable.map((id) => [JSON.stringify(id).slice(0, 40), id] as const))(
    '%s is collected like any other',
    async (_, id) => {
      // Asset ids are as bad. Together with the template, all must fit into the metadata of an asset.
      const ids = [id, id];
      const world = await hostileWorld({ service: { newId: () => ids.shift() ?? 'another' } });
      await world.upload('a', 'x', { ContentType: 'application/x-test' });
      await world.settle();
      expect(world.service.flows).toHaveLength(1);
      const receipt = await onlyReceipt(world);
      expect(receipt).toMatchObject({ status: 'succeeded', flow: { id }, assets: [{ id, bytes: 1 }] });
      const [asset] = receipt.assets;
      expect(asset?.key.split('/')).toHaveLength(3);
      expect(asset?.key.split('/')).not.toContain('..');
      expect(asset?.key).toMatch(/^a\/[ -~]+\/[ -~]+$/);
      expect(await world.keys(RESULTS)).toEqual([asset?.key, 'a/receipt.json'].sort());
      expect(await world.keys(LEDGER, 'running/')).toEqual([]);
    },
  );

  it('long, like its asset id and its template, fits into the metadata of an asset', async () => {
    const ids = ['/'.repeat(256), '/'.repeat(256)];
    const world = await hostileWorld({
      service: { newId: () => ids.shift() ?? 'another' },
      routes: [{ name: 'long', input: 'file', template: 'é'.repeat(80) }],
    });
    const id = '/'.repeat(256);
    world.service.intercept = (_, { operation }) => {
      if (operation === 'createFlow') return saying(JSON.stringify({ flow_id: id }));
      if (operation === 'getFlow') return saying(JSON.stringify({ flow_id: id, state: 'completed' }));
      if (operation === 'listOutputs') return saying(JSON.stringify({ outputs: [{ asset_id: id }] }));
      return operation === 'getAsset' ? saying('x', { headers: { 'content-type': 'text/plain' } }) : undefined;
    };
    await world.upload('a', 'x');
    await world.settle();
    expect(await onlyReceipt(world)).toMatchObject({ status: 'succeeded', assets: [{ bytes: 1 }] });
  });

  it.each([1, 0, -1, Number.MAX_SAFE_INTEGER])('the number %d is requested by its digits', async (id) => {
    const world = await hostileWorld();
    world.service.intercept = ({ url }, { operation }) => {
      if (operation === 'createFlow') return saying(JSON.stringify({ flow_id: id }));
      if (operation === 'getFlow')
        return url === `/flows/${id}` ? saying(`{"id":${id},"state":"done"}`) : { status: 500 };
      if (operation === 'listOutputs') return saying('[{"id":1}]');
      return operation === 'getAsset' && url === `/flows/${id}/outputs/1` ? saying('{}') : undefined;
    };
    await world.upload('a', 'x');
    await world.settle();
    expect(await onlyReceipt(world)).toMatchObject({ status: 'succeeded', flow: { id: String(id) } });
  });

  it.each(['.', '..', 'x'.repeat(257), '\ud800'])(
    'unusable, even in the listing, is never called absent: %j',
    async (id) => {
      const ids = [id];
      const world = await hostileWorld({
        service: { newId: () => ids.shift() ?? '65f0', flowMs: 0 },
        settings: { inDoubt: 'hold' },
      });
      await world.upload('a', 'x');
      await expectHeldDoubt(world);
    },
  );
});

describe('a listing of flows that', () => {
  const record = { flow_id: 'other', state: 'completed', additional: { customer: 7 } };
  it.each<[string, readonly object[]]>([
    ['shows no additional data', [{ ...record, additional: undefined }]],
    ['shows additional data as null', [{ ...record, additional: null }]],
    ['shows only active flows', [{ ...record, state: 'running' }]],
  ])('%s does not settle a doubt: the upload is held', async (_, listed) => {
    const world = await hostileWorld({ service: { flowMs: 0 }, settings: { inDoubt: 'hold' } });
    world.service.intercept = (_request, { operation }) => {
      if (operation === 'createFlow') return { reset: 'after-effect' };
      return operation === 'listFlows' ? saying(JSON.stringify({ flows: listed, next: null })) : undefined;
    };
    await world.upload('a', 'x');
    await expectHeldDoubt(world);
  });

  it('shows additional data as JSON in a string leads to the flow by its tag', async () => {
    const world = await hostileWorld();
    world.service.intercept = (_request, { operation, n }) => {
      if (operation === 'createFlow') return n === 1 ? { reset: 'after-effect' } : undefined;
      if (operation !== 'listFlows') return undefined;
      const flows = world.service.flows.map(({ id, state, additional }) => ({
        flow_id: id,
        state,
        additional: JSON.stringify(additional),
      }));
      return saying(JSON.stringify({ flows }));
    };
    await world.upload('a', 'x');
    await world.settle();
    expect(world.service.flows).toHaveLength(1);
    expect((await onlyReceipt(world)).status).toBe('succeeded');
  });
});
