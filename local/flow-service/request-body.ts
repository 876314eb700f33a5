import { Refusal } from './answer.ts';
import { type Blob, type BlobFolder, BlobWriter } from './blob.ts';
import type { ServiceRequest } from './call.ts';
import { ConnectionLostError } from './fault.ts';
import { essence, type Input, type Template } from './templates.ts';

/** Limit for a request's JSON without the base64 of its data URIs. It has room for the longest texts. */
const JSON_BYTES_MAX = 32 * 1024 * 1024;
const INPUTS_MAX = 1_000;
/** A longer beginning of a data URI is text. */
const DATA_URI_HEAD_BYTES_MAX = 1024;

const TOKEN = "[\\w!#$%&'*+.^`|~-]+";
const DATA_URI_HEAD = `data:((?:${TOKEN}/${TOKEN})?(?:;${TOKEN}=(?:${TOKEN}))*);base64,`;
const IS_DATA_URI_HEAD = new RegExp(`^${DATA_URI_HEAD}$`);
/** A data URI after its base64 was replaced by the index of its blob. */
const READ_DATA_URI = new RegExp(`^${DATA_URI_HEAD}(\\d+)$`);

const QUOTE = 0x22;
const COMMA = 0x2c;
const BACKSLASH = 0x5c;

/** The keys and indexes of a place in a body, outermost first. */
type Place = readonly (string | number)[];

/** Reports a validation error of the body at `loc`. */
export type Problem = (loc: Place, msg: string) => void;

/** A complete body that is a JSON object. */
export interface Body {
  /** The JSON. Its data URIs have the index into {@link Body.data} in place of their base64. */
  readonly value: Readonly<Record<string, unknown>>;
  /** The content of each data URI, or what is wrong with it. */
  readonly data: readonly (Blob | string)[];
  /** What is at the presigned addresses in the JSON, or why it could not be fetched. */
  readonly fetched: ReadonlyMap<string, Pick<Input, 'mediaType' | 'blob'> | string>;
  /** Keeps a text, or the bytes of an input. */
  readonly keep: (input: string | Uint8Array) => Blob;
  /** Drops the inputs. Call it if no flow was created with them. */
  discard(): void;
}

/**
 * Reads a body to its end before any part of it is validated, as services do.
 * @throws {Refusal} the body is not JSON, is too large, or is not an object.
 * @throws {ConnectionLostError} the body ended early.
 */
export async function readBody(request: ServiceRequest, folder: BlobFolder): Promise<Body> {
  if (essence(request.headers['content-type'] ?? '') !== 'application/json') {
    throw new Refusal(415, 'The body must be application/json');
  }
  const reader = new BodyReader(folder);
  try {
    const expected = contentLength(request);
    let received = 0;
    for await (const chunk of request.body) {
      received += chunk.length;
      if (received > expected) throw new Refusal(400, 'The body is longer than its Content-Length');
      reader.push(chunk);
    }
    // Over HTTP the connection would be gone by now. Within a process only this check finds a short body.
    if (Number.isFinite(expected) && received < expected) throw new ConnectionLostError('reset');
    const body = reader.end();
    return { ...body, fetched: await fetchedInputs(body) };
  } catch (error) {
    reader.discard();
    throw error;
  }
}

/** The request's `Content-Length`, or infinity without one. */
export function contentLength({ headers }: ServiceRequest): number {
  const length = headers['content-length'];
  return length === undefined ? Number.POSITIVE_INFINITY : Number(length);
}

/**
 * Reads JSON whose data URIs may be larger than memory. Their base64 is decoded into blobs while it arrives. All else is
 * kept, and `JSON.parse` decides at the end whether it is valid.
 */
class BodyReader {
  readonly #folder: BlobFolder;
  readonly #kept: Buffer[] = [];
  #keptBytes = 0;
  readonly #writers: BlobWriter[] = [];
  readonly #data: (Blob | string)[] = [];
  #isInString = false;
  #isEscaped = false;
  /** The beginning of the string that is being read. Undefined if it is no data URI. */
  #head: string | undefined;
  /** Decodes the data URI that is being read. */
  #base64: Base64Reader | undefined;

  constructor(folder: BlobFolder) {
    this.#folder = folder;
  }

