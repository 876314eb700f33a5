import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { checkModel, ModelRefusedError } from '../../page/app/model-check.ts';
import { bomb, chunk, glb, triangle } from '../support/glb.ts';

const BYTES = new Uint8Array(36);
const check = (more: object, binary: Uint8Array = BYTES) => checkModel(glb(triangle(more), binary));
const file = (path: string) => new Uint8Array(readFileSync(fileURLToPath(new URL(path, import.meta.url))));
const repeated = <T>(count: number, value: T): readonly T[] => Array.from({ length: count }, () => value);

/** Heads of pictures that say how large they are. */
const png = (width: number, height: number): Buffer => {
  const head = Buffer.from('89504e470d0a1a0a0000000d49484452'.padEnd(66, '0'), 'hex');
  head.writeUInt32BE(width, 16);
  head.writeUInt32BE(height, 20);
  return head;
};
const JPEG = Buffer.from('ffd8ffe000040000ffffc000110840004000030000', 'hex'); // 16384 x 16384
const WEBP = Buffer.from('524946460000000057454250565038580a00000000000000ff3f00ff3f00', 'hex'); // 16384 x 16384
const KTX2 = Buffer.from('\xabKTX 20\xbb\r\n\x1a\n', 'latin1');
const pictured = (picture: Buffer, textures: number, uri?: string): readonly [object, Uint8Array] => [
  {
    images: [uri === undefined ? { bufferView: 1, mimeType: 'image/png' } : { uri }],
    textures: repeated(textures, { source: 0 }),
    bufferViews: [
      { buffer: 0, byteLength: 36 },
      { buffer: 0, byteOffset: 36, byteLength: picture.length },
    ],
  },
  Buffer.concat([BYTES, picture]),
];

const DRACO = 'KHR_draco_mesh_compression';
const MESHOPT = 'EXT_meshopt_compression';
const draco = (indices: number, positions: number, head: string): readonly [object, Uint8Array] => [
  {
    meshes: [
      {
        primitives: [
          {
            ...{ attributes: { POSITION: 0 }, indices: 1 },
            extensions: { [DRACO]: { bufferView: 0, attributes: { POSITION: 0 } } },
          },
        ],
      },
    ],
    accessors: [
      { componentType: 5126, count: positions, type: 'VEC3' },
      { componentType: 5125, count: indices, type: 'SCALAR' },
    ],
  },
  Buffer.concat([Buffer.from(head, 'hex'), Buffer.alloc(36)]),
];
/** Edgebreaker with 18 vertices and 32 faces. */
const DRACO_HEAD = '445241434f0202010100000012200000';

describe('a model is shown', () => {
  it.each(['../../examples/gem.glb', './browser/models/draco.glb', './browser/models/meshopt.glb'])(
    'if its parts are there: %s',
    (path) => expect(() => checkModel(file(path))).not.toThrow(),
  );

  it('if its buffers and pictures are data in it', () => {
    const buffers = [
      { byteLength: 36, uri: `data:application/octet-stream;base64,${Buffer.from(BYTES).toString('base64')}` },
    ];
    expect(() => checkModel(glb(triangle({ buffers })))).not.toThrow();
    expect(() => check(...pictured(png(4096, 4096), 16))).not.toThrow();
    expect(() => check(...pictured(JPEG, 1))).not.toThrow();
    expect(() => check(...pictured(WEBP, 1))).not.toThrow();
    expect(() =>
      check(...pictured(png(1, 1), 1, `data:image/png;base64,${png(1, 1).toString('base64')}`)),
    ).not.toThrow();
    expect(() => check(...draco(96, 88, DRACO_HEAD))).not.toThrow();
  });

  it('if it says less than it has', () => {
    expect(() => checkModel(glb({ asset: { version: '2.0' } }))).not.toThrow();
  });
});

