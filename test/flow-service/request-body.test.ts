import { randomBytes } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Json } from '../../functions/base/json.ts';
import { InvalidTextError, UnavailableError } from '../../functions/flow-service/errors.ts';
import { filled, flowBody } from '../../functions/flow-service/request-body.ts';
import { FLOWS } from '../../functions/flow-service/services.ts';
import type { CreateRequest, FlowInput, InputSource } from '../../functions/flow-service/types.ts';
import { collect, pieces, refilled, streamed } from './chunks.ts';

const never = new AbortController().signal;
const tag = { pipeline: 'test', upload: 'abc', generation: 2 };

const sourceOf = (bytes: Uint8Array, cuts: readonly number[] = [], announced = bytes.byteLength): InputSource => ({
  bytes: announced,
  // Like S3's stream, a source may reuse one buffer.
  open: async () => refilled(pieces(bytes, cuts)),
});

const requestOf = (source: InputSource, more: Partial<FlowInput> = {}): CreateRequest => ({
  template: 'model_generate_fromimage',
  parameters: { quality: 'high', seed: 7 },
  additional: { project: 'ü "quoted"' },
  tag,
  inputs: [{ as: 'file', mediaType: 'image/png', source, additional: { bucket: 'inbox', key: 'a b.png' }, ...more }],
});

const bodyOf = (request: CreateRequest, signal: AbortSignal) => flowBody(FLOWS.create.body, request, signal);

/** The body and the length announced for it. */
async function encoded(request: CreateRequest): Promise<{ bytes: number; body: Buffer }> {
  const { bytes, chunks } = await bodyOf(request, never);
  return { bytes, body: await collect(chunks(never)) };
}

/** The body that the specification and the public service expect, made without the code under test. */
const expected = (data: string): object => ({
  template: 'model_generate_fromimage',
  parameters: { quality: 'high', seed: 7 },
  additional: { project: 'ü "quoted"', flowdrop: tag },
  inputs: [{ data, additional: { bucket: 'inbox', key: 'a b.png' } }],
});

/** The error of a promise, as an object to match. */
const failureOf = (promise: Promise<unknown>): Promise<unknown> => promise.catch((error: unknown) => error);

describe('a described body', () => {
  const values = {
    ...{ '{template}': 't', '{parameters}': { seed: 7, mode: 'fast' }, '{inputs}': [{ data: 'a' }] },
    ...{ '{input}': 'a', '{inputUrl}': undefined, '{additional}': { by: 'us' } },
  };

  it.each<[string, Json, Json]>([
    ['its placeholders', { model: '{template}', input: { image: '{input}' } }, { model: 't', input: { image: 'a' } }],
    [
      'what is no placeholder',
      { n: 1, yes: true, no: null, text: 'a {template}' },
      { n: 1, yes: true, no: null, text: 'a {template}' },
    ],
    ['no member whose value is missing', { url: '{inputUrl}', model: '{template}' }, { model: 't' }],
    ['no item of a list whose value is missing', { urls: ['{inputUrl}', '{input}', 3] }, { urls: ['a', 3] }],
    [
      'the parameters beside its own members, which win',
      { mode: 'best', '...': '{parameters}' },
      { mode: 'best', seed: 7 },
    ],
    ['nothing in place of parameters that are missing', { '...': '{inputUrl}', mode: 'best' }, { mode: 'best' }],
    ['nothing in place of parameters that are no object', { '...': '{input}', mode: 'best' }, { mode: 'best' }],
  ])('has %s', (_, body, expected) => {
    expect(filled(body, values)).toStrictEqual(expected);
    expect(JSON.stringify(filled(body, values))).not.toContain('...');
  });
});