  /** @throws {Refusal} */
  push(chunk: Uint8Array): void {
    const bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
    for (let at = 0; at < bytes.length; ) {
      at = this.#base64 === undefined ? this.#readJson(bytes, at) : this.#readBase64(bytes, at, this.#base64);
    }
  }

  /** @throws {Refusal} */
  end(): Omit<Body, 'fetched'> {
    const value = this.#value();
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      throw new Refusal(422, [{ loc: ['body'], msg: 'must be an object', type: 'value_error' }]);
    }
    const keep = (input: string | Uint8Array): Blob => {
      const writer = this.#newWriter();
      writer.write(Buffer.from(input));
      return writer.end();
    };
    return { value: value as Record<string, unknown>, data: this.#data, keep, discard: () => this.discard() };
  }

  discard(): void {
    for (const writer of this.#writers) writer.discard();
  }

  #value(): unknown {
    try {
      const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
      return JSON.parse(decoder.decode(Buffer.concat(this.#kept)));
    } catch {
      throw new Refusal(422, [{ loc: ['body'], msg: 'The body is not valid JSON.', type: 'json_invalid' }]);
    }
  }

  #newWriter(): BlobWriter {
    const writer = new BlobWriter(this.#folder);
    this.#writers.push(writer);
    return writer;
  }

  /** Reads until a data URI begins. Returns where it stopped. */
  #readJson(bytes: Buffer, from: number): number {
    let at = from;
    while (at < bytes.length && this.#base64 === undefined) this.#track(bytes[at++] as number);
    this.#keep(bytes.subarray(from, at));
    return at;
  }

  #track(byte: number): void {
    if (byte === QUOTE && !this.#isEscaped) {
      this.#isInString = !this.#isInString;
      this.#head = this.#isInString ? '' : undefined;
    } else if (this.#head !== undefined) {
      this.#head += String.fromCharCode(byte);
      if (byte === COMMA && IS_DATA_URI_HEAD.test(this.#head)) this.#base64 = new Base64Reader(this.#newWriter());
      if (byte === COMMA || this.#head.length > DATA_URI_HEAD_BYTES_MAX) this.#head = undefined;
    }
    this.#isEscaped = byte === BACKSLASH && !this.#isEscaped;
  }

  #readBase64(bytes: Buffer, from: number, base64: Base64Reader): number {
    const quote = bytes.indexOf(QUOTE, from);
    const to = quote === -1 ? bytes.length : quote;
    base64.push(bytes.subarray(from, to));
    if (quote === -1) return to;
    this.#keep(Buffer.from(String(this.#data.length)));
    this.#data.push(base64.end());
    this.#base64 = undefined;
    return to;
  }

  #keep(bytes: Buffer): void {
    this.#keptBytes += bytes.length;
    if (this.#keptBytes > JSON_BYTES_MAX) throw new Refusal(413, `More than ${JSON_BYTES_MAX} bytes of JSON.`);
    if (bytes.length > 0) this.#kept.push(Buffer.from(bytes));
  }
}

/** Base64 is decoded in pieces of this length, which must be a multiple of 4. */
const BASE64_SLICE_CHARACTERS = 64 * 1024;

/**
 * Decodes base64. It is stricter than most decoders: the alphabet of RFC 4648 section 4 only, no white space, and padding
 * required.
 */
class Base64Reader {
  readonly #writer: BlobWriter;
  #carry = '';
  #problem: string | undefined;

  constructor(writer: BlobWriter) {
    this.#writer = writer;
  }

  push(bytes: Buffer): void {
    for (let at = 0; at < bytes.length && this.#problem === undefined; at += BASE64_SLICE_CHARACTERS) {
      const text = this.#carry + bytes.toString('latin1', at, Math.min(bytes.length, at + BASE64_SLICE_CHARACTERS));
      const padding = text.indexOf('=');
      const characters = padding === -1 ? text.length : padding;
      const whole = characters - (characters % 4);
      this.#decode(text.slice(0, whole), whole * 0.75);
      this.#carry = text.slice(whole);
      if (this.#carry.length > 4) this.#problem ??= 'base64 goes on after its padding';
    }
  }

  /** Returns what was decoded, or what is wrong with it. */
  end(): Blob | string {
    if (this.#carry !== '' && !/^([\w+/]{2}==|[\w+/]{3}=)$/.test(this.#carry)) {
      this.#problem ??= 'incorrect padding: base64 comes in groups of four characters';
    }
    if (this.#problem === undefined && this.#carry !== '') this.#decode(this.#carry, this.#carry.indexOf('=') - 1);
    return this.#problem ?? this.#writer.end();
  }

  #decode(text: string, bytes: number): void {
    const decoded = Buffer.allocUnsafe(bytes);
    // Node skips characters that are not base64, so they show as missing bytes. It also accepts the URL-safe alphabet.
    if (decoded.write(text, 'base64') !== bytes || text.includes('-') || text.includes('_')) {
      this.#problem ??= 'a character outside the base64 alphabet';
    }
    this.#writer.write(decoded);
  }
}

/** A presigned address of the S3 of this machine. The stand-in asks no other server for anything. */
const PRESIGNED = /^http:\/\/127\.0\.0\.1:\d+\/.*[?&]X-Amz-Signature=/;

/** Fetches the inputs at the presigned addresses in a body, as a service does: without any credentials of its own. */
async function fetchedInputs({ value, keep }: Pick<Body, 'value' | 'keep'>): Promise<Body['fetched']> {
  const addresses: string[] = [];
  JSON.stringify(value, (_, each: unknown) => {
    if (typeof each === 'string' && PRESIGNED.test(each)) addresses.push(each);
    return each;
  });
  const fetched = new Map<string, Pick<Input, 'mediaType' | 'blob'> | string>();
  for (const address of addresses) {
    const answer = await fetch(address);
    const bytes = new Uint8Array(await answer.arrayBuffer());
    const mediaType = answer.headers.get('content-type') ?? 'application/octet-stream';
    // Services quote the address that they could not read.
    fetched.set(address, answer.ok ? { mediaType, blob: keep(bytes) } : `${answer.status} for ${address}`);
  }
  return fetched;
}

/** The inputs of a creation. Those that are not valid are reported, and left out. */
export function inputsOf(body: Body, template: Template, problem: Problem): Input[] {
  const inputs = body.value.inputs ?? [];
  if (!Array.isArray(inputs)) {
    problem(['inputs'], 'must be a list');
    return [];
  }
  const uris = inputs.filter((input) => READ_DATA_URI.test(input?.data));
  if (uris.length !== body.data.length) problem(['inputs'], 'only the data of an input may be a data URI');
  if (inputs.length > INPUTS_MAX) problem(['inputs'], `must be at most ${INPUTS_MAX}`);
  return inputs.flatMap(
    (input, i) => inputOf(input, body, template, (loc, msg) => problem(['inputs', i, ...loc], msg)) ?? [],
  );
}

function inputOf(input: unknown, body: Body, template: Template, problem: Problem): Input | undefined {
  if (typeof input !== 'object' || input === null || Array.isArray(input)) {
    problem([], 'must be an object');
    return undefined;
  }
  const { data, additional } = input as { data?: unknown; additional?: unknown };
  const read =
    typeof data === 'string' ? inputData(data, body) : data === undefined ? 'Field required' : 'must be a string';
  if (typeof read === 'string') {
    problem(['data'], read);
    return undefined;
  }
  if (template.inputTypes.length > 0 && !template.inputTypes.includes(essence(read.mediaType))) {
    problem(['data'], `${template.name} accepts ${template.inputTypes.join(', ')}, not ${read.mediaType}`);
    return undefined;
  }
  return { ...read, additional };
}

/** An input's data: those of a data URI, or plain text. Returns what is wrong with it otherwise. */
export function inputData(text: string, { data, keep, fetched }: Body): Pick<Input, 'mediaType' | 'blob'> | string {
  const found = fetched.get(text);
  if (found !== undefined) return found;
  const [, mediaType = '', index] = READ_DATA_URI.exec(text) ?? [];
  if (index !== undefined) {
    const blob = data[Number(index)] ?? 'a data URI must be written without escapes';
    return typeof blob === 'string' ? blob : { mediaType: mediaType || 'text/plain', blob };
  }
  if (/^data:[^\s,]{0,1024},/.test(text))
    return 'a data URI must be in base64, with a valid media type and without escapes';
  return text.isWellFormed() ? { mediaType: 'text/plain', blob: keep(text) } : 'half of a surrogate pair';
}
