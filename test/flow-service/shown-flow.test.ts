import { describe, expect, it } from 'vitest';
import { SERVICES } from '../../functions/flow-service/services.ts';
import { shownJson } from '../../functions/flow-service/shown-json.ts';
import { streamed } from './chunks.ts';
import { clientOf, never, PUBLIC_ORIGIN, TOKEN } from './scripted.ts';

/** What a person is shown of the answer about a flow. */
function shown(body: string, { service = 'flows', status = 200 } = {}) {
  const asked: string[] = [];
  const client = clientOf(new URL(PUBLIC_ORIGIN), {
    ...(SERVICES[service] && { service: SERVICES[service] }),
    transport: async ({ method, url }) => {
      asked.push(`${method} ${url.pathname}`);
      const headers = { 'content-type': 'application/json' };
      return { status, headers, body: streamed([Buffer.from(body)]), destroy() {} };
    },
  });
  return { asked, flow: client.show('f1', never, { template: 'maker/model' }) };
}

const answerOf = async (value: unknown): Promise<string> => (await shown(JSON.stringify(value)).flow).answer;

describe('the answer about a flow, for a person', () => {
  it("has the service's own word and progress, and costs one request", async () => {
    const { asked, flow } = shown('{"state":"rendering","progress":42}');
    expect(await flow).toEqual({
      ...{ word: 'rendering', isDeclared: false, progress: 42 },
      answer: '{\n  "state": "rendering",\n  "progress": 42\n}',
    });
    expect(asked).toEqual(['GET /flows/f1']);
  });

  it.each([
    ['meshy', '{"status":"IN_PROGRESS","progress":7}', 'IN_PROGRESS', 7],
    ['tripo', '{"code":0,"data":{"status":"running","progress":7}}', 'running', 7],
    ['fal', '{"status":"IN_QUEUE","queue_position":3}', 'IN_QUEUE', undefined],
  ])('is read as the description of %s says', async (service, body, word, progress) => {
    expect(await shown(body, { service }).flow).toMatchObject({ word, progress, isDeclared: true });
  });

  it('is shown without a word, too', async () => {
    expect(await shown('{"hello":1}').flow).toMatchObject({ word: undefined, isDeclared: false });
  });

  it.each([
    [
      'a data URI',
      `data:image/png;base64,${'A'.repeat(1_000)}`,
      /^data:image\/png;base64,A{178}… \(1,022 bytes in all\)$/,
    ],
    [
      'a data URI beyond any answer',
      `data:x/y;base64,${'A'.repeat(12_300_000)}`,
      /A{10}… \(12,300,016 bytes in all\)$/,
    ],
    ['a text', 'é'.repeat(1_000), /^é{300}… \(2,000 bytes in all\)$/],
    ['a short text', 'data: as it is', /^data: as it is$/],
  ])('is cut in %s', async (_, text, expected) => {
    expect(JSON.parse(await answerOf({ text })).text).toMatch(expected);
  });

  it('is cut as a whole', async () => {
    const answer = await answerOf({ state: 'running', logs: Array.from({ length: 900 }, () => 'y'.repeat(250)) });
    expect(answer.length).toBeLessThan(16_100);
    expect(answer.endsWith('\n…')).toBe(true);
  });

  it('has no token, however it is quoted', async () => {
    const answer = await answerOf({ a: `Bearer ${TOKEN}`, [TOKEN]: 1, b: encodeURIComponent(TOKEN) });
    expect(answer).toContain('Bearer [token]');
    expect(answer).not.toMatch(/obviously|fake/);
  });

  it.each([
    'https://a.test/x.glb?X-Amz-Signature=5ec7e7&x=1',
    'https://a.test/x.glb?5ec7e7',
    'https://a.test/x.glb#access_token=5ec7e7',
    'https://user:5ec7e7@a.test/x.glb',
    's3://a/x.glb?versionId=5ec7e7',
    '/files/x.glb?signature=5ec7e7',
    'it is at https://a.test/x.glb?sig=5ec7e7',
    JSON.stringify({ url: 'https://a.test/x.glb?a=1&sig=5ec7e7' }),
    JSON.stringify(JSON.stringify({ url: 'https://a.test/x.glb?a=1&sig=5ec7e7' })).replaceAll('&', '\\u0026'),
    JSON.stringify({ url: 'https://a.test/x.glb?sig=5ec7e7' }).replaceAll('/', '\\/'),
  ])('has no signature of an address: %s', async (text) => {
    for (const answer of [await answerOf({ text }), await answerOf({ [text]: 1 })]) {
      expect(answer).toContain('x.glb');
      expect(answer).toContain('…');
      expect(answer).not.toContain('5ec7e7');
    }
  });

  it('keeps what is no secret', () => {
    const value = { a: 'https://a.test/b/c.glb', b: 'Is it done? Yes: 1=1 #3', c: [1, null, true], d: '@b' };
    expect(JSON.parse(shownJson(value))).toEqual(value);
  });

  it.each([
    ['{"detail":"no such flow"}', 404, 'no such flow'],
    ['not json', 200, 'not json'],
    ['[]', 200, 'no object'],
  ])('is an error that quotes it: %s with %i', async (body, status, words) => {
    await expect(shown(body, { status }).flow).rejects.toThrow(words);
  });
});
