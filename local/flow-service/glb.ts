import { type Content, once } from './blob.ts';

/*
 * Binary glTF, by section 4 of the glTF 2.0 specification: a header of 12 bytes, a JSON chunk padded with spaces, and a
 * BIN chunk padded with zeros. Both chunks are padded to multiples of 4 bytes.
 */

const HEADER_BYTES = 12;
const CHUNK_HEADER_BYTES = 8;

/** Tells whether these are the first bytes of a binary glTF of version 2. */
export function isGlb(head: Buffer): boolean {
  return head.length >= HEADER_BYTES && head.toString('latin1', 0, 4) === 'glTF' && head.readUInt32LE(4) === 2;
}

interface Quad {
  readonly extras: Record<string, unknown>;
  /** Red, green, blue and opacity, 0 to 1. */
  readonly colour: readonly [number, number, number, number];
  readonly picture?: { readonly mediaType: 'image/png' | 'image/jpeg'; readonly content: Content } | undefined;
}

const POSITIONS = [-0.5, -0.5, 0, 0.5, -0.5, 0, 0.5, 0.5, 0, -0.5, 0.5, 0];
const TEXTURE_COORDINATES = [0, 1, 1, 1, 1, 0, 0, 0];
const TRIANGLES = [0, 1, 2, 0, 2, 3];

/** A square as binary glTF, with a colour or a picture. The picture is read only when the GLB is read. */
export function quadGlb({ extras, colour, picture }: Quad): Content {
  const geometry = Buffer.concat([
    bytesOf(new Float32Array(POSITIONS)),
    bytesOf(new Float32Array(TEXTURE_COORDINATES)),
    bytesOf(new Uint16Array(TRIANGLES)),
  ]);
  const pictureBytes = picture?.content.bytes ?? 0;
  const binBytes = padded(geometry.length + pictureBytes);

  const json = Buffer.from(JSON.stringify(quadJson({ extras, colour, picture }, geometry.length, binBytes)));
  const jsonBytes = padded(json.length);
  const bytes = HEADER_BYTES + CHUNK_HEADER_BYTES + jsonBytes + CHUNK_HEADER_BYTES + binBytes;

  const head = Buffer.alloc(bytes - binBytes + geometry.length, ' ');
  head.write('glTF', 0, 'latin1');
  head.writeUInt32LE(2, 4);
  head.writeUInt32LE(bytes, 8);
  head.writeUInt32LE(jsonBytes, 12);
  head.write('JSON', 16, 'latin1');
  json.copy(head, 20);
  head.writeUInt32LE(binBytes, 20 + jsonBytes);
  head.write('BIN\0', 24 + jsonBytes, 'latin1');
  geometry.copy(head, 28 + jsonBytes);

  return {
    bytes,
    async *open() {
      yield* once(head);
      if (picture) yield* picture.content.open();
      yield Buffer.alloc(binBytes - geometry.length - pictureBytes);
    },
  };
}

/** The JSON chunk: one mesh, whose buffer views are the geometry and, after it, the picture. */
function quadJson({ extras, colour, picture }: Quad, geometryBytes: number, binBytes: number): object {
  return {
    asset: { version: '2.0', generator: 'flowdrop stand-in', extras },
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
      { bufferView: 0, componentType: 5126, count: 4, type: 'VEC3', min: [-0.5, -0.5, 0], max: [0.5, 0.5, 0] },
      { bufferView: 2, componentType: 5123, count: 6, type: 'SCALAR' },
      ...(picture ? [{ bufferView: 1, componentType: 5126, count: 4, type: 'VEC2' }] : []),
    ],
    bufferViews: [
      { buffer: 0, byteOffset: 0, byteLength: 48, target: 34962 },
      { buffer: 0, byteOffset: 48, byteLength: 32, target: 34962 },
      { buffer: 0, byteOffset: 80, byteLength: 12, target: 34963 },
      ...(picture ? [{ buffer: 0, byteOffset: geometryBytes, byteLength: picture.content.bytes }] : []),
    ],
    buffers: [{ byteLength: binBytes }],
  };
}

function bytesOf(array: Float32Array | Uint16Array): Buffer {
  return Buffer.from(array.buffer, array.byteOffset, array.byteLength);
}

function padded(bytes: number): number {
  return Math.ceil(bytes / 4) * 4;
}
