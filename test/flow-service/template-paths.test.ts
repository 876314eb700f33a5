import { beforeEach, expect, it } from 'vitest';
import type { ClaimedEntry } from '../../functions/ledger/entry.ts';
import type { Route } from '../../functions/uploads/route.ts';
import { speaking } from '../support/speaking.ts';
import { DAY, LEDGER, MINUTE, start, world } from '../support/world.ts';
import { streamed } from './chunks.ts';
import { clientOf, never } from './scripted.ts';

/** A template whose name has a slash, as names of models have. The stand-in knows it by the second part. */
const ROUTES: readonly Route[] = [{ name: 'echo', input: 'file', template: 'owner/bytes_echo' }];
const BELOW = '/owner/bytes_echo';

/** A service all of whose paths have the template in them. The list of jobs has no template, so there is none. */
const SPEAKS = {
  create: { path: '/{template}/flows', body: { template: 'bytes_echo' } },
  state: { path: '/{template}/flows/{id}' },
  outputs: { path: '/{template}/flows/{id}/outputs', asset: '/{template}/flows/{id}/outputs/{asset}' },
  abort: { path: '/{template}/flows/{id}' },
  list: null,
  templates: null,
};

/** The requests, as the service gets them. */
let requests: string[];

const begin = (more: Parameters<typeof start>[0] = {}) =>
  start({
    routes: ROUTES,
    speaks: SPEAKS,
    ...more,
    transport: (direct) => (request, signal) => {
      const { pathname } = request.url;
      requests.push(`${request.method} ${pathname}`);
      // Any other path is not served.
      const url = new URL(pathname.startsWith(`${BELOW}/`) ? pathname.slice(BELOW.length) : '/elsewhere', request.url);
      return direct({ ...request, url }, signal);
    },
  });

beforeEach(() => {
  requests = [];
});

it('polls a flow and fetches its outputs at paths with its template', async () => {
  await begin();
  await world.send('a.png', 'GIF89a');
  const { status, assets } = await world.settled('a.png');
  expect(status).toBe('succeeded');
  expect((await world.object('results', assets[0]?.key ?? '')).bytes.toString()).toBe('GIF89a');
  const [flow] = world.service.flows;
  expect(requests).toEqual(
    expect.arrayContaining([
      `POST ${BELOW}/flows`,
      `GET ${BELOW}/flows/${flow?.id}`,
      `GET ${BELOW}/flows/${flow?.id}/outputs`,
      `GET ${BELOW}/flows/${flow?.id}/outputs/${flow?.outputs[0]?.assetId}`,
    ]),
  );
});

it('fetches an output at a path without its flow, if outputs have ids of their own', async () => {
  await start({
    speaks: { outputs: { asset: '/files/{asset}/content' } },
    transport: (direct) => (request, signal) => {
      const [, file] = /^\/files\/(.+)\/content$/.exec(request.url.pathname) ?? [];
      const [flow] = world.service.flows;
      const url = file === undefined ? request.url : new URL(`/flows/${flow?.id}/outputs/${file}`, request.url);
      return direct({ ...request, url }, signal);
    },
  });
  await world.send('a.bin', 'x');
  expect((await world.settled('a.bin')).status).toBe('succeeded');
});

it('asks for a flow and its outputs at paths with a query, in which an id cannot add a parameter', async () => {
  const flows = clientOf(new URL('https://flows.test/v1'), {
    service: speaking({
      state: { path: '/get?api-version=1&run_id={id}' },
      outputs: { path: '/outputs?id={id}', asset: '/files?of={id}&name={asset}' },
    }),
    transport: async ({ url }) => {
      requests.push(`${url.pathname}${url.search}`);
      const body = Buffer.from(url.pathname.endsWith('/files') ? 'glTF' : '{"state":"completed","outputs":[]}');
      const headers = { 'content-type': 'application/json', 'content-length': String(body.length) };
      return { status: 200, headers, body: streamed([body]), destroy() {} };
    },
  });
  expect(await flows.get('a&b=1', never)).toMatchObject({ state: 'completed' });
  await flows.outputs('a', never);
  await flows.asset('a', 'b c', never, { accepts: () => true });
  expect(requests).toEqual(['/v1/get?api-version=1&run_id=a%26b%3D1', '/v1/outputs?id=a', '/v1/files?of=a&name=b%20c']);
});

it('aborts a cancelled flow there', async () => {
  await begin();
  await world.send('a.png');
  const upload = (await world.entry()).upload.id;
  expect(await world.collect({ cancel: [upload] })).toEqual([{ upload, result: 'cancelled', isAborted: true }]);
  expect(world.service.flows).toMatchObject([{ aborted: true }]);
});

it('aborts a flow past its maximum age there', async () => {
  await begin({ service: { flowMs: DAY }, settings: { flowAgeMaxSeconds: 3600 } });
  await world.send('a.png');
  await world.tickAfter(61 * MINUTE);
  expect(await world.receipt('a.png')).toMatchObject({ failure: { code: 'timed-out' } });
  expect(world.service.flows).toMatchObject([{ aborted: true }]);
});

it('aborts a flow there that another invocation made an orphan', async () => {
  await begin();
  const { flows } = world.ports;
  const { create } = flows;
  flows.create = async (request, signal) => {
    flows.create = create;
    const entry = (await world.entry()) as ClaimedEntry;
    const theirs = { ...entry, nonce: 'theirs', state: 'running', flow: { id: 'theirs', createdAt: entry.claimedAt } };
    await world.put(LEDGER, `uploads/${entry.upload.id}.json`, JSON.stringify(theirs));
    return create.call(flows, request, signal);
  };
  await world.send('a.png');
  expect(world.count('FlowsOrphaned')).toBe(1);
  expect(world.service.flows).toMatchObject([{ aborted: true }]);
});

it('drops the marker of a flow whose upload has no entry any more', async () => {
  await begin();
  await world.send('a.png');
  const [key = ''] = await world.keys(LEDGER, 'uploads/');
  await world.remove(key, LEDGER);
  await world.tickAfter(2 * MINUTE);
  expect(await world.keys(LEDGER, 'running/')).toEqual([]);
});

it.each(['../flows', 'owner//bytes_echo', './x', 'owner/'])(
  'sends nothing to a path with the template %s',
  async (template) => {
    await begin({ routes: [{ name: 'echo', input: 'file', template }] });
    await world.send('a.png');
    expect(await world.receipt('a.png')).toMatchObject({ failure: { code: 'rejected' } });
    expect(requests).toEqual([]);
  },
);
