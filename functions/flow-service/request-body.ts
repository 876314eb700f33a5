import { randomUUID } from 'node:crypto';
import type { Json, JsonObject } from '../base/json.ts';
import { InvalidTextError, UnavailableError } from './errors.ts';
import { canonicalMediaType } from './media-type.ts';
import { literalOf } from './service-description.ts';
import { type CreateRequest, FLOW_TAG_NAME, type FlowInput, type InputSource } from './types.ts';

/**
 * Bytes encoded as base64 by one call: a multiple of 3. Small, because Node 24 makes base64 strings between 128 KiB and
 * 1 MiB at a fifth of the speed of smaller ones.
 */
const SLICE_BYTES_MAX = 48 * 1024;

/** Size of the blocks that are written. Over TLS, one write for each record of 16 KiB would halve the speed. */
const BLOCK_BYTES = 256 * 1024;

/**
 * Bytes that are written before the next input is opened. A thousand small inputs, which S3 hands out one after the
 * other, would fill a block only after minutes. By then, the connection would have been given up as idle.
 */
const UNSENT_BYTES_MAX = 16 * 1024;

/** Texts of together at most so many bytes are kept in memory until they are sent. Longer ones are read twice. */
const KEPT_TEXT_BYTES_MAX = 1024 * 1024;

/** The body of `POST /flows` for one request, which may be sent more than once. */
export interface FlowBody {
  readonly bytes: number;
  /** Present if a text can be sent, but should not be. No text has a NUL: UTF-16 without a mark has many. */
  readonly unfit?: InvalidTextError | undefined;
  /** Opens the input anew and streams the body. Each chunk stays untouched until the next but one is asked for. */
  chunks(signal: AbortSignal): AsyncIterable<Uint8Array>;
}

/** A creation, with the address of its first input, if its body has one. */
type AddressedRequest = CreateRequest & { readonly inputUrl?: string | undefined };

/** A part of the JSON: bytes that are known, or an input that is read while it is sent. */
type Part = Uint8Array | { readonly as: 'file' | 'text'; readonly source: InputSource };

/**
 * The JSON of a creation, at a fixed cost in memory: the described body with its placeholders replaced. A file becomes a
 * base64 data URI on the fly. A text is read first, because its length as a JSON string is known only then. A long one is
 * read again while it is sent. Inputs are read one after the other.
 * @throws {InvalidTextError} a text is not UTF-8.
 * @throws {UnavailableError} a source is not as long as it says. Thrown here for a text, in `chunks` for a file.
 * @throws any error of a source, likewise.
 */
export async function flowBody(body: JsonObject, request: AddressedRequest, signal: AbortSignal): Promise<FlowBody> {
  // Stands for the bytes of an input until the JSON is written. No text of the route can hold it.
  const mark = randomUUID();
  const pieces = JSON.stringify(filledBody(body, request, (index) => `#${index}${mark}`)).split(
    new RegExp(`#(\\d+)${mark}`),
  );
  const parts: Part[] = [];
  let bytes = 0;
  let keptMax = KEPT_TEXT_BYTES_MAX;
  let unfit: InvalidTextError | undefined;
  for (const [index, piece] of pieces.entries()) {
    if (index % 2 === 0) {
      const text = Buffer.from(piece);
      parts.push(text);
      bytes += text.byteLength;
      continue;
    }
    const { as, source } = request.inputs[Number(piece)] as FlowInput;
    if (as === 'file') {
      parts.push({ as, source });
      bytes += 4 * Math.ceil(source.bytes / 3);
    } else {
      const kept: Uint8Array[] | undefined = source.bytes <= keptMax ? [] : undefined;
      let length = 0;
      let isBlank = true;
      let hasNul = false;
      const onText = (text: string): void => {
        isBlank &&= text.trim() === '';
        hasNul ||= text.includes('\0');
      };
      for await (const part of escaped(source, signal, onText)) {
        length += part.byteLength;
        kept?.push(part);
      }
      if (hasNul) unfit ??= new InvalidTextError('The text has a NUL: it is UTF-16, or no text at all');
      else if (isBlank) unfit ??= new InvalidTextError('The text is blank', { code: 'input-blank' });
      if (kept !== undefined) keptMax -= source.bytes;
      parts.push(kept === undefined ? { as, source } : Buffer.concat(kept));
      bytes += length;
    }
  }
  return { bytes, unfit, chunks: (signal) => inBlocks(parts, signal) };
}

/**
 * The described body with its placeholders replaced.
 * @param bytesOf what stands for the bytes of an input: base64 in a data URI, or a text.
 */
export function filledBody(
  body: JsonObject,
  { template, parameters, tag, inputs, inputUrl, ...request }: Omit<AddressedRequest, 'startBy'>,
  bytesOf: (index: number) => string,
): Json | undefined {
  const additional = { ...request.additional, [FLOW_TAG_NAME]: tag } as unknown as JsonObject;
  const list = inputs.map(({ as, mediaType, additional }, index) => ({
    additional,
    data: `${as === 'text' ? '' : `data:${canonicalMediaType(mediaType)};base64,`}${bytesOf(index)}`,
  }));
  return filled(body, {
    ...{ '{template}': template, '{parameters}': parameters, '{additional}': additional },
    ...{ '{inputs}': list, '{input}': list[0]?.data, '{inputBase64}': list[0] && bytesOf(0), '{inputUrl}': inputUrl },
  });
}

/** A body of known JSON. */
export function jsonBody(value: Json | undefined): FlowBody {
  const bytes = Buffer.from(JSON.stringify(value ?? {}));
  return {
    bytes: bytes.byteLength,
    async *chunks() {
      yield bytes;
    },
  };
}

