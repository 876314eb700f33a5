import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { extensionOf } from '../../functions/base/media-type.ts';
import { assetOf } from '../../functions/flow-service/asset-answer.ts';
import { SCAN_BYTES_MAX } from '../../functions/flow-service/envelope-scanner.ts';
import { AssetTooLargeError, DamagedAssetError, NotAnAssetError } from '../../functions/flow-service/errors.ts';
import { collect, pieces, streamed } from './chunks.ts';

const KIB = 1024;
const MIB = 1024 * KIB;

type Facts = Parameters<typeof assetOf>[1];

const FACTS: Facts = {
  data: '/data',
  mediaType: 'x/answer',
  names: [],
  isDelimited: true,
  assetBytesMax: 100 * MIB,
};

interface Options extends Partial<Facts> {
  readonly cuts?: readonly number[];
}

/** The media type and bytes of the asset in a response. Text stands for its bytes in Latin-1. */
async function read(
  answer: string | Uint8Array,
  { cuts = [], ...facts }: Options = {},
): Promise<{ mediaType: string; bytes: Buffer }> {
  const body = typeof answer === 'string' ? Buffer.from(answer, 'latin1') : answer;
  const asset = await assetOf(streamed(pieces(body, cuts)), { ...FACTS, ...facts });
  return { mediaType: asset.mediaType, bytes: await collect(asset.chunks) };
}

/** Accepts an asset of any media type. */
const any = (): boolean => true;

const decoded = async (answer: string | Uint8Array, options?: Options): Promise<string> =>
  (await read(answer, options)).bytes.toString('latin1');

const damaged = (answer: string | Uint8Array, options?: Options): Promise<void> =>
  expect(read(answer, options)).rejects.toThrow(DamagedAssetError);

/** Why a response cannot be read. Undefined if it can. */
async function failure(answer: string, options?: Options): Promise<string | undefined> {
  try {
    await read(answer, options);
    return undefined;
  } catch (error) {
    if (!(error instanceof DamagedAssetError)) throw error;
    return error.message;
  }
}

const everyByte = ({ length }: string | Uint8Array): number[] => Array.from({ length }, (_, at) => at);

/** Any JSON for the other members. None of them is called `data`. */
const members = fc.dictionary(
  fc.string({ unit: 'binary', maxLength: 8 }).filter((name) => name !== 'data' && name !== '__proto__'),
  fc.jsonValue({ maxDepth: 3 }),
  { maxKeys: 3 },
);

/** The spellings of a character in a JSON string, besides itself. */
const escapes: Readonly<Record<string, readonly string[]>> = { '/': ['\\/', '\\u002f', '\\u002F'] };
const spelled = (character: string, choice: number): string => {
  const code = character.charCodeAt(0).toString(16).padStart(4, '0');
  const ways = [character, ...(escapes[character] ?? []), `\\u${code}`];
  return choice < 60 ? character : (ways[choice % ways.length] ?? character);
};

const lineBreaks = ['', '', '', '\\n', '\\r\\n', ' '];

/** An envelope around some bytes, in any layout that JSON and base64 allow. */
const envelope = fc
  .record({
    bytes: fc.uint8Array({ minLength: 1, maxLength: 120 }),
    before: members,
    after: members,
    space: fc.constantFrom('', ' ', '\n  ', '\r\n\t'),
    isUrlSafe: fc.boolean(),
    isPadded: fc.boolean(),
    choices: fc.array(fc.nat(99), { minLength: 1, maxLength: 40 }),
    breaks: fc.array(fc.constantFrom(...lineBreaks), { minLength: 1, maxLength: 20 }),
    name: fc.constantFrom('"data"', '"d\\u0061ta"'),
    // Some cuts, or one behind each byte.
    cuts: fc.oneof(
      { weight: 9, arbitrary: fc.array(fc.nat(600), { maxLength: 30 }) },
      { weight: 1, arbitrary: fc.constant(Array.from({ length: 2_000 }, (_, at) => at)) },
    ),
  })
  .map(({ bytes, before, after, space, isUrlSafe, isPadded, choices, breaks, name, cuts }) => {
    const base64 = Buffer.from(bytes).toString(isUrlSafe ? 'base64url' : 'base64');
    const padded = isPadded && isUrlSafe ? base64.padEnd(Math.ceil(base64.length / 4) * 4, '=') : base64;
    const payload = isPadded ? padded : padded.replace(/=+$/, '');
    const uri = [...`data:image/png;base64,`].map((c, i) => spelled(c, choices[i % choices.length] ?? 0)).join('');
    const data = [...payload]
      .map(
        (c, i) => spelled(c, choices[(i * 7) % choices.length] ?? 0) + (i % 5 === 4 ? breaks[i % breaks.length] : ''),
      )
      .join('');
    const inside = (object: object): string => JSON.stringify(object, null, space.includes(' ') ? 2 : 0).slice(1, -1);
    const parts = [inside(before), `${name}${space}:${space}"${uri}${data}"`, inside(after)];
    const json = `${space}{${space}${parts.filter((part) => part.trim() !== '').join(`${space},`)}${space}}${space}`;
    return { bytes, cuts, answer: Buffer.from(json) };
  });

