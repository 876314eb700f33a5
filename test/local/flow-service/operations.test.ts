import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { inOneChunk } from '../../support/in-process-transport.ts';
import { dataUri, echo, handClock, standIn, TOKEN } from './support.ts';

describe('creating a flow', () => {
  it('starts the flow if it has an input, and stores everything in the request', async () => {
    const { call, service } = await standIn({ flowMs: 1_000, clock: handClock() });
    const answer = await call('POST', '/flows', {
      inputs: [{ additional: { key: 'a.bin' }, data: 'data:application/x-thing;base64,aGVsbG8=' }],
      additional: { mine: [1, null] },
      parameters: { copies: 2 },
      template: 'bytes_echo',
    });
    expect(answer.status).toBe(201);
    expect(answer.json).toEqual({ flow_id: expect.stringMatching(/^[0-9a-f]{24}$/), state: 'starting' });
    expect(service.flows).toEqual([
      {
        id: answer.json.flow_id,
        template: 'bytes_echo',
        parameters: { copies: 2 },
        additional: { mine: [1, null] },
        inputs: [
          {
            mediaType: 'application/x-thing',
            bytes: 5,
            sha256: '2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824',
            additional: { key: 'a.bin' },
          },
        ],
        outputs: [0, 1].map(() => ({
          assetId: expect.stringMatching(/^[0-9a-f]{24}$/),
          mediaType: 'application/x-thing',
          bytes: 5,
          additional: { key: 'a.bin' },
          error: undefined,
        })),
        state: 'starting',
        createdAt: Date.parse('2030-01-01T00:00:00.000Z'),
        startedAt: Date.parse('2030-01-01T00:00:00.000Z'),
        finishedAt: undefined,
        aborted: false,
        deleted: false,
      },
    ]);
    expect(service.counts.createFlow).toBe(1);
  });

  it('accepts the id or the name of a template', async () => {
    const { call } = await standIn();
    const { json } = await call('GET', '/templates');
    const { id } = json.templates.find((template: { name: string }) => template.name === 'text');
    expect((await call('POST', '/flows', { template: id, inputs: [{ data: 'some text' }] })).status).toBe(201);
  });

  it.each([
    ['no template', {}, ['body', 'template']],
    ['an unknown template', { template: 'nothing' }, ['body', 'template']],
    ['parameters that are a list', { template: 'text', parameters: [] }, ['body', 'parameters']],
    ['inputs that are not a list', { template: 'text', inputs: { data: 'x' } }, ['body', 'inputs']],
    ['an input that is not an object', { template: 'text', inputs: [1] }, ['body', 'inputs', 0]],
    ['an input without data', { template: 'text', inputs: [{ data: 'x' }, {}] }, ['body', 'inputs', 1, 'data']],
    ['data that is not a string', { template: 'text', inputs: [{ data: 0 }] }, ['body', 'inputs', 0, 'data']],
    [
      'a media type that is not accepted',
      { template: 'text', inputs: [{ data: 'data:image/png;base64,' }] },
      ['body', 'inputs', 0, 'data'],
    ],
    ['a body that is not an object', [], ['body']],
  ])('refuses %s with 422 and its location', async (_, body, loc) => {
    const { call, service } = await standIn();
    const answer = await call('POST', '/flows', body);
    expect(answer.status).toBe(422);
    expect(answer.json.detail.map((each: { loc: unknown }) => each.loc)).toEqual([loc]);
    expect(service.flows).toEqual([]);
  });

  it.each([
    ['text', 'unknown', 1],
    ['text', 'toString', 1],
    ['model_generate_fromimage', 'quality', 'mid'],
    ['model_generate_fromimage', 'seed', 1.5],
    ['model_generate_fromprompt', 'texture', 'yes'],
    ['model_optimize', 'polygon_count', 0],
  ])('refuses for %s the parameter %s: %j', async (template, name, value) => {
    const { call, service } = await standIn();
    const { status, json } = await call('POST', '/flows', { template, parameters: { [name]: value } });
    expect(status).toBe(422);
    expect(json.detail).toMatchObject([{ loc: ['body', 'parameters', name] }]);
    expect(service.flows).toEqual([]);
  });

  it('refuses a body without the media type of JSON', async () => {
    const { request, service } = await standIn();
    const answer = await request('POST', '/flows', { body: '{}', headers: { 'content-type': 'text/plain' } });
    expect(answer.status).toBe(415);
    expect(service.flows).toEqual([]);
  });
});