describe('a text', () => {
  const unfitOf = async (...texts: readonly string[]) => {
    const [input] = requestOf(sourceOf(Buffer.from('x')), { as: 'text' }).inputs as readonly [FlowInput];
    const inputs = texts.map((text) => ({ ...input, source: sourceOf(Buffer.from(text), [1]) }));
    return (await bodyOf({ ...requestOf(input.source), inputs }, never)).unfit;
  };

  it.each([' \n\t ', '\u00a0\r\n'])('of blanks alone is none: %j', async (text) => {
    expect(await unfitOf(text)).toMatchObject({ message: 'The text is blank', code: 'input-blank' });
  });

  it('with a NUL is none, and that is said first', async () => {
    expect(await unfitOf(' \0 ')).toMatchObject({ message: expect.stringMatching(/^The text has a NUL/) });
    expect(await unfitOf('a', ' ', 'b\0')).toMatchObject({ message: 'The text is blank' });
  });

  it.each(['a', ' a', '\na ', 'a b'])('with more than blanks is one: %j', async (text) => {
    expect(await unfitOf(text)).toBeUndefined();
  });
});

describe('the request body', () => {
  it('is this text to the letter', async () => {
    const start = '{"template":"t","additional":{"flowdrop":{"pipeline":"test","upload":"abc","generation":2}},';
    const request = (text: string, as: 'file' | 'text'): CreateRequest => ({
      template: 't',
      tag,
      inputs: [{ as, mediaType: 'a/b', source: sourceOf(Buffer.from(text)), additional: {} }],
    });
    const file = await encoded(request('abcd', 'file'));
    expect(file.body.toString()).toBe(`${start}"inputs":[{"additional":{},"data":"data:a/b;base64,YWJjZA=="}]}`);
    const text = await encoded(request('"a', 'text'));
    expect(text.body.toString()).toBe(`${start}"inputs":[{"additional":{},"data":"\\"a"}]}`);
  });

  it.each([
    ['longer', 3, 'The input is longer than the 3 bytes announced'],
    ['shorter', 5, 'The input ended 1 bytes short of the 5 announced'],
  ])('fails if the input is %s than announced', async (_, announced, message) => {
    for (const as of ['file', 'text'] as const) {
      const error = await failureOf(encoded(requestOf(sourceOf(Buffer.from('abcd'), [], announced), { as })));
      expect(error).toBeInstanceOf(UnavailableError);
      expect(error).toMatchObject({ message, bodyStarted: true });
    }
  });
});

