import { type Blob, type Content, once, partOf } from './blob.ts';

/*
 * Binary glTF, by section 4 of the glTF 2.0 specification: a header of 12 bytes, a JSON chunk padded with spaces, and a
 * BIN chunk padded with zeros. Both chunks are padded to multiples of 4 bytes.
 */

const HEADER_BYTES = 12;
const CHUNK_HEADER_BYTES = 8;

const GENERATOR = 'flowdrop stand-in';

/** A new model has so many squares on each side, of two triangles each. */
const CELLS = 32;
/** The indices have 16 bits. */
const CELLS_MAX = 255;
/** Depth of the wave. The model is one unit wide. */
const WAVE = 0.12;

/** Tells whether these are the first bytes of a binary glTF of version 2. */
export function isGlb(head: Buffer): boolean {
  return head.length >= HEADER_BYTES && head.toString('latin1', 0, 4) === 'glTF' && head.readUInt32LE(4) === 2;
}

interface Flag {
  readonly extras: Record<string, unknown>;
  /** Red, green, blue and opacity, 0 to 1. */
  readonly colour: readonly number[];
  readonly picture?: { readonly mediaType: string; readonly content: Content } | undefined;
  /** Number of squares on each side. */
  readonly cells?: number;
}

/** A waving flag as binary glTF, with a colour or a picture. The picture is read only when the GLB is read. */
export function flagGlb({ cells = CELLS, ...flag }: Flag): Content {
  const { picture } = flag;
  const geometry = geometryOf(cells);
  const views = [geometry.positions, geometry.places, geometry.triangles].map(bytesOf);
  const geometryBytes = views.reduce((sum, view) => sum + view.length, 0);
  const pictureBytes = picture?.content.bytes ?? 0;
  const binBytes = padded(geometryBytes + pictureBytes);

  const json = Buffer.from(JSON.stringify(flagJson(flag, geometry, binBytes)));
  const jsonBytes = padded(json.length);
  const bytes = HEADER_BYTES + CHUNK_HEADER_BYTES + jsonBytes + CHUNK_HEADER_BYTES + binBytes;

  const head = Buffer.alloc(bytes - binBytes, ' ');
  head.write('glTF', 0, 'latin1');
  head.writeUInt32LE(2, 4);
  head.writeUInt32LE(bytes, 8);
  head.writeUInt32LE(jsonBytes, 12);
  head.write('JSON', 16, 'latin1');
  json.copy(head, 20);
  head.writeUInt32LE(binBytes, 20 + jsonBytes);
  head.write('BIN\0', 24 + jsonBytes, 'latin1');

  return {
    bytes,
    async *open() {
      yield* once(Buffer.concat([head, ...views]));
      if (picture) yield* picture.content.open();
      yield Buffer.alloc(binBytes - geometryBytes - pictureBytes);
    },
  };
}

interface Geometry {
  readonly positions: Float32Array;
  /** The place of each vertex in the picture. */
  readonly places: Float32Array;
  readonly triangles: Uint16Array;
}

function geometryOf(cells: number): Geometry {
  const row = cells + 1;
  const vertices = Array.from(
    { length: row * row },
    (_, i) => [(i % row) / cells, Math.floor(i / row) / cells] as const,
  );
  const squares = Array.from({ length: cells * cells }, (_, i) => Math.floor(i / cells) * row + (i % cells));
  return {
    positions: new Float32Array(
      vertices.flatMap(([x, y]) => [x - 0.5, 0.5 - y, WAVE * Math.sin(2 * Math.PI * (x + y / 4))]),
    ),
    places: new Float32Array(vertices.flat()),
    triangles: new Uint16Array(squares.flatMap((at) => [at, at + row, at + row + 1, at, at + row + 1, at + 1])),
  };
}

