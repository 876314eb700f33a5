import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import type { Json } from '../../functions/base/json.ts';
import { REPLICATE } from '../../functions/flow-service/job-services.ts';
import { type LinkedOutput, linkedOutputsReader } from '../../functions/flow-service/linked-outputs.ts';
import type { LinkedOutputs } from '../../functions/flow-service/service-description.ts';
import type { FlowService } from '../../functions/flow-service/types.ts';
import { clientOf, json, never, scripted } from './scripted.ts';

/** The results that an answer links at these pointers. */
const linked = (answer: unknown, addresses: readonly string[] = ['/output']): readonly LinkedOutput[] =>
  linkedOutputsReader({ addresses, isWhole: true }, REPLICATE)(answer).links;

const idsOf = (links: readonly LinkedOutput[]): readonly string[] => links.map(({ assetId }) => assetId);

describe('the results that an answer links', () => {
  it('are the addresses in lists and objects at the declared places', () => {
    const output = ['https://cdn.example/a.glb', { preview: 'data:image/png;base64,AA==', seed: 'none' }];
    expect(linked({ output })).toMatchObject([
      { assetId: 'output-0', pointer: '/output/0', address: 'https://cdn.example/a.glb', error: undefined },
      { assetId: 'output-1-preview', pointer: '/output/1/preview', address: 'data:image/png;base64,AA==' },
    ]);
  });

  it('may be in a text of JSON, if a pointer leads into it', () => {
    const json = {
      data: { state: 'success', resultJson: '{"resultUrls":["https://cdn.example/a","https://cdn.example/b"]}' },
    };
    expect(linked(json, ['/data/resultJson/resultUrls'])).toMatchObject([
      { assetId: 'data-resultJson-resultUrls-0', address: 'https://cdn.example/a', error: undefined },
      { assetId: 'data-resultJson-resultUrls-1', address: 'https://cdn.example/b', error: undefined },
    ]);
  });

  it('have an id each, also if the names of their places read alike', () => {
    const output = { 'a-b': 'https://cdn.example/1', a: { b: 'https://cdn.example/2' } };
    expect(idsOf(linked({ output }))).toEqual(['output-a-b', 'output/a/b']);
  });

  it('count once if two declared places hold them', () => {
    expect(idsOf(linked({ output: { a: 'https://cdn.example/1' } }, ['/output', '/output/a']))).toEqual(['output-a']);
  });

  const A = 'https://cdn.example/i.glb';
  const GLB = Buffer.from('glTF\x02\0\0\0'.padEnd(200, 'x')).toString('base64');
  const JPEG = Buffer.from('\xff\xd8\xff\xe0\0\x10JFIF\0'.padEnd(200, 'x'), 'latin1').toString('base64');

  it.each([
    ['/files/mask.png', '/files/mask.png?signature=1'],
    ['/files/mask.png', '/files/mask.png'],
    ['s3://bucket/b.glb', 's3://bucket/b.glb'],
    ['gs://b/c', 'gs://b/c'],
    ['Z2xURgIAAAB4', GLB],
    ['/9j/4AAQSkZJRgB4', JPEG],
  ])('are told beside others if they are at no address that can be fetched: %s', (shown, mask) => {
    const [first, second, ...more] = linked({ output: { image: A, more: [{ mask }, { url: 'https://a/mask.png' }] } });
    expect(first).toMatchObject({ assetId: 'output-image', address: A });
    expect(second).toMatchObject({ assetId: 'output-more-0-mask', address: undefined });
    expect(second?.error).toContain(`No address that can be fetched: "${shown}`);
    expect(second?.error).not.toContain('signature');
    expect(idsOf(more)).toEqual(['output-more-1-url']);
  });

  it('have the scheme of the answer if they have none', () => {
    expect(linked({ output: { a: '//cdn.example/b' } })).toMatchObject([{ address: 'https://cdn.example/b' }]);
    expect(linked({ output: ['//cdn.example:8443/b'] })).toMatchObject([{ address: 'https://cdn.example:8443/b' }]);
  });

  it('may be at a path of the service, if a pointer leads to the path itself', async () => {
    const results = {
      result: { href: '/v1/jobs/7/result' },
      files: ['/files/b.glb', '/files/my chair (1).png', '/ a.png is missing', '/now a text'],
    };
    await using server = await scripted((request, response) =>
      request.url === '/v1/predictions/j1'
        ? json(request, response, results)
        : response
            .writeHead(200, { 'content-type': 'model/obj' })
            .end(`${request.url} ${request.headers.authorization}`),
    );
    const outputs = { addresses: ['/result/href', '/files'], isWhole: true };
    const flows = clientOf(new URL('/v1', server.url), { service: { ...REPLICATE, outputs } });
    const fetched = [];
    for (const { assetId, status } of await flows.outputs('j1', never)) {
      if (status === 'failed') continue;
      const { chunks } = await flows.asset('j1', assetId, never);
      fetched.push(Buffer.concat(await Array.fromAsync(chunks)).toString());
    }
    expect(fetched).toEqual([
      '/v1/jobs/7/result Bearer obviously-fake/token-1',
      '/files/b.glb undefined',
      '/files/my%20chair%20(1).png undefined',
    ]);
  });

  it('are at no path of the service if a pointer leads to a file in base64', () => {
    for (const output of [JPEG, [JPEG]])
      expect(linked({ output })).toMatchObject([{ address: undefined, error: expect.stringContaining('"/9j/4AAQ') }]);
  });

  it('are none of what else may stand beside an address', () => {
    const same = {
      key: 's3://b/out/i.glb',
      path: '/tmp/i.glb?x',
      file_name: 'i.glb',
      content_type: 'model/gltf-binary',
    };
    const other = {
      $schema: '/schemas/a.json',
      prompt: '/imagine a.png of a cat',
      text: '// a/b',
      hash: 'a'.repeat(128),
    };
    expect(idsOf(linked({ output: { url: A, ...same, ...other, at: '/v1/jobs/7' } }))).toEqual(['output-url']);
  });

  it('are one if an object gives the same address with and without TLS', () => {
    const image = { url: 'http://cdn.example/1.png', secure_url: 'https://cdn.example/1.png' };
    expect(idsOf(linked({ output: [image, { ...image, url: 'http://cdn.example/2.png' }] }))).toEqual([
      'output-0-secure_url',
      'output-1-url',
      'output-1-secure_url',
    ]);
  });

  it('are read in linear time from an object with many addresses', () => {
    const output = Object.fromEntries(
      Array.from({ length: 120_000 }, (_, index) => [index, `http://cdn.example/${index}`]),
    );
    const from = process.cpuUsage();
    expect(linked({ output })).toHaveLength(120_000);
    const { user, system } = process.cpuUsage(from);
    // Far more than linear time takes of the processor, and far less than quadratic.
    expect((user + system) / 1_000).toBeLessThan(10_000);
  });

  it.each([
    ['no URL', { output: 'https://[cdn' }, ['/output'], 'It is no address, but "https://[cdn"'],
    ['a text', { output: 'soon' }, ['/output'], 'It is no address, but "soon"'],
    ['a number', { output: 7 }, ['/output'], 'It is no address, but 7'],
    [
      'several URLs',
      { output: 'https://a.b/1\nhttps://a.b/2' },
      ['/output'],
      'no address, but "https://a.b/1\\nhttps://a.b/2"',
    ],
    ['a name that no key can have', { '..': 'https://cdn.example/1' }, [''], 'under an unusable id: ..'],
    [
      'a very long name',
      { output: { ['n'.repeat(300)]: 'https://cdn.example/1' } },
      ['/output'],
      'an unusable id: output-n',
    ],
  ])('have failed if there is %s in their place', (_, answer, addresses, error) => {
    expect(linked(answer, addresses)).toEqual([
      expect.objectContaining({ address: undefined, error: expect.stringContaining(error) }),
    ]);
  });
});

