import { describe, expect, it } from 'vitest';
import {
  ENVELOPE_BYTES_MAX,
  ENVELOPE_TEXT_BYTES_MAX,
  EnvelopeScanner,
  SCAN_BYTES_MAX,
} from '../../functions/flow-service/envelope-scanner.ts';
import { DamagedAssetError } from '../../functions/flow-service/errors.ts';
import { pieces } from './chunks.ts';

interface Options {
  readonly pointer?: string;
  readonly isEnvelope?: boolean;
  readonly isBare?: boolean;
  readonly cuts?: readonly number[];
}

/** What a scanner finds in an answer. `text` is all that it was given of an asset. */
function scanned(answer: string, { pointer = '/data', isEnvelope = false, isBare, cuts = [] }: Options = {}) {
  const scanner = new EnvelopeScanner(pointer, isEnvelope, isBare);
  let given = '';
  let found: ReturnType<EnvelopeScanner['push']>;
  for (const piece of pieces(Buffer.from(answer, 'latin1'), cuts)) {
    given += Buffer.from(piece).toString('latin1');
    found = scanner.push(Buffer.from(piece));
    if (found !== undefined) break;
  }
  const { is, ...more } = found ?? scanner.end();
  if ('received' in more) return { is, isWhole: Buffer.concat(more.received).toString('latin1') === given };
  return { is, ...more, rest: more.rest.toString('latin1') };
}

/** No cut, each single cut, and a cut behind each byte. */
const waysToCut = (answer: string): readonly (readonly number[])[] => {
  const places = Array.from(answer, (_, at) => at);
  return [[], ...places.map((place) => [place]), places];
};

const ASSET = { is: 'asset', isWhole: true };

describe('an answer that may be the asset', () => {
  it.each([
    ['is one JSON value without the data', '{"a":"data:,x"}'],
    ['has something else than a text in place of the data', '{"a":"data:,x","data":5}'],
    ['is no JSON where the data would begin', '{"data":1data:,x}'],
    ['has a text that is no data URI, and no comma behind it', '{"data":"x" "data:,y"}'],
    ['ends in a text that does not begin like a data URI', '{"data":"dog'],
    ['ends in such a text with an escape', '{"data":"\\u0078'],
    ['ends in such a text with a line break', '{"data":"da\nta'],
    ['has a data URI that is no text of JSON', '{"data":"data:\n,x"}'],
  ])('is the asset if it %s, wherever it is cut', (_, answer) => {
    for (const cuts of waysToCut(answer)) expect(scanned(answer, { cuts })).toEqual(ASSET);
  });

  it('is the asset if its data begins too late, also at the beginning of a piece', () => {
    const answer = `{"pad":"${'x'.repeat(SCAN_BYTES_MAX)}`.slice(0, SCAN_BYTES_MAX);
    for (const behind of ['data:a/b,x"}', '","data":"data:a/b,x"}']) {
      expect(scanned(answer + behind, { cuts: [SCAN_BYTES_MAX] })).toEqual(ASSET);
    }
  });

  it.each([
    ['a value between a name and its colon', '{"data" "y":"data:a/b,x"}', 'a/b'],
    ['quotes in its media type', '{"data":"data:a/b;c=\\"d\\",x"}', 'a/b;c="d"'],
    ['a comma as the last of 4096 bytes', `{"data":"data:a/${'b'.repeat(4_088)},x"}`, `a/${'b'.repeat(4_088)}`],
  ])('is an envelope with %s', (_, answer, mediaType) => {
    for (const cuts of waysToCut(answer.slice(0, 100))) {
      const head = answer.slice(0, answer.indexOf('data:'));
      expect(scanned(answer, { cuts })).toMatchObject({ is: 'envelope', mediaType, isBase64: false, head });
    }
  });

  it('is damaged if it ends within a data URI, also behind an escape that JSON does not know', () => {
    for (const answer of ['{"data":"data:a/b', '{"data":"data:\\u0g,x']) {
      for (const cuts of waysToCut(answer)) {
        expect(() => scanned(answer, { cuts })).toThrow(new DamagedAssetError('The answer ends within its data'));
      }
    }
  });

  it('is damaged as soon as 4096 bytes of a data URI have no comma', () => {
    const opening = '{"data":"data:';
    const scanner = new EnvelopeScanner('/data', false);
    expect(scanner.push(Buffer.from(opening + 'x'.repeat(4_090)))).toBeUndefined();
    const error = new DamagedAssetError('The data URI has no comma within 4096 bytes');
    expect(() => scanner.push(Buffer.from('x'))).toThrow(error);
  });
});

