/** Makes a binary glTF of its JSON and the bytes of its buffer. */
export function glb(json: object, binary: Uint8Array = new Uint8Array()): Uint8Array<ArrayBuffer> {
  const text = Buffer.from(JSON.stringify(json));
  const chunks = [
    chunk('JSON', padded(text, 0x20)),
    ...(binary.length === 0 ? [] : [chunk('BIN\0', padded(binary, 0))]),
  ];
  const header = Buffer.alloc(12);
  header.write('glTF', 0, 'latin1');
  header.writeUInt32LE(2, 4);
  header.writeUInt32LE(
    chunks.reduce((sum, each) => sum + each.length, header.length),
    8,
  );
  return new Uint8Array(Buffer.concat([header, ...chunks]));
}

export function chunk(type: string, body: Uint8Array): Buffer {
  const header = Buffer.alloc(8);
  header.writeUInt32LE(body.length, 0);
  header.write(type, 4, 'latin1');
  return Buffer.concat([header, body]);
}

const padded = (bytes: Uint8Array, filler: number): Buffer =>
  Buffer.concat([bytes, Buffer.alloc((4 - (bytes.length % 4)) % 4, filler)]);

/** The JSON of a triangle, whose positions are the 36 bytes of the buffer. */
export const triangle = (more: object = {}): object => ({
  asset: { version: '2.0' },
  scene: 0,
  scenes: [{ nodes: [0] }],
  nodes: [{ mesh: 0 }],
  meshes: [{ primitives: [{ attributes: { POSITION: 0 } }] }],
  accessors: [{ bufferView: 0, componentType: 5126, count: 3, type: 'VEC3', min: [0, 0, 0], max: [0, 0, 0] }],
  bufferViews: [{ buffer: 0, byteLength: 36 }],
  buffers: [{ byteLength: 36 }],
  ...more,
});

/** A model of 250 bytes that names 30 million vertices. */
export const bomb = (): Uint8Array<ArrayBuffer> =>
  glb({
    asset: { version: '2.0' },
    scenes: [{ nodes: [0] }],
    nodes: [{ mesh: 0 }],
    meshes: [{ primitives: [{ attributes: { POSITION: 0 } }] }],
    accessors: [{ componentType: 5126, count: 30_000_000, type: 'VEC3', min: [0, 0, 0], max: [1, 1, 1] }],
  });