describe('an envelope around a data URI', () => {
  it('gives the bytes inside, in any layout and in pieces of any size', async () => {
    await fc.assert(
      fc.asyncProperty(envelope, async ({ bytes, answer, cuts }) => {
        JSON.parse(answer.toString()); // The generator must make JSON.
        const asset = await read(answer, { cuts, isDelimited: false });
        expect(asset).toEqual({ mediaType: 'image/png', bytes: Buffer.from(bytes) });
      }),
      { numRuns: 300 },
    );
  });

  it('is damaged if it is cut anywhere', async () => {
    await fc.assert(
      fc.asyncProperty(envelope, fc.nat(), async ({ answer, cuts }, at) => {
        const whole = answer.toString('latin1').trimEnd();
        await damaged(whole.slice(0, at % whole.length), { cuts, isDelimited: false });
      }),
      { numRuns: 300 },
    );
    const whole = '{"a":[1],"data":"data:image\\/png;base64,aGVsbG8\\u002fAA==","b":{"c":"}"}}';
    for (let length = 0; length < whole.length; length += 1) {
      await damaged(whole.slice(0, length), { isDelimited: false });
      if (length > 0) await damaged(whole.slice(0, length), { length: whole.length });
    }
  });

  it('never gives wrong bytes if one character is replaced by one that is not base64', async () => {
    const content = Buffer.from('All of it, ÿ?> too');
    const text = `{"data":"data:image/png;base64,${content.toString('base64')}","id":7}`;
    const start = text.indexOf(',') + 1;
    const end = text.indexOf('"', start);
    for (let at = start; at < end; at += 1) {
      for (let byte = 0; byte < 256; byte += 1) {
        const flipped = Buffer.from(text);
        flipped[at] = byte;
        // Other base64 in its place cannot be detected.
        if (/[A-Za-z0-9+/_-]/.test(String.fromCharCode(byte))) continue;
        const outcome = await decoded(flipped).catch((error: unknown) => error);
        if (outcome instanceof DamagedAssetError) continue;
        // Only padding may disappear: the rest is complete without it.
        expect([at, byte, outcome]).toEqual([at, byte, content.toString('latin1')]);
        expect(text[at]).toBe('=');
      }
    }
  });

  const long = Buffer.alloc(700_001, 'flowdrop, in more than one block; ');
  const escaped = (text: string, every: number) =>
    Array.from(text, (c, at) => (at % every === 0 ? `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}` : c)).join(
      '',
    );
  const bytes = (...values: number[]) => Buffer.from(values).toString('latin1');
  const opened: readonly (readonly [what: string, answer: string, mediaType: string, content: Buffer | string])[] = [
    ['nothing else', '{"data":"data:a/b;base64,QUI="}', 'a/b', 'AB'],
    ['a byte order mark before it', '\xef\xbb\xbf{"data":"data:a/b;base64,QUI="}', 'a/b', 'AB'],
    ['a byte order mark inside', '{"data":"data:a/b,x","m":"\xef\xbb\xbf"}', 'a/b', 'x'],
    ['texts around it that are no UTF-8', '{"by":"J\xe9","data":"data:a/b,x","\xff":"\xc3"}', 'a/b', 'x'],
    ['white space', '\t\r\n { "data" \n:\t"data:a/b,x" } \n', 'a/b', 'x'],
    ['members before', '{"a":1,"b":"data","c":{"data":"no"},"d":[",",{"data":2}],"data":"data:a/b,x"}', 'a/b', 'x'],
    ['escaped quotes before', '{"a":"\\"}\\\\","data":"data:a/b,x"}', 'a/b', 'x'],
    ['members behind', '{"data":"data:a/b,x","data2":1,"b":"\\u0022}"}', 'a/b', 'x'],
    ['1 MiB of white space behind', `{"data":"data:a/b,x"${' '.repeat(MIB - 2)}}`, 'a/b', 'x'],
    ['escapes in name and URI', '{"\\u0064ata":"\\u0064ata:a\\/b;base64\\u002CQUI="}', 'a/b', 'AB'],
    ['no media type', '{"data":"data:,x"}', 'text/plain;charset=US-ASCII', 'x'],
    ['no media type but a space', '{"data":"data: ,x"}', 'text/plain;charset=US-ASCII', 'x'],
    ['no media type but base64', '{"data":"data:;base64,QUI="}', 'text/plain;charset=US-ASCII', 'AB'],
    ['no media type but parameters', '{"data":"data:;charset=utf-8;base64,QUI="}', 'text/plain;charset=utf-8', 'AB'],
    ['no media type but spaces', '{"data":"data: ; charset=utf-8 ,x"}', 'text/plain;charset=utf-8', 'x'],
    ['parameters with spaces', '{"data":"data:a/b; c=d ;base64,QUI="}', 'a/b;c=d', 'AB'],
    ['an invalid media type', '{"data":"data:no media type;base64,QUI="}', 'application/octet-stream', 'AB'],
    ['a foreign charset', '{"data":"data:text/plain;charset=x-none,%E9"}', 'text/plain;charset=x-none', bytes(0xe9)],
    ['a long media type', `{"data":"data:a/${'b'.repeat(3_000)};base64,QUI="}`, 'application/octet-stream', 'AB'],
    ['a line break in the type', '{"data":"data:a/b\\r\\nX-Evil: b;base64,QUI="}', 'application/octet-stream', 'AB'],
    ['base64 in upper case', '{"data":"DATA:a/b ; BASE64 ,QUI="}', 'a/b', 'AB'],
    ['base64 as the media type', '{"data":"data:base64,QUI="}', 'application/octet-stream', 'QUI='],
    ['base64 before a parameter', '{"data":"data:a/b;base64;c=d,QUI="}', 'a/b;c=d', 'QUI='],
    [
      'percent signs',
      '{"data":"data:a/b,%00%41%7e%7E%ff\\u002530%25"}',
      'a/b',
      bytes(0, 0x41, 0x7e, 0x7e, 255, 48, 37),
    ],
    ['a plus sign without base64', '{"data":"data:a/b,a\\u0020b+c%20d"}', 'a/b', 'a b+c d'],
    ['backslashes and quotes', '{"data":"data:a/b,a\\\\b\\\\\\\\\\"\\\\"}', 'a/b', 'a\\b\\\\"\\'],
    ['spaces in base64', '{"data":"data:a/b;base64,Q  U I  ="}', 'a/b', 'AB'],
    ['white space in base64', '{"data":"data:a/b;base64,Q\\n\\n U\\t\\rI\\u0020="}', 'a/b', 'AB'],
    ['line breaks in the padding', '{"data":"data:a/b;base64,QQ=\\n=\\n"}', 'a/b', 'A'],
    ['numbers that only Python writes', '{"score":NaN,"data":"data:a/b,NaN","all":[-Infinity]}', 'a/b', 'NaN'],
    ['both alphabets of base64', '{"data":"data:a/b;base64,+-_/"}', 'a/b', bytes(0xfb, 0xef, 0xff)],
    ['percent signs in base64', '{"data":"data:a/b;base64,%2b%2D_\\u00252F"}', 'a/b', bytes(0xfb, 0xef, 0xff)],
    ['base64 as Python quotes it', '{"data":"data:a/b;base64,QUJD%0AREVGRw%3D%3D%0A"}', 'a/b', 'ABCDEFG'],
    ['several blocks', `{"data":"data:a/b;base64,${long.toString('base64')}"}`, 'a/b', long],
    ['several blocks, unpadded', `{"data":"data:a/b;base64,${long.toString('base64url')}"}`, 'a/b', long],
    ['several blocks of escapes', `{"data":"data:a/b;base64,${escaped(long.toString('base64'), 5)}"}`, 'a/b', long],
    [
      'several blocks with percent signs',
      `{"data":"data:a/b;base64,${long.toString('base64').replaceAll('Z', '%5A')}"}`,
      'a/b',
      long,
    ],
    [
      'several blocks of lines',
      `{"data":"data:a/b;base64,${long.toString('base64').replace(/.{76}/g, '$&\\r\\n')}"}`,
      'a/b',
      long,
    ],
    [
      'several blocks of percent signs',
      `{"data":"data:a/b,${'%66%6c\\u006fw'.repeat(30_000)}"}`,
      'a/b',
      'flow'.repeat(30_000),
    ],
  ];
  it.each(opened)('is opened with %s', async (_, answer, mediaType, content) => {
    const expected = Buffer.from(content as string, 'latin1');
    const start = everyByte(answer.slice(0, 300));
    const evenly = (step: number) => Array.from({ length: Math.floor(answer.length / step) }, (_, at) => at * step + 7);
    const ways = answer.length < 1_000 ? [[], start] : [[], start, evenly(1_001), evenly(65_536), evenly(65_537)];
    for (const cuts of ways) {
      const asset = await read(answer, { cuts, isDelimited: false });
      expect(asset.mediaType).toBe(mediaType);
      expect(asset.bytes.equals(expected)).toBe(true);
    }
  });

  it('is put together again if a space has moved the groups of its base64, wherever it is cut', async () => {
    const answer = '{"data":"data:a/b;base64,Q UIDQURFRkdISUpLTE1OT1BRUlNUVVZX"}';
    for (let cut = 20; cut < 40; cut += 1) {
      const { bytes } = await read(answer, { cuts: [cut] });
      expect(bytes.toString('hex')).toBe('414203414445464748494a4b4c4d4e4f5051525354555657');
    }
  });

  it('is opened if its data begins at the last place scanned, and stays as it is behind that', async () => {
    const answerAt = (place: number): string => {
      const start = '{"pad":"","data":"';
      return `${start.replace('""', `"${'x'.repeat(place - start.length)}"`)}data:;base64,QUJD"}`;
    };
    expect(await decoded(answerAt(SCAN_BYTES_MAX))).toBe('ABC');
    const beyond = answerAt(SCAN_BYTES_MAX + 1);
    expect(await decoded(beyond)).toBe(beyond);
  });
});