describe('the data in a list', () => {
  it.each([
    ['[{},"data:a/b,x"]', '/1'],
    ['{"output":[{},"data:a/b,x"]}', '/output/1'],
    ['{"output":[{"of":[{}]},"data:a/b,x"]}', '/output/1'],
    ['{"output":[[],{"of":{}},"data:a/b,x"]}', '/output/2'],
  ])('is found behind empty lists and objects: %s', (answer, pointer) => {
    for (const cuts of waysToCut(answer)) {
      expect(scanned(answer, { pointer, cuts })).toMatchObject({ is: 'envelope', mediaType: 'a/b' });
    }
  });
});

describe('an answer that must be an envelope', () => {
  const LATE = `{"inputs":["${'x'.repeat(ENVELOPE_BYTES_MAX)}"],"data":"data:a/b;base64,QUI="}`;

  it('may have its data behind a text of any length, and only the beginning of that text is kept', () => {
    for (const cuts of [[], [SCAN_BYTES_MAX], [ENVELOPE_BYTES_MAX, ENVELOPE_BYTES_MAX + 1]]) {
      const found = scanned(LATE, { isEnvelope: true, cuts });
      expect(found).toMatchObject({ is: 'envelope', mediaType: 'a/b', isBase64: true, rest: 'QUI="}' });
      const head = 'head' in found ? found.head : '';
      expect(JSON.parse(`${head}"}`)).toEqual({ inputs: [expect.any(String)], data: '' });
      expect(head.length).toBeLessThan(ENVELOPE_TEXT_BYTES_MAX + 100);
    }
  });

  it('is damaged if it has no data', () => {
    const error = new DamagedAssetError('The answer has no data at /data any more');
    for (const answer of ['glTF', '{}', '{"a":"data:,x"}', '{"data":null}', '{"data":"dog"}', '{"a":', '']) {
      for (const cuts of waysToCut(answer)) {
        expect(() => scanned(answer, { isEnvelope: true, cuts })).toThrow(error);
      }
    }
  });

  it('is damaged if more than 1 MiB stands before its data, besides long texts', () => {
    const answer = (spaces: number): string => `{${' '.repeat(spaces)}"data":"data:,x"}`;
    const most = ENVELOPE_BYTES_MAX - '{"data":"'.length;
    expect(scanned(answer(most), { isEnvelope: true })).toMatchObject({ is: 'envelope' });
    const error = new DamagedAssetError('More than 1048576 bytes precede the data');
    expect(() => scanned(answer(most + 1), { isEnvelope: true })).toThrow(error);
    expect(() => scanned(`{${' '.repeat(ENVELOPE_BYTES_MAX)}`, { isEnvelope: true })).toThrow(error);
  });
});

describe('an answer that may have bare base64', () => {
  const BASE64 = `${'\\/9j\\/4AA'.repeat(10)}=`;

  it.each([
    ['', BASE64],
    ['data:image/png;base64,', BASE64],
    ['data:,', 'x'.repeat(200)],
  ])('is an envelope around %s and its data, wherever it is cut', (uri, data) => {
    const answer = `{"a":"x","data":"${uri}${data}","b":1}`;
    for (const cuts of waysToCut(answer)) {
      const found = scanned(answer, { cuts, isBare: true });
      expect(found).toMatchObject({ is: 'envelope', head: '{"a":"x","data":"', isBase64: uri !== 'data:,' });
      expect(`${data}","b":1}`.startsWith('rest' in found ? found.rest : '-')).toBe(true);
    }
  });

  it.each(['PROCESSING', 'https://cdn.example/a', `no ${'x'.repeat(200)}`])(
    'is the asset if it has another text there: %s',
    (text) => {
      const answer = JSON.stringify({ data: text });
      for (const cuts of waysToCut(answer)) expect(scanned(answer, { cuts, isBare: true })).toEqual(ASSET);
    },
  );

  it('is the asset if that is not declared', () => {
    expect(scanned(`{"data":"${BASE64}"}`)).toEqual(ASSET);
  });
});