describe('the token', () => {
  it.each([
    ['none', undefined],
    ['a wrong one', 'Bearer other'],
    ['another scheme', 'Basic fake-token'],
  ])('is required: %s is answered with 401', async (_, authorization) => {
    const { url, service } = await standIn();
    for (const [method, path] of [
      ['GET', '/flows'],
      ['GET', '/templates'],
      ['POST', '/flows'],
      ['GET', '/flows/x/outputs'],
      ['GET', '/flows/x/outputs/y'],
      ['GET', '/nonsense'],
    ]) {
      const headers: Record<string, string> = authorization === undefined ? {} : { authorization };
      const answer = await fetch(`${url}${path}`, { method: method as string, headers });
      expect(answer.status).toBe(401);
      expect(await answer.json()).toEqual({ detail: 'Not authenticated' });
      expect(answer.headers.get('www-authenticate')).toBe('Bearer');
    }
    expect(service.flows).toEqual([]);
  });

  it('can be rotated, and several can be valid at the same time', async () => {
    const { call, service } = await standIn();
    service.setTokens(['new-fake-token']);
    expect((await call('GET', '/flows')).status).toBe(401);
    service.setTokens(['new-fake-token', 'fake-token']);
    expect((await call('GET', '/flows')).status).toBe(200);
  });
});

describe('a flow', () => {
  it('passes through its states with time', async () => {
    const clock = handClock();
    const { call, create } = await standIn({ clock, flowMs: 1_000 });
    const path = `/flows/${await create()}`;
    expect((await call('GET', path)).json).toEqual({
      flow_id: path.slice('/flows/'.length),
      template: 'bytes_echo',
      state: 'starting',
      progress: 0,
      created_at: '2030-01-01T00:00:00.000Z',
      started_at: '2030-01-01T00:00:00.000Z',
      finished_at: null,
      parameters: {},
      additional: null,
    });
    clock.pass(500);
    expect((await call('GET', path)).json).toMatchObject({ state: 'running', progress: 0.5, finished_at: null });
    clock.pass(499);
    expect((await call('GET', path)).json).toMatchObject({ state: 'running' });
    clock.pass(60_000);
    expect((await call('GET', path)).json).toMatchObject({
      state: 'completed',
      progress: 1,
      finished_at: '2030-01-01T00:00:01.000Z',
    });
  });

  it('may have a duration of its own', async () => {
    const clock = handClock();
    const { create, service } = await standIn({ clock, flowMs: ({ template }) => (template === 'text' ? 0 : 10) });
    await create();
    await create({ template: 'text', inputs: [{ data: 'x' }] });
    expect(service.flows.map((flow) => flow.state)).toEqual(['starting', 'completed']);
  });

  it('without inputs waits, and can be aborted at once', async () => {
    const { call, create } = await standIn({ flowMs: 1_000, clock: handClock() });
    const path = `/flows/${await create({ template: 'text' })}`;
    expect((await call('GET', path)).json).toMatchObject({ state: 'created', started_at: null });
    expect((await call('PATCH', path, { action: 'start' })).status).toBe(422);
    expect((await call('PATCH', path, { action: 'abort' })).json.state).toBe('aborted');
  });

  it('can be aborted while it runs, but not afterwards', async () => {
    const clock = handClock();
    const { call, create, service } = await standIn({ clock, flowMs: 1_000 });
    const id = await create(echo('x', { copies: 3, partial: 1 }));
    clock.pass(500);
    expect((await call('PATCH', `/flows/${id}`, { action: 'abort' })).json.state).toBe('aborting');
    expect((await call('GET', `/flows/${id}/outputs`)).status).toBe(409);
    expect((await call('PATCH', `/flows/${id}`, { action: 'abort' })).status).toBe(409);
    expect((await call('DELETE', `/flows/${id}`)).status).toBe(409);
    clock.pass(100);
    expect((await call('GET', `/flows/${id}`)).json).toMatchObject({
      state: 'aborted',
      progress: 0.5,
      finished_at: '2030-01-01T00:00:00.600Z',
    });
    expect((await call('GET', `/flows/${id}/outputs`)).json.outputs).toHaveLength(1);
    expect(service.flows[0]?.aborted).toBe(true);
  });

  it('is known to the replica only that made it', async () => {
    const { service, create } = await standIn();
    const made = await create();
    const ask = async (url: string, replica?: number) => {
      const headers = { authorization: `Bearer ${TOKEN}` };
      const { status, body } = await service.handle({
        method: 'GET',
        url,
        headers,
        body: inOneChunk(Buffer.alloc(0)),
        replica,
      });
      return { status, text: Buffer.concat(await Array.fromAsync(body as AsyncIterable<Uint8Array>)).toString() };
    };
    expect(await ask(`/flows/${made}`)).toMatchObject({ status: 200 });
    expect(await ask(`/flows/${made}`, 1)).toMatchObject({ status: 404 });
    expect((await ask('/flows')).text).toContain(made);
    expect((await ask('/flows', 1)).text).not.toContain(made);
  });

  it('is gone after its deletion, except for tests', async () => {
    const { call, create, service } = await standIn();
    const id = await create();
    expect((await call('DELETE', `/flows/${id}`)).status).toBe(204);
    for (const path of [`/flows/${id}`, `/flows/${id}/outputs`]) expect((await call('GET', path)).status).toBe(404);
    expect((await call('DELETE', `/flows/${id}`)).status).toBe(404);
    expect((await call('GET', '/flows')).json.flows).toEqual([]);
    expect(service.flows).toMatchObject([{ id, deleted: true }]);
  });

  it('fails on request, and keeps the requested number of outputs', async () => {
    const { call, create } = await standIn();
    const id = await create(echo('x', { copies: 3, fail: true, partial: 2 }));
    expect((await call('GET', `/flows/${id}`)).json).toMatchObject({ state: 'failed', error: expect.any(String) });
    expect((await call('GET', `/flows/${id}/outputs`)).json.outputs).toHaveLength(2);
  });

  it.each([
    [
      'model_generate_fromimage',
      dataUri('image/png', Buffer.from('no picture')),
      'Input 0 does not look like image/png.',
    ],
    ['model_optimize', dataUri('model/gltf-binary', Buffer.from('no model')), 'Input 0 is not a binary glTF.'],
    ['model_generate_fromprompt', ' \n', 'Input 0 is empty.'],
  ])('of %s fails if its input cannot be processed', async (template, data, error) => {
    const { call, create } = await standIn();
    const id = await create({ template, inputs: [{ data }] });
    expect((await call('GET', `/flows/${id}`)).json).toMatchObject({ state: 'failed', error });
    expect((await call('GET', `/flows/${id}/outputs`)).json.outputs).toEqual([]);
  });
});

