import { describe, expect, it, onTestFinished } from 'vitest';
import { serveFlowService } from '../../../local/flow-service/http.ts';
import type { Variation } from '../../../local/flow-service/variation.ts';
import { type Called, dataUri, echo, handClock, standIn } from './support.ts';

const PENDING = { status: 'pending', processed: null };

describe('what is served', () => {
  it.each([
    ['flows', 200, 404],
    ['root', 404, 200],
    ['both', 200, 200],
  ] as const)('lists outputs at %s', async (outputsPath, underFlows, atRoot) => {
    const { call, create } = await standIn({ variation: { outputsPath } });
    const id = await create();
    expect((await call('GET', `/flows/${id}/outputs`)).status).toBe(underFlows);
    expect((await call('GET', `/${id}/outputs`)).status).toBe(atRoot);
  });

  it.each([404, 405, 501] as const)('may lack every optional operation, and answer %i', async (status) => {
    const { call, create, download, service } = await standIn();
    const id = await create();
    const waiting = await create({ template: 'text' });
    Object.assign(service.variation, {
      getFlow: status,
      listFlows: status,
      changeFlow: status,
      deleteFlow: status,
      addInput: status,
      listTemplates: status,
    } satisfies Partial<Variation>);
    for (const [method, path, body] of [
      ['GET', `/flows/${id}`],
      ['GET', '/flows'],
      ['GET', '/templates'],
      ['PATCH', `/flows/${waiting}`, { action: 'abort' }],
      ['DELETE', `/flows/${id}`],
      ['POST', `/flows/${waiting}/inputs`, { data: 'x' }],
    ] as const) {
      expect([method, path, (await call(method, path, body)).status]).toEqual([method, path, status]);
    }
    // The specified operations still work, and none of the calls above had an effect.
    expect((await call('GET', `/flows/${id}/outputs`)).json.outputs).toHaveLength(1);
    expect(await (await download(id)).text()).toBe('hello');
    expect(service.flows).toMatchObject([{ deleted: false }, { state: 'created', inputs: [] }]);
  });
});

describe('answers', () => {
  it.each([200, 201, 202] as const)('to a creation may have the status %i', async (createStatus) => {
    const { call } = await standIn({ variation: { createStatus } });
    expect((await call('POST', '/flows', echo('x'))).status).toBe(createStatus);
  });

  it('may use other names for the ids of flows and assets', async () => {
    const { call } = await standIn({ variation: { flowIdName: 'id', assetIdName: 'id' } });
    const { json: created } = await call('POST', '/flows', echo('x'));
    expect(Object.keys(created)).toEqual(['id', 'state']);
    const { json } = await call('GET', `/flows/${created.id}/outputs`);
    expect(Object.keys(json)).toEqual(['id', 'outputs']);
    expect(json.outputs[0]).toHaveProperty('id');
    expect(json.outputs[0]).not.toHaveProperty('asset_id');
  });

  it('may be bare lists', async () => {
    const { call, create } = await standIn({ variation: { outputsShape: 'bare', listShape: 'bare' } });
    const id = await create();
    expect((await call('GET', `/flows/${id}/outputs`)).json).toMatchObject([{ status: 'ready' }]);
    expect((await call('GET', '/flows')).json).toMatchObject([{ flow_id: id }]);
    expect((await call('GET', '/templates')).json).toHaveLength(5);
  });

  it('may omit the status of an output', async () => {
    const { call, create } = await standIn({ variation: { outputStatus: false } });
    const { json } = await call('GET', `/flows/${await create()}/outputs`);
    expect(Object.keys(json.outputs[0])).toEqual(['asset_id', 'processed', 'additional']);
  });

  it.each([
    ['conflict', 409, undefined, 409],
    ['not-found', 404, undefined, 404],
    ['empty', 200, [], 409],
    ['pending', 200, [PENDING, PENDING], 409],
  ] as const)('for outputs of a running flow may be: %s', async (earlyOutputs, status, outputs, early) => {
    const clock = handClock();
    const { call, create, download } = await standIn({ clock, flowMs: 1_000, variation: { earlyOutputs } });
    const id = await create(echo('x', { copies: 2, failed_outputs: 1 }));
    const listed = await call('GET', `/flows/${id}/outputs`);
    expect(listed.status).toBe(status);
    if (outputs !== undefined) expect(listed.json).toMatchObject({ outputs });
    expect((await download(id, 1)).status).toBe(early);
    clock.pass(1_000);
    expect((await call('GET', `/flows/${id}/outputs`)).json.outputs).toMatchObject([
      { status: 'failed' },
      { status: 'ready' },
    ]);
    expect((await download(id, 1)).status).toBe(200);
  });

  it.each([400, 422] as const)('to invalid JSON may have the status %i', async (invalidJsonStatus) => {
    const { request } = await standIn({ variation: { invalidJsonStatus } });
    const answer = await request('POST', '/flows', { body: '{"template"' });
    expect([answer.status, Object.keys((await answer.json()) as object)]).toEqual([invalidJsonStatus, ['detail']]);
  });
});