describe('a damaged response says why', () => {
  const NOT_JSON = 'The answer is not whole: the text around its data is not JSON';
  const TWICE = 'The answer has its data twice';
  const NOT_BASE64 = 'The data is not base64';
  const NOT_PERCENT = 'The data is not percent-encoded';
  const NOT_STRING = 'The data is not a JSON string';
  const NO_COMMA = 'The data URI has no comma within 4096 bytes';
  const IN_DATA = 'The answer ends within its data';
  const IN_GROUP = 'The base64 ends in the middle of a group';
  const IN_BITS = 'The base64 ends in bits that no encoder writes';

  const table: readonly (readonly [answer: string, message: string, options?: Options])[] = [
    ['bytes', 'The answer does not say where it ends, so a cut one would look whole', { isDelimited: false }],
    ['bytes', 'The answer has 5 bytes instead of the 6 that it announced', { length: 6 }],
    ['bytes', 'The answer has 5 bytes instead of the 4 that it announced', { length: 4 }],
    ['', 'The answer has 0 bytes instead of the 1 that it announced', { length: 1 }],
    ['{"data":"data:image/png', IN_DATA],
    ['{"data":"data:image/png;base64,AAAA', IN_DATA],
    ['{"data":"data:image/png;base64,AA\\', IN_DATA],
    ['{"data":"data:image/png;base64,AAAA"', NOT_JSON],
    ['{"data":"data:,a"}}', NOT_JSON],
    ['{"data":"data:,a"} x', NOT_JSON],
    ['{"data":"data:,a"}{}', NOT_JSON],
    ['{"data":"data:,a"}\xef\xbb\xbf', NOT_JSON],
    ['{"data":"data:,a"]', NOT_JSON],
    ['{"data":"data:,a",}', NOT_JSON],
    ['{"data":"data:,a" "b":1}', NOT_JSON],
    ['{"data":"data:,a","b":01}', NOT_JSON],
    ['{"a":nope,"data":"data:,a"}', NOT_JSON],
    [`{"data":"data:,a","x":${'['.repeat(100_000)}${']'.repeat(100_000)},}`, NOT_JSON],
    ['{"a" 1,"data":"data:,a"}', NOT_JSON],
    ['{"a":"\n","data":"data:,a"}', NOT_JSON],
    ['{"data":"data:,a","data":"data:,b"}', TWICE],
    ['{"data":"data:,a","data":""}', TWICE],
    ['{"data":"data:,a","data":"-"}', TWICE],
    ['{"data":"data:,a","data":null}', TWICE],
    [`{"data":"data:${'x'.repeat(4 * KIB)}`, NO_COMMA],
    [`{"data":"data:${'x'.repeat(10_000)};base64,QUJD"}`, NO_COMMA],
    [`{"data":"data:,a"${' '.repeat(MIB - 1)}}`, 'More than 1048576 bytes follow the data', { cuts: [100] }],
    ['{"data":"data:,a\tb"}', NOT_STRING],
    ['{"data":"data:,%"}', 'The data ends in the middle of an escape'],
    ['{"data":"data:,%4"}', 'The data ends in the middle of an escape'],
    ['{"data":"data:,%4x"}', NOT_PERCENT],
    ['{"data":"data:,%4x and more"}', NOT_PERCENT],
    ['{"data":"data:,%x4 and more"}', NOT_PERCENT],
    ['{"data":"data:,\xe9"}', NOT_PERCENT],
    ['{"data":"data:,\\u00e4"}', NOT_PERCENT],
  ];

  /** In pieces, some faults are met by another check first. */
  const messageInPieces = (message: string) =>
    message === NOT_BASE64 || message === NOT_PERCENT ? expect.stringMatching(/^The (data|base64) /) : message;

  it.each(table.map(([answer, message, options = {}]) => [answer.slice(0, 60), message, answer, options] as const))(
    '%#: %j: %s',
    async (_, message, answer, options) => {
      expect(await failure(answer, options)).toBe(message);
      if (answer.length > 1_000) return;
      expect(await failure(answer, { ...options, cuts: everyByte(answer) })).toEqual(messageInPieces(message));
    },
  );

  it.each([
    ['a character that is not base64', 'QUJD*EJD', NOT_BASE64],
    ['a character that is not ASCII', 'QUJD\xc3\xbc', NOT_BASE64],
    ['a line break without an escape', 'QUJD\nQUJD', NOT_BASE64],
    ['a line break without an escape beside one with it', 'QU\\nJD\nQUJD', NOT_STRING],
    ['an unknown escape', 'QU\\xJD', NOT_STRING],
    ['half an escape', 'QUJD\\u00', NOT_STRING],
    ['an escaped quote', 'QUJD\\"', NOT_BASE64],
    ['a percent sign that escapes nothing', 'QUJD%x4QUJD', NOT_PERCENT],
    ['a percent sign that escapes another one', 'QUJD%2541', NOT_BASE64],
    ['half of a percent sign', 'QUJD%4', 'The data ends in the middle of an escape'],
    ['one character too many', 'QUJDQ', IN_GROUP],
    ['one character', 'Q', IN_GROUP],
    ['padding behind a whole group', 'QUJD=', IN_GROUP],
    ['a group of padding behind a whole group', 'QUJD====', IN_GROUP],
    ['too much padding', 'QQ===', IN_GROUP],
    ['too little padding', 'QQ=', IN_GROUP],
    ['three of padding', 'Q===', IN_GROUP],
    ['padding alone', '==', IN_GROUP],
    ['a group of padding alone', '====', IN_GROUP],
    ['data behind the padding', 'QQ==QUJD', NOT_BASE64],
    ['data behind the padding, after a line break', 'QQ==\\nQUJD', NOT_BASE64],
    ['more padding behind the padding, after a line break', 'QQ==\\nQQ==', NOT_BASE64],
    ['padding in the middle of a group', 'QU=D', NOT_BASE64],
    ['bits at the end that no encoder writes', 'QR==', IN_BITS],
    ['bits at the end that no encoder writes, unpadded', 'QR', IN_BITS],
    ['three characters with such bits', 'QUK', IN_BITS],
  ])('base64 with %s', async (_, data, message) => {
    const answer = `{"data":"data:;base64,${data}"}`;
    expect(await failure(answer)).toBe(message);
    expect(await failure(answer, { cuts: everyByte(answer) })).toEqual(
      message === NOT_STRING ? expect.stringMatching(/^The data /) : messageInPieces(message),
    );
    await damaged(`{"data":"data:;base64,${'QUJD'.repeat(30_000)}${data}"}`);
  });

  it.each(['QQ==QQ==', 'QQ==QUFB'])('base64 that goes on behind its padding, in another piece: %s', async (data) => {
    const answer = `{"data":"data:;base64,${data}"}`;
    const message = 'The base64 goes on behind its padding';
    expect(await failure(answer, { cuts: [answer.indexOf('==') + 2] })).toBe(message);
  });

  it('with the error of the JSON parser as its cause', async () => {
    await expect(read('{"data":"data:,a"}}')).rejects.toMatchObject({ cause: expect.any(SyntaxError) });
  });
});

