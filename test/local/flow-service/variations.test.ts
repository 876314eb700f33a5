import { describe, expect, it } from 'vitest';
import type { Variation } from '../../../local/flow-service/variation.ts';
import { type Called, dataUri, echo, handClock, standIn } from './support.ts';

describe('what is served', () => {
  it.each([
    ['flows', 200, 404],
    ['root', 404, 200],
  ] as const)('lists outputs at %s', async (outputsPath, underFlows, atRoot) => {
    const { call, create } = await standIn({ variation: { outputsPath } });
    const id = await create();
    expect((await call('GET', `/flows/${id}/outputs`)).status).toBe(underFlows);
    expect((await call('GET', `/${id}/outputs`)).status).toBe(atRoot);
  });

  it.each([404, 405, 501] as const)('may lack the operations that no specification shows: %i', async (status) => {
    const variation = { getFlow: status, listFlows: status, changeFlow: status };
    const { call, create, download } = await standIn({ variation });
    const id = await create();
    expect((await call('GET', `/flows/${id}`)).status).toBe(status);
    expect((await call('GET', '/flows')).status).toBe(status);
    expect((await call('PATCH', `/flows/${id}`, { action: 'abort' })).status).toBe(status);
    expect((await call('GET', `/flows/${id}/outputs`)).json.outputs).toHaveLength(1);
    expect(await (await download(id)).text()).toBe('hello');
  });
});

describe('answers', () => {
  it('may use other names for the ids of flows and assets', async () => {
    const { call } = await standIn({ variation: { flowIdName: 'id', assetIdName: 'id' } });
    const { json: created } = await call('POST', '/flows', echo('x'));
    expect(Object.keys(created)).toEqual(['id', 'state']);
    const { json } = await call('GET', `/flows/${created.id}/outputs`);
    expect(Object.keys(json)).toEqual(['id', 'outputs']);
    expect(json.outputs[0]).toHaveProperty('id');
    expect(json.outputs[0]).not.toHaveProperty('asset_id');
  });

  it('may list outputs without an object around them', async () => {
    const { call, create } = await standIn({ variation: { outputsShape: 'bare' } });
    expect((await call('GET', `/flows/${await create()}/outputs`)).json).toMatchObject([{ status: 'ready' }]);
  });

  it.each([
    ['conflict', 409, undefined, 409],
    ['not-found', 404, undefined, 404],
    ['empty', 200, [], 409],
    ['pending', 200, Array(2).fill({ status: 'pending', processed: null }), 409],
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
});

describe('the listing of flows', () => {
  /** How a client gets from one page to the next. Undefined: it has read all. */
  const NEXT: Record<Variation['paging'], (answer: Called) => string | null | undefined> = {
    page: ({ json }) => (json.page * json.page_size >= json.total ? undefined : `/flows?page=${json.page + 1}`),
    cursor: ({ json }) => json.next && `/flows?cursor=${json.next}`,
    link: ({ headers }) => /^<(.+)>; rel="next"$/.exec(headers.get('link') ?? '')?.[1],
    none: () => undefined,
  };

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

  it.each([
    ['page', 'descending', [2, 2, 1]],
    ['cursor', 'descending', [2, 2, 1]],
    ['link', 'ascending', [2, 2, 1]],
    ['none', 'ascending', [5]],
  ] as const)('may have pages by %s, %s', async (paging, order, sizes) => {
    const { call, ids } = await fiveFlows({ paging, order });
    const pages: string[][] = [];
    for (let path: string | null | undefined = '/flows?page_size=50'; path; ) {
      const answer: Called = await call('GET', path);
      expect(answer.status).toBe(200);
      pages.push(answer.json.flows.map((flow: { flow_id: string }) => flow.flow_id));
      path = NEXT[paging](answer);
    }
    expect(pages.map(({ length }) => length)).toEqual(sizes);
    expect(pages.flat()).toEqual(order === 'ascending' ? ids : ids.toReversed());
  });

  it.each([
    ['page', 'page=0'],
    ['page', 'page_size=-1'],
    ['cursor', 'cursor=nonsense'],
    ['link', 'cursor=nonsense'],
  ] as const)('refuses by %s a request with %s', async (paging, query) => {
    const { call } = await standIn({ variation: { paging } });
    expect((await call('GET', `/flows?${query}`)).status).toBe(422);
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
  /** Slashes, all byte values, and more than one chunk. */
  const BYTES = Buffer.concat([Buffer.alloc(300_000, 0xff), Buffer.from(Array.from({ length: 256 }, (_, i) => i))]);

  it.each([
    ['raw', 'content-length'],
    ['raw', 'chunked'],
    ['json', 'content-length'],
    ['json', 'chunked'],
  ] as const)('may be %s with %s', async (assetForm, assetLength) => {
    const { create, download } = await standIn({ variation: { assetForm, assetLength } });
    for (const bytes of [BYTES, BYTES.subarray(1), BYTES.subarray(2), Buffer.alloc(0)]) {
      const data = dataUri('model/gltf-binary', bytes);
      const answer = await download(await create({ template: 'bytes_echo', inputs: [{ data }] }));
      const got = Buffer.from(await answer.arrayBuffer());
      const type = answer.headers.get('content-type');
      const length = answer.headers.get('content-length');
      expect(length).toBe(assetLength === 'chunked' ? null : String(got.length));
      expect(type).toBe(assetForm === 'json' ? 'application/json' : 'model/gltf-binary');
      expect(got.equals(assetForm === 'json' ? Buffer.from(JSON.stringify({ data })) : bytes)).toBe(true);
    }
  });
});