describe('a model is not shown', () => {
  const accessor = (more: object) => ({
    accessors: [{ bufferView: 0, componentType: 5126, count: 3, type: 'VEC3', ...more }],
  });
  const sparse = (more: object) => ({
    count: 1,
    indices: { bufferView: 0, componentType: 5125 },
    values: { bufferView: 0 },
    ...more,
  });
  const meshopt = (count: number) => ({
    bufferViews: [
      { buffer: 0, byteLength: 36, extensions: { [MESHOPT]: { buffer: 0, byteLength: 36, byteStride: 16, count } } },
    ],
  });

  /** So many points, and their bytes. */
  const points = (count: number) => ({
    accessors: [{ bufferView: 0, componentType: 5126, count, type: 'VEC3' }],
    bufferViews: [{ buffer: 0, byteLength: 12 * count }],
  });
  const SHAPED = { attributes: { POSITION: 0 }, targets: [{ POSITION: 0 }] };

  const HOSTILE: readonly (readonly [name: string, why: string, more: object, binary?: Uint8Array])[] = [
    ['more elements than its view', 'does not hold', accessor({ count: 4 })],
    ['elements after the end of its view', 'does not hold', accessor({ byteOffset: 4 })],
    ['elements from before its view', 'no whole number', accessor({ byteOffset: -4 })],
    ['a count as a text', 'no whole number', accessor({ count: '3' })],
    ['half an element', 'no whole number', accessor({ count: 0.5 })],
    ['a type that is unknown', 'no whole number', accessor({ type: 'VEC9' })],
    [
      'a stride that makes its elements many',
      'does not hold',
      {
        ...accessor({}),
        bufferViews: [{ buffer: 0, byteLength: 36, byteStride: 252 }],
      },
    ],
    ['a view that its buffer does not hold', 'cut off', { bufferViews: [{ buffer: 0, byteLength: 40 }] }],
    ['a view of a buffer that is not there', 'does not have', { bufferViews: [{ buffer: 9, byteLength: 4 }] }],
    ['millions of zeros', 'more elements than its bytes', accessor({ bufferView: undefined, count: 30_000_000 })],
    [
      'millions of zeros with one value',
      'more elements than its bytes',
      accessor({
        ...{ bufferView: undefined, count: 30_000_000, sparse: sparse({}) },
      }),
    ],
    ['more changed values than it has', 'does not hold', accessor({ sparse: sparse({ count: 30_000_000 }) })],
    ['millions of elements in a meshopt view', 'more elements than its bytes', meshopt(30_000_000)],
    ['millions of Draco vertices', 'more elements than its bytes', ...draco(3, 30_000_000, DRACO_HEAD)],
    ['more Draco faces than it says', 'more than it says', ...draco(93, 88, DRACO_HEAD)],
    ['more Draco vertices than it says', 'more than it says', ...draco(96, 17, DRACO_HEAD)],
    [
      'a Draco mesh in sequence that is larger',
      'more than it says',
      ...draco(96, 88, '445241434f02020100000021ff000000'),
    ],
    ['a Draco mesh of another kind', 'not known here', ...draco(96, 88, '445241434f0202000100000012200000')],
    ['a Draco mesh with metadata', 'not known here', ...draco(96, 88, '445241434f0202010100800012200000')],
    ['a Draco mesh that is none', 'not known here', ...draco(96, 88, '00')],
    ['a buffer elsewhere', 'names other files', { buffers: [{ byteLength: 36, uri: 'a.bin' }] }],
    ['a picture of the API', 'names other files', { images: [{ uri: '/api/status' }] }],
    ['a picture elsewhere', 'names other files', { images: [{ uri: 'http://127.0.0.1:9/leak.png' }] }],
    ['a picture of another tab', 'names other files', { images: [{ uri: 'blob:http://127.0.0.1/x' }] }],
    ['a picture that is a list', 'names other files', { images: [{ uri: ['/api/status'] }] }],
    ['too many pictures', '1,000 pictures', { images: repeated(1_001, { bufferView: 0 }) }],
    ['pictures of too many pixels', 'pixels', ...pictured(png(4096, 4096), 17)],
    ['a picture of too many pixels', 'pixels', ...pictured(png(16385, 16384), 1)],
    ['JPEGs of too many pixels', 'pixels', ...pictured(JPEG, 2)],
    ['WebPs of too many pixels', 'pixels', ...pictured(WEBP, 2)],
    ['a picture of another kind', 'neither PNG', ...pictured(Buffer.from('<svg xmlns="x"/>'), 1)],
    ['a KTX2 texture', 'its textures are KTX2, which this page cannot decode', ...pictured(KTX2, 1)],
    ['a picture that is cut off', 'is cut off', ...pictured(JPEG.subarray(0, 12), 1)],
    ['a node below itself', 'below itself', { nodes: [{}, { children: [2] }, { children: [1] }] }],
    ['a node below two others', 'below two', { nodes: [{ children: [2] }, { children: [2] }, {}] }],
    ['a node that it does not have', 'does not have', { nodes: [{ children: [7] }] }],
    [
      'nodes that are too deep',
      '500 levels',
      {
        nodes: Array.from({ length: 600 }, (_, at) => (at === 599 ? {} : { children: [at + 1] })),
      },
    ],
    ['too many nodes', '200,000 parts', { nodes: repeated(200_001, {}) }],
    ['one node in a scene millions of times', '2,000,000 values', { scenes: [{ nodes: repeated(2_000_001, 0) }] }],
    [
      'too many parts to draw',
      '20,000 parts',
      {
        nodes: repeated(201, { mesh: 0 }),
        meshes: [{ primitives: repeated(100, { attributes: { POSITION: 0 } }) }],
      },
    ],
    [
      'millions of instances',
      '20,000,000 elements',
      {
        nodes: [{ mesh: 0, extensions: { EXT_mesh_gpu_instancing: { attributes: { TRANSLATION: 0 } } } }],
        meshes: [{ primitives: [{ attributes: { POSITION: 0 } }] }],
        ...points(5_000),
      },
      new Uint8Array(60_000),
    ],
    [
      'a shape too often',
      '20,000,000 elements',
      {
        meshes: [{ primitives: [{ attributes: { POSITION: 0 }, targets: repeated(5_000, { POSITION: 0 }) }] }],
        ...points(5_000),
      },
      new Uint8Array(60_000),
    ],
    [
      'key frames too often',
      '20,000,000 elements',
      {
        animations: [{ samplers: [{ input: 0, output: 0 }], channels: repeated(3_000, { sampler: 0, target: {} }) }],
        ...points(5_000),
      },
      new Uint8Array(60_000),
    ],
    [
      'joints too often',
      '20,000,000 elements',
      {
        nodes: repeated(500, { skin: 0 }),
        skins: [{ joints: repeated(50_000, 0) }],
      },
    ],
    [
      'weights that are set at many parts',
      'bytes of JSON',
      { meshes: [{ primitives: repeated(1_000, SHAPED), weights: repeated(50_000, 0) }] },
    ],
    [
      'weights of a node that are set at many parts',
      'bytes of JSON',
      { meshes: [{ primitives: repeated(1_000, SHAPED) }], nodes: [{ mesh: 0, weights: repeated(50_000, 0) }] },
    ],
    [
      'a text that is copied for many nodes',
      'bytes of JSON',
      {
        meshes: [{ primitives: [SHAPED], extras: { text: 'x'.repeat(1_000_000) } }],
        nodes: repeated(100, { mesh: 0 }),
      },
    ],
    [
      'many channels that move many parts',
      '200,000 tracks',
      {
        meshes: [{ primitives: repeated(1_000, SHAPED) }],
        animations: [
          {
            samplers: [{ input: 0, output: 0 }],
            channels: repeated(1_000, { sampler: 0, target: { node: 0, path: 'weights' } }),
          },
        ],
      },
    ],
    ['many scenes', '100 scenes', { scenes: repeated(101, {}) }],
    ['too many lights', '32 lights', { nodes: repeated(33, { extensions: { KHR_lights_punctual: { light: 0 } } }) }],
    ['a list that is an object', 'a list in it is no list', { nodes: { 0: { mesh: 0 } } }],
    ['an item that is none', 'a part of it is no object', { nodes: [null] }],
  ];

  it.each(HOSTILE.map(([name, why, more, binary]) => ({ name, why, more, binary })))('with $name', (each) => {
    const { why, more, binary } = each;
    expect(() => check(more, binary)).toThrow(ModelRefusedError);
    expect(() => check(more, binary)).toThrow(why);
  });

  it('with 30 million elements in 300 bytes', () => {
    expect(bomb().length).toBeLessThan(300);
    expect(() => checkModel(bomb())).toThrow('more elements than its bytes can hold');
  });

  it('if it is no whole binary glTF', () => {
    const whole = glb(triangle(), BYTES);
    for (let length = 0; length < whole.length; length += 1) {
      expect(() => checkModel(whole.subarray(0, length))).toThrow(ModelRefusedError);
    }
    expect(() => checkModel(Buffer.from(JSON.stringify(triangle())))).toThrow('no binary glTF');
    expect(() => checkModel(glb([]))).toThrow('a part of it is no object');
  });

  it('if it has a second JSON, which the viewer would take', () => {
    const text = Buffer.from(JSON.stringify(triangle()));
    const whole = Buffer.concat([glb(triangle(), BYTES), chunk('JSON', text)]);
    whole.writeUInt32LE(whole.length, 8);
    expect(() => checkModel(whole)).toThrow('it has a part twice');
  });

  it('whatever its JSON holds, without another error', () => {
    const names = 'nodes meshes accessors bufferViews buffers images textures animations skins'.split(' ');
    const value = fc.jsonValue({ maxDepth: 3 });
    fc.assert(
      fc.property(fc.dictionary(fc.constantFrom(...names), value), (more) => {
        try {
          check(more);
        } catch (error) {
          expect(error).toBeInstanceOf(ModelRefusedError);
        }
      }),
      { numRuns: 1_000 },
    );
  });
});