describe('a response that is the asset itself', () => {
  it.each([
    ' ',
    '\xef\xbb\xbf',
    'glTF\x02\x00\x00\x00',
    '{',
    '{}',
    '{"dat',
    '  {\\rtf1 "data":',
    'x{"data":"data:,a"}',
    '"data:image/png;base64,QUJD"',
    '[{"data":"data:,a"}]',
    '["data","data:image/png;base64,QUJD"]',
    '{"asset":{"version":"2.0"},"buffers":[{"uri":"data:application/octet-stream;base64,QUJD"}]}',
    '{}{"data":"data:,a"}',
    '{"a":1}\n"data":"data:,b"',
    '{"a":{"data":"data:image/png;base64,QUJD"}}',
    '{"data":{"data":"data:image/png;base64,QUJD"}}',
    '{"data":["data:image/png;base64,QUJD"]}',
    '{"data":null}',
    '{"data":5,"b":"data:,a"}',
    '{"data":"x","b":"data:,a"}',
    '{"data":"hello"}',
    '{"data":"database, of sorts"}',
    '{"data":"data: none"}',
    '{"data":"a data:,b"}',
    '{"data":" data:,b"}',
    '{"data":"dat","b":","}',
    '{"data":"dat\\u0061","b":","}',
    '{"data":"\\"data:,"}',
    '{"data":"\\x"}',
    '{"dat":"data:,a"}',
    '{"data ":"data:,a"}',
    '{"Data":"data:,a"}',
    '{"xdata":"data:,a"}',
    '{"a":"data","b":"data:image/png;base64,QUJD"}',
    '{"a":["data"],"b":"data:,a"}',
    '{"a":{"b":1},"c":"data:,a"}',
    '{"a\\"data":"data:,a"}',
    '{"a":"\\\\","b":"data:,a"}',
  ])('stays as it is: %j', async (answer) => {
    for (const cuts of [[], everyByte(answer)]) {
      expect(await read(answer, { cuts, accepts: any })).toEqual({
        mediaType: 'x/answer',
        bytes: Buffer.from(answer, 'latin1'),
      });
    }
  });

  it.each(['{"data":"data:image/png;base64,QUJD"}', 'glTF\x02\x00\x00\x00', '{'])(
    'stays as it is if no pointer to data is declared: %j',
    async (answer) => {
      for (const cuts of [[], everyByte(answer)]) {
        expect(await decoded(answer, { data: undefined, cuts, accepts: any })).toBe(answer);
      }
    },
  );

  it('stays as it is for any bytes, in pieces of any size', async () => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ minLength: 1, maxLength: 300 }), fc.array(fc.nat(300)), async (bytes, cuts) => {
        expect((await read(bytes, { cuts, length: bytes.byteLength, accepts: any })).bytes).toEqual(Buffer.from(bytes));
      }),
    );
  });
});

describe('an HTML page', () => {
  const pages: readonly (readonly [what: string, answer: string])[] = [
    ['with its document type', '<!DOCTYPE html><title>Log in</title>'],
    ['without one', '<html lang="en"><title>Log in</title>'],
    ['behind white space', `${' \r\n'.repeat(100)}<!doctype html>`],
    ['behind a byte order mark', '\xef\xbb\xbf<html>'],
    ['that is all of it', '<html>'],
  ];
  it.each(pages)('%s is no asset, whatever its media type and its pieces', async (_, answer) => {
    for (const cuts of [[], [1], everyByte(answer)]) {
      for (const data of ['/data', undefined]) {
        await expect(read(answer, { data, cuts })).rejects.toThrow(NotAnAssetError);
      }
    }
  });

  it.each(['text/html', 'Text/HTML; charset=utf-8', 'application/xhtml+xml'])(
    'of the media type %s is no asset, whatever its bytes',
    async (mediaType) => {
      for (const answer of ['', 'x', '<title>Log in</title>', '{"a":1}']) {
        await expect(read(answer, { mediaType })).rejects.toThrow(NotAnAssetError);
      }
    },
  );

  it('is named with its media type, and with what to do', async () => {
    await expect(read('<html>', { mediaType: 'model/x' })).rejects.toThrow(
      /^An HTML page came in place of the asset: <html>\. .* add "text\/html" to "makes" of the route\.$/,
    );
  });

  it('can be an asset if its route makes pages', async () => {
    for (const [, answer] of pages)
      expect(await decoded(answer, { accepts: (type) => type === 'text/html' })).toBe(answer);
  });

  it('can be in an envelope, which no proxy knows', async () => {
    expect(await read('{"data":"data:text/html,<html>"}')).toEqual({
      mediaType: 'text/html',
      bytes: Buffer.from('<html>'),
    });
  });

  it.each(['<', '<?xml version="1.0"?><a/>', '<svg></svg>', '<htmlx>', `${' '.repeat(4_096)}<html>`, '  ', 'a <html>'])(
    'is not %j',
    async (answer) => {
      for (const cuts of [[], everyByte(answer)]) expect(await decoded(answer, { cuts })).toBe(answer);
    },
  );

  it('releases its connection', async () => {
    let isOpen = true;
    const body = async function* () {
      try {
        for (;;) yield Buffer.from('<html>'.padEnd(2_000));
      } finally {
        isOpen = false;
      }
    };
    await expect(assetOf(body(), FACTS)).rejects.toThrow(NotAnAssetError);
    expect(isOpen).toBe(false);
  });
});

