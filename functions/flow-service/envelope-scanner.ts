import { BARE_BASE64 } from './data-decoders.ts';
import { DamagedAssetError } from './errors.ts';
import { GatheredBytes } from './json-answer.ts';
import { stepsOf } from './json-pointer.ts';
import { BACKSLASH, QUOTE, unescaped } from './json-string.ts';
import { LongTexts } from './long-texts.ts';

/** The data URI of an envelope must begin within this many bytes of a response that may be the asset itself. */
export const SCAN_BYTES_MAX = 64 * 1024;

/** Bytes that are kept of what stands before and behind the data, each, to be checked at the end. */
export const ENVELOPE_BYTES_MAX = 1024 * 1024;

/** Bytes of those that stay of a text. A long one may be an input that the service repeats, or the data of another asset. */
export const ENVELOPE_TEXT_BYTES_MAX = 1024;

/** Longest data URI up to its comma, in bytes. Real ones are below a hundred. */
const URI_HEAD_BYTES_MAX = 4 * 1024;

const COMMA = 0x2c;
const COLON = 0x3a;
const OPENING: readonly (number | undefined)[] = [0x7b, 0x5b];
const CLOSING: readonly (number | undefined)[] = [0x7d, 0x5d];
const WHITE_SPACE: readonly (number | undefined)[] = [0x20, 0x09, 0x0a, 0x0d];
const BYTE_ORDER_MARK = [0xef, 0xbb, 0xbf];

/** The end of what stands before the comma of a data URI in base64. */
const BASE64_MARK = /;\s*base64\s*$/i;

/** The response is the asset. */
interface PlainAsset {
  readonly is: 'asset';
  readonly received: readonly Uint8Array[];
}

/** The response is a JSON envelope around a data URI. */
export interface Envelope {
  readonly is: 'envelope';
  /** As the data URI spells it. Undefined if it names none. */
  readonly mediaType: string | undefined;
  readonly isBase64: boolean;
  /** To the data: `"/data"`. */
  readonly pointer: string;
  /** The JSON up to the opening quote of the data. */
  readonly head: string;
  /** The bytes received behind the URI's comma: data, and possibly a part of what follows the data. */
  readonly rest: Buffer;
}

/** A list or an object that is open. */
interface Frame {
  readonly isList: boolean;
  /** The place of the present value: the name of the member, or the index in the list. */
  step: string;
}

/**
 * Finds the data at a JSON pointer in JSON that arrives in pieces of any size. Follows only strings, brackets and names
 * of members. `JSON.parse` checks the rest later.
 */
export class EnvelopeScanner {
  /** The steps to the data. */
  readonly #steps: readonly string[];
  readonly #pointer: string;
  readonly #isBare: boolean;
  readonly #received: GatheredBytes;
  /** Undefined if the response may be the asset itself. Then nothing of it may be cut. */
  readonly #texts: LongTexts | undefined;
  readonly #frames: Frame[] = [];
  #isInString = false;
  #isEscaped = false;
  /** True if the next string is the name of a member. */
  #isName = false;
  /** The name that is being read, each byte as one character. */
  #name = '';
  /** The bytes behind the opening quote of the data, until the URI's comma has come. */
  #uri: Buffer | undefined;

  /**
   * @param pointer to the data: `"/data"`.
   * @param isEnvelope true if the response must be one, because an answer like it was. Then the data may begin anywhere in
   * it. Otherwise it may be the asset itself.
   * @param isBare true if the data may be base64 without the beginning of a data URI.
   */
  constructor(pointer: string, isEnvelope: boolean, isBare = false) {
    this.#pointer = pointer;
    this.#isBare = isBare;
    this.#steps = stepsOf(pointer);
    this.#received = new GatheredBytes(isEnvelope ? ENVELOPE_BYTES_MAX : SCAN_BYTES_MAX);
    this.#texts = isEnvelope ? new LongTexts(ENVELOPE_TEXT_BYTES_MAX) : undefined;
  }

  /**
   * Takes in the next piece. Returns undefined until the kind of the response is known.
   * @throws {DamagedAssetError} it must be an envelope, and has no data, or too much before it.
   */
  push(chunk: Buffer): PlainAsset | Envelope | undefined {
    if (this.#uri !== undefined) {
      this.#uri = Buffer.concat([this.#uri, chunk]);
      return this.#readUri(this.#uri);
    }
    const at = this.#find(chunk);
    if (at === undefined) {
      this.#keep(chunk);
      return undefined;
    }
    if (at === 'nowhere') return this.#plain(chunk);
    this.#keep(chunk.subarray(0, at));
    this.#uri = chunk.subarray(at);
    return this.#readUri(this.#uri);
  }