describe('the body of a file', () => {
  it('is JSON with the file as a data URI, at exactly the announced length, in pieces of any size', async () => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 400 }), fc.array(fc.nat(400)), async (bytes, cuts) => {
        const { bytes: announced, body } = await encoded(requestOf(sourceOf(bytes, cuts)));
        expect(body.byteLength).toBe(announced);
        const data = `data:image/png;base64,${Buffer.from(bytes).toString('base64')}`;
        expect(JSON.parse(body.toString())).toEqual(expected(data));
      }),
      { numRuns: 300 },
    );
  });

  it.each<['file' | 'text', string]>([
    ['file', Buffer.from('a "b"').toString('base64')],
    ['text', 'a "b"'],
  ])('has a %s alone where the description wants no data URI', async (as, content) => {
    const body = { image: { content: '{inputBase64}', mimeType: 'image/png' } };
    const { bytes, chunks } = await flowBody(body, requestOf(sourceOf(Buffer.from('a "b"')), { as }), never);
    const sent = await collect(chunks(never));
    expect(JSON.parse(sent.toString())).toEqual({ image: { content, mimeType: 'image/png' } });
    expect(sent.byteLength).toBe(bytes);
  });

  it('is whole across many blocks, wherever chunks and slices end', async () => {
    for (const length of [196_605, 196_606, 196_607, 1_000_003]) {
      const bytes = Buffer.alloc(length, 'every byte counts; ');
      for (const size of [16_384, 49_151, 49_152, 49_153, 65_536, length]) {
        const cuts = Array.from({ length: Math.ceil(length / size) }, (_, index) => index * size);
        const { bytes: announced, body } = await encoded(requestOf(sourceOf(bytes, cuts)));
        expect(body.byteLength).toBe(announced);
        expect(JSON.parse(body.toString()).inputs[0].data).toBe(`data:image/png;base64,${bytes.toString('base64')}`);
      }
    }
  });

  it('is whole if the text before the data is longer than a block', async () => {
    const parameters = { prompt: 'x'.repeat(600_000) };
    const { bytes, body } = await encoded({ ...requestOf(sourceOf(Buffer.from('abc'))), parameters });
    expect(body.byteLength).toBe(bytes);
    expect(JSON.parse(body.toString())).toMatchObject({
      parameters,
      inputs: [{ data: 'data:image/png;base64,YWJj' }],
    });
  });

  it('comes in two buffers that take turns, each untouched until the next but one is asked for', async () => {
    const { bytes, chunks } = await bodyOf(requestOf(sourceOf(Buffer.alloc(2_000_000, 'flowdrop'))), never);
    const blocks: { block: Uint8Array; copy: Buffer }[] = [];
    for await (const block of chunks(never)) {
      const before = blocks.at(-1);
      if (before !== undefined) expect(before.copy.equals(before.block)).toBe(true);
      blocks.push({ block, copy: Buffer.from(block) });
    }
    expect(new Set(blocks.map(({ block }) => block.buffer)).size).toBe(2);
    const sizes = blocks.map(({ copy }) => copy.byteLength);
    expect(sizes.reduce((sum, size) => sum + size, 0)).toBe(bytes);
    expect(Math.min(...sizes.slice(0, -1))).toBeGreaterThan(256 * 1024 - 4);
    expect(Math.max(...sizes)).toBeLessThanOrEqual(256 * 1024);
    expect(sizes.at(-1)).toBeGreaterThan(0);
  });

  it('starts again from the beginning when it is asked for again', async () => {
    const body = await bodyOf(requestOf(sourceOf(Buffer.from('once more'))), never);
    const [once, again] = [await collect(body.chunks(never)), await collect(body.chunks(never))];
    expect(again.equals(once)).toBe(true);
  });

  it('never ends if the file is not as long as announced', async () => {
    for (const announced of [8, 10, 0, 1_000]) {
      const { bytes, chunks } = await bodyOf(requestOf(sourceOf(Buffer.from('nine byte'), [4], announced)), never);
      const received: Buffer[] = [];
      const reading = (async () => {
        for await (const chunk of chunks(never)) received.push(Buffer.from(chunk));
      })();
      await expect(reading).rejects.toThrow(UnavailableError);
      expect(Buffer.concat(received).byteLength).toBeLessThan(bytes);
    }
  });

  it.each([
    ['image/png; charset="x"', 'image/png;charset=x'],
    ['text/plain ; charset=utf-8', 'text/plain;charset=utf-8'],
    ['model/gltf-binary', 'model/gltf-binary'],
    ['image/svg+xml', 'image/svg+xml'],
    ['image/*', 'image/*'],
    ['IMAGE/PNG', 'IMAGE/PNG'],
    [`image/png;a=${'b'.repeat(250)}`, 'image/png'],
    [`a/${'b'.repeat(260)}`, 'application/octet-stream'],
    ['garbage', 'application/octet-stream'],
    ['image/png,evil', 'application/octet-stream'],
    ['a"b/c', 'application/octet-stream'],
    ['', 'application/octet-stream'],
  ])('of media type %j is a data URI of %j', async (mediaType, inUri) => {
    const { body } = await encoded(requestOf(sourceOf(Buffer.from('hi')), { mediaType }));
    expect(JSON.parse(body.toString()).inputs[0].data).toBe(`data:${inUri};base64,aGk=`);
  });

  it('leaves out missing parameters, and keeps a null', async () => {
    const source = sourceOf(Buffer.from('hi'));
    const without = await encoded({ ...requestOf(source), parameters: undefined, additional: undefined });
    expect(JSON.parse(without.body.toString())).toMatchObject({ additional: { flowdrop: tag } });
    expect(JSON.parse(without.body.toString())).not.toHaveProperty('parameters');
    const withNull = await encoded({ ...requestOf(source), parameters: null });
    expect(JSON.parse(withNull.body.toString()).parameters).toBe(null);
  });

  it("keeps the tag if the route's own data has the same name", async () => {
    const request = { ...requestOf(sourceOf(Buffer.from('hi'))), additional: { flowdrop: 'mine', other: 1 } };
    expect(JSON.parse((await encoded(request)).body.toString()).additional).toEqual({ flowdrop: tag, other: 1 });
  });
});

