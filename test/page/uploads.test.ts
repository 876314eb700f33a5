import { request as httpRequest, type IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import { HeadObjectCommand, ListMultipartUploadsCommand, ListObjectVersionsCommand } from '@aws-sdk/client-s3';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { ended } from '../../functions/ledger/entry.ts';
import { INBOX_BUCKET } from '../../local/pipeline.ts';
import type { UploadDetail, UploadRow, UploadsPage } from '../../page/api.ts';
import { servePage } from '../../page/server/serve-page.ts';
import { Operated, ROUTES } from '../operations/support.ts';
import { issuesOf } from '../support/json-schema.ts';
import { PATIENCE } from '../support/patience.ts';
import { APP, messageOf, QUICK, Visitor } from './support.ts';
import { visitWorld } from './world.ts';

let operated: Operated;
let visitor: Visitor;
const closing = new AsyncDisposableStack();
beforeAll(async () => {
  const template = 'model_generate_fromprompt';
  const poems = { name: 'poems', input: 'text', template, prefixes: ['poems/'], overrides: true } as const;
  operated = closing.use(await Operated.start({ routes: [poems, ...ROUTES] }));
  const served = await servePage(operated.deployment, { appFiles: async () => APP, pace: QUICK });
  closing.defer(() => served.close());
  visitor = await Visitor.open(served.url);
});
afterEach(() => operated.refuse(undefined));
afterAll(() => closing.disposeAsync());

/** Waits until the upload of a key is in a state. */
const becomes = (key: string, state: UploadRow['state']): Promise<UploadRow> =>
  vi.waitFor(async () => {
    const { uploads }: UploadsPage = (await visitor.ask('/api/uploads?limit=1000')).json;
    const row = uploads.find((each) => each.key === key && each.state === state);
    if (row === undefined) throw new Error(`${key} is not ${state}: ${JSON.stringify(uploads)}`);
    return row;
  }, PATIENCE);

const detail = async (id: string, of = visitor): Promise<UploadDetail> => (await of.ask(`/api/uploads/${id}`)).json;

const inboxKeys = async (): Promise<readonly string[]> => {
  const { Versions = [] } = await operated.pipeline.s3.send(new ListObjectVersionsCommand({ Bucket: INBOX_BUCKET }));
  return Versions.map(({ Key = '' }) => Key).sort();
};

const openParts = async (): Promise<number> =>
  (await operated.pipeline.s3.send(new ListMultipartUploadsCommand({ Bucket: INBOX_BUCKET }))).Uploads?.length ?? 0;

describe('a file', () => {
  it('goes from the page to its results, and is shown with all that is known of it', async () => {
    const put = await visitor.put('photos/robot.png', 'a picture', { 'content-type': 'image/png' });
    expect(put).toMatchObject({ status: 200, json: { key: 'photos/robot.png' } });
    const row = await becomes('photos/robot.png', 'succeeded');
    expect(row).toMatchObject({ id: put.json.id, bytes: 9, mediaType: 'image/png', route: 'pictures', assetCount: 1 });

    const shown = await vi.waitFor(async () => {
      const found = await detail(row.id);
      if (found.receipt === undefined) throw new Error('There is no receipt yet.');
      return found;
    }, PATIENCE);
    expect(shown).toMatchObject({ isCurrent: true, receipt: { status: 'succeeded' }, actions: ['again', 'collect'] });
    expect(shown.timeline.map(({ kind }) => kind)).toEqual([
      'put',
      'arrived',
      'running',
      'outputs',
      'succeeded',
      'receipt',
    ]);
    expect(shown.timeline.filter(({ isNow }) => isNow)).toHaveLength(1);
    expect(issuesOf('upload', shown.upload)).toBe('');
    const { assetCount, thumbnail, ...ofUpload } = shown.row;
    expect(assetCount).toBe(shown.upload.assets.length);
    expect(thumbnail).toEqual({ picture: `/api/uploads/${row.id}/assets/0` });
    expect(shown.upload).toMatchObject(ofUpload);
    expect(shown.command.get).toBe('npm run -s flowdrop -- get photos/robot.png');
    const [asset] = shown.assets;
    expect((await visitor.ask(shown.inputs[0]?.url ?? '')).text).toBe('a picture');
    expect((await visitor.ask(asset?.url ?? '')).body).toHaveLength(asset?.bytes ?? -1);
    expect((await visitor.ask('/api/status')).json).toMatchObject({ kind: 'pipeline', pipeline: 'operated' });
    expect((await visitor.ask('/api/about')).json).toMatchObject({
      ...{ deployment: 'the local run', isLocal: true, canOverride: true },
      routes: [
        { name: 'poems', isOverridable: true },
        { name: 'pictures', isOverridable: false },
        { name: 'texts', isOverridable: true },
      ],
    });
    expect((await visitor.post('/api/doctor', {})).json.checks.length).toBeGreaterThan(5);
    expect((await visitor.ask('/api/templates')).json.length).toBeGreaterThan(0);
  });

  it('is told its route before it is sent', async () => {
    const files = [
      { key: 'robot.png', bytes: 5 },
      { key: 'song.mp3', bytes: 5 },
      { key: 'empty.png', bytes: 0 },
      { key: 'long.txt', bytes: 2 ** 30 },
      { key: 'a/../b.png', bytes: 5 },
      { key: 'unnamed', bytes: 5, mediaType: 'image/png' },
    ];
    const { json } = await visitor.post('/api/route', { files });
    const costs = { flows: 1, later: 0, unpriced: 1, amounts: {} };
    expect(json).toEqual([
      { key: 'robot.png', route: 'pictures', template: 'bytes_echo', costs },
      { key: 'song.mp3', reason: expect.stringMatching(/^No route takes this file, .* comes nearest: /) },
      { key: 'empty.png', route: 'pictures', template: 'bytes_echo', reason: 'The file is empty.' },
      { key: 'long.txt', route: 'texts', template: 'text', reason: expect.stringContaining('bytes') },
      { key: 'a/../b.png', reason: 'No part of a name may be "." or "..".' },
      { key: 'unnamed', route: 'pictures', template: 'bytes_echo', costs },
    ]);
    const wrong = await visitor.post('/api/route', { files: [{ key: 5 }] });
    expect([wrong.status, messageOf(wrong)]).toEqual([400, expect.stringContaining('files.0.key')]);
  });

  it.each([
    '../secret.png',
    '..',
    'a/../../b.png',
    './a.png',
    'line\nbreak.png',
    'nul\u0000.png',
    'bell\u0007.png',
    'folder/',
    '',
    `${'x'.repeat(1025)}.png`,
  ])('has a name that no program stumbles over: not %j', async (key) => {
    const before = await inboxKeys();
    const answer = await visitor.put(key, 'x');
    expect(answer.status).toBe(400);
    expect(messageOf(answer)).toMatch(/^[A-Z].*\.$/);
    expect(await inboxKeys()).toEqual(before);
  });

  it('may have any other name', async () => {
    const before = await inboxKeys();
    const keys = [
      '<img src=x onerror=alert(1)>.png',
      'фото/робот 机器人 🤖.png',
      `it's "100%" & more+?#.png`,
      '%2e%2e%2fsecret.png',
      'café.png',
      'cafe\u0301.png',
      '__proto__.png',
    ];
    for (const key of keys) expect([key, (await visitor.put(key, key)).json?.key]).toEqual([key, key]);
    expect(await inboxKeys()).toEqual([...before, ...keys].sort());
    for (const key of keys) {
      const { id } = await becomes(key, 'succeeded');
      const [input] = (await detail(id)).inputs;
      const saved = await visitor.ask(`${input?.url}&download`);
      expect(saved.text).toBe(key);
      const [, name = ''] =
        /^attachment; filename\*=UTF-8''([\w.%~!-]+)$/.exec(String(saved.headers['content-disposition'])) ?? [];
      expect(decodeURIComponent(name)).toBe(key.split('/').at(-1));
    }
  });

  it('gets other parameters only where its route lets it', async () => {
    const key = 'poems/fox.txt';
    const headers = { 'x-flowdrop-parameters': encodeURIComponent('{"quality":"low"}') };
    const before = await inboxKeys();
    const refused = await visitor.put('robot.png', 'x', headers);
    expect([refused.status, messageOf(refused)]).toEqual([409, expect.stringContaining('pictures')]);
    expect(await inboxKeys()).toEqual(before);
    const broken = await visitor.put(key, 'x', { 'x-flowdrop-parameters': '{' });
    expect([broken.status, messageOf(broken)]).toEqual([400, 'The parameters are not JSON.']);
    const text = `${'['.repeat(5_000)}${']'.repeat(5_000)}`;
    const said = 'expected something that JSON can say, nested at most 32 deep';
    const deep = await visitor.put(key, 'x', { 'x-flowdrop-parameters': text });
    expect([deep.status, messageOf(deep)]).toEqual([400, `The parameters cannot be used: ${said}.`]);
    const body = `{"action":"again","uploads":["${'f'.repeat(40)}"],"parameters":${text}}`;
    const deepAgain = await visitor.ask('/api/plan', { method: 'POST', body });
    expect([deepAgain.status, messageOf(deepAgain)]).toEqual([
      400,
      `The request cannot be understood: parameters: ${said}.`,
    ]);

    expect((await visitor.put(key, 'x', headers)).status).toBe(200);
    const first = await becomes(key, 'succeeded');
    const shown = await detail(first.id);
    expect(shown.upload.parameters).toEqual({ quality: 'low' });
    expect([shown.actions, shown.takesOthers]).toEqual([expect.arrayContaining(['again']), true]);

    const { text: made } = await visitor.ask(shown.assets[0]?.url ?? '');
    const parameters = { quality: 'high', 'größe 🦋': 1 };
    const planned = await visitor.post('/api/plan', { action: 'again', uploads: [first.id], parameters });
    expect(planned.json).toMatchObject({ uploads: 1, skipped: [] });
    expect((await visitor.post('/api/act', { plan: planned.json.plan })).json.results).toMatchObject([
      { isDone: true },
    ]);
    await becomes(key, 'failed'); // The template has no such parameter.
    const second = await detail(first.id);
    expect(second.upload).toMatchObject({ generation: 2, parameters, previous: [{ parameters: { quality: 'low' } }] });
    expect((await visitor.ask(second.previous[0]?.objects[0]?.url ?? '')).text).toBe(made);
    await visitor.put('photos/fixed.png', 'x');
    const fixed = await becomes('photos/fixed.png', 'succeeded');
    const others = await visitor.post('/api/plan', { action: 'again', uploads: [fixed.id], parameters });
    expect(others.json).toMatchObject({ uploads: 0, skipped: [{ reason: expect.stringContaining('does not allow') }] });

    await visitor.put('poems/other.txt', 'x', { 'x-flowdrop-template': encodeURIComponent('größer') });
    const { id } = await becomes('poems/other.txt', 'failed');
    expect((await detail(id)).upload.template).toBe('größer');
  });

  it.each([1_000_000, 12_000_000])('leaves no object and no part if it is cut off after %i bytes', async (sent) => {
    const before = await inboxKeys();
    const { hostname, port } = new URL(visitor.url);
    const headers = { ...visitor.headers, 'content-length': 20_000_000 };
    const put = httpRequest({ hostname, port, path: '/api/files/cut.png', method: 'PUT', headers, agent: false });
    const broken = new Promise((resolve) => put.on('error', resolve));
    await new Promise((resolve) => put.write(Buffer.alloc(sent), resolve));
    if (sent > 5_000_000) await vi.waitFor(async () => expect(await openParts()).toBe(1), PATIENCE);
    put.destroy();
    await broken;
    await vi.waitFor(async () => expect(await openParts()).toBe(0), PATIENCE);
    // A file after it, so that what the first one might have left would be there by now.
    const key = `whole-${sent}.png`;
    expect((await visitor.put(key, 'x')).status).toBe(200);
    expect(await inboxKeys()).toEqual([...before, key].sort());
    expect(await openParts()).toBe(0);
  });

  it('of any size is read only as fast as S3 takes it', async () => {
    const { world, visitor } = await visitWorld();
    const gate = Promise.withResolvers<void>();
    world.gate = gate.promise;
    const MEBIBYTE = 1024 * 1024;
    const MEBIBYTES = 60;
    const chunk = Buffer.alloc(MEBIBYTE, 'flowdrop');
    let sent = 0;
    async function* body() {
      for (; sent < MEBIBYTES; sent += 1) yield chunk;
    }
    const { hostname, port } = new URL(visitor.url);
    const headers = { ...visitor.headers, 'content-length': MEBIBYTES * MEBIBYTE };
    const put = httpRequest({ hostname, port, path: '/api/files/large.png', method: 'PUT', headers, agent: false });
    const answered = new Promise<IncomingMessage>((resolve, reject) => put.on('response', resolve).on('error', reject));
    Readable.from(body(), { objectMode: true, highWaterMark: 1 }).pipe(put);
    let before = -1;
    while (sent !== before) {
      before = sent;
      await new Promise((resolve) => setTimeout(resolve, 300));
    }
    // Two parts of 5 MiB, one that is being filled, and what the sockets hold.
    expect(sent).toBeLessThan(30);
    gate.resolve();
    const response = await answered;
    response.resume();
    expect(response.statusCode).toBe(200);
    const { deployment } = world;
    const { ContentLength } = await deployment.s3.send(new HeadObjectCommand({ Bucket: 'inbox', Key: 'large.png' }));
    expect(ContentLength).toBe(MEBIBYTES * MEBIBYTE);
  });

  it('needs a length', async () => {
    const headers = { 'transfer-encoding': 'chunked' };
    const answer = await visitor.ask('/api/files/x.png', { method: 'PUT', headers });
    expect([answer.status, answer.json.error.code]).toEqual([411, 'length-required']);
  });
});

describe('the bytes of a result', () => {
  /** The results of one upload, of these media types, which the service gave. */
  const stored = async (body: string, ...mediaTypes: readonly string[]) => {
    const { world, visitor } = await visitWorld();
    const facts = {
      id: 'any',
      bucket: 'results',
      key: 'robot.png/flow/asset',
      etag: '',
      bytes: body.length,
      sha256: '',
    };
    const assets = mediaTypes.map((mediaType) => ({ ...facts, mediaType }));
    const id = await world.put(ended(world.claimed('robot.png'), { assets }, world.now));
    await world.putObject(facts.key, body, 'results');
    return { visitor, id };
  };

  it('are only saved if a browser could run or misread their type', async () => {
    const types = [
      'text/html',
      'application/xhtml+xml',
      'text/javascript',
      'application/pdf;x',
      'text/html;x',
      'nonsense',
      'text/plain\r\nset-cookie: a=b',
    ];
    const { visitor, id } = await stored('<script>alert(1)</script>', ...types);
    const { assets } = await detail(id, visitor);
    expect(assets.map(({ isShown }) => isShown)).toEqual(types.map(() => false));
    for (const [index, mediaType] of types.entries()) {
      const { status, headers } = await visitor.ask(`/api/uploads/${id}/assets/${index}`);
      expect(status).toBe(200);
      expect(headers, mediaType).toMatchObject({
        'content-type': 'application/octet-stream',
        'content-disposition': expect.stringMatching(/^attachment; /),
        'content-security-policy': "sandbox; default-src 'none'; frame-ancestors 'none'",
        'x-content-type-options': 'nosniff',
      });
      expect(headers['set-cookie']).toBeUndefined();
    }
  });

  it('are shown in place if their type is harmless', async () => {
    const shown = {
      'image/png': 'image/png',
      'image/svg+xml': 'image/svg+xml',
      'model/gltf-binary': 'model/gltf-binary',
      'application/pdf': 'application/pdf',
      'application/json': 'application/json; charset=utf-8',
      'text/plain': 'text/plain; charset=utf-8',
      'video/mp4': 'video/mp4',
    };
    const { visitor, id } = await stored('content', ...Object.keys(shown));
    for (const [index, contentType] of Object.values(shown).entries()) {
      const { headers } = await visitor.ask(`/api/uploads/${id}/assets/${index}`);
      expect(headers['content-type']).toBe(contentType);
      expect(headers['content-disposition']).toBeUndefined();
      expect(headers['content-security-policy']).toContain('sandbox');
      const saved = await visitor.ask(`/api/uploads/${id}/assets/${index}?download`);
      expect(saved.headers['content-disposition']).toMatch(/^attachment; /);
    }
  });

  it('come in the parts that are asked for', async () => {
    const { visitor, id } = await stored('0123456789', 'video/mp4');
    const part = async (range: string) => {
      const { status, text, headers } = await visitor.ask(`/api/uploads/${id}/assets/0`, { headers: { range } });
      return [status, status === 416 ? '' : text, headers['content-range']];
    };
    expect(await part('bytes=2-4')).toEqual([206, '234', 'bytes 2-4/10']);
    expect(await part('bytes=7-')).toEqual([206, '789', 'bytes 7-9/10']);
    expect(await part('bytes=-3')).toEqual([206, '789', 'bytes 7-9/10']);
    expect(await part('bytes=-30')).toEqual([206, '0123456789', 'bytes 0-9/10']);
    expect(await part('bytes=8-99')).toEqual([206, '89', 'bytes 8-9/10']);
    expect(await part('bytes=10-')).toEqual([416, '', 'bytes */10']);
    expect(await part('bytes=-0')).toEqual([416, '', 'bytes */10']);
    for (const range of ['bytes=4-2', 'bytes=0-1,3-4', 'lines=1-2', 'bytes=a-b', 'bytes=-']) {
      expect([range, ...(await part(range))]).toEqual([range, 200, '0123456789', undefined]);
    }
    const head = await visitor.ask(`/api/uploads/${id}/assets/0`, { method: 'HEAD', headers: { range: 'bytes=2-4' } });
    expect([head.status, head.headers['content-length'], head.text]).toEqual([206, '3', '']);
  });

  it('are those of the upload alone', async () => {
    const { visitor, id } = await stored('content', 'image/png');
    for (const path of [
      `${id}/assets/1`,
      `${id}/assets/-1`,
      `${id}/assets/0x0`,
      `${id}/assets/..%2f0`,
      `${id}/inputs/1`,
      'x/inputs/0',
    ]) {
      const answer = await visitor.ask(`/api/uploads/${path}`);
      expect([path, answer.status]).toEqual([path, 404]);
      expect(messageOf(answer)).toMatch(/^[A-Z].*\.$/);
    }
    for (const wrong of ['..%2fstate%2fcollector-0', `${id.slice(1)}g`, id.toUpperCase(), 'f'.repeat(40)]) {
      expect([wrong, (await visitor.ask(`/api/uploads/${wrong}`)).status]).toEqual([wrong, 404]);
    }
  });
});

describe('an action', () => {
  /** The failures of these tests alone. */
  const query = { state: 'failed', route: 'pictures' };

  it('does what its plan has shown, once', async () => {
    await operated.putRefused('one.png', 'two.png');
    const flows = () => operated.standIn.flows.length;
    const before = flows();

    const planned = await visitor.post('/api/plan', { action: 'retry', query: { ...query, code: 'rejected' } });
    const costs = { flows: 2, later: 0, unpriced: 2, amounts: {} };
    const counts = { costs, inDoubt: 0, uploads: 2, skipped: [], held: [] };
    expect(planned.json).toEqual({ plan: expect.any(String), ...counts });
    expect(flows()).toBe(before);
    const { plan } = planned.json;
    const [first, second] = await Promise.all([visitor.post('/api/act', { plan }), visitor.post('/api/act', { plan })]);
    expect([first, second].map(({ status }) => status).sort()).toEqual([200, 410]);
    const done = first.status === 200 ? first : second;
    const result = { id: expect.any(String), name: expect.any(String), isDone: true };
    expect(done.json.results).toEqual([result, result]);
    for (const key of ['one.png', 'two.png']) await becomes(key, 'succeeded');
    expect(flows()).toBe(before + 2);
    expect(messageOf(await visitor.post('/api/act', { plan }))).toContain('Make a new one.');
    expect((await visitor.post('/api/act', { plan: 'none' })).status).toBe(410);
  });

  it('skips what it is not for, and says why', async () => {
    await operated.put('good.png', 'succeeded');
    const { id } = await becomes('good.png', 'succeeded');
    const uploads = [id, id, 'f'.repeat(40), '../x', 'good.png'];
    const retry = await visitor.post('/api/plan', { action: 'retry', uploads });
    expect(retry.json).toMatchObject({ costs: { flows: 0 }, uploads: 0 });
    expect(retry.json.skipped).toEqual([
      { name: '../x', reason: 'there is no such upload' },
      { name: 'good.png', reason: 'there is no such upload' },
      { name: 'good.png', reason: 'it has succeeded' },
      { name: 'f'.repeat(40), reason: expect.stringContaining('no entry') },
    ]);
    const collect = await visitor.post('/api/plan', { action: 'collect', uploads: [id] });
    expect(collect.json).toMatchObject({ costs: { flows: 0 }, uploads: 1, skipped: [] });
    const { results } = (await visitor.post('/api/act', { plan: collect.json.plan })).json;
    expect(results).toEqual([{ id, name: 'good.png', isDone: true }]);
    await operated.put('empty.png', 'failed', '');
    expect((await visitor.post('/api/plan', { action: 'collect', query })).json).toMatchObject({
      uploads: 0,
      skipped: [{ name: 'empty.png', reason: 'it never had a flow' }],
    });
  });

  it.each([
    [{ action: 'forget', uploads: [] }, 'action'],
    [{ action: 'retry' }, 'either'],
    [{ action: 'again', uploads: [], from: 'pictures' }, 'Only a stage of a chain'],
    [{ action: 'cancel', chain: 'f'.repeat(40), from: 'pictures' }, 'Only a stage of a chain'],
    [{ action: 'again', query: { state: 'failed' } }, 'Name what is made anew'],
    [{ action: 'retry', uploads: [], parameters: {} }, 'only for what is made anew'],
    [{ action: 'retry', uploads: [], query: { state: 'failed' } }, 'either'],
    [{ action: 'retry', query: { state: 'succeeded' } }, 'query.state'],
    [{ action: 'retry', query: { state: 'failed', since: 'yesterday' } }, 'query.since'],
    [[], 'the request'],
    ['{', 'The request is not JSON.'],
  ])('is not understood as %j', async (request, named) => {
    const body = typeof request === 'string' ? request : JSON.stringify(request);
    const answer = await visitor.ask('/api/plan', { method: 'POST', body });
    expect([answer.status, messageOf(answer)]).toEqual([400, expect.stringContaining(named)]);
  });

  it('tells of the upload whose invocation failed', async () => {
    await operated.putRefused('lost.png');
    const { json } = await visitor.post('/api/plan', { action: 'retry', query: { ...query, code: 'rejected' } });
    vi.spyOn(operated.deployment.collecting, 'invoke').mockRejectedValue(new Error('Out of memory'));
    const { results } = (await visitor.post('/api/act', { plan: json.plan })).json;
    expect(results).toEqual([
      expect.objectContaining({ name: 'lost.png', isDone: false, message: expect.stringContaining('Out of memory') }),
    ]);
    const templates = await visitor.ask('/api/templates');
    expect([templates.status, messageOf(templates)]).toEqual([502, 'That did not work: Out of memory']);
  });
});
