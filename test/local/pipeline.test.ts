import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { HeadObjectCommand, PutObjectCommand } from '@aws-sdk/client-s3';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { type ClaimedEntry, ended, type FailedEntry, firstClaim, told } from '../../functions/ledger/entry.ts';
import { entryKey } from '../../functions/ledger/keys.ts';
import { parseEnv } from '../../functions/settings/environment.ts';
import { uploadId } from '../../functions/uploads/upload.ts';
import type { FunctionName } from '../../infra/bundle/bundle.ts';
import {
  INBOX_BUCKET,
  LEDGER_BUCKET,
  type Pipeline,
  type PipelineOptions,
  startPipeline,
} from '../../local/pipeline.ts';
import { folderWith } from '../support/folder.ts';
import { PATIENCE } from '../support/patience.ts';

/** A function that only prints its event, so that the test sees the pipeline alone. */
const PRINTING = `export const handler = async (event) => { console.log(JSON.stringify({ event, env: process.env })); }`;
/** A function whose invocations do not end. */
const ENDLESS = `() => { console.log('{}'); return new Promise(() => setInterval(() => {}, 1000)); }`;

describe('the pipeline', () => {
  let dir: string;
  let pipeline: Pipeline | undefined;
  let printed: { name: FunctionName; event: { Records?: { body: string }[] }; env: Record<string, string> }[];
  beforeEach(() => {
    dir = folderWith({ 'create-flow/index.mjs': PRINTING, 'collect-outputs/index.mjs': PRINTING });
    printed = [];
  });
  afterEach(async () => {
    await pipeline?.close();
    pipeline = undefined;
  });

  const bundle = (name: string, handler: string) =>
    writeFile(join(dir, name, 'index.mjs'), `export const handler = ${handler};`);

  async function start(options: Partial<PipelineOptions> = {}): Promise<Pipeline> {
    pipeline = await startPipeline({
      bundleDir: dir,
      routes: [{ name: 'all', input: 'file', template: 'bytes_echo' }],
      tickIntervalMs: 3_600_000,
      onLog: (name, line) => {
        const json = line.split('\t').at(-1) ?? '';
        printed.push({ name, ...JSON.parse(json) });
      },
      ...options,
    });
    return pipeline;
  }
  const put = (Bucket: string, Key: string) =>
    pipeline?.s3.send(new PutObjectCommand({ Bucket, Key, Body: 'content', ContentLength: 7 }));
  const of = (name: FunctionName) => printed.filter((each) => each.name === name);
  const objects = () =>
    of('create-flow').flatMap(({ event }) =>
      (event.Records ?? []).flatMap(({ body }) => JSON.parse(body).Records.map((record: { s3: object }) => record.s3)),
    );

  it('passes only the notifications of uploads to create-flow', async () => {
    await start();
    await put(LEDGER_BUCKET, 'uploads/abc.json');
    await put(INBOX_BUCKET, 'a b/ü+%.png');
    await vi.waitFor(() => expect(objects()).toHaveLength(1), PATIENCE);
    expect(objects()).toMatchObject([
      {
        bucket: { name: INBOX_BUCKET },
        object: { key: 'a+b/%C3%BC%2B%25.png', size: 7, versionId: expect.any(String) },
      },
    ]);
    await vi.waitFor(() => expect(pipeline?.queue.counts()).toEqual({ visible: 0, inFlight: 0, delayed: 0 }), PATIENCE);
  });

  it('gives both functions a valid environment', async () => {
    await start({ name: 'local-test', service: { url: 'https://flows.example.com/v1', token: 'fake-token' } });
    await put(INBOX_BUCKET, 'a.png');
    await vi.waitFor(() => expect(new Set(printed.map(({ name }) => name)).size).toBe(2), PATIENCE);
    for (const { env } of printed) {
      expect(parseEnv(env)).toMatchObject({ pipeline: 'local-test', inboxBucket: 'inbox', pollIntervalSeconds: 1 });
      expect(JSON.stringify(env)).not.toContain('fake-token');
    }
  });

  it('runs collect-outputs at the start, and at once when a flow is created', async () => {
    await start();
    await vi.waitFor(() => expect(of('collect-outputs')).toHaveLength(1), PATIENCE);
    expect(of('collect-outputs')[0]?.event).toEqual({});
    await put(LEDGER_BUCKET, 'uploads/abc.json');
    await put(LEDGER_BUCKET, 'running/2026-01-01T00:00:00.000Z/abc/flow');
    await vi.waitFor(() => expect(of('collect-outputs')).toHaveLength(2), PATIENCE);
  });

  it('with fixedTicks, starts ticks at a fixed rate, even while a tick runs, and none for a new flow', async () => {
    await bundle('collect-outputs', ENDLESS);
    const startedAt = Date.now();
    await start({ fixedTicks: { firstAfterMs: 300, intervalMs: 100 } });
    await put(LEDGER_BUCKET, 'running/2026-01-01T00:00:00.000Z/abc/flow');
    // On a busy machine, both ticks may have begun before the first look.
    await vi.waitFor(() => expect(of('collect-outputs').length).toBeGreaterThanOrEqual(1), PATIENCE);
    expect(Date.now() - startedAt).toBeGreaterThanOrEqual(300);
    await vi.waitFor(() => expect(of('collect-outputs')).toHaveLength(2), PATIENCE);
  });

  it('on resume, sends one notification for the current version of each object in the state directory', async () => {
    const stateDir = join(dir, 'state');
    await start({ stateDir });
    await put(INBOX_BUCKET, 'a b.png');
    await put(INBOX_BUCKET, 'a b.png');
    await vi.waitFor(() => expect(objects()).toHaveLength(2), PATIENCE);
    const head = await pipeline?.s3.send(new HeadObjectCommand({ Bucket: INBOX_BUCKET, Key: 'a b.png' }));
    await pipeline?.close();
    printed = [];

    const again = await start({ stateDir });
    await again.resume();
    await vi.waitFor(() => expect(objects()).toHaveLength(1), PATIENCE);
    const { key, versionId, eTag } = objects()[0].object;
    expect({ key: decodeURIComponent(key), versionId, eTag }).toEqual({
      key: 'a b.png',
      versionId: head?.VersionId,
      eTag: head?.ETag?.replaceAll('"', ''),
    });
  });

  it('on resume, notifies of no object that has ended, unless its end may not have been told', async () => {
    const stateDir = join(dir, 'state');
    const first = await start({ stateDir });
    const claimOf = async (key: string): Promise<ClaimedEntry> => {
      await put(INBOX_BUCKET, key);
      const head = await first.s3.send(new HeadObjectCommand({ Bucket: INBOX_BUCKET, Key: key }));
      const { VersionId: versionId, ETag: etag = '', LastModified: lastModified = new Date() } = head;
      const facts = { bucket: INBOX_BUCKET, key, versionId, etag, lastModified: lastModified.getTime() };
      const upload = { ...facts, id: uploadId(facts), bytes: 7, mediaType: 'text/plain' };
      const terms = { claimedAt: Date.now(), deadline: Date.now(), pipeline: 'local', keyScope: '' };
      return firstClaim(upload, { name: 'all', input: 'file', template: 'bytes_echo' }, terms);
    };
    const failed = { failure: { code: 'input-empty', message: 'It is empty.' } } as const;
    const entries = [
      told(ended(await claimOf('told.txt'), failed, Date.now()) as FailedEntry),
      ended(await claimOf('untold.txt'), failed, Date.now()),
      await claimOf('claimed.txt'),
    ];
    for (const entry of entries) {
      const where = { Bucket: LEDGER_BUCKET, Key: entryKey(entry.upload.id) };
      await first.s3.send(new PutObjectCommand({ ...where, Body: JSON.stringify(entry) }));
    }
    await first.close();
    printed = [];

    const again = await start({ stateDir });
    expect((await again.resume()).map(({ upload }) => upload.key)).toEqual(['claimed.txt']);
    const keys = () => objects().map(({ object }: { object: { key: string } }) => object.key);
    await vi.waitFor(() => expect(keys().sort()).toEqual(['claimed.txt', 'untold.txt']), PATIENCE);
  });

  it('reports failed invocations, but not those that its own close ends', async () => {
    await bundle('create-flow', 'async () => { throw new Error("no"); }');
    await bundle('collect-outputs', ENDLESS);
    const faults: unknown[] = [];
    await start({ onLog: () => {}, onFault: (name, error) => faults.push([name, (error as Error).message]) });
    await put(INBOX_BUCKET, 'a.png');
    await vi.waitFor(() => expect(faults).toEqual([['create-flow', 'no']]), PATIENCE);
    await pipeline?.close();
    expect(faults).toHaveLength(1);
  });
});