describe('the body of a text', () => {
  it('is JSON with the text as a string, at exactly the announced length, in pieces of any size', async () => {
    await fc.assert(
      fc.asyncProperty(fc.string({ unit: 'binary', maxLength: 200 }), fc.array(fc.nat(400)), async (text, cuts) => {
        fc.pre(!text.startsWith('\uFEFF'));
        const { bytes, body } = await encoded(requestOf(sourceOf(Buffer.from(text), cuts), { as: 'text' }));
        expect(body.byteLength).toBe(bytes);
        expect(JSON.parse(body.toString())).toEqual(expected(text));
      }),
    );
  });

  it('is whole if it is long, wherever its chunks end', async () => {
    const bytes = Buffer.from('\uFEFF"Käse" für 5 €, 🧀\n'.repeat(60_000));
    for (const size of [16_384, 65_537, 1_000_003, bytes.byteLength]) {
      const cuts = Array.from({ length: Math.ceil(bytes.byteLength / size) }, (_, index) => index * size);
      const { bytes: announced, body } = await encoded(requestOf(sourceOf(bytes, cuts), { as: 'text' }));
      expect(body.byteLength).toBe(announced);
      // Only the first byte order mark is one. The others are characters of the text.
      expect(JSON.parse(body.toString()).inputs[0].data).toBe(bytes.subarray(3).toString());
    }
  });

  it('starts again from the beginning when it is asked for again, long or short', async () => {
    for (const text of ['once more', 'once more '.repeat(200_000)]) {
      const body = await bodyOf(requestOf(sourceOf(Buffer.from(text)), { as: 'text' }), never);
      const [once, again] = [await collect(body.chunks(never)), await collect(body.chunks(never))];
      expect(again.equals(once)).toBe(true);
    }
  });

  it('that is long never ends if it is shorter at the second reading', async () => {
    const bytes = Buffer.alloc(2_000_000, 'x');
    let openings = 0;
    const source: InputSource = {
      bytes: bytes.byteLength,
      open: async () => refilled(pieces(openings++ === 0 ? bytes : bytes.subarray(1), [])),
    };
    await expect(encoded(requestOf(source, { as: 'text' }))).rejects.toThrow(UnavailableError);
  });

  it('leaves out a byte order mark', async () => {
    const { body } = await encoded(requestOf(sourceOf(Buffer.from('\uFEFFa prompt')), { as: 'text' }));
    expect(JSON.parse(body.toString()).inputs[0].data).toBe('a prompt');
  });

  it('fails before anything is sent if it is not UTF-8', async () => {
    const surrogate = Buffer.from([0xed, 0xa0, 0x80]);
    const cut = Buffer.from('ä').subarray(0, 1);
    for (const bytes of [Buffer.from([0x61, 0xff]), cut, surrogate, Buffer.alloc(2_000_000, 0xff)]) {
      const error = await failureOf(bodyOf(requestOf(sourceOf(bytes), { as: 'text' }), never));
      expect(error).toBeInstanceOf(InvalidTextError);
      expect(error).toMatchObject({ message: 'The text is not valid UTF-8', cause: expect.any(TypeError) });
    }
  });
});

it.each(['a red chair', 'ein grüner Stuhl', '写真\n', 'a'])(
  'a text in UTF-16 without a byte order mark is refused before anything is sent: %s',
  async (text) => {
    for (const bytes of [Buffer.from(text, 'utf16le'), Buffer.from(text, 'utf16le').swap16()]) {
      const body = bodyOf(requestOf(sourceOf(bytes), { as: 'text' }), never);
      const error = await body.then(
        ({ unfit }) => unfit,
        (thrown: unknown) => thrown,
      );
      expect(error).toBeInstanceOf(InvalidTextError);
    }
  },
);