describe('results that come in another order', () => {
  /** An output, with the addresses of named results. */
  type Output = (at: (name: string) => string) => Json;
  const list =
    (names: string): Output =>
    (at) =>
      [...names].map((name) => at(name));

  /** What the client fetches under each id after the last of these answers. The address of a result ends in its name. */
  async function fetchedAfter(...outputs: readonly Output[]): Promise<object> {
    const left = [...outputs];
    let asked = 0;
    await using server = await scripted((request, response) => {
      const [, name] = /\/files\/(\w+)/.exec(request.url ?? '') ?? [];
      if (name !== undefined) return response.writeHead(200, { 'content-type': 'model/obj' }).end(name);
      const output = (left.length > 1 ? left.shift() : left[0]) as Output;
      asked += 1;
      return json(request, response, { output: output((each) => `${server.url}files/${each}?signature=${asked}`) });
    });
    const flows = clientOf(server.url, { service: REPLICATE });
    for (const _ of outputs.slice(1)) await flows.outputs('j1', never);
    const fetched: Record<string, string> = {};
    for (const { assetId } of await flows.outputs('j1', never)) {
      const { chunks } = await flows.asset('j1', assetId, never);
      fetched[assetId.replace('output-', '')] = Buffer.concat(await Array.fromAsync(chunks)).toString();
    }
    return fetched;
  }

  it.each<[string, readonly Output[], object]>([
    ['the same', ['ab', 'ab'].map(list), { 0: 'a', 1: 'b' }],
    ['another order', ['ab', 'ba'].map(list), { 0: 'a', 1: 'b' }],
    ['a new one before them', ['ab', 'cab'].map(list), { 0: 'a', 1: 'b', 2: 'c' }],
    ['one of them, and a new one', ['abc', 'cd'].map(list), { 2: 'c', 1: 'd' }],
    ['none of them', ['ab', 'cd'].map(list), { 0: 'c', 1: 'd' }],
    ['some of those before, after none of them', ['ab', 'cd', 'ac'].map(list), { 0: 'c', 1: 'a' }],
    ['one of them twice', ['ab', 'bb'].map(list), { 0: 'b', 1: 'b' }],
    [
      'one of them under another name',
      [(at) => ({ preview: at('a'), model: null }), (at) => ({ preview: at('b'), model: at('a') })],
      { preview: 'b', model: 'a' },
    ],
  ])('keep the ids of their addresses: %s', async (_, outputs, fetched) => {
    expect(await fetchedAfter(...outputs)).toEqual(fetched);
  });
});

