import { expect, it, onTestFinished } from 'vitest';
import { REPLICATE } from '../../functions/flow-service/job-services.ts';
import type { ServiceDescription } from '../../functions/flow-service/service-description.ts';
import { SETTINGS_DEFAULT } from '../../functions/settings/settings.ts';
import type { ServiceRequest } from '../../local/flow-service/call.ts';
import { StandInFlowService } from '../../local/flow-service/flow-service.ts';
import { serveFlowService } from '../../local/flow-service/http.ts';
import { StandInJobService } from '../../local/flow-service/job-service.ts';
import { issueOfService } from '../../operations/service-check.ts';
import { tryListings, tryService } from '../../operations/service-trial.ts';
import { speaking } from '../support/speaking.ts';
import { collect } from './chunks.ts';
import { clientOf, json, never, requestOf, scripted, sourceOf, TAG, TOKEN } from './scripted.ts';

const HEADERS = { 'X-Api-Version': '2026-11-01', app_id: 'flowdrop' };
/** As a server gets them. */
const RECEIVED = { 'x-api-version': '2026-11-01', app_id: 'flowdrop' };

type Received = Readonly<Record<string, string | string[] | undefined>>;

const hasAll = (headers: Received): boolean =>
  Object.entries(RECEIVED).every(([name, value]) => headers[name] === value);
const hasAny = (headers: Received): boolean => Object.keys(RECEIVED).some((name) => headers[name] !== undefined);

it('each kind of request to the service has the declared headers', async () => {
  const answers: Readonly<Record<string, unknown>> = {
    'POST /v1/flows': { flow_id: 'f1' },
    'GET /v1/flows/f1': { state: 'completed' },
    'GET /v1/flows/f1/outputs': { outputs: [{ id: 'a1' }] },
    'GET /v1/flows': { flows: [{ id: 'f0', state: 'completed' }], next: '/v1/flows?after=f0' },
    'GET /v1/flows?after=f0': { flows: [] },
    'GET /v1/templates': [{ name: 'echo' }],
    'PATCH /v1/flows/f1': {},
    'DELETE /v1/flows/f1': {},
  };
  await using server = await scripted((request, response) => {
    const path = `${request.method} ${request.url}`;
    if (path === 'GET /v1/files/a1') return response.end('glTF');
    if (path.endsWith('/a1')) return response.writeHead(302, { location: '/v1/files/a1' }).end();
    const isRefused = !(path in answers);
    return json(request, response, isRefused ? { detail: 'Not yours' } : answers[path], isRefused ? 403 : 200);
  });
  const service = speaking({ headers: HEADERS, list: { pages: { by: 'address', at: '/next' } } });
  const flows = clientOf(new URL('/v1', server.url), { service });
  await flows.create(requestOf(sourceOf('hi')), never);
  await flows.get('f1', never);
  await flows.outputs('f1', never);
  await collect((await flows.asset('f1', 'a1', never)).chunks);
  await flows.find([{ tag: TAG, since: 0, mayBeAbsent: true }], never);
  await flows.templates(never);
  expect(await flows.abort('f1', never)).toBeUndefined();
  expect(await flows.delete('f1', never)).toBeUndefined();
  // The listings are asked whether they are refused too.
  await expect(flows.get('refused', never)).rejects.toThrow('Not yours');
  const asked = server.requests.map(({ method, url }) => `${method} ${url}`);
  expect(new Set(asked)).toEqual(
    new Set([...Object.keys(answers), 'GET /v1/flows/f1/outputs/a1', 'GET /v1/files/a1', 'GET /v1/flows/refused']),
  );
  expect(asked.filter((each) => each === 'GET /v1/flows')).toHaveLength(2);
  for (const { headers } of server.requests) expect(headers).toMatchObject(RECEIVED);
});

it('a request that is repeated with a new token has the declared headers', async () => {
  await using server = await scripted((request, response, index) =>
    json(request, response, index === 0 ? { detail: 'expired' } : { state: 'running' }, index === 0 ? 401 : 200),
  );
  await clientOf(server.url, { service: speaking({ headers: HEADERS }) }).get('f1', never);
  expect(server.requests.map(({ headers }) => hasAll(headers))).toEqual([true, true]);
});

