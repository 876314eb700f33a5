import { AssetTooLargeError, DamagedAssetError } from './errors.ts';
import { mediaTypeOf } from './media-type.ts';
import type { Asset } from './types.ts';

/** Where in an answer its data URI must begin for the answer to be taken for an envelope around one. */
export const SNIFF_BYTES_MAX = 64 * 1024;

/** From `data:` to its comma. Real ones are below a hundred bytes. */
const URI_HEAD_BYTES_MAX = 4 * 1024;

/** What may follow the data URI in its envelope: it is held until the end, to be checked. */
const ENVELOPE_TAIL_BYTES_MAX = 1024 * 1024;

/** Characters decoded by one call: in Node 24 base64 strings longer than this become slow at once. */
const PIECE_CHARS_MAX = 64 * 1024;

/** Decoded bytes are gathered into blocks of this size. */
const BLOCK_BYTES = 256 * 1024;

/** What a data URI without a media type means (RFC 2397, section 2). */
const URI_MEDIA_TYPE_DEFAULT = 'text/plain;charset=US-ASCII';

const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;
const BACKSLASH = 0x5c;
const LOWER_U = 0x75;
const OPENING: readonly (number | undefined)[] = [0x7b, 0x5b];
const CLOSING: readonly (number | undefined)[] = [0x7d, 0x5d];
const WHITE_SPACE: readonly (number | undefined)[] = [0x20, 0x09, 0x0a, 0x0d];
const BYTE_ORDER_MARK = [0xef, 0xbb, 0xbf];

export interface AnswerFacts {
  readonly mediaType: string;
  /** The `Content-Length`, where there is one. */
  readonly length?: number | undefined;
  /** Whether HTTP marks the end of the body, by its length or by chunks. */
  readonly isDelimited: boolean;
  readonly assetBytesMax: number;
}

/**
 * An asset out of the body of its answer. An answer that is a JSON object whose member `data` is a data URI, beginning
 * within {@link SNIFF_BYTES_MAX}, is an envelope: the asset is what the URI holds, decoded as it streams by. Any other
 * answer, and so JSON that is itself the asset, is the asset as it came.
 *
 * Of an envelope only what stands before and behind the data is kept, and in the end it must be JSON when put together:
 * so a cut envelope is found out, and one with anything behind its end, whatever else it says. An answer that is no
 * envelope is told from a cut one by its length or its chunks; one that has neither is refused.
 * @throws {DamagedAssetError} already the beginning is not what it seems; and see {@link Asset.chunks}.
 * @throws whatever `body` throws, here and in the chunks.
 */
export async function assetOf(body: AsyncIterable<Uint8Array>, facts: AnswerFacts): Promise<Asset> {
  const incoming = wholeBody(body, facts.length);
  const sniffer = new Sniffer();
  try {
    for (;;) {
      const next = await incoming.next();
      const found = next.done === true ? sniffer.end() : sniffer.push(bufferOf(next.value));
      if (found === undefined) continue;
      if (found.is === 'asset' && !facts.isDelimited) {
        throw new DamagedAssetError('The answer does not say where it ends, so that a whole one looks like a cut one');
      }
      const chunks = found.is === 'asset' ? following(found.received, incoming) : decoded(found, incoming);
      const mediaType = found.is === 'asset' ? facts.mediaType : found.mediaType;
      return { mediaType, bytesMax: facts.length, chunks: limited(chunks, facts.assetBytesMax) };
    }
  } catch (error) {
    await incoming.return();
    throw error;
  }
}

async function* wholeBody(
  body: AsyncIterable<Uint8Array>,
  length: number | undefined,
): AsyncGenerator<Uint8Array, void> {
  let received = 0;
  for await (const chunk of body) {
    received += chunk.byteLength;
    yield chunk;
  }
  if (length !== undefined && received !== length) {
    throw new DamagedAssetError(`The answer has ${received} bytes instead of the ${length} that it announced`);
  }
}

async function* following(
  received: readonly Uint8Array[],
  incoming: AsyncGenerator<Uint8Array, void>,
): AsyncGenerator<Uint8Array> {
  try {
    yield* received;
    yield* incoming;
  } finally {
    await incoming.return();
  }
}

async function* limited(chunks: AsyncIterable<Uint8Array>, bytesMax: number): AsyncGenerator<Uint8Array> {
  let bytes = 0;
  for await (const chunk of chunks) {
    bytes += chunk.byteLength;
    if (bytes > bytesMax) throw new AssetTooLargeError(`The asset is larger than the ${bytesMax} bytes allowed`);
    yield chunk;
  }
}

/** The answer is the asset. */
interface PlainAsset {
  readonly is: 'asset';
  readonly received: readonly Uint8Array[];
}

