import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { expect, it } from 'vitest';
import { dataUri, standIn } from './support.ts';

interface Report {
  readonly issues: { readonly numErrors: number; readonly numWarnings: number; readonly messages: unknown[] };
  readonly info: { readonly resources: readonly { readonly mimeType: string; readonly image?: object }[] };
}

// The Khronos validator has no types.
const { validateBytes } = createRequire(import.meta.url)('gltf-validator') as {
  validateBytes(bytes: Uint8Array): Promise<Report>;
};

const png = () => readFileSync(new URL('../../../examples/robot.png', import.meta.url));

/** One grey pixel: quantisation of ones, two Huffman tables of one code each, and a scan of those two codes. */
function jpeg(): Buffer {
  const segment = (marker: number, data: readonly number[]) => [0xff, marker, 0, data.length + 2, ...data];
  const huffman = (id: number) => segment(0xc4, [id, 1, ...Array.from({ length: 15 }, () => 0), 0]);
  return Buffer.from([
    ...[0xff, 0xd8],
    ...segment(0xe0, [0x4a, 0x46, 0x49, 0x46, 0, 1, 1, 0, 0, 1, 0, 1, 0, 0]),
    ...segment(0xdb, [0, ...Array.from({ length: 64 }, () => 1)]),
    ...segment(0xc0, [8, 0, 1, 0, 1, 1, 1, 0x11, 0]),
    ...huffman(0x00),
    ...huffman(0x10),
    ...segment(0xda, [1, 1, 0, 0, 63, 0]),
    ...[0x3f, 0xff, 0xd9],
  ]);
}

async function made(template: string, data: string, parameters: object = {}): Promise<Buffer> {
  const { create, download } = await standIn();
  const answer = await download(await create({ template, parameters, inputs: [{ data }] }));
  expect(answer.headers.get('content-type')).toBe('model/gltf-binary');
  return Buffer.from(await answer.arrayBuffer());
}

async function validate(glb: Buffer): Promise<Report> {
  const report = await validateBytes(new Uint8Array(glb));
  expect(report.issues.messages.filter((message) => (message as { severity: number }).severity < 2)).toEqual([]);
  return report;
}

function jsonOf(glb: Buffer) {
  return JSON.parse(glb.toString('utf8', 20, 20 + glb.readUInt32LE(12)));
}

it.each([
  ['image/png', png(), { width: 320, height: 320 }],
  ['image/jpeg', jpeg(), { width: 1, height: 1 }],
])('makes a valid GLB that contains the %s', async (mediaType, picture, size) => {
  const glb = await made('model_generate_fromimage', dataUri(mediaType, picture), { quality: 'low', seed: 7 });
  const { info } = await validate(glb);
  expect(info.resources).toContainEqual(
    expect.objectContaining({ mimeType: mediaType, image: expect.objectContaining(size) }),
  );
  expect(glb.includes(picture)).toBe(true);
  expect(jsonOf(glb).asset.extras).toEqual({ quality: 'low', seed: 7 });
});

it('makes a valid GLB without the picture from a TIFF or a WebP, or if texture is off', async () => {
  for (const [mediaType, picture, parameters] of [
    ['image/png', png(), { texture: false }],
    ['image/tiff', Buffer.from('II*\0and so on', 'latin1'), {}],
    ['image/tiff', Buffer.from('MM\0*and so on', 'latin1'), { texture: true }],
    ['image/webp', Buffer.from('RIFF....WEBPand so on', 'latin1'), {}],
  ] as const) {
    const glb = await made('model_generate_fromimage', dataUri(mediaType, picture), parameters);
    const { info } = await validate(glb);
    expect(info.resources.some(({ image }) => image !== undefined)).toBe(false);
  }
});

it('makes a valid GLB from a prompt, with the prompt in it and a colour of its own', async () => {
  const prompts = ['a red fox', 'ein Fuchs, „rot“ 🦊\n"\\'];
  const glbs = await Promise.all(prompts.map((prompt) => made('model_generate_fromprompt', prompt)));
  for (const [i, glb] of glbs.entries()) {
    await validate(glb);
    expect(jsonOf(glb).asset.extras).toEqual({ prompt: prompts[i] });
  }
  const [one, other] = glbs.map((glb) => jsonOf(glb).materials[0].pbrMetallicRoughness.baseColorFactor);
  expect(one).not.toEqual(other);
});

const trianglesOf = (glb: Buffer): number => jsonOf(glb).accessors[1].count / 3;

it.each([
  ['that is kept in memory', png(), 'image/png'],
  ['that is kept on the disk', Buffer.concat([jpeg(), Buffer.alloc(1_100_000)]), 'image/jpeg'],
])('optimises a model of its own %s: fewer triangles, and the same picture', async (_, picture, mediaType) => {
  const glb = await made('model_generate_fromimage', dataUri(mediaType, picture), { seed: 7 });
  const optimised = await made('model_optimize', dataUri('model/gltf-binary', glb));
  expect([trianglesOf(glb), trianglesOf(optimised)]).toEqual([2048, 512]);
  expect(optimised.length).toBeLessThan(glb.length);
  expect(optimised.includes(picture)).toBe(true);
  expect(jsonOf(optimised).asset.extras).toEqual({ seed: 7 });
  await validate(optimised);
  const small = await made('model_optimize', dataUri('model/gltf-binary', glb), { polygon_count: 10 });
  expect(trianglesOf(small)).toBe(8);
  await validate(small);
});

it('makes one model from several pictures, and one picture from several models', async () => {
  const { create, call, download } = await standIn();
  const inputs = [png(), png()].map((picture) => ({ data: dataUri('image/png', picture) }));
  const flow = await create({ template: 'model_generate_multiview', inputs });
  expect((await call('GET', `/flows/${flow}/outputs`)).json.outputs).toHaveLength(1);
  const model = Buffer.from(await (await download(flow)).arrayBuffer());
  const { info } = await validate(model);
  expect(info.resources.filter(({ image }) => image !== undefined)).toHaveLength(1);

  const data = dataUri('model/gltf-binary', model);
  const sheets = await create({ template: 'contact_sheet', inputs: [{ data }, { data }, { data }] });
  expect((await call('GET', `/flows/${sheets}/outputs`)).json.outputs).toHaveLength(1);
  const sheet = Buffer.from(await (await download(sheets)).arrayBuffer());
  expect(sheet.toString('latin1', 1, 4)).toBe('PNG');
  // Two tiles of 32 pixels in each direction, and gaps of 4.
  expect([sheet.readUInt32BE(16), sheet.readUInt32BE(20)]).toEqual([76, 76]);
});
