import { expect, it } from 'vitest';
import { STATUSES } from '../../functions/flow-service/job-services.ts';
import type { ServiceDescription } from '../../functions/flow-service/service-description.ts';
import { issueOfService } from '../../operations/service-check.ts';
import { bodyOf, clientOf, json, never, requestOf, scripted, sourceOf } from './scripted.ts';

/** A service of JSON-RPC: each request is a `POST` to one path. */
const RPC: ServiceDescription = {
  token: { header: 'Authorization', scheme: 'Bearer' },
  create: {
    path: '/rpc',
    body: { jsonrpc: '2.0', id: 1, method: 'render', params: { image: '{input}' } },
    id: '/result/job',
  },
  state: {
    path: '/rpc',
    body: { jsonrpc: '2.0', id: 2, method: 'status', params: { job: '{id}' } },
    word: '/result/state',
    completed: ['done'],
    failed: ['failed'],
    running: ['running'],
  },
  outputs: { addresses: ['/result/url'], isWhole: true },
  abort: { method: 'POST', path: '/rpc', body: { method: 'cancel', params: { job: '{id}' } } },
  errors: { ...STATUSES, words: '/error/message' },
};

const service = () =>
  scripted(async (request, response) => {
    if (request.method === 'GET')
      return request.url === '/a.glb'
        ? response.writeHead(200, { 'content-type': 'model/gltf-binary' }).end('glTF')
        : json(request, response, { error: { message: 'POST only' } }, 405);
    const { method, params } = JSON.parse(await bodyOf(request));
    const isKnown = method === 'render' || params.job === 'j&7';
    response.writeHead(200, { 'content-type': 'application/json' });
    const { host } = request.headers;
    const result = { job: 'j&7', state: 'done', url: `http://${host}/a.glb` };
    response.end(
      JSON.stringify(isKnown ? { jsonrpc: '2.0', result } : { jsonrpc: '2.0', error: { message: `no ${params.job}` } }),
    );
  });

it('a flow whose state has a body is asked for by POST, and so are its outputs in that answer', async () => {
  await using server = await service();
  const flows = clientOf(server.url, { service: RPC });
  const { flowId } = await flows.create(requestOf(sourceOf('x')), never);
  expect(await flows.get(flowId, never)).toMatchObject({ state: 'completed' });
  expect(await flows.outputs(flowId, never)).toEqual([{ assetId: 'result-url', status: 'ready' }]);
  const { chunks } = await flows.asset(flowId, 'result-url', never);
  expect(Buffer.concat(await Array.fromAsync(chunks)).toString()).toBe('glTF');
  expect(await flows.abort(flowId, never)).toBeUndefined();
  expect(server.requests.map(({ method, headers }) => [method, headers['content-type'] ?? ''])).toEqual([
    ...Array.from({ length: 4 }, () => ['POST', 'application/json']),
    ['GET', expect.anything()],
    ['POST', 'application/json'],
  ]);
  await expect(flows.get('j8', never)).rejects.toThrow('no j8');
});

it('a file in the answer itself is asked for by POST, as the state is', async () => {
  await using server = await scripted(async (request, response) => {
    if (request.method === 'GET') return json(request, response, { error: { message: 'POST only' } }, 405);
    const result = { job: 'j7', state: 'done', url: 'data:model/obj;base64,aGVsbG8=' };
    return json(request, response, { result });
  });
  const flows = clientOf(server.url, { service: RPC });
  const { chunks } = await flows.asset('j7', 'result-url', never);
  expect(Buffer.concat(await Array.fromAsync(chunks)).toString()).toBe('hello');
});

it('a service that is asked so is found by the check', async () => {
  await using server = await service();
  const found = { url: server.url.href.replace(/\/$/, ''), token: 'fake', speaks: RPC };
  expect(await issueOfService(found, { address: '--service', goOn: 'go on' }, never)).toBeUndefined();
  expect(server.requests.map(({ method }) => method)).toEqual(['POST']);
});

it('the check asks so for the outputs of a flow too, if the service does not explain its errors', async () => {
  await using server = await scripted((request, response) =>
    json(request, response, {}, request.method === 'GET' && request.url === '/rpc' ? 405 : 404),
  );
  const found = { url: server.url.href.replace(/\/$/, ''), token: 'fake', speaks: RPC };
  const words = { address: '--service', goOn: 'go on' };
  expect(await issueOfService(found, words, never)).toMatchObject({ what: expect.stringContaining('no flow service') });
  expect(server.requests.map(({ method, url }) => (url === '/rpc' ? method : 'nobody'))).toEqual([
    ...['POST', 'nobody', 'nobody', 'POST'],
  ]);
});
