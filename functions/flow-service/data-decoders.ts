import { DamagedAssetError } from './errors.ts';

/** Characters decoded by one call. In Node 24, decoding longer base64 strings becomes slow at once. */
export const PIECE_CHARS_MAX = 64 * 1024;

/**
 * The beginning of bare base64: a run that no word is as long as. Lines of it have 64 characters at least, and in JSON a slash
 * may be escaped.
 */
export const BARE_BASE64 = /^(?:\\?[\w+/-]){60}/;

/** Size of the blocks in which decoded bytes are gathered, in bytes. */
const BLOCK_BYTES = 256 * 1024;

/** One reusable buffer. It has room for one more decoded piece whenever it is not nearly full. */
export class Block {
  readonly #bytes = Buffer.allocUnsafeSlow(BLOCK_BYTES);
  #used = 0;
  #taken = 0;

  /** All bytes that were written so far. */
  get bytesWritten(): number {
    return this.#taken + this.#used;
  }

  get isEmpty(): boolean {
    return this.#used === 0;
  }

  get isNearlyFull(): boolean {
    return BLOCK_BYTES - this.#used < PIECE_CHARS_MAX;
  }

  /** Appends the bytes of base64. Returns their number. */
  writeBase64(text: string): number {
    const written = this.#bytes.write(text, this.#used, 'base64');
    this.#used += written;
    return written;
  }

  /** Appends text, one byte for each character. */
  writeLatin1(text: string): void {
    this.#used += this.#bytes.write(text, this.#used, 'latin1');
  }

  /** Discards the last bytes that were written. */
  drop(bytes: number): void {
    this.#used -= bytes;
  }

  /** The bytes written so far, valid until the next write. Empties the block. */
  take(): Uint8Array {
    const taken = this.#bytes.subarray(0, this.#used);
    this.#taken += this.#used;
    this.#used = 0;
    return taken;
  }
}

/*
 * Decoders of the data of a data URI, the part behind its comma. `wasEscaped` is true if the JSON had escapes there. Then
 * any character may occur in the text.
 */

/** Undoes the percent signs of ASCII. */
class Escapes {
  /** The beginning of an escape. */
  #carry = '';

  get isOpen(): boolean {
    return this.#carry !== '';
  }

  undone(text: string): string {
    const waiting = this.#carry + text;
    const cut = waiting.indexOf('%', Math.max(0, waiting.length - 2));
    const whole = cut === -1 ? waiting : waiting.slice(0, cut);
    this.#carry = waiting.slice(whole.length);
    if (/[^\0-\x7f]|%(?![0-9A-Fa-f]{2})/.test(whole)) throw new DamagedAssetError('The data is not percent-encoded');
    return whole.replace(/%(..)/g, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
  }

  end(): void {
    if (this.isOpen) throw new DamagedAssetError('The data ends in the middle of an escape');
  }
}

/**
 * Decodes base64 of either alphabet, with or without padding. Escaped line breaks in it are ignored. Its characters may
 * also be percent-encoded, as Python's `quote` does with `+` and `=` (RFC 2397, section 3).
 *
 * Whole groups go through Node's decoder, which silently skips unknown characters. If the result is shorter than three
 * quarters of the text, there was one. Then the text is checked character by character.
 */
export class Base64Decoder {
  readonly #block: Block;
  readonly #escapes = new Escapes();
  /** Characters that wait for the rest of their group of four. */
  #carry = '';
  #padding = 0;

  constructor(block: Block) {
    this.#block = block;
  }

  write(spelled: string, wasEscaped: boolean): void {
    const hasEscapes = this.#escapes.isOpen || spelled.includes('%');
    const text = hasEscapes ? this.#escapes.undone(spelled) : spelled;
    // A JSON string cannot hold an unescaped line break, but it can hold a space.
    const ignored = wasEscaped || hasEscapes ? /[ \t\r\n]+/g : / +/g;
    const start = (4 - this.#carry.length) % 4;
    const end = text.length - ((text.length - start) % 4);
    this.#add(text.slice(0, start), ignored);
    const groups = text.slice(start, end);
    const isAligned = this.#carry === '' && this.#padding === 0;
    if (!isAligned || !this.#decodeGroups(groups)) this.#add(groups, ignored);
    this.#add(text.slice(end), ignored);
  }

  /** @throws {DamagedAssetError} the last group is invalid. */
  end(): void {
    this.#escapes.end();
    const { length } = this.#carry;
    if (length === 1 || (this.#padding > 0 && (length === 0 || length + this.#padding !== 4))) {
      throw new DamagedAssetError('The base64 ends in the middle of a group');
    }
    // The last bits, which belong to no byte, are zero in the output of every encoder.
    const canonical = Buffer.from(this.#carry, 'base64').toString('base64url');
    if (canonical !== this.#carry.replaceAll('+', '-').replaceAll('/', '_'))
      throw new DamagedAssetError('The base64 ends in bits that no encoder writes');
    this.#block.writeBase64(this.#carry);
  }

  #add(text: string, ignored: RegExp): void {
    const match = /^([A-Za-z0-9+/_-]*)(=*)$/.exec(text.replace(ignored, ''));
    if (match === null) throw new DamagedAssetError('The data is not base64');
    const [, characters, padding] = match as unknown as readonly [string, string, string];
    if (this.#padding > 0 && characters !== '') throw new DamagedAssetError('The base64 goes on behind its padding');
    this.#padding += padding.length;
    const waiting = this.#carry + characters;
    const whole = waiting.length - (waiting.length % 4);
    this.#carry = waiting.slice(whole);
    this.#block.writeBase64(waiting.slice(0, whole));
  }

  /** Decodes whole groups. Writes nothing and returns false if the text has any other character. */
  #decodeGroups(text: string): boolean {
    const written = this.#block.writeBase64(text);
    if (written === (text.length / 4) * 3) return true;
    this.#block.drop(written);
    return false;
  }
}

/** Decodes percent-encoded ASCII. */
export class PercentDecoder {
  readonly #block: Block;
  readonly #escapes = new Escapes();

  constructor(block: Block) {
    this.#block = block;
  }

  write(text: string, wasEscaped: boolean): void {
    if (!wasEscaped && /\p{Cc}/u.test(text)) throw new DamagedAssetError('The data is not a JSON string');
    this.#block.writeLatin1(this.#escapes.undone(text));
  }

  end(): void {
    this.#escapes.end();
  }
}
