import { describe, expect, it } from 'vitest';
import { assetOf } from '../../functions/flow-service/asset-answer.ts';
import { SCAN_BYTES_MAX } from '../../functions/flow-service/envelope-scanner.ts';
import {
  AssetTooLargeError,
  DamagedAssetError,
  InvalidTextError,
  UnavailableError,
} from '../../functions/flow-service/errors.ts';
import { flowBody } from '../../functions/flow-service/request-body.ts';
import type { CreateRequest } from '../../functions/flow-service/types.ts';
import { collect, pieces, streamed } from '../flow-service/chunks.ts';

const KIB = 1024;
const MIB = 1024 * KIB;

interface Answer {
  readonly cuts?: readonly number[];
  readonly length?: number;
  readonly isDelimited?: boolean;
  readonly assetBytesMax?: number;
}

async function read(answer: string | Buffer, options: Answer = {}): Promise<{ mediaType: string; bytes: Buffer }> {
  const { cuts = [], length, isDelimited = true, assetBytesMax = 100 * MIB } = options;
  const body = streamed(pieces(Buffer.from(answer as string, 'latin1'), cuts));
  const { mediaType, chunks } = await assetOf(body, { mediaType: 'x/answer', length, isDelimited, assetBytesMax });
  return { mediaType, bytes: await collect(chunks) };
}

/** What the error says that an answer ends in. */
async function said(answer: string, options: Answer): Promise<string | undefined> {
  try {
    await read(answer, options);
    return undefined;
  } catch (error) {
    if (!(error instanceof DamagedAssetError || error instanceof AssetTooLargeError)) throw error;
    return error.message;
  }
}

describe('an answer that cannot be read says why', () => {
  const cases: readonly (readonly [answer: string, message: string, options?: Answer])[] = [
    ['bytes', 'The answer does not say where it ends, so a cut one would look whole', { isDelimited: false }],
    ['bytes', 'The answer has 5 bytes instead of the 6 that it announced', { length: 6 }],
    ['bytes', 'The answer has 5 bytes instead of the 4 that it announced', { length: 4 }],
    ['bytes', 'The asset is larger than the 4 bytes allowed', { assetBytesMax: 4 }],
    ['{"data":"data:image/png', 'The answer ends within its data'],
    ['{"data":"data:image/png;base64,AAAA', 'The answer ends within its data'],
    ['{"data":"data:image/png;base64,AA\\', 'The answer ends within its data'],
    ['{"data":"data:image/png;base64,AAAA"', 'The answer is not whole: the text around its data is not JSON'],
    ['{"data":"data:,a"}}', 'The answer is not whole: the text around its data is not JSON'],
    ['{"data":"data:,a","data":"data:,b"}', 'The answer has its data twice'],
    ['{"data":"data:,a","data":""}', 'The answer has its data twice'],
    ['{"data":"data:,a","data":"-"}', 'The answer has its data twice'],
    ['{"data":"data:,a","data":null}', 'The answer has its data twice'],
    [`{"data":"data:${'x'.repeat(4 * KIB)}`, 'The data URI has no comma within 4096 bytes'],
    [`{"data":"data:,a"${' '.repeat(MIB - 1)}}`, 'More than 1048576 bytes follow the data', { cuts: [100] }],
    ['{"data":"data:;base64,A\\xAA"}', 'The data is not a JSON string'],
    ['{"data":"data:;base64,A*AA"}', 'The data is not base64'],
    ['{"data":"data:;base64,A=AA"}', 'The data is not base64'],
    ['{"data":"data:;base64,QQ==\\nQQ=="}', 'The data is not base64'],
    ['{"data":"data:;base64,QQ==QQ=="}', 'The data is not base64'],
    ['{"data":"data:;base64,QQ==QQ=="}', 'The base64 goes on behind its padding', { cuts: [26] }],
    ['{"data":"data:;base64,QQ==QUFB"}', 'The base64 goes on behind its padding', { cuts: [26] }],
    ['{"data":"data:,a"}\xef\xbb\xbf', 'The answer is not whole: the text around its data is not JSON'],
    ['{"data":"data:;base64,A"}', 'The base64 ends in the middle of a group'],
    ['{"data":"data:;base64,QQ="}', 'The base64 ends in the middle of a group'],
    ['{"data":"data:;base64,QQ==="}', 'The base64 ends in the middle of a group'],
    ['{"data":"data:;base64,===="}', 'The base64 ends in the middle of a group'],
    ['{"data":"data:;base64,QUFB===="}', 'The base64 ends in the middle of a group'],
    ['{"data":"data:;base64,QR"}', 'The base64 ends in bits that no encoder writes'],
    ['{"data":"data:,a\tb"}', 'The data is not a JSON string'],
    ['{"data":"data:,%4"}', 'The data ends in the middle of an escape'],
    ['{"data":"data:,%4x"}', 'The data is not percent-encoded'],
    ['{"data":"data:,%4x and more"}', 'The data is not percent-encoded'],
    ['{"data":"data:,%x4 and more"}', 'The data is not percent-encoded'],
    ['{"data":"data:,\xe9"}', 'The data is not percent-encoded'],
  ];
  it.each(cases.map(([answer, message, options = {}]) => [answer.slice(0, 60), answer, message, options] as const))(
    '%#: %j',
    async (_, answer, message, options) => {
      expect(await said(answer, options)).toBe(message);
      // And in whatever pieces, unless it is the pieces that tell one fault from another.
      if (answer.length > 1_000 || options.cuts !== undefined) return;
      const cuts = Array.from(answer, (_, at) => at);
      const inPieces = await said(answer, { ...options, cuts });
      if (!message.includes('is not base64') && !message.includes('percent')) expect(inPieces).toBe(message);
      else expect(inPieces).toMatch(/^The (data|base64) /);
    },
  );
});