  /**
   * Called at the end of the response.
   * @throws {DamagedAssetError} the response ends within its data URI, or must be an envelope and has no data.
   */
  end(): PlainAsset {
    if (this.#uri !== undefined) throw new DamagedAssetError('The answer ends within its data');
    return this.#plain();
  }

  #keep(chunk: Buffer): void {
    if (this.#received.add(this.#texts?.cut(chunk) ?? chunk)) return;
    throw new DamagedAssetError(`More than ${ENVELOPE_BYTES_MAX} bytes precede the data`);
  }

  /** The response as the asset. @param rest what came behind {@link #received}. */
  #plain(...rest: readonly Buffer[]): PlainAsset {
    if (this.#texts === undefined) return { is: 'asset', received: [this.#received.bytes, ...rest] };
    throw new DamagedAssetError(`The answer has no data at ${this.#pointer} any more`);
  }

  /** The place behind the opening quote of the data. Undefined if `chunk` ends before it. */
  #find(chunk: Buffer): number | 'nowhere' | undefined {
    for (let at = 0; at < chunk.byteLength; at += 1) {
      const position = this.#received.length + at;
      if (position >= SCAN_BYTES_MAX && this.#texts === undefined) return 'nowhere';
      const byte = chunk[at];
      if (this.#isInString) {
        this.#followString(byte);
        continue;
      }
      if (WHITE_SPACE.includes(byte)) continue;
      const frame = this.#frames.at(-1);
      if (frame === undefined) {
        if (OPENING.includes(byte)) this.#open(byte);
        else if (byte !== BYTE_ORDER_MARK[position]) return 'nowhere';
      } else if (byte === COMMA) {
        if (frame.isList) frame.step = String(Number(frame.step) + 1);
        this.#isName = !frame.isList;
      } else if (byte === COLON) {
        frame.step = unescaped(Buffer.from(this.#name, 'latin1').toString()) ?? '';
      } else if (CLOSING.includes(byte)) {
        this.#frames.pop();
        if (this.#frames.length === 0) return 'nowhere';
      } else if (!this.#isName && this.#isAtData()) {
        return byte === QUOTE ? at + 1 : 'nowhere';
      } else if (byte === QUOTE) {
        this.#isInString = true;
        if (this.#isName) this.#name = '';
      } else if (OPENING.includes(byte)) this.#open(byte);
    }
    return undefined;
  }

  #open(bracket: number | undefined): void {
    const isList = bracket === OPENING[1];
    this.#frames.push({ isList, step: isList ? '0' : '' });
    this.#isName = !isList;
  }

  #followString(byte: number | undefined): void {
    if (this.#isEscaped) this.#isEscaped = false;
    else if (byte === BACKSLASH) this.#isEscaped = true;
    else if (byte === QUOTE) {
      this.#isInString = false;
      this.#isName = false;
      return;
    }
    if (this.#isName) this.#name += String.fromCharCode(byte ?? 0);
  }

  #isAtData(): boolean {
    return (
      this.#frames.length === this.#steps.length && this.#frames.every(({ step }, index) => step === this.#steps[index])
    );
  }

  /** Reads the URI up to its comma, or the beginning of bare base64. Any character of a URI may be written as an escape. */
  #readUri(uri: Buffer): PlainAsset | Envelope | undefined {
    const text = uri.toString('latin1', 0, URI_HEAD_BYTES_MAX);
    if (this.#isBare) {
      if (BARE_BASE64.test(text)) return this.#envelope({ mediaType: undefined, isBase64: true, rest: uri });
      // Each of its 60 characters may have an escape.
      if (text.length < 120 && !text.includes('"')) return undefined;
    }
    const match = /^((?:[^"\\,]|\\["\\/bfnrt]|\\u(?!002[cC])[0-9a-fA-F]{4})*)(?:,|\\u002[cC])/.exec(text);
    if (match === null) {
      const [start] = /(?:[^"\\]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4}){0,5}/y.exec(text) as RegExpExecArray;
      const mayBeUri = 'data:'.startsWith((unescaped(start) ?? '-').toLowerCase());
      if (!mayBeUri || /^(?:[^"\\]|\\.)*"/s.test(text)) return this.#plain(uri);
      if (uri.byteLength < URI_HEAD_BYTES_MAX) return undefined;
      throw new DamagedAssetError(`The data URI has no comma within ${URI_HEAD_BYTES_MAX} bytes`);
    }
    const [matched, escaped] = match as unknown as readonly [string, string];
    const head = unescaped(escaped);
    if (head === undefined || !head.toLowerCase().startsWith('data:')) return this.#plain(uri);
    return this.#envelope({ ...parametersOf(head.slice('data:'.length)), rest: uri.subarray(matched.length) });
  }

  #envelope(data: Pick<Envelope, 'mediaType' | 'isBase64' | 'rest'>): Envelope {
    return { is: 'envelope', ...data, pointer: this.#pointer, head: this.#received.bytes.toString() };
  }
}

/** Reads the part of a data URI between `data:` and its comma. */
function parametersOf(text: string): Pick<Envelope, 'mediaType' | 'isBase64'> {
  const named = text.replace(BASE64_MARK, '').trim();
  const mediaType = named.startsWith(';') ? `text/plain${named}` : named;
  return { mediaType: mediaType === '' ? undefined : mediaType, isBase64: BASE64_MARK.test(text) };
}