describe('outputs', () => {
  it('are listed with their fields, and downloaded unchanged', async () => {
    const { call, create, request, service } = await standIn({ clock: handClock() });
    const id = await create(echo('hello', { copies: 2, failed_outputs: 1 }));
    // Their data are in no listing, whatever a client asks for.
    const { json } = await call('GET', `/flows/${id}/outputs?include_data=true`);
    const processed = '2030-01-01T00:00:00.000Z';
    const additional = { from: 'a test' };
    expect(json).toEqual({
      flow_id: id,
      outputs: [
        { asset_id: expect.any(String), status: 'failed', processed, additional, error: 'Output 0 could not be made.' },
        { asset_id: expect.any(String), status: 'ready', processed, additional },
      ],
    });
    const [failed, ready] = json.outputs;
    const asset = await request('GET', `/flows/${id}/outputs/${ready.asset_id}`);
    expect(asset.status).toBe(200);
    expect(asset.headers.get('content-type')).toBe('application/octet-stream');
    expect(asset.headers.get('content-length')).toBe('5');
    expect(await asset.text()).toBe('hello');
    expect(await service.asset(id, ready.asset_id).sha256()).toBe(createHash('sha256').update('hello').digest('hex'));
    expect((await call('GET', `/flows/${id}/outputs/${failed.asset_id}`)).status).toBe(404);
    expect((await call('GET', `/flows/${id}/outputs/none`)).status).toBe(404);
    expect((await call('GET', '/flows/none/outputs')).status).toBe(404);
  });

  it('have the media type of their template, and the additional data of their input', async () => {
    const { call, create, download } = await standIn();
    const id = await create({ template: 'text', inputs: [{ data: 'a red fox', additional: 'ours' }] });
    expect((await call('GET', `/flows/${id}/outputs`)).json.outputs).toMatchObject([{ additional: 'ours' }]);
    const asset = await download(id);
    expect(asset.headers.get('content-type')).toBe('text/plain');
    expect(await asset.text()).toBe('a red fox');
  });
});

describe('everything else', () => {
  it('lists the templates with their parameters and types', async () => {
    const { call } = await standIn();
    const { json } = await call('GET', '/templates');
    expect(json.templates.map((template: { name: string }) => template.name)).toEqual([
      'model_generate_fromprompt',
      'model_generate_fromimage',
      'model_generate_multiview',
      'model_optimize',
      'contact_sheet',
      'text',
      'bytes_echo',
    ]);
    expect(json.templates[1]).toEqual({
      id: expect.stringMatching(/^[0-9a-f]{24}$/),
      name: 'model_generate_fromimage',
      description: expect.any(String),
      parameters: {
        quality: { type: 'string', enum: ['low', 'high'] },
        seed: { type: 'integer' },
        texture: { type: 'boolean' },
      },
      input_types: ['image/png', 'image/jpeg', 'image/tiff', 'image/webp'],
      output_types: ['model/gltf-binary'],
    });
  });

  it('answers 404 to an unknown path or method', async () => {
    const { call, service } = await standIn();
    for (const [method, path] of [
      ['GET', '/'],
      ['GET', '/nothing'],
      ['PUT', '/flows'],
      ['POST', '/flows/x'],
      ['GET', '/flows/x/inputs'],
      ['GET', '/flows/x/outputs/y/z'],
      ['GET', '//flows'],
    ] as const) {
      expect([path, (await call(method, path)).status]).toEqual([path, 404]);
    }
    expect(service.counts.unknown).toBe(7);
  });
});