describe('an answer that is no envelope is left as it is', () => {
  const answers = [
    '',
    ' ',
    '\xef\xbb\xbf',
    '[{"data":"data:,a"}]',
    '"data:,a"',
    'x{"data":"data:,a"}',
    '{}{"data":"data:,a"}',
    '{"a":1}\n"data":"data:,b"',
    '{"data":5,"b":"data:,a"}',
    '{"data":["data:,a"]}',
    '{"data":{"data":"data:,a"}}',
    '{"data":"x","b":"data:,a"}',
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
    '{"a":"data","b":"data:,a"}',
    '{"a":["data"],"b":"data:,a"}',
    '{"a":{"b":1},"c":"data:,a"}',
    '{"a\\"data":"data:,a"}',
    '{"a":"\\\\","b":"data:,a"}',
    `{"a":"${'x'.repeat(SCAN_BYTES_MAX)}","data":"data:,a"}`,
  ];
  it.each(answers.map((answer) => [answer.slice(0, 60), answer] as const))('%#: %j', async (_, answer) => {
    for (const cuts of [[], Array.from({ length: Math.min(200, answer.length) }, (_, at) => at)]) {
      const asset = await read(answer, { cuts });
      expect(asset.mediaType).toBe('x/answer');
      expect(asset.bytes.toString('latin1')).toBe(answer);
    }
  });
});

