import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { InvalidTextError, UnavailableError } from '../../functions/flow-service/errors.ts';
import { flowBody } from '../../functions/flow-service/request-body.ts';
import type { CreateRequest, InputSource } from '../../functions/flow-service/types.ts';
import { collect, pieces, refilled } from './chunks.ts';

const never = new AbortController().signal;
const tag = { pipeline: 'test', upload: 'abc', generation: 2 };

const sourceOf = (bytes: Uint8Array, cuts: readonly number[] = [], announced = bytes.byteLength): InputSource => ({
  bytes: announced,
  // A source may use one buffer over and over, as S3's stream may.
  open: async () => refilled(pieces(bytes, cuts)),
});

const requestOf = (source: InputSource, more: Partial<CreateRequest['input']> = {}): CreateRequest => ({
  template: 'model_generate_fromimage',
  parameters: { quality: 'high', seed: 7 },
  additional: { project: 'ü "quoted"' },
  tag,
  input: { as: 'file', mediaType: 'image/png', source, additional: { bucket: 'inbox', key: 'a b.png' }, ...more },
});

/** The body and the length announced for it. */
async function encoded(request: CreateRequest): Promise<{ bytes: number; body: Buffer }> {
  const { bytes, chunks } = await flowBody(request, never);
  return { bytes, body: await collect(chunks(never)) };
}

/** What the specification and the public service want, made without any of the code under test. */
const expected = (data: string): object => ({
  template: 'model_generate_fromimage',
  parameters: { quality: 'high', seed: 7 },
  additional: { project: 'ü "quoted"', flowdrop: tag },
  inputs: [{ data, additional: { bucket: 'inbox', key: 'a b.png' } }],
});

describe('the body of a file', () => {
  it('is the JSON that holds it as a data URI, at exactly the length announced, however the file is cut', async () => {
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

  it('is whole across many blocks, whatever their borders cut', async () => {
    for (const length of [196_605, 196_606, 196_607, 262_144, 1_000_003]) {
      const bytes = Buffer.alloc(length, 'every byte counts; ');
      for (const size of [16_384, 65_536, 99_991, length]) {
        const cuts = Array.from({ length: Math.ceil(length / size) }, (_, index) => index * size);
        const { bytes: announced, body } = await encoded(requestOf(sourceOf(bytes, cuts)));
        expect(body.byteLength).toBe(announced);
        expect(JSON.parse(body.toString()).inputs[0].data).toBe(`data:image/png;base64,${bytes.toString('base64')}`);
      }
    }
  });

  it('keeps a block as it is until the next but one is asked for, and no longer than that holds many', async () => {
    const { chunks } = await flowBody(requestOf(sourceOf(Buffer.alloc(2_000_000, 'x'))), never);
    const blocks: { block: Uint8Array; copy: Buffer }[] = [];
    const memory = new Set<ArrayBufferLike>();
    for await (const block of chunks(never)) {
      const before = blocks.at(-1);
      if (before !== undefined) expect(Buffer.compare(before.block, before.copy)).toBe(0);
      blocks.push({ block, copy: Buffer.from(block) });
      memory.add(block.buffer);
    }
    expect(blocks.length).toBeGreaterThan(4);
    expect(memory.size).toBe(2);
  });

  it('is made anew from the start when it is asked for again', async () => {
    const body = await flowBody(requestOf(sourceOf(Buffer.from('once more'))), never);
    expect(await collect(body.chunks(never))).toEqual(await collect(body.chunks(never)));
  });

  it('takes no longer and no shorter file than announced, and says nothing of its end then', async () => {
    for (const announced of [8, 10, 0, 1_000]) {
      const { bytes, chunks } = await flowBody(requestOf(sourceOf(Buffer.from('nine byte'), [4], announced)), never);
      const received: Buffer[] = [];
      const reading = (async () => {
        for await (const chunk of chunks(never)) received.push(Buffer.from(chunk));
      })();
      await expect(reading).rejects.toThrow(UnavailableError);
      await expect(reading).rejects.toMatchObject({ bodyStarted: true });
      expect(Buffer.concat(received).byteLength).toBeLessThan(bytes);
    }
  });

  it.each([
    ['image/png; charset="x"', 'image/png;charset=x'],
    ['text/plain ; charset=utf-8', 'text/plain;charset=utf-8'],
    ['model/gltf-binary', 'model/gltf-binary'],
    ['image/svg+xml', 'image/svg+xml'],
    ['image/png,evil', 'application/octet-stream'],
    ['a"b/c', 'application/octet-stream'],
    ['', 'application/octet-stream'],
  ])('of media type %j is a data URI of %j', async (mediaType, inUri) => {
    const { body } = await encoded(requestOf(sourceOf(Buffer.from('hi')), { mediaType }));
    expect(JSON.parse(body.toString()).inputs[0].data).toBe(`data:${inUri};base64,aGk=`);
  });

  it('leaves out parameters that the route has none of, and keeps a null', async () => {
    const source = sourceOf(Buffer.from('hi'));
    const without = await encoded({ ...requestOf(source), parameters: undefined, additional: undefined });
    expect(JSON.parse(without.body.toString())).toMatchObject({ additional: { flowdrop: tag } });
    expect(JSON.parse(without.body.toString())).not.toHaveProperty('parameters');
    const withNull = await encoded({ ...requestOf(source), parameters: null });
    expect(JSON.parse(withNull.body.toString()).parameters).toBe(null);
  });

  it("lets nothing of the route's take the place of the tag", async () => {
    const request = { ...requestOf(sourceOf(Buffer.from('hi'))), additional: { flowdrop: 'mine', other: 1 } };
    expect(JSON.parse((await encoded(request)).body.toString()).additional).toEqual({ flowdrop: tag, other: 1 });
  });
});

describe('the body of a text', () => {
  it('is the JSON that holds it as a string, at exactly the length announced, however it is cut', async () => {
    await fc.assert(
      fc.asyncProperty(fc.string({ unit: 'binary', maxLength: 200 }), fc.array(fc.nat(400)), async (text, cuts) => {
        fc.pre(!text.startsWith('\uFEFF'));
        const { bytes, body } = await encoded(requestOf(sourceOf(Buffer.from(text), cuts), { as: 'text' }));
        expect(body.byteLength).toBe(bytes);
        expect(JSON.parse(body.toString())).toEqual(expected(text));
      }),
    );
  });

  it('leaves out a byte order mark', async () => {
    const { body } = await encoded(requestOf(sourceOf(Buffer.from('\uFEFFa prompt')), { as: 'text' }));
    expect(JSON.parse(body.toString()).inputs[0].data).toBe('a prompt');
  });

  it.each([
    ['a byte that never occurs', Buffer.from([0x61, 0xff])],
    ['a cut character', Buffer.from('ä').subarray(0, 1)],
    ['half of a surrogate pair', Buffer.from([0xed, 0xa0, 0x80])],
  ])('is refused before anything is sent if it is not UTF-8: %s', async (_, bytes) => {
    await expect(flowBody(requestOf(sourceOf(bytes), { as: 'text' }), never)).rejects.toThrow(InvalidTextError);
  });

  it('is refused if it is not as long as announced', async () => {
    for (const announced of [3, 9]) {
      const source = sourceOf(Buffer.from('prompt'), [], announced);
      await expect(flowBody(requestOf(source, { as: 'text' }), never)).rejects.toThrow(UnavailableError);
    }
  });
});
