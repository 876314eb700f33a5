import { describe, expect, it } from 'vitest';
import type { Fault } from '../../local/flow-service/fault.ts';
import { LEDGER, RESULTS, TOKEN } from '../support/world.ts';
import { html, NO_ANSWER_OF_EACH_KIND } from './bad-answers.ts';
import { hostileWorld, MINUTE, onlyReceipt, saying, settledReceipt } from './support.ts';

describe('an answer to POST /flows that is', () => {
  const unusable: readonly (readonly [what: string, fault: () => Fault])[] = [
    ...NO_ANSWER_OF_EACH_KIND,
    ['See Other', () => ({ status: 303, headers: { location: '/flows/65f0' } })],
  ];
  it.each(unusable)('%s, after the flow was made, leads to that flow by its tag', async (_, fault) => {
    const world = await hostileWorld();
    world.fault('createFlow', () => ({ ...fault(), at: 'after-effect' }), 1);
    expect(await world.send('a')).toEqual({ batchItemFailures: [] });
    expect((await settledReceipt(world)).status).toBe('succeeded');
    expect(world.service.flows).toHaveLength(1);
  });

  it.each(unusable)(
    '%s, every time and without a flow, uses up the attempts, and the receipt says so',
    async (_, fault) => {
      const world = await hostileWorld({ settings: { attemptsMax: 2 } });
      world.fault('createFlow', fault);
      await world.upload('a', 'x');
      expect(await settledReceipt(world)).toMatchObject({ status: 'failed', failure: { code: 'attempts-exhausted' } });
      expect(world.service.counts.createFlow).toBe(2);
    },
  );

  const refusals: readonly (readonly [what: string, fault: Fault, message: string])[] = [
    ['410', { status: 410, headers: { location: 'http://evil.example/flows' } }, 'create: 410'],
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
  it.each(refusals)('a refusal (%s) ends the upload at once, with a receipt', async (_, fault, message) => {
    const world = await hostileWorld();
    world.fault('createFlow', fault);
    expect(await world.send('a')).toEqual({ batchItemFailures: [] });
    const receipt = await onlyReceipt(world);
    expect(receipt).toMatchObject({ status: 'failed', failure: { code: 'rejected' } });
    expect(receipt.failure?.message).toContain(message);
    expect(receipt.failure?.message.length).toBeLessThan(400);
    expect(world.service.counts.createFlow).toBe(1);
  });

  it.each([300, 301, 304, 307, 308, 405, 501])('%i, which no file can cause, leaves it waiting', async (status) => {
    const world = await hostileWorld();
    world.fault('createFlow', { status, headers: { location: 'http://evil.example/flows' } });
    expect(await world.send('a')).toEqual({ batchItemFailures: [] });
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'misaddressed', attempts: 0 });
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
