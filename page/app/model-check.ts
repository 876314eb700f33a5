/**
 * Checks a 3D model (binary glTF) before the viewer gets it. A few bytes can name millions of elements, or the same
 * elements thousands of times, and the tab would hang while the viewer makes them. So every count is compared with the
 * bytes that hold the elements, and elements count as often as they are used. A model may load nothing but itself. What
 * the check does not understand is not shown.
 * @see https://registry.khronos.org/glTF/specs/2.0/glTF-2.0.html
 */

/** Maximum size of the JSON of a model, in bytes. */
const JSON_BYTES_MAX = 16 * 1024 * 1024;
/** Maximum number of objects in the JSON: nodes, meshes, materials and all their parts. */
const OBJECTS_MAX = 200_000;
/** Maximum number of values in the lists of the JSON, such as children of nodes. */
const VALUES_MAX = 2_000_000;
/** Maximum depth of nested nodes. The viewer walks through them by recursion. */
const DEPTH_MAX = 500;
/** Maximum number of vertices, indices, key frames, instances and joints. */
const ELEMENTS_MAX = 20_000_000;
/** Maximum number of parts that are drawn one by one. */
const DRAWS_MAX = 20_000;
/** Maximum number of tracks of all animations. One channel moves each part of its mesh by a track of its own. */
const TRACKS_MAX = 200_000;
/** Maximum number of bytes of JSON that the viewer reads again for each part or copies for each use of a mesh. */
const COPIED_BYTES_MAX = 64 * 1024 * 1024;
/** Maximum number of scenes. The viewer shows one, but looks at all materials once more for each. */
const SCENES_MAX = 100;
/** Maximum number of lights. Each one makes every shader longer. */
const LIGHTS_MAX = 32;
/** Maximum number of pixels of all textures. Sixteen textures of 4096 x 4096 take 1 GiB of memory. */
const PIXELS_MAX = 2 ** 28;
/** Maximum number of pictures. Each one is checked, and decoded by the viewer. */
const PICTURES_MAX = 1_000;
/** Number of bytes at the beginning of a picture that must hold its size. Profiles and previews may come before it. */
const PICTURE_HEAD_BYTES_MAX = 256 * 1024;
/** The first bytes of a KTX2 texture. Its decoder would make code from strings, which the page forbids. */
const KTX = 0xab4b5458;
/** Maximum number of bytes in memory for each byte of a file. Draco makes about 20 of one, meshopt 5. */
const EXPANSION_MAX = 128;
/** Bytes in memory that a model may need beyond its own size. Sparse accessors are mostly zeros, for example. */
const FREE_BYTES = 4 * 1024 * 1024;

/** The model is damaged, too large for the viewer, or names other files. The message is a sentence for a person. */
export class ModelRefusedError extends Error {
  override readonly name = 'ModelRefusedError';
  constructor(why: string) {
    super(`The model is not shown: ${why}. Download it to open it.`);
  }
}

type Item = Readonly<Record<string, unknown>>;

/** What one use of a mesh costs. */
interface MeshCost {
  readonly elements: number;
  readonly draws: number;
  readonly copiedBytes: number;
}

const COMPONENT_BYTES: Readonly<Record<number, number>> = { 5120: 1, 5121: 1, 5122: 2, 5123: 2, 5125: 4, 5126: 4 };
const COMPONENTS: Readonly<Record<string, number>> = {
  ...{ SCALAR: 1, VEC2: 2, VEC3: 3, VEC4: 4, MAT2: 4, MAT3: 9, MAT4: 16 },
};

/** @throws {ModelRefusedError} */
export const checkModel = (model: Uint8Array): void => new Model(model).check();

class Model {
  readonly #json: Item;
  readonly #lists = new Map<string, readonly Item[]>();
  readonly #buffers: readonly Uint8Array[];
  /** Number of bytes of each view of a buffer in memory, decompressed. */
  readonly #viewBytes: readonly number[];
  readonly #meshes = new Map<unknown, MeshCost>();
  readonly #bytes: number;
  #picturePixels: readonly number[] = [];
  #madeBytes = 0;
  #elements = 0;
  #draws = 0;
  #tracks = 0;
  #copiedBytes = 0;
  #pixels = 0;

