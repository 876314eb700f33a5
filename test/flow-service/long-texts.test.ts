import { describe, expect, it } from 'vitest';
import { CUT, LongTexts, TEXT_BYTES_MAX } from '../../functions/flow-service/long-texts.ts';
import { streamed } from './chunks.ts';
import { clientOf, never, PUBLIC_ORIGIN, requestOf, sourceOf } from './scripted.ts';

/** What comes out of a text of JSON that arrives in chunks of this size. */
function cutIn(json: string, bytes: number): string {
  const texts = new LongTexts();
  const all = Buffer.from(json);
  const kept: Buffer[] = [];
  for (let from = 0; from < all.byteLength; from += bytes) {
    kept.push(Buffer.from(texts.cut(all.subarray(from, from + bytes))));
  }
  return Buffer.concat(kept).toString();
}

const SIZES = [1, 2, 3, 7, 1_000, 65_536, 10_000_000];

describe('an answer with long texts', () => {
  it.each(SIZES)('keeps all else as it is, in chunks of %i bytes', (bytes) => {
    const json = JSON.stringify({
      a: ['x'.repeat(200_000), { 'b"\\': '\\"\n\u0001é', c: 'short' }],
      d: -1.5e3,
      e: null,
    });
    const value = JSON.parse(cutIn(json, bytes));
    expect(value).toEqual({
      a: [`${'x'.repeat(TEXT_BYTES_MAX)}${CUT}200000${CUT}`, { 'b"\\': '\\"\n\u0001é', c: 'short' }],
      d: -1500,
      e: null,
    });
  });

  it.each(SIZES)('is the same if its texts are as long as they may be, in chunks of %i bytes', (bytes) => {
    const json = JSON.stringify(['y'.repeat(TEXT_BYTES_MAX), '', 'z']);
    expect(cutIn(json, bytes)).toBe(json);
  });

  it.each([
    ['escapes', '\\n'],
    ['escapes of six bytes', '\\u00e9'],
    ['quotes', '\\"'],
    ['backslashes', '\\\\'],
    ['characters of four bytes', '😀'],
    ['characters of three bytes', '€'],
  ])('is cut between two characters: %s', (_, unit) => {
    const character = JSON.parse(`"${unit}"`);
    for (const start of ['', 'x', 'xx', 'xxx', 'xxxx', 'xxxxx']) {
      const json = `["${start}${unit.repeat(TEXT_BYTES_MAX)}","after"]`;
      for (const bytes of [1_021, 10_000_000]) {
        const [text, after] = JSON.parse(cutIn(json, bytes));
        expect(after).toBe('after');
        const [kept = '', length] = text.slice(start.length).split(CUT);
        expect(kept.length).toBeGreaterThan(TEXT_BYTES_MAX / 7);
        expect(kept.replaceAll(character, '')).toBe('');
        expect(Number(length)).toBe(Buffer.byteLength(start + unit.repeat(TEXT_BYTES_MAX)));
        expect(text.endsWith(CUT)).toBe(true);
      }
    }
  });
});

const created = (body: string) => {
  const client = clientOf(new URL(PUBLIC_ORIGIN), {
    transport: async ({ body: sent }) => {
      if (sent !== undefined) for await (const _ of sent.chunks);
      return { status: 200, headers: {}, body: streamed([Buffer.from(body)]), destroy() {} };
    },
  });
  return client.create(requestOf(sourceOf('x')), never);
};

it('the answer to a creation may echo a file that is larger than any answer may be', async () => {
  const body = JSON.stringify({ inputs: [{ data: 'A'.repeat(20_000_000) }], flow_id: 'f1' });
  expect(await created(body)).toEqual({ flowId: 'f1' });
});

describe('an id that is a JSON number', () => {
  it.each(['653247040368672771', '9007199254740993', '123456789012345678901234567890', '7', '-9007199254740993'])(
    'is read as the digits that stand there: %s',
    async (id) => {
      expect(await created(`{"flow_id": ${id}}`)).toEqual({ flowId: id });
      expect(await created(`{"created_at":1,"id":${id}}`)).toEqual({ flowId: id });
    },
  );

  it.each(['1.5', '1e300', '9007199254740993.5', '65324704036867277e1'])('is none: %s', async (id) => {
    await expect(created(`{"flow_id":${id}}`)).rejects.toMatchObject({ name: 'InDoubtError', isAccepted: true });
  });
});