describe('what came in place of an asset', () => {
  const REPEATED = 'QUJD'.repeat(100);
  const PNG = Buffer.from('\x89PNG\r\n\x1a\n'.padEnd(300), 'latin1').toString('base64');
  const documents: readonly (readonly [mediaType: string, answer: string, declared: string])[] = [
    ['application/json', '{"data":null,"status":"processing"}', 'application/json'],
    ['application/json', '[]', 'application/json'],
    ['application/octet-stream', '{"data":null,"status":"processing"}', 'application/json'],
    ['model/gltf-binary', '\n{"error":"asset has expired","code":410}\n', 'application/json'],
    ['text/plain', '{"detail":"not ready"}', 'application/json'],
    ['application/octet-stream', '{"status":"processing","eta":NaN}', 'application/json'],
    ['application/problem+json', '{"title":"Gone"}', 'application/problem+json'],
    ['application/json', `{"data":"${REPEATED}","media_type":"model/gltf-binary"}`, 'application/json'],
    ['application/xml', '<a/>', 'application/xml'],
    ['binary/octet-stream', '<?xml version="1.0"?>\n<Error><Code>NoSuchKey</Code></Error>', 'application/xml'],
    ['text/plain', 'https://cdn.example.com/a.glb?signature=abc\n', 'text/plain'],
    ['text/plain; charset=utf-8', REPEATED, 'text/plain;charset=utf-8'],
    ['application/octet-stream', `${REPEATED}QQ==`, 'application/octet-stream'],
    ['image/png', PNG, 'text/plain'],
    ['image/png', `"${PNG}"\n`, 'text/plain'],
    ['model/gltf-binary', 'https://cdn.example.com/a.glb?signature=abc', 'text/plain'],
    ['image/png', `data:image/png;base64,${REPEATED}`, 'text/plain'],
    ['application/octet-stream', `"data:model/gltf-binary;base64,${REPEATED}"`, 'application/octet-stream'],
    ['model/gltf-binary', `{"data":null,"status":"processing","input":"${'x'.repeat(5_000)}"}`, 'application/json'],
    ['application/octet-stream', `[{"error":"expired","input":"${'x'.repeat(5_000)}"}]`, 'application/json'],
    ['application/octet-stream', `\n[ { "error" : "${'x'.repeat(5_000)}" } ]`, 'application/json'],
    ['text/plain', ' \n{ "error" : "late" }', 'application/json'],
    ['text/json', 'null', 'application/json'],
    ['text/xml', '<a/>', 'text/xml'],
    ['application/problem+xml', '<problem/>', 'application/problem+xml'],
    ['application/octet-stream', '\n<Error>no such key</Error>', 'application/xml'],
    ['application/octet-stream', '<?xml version="1.0"?><soap:Fault/>', 'application/xml'],
    ['text/plain', ' \n"http://cdn.example.com/a.glb"', 'text/plain'],
    ['text/plain', '\n data:image/png;base64,QUJD', 'text/plain'],
    ['text/plain', `\n "${REPEATED}=="\n`, 'text/plain'],
    ['image/png', `\n"${PNG}"`, 'text/plain'],
    ['image/png', 'http://cdn.example.com/a.png', 'text/plain'],
    ['model/x+jsonz', '{"error":"gone"}', 'application/json'],
    ['model/x+jsonz', `{"error":"${'x'.repeat(5_000)}"}`, 'application/json'],
    ['model/x+xmlz', '<Error/>', 'application/xml'],
    ['multipart/form-data; boundary=x', '--x\r\n\r\nABC\r\n--x--\r\n', 'multipart/form-data'],
    ['Multipart/Mixed; boundary=x', '--x\r\nContent-Type: image/png\r\n\r\nPNG\0\0', 'multipart/mixed'],
  ];

  it.each(documents)('with the media type %s is none, in any pieces: %j', async (mediaType, answer) => {
    const cuts = everyByte(answer.slice(0, 500));
    for (const options of [{}, { cuts }, { cuts, data: undefined }]) {
      const { message } = await read(answer, { mediaType, ...options }).then(
        () => expect.fail('It was taken for an asset'),
        (error: NotAnAssetError) => error,
      );
      expect(message).toContain('came in place of the asset');
      // In one line.
      expect(message).toContain(
        answer
          .trim()
          .replaceAll(/[\r\n]+/g, ' ')
          .slice(0, 100),
      );
    }
  });

  it.each(documents)(
    'with the media type %s is an asset if it is declared: %j',
    async (mediaType, answer, declared) => {
      expect(await decoded(answer, { mediaType, accepts: (type) => type === declared })).toBe(answer);
    },
  );

  it.each([
    ['JSON', 'text/plain', '{"error":"gone"}', 'application/json'],
    ['JSON', 'application/problem+json', '{"title":"Gone"}', 'application/problem+json'],
    ['XML', 'binary/octet-stream', '<Error>gone</Error>', 'application/xml'],
    ['XML', 'text/xml', '<gone/>', 'text/xml'],
    ['An address', 'text/plain; charset=utf-8', 'https://cdn.example.com/a.glb', 'text/plain'],
    ['A data URI', 'image/png', 'data:image/png;base64,QUJD', 'text/plain'],
    ['Bare base64', 'application/octet-stream', REPEATED, 'application/octet-stream'],
  ])('is named %s, with its beginning and the type to declare: %s, %j', async (what, mediaType, answer, declared) => {
    const quoted = answer === REPEATED ? `${REPEATED.slice(0, 200)}…` : answer;
    const message =
      `${what} came in place of the asset: ${quoted}. Check the service, and what stands before it and its assets: a ` +
      `proxy, a login. If the template makes such files, add "${declared}" to "makes" of the route.`;
    await expect(read(`\n ${answer} \n`, { mediaType })).rejects.toThrow(new NotAnAssetError(message));
  });

  it('is said to be a case for the description if it is JSON with bare base64', async () => {
    const answer = JSON.stringify({ id: 'a1', data: Buffer.alloc(100, 0xff).toString('base64') });
    await expect(read(answer, { mediaType: 'application/json' })).rejects.toThrow(
      /a login\. If the asset is in it as base64, declare "base64": true in "outputs" of the service\.$/,
    );
  });

  it.each([
    ['JSON', '\ufeff{"error":"gone"}', ['image/png']],
    ['An address', '\ufeffhttps://cdn.example.com/a.glb', ['image/png']],
    ['An address', '\n\n\u00a0https://cdn.example.com/a.glb', ['image/png']],
    ['An address', '\n   \u00a0https://cdn.example.com/a.glb', []],
    ['An address', '\u2028\u3000"https://cdn.example.com/a.glb"\u2003', []],
    ['Bare base64', `\u202f"${PNG}"\n`, ['image/png']],
  ])('is known behind white space of any kind, cut anywhere: %s, %j', async (what, text, others) => {
    const answer = Buffer.from(text);
    for (const mediaType of ['text/plain', 'application/octet-stream', ...others]) {
      for (const data of ['/data', undefined]) {
        const all = read(answer, { data, mediaType, cuts: everyByte(answer) });
        await expect(all).rejects.toThrow(`${what} came in place of the asset`);
      }
    }
  });

  const NEVER_TEXT = [
    ...['model/gltf-binary', 'image/png', 'image/jpeg', 'image/webp', 'video/mp4', 'application/pdf', 'model/ply'],
    ...['application/zip', 'model/vnd.usdz+zip', 'model/3mf'],
    'application/vnd.openxmlformats-officedocument.wordprocessingml.document',
  ];
  const TEXTS = [
    'Processing, please try again later',
    '<!-- error --><div>Log in</div>',
    ')]}\',\n{"status":"pending"}',
    `${REPEATED.slice(0, 76)}\r\n`.repeat(3),
    `${REPEATED.slice(0, 76)}\r\n`.repeat(100),
    'Fehler: gel\xf6scht',
    '\xff\xfeN\0o\0',
    'x',
  ];
  it.each(NEVER_TEXT)(
    'is, for a route that declares what it makes, any text under the type %s, whose files never are one',
    async (mediaType) => {
      for (const answer of TEXTS) {
        for (const cuts of [[], everyByte(answer.slice(0, 500))]) {
          for (const said of [mediaType, 'application/octet-stream']) {
            const options = { mediaType: said, names: said === mediaType ? [] : [`a${extensionOf(mediaType)}`], cuts };
            const accepts = (type: string) => type === mediaType;
            await expect(read(answer, { ...options, accepts })).rejects.toThrow(NotAnAssetError);
            expect(await read(answer, { ...options, accepts: (type) => type === 'text/plain' })).toMatchObject({
              mediaType,
            });
          }
        }
      }
    },
  );

  it('is no text if the route does not declare what it makes', async () => {
    expect(await decoded('Too late', { mediaType: 'image/png' })).toBe('Too late');
  });

  it('is named as text, with its beginning and what to do', async () => {
    const accepts = (type: string) => type === 'image/png';
    await expect(read('\nToo late\n', { mediaType: 'image/png', accepts })).rejects.toThrow(
      /^Text came in place of the asset: Too late\. Check .* add "text\/plain" to "makes" of the route\.$/,
    );
  });

  it.each([
    ['image/jpeg', '\x89PNG\r\n\x1a\n'],
    ['application/zip', `%PDF-1.7\n${'1 0 obj\n'.repeat(1_000)}`],
    ['application/pdf', '%PDF-1.7\n'],
    ['model/ply', `ply\nformat ascii 1.0\n${'0 0 0\n'.repeat(1_000)}`],
    ['model/ply', 'ply\rformat ascii 1.0\r'],
    ['application/zip', 'PK\x05\x06'],
    ['application/zip', 'MZ is a program that unpacks itself\0'],
    ['video/mp4', '\0\0\0\x08wide\0\0\0\x08mdat'],
    ['image/png', `${'x'.repeat(4_095)}\0`],
    ['application/vnd.autodesk.fbx', '; FBX 7.4.0 project file'],
    ['image/vnd.radiance', '#?RGBE\n\n-Y 1 +X 1\nabcd'],
    ['model/obj', 'v 0 0 0'],
    ['model/stl', 'solid a'],
    ['model/stl', 'binary\0'],
    ['audio/mpeg', '\xff\xfb\x90'],
    ['audio/mpeg', 'TAG'],
    ['text/csv', 'a,b'],
    ['application/octet-stream', 'a,b'],
    ['image/svg+xml', '<svg/>'],
    ['model/gltf+json', '{}'],
  ])('is no file of the type %s, or of another one that its first bytes tell: %j', async (mediaType, answer) => {
    for (const cuts of [[], everyByte(answer.slice(0, 500))]) {
      for (const accepts of [undefined, (type: string) => type === mediaType]) {
        expect(await read(answer, { mediaType, cuts, accepts })).toMatchObject({ mediaType });
      }
    }
  });

  it('is known by all of its JSON up to 4,096 bytes, and by its beginning if files of its type are never JSON', async () => {
    const json = (length: number): string => `{"error":"${'x'.repeat(length - 12)}"}`;
    await expect(read(json(4_096))).rejects.toThrow(NotAnAssetError);
    expect(await decoded(json(4_097))).toHaveLength(4_097);
    await expect(read(json(4_097), { mediaType: 'image/png' })).rejects.toThrow(NotAnAssetError);
  });

  it.each([
    ['with the type of an asset', 'model/gltf-binary', ''],
    ['with the type of a document', 'application/json', ''],
    ['with the type of a page', 'text/html', ''],
    ['without a type', 'application/octet-stream', ''],
    ['in an envelope', 'application/json', '{"data":"data:model/gltf-binary;base64,","id":"a1"}'],
    ['in an envelope, not in base64', 'application/json', '{"data":"data:text/plain,"}'],
  ])('is none if it has no bytes, also if its type is declared: %s', async (_, mediaType, answer) => {
    for (const accepts of [undefined, any]) {
      await expect(read(answer, { mediaType, accepts })).rejects.toThrow(/^Nothing came in place of the asset/);
    }
  });

  it('is none if its response has no body at all', async () => {
    for (const data of ['/data', undefined]) {
      await expect(assetOf(streamed([]), { ...FACTS, data })).rejects.toThrow(/^Nothing came in place of the asset/);
    }
  });

  it('is known behind white space of any kind, in any pieces', async () => {
    for (const space of ['\u00a0', '\u2028\u3000', '\ufeff \u00a0']) {
      for (const text of ['https://cdn.example.com/a.png', PNG]) {
        const answer = Buffer.from(space + text);
        for (let at = 0; at < 12; at += 1) {
          const reading = read(answer, { mediaType: 'image/png', cuts: [at] });
          await expect(reading, `${text} cut at ${at}`).rejects.toThrow(NotAnAssetError);
        }
      }
    }
  });

  it('is not known by the names of an asset', async () => {
    const answer = read(REPEATED, { mediaType: 'application/octet-stream', names: ['robot.glb'] });
    await expect(answer).rejects.toThrow(/^Bare base64 came in place of the asset/);
  });

  it('is any file of a type that is not declared, in an envelope too', async () => {
    const accepts = (type: string): boolean => type.startsWith('model/');
    for (const answer of ['\x89PNG\r\n', '{"data":"data:image/png;base64,iVBORw=="}']) {
      await expect(read(answer, { mediaType: 'image/png', accepts })).rejects.toThrow(
        /^A file of the type image\/png came in place of the asset\. Check .* add "image\/png" to "makes" of the route\.$/,
      );
    }
  });

  it.each([
    ['model/gltf+json', '{"asset":{"version":"2.0"}}'],
    ['application/geo+json', '{"type":"Point"}'],
    ['application/x-ndjson', '{"type":"Point"}\n'],
    ['application/jsonl', '{"type":"Point"}\n'],
    ['application/x-jsonlines', '{"type":"Point"}\n'],
    ['application/json-seq', '{"type":"Point"}\n'],
    ['text/json5', '{"type":"Point"}\n'],
    ['image/svg+xml', '<?xml version="1.0"?><svg/>'],
    ['text/plain', 'A fox that jumps over a dog.'],
    ['text/csv', 'https://cdn.example.com/a.glb'],
    ['model/obj', '{ is no JSON }'],
    ['model/obj', REPEATED],
    ['image/x+json', `{"a":"${'x'.repeat(5_000)}"}`],
    ['model/gltf+json', `{"asset":"${'x'.repeat(5_000)}"}`],
    ['x-model/scene', `{"a":"${'x'.repeat(5_000)}"}`],
    ['application/octet-stream+json', `{"a":"${'x'.repeat(5_000)}"}`],
    ['model/gltf-binary', `glTF\x02\0\0\0\0\x20\0\0\0\x10\0\0JSON{"asset":{}}${' '.repeat(5_000)}`],
    ['application/x+xml', '<Error/>'],
    ['text/plain', 'See https://cdn.example.com/a.glb'],
    ['text/plain', 'https://cdn.example.com/a.glb and more'],
    ['text/plain', 'It begins with data:image/png;base64,QUJD'],
    ['text/plain', `A hash: ${REPEATED}`],
    ['text/plain', `${REPEATED} and more`],
    ['image/bmp', `${PNG} and more`],
    ['text/plain', 'It said {"detail":"not ready"}'],
    ['text/plain', '{"detail":"not ready"} is what it said'],
    ['text/plain', '"It said [sic]"'],
    ['application/octet-stream', 'It said <Error>no</Error>'],
  ])('is not, but an asset of the type %s: %j', async (mediaType, answer) => {
    for (const cuts of [[], everyByte(answer.slice(0, 500))]) {
      expect(await decoded(answer, { mediaType, cuts })).toBe(answer);
    }
  });
});