describe('an answer that links results', () => {
  const A = 'https://cdn.example/a.png';
  const outputsIn = async (
    answer: object,
    { headers = {}, ...changes }: Partial<LinkedOutputs> & { headers?: object } = {},
  ) => {
    await using server = await scripted((_, response) => {
      response.writeHead(200, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(answer));
    });
    const outputs = { addresses: ['/output'], isWhole: true, ...changes };
    return await clientOf(server.url, { service: { ...REPLICATE, outputs } }).outputs('j1', never);
  };

  it.each<[string, object, Partial<LinkedOutputs> & { headers?: object }]>([
    ['/next', { output: [A], next: 'https://flows.example/x?page=2' }, {}],
    ['/next', { files: [{ url: A }], next: 'https://flows.example/x?page=2' }, { addresses: [''] }],
    ['/output/has_more, /output/next_cursor', { output: { files: [A], has_more: true, next_cursor: 'x' } }, {}],
    ['/data/pagination/hasMore', { data: { list: [A], pagination: { hasMore: true } } }, { addresses: ['/data/list'] }],
    ['counts 5 entries but shows 1', { output: [A], total: 5 }, {}],
    ['/PaginationToken', { output: [A], PaginationToken: 'x' }, {}],
    ['/next_offset', { output: [A], next_offset: 1 }, {}],
    ['/cursors/after', { output: [A], cursors: { after: 'x', before: null } }, {}],
    ['/output/LastEvaluatedKey', { output: { files: [A], LastEvaluatedKey: { id: 'x' } } }, {}],
    ['the header Link', { output: [A] }, { headers: { link: '</x?page=2>; rel="next"' } }],
  ])('is not the whole if it says so: %s', async (where, answer, more) => {
    await expect(outputsIn(answer, more)).rejects.toThrow(`not all outputs can be listed: `);
    await expect(outputsIn(answer, more)).rejects.toThrow(where);
  });

  it.each<[string, object, Partial<LinkedOutputs>]>([
    ['no list has them', { output: A, next: 'x', total: 5 }, {}],
    ['all are there', { output: [A], total: 1, next: null, has_more: false }, {}],
    ['it is declared', { output: [A], next: 'Fetch the files.', total: 9 }, { pages: { by: 'none' } }],
    ['other members only sound so', { output: [A], more_info: 'https://x.example', next_step: 'pay', limit: 1 }, {}],
  ])('is the whole if %s', async (_, answer, changes) => {
    expect(await outputsIn(answer, changes)).toHaveLength(1);
  });

  it('is asked for again if it shows the flow as running: more results may come', async () => {
    for (const path of [undefined, REPLICATE.state.path, '/results/{id}']) {
      const reading = outputsIn({ status: 'processing', output: [A] }, { path });
      await expect(reading).rejects.toMatchObject({ name: 'NotReadyError' });
    }
    expect(await outputsIn({ status: 'succeeded', output: [A] })).toHaveLength(1);
    expect(await outputsIn({ status: 'succeeded', phase: 'starting', output: [A] })).toHaveLength(1);
    const video = { status: 'succeeded', video: { status: 'processing', url: A } };
    await expect(outputsIn(video, { addresses: ['/video/url'] })).rejects.toMatchObject({ name: 'NotReadyError' });
  });

  it('has an output that is pending, and is not fetched, while a declared word beside its address says so', async () => {
    const output = [
      { file: { url: A }, status: 'succeeded' },
      { file: { url: A }, status: 'processing' },
      { files: [A], state: 'failed', error_message: 'No sound', error_class: null },
      { files: [A], state: 'canceled' },
      { name: 'last', status: 'starting' },
    ];
    expect(await outputsIn({ output }, { path: '/results/{id}' })).toEqual([
      { assetId: 'output-0-file-url', status: 'ready' },
      { assetId: 'output-1-file-url', status: 'pending', word: 'processing', isDeclared: true },
      { assetId: 'output-2-files-0', status: 'failed', error: 'No sound' },
      { assetId: 'output-3-files-0', status: 'failed', error: 'The service shows it as "canceled"' },
      { assetId: 'output-4', status: 'pending', word: 'starting', isDeclared: true },
    ]);
    await expect(outputsIn({ a: { url: A, status: 'processing' } }, { addresses: ['/a/url'] })).rejects.toThrow(
      'shown as running',
    );
    await using server = await scripted((request, response) => json(request, response, { output }));
    const fetching = clientOf(server.url, { service: REPLICATE }).asset('j1', 'output-1-file-url', never);
    await expect(fetching).rejects.toMatchObject({ name: 'NotReadyError' });
    expect(server.requests).toHaveLength(1);
  });

  it('has all its results if the answer itself has a word of a flow that failed', async () => {
    expect(await outputsIn({ status: 'failed', mp4: A }, { addresses: [''] })).toEqual([
      { assetId: 'mp4', status: 'ready' },
    ]);
  });

  it('has an asset that is not ready, and not gone, if it shows the flow as running', async () => {
    const states = [{ status: 'processing' }, { status: 'succeeded', output: [] }];
    await using server = await scripted((request, response, index) => json(request, response, states[index] ?? {}));
    const flows = clientOf(server.url, { service: REPLICATE });
    const reading = () => flows.asset('j1', 'output-0', never);
    await expect(reading()).rejects.toMatchObject({ name: 'NotReadyError' });
    await expect(reading()).rejects.toMatchObject({ name: 'NotFoundError' });
  });

  it('has a failed output for each item of a list that has an error, and no address', async () => {
    const output = [
      { url: A },
      { url: null, error: 'NSFW content' },
      { url: null, error: null },
      { error: { code: 3 } },
    ];
    expect(await outputsIn({ output, error: 'two failed' })).toEqual([
      { assetId: 'output-0-url', status: 'ready' },
      { assetId: 'output-1', status: 'failed', error: 'NSFW content' },
      { assetId: 'output-2-url', status: 'failed', error: LACKING },
      { assetId: 'output-3', status: 'failed', error: '{"code":3}' },
    ]);
  });

  const LACKING = 'The service lists no address there';
  it.each<[string, unknown[], string[]]>([
    ['null among addresses', [null, A], ['output-0']],
    ['an empty text among addresses', [A, ''], ['output-1']],
    ['null where another item has its address', [{ file: { url: A } }, { file: { url: null } }], ['output-1-file-url']],
  ])('has a failed output for an item of a list that is %s', async (_, output, lacking) => {
    const outputs = await outputsIn({ output });
    expect(outputs).toHaveLength(2);
    expect(outputs.filter(({ status }) => status === 'failed')).toEqual(
      lacking.map((assetId) => ({ assetId, status: 'failed', error: LACKING })),
    );
  });

  it.each<[object, string]>([
    [{ code: 'Timeout', detail: 'It took too long' }, 'It took too long'],
    [{ index: 1, status: 'failed' }, '{"index":1,"status":"failed"}'],
    [{ error_code: 'E7' }, '{"error_code":"E7"}'],
    [{ success: false, message: 'NSFW content' }, 'NSFW content'],
    [{ key: 'webm', status: 'video.failed' }, '{"key":"webm","status":"video.failed"}'],
    [{ name: 'b.tif', delivery: 'failed' }, '{"name":"b.tif","delivery":"failed"}'],
  ])('has a failed output for an item of a list that says so among addresses: %j', async (failed, error) => {
    expect(await outputsIn({ output: [failed, { url: A, status: 'video.encoded' }] })).toEqual([
      { assetId: 'output-0', status: 'failed', error },
      { assetId: 'output-1-url', status: 'ready' },
    ]);
  });

  it.each<[string, unknown[]]>([
    ['tells of a step', [{ detail: 'Loading the model', status: 'started' }, { url: A }]],
    ['says nothing of an error', [{ url: A }, { status: 'finished', code: 0, message: 'ok' }]],
    [
      'is a step, with the same word',
      [
        { url: A, status: 'finished' },
        { status: 'finished', name: 'import' },
      ],
    ],
    ['has its result elsewhere', [{ url: A }, { url: null, video: A }]],
    ['is of another kind', [{ url: A }, { text: null }, { text: 'A cat.' }]],
  ])('has no output for an item of a list that %s', async (_, output) => {
    expect((await outputsIn({ output })).every(({ status }) => status === 'ready')).toBe(true);
  });
});

