import fc from 'fast-check';
import { describe, expect } from 'vitest';
import { assetOf } from '../../functions/flow-service/asset-answer.ts';
import {
  AssetTooLargeError,
  DamagedAssetError,
  FlowServiceError,
  NotAnAssetError,
  UnavailableError,
} from '../../functions/flow-service/errors.ts';
import type { Transport } from '../../functions/flow-service/transport.ts';
import { collect, pieces, streamed } from '../flow-service/chunks.ts';
import { clientOf, HastyClock, requestOf, sourceOf, TAG, TOKEN } from '../flow-service/scripted.ts';
import { fuzz, jsonWith, mutated } from './fuzz.ts';

const cuts = fc.array(fc.nat(2_000), { maxLength: 6 });

/** The asset that is read from a response, or the error. */
async function decoded(
  answer: Uint8Array,
  at: readonly number[],
): Promise<{ mediaType: string; bytes: Buffer } | FlowServiceError> {
  const facts = { data: '/data', mediaType: 'x/answer', names: [], isDelimited: true, assetBytesMax: 1_000 };
  try {
    const { mediaType, chunks } = await assetOf(streamed(pieces(answer, at)), facts);
    return { mediaType, bytes: await collect(chunks) };
  } catch (error) {
    const isExpected = [DamagedAssetError, AssetTooLargeError, NotAnAssetError].some((kind) => error instanceof kind);
    if (isExpected) return error as FlowServiceError;
    throw error;
  }
}

describe('the reader of assets', () => {
  const envelope = fc
    .tuple(
      fc.uint8Array({ maxLength: 60 }),
      fc.constantFrom(
        '{"data":"',
        ' {\n"a":{"data":"data:,no"},"data" : "',
        '{"a":"\\"","d\\u0061ta":"',
        '[{"data":"',
        '"data:',
      ),
      fc.constantFrom(
        'data:image/png;base64,',
        'data:,',
        'data:;base64\\u002c',
        'DATA:text/plain;charset=utf-8;BASE64,',
        'data:',
      ),
      fc.constantFrom('"}', '","a":[1]} \n', '","data":"x"}', '"', '"}}'),
      fc.constantFrom('', '\\n', '\\/', '\\u0041', '%41', '=', '==', '=\\n='),
    )
    .map(([bytes, head, uri, tail, odd]) => {
      const base64 = Buffer.from(bytes).toString('base64');
      return head + uri + base64.slice(0, 12) + odd + base64.slice(12) + tail;
    });

  fuzz(
    'decodes what any other reader of the JSON would decode, or fails with a known error',
    fc.tuple(fc.oneof(mutated(envelope), fc.string({ unit: 'binary' })), cuts, fc.constantFrom('utf8', 'latin1')),
    async ([text, at, encoding]) => {
      const answer = Buffer.from(text, encoding as BufferEncoding);
      const outcome = await decoded(answer, at);
      if (outcome instanceof FlowServiceError) return;
      if (outcome.mediaType === 'x/answer') {
        expect(outcome.bytes.equals(answer)).toBe(true);
        return;
      }
      const { data } = JSON.parse(answer.toString('latin1').replace(/^\xef\xbb\xbf/, ''));
      const comma = data.indexOf(',');
      const payload = data.slice(comma + 1);
      const expected = /;\s*base64\s*$/i.test(data.slice(0, comma))
        ? Buffer.from(payload, 'base64')
        : Buffer.from(
            payload.replace(/%(..)/g, (_: string, hex: string) => String.fromCharCode(Number.parseInt(hex, 16))),
            'latin1',
          );
      expect(outcome.bytes.equals(expected)).toBe(true);
    },
  );
});