describe('the data at a pointer', () => {
  const at = (data: string, answer: string, cuts: readonly number[] = []) => read(Buffer.from(answer), { data, cuts });
  it.each([
    ['/data', '{"data":"data:,x"}'],
    ['/结果/0/é', '{"é":"ü","结果":[{"é":"data:,x","图":"片"}],"ü":[]}'],
    ['/结果/0/é', '{"\\u7ed3\\u679c":[{"\\u00e9":"data:,x"}]}'],
    ['/output/0', '{"status":"done","output":["data:,x","data:,y"]}'],
    ['/output/1', '{"output":["https://example.com",  "data:,x"]}'],
    ['/a~1b/c~0d', '{"c~d":"data:,no","a/b":{"c~d":"data:,x"}}'],
    ['/0/model/url', '[{"other":{"url":"data:,no"},"model":{"name":"url","url":"data:,x"}}]'],
    [
      '/result/deep/data',
      '{"data":"data:,no","result":{"data":"data:,no","deep":{"more":[{"data":1}],"data":"data:,x"}}}',
    ],
  ])('is found at %s of %s', async (pointer, answer) => {
    for (const cuts of [[], everyByte(Buffer.from(answer))]) {
      expect((await at(pointer, answer, cuts)).bytes.toString()).toBe('x');
    }
  });

  it('is not found elsewhere', async () => {
    for (const answer of ['{"output":{"0":1}}', '{"output":[]}', '{"x":{"output":["data:,x"]}}', '["data:,x"]']) {
      await expect(at('/output/0', answer)).rejects.toThrow(NotAnAssetError);
    }
  });
});

describe('the progress of an asset', () => {
  it.each([
    ['a plain asset', 'x'.repeat(30_000), 30_000],
    ['an envelope', `{"data":"data:a/b;base64,${'QUJD'.repeat(10_000)}"}`, 30_000],
  ])('is told from its opening on: of %s', async (_, answer, bytes) => {
    const told: number[] = [];
    const facts = { ...FACTS, onData: (count: number) => told.push(count) };
    const cuts = [10_000, 20_000, 25_000, 35_000].filter((cut) => cut < answer.length);
    const { chunks } = await assetOf(streamed(pieces(Buffer.from(answer), cuts)), facts);
    expect(told).toEqual([0]);
    expect(await collect(chunks)).toHaveLength(bytes);
    expect(told.length).toBeGreaterThan(2);
    expect(told).toEqual(told.toSorted((one, other) => one - other));
    expect(told.at(-1)).toBeGreaterThan(10_000);
    expect(told.at(-1)).toBeLessThanOrEqual(bytes);
  });

  it.each([
    ['if it may be one', false, [0, 3, 11, 13]],
    ['and those before it if it must be one', true, [7, 7, 10, 18, 20]],
  ])('counts the bytes behind the data of an envelope, %s', async (_, isEnvelope, counts) => {
    const told: number[] = [];
    const facts = { ...FACTS, isEnvelope, onData: (count: number) => told.push(count) };
    const body = ['{"a":1,', '"data":"data:a/b;base64,QUJD', 'QUJD"', ',"b":', '2}'].map((each) => Buffer.from(each));
    const { chunks } = await assetOf(streamed(body), facts);
    expect((await collect(chunks)).toString()).toBe('ABCABC');
    expect(told).toEqual(counts);
  });
});

