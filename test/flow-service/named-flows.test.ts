import { describe, expect, it } from 'vitest';
import type { Pointers } from '../../functions/flow-service/service-description.ts';
import { speaking } from '../support/speaking.ts';
import { bodyOf, clientOf, json, never, requestOf, scripted, sourceOf, TOKEN } from './scripted.ts';

/** What makes a flow at a service that answers so, and where the client then asks for its state. */
async function asked(
  id: Pointers | { readonly header: string },
  answer: { readonly body?: object; readonly headers?: Record<string, string> },
  path = '/jobs/{id}',
): Promise<string | undefined> {
  await using server = await scripted(async (request, response) => {
    if (request.method === 'GET') return json(request, response, { state: 'completed' });
    await bodyOf(request);
    response.writeHead(202, { 'content-type': 'application/json', ...answer.headers });
    response.end(answer.body === undefined ? '' : JSON.stringify(answer.body));
  });
  const service = speaking({ create: { id: id as string }, state: { path } });
  const flows = clientOf(new URL('/v1', server.url), { service });
  const { flowId } = await flows.create(requestOf(sourceOf('x')), never);
  await flows.get(flowId, never, { template: 'veo' });
  return server.requests.at(-1)?.url;
}

describe('a flow is the one that a header names', () => {
  const ANALYSIS = '/documentModels/read/analyzeResults/{id}?api-version=1';
  it.each<[string, string, string, string]>([
    [
      'by its address',
      'https://a.example/v1/documentModels/read/analyzeResults/7?api-version=1',
      ANALYSIS,
      '/v1/documentModels/read/analyzeResults/7?api-version=1',
    ],
    [
      'by an address that ends elsewhere',
      'https://a.example/operation/pdf/7/status',
      '/operation/pdf/{id}/status',
      '/v1/operation/pdf/7/status',
    ],
    ['by a path with a slash at its end', '/v1/jobs/7%3A8/', '/jobs/{id}', '/v1/jobs/7%3A8'],
    ['by a parameter', '/v1/status?x=1&job=7%2B8#a', '/v2/status?job={id}', '/v1/v2/status?job=7%2B8'],
    ['by its id', 'j-7', '/jobs/{id}/status', '/v1/jobs/j-7/status'],
  ])('%s', async (_, location, path, url) => {
    expect(await asked({ header: 'Operation-Location' }, { headers: { 'operation-location': location } }, path)).toBe(
      url,
    );
  });

  it.each<[string, Record<string, string>, path?: string]>([
    ['there is none', {}],
    ['it leads elsewhere', { location: 'https://a.example/v1/login/7' }],
    ['it leads to the list', { location: '/v1/jobs/' }],
    ['it has no id', { location: '/v1/jobs/..' }],
    ['it has no such parameter', { location: '/v1/jobs/7?id=7' }, '/jobs?job={id}'],
    ['it has the token', { location: `/v1/jobs/${encodeURIComponent(TOKEN)}` }],
    ['it is the token', { location: Buffer.from(`Bearer ${TOKEN}`).toString('base64').replaceAll('/', '%2F') }],
  ])('and is in doubt if %s', async (_, headers, path?) => {
    await expect(asked({ header: 'Location' }, { headers }, path)).rejects.toMatchObject({
      name: 'InDoubtError',
      isAccepted: true,
      isLost: false,
      message: expect.stringContaining('correct "create.id"'),
    });
  });

  it('and is in doubt if the body says that it failed', async () => {
    const failed = asked({ header: 'Location' }, { body: { error: 'no credit' }, headers: { location: '/v1/jobs/7' } });
    await expect(failed).rejects.toMatchObject({ name: 'InDoubtError', isAccepted: false });
  });
});

describe('words of a refusal', () => {
  const answered = async (body: object, headers: Record<string, string>) => {
    await using server = await scripted((request, response) => {
      response.writeHead(202, { 'content-type': 'application/json', ...headers });
      bodyOf(request).then(() => response.end(JSON.stringify(body)));
    });
    const service = speaking({
      create: { id: { header: 'Location' } },
      state: { path: '/jobs/{id}' },
      errors: { outOfCredit: [{ status: 202, says: 'balance' }] },
    });
    return await clientOf(server.url, { service }).create(requestOf(sourceOf('x')), never);
  };

  it('do not count beside a header that names the flow, unless there is an error', async () => {
    expect(await answered({ balance: 3 }, { location: '/jobs/7' })).toEqual({ flowId: '7' });
    for (const [body, headers] of [
      [{ error: 'The balance is spent' }, { location: '/jobs/7' }],
      [{ balance: 0 }, {}],
    ] as const)
      await expect(answered(body, headers)).rejects.toMatchObject({ name: 'ThrottledError' });
  });
});

describe('a flow is the one that an address or a path in the answer names', () => {
  it.each<[string, string, string]>([
    ['https://a.example/v1/jobs/7', '/jobs/{id}', '/v1/jobs/7'],
    ['models/veo/operations/7', '/models/{template}/operations/{id}', '/v1/models/veo/operations/7'],
    ['operations/7', '/beta/operations/{id}', '/v1/beta/operations/7'],
    ['https://a.example/v1/jobs?job=7', '/jobs?job={id}', '/v1/jobs?job=7'],
    ['owner/7', '/jobs/{id}', '/v1/jobs/owner%2F7'],
    ['jobs/7', '/{id}', '/v1/jobs%2F7'],
    ['https://a.example/7', '/jobs?at={id}', '/v1/jobs?at=https%3A%2F%2Fa.example%2F7'],
  ])('%s for %s', async (name, path, url) => {
    expect(await asked('/name', { body: { name } }, path)).toBe(url);
  });

  it('and is in doubt if the address leads elsewhere', async () => {
    const name = 'https://a.example/v1/get_result?id=7';
    await expect(asked('/name', { body: { name } })).rejects.toMatchObject({
      name: 'InDoubtError',
      isAccepted: true,
      message: expect.stringContaining('no usable id at /name: correct "create.id"'),
    });
  });
});