/** A described body with its placeholders replaced. A member whose value is missing is left out. */
export function filled(value: Json, values: Readonly<Record<string, Json | undefined>>): Json | undefined {
  if (typeof value === 'string') return Object.hasOwn(values, value) ? values[value] : (literalOf(value) ?? value);
  if (Array.isArray(value)) return value.flatMap((item) => filled(item, values) ?? []);
  if (typeof value !== 'object' || value === null) return value;
  const members: [string, Json][] = [];
  // The members beside `...` win, wherever it stands.
  const spread = filled((value as JsonObject)['...'] ?? null, values);
  if (typeof spread === 'object' && spread !== null) members.push(...Object.entries(spread));
  for (const [name, member] of Object.entries(value)) {
    const each = name === '...' ? undefined : filled(member, values);
    if (each !== undefined) members.push([name, each]);
  }
  return Object.fromEntries(members);
}

/** Yields the parts in blocks of {@link BLOCK_BYTES}. Two buffers take turns: the socket has one, the other is filled. */
async function* inBlocks(parts: readonly Part[], signal: AbortSignal): AsyncGenerator<Uint8Array> {
  const blocks = new Blocks();
  for (const part of parts) {
    if (!(part instanceof Uint8Array) && blocks.bytesUsed > UNSENT_BYTES_MAX) yield blocks.take();
    if (part instanceof Uint8Array) yield* blocks.bytes(part);
    else if (part.as === 'file') yield* encode(exactly(part.source.bytes, await part.source.open(signal)), blocks);
    else for await (const text of escaped(part.source, signal)) yield* blocks.bytes(text);
  }
  yield blocks.take();
}

/**
 * The text as the inside of a JSON string, in UTF-8.
 * @param onText gets each piece of the text.
 */
async function* escaped(
  source: InputSource,
  signal: AbortSignal,
  onText = (_: string) => {},
): AsyncGenerator<Uint8Array> {
  // The decoder drops a byte order mark, which would become part of the prompt.
  const decoder = new TextDecoder('utf-8', { fatal: true });
  const decode = (chunk?: Uint8Array): Uint8Array => {
    let text: string;
    try {
      text = decoder.decode(chunk, { stream: chunk !== undefined });
    } catch (cause) {
      throw new InvalidTextError('The text is not valid UTF-8', { cause });
    }
    onText(text);
    return Buffer.from(JSON.stringify(text).slice(1, -1));
  };
  for await (const chunk of exactly(source.bytes, await source.open(signal))) yield decode(chunk);
  yield decode();
}

/** Passes the chunks on. Throws unless they add up to exactly `bytes`. */
async function* exactly(bytes: number, chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  let left = bytes;
  for await (const chunk of chunks) {
    left -= chunk.byteLength;
    if (left < 0) throw lengthError(`The input is longer than the ${bytes} bytes announced`);
    yield chunk;
  }
  if (left > 0) throw lengthError(`The input ended ${left} bytes short of the ${bytes} announced`);
}

/**
 * The error for an input of the wrong length. Its request is never sent to the last byte. The file may be the cause.
 */
const lengthError = (message: string): UnavailableError => new UnavailableError(message, { bodyStarted: true });

/** Adds the base64 of `chunks` to the blocks, and yields those that are full. */
async function* encode(chunks: AsyncIterable<Uint8Array>, blocks: Blocks): AsyncGenerator<Uint8Array> {
  /** Up to two bytes that wait for the rest of their group of three. */
  let carry = Buffer.alloc(0);
  for await (const chunk of chunks) {
    const bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
    let from = 0;
    if (carry.byteLength > 0) {
      from = Math.min(3 - carry.byteLength, bytes.byteLength);
      carry = Buffer.concat([carry, bytes.subarray(0, from)]);
      if (carry.byteLength < 3) continue;
      yield* blocks.base64(carry, 0, 3);
    }
    const to = bytes.byteLength - ((bytes.byteLength - from) % 3);
    yield* blocks.base64(bytes, from, to);
    carry = Buffer.from(bytes.subarray(to)); // Copied, because the producer may reuse the chunk.
  }
  yield* blocks.base64(carry, 0, carry.byteLength);
}

/** Collects output into blocks. */
class Blocks {
  #block: Buffer = Buffer.allocUnsafeSlow(BLOCK_BYTES);
  #other: Buffer | undefined;
  #used = 0;

  get bytesUsed(): number {
    return this.#used;
  }

  *bytes(bytes: Uint8Array): Generator<Uint8Array> {
    for (let from = 0; from < bytes.byteLength; ) {
      if (this.#used === BLOCK_BYTES) yield this.take();
      const to = Math.min(bytes.byteLength, from + BLOCK_BYTES - this.#used);
      this.#block.set(bytes.subarray(from, to), this.#used);
      this.#used += to - from;
      from = to;
    }
  }

  /** Every call but the last of an input must get a multiple of three bytes. */
  *base64(bytes: Buffer, from: number, to: number): Generator<Uint8Array> {
    while (from < to) {
      const groups = Math.floor((BLOCK_BYTES - this.#used) / 4);
      if (groups === 0) {
        yield this.take();
        continue;
      }
      const end = Math.min(to, from + 3 * groups, from + SLICE_BYTES_MAX);
      this.#used += this.#block.write(bytes.toString('base64', from, end), this.#used, 'latin1');
      from = end;
    }
  }

  /** The bytes since the last block. The next ones go to the other buffer. */
  take(): Uint8Array {
    const full = this.#block.subarray(0, this.#used);
    const block = this.#block;
    this.#block = this.#other ?? Buffer.allocUnsafeSlow(BLOCK_BYTES);
    this.#other = block;
    this.#used = 0;
    return full;
  }
}
