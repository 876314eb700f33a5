import { type ChildProcess, fork } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { expect, it, onTestFinished } from 'vitest';
import { temporaryFolder } from '../../support/folder.ts';
import { dataUri, echo, standIn } from './support.ts';

const HEADERS = { authorization: 'Bearer fake-token', 'content-type': 'application/json' };
/** Three quarters of this are the file's bytes. */
const BASE64_PIECE = Buffer.from(Buffer.alloc(192 * 1024, 'flowdrop').toString('base64'));
const PIECES = 640;
const FILE_BYTES = PIECES * 192 * 1024;
const PEAK_GROWTH_KIB_MAX = 90 * 1024;

interface Report {
  readonly url: string;
  readonly flows: readonly {
    id: string;
    inputs: { bytes: number; sha256: string }[];
    outputs: { assetId: string }[];
  }[];
  readonly peakKiB: number;
}

async function ask(child: ChildProcess): Promise<Report> {
  child.send('report');
  const [report] = (await once(child, 'message')) as [Report];
  return report;
}

async function post(url: string, before: string, pieces: Iterable<Buffer>, after: string): Promise<number | undefined> {
  const request = httpRequest(`${url}/flows`, { method: 'POST', headers: HEADERS });
  const answered = once(request, 'response') as Promise<[IncomingMessage]>;
  function* body() {
    yield Buffer.from(before);
    yield* pieces;
    yield Buffer.from(after);
  }
  await pipeline(Readable.from(body()), request);
  const [answer] = await answered;
  answer.resume();
  return answer.statusCode;
}

async function hashOf({ body }: Response): Promise<{ bytes: number; sha256: string }> {
  const hash = createHash('sha256');
  let bytes = 0;
  for await (const chunk of body ?? []) {
    hash.update(chunk);
    bytes += chunk.length;
  }
  return { bytes, sha256: hash.digest('hex') };
}

it('receives and sends 120 MiB in bounded memory', { timeout: 180_000 }, async () => {
  const child = fork(join(import.meta.dirname, 'service-process.ts'));
  onTestFinished(async () => {
    const ended = once(child, 'exit');
    child.disconnect();
    await ended;
  });
  const [{ url }] = (await once(child, 'message')) as [Report];

  // Do everything below once in small: code that is loaded at first use then counts as idle memory.
  await fetch(`${url}/flows`, { method: 'POST', headers: HEADERS, body: JSON.stringify(echo('x')) });
  const idle = await ask(child);

  const pieces = Array.from({ length: PIECES }, () => BASE64_PIECE);
  const before = '{"inputs":[{"additional":1,"data":"data:application/octet-stream;base64,';
  expect(await post(url, before, pieces, '"}],"template":"bytes_echo"}')).toBe(201);
  const expected = createHash('sha256');
  for (let i = 0; i < PIECES; i++) expected.update(Buffer.alloc(192 * 1024, 'flowdrop'));
  const sha256 = expected.digest('hex');
  const { flows } = await ask(child);
  const flow = flows[1];
  expect(flow?.inputs).toMatchObject([{ bytes: FILE_BYTES, sha256 }]);

  const asset = `${url}/flows/${flow?.id}/outputs/${flow?.outputs[0]?.assetId}`;
  expect(await hashOf(await fetch(asset, { headers: HEADERS }))).toEqual({ bytes: FILE_BYTES, sha256 });

  const { peakKiB } = await ask(child);
  expect(peakKiB - idle.peakKiB).toBeLessThan(PEAK_GROWTH_KIB_MAX);
});

it('generates large assets, with the same bytes every time, in either form', async () => {
  const { service, create, download } = await standIn();
  const bytes = 2_000_001;
  const id = await create(echo('x', { bytes }));
  const raw = await hashOf(await download(id));
  expect(raw.bytes).toBe(bytes);
  expect(await hashOf(await download(id))).toEqual(raw);

  service.variation.assetForm = 'json';
  const { data } = (await (await download(id)).json()) as { data: string };
  const decoded = Buffer.from(data.slice(data.indexOf(',') + 1), 'base64');
  expect(decoded.length).toBe(bytes);
  expect(createHash('sha256').update(decoded).digest('hex')).toBe(raw.sha256);
  const blocks = new Set(
    Array.from({ length: 30 }, (_, i) => decoded.subarray(i * 65_536, i * 65_536 + 65_536).toString('latin1')),
  );
  expect(blocks.size).toBe(30);
});

it('deletes large inputs from its folder when they are no longer needed', async () => {
  const dir = await temporaryFolder();
  const { service, request, call } = await standIn({ dir });
  const files = () => readdirSync(dir, { recursive: true }).length;
  const large = dataUri('image/png', Buffer.alloc(3_000_000));
  const statusOf = async (template: string, data: string) =>
    (await call('POST', '/flows', { template, inputs: [{ data }] })).status;

  expect(await statusOf('bytes_echo', 'a small one')).toBe(201);
  expect(files()).toBe(0);
  expect(await statusOf('nothing', large)).toBe(422);
  expect(await statusOf('bytes_echo', `${large}!`)).toBe(422);
  // The folder itself.
  expect(files()).toBe(1);

  const controller = new AbortController();
  const cut = request('POST', '/flows', {
    duplex: 'half',
    signal: controller.signal,
    body: ReadableStream.from(
      (async function* () {
        yield Buffer.from(`{"inputs":[{"data":"${large}`);
        await expect.poll(files).toBe(2);
        controller.abort(new Error('Enough.'));
      })(),
    ),
  } as RequestInit);
  await expect(cut).rejects.toThrow('Enough.');
  await expect.poll(files).toBe(1);

  expect(await statusOf('bytes_echo', large)).toBe(201);
  expect(files()).toBe(2);
  service.close();
  expect(files()).toBe(0);
});