describe('the flow client', () => {
  const headers = fc.record(
    {
      'content-type': fc.oneof(fc.constantFrom('application/json', 'text/html', 'image/png', ''), fc.string()),
      'content-length': fc.constantFrom('0', '5', '999999'),
      'content-encoding': fc.constantFrom('gzip', 'identity', ''),
      'retry-after': fc.oneof(fc.constantFrom('5', '-1', 'Fri, 31 Dec 2100 00:00:00 GMT', 'soon'), fc.string()),
      location: fc.oneof(fc.webUrl(), fc.constantFrom('/', 'http://127.0.0.1/', 'https://[::1]/', '//'), fc.string()),
      link: fc.oneof(
        fc.constantFrom('<?page=2>; rel="next"', '<>; rel=next', '<https://x.example/>; rel="next"'),
        fc.string(),
      ),
    },
    { requiredKeys: [] },
  );
  const NAMES = [
    ...['flow_id', 'id', 'asset_id', 'outputs', 'status', 'state', 'ready', 'failed', 'completed', 'error', 'message'],
    ...['detail', 'msg', 'loc', 'flows', 'items', 'next', 'next_cursor', 'has_more', 'total', 'created_at'],
    ...['additional', 'flowdrop', 'pipeline', 'upload', 'generation', 'data', 'toString', 'valueOf'],
  ];
  const bodies = fc.oneof(
    { weight: 4, arbitrary: jsonWith(...NAMES).map((value) => JSON.stringify(value)) },
    { weight: 2, arbitrary: mutated(jsonWith(...NAMES).map((value) => JSON.stringify(value))) },
    { weight: 1, arbitrary: fc.string({ unit: 'binary' }) },
  );
  const answer = fc.record({
    status: fc.oneof(
      { weight: 3, arbitrary: fc.constant(200) },
      { weight: 1, arbitrary: fc.integer({ min: 200, max: 599 }) },
    ),
    headers,
    body: bodies,
  });
  const operations = ['create', 'get', 'outputs', 'asset', 'abort', 'list', 'find'] as const;

  fuzz(
    'understands a response or fails with a known error, and never shows the token',
    fc.tuple(
      fc.constantFrom(...operations),
      fc.array(answer, { minLength: 1, maxLength: 3 }),
      fc.constantFrom('f', '..', '\ud800', 'a/b'),
    ),
    async ([operation, answers, id]) => {
      let asked = 0;
      // A service that refuses every request for now is asked until the invocation ends.
      const invocation = new AbortController();
      const { signal } = invocation;
      const transport: Transport = async ({ body }) => {
        if (body !== undefined) await collect(body.chunks);
        if (asked === 100) invocation.abort(new Error('The invocation ends.'));
        const answer = answers[asked++ % answers.length] ?? { status: 500, headers: {}, body: '' };
        return { ...answer, body: streamed([Buffer.from(answer.body)]), destroy: () => {} };
      };
      // On a clock that stands still, a held request would wait for ever.
      const options = { clock: new HastyClock(), assetBytesMax: 1_000, transport };
      const flows = clientOf(new URL('https://flows.example'), options);
      const act = {
        create: () => flows.create(requestOf(sourceOf('x')), signal),
        get: () => flows.get(id, signal),
        outputs: () => flows.outputs(id, signal),
        asset: async () => collect((await flows.asset(id, id, signal)).chunks),
        abort: () => flows.abort(id, signal),
        list: () => Array.fromAsync(flows.list(signal)),
        find: () => flows.find([{ tag: TAG, since: 0, mayBeAbsent: true }], signal),
      } satisfies Record<string, () => Promise<unknown>>;
      try {
        await act[operation]();
      } catch (error) {
        if (error === signal.reason) return;
        if (!(error instanceof FlowServiceError)) throw error;
        expect(error.message).not.toContain(TOKEN);
        expect(Array.from(error.message).length).toBeLessThan(700);
        if (operation === 'create' && error instanceof UnavailableError) expect(error.bodyStarted).toBe(true);
      }
      expect(asked).toBeLessThanOrEqual(101);
    },
  );
});