describe('an envelope is opened', () => {
  const long = Buffer.alloc(700_001, 'flowdrop, in more than one block; ');
  const spelled = (text: string, every: number) =>
    Array.from(text, (c, at) => (at % every === 0 ? `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}` : c)).join(
      '',
    );
  const cases: readonly (readonly [what: string, answer: string, mediaType: string, bytes: Buffer | string])[] = [
    ['plain', '{"data":"data:a/b;base64,QUI="}', 'a/b', 'AB'],
    ['behind a byte order mark', '\xef\xbb\xbf{"data":"data:a/b;base64,QUI="}', 'a/b', 'AB'],
    ['with a byte order mark inside', '{"data":"data:a/b,x","m":"\xef\xbb\xbf"}', 'a/b', 'x'],
    ['with white space', '\t\r\n { "data" \n:\t"data:a/b,x" } \n', 'a/b', 'x'],
    ['behind others', '{"a":1,"b":"data","c":{"data":"no"},"d":[",",{"data":2}],"data":"data:a/b,x"}', 'a/b', 'x'],
    ['behind escaped quotes', '{"a":"\\"}\\\\","data":"data:a/b,x"}', 'a/b', 'x'],
    ['before others', '{"data":"data:a/b,x","data2":1,"b":"\\u0022}"}', 'a/b', 'x'],
    ['of spelled names', '{"\\u0064ata":"\\u0064ata:a\\/b\\u002Cx"}', 'a/b', 'x'],
    ['of nothing', '{"data":"data:a/b,"}', 'a/b', ''],
    ['of no media type', '{"data":"data:,x"}', 'text/plain;charset=US-ASCII', 'x'],
    ['of no media type and spaces', '{"data":"data: ,x"}', 'text/plain;charset=US-ASCII', 'x'],
    ['of parameters alone', '{"data":"data:;charset=utf-8,x"}', 'text/plain;charset=utf-8', 'x'],
    ['of parameters and spaces', '{"data":"data: ; charset=utf-8 ,x"}', 'text/plain;charset=utf-8', 'x'],
    ['of base64 alone', '{"data":"data:;base64,QUI="}', 'text/plain;charset=US-ASCII', 'AB'],
    ['of base64 in another case, with spaces', '{"data":"DATA:a/b ; BASE64 ,QUI="}', 'a/b', 'AB'],
    ['of what only looks like base64', '{"data":"data:base64,QUI="}', 'application/octet-stream', 'QUI='],
    ['of base64 that is no last word', '{"data":"data:a/b;base64;c=d,QUI="}', 'application/octet-stream', 'QUI='],
    [
      'of percent signs',
      '{"data":"data:a/b,%41%7e%ff\\u002530"}',
      'a/b',
      Buffer.from([0x41, 0x7e, 0xff, 0x30]).toString('latin1'),
    ],
    ['of backslashes', '{"data":"data:a/b,a\\\\b\\\\\\\\\\"\\\\"}', 'a/b', 'a\\b\\\\"\\'],
    ['of spaces in base64', '{"data":"data:a/b;base64,Q  U I  ="}', 'a/b', 'AB'],
    ['of white space in base64', '{"data":"data:a/b;base64,Q\\n\\n U\\t\\rI\\u0020="}', 'a/b', 'AB'],
    ['of line breaks behind its padding', '{"data":"data:a/b;base64,QQ=\\n=\\n"}', 'a/b', 'A'],
    ['of both alphabets', '{"data":"data:a/b;base64,+-_/"}', 'a/b', Buffer.from([0xfb, 0xef, 0xff]).toString('latin1')],
    ['of much', `{"data":"data:a/b;base64,${long.toString('base64')}"}`, 'a/b', long],
    ['of much without padding', `{"data":"data:a/b;base64,${long.toString('base64url')}"}`, 'a/b', long],
    ['of much in escapes', `{"data":"data:a/b;base64,${spelled(long.toString('base64'), 5)}"}`, 'a/b', long],
    [
      'of much in lines',
      `{"data":"data:a/b;base64,${long.toString('base64').replace(/.{76}/g, '$&\\r\\n')}"}`,
      'a/b',
      long,
    ],
    [
      'of much in percent signs',
      `{"data":"data:a/b,${'%66%6c\\u006fw'.repeat(30_000)}"}`,
      'a/b',
      'flow'.repeat(30_000),
    ],
    ['and a long tail', `{"data":"data:a/b,x"${' '.repeat(MIB - 2)}}`, 'a/b', 'x'],
    ['and a long head', `{"a":"${'x'.repeat(SCAN_BYTES_MAX - 40)}","data":"data:a/b,x"}`, 'a/b', 'x'],
  ];
  it.each(cases)('%s', async (_, answer, mediaType, bytes) => {
    const expected = Buffer.from(bytes as string, 'latin1');
    const everywhere = Array.from({ length: Math.min(300, answer.length) }, (_, at) => at);
    const evenly = (step: number) => Array.from({ length: Math.floor(answer.length / step) }, (_, at) => at * step + 7);
    const pieced =
      answer.length < 1_000 ? [[], everywhere] : [[], everywhere, evenly(1_001), evenly(65_536), evenly(65_537)];
    for (const cuts of pieced) {
      const asset = await read(answer, { cuts, isDelimited: false });
      expect(asset.mediaType).toBe(mediaType);
      expect(asset.bytes.equals(expected)).toBe(true);
    }
  });
});

it('base64 whose groups a space has moved is put together again, wherever it was cut', async () => {
  const answer = '{"data":"data:a/b;base64,Q UIDQURFRkdISUpLTE1OT1BRUlNUVVZX"}';
  for (let cut = 20; cut < 40; cut += 1) {
    const { bytes } = await read(answer, { cuts: [cut] });
    expect(bytes.toString('hex')).toBe('414203414445464748494a4b4c4d4e4f5051525354555657');
  }
});

