import { describe, expect, it } from 'vitest';
import type { Fault } from '../../local/flow-service/fault.ts';
import { LEDGER, RESULTS, TOKEN } from '../support/world.ts';
import { html, NO_ANSWER_OF_EACH_KIND } from './bad-answers.ts';
import { hostileWorld, MINUTE, onlyReceipt, saying, settledReceipt } from './support.ts';

const HOUR = 60 * MINUTE;

/** A gateway or a firewall may answer so after the service has made the flow: one status for each error of the client. */
const GATEWAY: readonly (readonly [status: number, fault: Fault])[] = [
  [302, { status: 302, headers: { location: 'https://login.example/' } }],
  [403, saying('{"message":"Forbidden"}', { status: 403 })],
  [404, { status: 404, body: html, headers: { 'content-type': 'text/html' } }],
  [408, { status: 408 }],
  [409, saying('{"message":"Conflict"}', { status: 409 })],
];

describe('an answer to POST /flows that is', () => {
  const unusable: readonly (readonly [what: string, fault: () => Fault])[] = [
    ...NO_ANSWER_OF_EACH_KIND,
    ...GATEWAY.map(([status, fault]) => [String(status), () => fault] as const),
  ];
  const fromElsewhere = ['a page', '302'];
  const refusals = ['404', '409'];
  it.each(unusable)('%s, after the flow was made, leads to that flow by its tag', async (_, fault) => {
    const world = await hostileWorld();
    world.fault('createFlow', () => ({ ...fault(), at: 'after-effect' }), 1);
    expect(await world.send('a')).toEqual({ batchItemFailures: [] });
    expect((await settledReceipt(world)).status).toBe('succeeded');
    expect(world.service.flows).toHaveLength(1);
  });

  it.each(unusable.filter(([what]) => ![...fromElsewhere, ...refusals].includes(what)))(
    '%s, every time and without a flow, uses up the attempts, and the receipt says so',
    async (_, fault) => {
      const world = await hostileWorld({ settings: { attemptsMax: 2 } });
      world.fault('createFlow', fault);
      await world.upload('a', 'x');
      expect(await settledReceipt(world)).toMatchObject({ status: 'failed', failure: { code: 'attempts-exhausted' } });
      expect(world.service.counts.createFlow).toBe(2);
    },
  );

  it.each(unusable.filter(([what]) => fromElsewhere.includes(what)))(
    '%s, every time and without a flow, is no fault of the file, which waits for three days',
    async (_, fault) => {
      const world = await hostileWorld({ settings: { attemptsMax: 2 } });
      world.fault('createFlow', fault);
      await world.upload('a', 'x');
      await world.deliverAndTick(6, 10 * HOUR);
      expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'misaddressed', attempts: 0 });
      expect(world.count('ServiceMisaddressed')).toBeGreaterThan(2);
      await world.deliverAndTick(3, 10 * HOUR);
      expect(await onlyReceipt(world)).toMatchObject({ status: 'failed', failure: { code: 'misaddressed' } });
    },
  );

  it.each(unusable.filter(([what]) => refusals.includes(what)))(
    '%s, every time and without a flow, fails once the listing proves it',
    async (_, fault) => {
      const world = await hostileWorld();
      world.fault('createFlow', fault);
      await world.send('a');
      expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'in-doubt', attempts: 1 });
      expect(await settledReceipt(world)).toMatchObject({ status: 'failed', failure: { code: 'rejected' } });
      expect(world.service.counts.createFlow).toBe(1);
      expect(world.count('ServiceMisaddressed')).toBe(0);
    },
  );

  const unlisted = { service: { variation: { listFlows: 404 } } } as const;

  it.each(GATEWAY)('%i, after an unlisted flow was made, is held if doubts are held', async (_, fault) => {
    const world = await hostileWorld({ ...unlisted, settings: { inDoubt: 'hold' } });
    world.fault('createFlow', { ...fault, at: 'after-effect' });
    await world.send('a');
    await world.deliverAndTick(3, 10 * MINUTE);
    await world.deliver();
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'held' });
    expect(world.count('DoubtsHeld')).toBe(1);
    expect(world.service.flows).toHaveLength(1);
  });

  it.each(GATEWAY)('%i, after an unlisted flow was made, is counted if it is sent again', async (_, fault) => {
    const world = await hostileWorld({ ...unlisted, settings: { inDoubt: 'retry' } });
    world.fault('createFlow', { ...fault, at: 'after-effect' }, 1);
    await world.upload('a', 'x');
    expect((await settledReceipt(world)).status).toBe('succeeded');
    expect(world.service.flows).toHaveLength(2);
    expect(world.count('DoubtsRetried')).toBe(1);
  });

  it('403, every time after the flow was made, leads to one flow', async () => {
    const world = await hostileWorld({ service: { variation: { listingDelayMs: MINUTE } } });
    world.fault('createFlow', { status: 403, at: 'after-effect' });
    await world.upload('a', 'x');
    expect((await settledReceipt(world)).status).toBe('succeeded');
    expect(world.service.flows).toHaveLength(1);
  });

  const own = (status: number): Fault => saying('{"detail":"No template for you"}', { status });
  it.each([
    [403, { state: 'waiting', reason: 'forbidden', attempts: 1 }],
    [404, { state: 'failed', failure: { code: 'rejected' } }],
    [408, { state: 'waiting', reason: 'unavailable', attempts: 1 }],
    [409, { state: 'failed', failure: { code: 'rejected' } }],
  ])('%i in the form of the service is believed at once, although no flow is listed', async (status, expected) => {
    const world = await hostileWorld({ ...unlisted, settings: { inDoubt: 'hold' } });
    world.fault('createFlow', own(status));
    await world.send('a');
    expect(await world.entry()).toMatchObject(expected);
    expect(world.service.counts.createFlow).toBe(1);
  });

  it.each([403, 404, 409])('%i in the form of the service is not believed if the flow is listed', async (status) => {
    const world = await hostileWorld();
    world.fault('createFlow', { ...own(status), at: 'after-effect' }, 1);
    await world.upload('a', 'x');
    expect((await settledReceipt(world)).status).toBe('succeeded');
    expect(world.service.flows).toHaveLength(1);
  });

  const quoted: readonly (readonly [what: string, fault: Fault, message: string])[] = [
    [
      '410',
      saying('{"detail":"No more"}', { status: 410, headers: { 'content-type': 'application/json', location: 'x:' } }),
      'create: 410',
    ],
    ['a long page', { status: 422, body: html.repeat(10_000) }, '<h1>Bad Gateway</h1>'],
    ['half a character', { status: 422, body: JSON.stringify({ detail: '\ud800' }) }, '\ufffd'],
    [
      'our token in JSON, with escapes',
      {
        status: 422,
        body: `{"detail":"${TOKEN.replace(/[a-m-]/g, (c) => `\\u00${c.charCodeAt(0).toString(16).toUpperCase()}`)}"}`,
      },
      '[token]',
    ],
  ];
  it.each(quoted)('a refusal (%s) ends the upload at once, with a receipt', async (_, fault, message) => {
    const world = await hostileWorld();
    world.fault('createFlow', fault);
    expect(await world.send('a')).toEqual({ batchItemFailures: [] });
    const receipt = await onlyReceipt(world);
    expect(receipt).toMatchObject({ status: 'failed', failure: { code: 'rejected' } });
    expect(receipt.failure?.message).toContain(message);
    expect(receipt.failure?.message.length).toBeLessThan(400);
    expect(world.service.counts.createFlow).toBe(1);
  });
});