describe('the request body of several inputs', () => {
  const LONG = 'ü'.repeat(400_000);
  it('has them one after the other, each in its own form', async () => {
    const input = (as: 'file' | 'text', text: string, name: string): FlowInput => ({
      as,
      mediaType: 'text/plain',
      source: sourceOf(Buffer.from(text)),
      additional: { name },
    });
    // The long texts exceed together what is kept in memory.
    const inputs = [
      input('file', 'abcd', 'a'),
      input('text', LONG, 'b'),
      input('file', 'x', 'c'),
      input('text', LONG, 'd'),
    ];
    const { bytes, body } = await encoded({ template: 't', tag, inputs });
    expect(body.byteLength).toBe(bytes);
    expect(JSON.parse(body.toString()).inputs).toEqual([
      { additional: { name: 'a' }, data: 'data:text/plain;base64,YWJjZA==' },
      { additional: { name: 'b' }, data: LONG },
      { additional: { name: 'c' }, data: 'data:text/plain;base64,eA==' },
      { additional: { name: 'd' }, data: LONG },
    ]);
  });

  it('has the text of a placeholder where its braces are doubled', async () => {
    const body = { file: '{input}', literal: '{{input}}', prompt: '{{prompt}}' };
    const { chunks } = await flowBody(body, requestOf(sourceOf(Buffer.from('abc'))), never);
    expect(JSON.parse((await collect(chunks(never))).toString())).toEqual({
      ...{ file: 'data:image/png;base64,YWJj', literal: '{input}', prompt: '{prompt}' },
    });
  });

  it('has none of them if the request has none', async () => {
    const body = { inputs: '{inputs}', image: '{input}', prompt: 'a red chair' };
    const { bytes, chunks } = await flowBody(body, { template: 't', tag, inputs: [] }, never);
    const text = '{"inputs":[],"prompt":"a red chair"}';
    expect([bytes, (await collect(chunks(never))).toString()]).toEqual([text.length, text]);
  });

  it('opens one input after the other has ended', async () => {
    const order: string[] = [];
    const named = (name: string): FlowInput => ({
      ...{ as: 'file', mediaType: 'a/b', additional: {} },
      source: {
        bytes: 3,
        async open() {
          order.push(`opens ${name}`);
          return (async function* () {
            yield Buffer.from('abc');
            order.push(`ends ${name}`);
          })();
        },
      },
    });
    await encoded({ template: 't', tag, inputs: [named('one'), named('two')] });
    expect(order).toEqual(['opens one', 'ends one', 'opens two', 'ends two']);
  });

  it('is sent while its inputs are read, so that the connection is not idle for as long as that takes', async () => {
    let opened = 0;
    const counted = (bytes: Uint8Array): InputSource => ({
      bytes: bytes.byteLength,
      async open() {
        opened += 1;
        return streamed([bytes]);
      },
    });
    const request = requestOf(sourceOf(Buffer.alloc(0)));
    const [first] = request.inputs;
    const inputs = Array.from({ length: 120 }, () => ({ ...(first as FlowInput), source: counted(randomBytes(600)) }));
    const body = await bodyOf({ ...request, inputs }, never);
    const openedBefore: number[] = [];
    let bytes = 0;
    for await (const chunk of body.chunks(never)) {
      openedBefore.push(opened);
      bytes += chunk.byteLength;
    }
    expect(bytes).toBe(body.bytes);
    // 16 KiB hold some 20 of these inputs.
    const between = openedBefore.map((count, at) => count - (openedBefore[at - 1] ?? 0));
    expect(Math.max(...between)).toBeLessThan(25);
  });

  it('reads a text once while it fits into 1 MiB with the others, and twice if not', async () => {
    const MIB = 1024 * 1024;
    const timesOpened = async (...sizes: readonly number[]): Promise<readonly number[]> => {
      const times = sizes.map(() => 0);
      const inputs = sizes.map((size, at): FlowInput => {
        const { bytes, open } = sourceOf(Buffer.alloc(size, 'a'));
        const counted = (signal: AbortSignal) => {
          times[at] = (times[at] ?? 0) + 1;
          return open(signal);
        };
        return { as: 'text', mediaType: 'text/plain', additional: {}, source: { bytes, open: counted } };
      });
      await encoded({ template: 't', tag, inputs });
      return times;
    };
    expect(await timesOpened(MIB)).toEqual([1]);
    expect(await timesOpened(MIB + 1)).toEqual([2]);
    expect(await timesOpened(MIB - 10, 11, 10)).toEqual([1, 2, 1]);
  });
});