it('an envelope that is not JSON says what the parser met', async () => {
  const error = await read('{"data":"data:,a"}}').catch((thrown: unknown) => thrown);
  expect(error).toMatchObject({ cause: expect.any(SyntaxError) });
});

describe('a request body', () => {
  const request = (bytes: number, chunks: readonly Uint8Array[], as: 'file' | 'text' = 'file'): CreateRequest => ({
    template: 't',
    tag: { pipeline: 'p', upload: 'u', generation: 1 },
    input: { as, mediaType: 'a/b', source: { bytes, open: async () => streamed(chunks) }, additional: {} },
  });
  const signal = new AbortController().signal;
  const chunked = (chunk: Uint8Array, count: number) => Array.from({ length: count }, () => chunk);
  const sent = async (bytes: number, chunks: readonly Uint8Array[], as?: 'file' | 'text') =>
    (await collect((await flowBody(request(bytes, chunks, as), signal)).chunks(signal))).toString('latin1');

  it('is this text to the letter', async () => {
    expect(await sent(4, [Buffer.from('ab'), Buffer.from('cd')])).toBe(
      '{"template":"t","additional":{"flowdrop":{"pipeline":"p","upload":"u","generation":1}},"inputs":[{"additional":{},"data":"data:a/b;base64,YWJjZA=="}]}',
    );
    expect(await sent(2, [Buffer.from('"a')], 'text')).toBe(
      '{"template":"t","additional":{"flowdrop":{"pipeline":"p","upload":"u","generation":1}},"inputs":[{"additional":{},"data":"\\"a"}]}',
    );
  });

  it.each([1, 2, 3, 4, 5, 49_151, 49_152, 49_153])('is right in chunks of %i bytes', async (size) => {
    const chunk = Buffer.alloc(size, 'flowdrop');
    const count = Math.ceil(900_000 / size / (size < 10 ? 20 : 1));
    const whole = Buffer.concat(chunked(chunk, count));
    const body = await sent(whole.byteLength, chunked(chunk, count));
    expect(JSON.parse(body).inputs[0].data).toBe(`data:a/b;base64,${whole.toString('base64')}`);
  });

  it('is whole where what comes before the data is longer than a block', async () => {
    const parameters = { prompt: 'x'.repeat(600_000) };
    const body = await flowBody({ ...request(3, [Buffer.from('abc')]), parameters }, signal);
    const json = await collect(body.chunks(signal));
    expect(json.byteLength).toBe(body.bytes);
    expect(JSON.parse(json.toString())).toMatchObject({ parameters, inputs: [{ data: 'data:a/b;base64,YWJj' }] });
  });

  it('comes in blocks, each of which is left alone until the next but one is asked for', async () => {
    const whole = Buffer.alloc(2_000_000, 'flowdrop');
    const { bytes, chunks } = await flowBody(request(whole.byteLength, [whole]), signal);
    const blocks: Uint8Array[] = [];
    const copies: Buffer[] = [];
    for await (const block of chunks(signal)) {
      const before = copies.at(-1);
      if (before !== undefined) expect(before.equals(blocks.at(-1) as Uint8Array)).toBe(true);
      blocks.push(block);
      copies.push(Buffer.from(block));
    }
    expect(copies.reduce((sum, { byteLength }) => sum + byteLength, 0)).toBe(bytes);
    for (const { byteLength } of copies.slice(0, -1)) {
      expect(byteLength).toBeGreaterThan(256 * KIB - 4);
      expect(byteLength).toBeLessThanOrEqual(256 * KIB);
    }
    expect(copies.every(({ byteLength }) => byteLength > 0)).toBe(true);
  });

  it.each<[number, string, string]>([
    [3, 'abcd', 'The input is longer than the 3 bytes announced'],
    [5, 'abcd', 'The input ended 1 bytes short of the 5 announced'],
  ])('of %i bytes is never made of %j', async (bytes, text, message) => {
    for (const as of ['file', 'text'] as const) {
      const error = await sent(bytes, [Buffer.from(text)], as).catch((thrown: unknown) => thrown);
      expect(error).toBeInstanceOf(UnavailableError);
      expect(error).toMatchObject({ message, bodyStarted: true });
    }
  });

  it('of text that is none says so, and what it met', async () => {
    const error = await sent(1, [Buffer.from([0xff])], 'text').catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(InvalidTextError);
    expect(error).toMatchObject({ message: 'The text is not valid UTF-8', cause: expect.any(TypeError) });
  });
});