describe('a flow whose id is', () => {
  const usable = [
    ...['../x', '...', '/', 'a\\b', 'a?b=c#d', 'a%2Fb', '%', 'a+b c', 'a\r\nX-Evil: b', 'a\0b', 'naïve ☃', "'();!*"],
    ...['__proto__', 'receipt.json', 'null', '/'.repeat(256), '🪑'.repeat(64)],
  ];
  it.each(usable.map((id) => [JSON.stringify(id).slice(0, 40), id] as const))(
    '%s is collected like any other',
    async (_, id) => {
      // Asset ids are as bad. Together with the template, all must fit into the metadata of an asset.
      const ids = [id, id];
      const world = await hostileWorld({ service: { newId: () => ids.shift() ?? 'another' } });
      await world.upload('a', 'x', { ContentType: 'application/x-test' });
      const receipt = await settledReceipt(world);
      expect(world.service.flows).toHaveLength(1);
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
    expect(await settledReceipt(world)).toMatchObject({ status: 'succeeded', assets: [{ bytes: 1 }] });
  });

  it.each([0, -1, Number.MAX_SAFE_INTEGER])('the number %d is requested by its digits', async (id) => {
    const world = await hostileWorld();
    world.service.intercept = ({ url }, { operation }) => {
      if (operation === 'createFlow') return saying(JSON.stringify({ flow_id: id }));
      if (operation === 'getFlow')
        return url === `/flows/${id}` ? saying(`{"id":${id},"state":"done"}`) : { status: 500 };
      if (operation === 'listOutputs') return saying('[{"id":1}]');
      return operation === 'getAsset' && url === `/flows/${id}/outputs/1` ? saying('{}') : undefined;
    };
    await world.upload('a', 'x');
    expect(await settledReceipt(world)).toMatchObject({ status: 'succeeded', flow: { id: String(id) } });
  });

  it('unusable, even in the listing, is never called absent', async () => {
    const ids = ['..'];
    const world = await hostileWorld({
      service: { newId: () => ids.shift() ?? '65f0', flowMs: 0 },
      settings: { inDoubt: 'hold' },
    });
    await world.send('a');
    await world.tickAfter(10 * MINUTE);
    // The doubt is held, and the upload is not sent again.
    await world.deliver();
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'held' });
    expect(world.service.flows).toHaveLength(1);
  });
});