describe('the pieces of an asset', () => {
  const sizes = async (body: readonly Uint8Array[]): Promise<number[]> =>
    Array.fromAsync((await assetOf(streamed(body), FACTS)).chunks, ({ byteLength }) => byteLength);

  it('are those of its response', async () => {
    expect(await sizes(pieces(Buffer.from('glTF\0 and more'), [5, 9]))).toEqual([5, 4, 5]);
  });

  it('are large blocks if it comes in an envelope, and none of them is empty', async () => {
    const answer = Buffer.from(`{"data":"data:a/b;base64,${'QUJD'.repeat(70_000)}"}`);
    for (const cuts of [[], [answer.byteLength - 2], [100, 200, 300]]) {
      const each = await sizes(pieces(answer, cuts));
      expect(each.length).toBeLessThanOrEqual(2);
      expect(Math.min(...each)).toBeGreaterThan(0);
    }
  });
});

describe('an asset is opened', () => {
  const inEnvelope = (type: string, bytes: number): string[] => [
    `{"data":"data:${type};base64,${Buffer.alloc(bytes, 'x').toString('base64')}"`,
    '}',
  ];
  it.each<[why: string, pieces: readonly string[], facts: Partial<Facts>]>([
    ['no document begins as it does', ['glTF\x02\0\0\0<{['.padEnd(64), 'more'], { mediaType: 'model/gltf-binary' }],
    ['its type in an envelope tells', ['{"data":"data:a/b;base64,', 'QUJD"}'], {}],
    ['its name tells', ['{"data":"data:;base64,', 'QUJD"}'], { names: ['a.glb'] }],
    [
      '64 bytes of it have come that are no text, if nothing else tells',
      ['glTF\x02'.padEnd(64), 'more'],
      { mediaType: '' },
    ],
    ['4 KiB of it have come, if nothing else tells', inEnvelope('', 4 * KIB + 1), {}],
  ])('as soon as %s', async (_, [first = '', ...others], facts) => {
    const asked: string[] = [];
    const body = async function* () {
      for (const piece of [first, ...others]) {
        asked.push(piece);
        yield Buffer.from(piece, 'latin1');
      }
    };
    const { chunks } = await assetOf(body(), { ...FACTS, ...facts });
    expect(asked).toEqual([first]);
    await collect(chunks);
    expect(asked).toEqual([first, ...others]);
  });
});

describe('the limit on the size', () => {
  it.each([
    ['a plain asset', 'ABC'],
    ['an envelope', '{"data":"data:;base64,QUJD"}'],
  ])('accepts %s of just that size, and none that is larger', async (_, answer) => {
    expect(await decoded(answer, { assetBytesMax: 3 })).toBe('ABC');
    const tooLarge = read(answer, { assetBytesMax: 2 });
    await expect(tooLarge).rejects.toThrow(new AssetTooLargeError('The asset is larger than the 2 bytes allowed'));
  });

  it('is met before an asset is read whose answer announces more, and not for the JSON around an asset', async () => {
    const answer = '{"data":"data:;base64,QUJD"}';
    const options = { assetBytesMax: 3, length: answer.length };
    expect(await decoded(answer, options)).toBe('ABC');
    async function* endless() {
      for (;;) yield Buffer.from('glTF\x02\0');
    }
    await expect(assetOf(endless(), { ...FACTS, data: undefined, ...options })).rejects.toThrow(AssetTooLargeError);
  });
});

describe('the connection', () => {
  it.each([
    ['the reader leaves an envelope early', `{"data":"data:;base64,${'QUJD'.repeat(200_000)}"}`],
    ['the reader leaves a plain asset early', 'x'.repeat(200_000)],
    ['the data is damaged', '{"data":"data:;base64,*"}'],
    ['the beginning is damaged', `{"data":"data:${'x'.repeat(10_000)}`],
    ['the asset is complete', '{"data":"data:;base64,QUJD"}'],
  ])('is released when %s', async (when, answer) => {
    let isOpen = true;
    const body = async function* () {
      try {
        yield* pieces(Buffer.from(answer), [10, 20, 70_000]);
        yield Buffer.alloc(0);
      } finally {
        isOpen = false;
      }
    };
    const reading = async () => {
      for await (const _ of (await assetOf(body(), FACTS)).chunks) if (when.includes('early')) break;
    };
    if (when.includes('damaged')) await expect(reading()).rejects.toThrow(DamagedAssetError);
    else await reading();
    expect(isOpen).toBe(false);
  });
});