/** The answer is an envelope around a data URI. */
interface Envelope {
  readonly is: 'envelope';
  readonly mediaType: string;
  readonly isBase64: boolean;
  /** The JSON up to the data's opening quote. */
  readonly head: string;
  /** What was received of the data behind the URI's comma, and possibly of what follows it. */
  readonly rest: Buffer;
}

/**
 * Finds the member `data` of an object at the top level, in as many pieces as the bytes may come in. It follows
 * strings, brackets and the names of the outermost members, and leaves all judgement of the JSON to `JSON.parse`.
 */
class Sniffer {
  #received: Buffer[] = [];
  #receivedBytes = 0;
  #depth = 0;
  #isInString = false;
  #isEscaped = false;
  /** Whether the next string at the outermost level is the name of a member, and the name that was read last. */
  #isName = false;
  #name = '';
  /** The data's bytes behind its opening quote, until the URI's comma has come. */
  #uri: Buffer | undefined;

  /** What the answer is, as soon as that can be said. */
  push(chunk: Buffer): PlainAsset | Envelope | undefined {
    if (this.#uri !== undefined) {
      this.#uri = Buffer.concat([this.#uri, chunk]);
      return this.#readUri(this.#uri);
    }
    const at = this.#find(chunk);
    if (at === undefined) {
      this.#received.push(chunk);
      this.#receivedBytes += chunk.byteLength;
      return undefined;
    }
    if (at === 'nowhere') return { is: 'asset', received: [...this.#received, chunk] };
    this.#received.push(chunk.subarray(0, at));
    this.#uri = chunk.subarray(at);
    return this.#readUri(this.#uri);
  }

  /** What it is, now that no more will come. */
  end(): PlainAsset {
    if (this.#uri !== undefined) throw new DamagedAssetError('The answer ends within its data');
    return { is: 'asset', received: this.#received };
  }

  /** The place behind the opening quote of the data. */
  #find(chunk: Buffer): number | 'nowhere' | undefined {
    for (let at = 0; at < chunk.byteLength; at += 1) {
      const position = this.#receivedBytes + at;
      if (position >= SNIFF_BYTES_MAX) return 'nowhere';
      const byte = chunk[at];
      if (this.#isInString) {
        if (this.#isEscaped) this.#isEscaped = false;
        else if (byte === BACKSLASH) this.#isEscaped = true;
        else if (byte === QUOTE) {
          this.#isInString = false;
          this.#isName = false;
          continue;
        }
        if (this.#isName) this.#name += String.fromCharCode(byte ?? 0);
      } else if (WHITE_SPACE.includes(byte)) {
      } else if (this.#depth === 0) {
        if (OPENING[0] === byte) {
          this.#depth = 1;
          this.#isName = true;
        } else if (byte !== BYTE_ORDER_MARK[position]) return 'nowhere';
      } else if (this.#depth === 1 && byte === COMMA) {
        this.#isName = true;
        this.#name = '';
      } else if (this.#depth === 1 && byte === COLON) {
        this.#name = unescaped(this.#name) ?? '';
      } else if (this.#depth === 1 && this.#name === 'data' && !this.#isName) {
        return byte === QUOTE ? at + 1 : 'nowhere';
      } else if (byte === QUOTE) this.#isInString = true;
      else if (OPENING.includes(byte)) this.#depth += 1;
      else if (CLOSING.includes(byte)) {
        this.#depth -= 1;
        if (this.#depth === 0) return 'nowhere';
      }
    }
    return undefined;
  }

  /** The URI up to its comma, any of whose characters may be written as an escape. */
  #readUri(uri: Buffer): PlainAsset | Envelope | undefined {
    const text = uri.toString('latin1', 0, URI_HEAD_BYTES_MAX);
    const plain: PlainAsset = { is: 'asset', received: [...this.#received, uri] };
    const match = /^((?:[^"\\,]|\\["\\/bfnrt]|\\u(?!002[cC])[0-9a-fA-F]{4})*)(?:,|\\u002[cC])/.exec(text);
    if (match === null) {
      const start = /^(?:[^"\\]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4}){0,5}/.exec(text)?.[0] ?? '';
      const mayBeUri = 'data:'.startsWith((unescaped(start) ?? '-').toLowerCase());
      if (!mayBeUri || /^(?:[^"\\]|\\.)*"/s.test(text)) return plain;
      if (uri.byteLength < URI_HEAD_BYTES_MAX) return undefined;
      throw new DamagedAssetError(`The data URI has no comma within ${URI_HEAD_BYTES_MAX} bytes`);
    }
    const [matched, escaped = ''] = match;
    const head = unescaped(escaped);
    if (head === undefined || !/^data:/i.test(head)) return plain;
    const parts = head.slice('data:'.length).split(';');
    const isBase64 = parts.length > 1 && parts.at(-1)?.trim().toLowerCase() === 'base64';
    if (isBase64) parts.pop();
    if (parts[0]?.trim() === '' && parts.length > 1) parts[0] = 'text/plain';
    const mediaType = parts.join(';').trim();
    return {
      is: 'envelope',
      mediaType: mediaType === '' ? URI_MEDIA_TYPE_DEFAULT : mediaTypeOf(mediaType),
      isBase64,
      head: Buffer.concat(this.#received).toString('latin1'),
      rest: uri.subarray(matched.length),
    };
  }
}

/** The bytes of the data URI in an envelope, and then the proof that the envelope is whole. */
async function* decoded(
  { head, rest, isBase64 }: Envelope,
  incoming: AsyncGenerator<Uint8Array, void>,
): AsyncGenerator<Uint8Array> {
  const block = new Block();
  const decoder = isBase64 ? new Base64Decoder(block) : new PercentDecoder(block);
  try {
    let bytes = rest;
    let at = 0;
    for (let isOpen = true; isOpen; ) {
      if (block.isNearlyFull) yield block.take();
      const piece = bytes.subarray(at, at + PIECE_CHARS_MAX);
      const quote = piece.indexOf(QUOTE);
      const plain = quote === -1 ? piece : piece.subarray(0, quote);
      let taken: number;
      if (!plain.includes(BACKSLASH)) {
        decoder.write(plain.toString('latin1'), false);
        taken = plain.byteLength;
        isOpen = quote === -1;
      } else {
        const end = closingQuote(piece);
        taken = end ?? withoutCutEscape(piece);
        const text = unescaped(piece.toString('latin1', 0, taken));
        if (text === undefined) throw new DamagedAssetError('The data is not a JSON string');
        decoder.write(text, true);
        isOpen = end === undefined;
      }
      at += taken;
      if (isOpen && (taken === 0 || at === bytes.byteLength)) {
        const next = await incoming.next();
        if (next.done === true) throw new DamagedAssetError('The answer ends within its data');
        // What is left is the beginning of an escape, whose end comes with the next chunk.
        const chunk = bufferOf(next.value);
        bytes = at === bytes.byteLength ? chunk : Buffer.concat([bytes.subarray(at), chunk]);
        at = 0;
      }
    }
    decoder.end();
    if (!block.isEmpty) yield block.take();

    let tail = bytes.toString('latin1', at);
    for await (const chunk of incoming) {
      tail += bufferOf(chunk).toString('latin1');
      if (tail.length > ENVELOPE_TAIL_BYTES_MAX) {
        throw new DamagedAssetError(`More than ${ENVELOPE_TAIL_BYTES_MAX} bytes follow the data`);
      }
    }
    checkEnvelope(head, tail);
  } finally {
    await incoming.return();
  }
}

/** Whether `head` and `tail` are JSON around one member `data`: whatever stands there is what it then says. */
function checkEnvelope(head: string, tail: string): void {
  for (const data of ['', '-']) {
    let envelope: { readonly data?: unknown };
    try {
      // As Latin-1 every byte of a string stays a character, and outside of strings there is nothing but ASCII.
      envelope = JSON.parse((head + data + tail).replace(/^\xef\xbb\xbf/, ''));
    } catch (cause) {
      throw new DamagedAssetError('The answer is not whole: what surrounds its data is not JSON', { cause });
    }
    if (envelope.data !== data) throw new DamagedAssetError('The answer has its data twice');
  }
}

/** What the inside of a JSON string says; undefined where it is not one. */
function unescaped(text: string): string | undefined {
  try {
    return JSON.parse(`"${text}"`);
  } catch {
    return undefined; // The caller knows what it means there.
  }
}

/** Where the string ends in which `piece`, beginning with a character or a whole escape, stands. */
function closingQuote(piece: Buffer): number | undefined {
  for (let quote = piece.indexOf(QUOTE); quote !== -1; quote = piece.indexOf(QUOTE, quote + 1)) {
    if (backslashesBefore(piece, quote) % 2 === 0) return quote;
  }
  return undefined;
}

/** The length of `piece` without an escape that its end cuts. */
function withoutCutEscape(piece: Buffer): number {
  const last = piece.lastIndexOf(BACKSLASH);
  if (last === -1 || backslashesBefore(piece, last) % 2 === 1) return piece.byteLength;
  const escapeLength = piece[last + 1] === LOWER_U ? '\\u0000'.length : '\\n'.length;
  return last + escapeLength > piece.byteLength ? last : piece.byteLength;
}

function backslashesBefore(piece: Buffer, at: number): number {
  let first = at;
  while (first > 0 && piece[first - 1] === BACKSLASH) first -= 1;
  return at - first;
}

const bufferOf = (bytes: Uint8Array): Buffer => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);

/** One buffer, used over and over, that has room for what one piece decodes to whenever it is not nearly full. */
class Block {
  readonly #bytes = Buffer.allocUnsafeSlow(BLOCK_BYTES);
  #used = 0;

  get isEmpty(): boolean {
    return this.#used === 0;
  }

  get isNearlyFull(): boolean {
    return BLOCK_BYTES - this.#used < PIECE_CHARS_MAX;
  }

  /** The number of bytes that `text` came to. */
  write(text: string, encoding: 'latin1' | 'base64'): number {
    const written = this.#bytes.write(text, this.#used, encoding);
    this.#used += written;
    return written;
  }

  /** Forgets the last bytes that were written. */
  drop(bytes: number): void {
    this.#used -= bytes;
  }

  /** What was written, valid until the next write. */
  take(): Uint8Array {
    const taken = this.#bytes.subarray(0, this.#used);
    this.#used = 0;
    return taken;
  }
}

/** What is behind the comma of a data URI, turned into bytes. */
interface DataDecoder {
  /** @param wasEscaped whether there were escapes in the JSON, so that any character may have come of one. */
  write(text: string, wasEscaped: boolean): void;
  end(): void;
}

/**
 * Base64, of either alphabet, with or without padding, with line breaks where escapes made them. Whole groups go
 * through Node's decoder, which silently leaves out what it does not know: a result shorter than three quarters tells
 * that there was such a thing, and the piece is looked at again.
 */
class Base64Decoder implements DataDecoder {
  readonly #block: Block;
  /** Characters that wait for the rest of their group of four. */
  #carry = '';
  #padding = 0;

  constructor(block: Block) {
    this.#block = block;
  }

  write(text: string, wasEscaped: boolean): void {
    // A line break cannot stand in a JSON string as it is; a space can.
    const ignored = wasEscaped ? /[ \t\r\n]+/g : / +/g;
    const start = Math.min((4 - this.#carry.length) % 4, text.length);
    const end = text.length - ((text.length - start) % 4);
    this.#add(text.slice(0, start), ignored);
    const groups = text.slice(start, end);
    const isAligned = this.#carry === '' && this.#padding === 0;
    if (!isAligned || !this.#decodes(groups)) this.#add(groups, ignored);
    this.#add(text.slice(end), ignored);
  }

  /** @throws {DamagedAssetError} the last group is not one. */
  end(): void {
    const { length } = this.#carry;
    if (length === 1 || (this.#padding > 0 && (length === 0 || length + this.#padding !== 4))) {
      throw new DamagedAssetError('The base64 ends in the middle of a group');
    }
    // Bits that no byte comes of are zero in whatever an encoder makes.
    const canonical = Buffer.from(this.#carry, 'base64').toString('base64url');
    if (canonical !== this.#carry.replaceAll('+', '-').replaceAll('/', '_'))
      throw new DamagedAssetError('The base64 ends in bits that nobody encodes');
    this.#block.write(this.#carry, 'base64');
  }

  #add(text: string, ignored: RegExp): void {
    const match = /^([A-Za-z0-9+/_-]*)(=*)$/.exec(text.replace(ignored, ''));
    if (match === null) throw new DamagedAssetError('The data is not base64');
    const [, characters = '', padding = ''] = match;
    if (this.#padding > 0 && characters !== '') throw new DamagedAssetError('The base64 goes on behind its padding');
    this.#padding += padding.length;
    const waiting = this.#carry + characters;
    const whole = waiting.length - (waiting.length % 4);
    this.#carry = waiting.slice(whole);
    this.#block.write(waiting.slice(0, whole), 'base64');
  }

  /** Decodes whole groups, or nothing if there is anything else among them. */
  #decodes(text: string): boolean {
    const written = this.#block.write(text, 'base64');
    if (written === (text.length / 4) * 3) return true;
    this.#block.drop(written);
    return false;
  }
}

/** Percent-encoded ASCII. */
class PercentDecoder implements DataDecoder {
  readonly #block: Block;
  /** The beginning of an escape. */
  #carry = '';

  constructor(block: Block) {
    this.#block = block;
  }

  write(text: string, wasEscaped: boolean): void {
    if (!wasEscaped && /\p{Cc}/u.test(text)) throw new DamagedAssetError('The data is not a JSON string');
    const waiting = this.#carry + text;
    const cut = waiting.indexOf('%', Math.max(0, waiting.length - 2));
    const whole = cut === -1 ? waiting : waiting.slice(0, cut);
    this.#carry = waiting.slice(whole.length);
    if (/[^\0-\x7f]|%(?![0-9A-Fa-f]{2})/.test(whole)) throw new DamagedAssetError('The data is not percent-encoded');
    const decoded = whole.replace(/%(..)/g, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
    this.#block.write(decoded, 'latin1');
  }

  end(): void {
    if (this.#carry !== '') throw new DamagedAssetError('The data ends in the middle of an escape');
  }
}