describe('a pointer with a step for each item', () => {
  const A = 'https://cdn.example/a.pdf';
  const docs = [
    { path: A, source: 'https://cdn.example/in.pdf', status: 'succeeded' },
    { path: A, source: A, status: 'processing' },
    { source: A, status: 'failed', error: { message: 'bad file' } },
    { path: null, source: A },
    { source: A, status: 'succeeded' },
    { source: A, status: 'queued' },
  ];
  it('finds only what the items have there, and still tells of items without', () => {
    const found = linked({ docs }, ['/docs/-/path']);
    expect(found).toHaveLength(5);
    expect(found).toMatchObject([
      { assetId: 'docs-0-path', address: A, word: undefined },
      { assetId: 'docs-1-path', word: 'processing' },
      { assetId: 'docs-2', error: 'bad file' },
      { assetId: 'docs-3-path', error: 'The service lists no address there' },
      { assetId: 'docs-5', error: expect.stringContaining('queued') },
    ]);
  });

  it.each<[string, unknown, readonly string[], readonly string[]]>([
    ['a list of texts', { docs: [{ urls: [A, A] }] }, ['/docs/-/urls'], ['docs-0-urls-0', 'docs-0-urls-1']],
    ['members by their names', { docs: { low: { url: A, poster: A } } }, ['/docs/-/url'], ['docs-low-url']],
    ['lists in lists', [{ files: [{ url: A, in: A }] }], ['/-/files/-/url'], ['0-files-0-url']],
    ['the items themselves', { docs: [A, { b: A }] }, ['/docs/-'], ['docs-0', 'docs-1-b']],
    [
      'items of two kinds',
      {
        docs: [
          { url: A, status: 'encoded' },
          { urls: [A], status: 'created' },
        ],
      },
      ['/docs/-/url', '/docs/-/urls'],
      ['docs-0-url', 'docs-1-urls-0'],
    ],
    ['nothing in an empty list', { docs: [] }, ['/docs/-/url'], []],
  ])('finds %s', (_, answer, addresses, ids) => {
    const read = linkedOutputsReader({ addresses, isWhole: true }, REPLICATE)(answer);
    expect(idsOf(read.links)).toEqual(ids);
    expect(read.nothing).toBeUndefined();
  });

  it('is told if it finds nothing', () => {
    const read = linkedOutputsReader({ addresses: ['/docs/-/url'], isWhole: true }, REPLICATE)({ docs: [{ path: A }] });
    expect(read.nothing).toContain('no address at /docs/-/url: correct "outputs.addresses"');
  });
});