describe('the listing of flows', () => {
  /** Follows the pages in the variation's way, and returns the ids in their order. */
  async function all(first: Called, next: (answer: Called) => Promise<Called> | undefined): Promise<string[][]> {
    const pages: string[][] = [];
    for (let answer: Called | undefined = first; answer !== undefined; answer = await next(answer)) {
      expect(answer.status).toBe(200);
      const records = Array.isArray(answer.json) ? answer.json : answer.json.flows;
      pages.push(records.map((flow: { flow_id: string }) => flow.flow_id));
    }
    return pages;
  }

  async function fiveFlows(variation: Partial<Variation>) {
    const clock = handClock();
    const stand = await standIn({ clock, variation: { pageSize: 2, ...variation } });
    const ids: string[] = [];
    for (let i = 0; i < 5; i++) {
      ids.push(await stand.create({ template: 'text', additional: { i } }));
      clock.pass(1_000);
    }
    return { ...stand, clock, ids: ids as [string, string, string, string, string] };
  }

  it.each(['next', 'next_cursor'] as const)('may have pages with a cursor in %s', async (paging) => {
    const { call, ids } = await fiveFlows({ paging });
    const pages = await all(await call('GET', '/flows'), ({ json }) =>
      json[paging] === null ? undefined : call('GET', `/flows?cursor=${json[paging]}`),
    );
    expect(pages).toEqual([[ids[4], ids[3]], [ids[2], ids[1]], [ids[0]]]);
    expect((await call('GET', '/flows?cursor=nonsense')).status).toBe(422);
  });

  it('may have pages with the next URL in the body', async () => {
    const { call, ids } = await fiveFlows({ paging: 'next_url', order: 'ascending' });
    const pages = await all(await call('GET', '/flows?page_size=1&sort_by=x'), ({ json }) =>
      json.next === null ? undefined : call('GET', json.next),
    );
    expect(pages).toEqual(ids.map((id) => [id]));
  });

  it.each(['object', 'bare'] as const)('may have pages with a Link header, as %s', async (listShape) => {
    const { call, ids } = await fiveFlows({ paging: 'link', listShape });
    const pages = await all(await call('GET', '/flows'), ({ headers }) => {
      const [, address] = /^<(.+)>; rel="next"$/.exec(headers.get('link') ?? '') ?? [];
      return address === undefined ? undefined : call('GET', address);
    });
    expect(pages).toEqual([[ids[4], ids[3]], [ids[2], ids[1]], [ids[0]]]);
  });

  it('may have numbered pages', async () => {
    const { call, ids } = await fiveFlows({ paging: 'page', order: 'ascending' });
    const pages = await all(await call('GET', '/flows?page_size=50'), ({ json }) =>
      json.page * json.page_size >= json.total ? undefined : call('GET', `/flows?page=${json.page + 1}`),
    );
    expect(pages).toEqual([[ids[0], ids[1]], [ids[2], ids[3]], [ids[4]]]);
    expect((await call('GET', '/flows?page=9')).json.flows).toEqual([]);
    expect((await call('GET', '/flows?page=0')).status).toBe(422);
    expect((await call('GET', '/flows?page_size=-1')).status).toBe(422);
  });

  it('may be one answer with all flows', async () => {
    const { call, ids } = await fiveFlows({ paging: 'none' });
    expect(await all(await call('GET', '/flows?page=3&page_size=1'), () => undefined)).toEqual([ids.toReversed()]);
  });

  it('may show a flow late, although its id works at once', async () => {
    const { call, create, clock, service } = await fiveFlows({ paging: 'none' });
    service.variation.listingDelayMs = 5_000;
    const id = await create({ template: 'text', additional: { flowdrop: 'a tag' } });
    clock.pass(4_999);
    expect((await call('GET', `/flows/${id}`)).status).toBe(200);
    expect((await call('GET', '/flows')).json.flows).toHaveLength(5);
    clock.pass(1);
    expect((await call('GET', '/flows')).json.flows[0]).toMatchObject({
      flow_id: id,
      created_at: '2030-01-01T00:00:05.000Z',
      additional: { flowdrop: 'a tag' },
    });
  });
});