describe('the type of an asset', () => {
  const NOTHING = 'application/octet-stream';
  const envelopeOf = (bytes: string, type = NOTHING) =>
    JSON.stringify({ data: `data:${type};base64,${Buffer.from(bytes, 'latin1').toString('base64')}` });

  it('is the one that comes with it, if that says something', async () => {
    for (const mediaType of ['image/png', 'Image/PNG;q=1', 'x/y']) {
      expect(await read('glTF', { mediaType, names: ['a.jpg'] })).toMatchObject({ mediaType });
    }
    expect((await read('\xff\xd8\xff', { mediaType: 'image/pjpeg' })).mediaType).toBe('image/jpeg');
    expect((await read(envelopeOf('x', 'image/jpg'))).mediaType).toBe('image/jpeg');
  });

  it.each([
    ...[NOTHING, 'binary/octet-stream', 'application/x-www-form-urlencoded', 'application/force-download', '*/*'],
    ...['image/*', 'not a type', ''],
  ])('follows from its names if it comes as "%s"', async (mediaType) => {
    expect(await read('GIF89a', { mediaType, names: ['', 'a1', 'a.glb', 'b.png'] })).toEqual({
      mediaType: 'model/gltf-binary',
      bytes: Buffer.from('GIF89a'),
    });
    expect(await read(envelopeOf('GIF89a', mediaType.replaceAll(' ', '')), { names: ['a.bin', 'a.JPEG'] })).toEqual({
      mediaType: 'image/jpeg',
      bytes: Buffer.from('GIF89a'),
    });
  });

  it.each([
    ['model/gltf-binary', 'glTF\x02\0\0\0'],
    ['model/ply', 'ply\nformat ascii 1.0\n'],
    ['image/png', '\x89PNG\r\n\x1a\n'],
    ['image/jpeg', '\xff\xd8\xff\xe0'],
    ['image/webp', 'RIFF\x01\x02\x03\x04WEBPVP8 '],
    ['audio/wav', 'RIFF\x01\x02\x03\x04WAVEfmt '],
    ['audio/mpeg', 'ID3\x04'],
    ['video/quicktime', '\0\0\0\x14ftypqt  '],
    ['video/mp4', '\0\0\0\x20ftypisom'],
    ['image/heic', '\0\0\0\x18ftypheic'],
    ['video/webm', '\x1aE\xdf\xa3\x9fB\x86\x81\x01B\xf7\x81\x01B\xf2\x81\x04B\xf3\x81\x08B\x82\x84webm'],
    ['application/pdf', '%PDF-1.7'],
    ['application/zip', 'PK\x03\x04'],
    [NOTHING, 'nobody knows'],
    [NOTHING, 'RIFF\x01\x02\x03\x04'],
    [NOTHING, 'glT'],
  ])('follows from its first bytes if nothing else tells: %s', async (mediaType, beginning) => {
    for (const bytes of [beginning, beginning + 'x'.repeat(500_000)]) {
      if (bytes !== beginning && beginning === 'glT') continue;
      const expected = { mediaType, bytes: Buffer.from(bytes, 'latin1') };
      for (const cuts of [[], [1, 2, 3, 5, 9]]) {
        expect(await read(bytes, { mediaType: NOTHING, names: ['a1', 'a.bin'], cuts, accepts: any })).toEqual(expected);
        expect(await read(envelopeOf(bytes), { names: ['a1'], cuts })).toEqual(expected);
      }
    }
  });

  it.each([
    ['model/gltf-binary', 'text/plain', 'glTF\x02\0\0\0', []],
    ['model/stl', 'text/plain; charset=utf-8', 'binary\0\0\0', ['a.stl']],
    ['application/zip', 'text/plain', 'PK\x03\x04', ['a1']],
    ['text/plain', 'text/plain', 'h\0i\0', ['a1']],
    ['text/plain', 'text/plain', 'glTF is a format', ['a.glb']],
    ['model/stl', 'text/plain', 'solid\x08', ['a.stl']],
    ['text/plain', 'text/plain', 'solid\ta', ['a.stl']],
  ])('is %s if it comes as %s, but begins with %j', async (mediaType, said, bytes, names) => {
    expect((await read(bytes, { mediaType: said, names, accepts: any })).mediaType.split(';')[0]).toBe(mediaType);
  });

  const GLB = `glTF\x02\0\0\0${'x'.repeat(5_000)}`;
  // Printable, apart from bytes that are no UTF-8, as that of many programs.
  const PDF = `%PDF-1.7\n%\xe2\xe3\xcf\xd3\n${'1 0 obj\n'.repeat(1_000)}`;
  const STL = `${'binary'.padEnd(80)}\x01\0\0\0${'x'.repeat(5_000)}`;
  const DOCUMENTS = [
    ...['application/json', 'text/json', 'application/problem+json', 'application/xml', 'text/xml'],
    ...['text/html; charset=UTF-8', 'application/xhtml+xml'],
  ];
  it.each(
    DOCUMENTS.flatMap((said) => [
      ['model/gltf-binary', said, GLB.slice(0, 60), []] as const,
      ['model/gltf-binary', said, GLB, []] as const,
      ['image/png', said, '\x89PNG\r\n\x1a\n\0\0\0\rIHDR', ['a1']] as const,
      ['application/zip', said, 'PK\x03\x04\x14\0', ['a1.json']] as const,
      ['video/mp4', said, '\0\0\0\x20ftypisom\0\0', []] as const,
      ['application/pdf', said, PDF, []] as const,
      ['application/pdf', said, PDF.slice(0, 100), ['download.html']] as const,
      ['model/stl', said, STL, ['a.html', 'a.stl']] as const,
      ['model/gltf-binary', said, GLB, ['download.php']] as const,
      [NOTHING, said, STL, ['a1']] as const,
    ]),
  )('is %s, whatever its bytes come as: %s', async (mediaType, said, bytes, names) => {
    const expected = { mediaType, bytes: Buffer.from(bytes, 'latin1') };
    for (const cuts of [[], [1, 2, 64, 84], everyByte(bytes.slice(0, 200))]) {
      expect(await read(bytes, { mediaType: said, names, cuts })).toEqual(expected);
      expect(await read(bytes, { mediaType: NOTHING, names: ['a.html', ...names], cuts })).toEqual(expected);
      expect(await read(envelopeOf(bytes, said.replace(' ', '')), { names, cuts })).toEqual(expected);
      const accepts = (type: string): boolean => type === mediaType;
      expect(await read(bytes, { mediaType: said, names, cuts, accepts })).toEqual(expected);
      await expect(read(bytes, { mediaType: said, names, cuts, accepts: (type) => !accepts(type) })).rejects.toThrow(
        `A file of the type ${mediaType} came in place of the asset`,
      );
    }
  });

  it.each([
    ['text/html', '\xff\xfe<\0h\0t\0m\0l\0>\0'],
    ['application/xml', '\xfe\xff\0<\0a\0/\0>'],
    ['text/html', '<div>a stray \0</div>'],
    ['application/json', ' {"error":"cannot read \x01\x02"}'],
    ['text/html', 'glance at this'],
    ['application/json', 'null'],
  ])('stays %s, which is no asset, if it may be text: %j', async (mediaType, answer) => {
    for (const cuts of [[], everyByte(answer)]) {
      await expect(read(answer, { mediaType, names: ['a.glb'], cuts })).rejects.toThrow(NotAnAssetError);
    }
  });

  it('does not depend on the pieces in which it comes', async () => {
    for (const at of [70, 4_000, 4_090, 4_200]) {
      const text = `${'text '.repeat(2_000).slice(0, at)}\0${'x'.repeat(5_000)}`;
      const mediaType = at < 4_096 ? 'model/stl' : 'text/plain';
      for (const cuts of [[], [64, 65], [at], [at + 1], everyByte(text.slice(0, 4_200))]) {
        expect((await read(text, { mediaType: 'text/plain', names: ['a.stl'], cuts })).mediaType).toBe(mediaType);
      }
    }
  });

  it.each([
    ['model/gltf-binary', 'glTF\x02\0\0\0'],
    ['text/plain;charset=US-ASCII', 'hello'],
    [NOTHING, 'nobody knows\0'],
  ])('of a data URI that names none is %s if its bytes say so', async (mediaType, bytes) => {
    expect((await read(envelopeOf(bytes, ''), { names: ['a1'] })).mediaType).toBe(mediaType);
  });

  it.each([
    ['model/gltf-binary', 'glTF\x02\0\0\0'],
    [NOTHING, 'nobody knows'],
  ])('of a response that names none is %s if its bytes say so: %j', async (mediaType, bytes) => {
    expect((await read(bytes, { mediaType: undefined })).mediaType).toBe(mediaType);
  });

  it.each([
    ['model/vnd.usdz+zip;', 'model/vnd.usdz+zip'],
    ['model/vnd.usdz+zip; charset=utf 8; q=1', 'model/vnd.usdz+zip;q=1'],
    ['video/ogg; codecs="theora, vorbis"', 'video/ogg'],
    ['video/ogg; codecs="theora; vorbis"; q="1"', 'video/ogg;q=1'],
  ])('is not lost if a parameter cannot be read: %s', async (said, mediaType) => {
    expect((await read('PK\x03\x04', { mediaType: said })).mediaType).toBe(mediaType);
  });

  it('does not hide that the asset is damaged or too large', async () => {
    await damaged(envelopeOf('glTF').slice(0, -2), { names: [] });
    await damaged('glTF', { mediaType: NOTHING, length: 5 });
    await expect(read('glTF', { mediaType: NOTHING, assetBytesMax: 3 })).rejects.toThrow(AssetTooLargeError);
  });
});

describe('an address in place of the data', () => {
  /** Reads an answer, and tells which addresses it has led to. */
  async function follow(answer: string, facts: Partial<Facts> = {}): Promise<{ asked: string[]; text: string }> {
    const asked: string[] = [];
    const elsewhere: Facts['elsewhere'] = async (address) => {
      asked.push(address);
      return { bytesMax: undefined, mediaType: 'image/png', chunks: streamed([Buffer.from('there')]) };
    };
    const text = await decoded(answer, { elsewhere, accepts: any, mediaType: 'application/json', ...facts });
    return { asked, text };
  }

  it.each(['https://files.example/a.png?s=1', 'http://files.example/a', 'HTTPS://files.example/a'])(
    'leads to the asset: %s',
    async (address) => {
      const answer = JSON.stringify({ data: address, other: 'x' });
      expect(await follow(answer)).toEqual({ asked: [address], text: 'there' });
      expect(await follow(answer, { elsewhere: undefined })).toEqual({ asked: [], text: answer });
    },
  );

  it.each<[string, string, Partial<Facts>?]>([
    ['no text', '{"data":7}'],
    ['no address', '{"data":"see https://files.example/a"}'],
    ['of another kind', '{"data":"s3://files/a.png"}'],
    ['at another place', '{"url":"https://files.example/a"}'],
    ['in text that is no JSON', '{"data":"https://files.example/a"'],
    ['at a place that is not declared', '{"data":"https://files.example/a"}', { data: undefined }],
    ['in a long answer', JSON.stringify({ data: 'https://files.example/a', rest: 'x'.repeat(5 * KIB) })],
  ])('leads nowhere if it is %s', async (_, answer, facts = {}) => {
    expect(await follow(answer, facts)).toEqual({ asked: [], text: answer });
  });
});