/** The JSON chunk: one mesh, whose buffer views are the geometry and, after it, the picture. */
function flagJson(
  { extras, colour, picture }: Flag,
  { positions, places, triangles }: Geometry,
  binBytes: number,
): object {
  const axes = [0, 1, 2].map((axis) => positions.filter((_, i) => i % 3 === axis));
  const count = positions.length / 3;
  const placesAt = positions.byteLength;
  const trianglesAt = placesAt + places.byteLength;
  const pictureAt = trianglesAt + triangles.byteLength;
  return {
    asset: { version: '2.0', generator: GENERATOR, extras },
    scene: 0,
    scenes: [{ nodes: [0] }],
    nodes: [{ mesh: 0 }],
    meshes: [
      {
        primitives: [
          {
            attributes: { POSITION: 0, ...(picture && { TEXCOORD_0: 2 }) },
            indices: 1,
            material: 0,
          },
        ],
      },
    ],
    materials: [
      {
        doubleSided: true,
        pbrMetallicRoughness: {
          baseColorFactor: colour,
          metallicFactor: 0,
          ...(picture && { baseColorTexture: { index: 0 } }),
        },
      },
    ],
    ...(picture && {
      textures: [{ source: 0 }],
      images: [{ bufferView: 3, mimeType: picture.mediaType }],
    }),
    accessors: [
      {
        bufferView: 0,
        componentType: 5126,
        count,
        type: 'VEC3',
        min: axes.map((values) => Math.min(...values)),
        max: axes.map((values) => Math.max(...values)),
      },
      { bufferView: 2, componentType: 5123, count: triangles.length, type: 'SCALAR' },
      ...(picture ? [{ bufferView: 1, componentType: 5126, count, type: 'VEC2' }] : []),
    ],
    bufferViews: [
      { buffer: 0, byteOffset: 0, byteLength: positions.byteLength, target: 34962 },
      { buffer: 0, byteOffset: placesAt, byteLength: places.byteLength, target: 34962 },
      { buffer: 0, byteOffset: trianglesAt, byteLength: triangles.byteLength, target: 34963 },
      ...(picture ? [{ buffer: 0, byteOffset: pictureAt, byteLength: picture.content.bytes }] : []),
    ],
    buffers: [{ byteLength: binBytes }],
  };
}

/**
 * A flag with fewer triangles. Any other model is returned unchanged, and so is a flag whose JSON is too long to be kept.
 * @param trianglesMax default: a quarter of its triangles.
 */
export function optimisedGlb(model: Blob, trianglesMax?: number): Content {
  const jsonBytes = model.head.readUInt32LE(12);
  const json = jsonOf(model.head.subarray(20, 20 + jsonBytes));
  if (json?.asset?.generator !== GENERATOR) return model;
  const { asset, accessors, materials, images, bufferViews } = json;
  const before = Math.sqrt(accessors?.[1]?.count / 6);
  const colour = materials?.[0]?.pbrMetallicRoughness?.baseColorFactor;
  const view = images === undefined ? undefined : bufferViews?.[3];
  if (!Number.isInteger(before) || before > CELLS_MAX || colour?.length !== 4) return model;
  const cells = Math.max(1, Math.floor(trianglesMax === undefined ? before / 2 : Math.sqrt(trianglesMax / 2)));
  return flagGlb({
    extras: asset.extras,
    colour,
    cells: Math.min(cells, before),
    ...(view && {
      picture: {
        mediaType: images[0].mimeType,
        content: partOf(model, 28 + jsonBytes + view.byteOffset, view.byteLength),
      },
    }),
  });
}

// biome-ignore lint/suspicious/noExplicitAny: what stands in it is checked where it is used.
function jsonOf(bytes: Buffer): any {
  try {
    return JSON.parse(bytes.toString('utf8'));
  } catch {
    return undefined; // It is no JSON, or its end was not kept.
  }
}

function bytesOf(array: Float32Array | Uint16Array): Buffer {
  return Buffer.from(array.buffer, array.byteOffset, array.byteLength);
}

function padded(bytes: number): number {
  return Math.ceil(bytes / 4) * 4;
}