describe('an asset', () => {
  /** Slashes, all byte values, and a length that is not a multiple of 3. */
  const BYTES = Buffer.concat([Buffer.alloc(1_000, 0xff), Buffer.from(Array.from({ length: 256 }, (_, i) => i))]);

  async function assetAnswer(variation: Partial<Variation>, bytes = BYTES) {
    const { create, download } = await standIn({ variation });
    return download(await create({ template: 'bytes_echo', inputs: [{ data: dataUri('model/gltf-binary', bytes) }] }));
  }

  it.each([
    [{}, /^\{"data":"data:model\/gltf-binary;base64,[\w+/]+={0,2}"\}$/],
    [{ jsonMembersBefore: true }, /^\{"meta":.+"data":"data:text.+,"data":"data:model.+"\}$/],
    [{ jsonMembersAfter: true }, /^\{"data":".+","bytes":1256,"tags":\[.+\]\}$/],
    [{ jsonWhiteSpace: true }, /^\s+\{\s+"data" \t: \t"data:.+\s+\}\s+$/],
    [{ jsonEscapedSlashes: true }, /^\{"data":"data:model\\\/gltf-binary;base64,(\\\/){9}([^/\\]|\\\/)+"\}$/],
    [{ jsonLineBreaks: true }, /^\{"data":"data:model\/gltf-binary;base64,([^"]{76}\\n)+[^"]{0,75}"\}$/],
    [{ jsonUnpadded: true }, /[^=]"\}$/],
    [
      {
        jsonMembersBefore: true,
        jsonMembersAfter: true,
        jsonWhiteSpace: true,
        jsonEscapedSlashes: true,
        jsonLineBreaks: true,
        jsonUnpadded: true,
      },
      /^\s+\{.+\\\/.+\\n.+\}\s+$/s,
    ],
  ] as const)('may be JSON with %j', async (variation, pattern) => {
    for (const bytes of [
      BYTES,
      BYTES.subarray(1),
      BYTES.subarray(2),
      Buffer.alloc(57 * 4),
      Buffer.alloc(200_000, 0xff),
    ]) {
      for (const assetLength of ['content-length', 'chunked'] as const) {
        const answer = await assetAnswer({ ...variation, assetForm: 'json', assetLength }, bytes);
        const text = await answer.text();
        expect(answer.headers.get('content-type')).toBe('application/json');
        expect(answer.headers.get('content-length')).toBe(
          assetLength === 'chunked' ? null : String(Buffer.byteLength(text)),
        );
        const { data } = JSON.parse(text) as { data: string };
        const [head, base64 = ''] = data.split(',');
        expect(head).toBe('data:model/gltf-binary;base64');
        expect(Buffer.from(base64, 'base64').equals(bytes)).toBe(true);
        if ('jsonLineBreaks' in variation) {
          // Only the last line may be shorter.
          const lines = base64.split('\n');
          expect(new Set(lines.slice(0, -1).map((line) => line.length))).toEqual(new Set([76]));
        }
        if ('jsonUnpadded' in variation) expect(base64).not.toContain('=');
        if (bytes === BYTES) expect(text).toMatch(pattern);
      }
    }
  });

  it('may be bytes without a Content-Length', async () => {
    const answer = await assetAnswer({ assetLength: 'chunked' });
    expect(answer.headers.get('transfer-encoding')).toBe('chunked');
    expect(Buffer.from(await answer.arrayBuffer()).equals(BYTES)).toBe(true);
  });

  it('may be empty', async () => {
    expect(await (await assetAnswer({}, Buffer.alloc(0))).text()).toBe('');
    expect(await (await assetAnswer({ assetForm: 'json' }, Buffer.alloc(0))).json()).toEqual({
      data: 'data:model/gltf-binary;base64,',
    });
  });

  it('may be at another URL, which must not get the token', async () => {
    const { create, download, service } = await standIn();
    const elsewhere = await serveFlowService(service);
    onTestFinished(() => elsewhere.close());
    service.variation.assetRedirect = (flowId, assetId) => `${elsewhere.url}/downloads/${flowId}/${assetId}`;
    const answer = await download(await create());
    expect(answer.status).toBe(302);
    const location = answer.headers.get('location') ?? '';
    expect(location).toContain(`${elsewhere.url}/downloads/`);
    expect(await (await fetch(location)).text()).toBe('hello');
    expect((await fetch(location, { headers: { authorization: 'Bearer fake-token' } })).status).toBe(400);
  });
});

describe('every download of an asset', () => {
  const JSON_START = '{"data":"data:application/octet-stream;base64,';
  it.each([
    ['raw', 'bytes#1', 'bytes#2'],
    ['json', `${JSON_START}Ynl0ZXMjMQ=="}`, `${JSON_START}Ynl0ZXMjMg=="}`],
  ] as const)('can have different bytes (%s)', async (assetForm, first, second) => {
    const { create, download } = await standIn({ variation: { assetVaries: true, assetForm } });
    const id = await create(echo('bytes'));
    expect(await (await download(id)).text()).toBe(first);
    expect(await (await download(id)).text()).toBe(second);
  });
});

describe('outputs', () => {
  it('can have pages with a cursor', async () => {
    const { call, create } = await standIn({ variation: { outputsPaging: 'next', outputsShape: 'bare' } });
    const id = await create(echo('x', { copies: 5 }));
    const first = await call('GET', `/flows/${id}/outputs`);
    expect([first.json.flow_id, first.json.outputs.length, first.json.next]).toEqual([id, 2, '2']);
    const second = await call('GET', `/flows/${id}/outputs?cursor=2`);
    const last = await call('GET', `/flows/${id}/outputs?cursor=${second.json.next}`);
    expect([last.json.outputs.length, last.json.next]).toEqual([1, null]);
    const all = [first, second, last].flatMap(({ json }) =>
      json.outputs.map((one: { asset_id: string }) => one.asset_id),
    );
    expect(new Set(all).size).toBe(5);
  });

  it('can have numbered pages with the total', async () => {
    const { call, create } = await standIn({ variation: { outputsPaging: 'total', outputsPageSize: 3 } });
    const id = await create(echo('x', { copies: 5 }));
    const pages = await Promise.all([1, 2, 3].map((page) => call('GET', `/flows/${id}/outputs?page=${page}`)));
    expect(pages.map(({ json }) => [json.outputs.length, json.total])).toEqual([
      [3, 5],
      [2, 5],
      [0, 5],
    ]);
    expect((await call('GET', `/flows/${id}/outputs`)).json).toEqual(pages[0]?.json);
    expect((await call('GET', `/flows/${id}/outputs?page=0`)).status).toBe(422);
  });
});

it('ids may need URL encoding', async () => {
  const ids = ['../flow/a b', 'ä.sset?#%+', 'other asset'];
  const { call, create, request } = await standIn({ newId: () => ids.shift() ?? 'none is left' });
  const id = await create(echo('hello', { copies: 2 }));
  expect(id).toBe('../flow/a b');
  const path = `/flows/${encodeURIComponent(id)}`;
  expect((await call('GET', path)).json.flow_id).toBe(id);
  const { outputs } = (await call('GET', `${path}/outputs`)).json;
  expect(outputs).toMatchObject([{ asset_id: 'ä.sset?#%+' }, { asset_id: 'other asset' }]);
  expect(await (await request('GET', `${path}/outputs/${encodeURIComponent('ä.sset?#%+')}`)).text()).toBe('hello');
});
