import { type Blob, type BlobFolder, BlobWriter } from './blob.ts';
import type { LongString } from './json-reader.ts';

const HEAD_BYTES_MAX = 1024;
/** Base64 is decoded in pieces of this length, which must be a multiple of 4. */
const BASE64_SLICE_CHARACTERS = 64 * 1024;

const TOKEN = "[\\w!#$%&'*+.^`|~-]+";
const DATA_URI_HEAD = new RegExp(`^data:((?:${TOKEN}/${TOKEN})?(?:;${TOKEN}=(?:${TOKEN}))*)(;base64)?$`);

/** The result of reading one input's `data`. */
export type InputData =
  | { readonly ok: true; readonly mediaType: string; readonly blob: Blob }
  | { readonly ok: false; readonly why: string };

/**
 * Reads the `data` of an input while it arrives: a base64 data URI, or plain text. It is stricter than most decoders:
 * the alphabet of RFC 4648 section 4 only, no white space, and padding required.
 */
export class InputDataReader implements LongString {
  readonly #writer: BlobWriter;
  #as: 'undecided' | 'base64' | 'text' = 'undecided';
  #head = Buffer.alloc(0);
  #mediaType = 'text/plain';
  #carry = '';
  readonly #utf8 = new TextDecoder('utf-8', { fatal: true });
  #problem: string | undefined;
  #result: InputData | undefined;

  constructor(folder: BlobFolder) {
    this.#writer = new BlobWriter(folder);
  }

  raw(bytes: Buffer): void {
    // In base64 the decoder finds control characters, and faster.
    if (this.#as !== 'base64' && bytes.some((byte) => byte < 0x20)) {
      this.#fail('a string holds a control character that is not escaped');
    }
    this.#take(bytes);
  }

  escaped(character: string): void {
    this.#take(Buffer.from(character));
  }

  end(): void {
    if (this.#as === 'undecided') this.#becomeText();
    if (this.#as === 'text') this.#text(Buffer.alloc(0), false);
    if (this.#carry !== '' && !/^([\w+/]{2}==|[\w+/]{3}=)$/.test(this.#carry)) {
      this.#fail('incorrect padding: base64 comes in groups of four characters');
    }
    if (this.#problem === undefined && this.#carry !== '') this.#decode(this.#carry, this.#carry.indexOf('=') - 1);
    if (this.#problem === undefined) {
      this.#result = { ok: true, mediaType: this.#mediaType, blob: this.#writer.end() };
    }
  }

  /** Undefined until the string has ended. */
  get result(): InputData | undefined {
    return this.#problem === undefined ? this.#result : { ok: false, why: this.#problem };
  }

  /** Drops the bytes. Call it if no flow was created with them. */
  discard(): void {
    this.#writer.discard();
  }

  #fail(why: string): void {
    this.#problem ??= why;
  }

  #take(bytes: Buffer): void {
    if (this.#problem !== undefined) return;
    if (this.#as === 'base64') this.#base64(bytes);
    else if (this.#as === 'text') this.#text(bytes, true);
    else this.#decide(bytes);
  }

  #decide(bytes: Buffer): void {
    this.#head = Buffer.concat([this.#head, bytes]);
    const comma = this.#head.indexOf(',');
    const start = this.#head.toString('latin1', 0, Math.min(this.#head.length, HEAD_BYTES_MAX));
    if (!start.startsWith('data:'.slice(0, start.length)) || /^[^,]*\s/.test(start)) {
      this.#becomeText();
    } else if (comma !== -1 && comma < HEAD_BYTES_MAX) {
      const [matches, mediaType, base64] = DATA_URI_HEAD.exec(start.slice(0, comma)) ?? [];
      if (matches === undefined) this.#fail('the data URI has no valid media type');
      if (base64 === undefined) this.#fail('only data URIs in base64 are accepted');
      this.#mediaType = mediaType || 'text/plain';
      this.#as = 'base64';
      if (this.#problem === undefined) this.#base64(this.#head.subarray(comma + 1));
    } else if (this.#head.length >= HEAD_BYTES_MAX) {
      this.#becomeText();
    }
  }

  #becomeText(): void {
    this.#as = 'text';
    this.#text(this.#head, true);
  }

  #text(bytes: Buffer, more: boolean): void {
    try {
      this.#utf8.decode(bytes, { stream: more });
    } catch {
      this.#fail('the text is not valid UTF-8');
      return;
    }
    this.#writer.write(bytes);
  }

  #base64(bytes: Buffer): void {
    for (let at = 0; at < bytes.length && this.#problem === undefined; at += BASE64_SLICE_CHARACTERS) {
      const text = this.#carry + bytes.toString('latin1', at, Math.min(bytes.length, at + BASE64_SLICE_CHARACTERS));
      const padding = text.indexOf('=');
      const characters = padding === -1 ? text.length : padding;
      const whole = characters - (characters % 4);
      this.#decode(text.slice(0, whole), whole * 0.75);
      this.#carry = text.slice(whole);
      if (this.#carry.length > 4) this.#fail('base64 goes on after its padding');
    }
  }

  #decode(text: string, bytes: number): void {
    const decoded = Buffer.allocUnsafe(bytes);
    // Node skips characters that are not base64, so they show as missing bytes. It also accepts the URL-safe alphabet.
    if (decoded.write(text, 'base64') !== bytes || text.includes('-') || text.includes('_')) {
      this.#fail('a character outside the base64 alphabet');
    }
    this.#writer.write(decoded);
  }
}