it('results by their names are told if one of them failed, or is not there yet', () => {
  const output = {
    low: { url: 'https://cdn.example/a', status: 'STORED' },
    mid: { status: 'FAILED' },
    high: { status: 'processing' },
    none: null,
  };
  expect(linked({ output })).toMatchObject([
    { assetId: 'output-low-url', word: undefined },
    { assetId: 'output-mid', error: '{"status":"FAILED"}' },
    { assetId: 'output-high', word: 'processing' },
  ]);
});

describe('the results that stand in an answer itself', () => {
  const MIB = 1024 * 1024;
  const uri = (letter: string, bytes: number): string =>
    `data:image/png;base64,${Buffer.alloc(bytes, letter).toString('base64')}`;

  /** A service whose answer about each job is this text. */
  async function serving(answer: string) {
    const server = await scripted((request, response) => json(request, response, answer));
    return { server, flows: clientOf(server.url, { service: REPLICATE }) };
  }

  const contentOf = async (flows: FlowService, id: string): Promise<string> => {
    const bytes = Buffer.concat(await Array.fromAsync((await flows.asset('j1', id, never)).chunks));
    const isOne = bytes.every((byte) => byte === bytes[0]);
    return isOne ? `${bytes.byteLength} × ${String.fromCharCode(bytes[0] ?? 0)}` : 'mixed';
  };

  it('come each, however large the others are', async () => {
    const output = [uri('a', 2 * MIB), uri('b', 3 * MIB), uri('c', MIB)];
    const { server, flows } = await serving(JSON.stringify({ id: 'j1', status: 'succeeded', output }));
    await using _ = server;
    const ids = (await flows.outputs('j1', never)).map(({ assetId }) => assetId);
    expect(ids).toEqual(['output-0', 'output-1', 'output-2']);
    const contents = [];
    for (const id of ids) contents.push(await contentOf(flows, id));
    expect(contents).toEqual([`${2 * MIB} × a`, `${3 * MIB} × b`, `${MIB} × c`]);
  });

  it.each(['before', 'behind'])('come although the answer repeats a large input %s them', async (place) => {
    const input = { image: uri('i', 4 * MIB), 'quo"te\\': 'x'.repeat(2 * MIB) };
    const members = place === 'before' ? { input, output: uri('a', MIB) } : { output: uri('a', MIB), input };
    const { server, flows } = await serving(JSON.stringify({ id: 'j1', status: 'succeeded', ...members }));
    await using _ = server;
    expect(await contentOf(flows, 'output')).toBe(`${MIB} × a`);
  });

  it('may be bare base64, if that is declared, also with escaped slashes or in lines', async () => {
    const png = readFileSync(new URL('../../examples/robot.png', import.meta.url));
    const lines = png.toString('base64').replace(/.{76}/g, '$&\r\n');
    const images = [
      { filename: 'a.png', type: 'base64', data: lines },
      { filename: 'b.bin', type: 'base64', data: Buffer.alloc(MIB, 0xff).toString('base64') },
      { filename: 'c.png', type: 's3_url', data: 'https://cdn.example/c.png' },
      { filename: 'd.png', type: 'base64', data: 'PROCESSING' },
    ];
    const answer = JSON.stringify({ id: 'j1', status: 'succeeded', output: { images, message: 'done' } });
    await using server = await scripted((request, response) => json(request, response, answer.replaceAll('/', '\\/')));
    const outputs = { addresses: ['/output/images/-/data'], isWhole: true };
    const flows = clientOf(server.url, { service: { ...REPLICATE, outputs: { ...outputs, base64: true } } });
    expect(await flows.outputs('j1', never)).toEqual([
      { assetId: 'output-images-0-data', status: 'ready' },
      { assetId: 'output-images-1-data', status: 'ready' },
      { assetId: 'output-images-2-data', status: 'ready' },
      { assetId: 'output-images-3-data', status: 'failed', error: 'It is no address, but "PROCESSING"' },
    ]);
    const { mediaType, chunks } = await flows.asset('j1', 'output-images-0-data', never);
    expect([mediaType, Buffer.concat(await Array.fromAsync(chunks)).equals(png)]).toEqual(['image/png', true]);
    expect(await contentOf(flows, 'output-images-1-data')).toBe(`${MIB} × ÿ`);
    const undeclared = clientOf(server.url, { service: { ...REPLICATE, outputs } });
    expect((await undeclared.outputs('j1', never)).filter(({ status }) => status === 'ready')).toHaveLength(1);
  });

  it('are damaged if so much that is no text stands beside them that it cannot be kept', async () => {
    const numbers = `[${'1,'.repeat(MIB)}1]`;
    for (const answer of [
      `{"many":${numbers},"output":"${uri('a', 9)}"}`,
      `{"output":"${uri('a', 9)}","many":${numbers}}`,
    ]) {
      const small = JSON.stringify({ output: uri('a', 9) });
      await using server = await scripted((request, response, index) =>
        json(request, response, index === 0 ? small : answer),
      );
      const flows = clientOf(server.url, { service: REPLICATE });
      const reading = contentOf(flows, 'output');
      await expect(reading).rejects.toMatchObject({ name: 'DamagedAssetError' });
      await expect(reading).rejects.toThrow(/bytes (?:precede|follow) the data/);
    }
  });

  it('are asked for again if the second answer does not have them any more', async () => {
    await using server = await scripted((request, response, index) =>
      json(request, response, index === 0 ? { output: uri('a', 9) } : { output: null, input: 'x'.repeat(MIB) }),
    );
    const reading = contentOf(clientOf(server.url, { service: REPLICATE }), 'output');
    await expect(reading).rejects.toThrow('The answer has no data at /output any more');
  });
});