it.each([
  ['to another origin', (elsewhere: URL) => `${elsewhere}signed/a1`],
  ['to another path of its origin', () => '/other/a1'],
])('an asset that is redirected %s is asked for there without the declared headers', async (_, leads) => {
  await using elsewhere = await scripted((_request, response) => response.end('glTF'));
  await using server = await scripted((request, response) =>
    request.url?.startsWith('/v1/')
      ? response.writeHead(302, { location: leads(elsewhere.url) }).end()
      : response.end('glTF'),
  );
  const flows = clientOf(new URL('/v1', server.url), { service: speaking({ headers: HEADERS }) });
  await collect((await flows.asset('f1', 'a1', never)).chunks);
  const [first, ...others] = [...server.requests, ...elsewhere.requests];
  expect(hasAll(first?.headers ?? {})).toBe(true);
  expect(others.map(({ url, headers }) => [url, hasAny(headers)])).toEqual([
    [expect.stringMatching(/^\/(?:signed|other)\/a1$/), false],
  ]);
});

it('an address of a result gets the declared headers only if it is below that of the service', async () => {
  await using elsewhere = await scripted((_request, response) => response.end('glTF'));
  await using server = await scripted((request, response) => {
    if (request.url !== '/v1/predictions/p1') return response.end('glTF');
    const output = [`${server.url}v1/files/1`, `${elsewhere.url}signed/2`];
    return json(request, response, { id: 'p1', status: 'succeeded', output });
  });
  const flows = clientOf(new URL('/v1', server.url), { service: { ...REPLICATE, headers: HEADERS } });
  for (const { assetId } of await flows.outputs('p1', never)) {
    await collect((await flows.asset('p1', assetId, never)).chunks);
  }
  expect(server.requests.filter(({ url }) => url === '/v1/files/1')).toHaveLength(1);
  expect(server.requests.map(({ headers }) => hasAll(headers))).not.toContain(false);
  expect(elsewhere.requests.map(({ url, headers }) => [url, hasAny(headers)])).toEqual([['/signed/2', false]]);
});

/** Serves a stand-in that refuses each request without the headers, until the test ends. */
async function wanting(standIn: { handle: StandInFlowService['handle'] }): Promise<string> {
  const detail = Buffer.from('{"detail":"X-Api-Version is missing"}');
  const refusal = { status: 400, headers: { 'content-type': 'application/json' }, body: detail };
  const handle = async (request: ServiceRequest) => (hasAll(request.headers) ? standIn.handle(request) : refusal);
  const { url, close } = await serveFlowService({ handle });
  onTestFinished(close);
  return url;
}

/** A trial with the listings and one flow, and whether a result came. */
async function tried(url: string, speaks: ServiceDescription): Promise<{ came: boolean; printed: string }> {
  const lines: string[] = [];
  const route = { name: 'pictures', template: 'bytes_echo', input: 'file' } as const;
  const options = {
    service: { url, token: TOKEN, speaks },
    settings: SETTINGS_DEFAULT,
    file: { name: 'a.png', mediaType: 'image/png', content: Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'), route },
    ...{ pollMs: 20, print: (line: string) => void lines.push(line) },
  };
  await tryListings(options, never);
  return { came: await tryService(options, never), printed: lines.join('\n') };
}

it('a trial of a service that wants a header on each request gets a result', async () => {
  const standIn = new StandInFlowService({ tokens: [TOKEN], flowMs: 20 });
  onTestFinished(() => standIn.close());
  const url = await wanting(standIn);
  const { came, printed } = await tried(url, speaking({ headers: HEADERS }));
  expect([came, printed]).toEqual([true, expect.stringContaining('listing: good')]);
  expect(printed).not.toContain('X-Api-Version');
  expect(await tried(url, speaking({}))).toMatchObject({ came: false, printed: expect.stringContaining('X-Api-') });
});

it('doctor sends the declared headers with each of its requests', async () => {
  await using server = await scripted((request, response) => json(request, response, { detail: 'unknown' }, 404));
  const url = server.url.href.replace(/\/$/, '');
  const words = { address: 'baseUrl', goOn: 'go on' };
  await issueOfService({ url, token: TOKEN, speaks: speaking({ headers: HEADERS }) }, words, never);
  expect(server.requests.length).toBeGreaterThan(4);
  expect(server.requests.map(({ headers }) => hasAll(headers))).not.toContain(false);
});

it('a trial sends the declared headers to the service, and not to where its results are', async () => {
  const standIn = new StandInJobService({ shape: 'replicate', token: TOKEN, jobMs: 20 });
  const toResults: ServiceRequest[] = [];
  const results = await serveFlowService({
    handle: async (request) => {
      toResults.push(request);
      return standIn.results(request);
    },
  });
  onTestFinished(() => Promise.all([results.close(), standIn.close()]).then(() => {}));
  standIn.resultsOrigin = results.url;
  expect(await tried(await wanting(standIn), { ...REPLICATE, headers: HEADERS })).toMatchObject({ came: true });
  expect(toResults.map(({ headers }) => hasAny(headers))).toEqual([false]);
});
