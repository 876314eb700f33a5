import { readFileSync } from 'node:fs';
import { GetObjectCommand, ListObjectsV2Command } from '@aws-sdk/client-s3';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import type { ChainReport, Receipt } from '../../functions/publish/report-schemas.ts';
import { RESULTS_BUCKET } from '../../local/pipeline.ts';
import { status } from '../../operations/status.ts';
import { Operated, signal } from '../operations/support.ts';
import { PATIENCE } from '../support/patience.ts';
import { closedValidator, publishedValidator } from './validators.ts';

const ECHO = { input: 'file', template: 'bytes_echo' } as const;

/** What the functions of a local run wrote, by its key in the results bucket. */
const texts = new Map<string, string>();

let operated: Operated;
beforeAll(async () => {
  const routes = [
    { ...ECHO, name: 'copied', parameters: { copies: 2 }, suffixes: ['.png'] },
    { ...ECHO, name: 'checked', after: 'copied' },
    { ...ECHO, name: 'packed', after: 'checked', inputs: 'all' },
    { ...ECHO, name: 'alone', suffixes: ['.bin'], price: { amount: 0.4, currency: 'EUR' } },
  ] as const;
  operated = await Operated.start({ routes });
  const { s3 } = operated.pipeline;
  await operated.put('good.png', 'succeeded');
  await chainEnds('good.png', 'succeeded');
  await operated.put('alone.bin', 'succeeded');
  await operated.putRefused('bad.png', 'bad.bin');
  await chainEnds('bad.png', 'failed');
  const { Contents = [] } = await s3.send(new ListObjectsV2Command({ Bucket: RESULTS_BUCKET }));
  for (const { Key = '' } of Contents.filter(({ Key = '' }) => /\/(receipt|chain)\.json$/.test(Key))) {
    const { Body } = await s3.send(new GetObjectCommand({ Bucket: RESULTS_BUCKET, Key }));
    texts.set(Key, (await Body?.transformToString()) ?? '');
  }
});
afterAll(() => operated[Symbol.asyncDispose]());

const chainEnds = (key: string, state: string): Promise<void> =>
  vi.waitFor(async () => {
    const found = await status(key, operated.deployment, signal);
    const chain = `${key}/chain.json`;
    const { Contents = [] } = await operated.pipeline.s3.send(
      new ListObjectsV2Command({ Bucket: RESULTS_BUCKET, Prefix: chain }),
    );
    expect([found.kind === 'upload' && found.chain?.state, Contents.length]).toEqual([state, 1]);
  }, PATIENCE);

const named = (name: string): readonly unknown[] =>
  Array.from(texts).flatMap(([key, text]) => (key.endsWith(`/${name}.json`) ? [JSON.parse(text)] : []));

it('each receipt and each chain.json is one line', () => {
  for (const [key, text] of texts) expect(text, key).toMatch(/^\{.*\}\n$/);
});

describe.each(['receipt', 'chain'] as const)('docs/schemas/%s.schema.json', (name) => {
  it('accepts what the functions of a local run write, and describes every member of it', () => {
    expect(named(name)).toHaveLength({ receipt: 7, chain: 2 }[name]);
    for (const each of named(name))
      expect([publishedValidator(name)(each), closedValidator(name)(each)]).toEqual([[], []]);
  });

  it('accepts members of later versions', () => {
    for (const each of named(name)) expect(publishedValidator(name)({ ...Object(each), later: 1 })).toEqual([]);
    for (const each of named(name)) expect(closedValidator(name)({ ...Object(each), later: 1 })).toHaveLength(1);
  });
});

it('the local run wrote receipts of every form', () => {
  const receipts = named('receipt') as readonly Receipt[];
  expect(receipts.filter(({ children }) => children?.length === 2)).toHaveLength(1);
  expect(receipts.filter(({ parent, inputs }) => parent?.asset !== undefined && inputs?.length === 1)).toHaveLength(2);
  expect(receipts.filter(({ parent, inputs }) => parent?.asset === undefined && inputs?.length === 2)).toHaveLength(1);
  expect(receipts.filter(({ failure }) => failure !== undefined)).toHaveLength(2);
  expect((named('chain') as readonly ChainReport[]).map((each) => each.status).toSorted()).toEqual([
    'failed',
    'succeeded',
  ]);
});

describe('docs/schemas/receipt.schema.json', () => {
  const issuesOf = closedValidator('receipt');
  const page = readFileSync(new URL('../../docs/results.md', import.meta.url), 'utf8');
  const shown = JSON.parse(/```json\n([\s\S]*?)\n```/.exec(page)?.[1] ?? '');

  it('accepts the receipt of docs/results.md', () => {
    expect(issuesOf(shown)).toEqual([]);
  });
});