  constructor(model: Uint8Array) {
    const { json, binary } = chunksOf(model);
    this.#json = json;
    this.#bytes = model.length;
    countValues(json);
    this.#buffers = this.#list('buffers').map(({ uri }, at) =>
      uri === undefined ? ((at === 0 ? binary : undefined) ?? new Uint8Array()) : bytesIn(uri),
    );
    this.#viewBytes = this.#list('bufferViews').map((view) => this.#bytesOfView(view));
  }

  check(): void {
    for (const each of this.#list('accessors')) this.#checkAccessor(each);
    for (const mesh of this.#list('meshes')) for (const each of items(mesh.primitives)) this.#checkDraco(each);
    const pictures = this.#list('images');
    requireAtMost(PICTURES_MAX, pictures.length, 'pictures');
    this.#picturePixels = pictures.map(({ uri, bufferView }) =>
      pixelsOf(uri === undefined ? this.#slice(bufferView) : bytesIn(uri)),
    );
    for (const each of this.#list('textures')) this.#countPixels(each);
    for (const each of this.#list('animations')) this.#countKeyFrames(each);
    requireAtMost(SCENES_MAX, this.#list('scenes').length, 'scenes');
    checkTree(this.#list('nodes'));
    for (const each of this.#list('nodes')) this.#countNode(each);
    const lights = this.#list('nodes').filter((each) => extension(each, 'KHR_lights_punctual') !== undefined);
    requireAtMost(LIGHTS_MAX, lights.length, 'lights');
  }

  #list(name: string): readonly Item[] {
    const list = this.#lists.get(name) ?? items(this.#json[name]);
    this.#lists.set(name, list);
    return list;
  }

  /** The item that an index names. */
  #at(name: string, index: unknown): Item {
    return member(this.#list(name), index);
  }

  #addElements(count: number): void {
    this.#elements += count;
    requireAtMost(ELEMENTS_MAX, this.#elements, 'elements');
  }

  /** Counts bytes that no byte of the file stands for. */
  #addMade(bytes: number): void {
    this.#madeBytes += bytes;
    if (this.#madeBytes <= FREE_BYTES + this.#bytes * EXPANSION_MAX) return;
    throw new ModelRefusedError('it names more elements than its bytes can hold');
  }

  #bytesOfView(view: Item): number {
    const compressed = extension(view, 'EXT_meshopt_compression') ?? extension(view, 'KHR_meshopt_compression');
    const { buffer, byteOffset, byteLength } = compressed ?? view;
    const bytes = whole(byteLength);
    if (whole(byteOffset, 0) + bytes > member(this.#buffers, buffer).length) throw damaged('a part of it is cut off');
    if (compressed === undefined) return bytes;
    const decompressed = whole(compressed.count) * whole(compressed.byteStride);
    this.#addMade(decompressed);
    return decompressed;
  }

  #checkAccessor(accessor: Item): void {
    const { bufferView, sparse } = accessor;
    const count = whole(accessor.count);
    const components = COMPONENTS[String(accessor.type)] ?? Number.NaN;
    const element = whole(components * componentBytes(accessor));
    if (bufferView !== undefined) this.#requireFit(accessor, count, element);
    // Without a view, all are zeros, or Draco holds them. With some other values, the viewer makes a copy.
    if (bufferView === undefined || sparse !== undefined) this.#addMade(count * element);
    if (sparse === undefined) return;
    const { count: changed, indices, values } = item(sparse);
    this.#requireFit(item(indices), whole(changed), componentBytes(item(indices)));
    this.#requireFit(item(values), whole(changed), element);
  }

  #requireFit({ bufferView, byteOffset }: Item, count: number, element: number): void {
    const stride = whole(this.#at('bufferViews', bufferView).byteStride, 0) || element;
    const end = whole(byteOffset, 0) + Math.max(0, count - 1) * stride + Math.min(count, 1) * element;
    if (end > member(this.#viewBytes, bufferView)) throw damaged('it names elements that it does not hold');
  }

  /** The bytes of a view that is not compressed. */
  #slice(index: unknown): Uint8Array {
    const { buffer, byteOffset, byteLength } = this.#at('bufferViews', index);
    const from = whole(byteOffset, 0);
    return member(this.#buffers, buffer).subarray(from, from + whole(byteLength));
  }

  /** What Draco holds must not be more than the accessors say, which are checked. */
  #checkDraco(primitive: Item): void {
    const draco = extension(primitive, 'KHR_draco_mesh_compression');
    if (draco === undefined) return;
    const { faces, vertices } = dracoCounts(this.#slice(draco.bufferView));
    const indices = whole(this.#at('accessors', primitive.indices).count);
    const positions = whole(this.#at('accessors', item(primitive.attributes).POSITION).count);
    if (faces * 3 > indices || vertices > positions) throw damaged('it holds more than it says');
  }

  #countPixels(texture: Item): void {
    const others = Object.values(texture.extensions === undefined ? {} : item(texture.extensions));
    for (const { source } of [texture, ...others.map(item)]) {
      if (source === undefined) continue;
      this.#pixels += member(this.#picturePixels, source);
      requireAtMost(PIXELS_MAX, this.#pixels, 'pixels in its textures');
    }
  }

  #countKeyFrames({ channels, samplers }: Item): void {
    const list = items(samplers);
    for (const { sampler, target } of items(channels)) {
      const { node } = target === undefined ? {} : item(target);
      const { mesh } = node === undefined ? {} : this.#at('nodes', node);
      this.#tracks += mesh === undefined ? 1 : this.#costOf(mesh).draws;
      requireAtMost(TRACKS_MAX, this.#tracks, 'tracks in its animations');
      const { input, output } = member(list, sampler);
      this.#addElements(whole(this.#at('accessors', input).count) + whole(this.#at('accessors', output).count));
    }
  }

  /** Counts what a node draws. */
  #countNode(node: Item): void {
    if (node.skin !== undefined) this.#addElements(values(this.#at('skins', node.skin).joints).length);
    if (node.mesh === undefined) return;
    const instancing = extension(node, 'EXT_mesh_gpu_instancing');
    const instances = instancing === undefined ? 0 : this.#countOf(instancing.attributes);
    const mesh = this.#costOf(node.mesh);
    this.#addElements(mesh.elements * Math.max(1, instances) + instances);
    this.#draws += mesh.draws;
    requireAtMost(DRAWS_MAX, this.#draws, 'parts');
    this.#copiedBytes += mesh.copiedBytes + jsonLength(node.weights) * mesh.draws;
    requireAtMost(COPIED_BYTES_MAX, this.#copiedBytes, 'bytes of JSON in its meshes');
  }

  #costOf(index: unknown): MeshCost {
    const cost = this.#meshes.get(index) ?? this.#meshCost(this.#at('meshes', index));
    this.#meshes.set(index, cost);
    return cost;
  }

  #meshCost({ primitives, ...own }: Item): MeshCost {
    const parts = items(primitives);
    let elements = 0;
    for (const { attributes, indices, targets } of parts) {
      const shapes = targets === undefined ? [] : items(targets);
      elements += this.#countOf(attributes) * (1 + shapes.length);
      for (const each of shapes) elements += this.#countOf(each);
      if (indices !== undefined) elements += whole(this.#at('accessors', indices).count);
    }
    // Weights and extras are set at each part.
    return { elements, draws: parts.length, copiedBytes: jsonLength(own) * parts.length + jsonLength(primitives) };
  }

  /** The largest count of the accessors that attributes name. */
  #countOf(attributes: unknown): number {
    const counts = Object.values(item(attributes)).map((index) => whole(this.#at('accessors', index).count));
    return counts.reduce((largest, each) => Math.max(largest, each), 0);
  }
}

const GLB_MAGIC = 0x46546c67;
const JSON_CHUNK = 0x4e4f534a;
const BINARY_CHUNK = 0x004e4942;
const GLB_HEADER_BYTES = 12;
const CHUNK_HEADER_BYTES = 8;

/** The two parts of a binary glTF. If one came twice, the check and the viewer could read different ones. */
function chunksOf(model: Uint8Array): { readonly json: Item; readonly binary: Uint8Array | undefined } {
  const view = viewOf(model);
  if (model.length < GLB_HEADER_BYTES || view.getUint32(0, true) !== GLB_MAGIC || view.getUint32(4, true) !== 2) {
    throw damaged('it is no binary glTF of version 2');
  }
  // As for the viewer, more bytes may follow.
  const length = view.getUint32(8, true);
  const chunks = new Map<number, Uint8Array>();
  for (let at = GLB_HEADER_BYTES, end = at; at < length; at = end) {
    const isHeaderThere = at + CHUNK_HEADER_BYTES <= model.length;
    end = at + CHUNK_HEADER_BYTES + (isHeaderThere ? view.getUint32(at, true) : 0);
    if (end > model.length) throw damaged('a part of it is cut off');
    const type = view.getUint32(at + 4, true);
    if (chunks.has(type)) throw damaged('it has a part twice');
    chunks.set(type, model.subarray(at + CHUNK_HEADER_BYTES, end));
  }
  const text = chunks.get(JSON_CHUNK) ?? new Uint8Array();
  requireAtMost(JSON_BYTES_MAX, text.length, 'bytes of JSON');
  let json: unknown;
  try {
    json = JSON.parse(new TextDecoder().decode(text));
  } catch {
    throw damaged('its JSON cannot be read');
  }
  return { json: item(json), binary: chunks.get(BINARY_CHUNK) };
}

function countValues(json: Item): void {
  let objects = 0;
  let inLists = 0;
  const left: object[] = [json];
  for (let value = left.pop(); value !== undefined; value = left.pop()) {
    const members: readonly unknown[] = Object.values(value);
    if (Array.isArray(value)) inLists += members.length;
    else objects += 1;
    requireAtMost(OBJECTS_MAX, objects, 'parts');
    requireAtMost(VALUES_MAX, inLists, 'values');
    for (const each of members) if (typeof each === 'object' && each !== null) left.push(each);
  }
}

/** Each node is below at most one other, none is below itself, and none is too deep. */
function checkTree(nodes: readonly Item[]): void {
  const children = nodes.map((node) => (node.children === undefined ? [] : values(node.children)));
  const below = new Set(children.flat());
  if (below.size < children.flat().length) throw damaged('a node of it is below two others');
  let level: readonly unknown[] = [...nodes.keys()].filter((at) => !below.has(at));
  let reached = 0;
  for (let depth = 0; level.length > 0; depth += 1) {
    requireAtMost(DEPTH_MAX, depth, 'levels of nodes');
    reached += level.length;
    level = level.flatMap((at) => member(children, at));
  }
  if (reached < nodes.length) throw damaged('a node of it is below itself');
}

/**
 * How much a mesh of Draco says that it holds. Only what the encoders of glTF write is read: bitstream 2.2 without
 * metadata.
 * @see https://google.github.io/draco/spec/
 */
function dracoCounts(bytes: Uint8Array): { readonly faces: number; readonly vertices: number } {
  const [d, r, a, c, o, major, minor, kind, method = 2, ...flags] = bytes.subarray(0, 11);
  const isKnown = String.fromCharCode(d ?? 0, r ?? 0, a ?? 0, c ?? 0, o ?? 0) === 'DRACO' && major === 2 && minor === 2;
  if (!isKnown || kind !== 1 || method > 1 || flags.some((each) => each !== 0)) {
    throw new ModelRefusedError('its Draco compression is not known here');
  }
  let at = 11;
  const next = (): number => {
    for (let value = 0, factor = 1; factor <= 2 ** 28; factor *= 128) {
      const byte = bytes[at] ?? 0;
      at += 1;
      value += (byte % 128) * factor;
      if (byte < 128) return value;
    }
    throw damaged('its Draco compression cannot be read');
  };
  // The method 0 writes faces first. The method 1 writes the kind of its traversal, then vertices first.
  if (method === 0) return { faces: next(), vertices: next() };
  at += 1;
  const vertices = next();
  return { faces: next(), vertices };
}

/** Number of pixels of a PNG, JPEG or WebP, from its head. */
function pixelsOf(picture: Uint8Array): number {
  const view = viewOf(picture.subarray(0, PICTURE_HEAD_BYTES_MAX));
  try {
    if (view.getUint32(0) === 0x89504e47) return view.getUint32(16) * view.getUint32(20);
    if (view.getUint16(0) === 0xffd8) return pixelsOfJpeg(view);
    if (view.getUint32(0) === 0x52494646 && view.getUint32(8) === 0x57454250) return pixelsOfWebp(view);
  } catch {
    throw damaged('a picture in it is cut off'); // Read past the end.
  }
  if (view.getUint32(0) === KTX) throw new ModelRefusedError('its textures are KTX2, which this page cannot decode');
  throw new ModelRefusedError('a picture in it is neither PNG, JPEG nor WebP');
}

function pixelsOfJpeg(view: DataView): number {
  for (let at = 2; ; at += 2 + view.getUint16(at + 2)) {
    // Bytes FF may fill the space before a marker.
    while (view.getUint16(at) === 0xffff) at += 1;
    const marker = view.getUint16(at);
    const isFrame = marker >= 0xffc0 && marker <= 0xffcf && ![0xffc4, 0xffc8, 0xffcc].includes(marker);
    if (isFrame) return view.getUint16(at + 5) * view.getUint16(at + 7);
  }
}

function pixelsOfWebp(view: DataView): number {
  const kind = view.getUint32(12);
  const low24 = (at: number) => view.getUint16(at, true) + view.getUint8(at + 2) * 0x10000;
  if (kind === 0x56503858) return (low24(24) + 1) * (low24(27) + 1);
  if (kind === 0x56503820) return (view.getUint16(26, true) & 0x3fff) * (view.getUint16(28, true) & 0x3fff);
  const bits = view.getUint32(21, true);
  return ((bits & 0x3fff) + 1) * (((bits >>> 14) & 0x3fff) + 1);
}

/** The bytes of a data URI. @throws {ModelRefusedError} it is another address. */
function bytesIn(uri: unknown): Uint8Array {
  const [head = ''] = /^data:[^,]{0,256};base64,/i.exec(String(uri)) ?? [];
  if (head === '') throw new ModelRefusedError('it names other files');
  try {
    return Uint8Array.from(atob(String(uri).slice(head.length)), (each) => each.charCodeAt(0));
  } catch {
    throw damaged('a part of it is no Base64');
  }
}

const viewOf = ({ buffer, byteOffset, byteLength }: Uint8Array): DataView =>
  new DataView(buffer, byteOffset, byteLength);

const damaged = (why: string): ModelRefusedError => new ModelRefusedError(`it is damaged, because ${why}`);

function requireAtMost(max: number, count: number, noun: string): void {
  if (count > max) throw new ModelRefusedError(`it has more than ${max.toLocaleString('en')} ${noun}`);
}

/** A count or an index. The viewer would take `"3e7"` for a number, too. */
function whole(value: unknown, otherwise?: number): number {
  const number = value ?? otherwise;
  if (typeof number === 'number' && Number.isSafeInteger(number) && number >= 0) return number;
  throw damaged('a count in it is no whole number');
}

const componentBytes = ({ componentType }: Item): number => COMPONENT_BYTES[whole(componentType)] ?? Number.NaN;

/** A member of a list. */
function member<T>(list: readonly T[], index: unknown): T {
  const found = list[whole(index)];
  if (found === undefined) throw damaged('it names a part that it does not have');
  return found;
}

/** The viewer would also take an object such as `{"0": …}` for a list. */
function values(list: unknown): readonly unknown[] {
  if (!Array.isArray(list)) throw damaged('a list in it is no list');
  return list;
}

const jsonLength = (value: unknown): number => JSON.stringify(value)?.length ?? 0;

const items = (list: unknown): readonly Item[] => (list === undefined ? [] : values(list).map(item));

function item(value: unknown): Item {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Item;
  throw damaged('a part of it is no object');
}

/** The data of an extension in an item. */
function extension({ extensions }: Item, name: string): Item | undefined {
  const all = extensions === undefined ? {} : item(extensions);
  return all[name] === undefined ? undefined : item(all[name]);
}
