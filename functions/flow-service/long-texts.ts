/**
 * Bytes that stay of a text in an answer. No member that is read has more: ids have at most 256 bytes, quotations 300
 * characters, and a flow tag some hundred. A service may answer with the whole file that it was sent.
 */
export const TEXT_BYTES_MAX = 64 * 1024;

/**
 * Stands at the end of a text that was cut, and before the number of its bytes there: `…CUT 12345 CUT`, without spaces.
 * No text has this code point: Unicode keeps it free for such marks.
 */
export const CUT = '\u{10FFFF}';
const CUT_BYTES = Buffer.from(CUT);

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const SMALL_U = 0x75;

/**
 * Cuts the long texts in the bytes of a JSON text while they arrive. What comes out is JSON again, and each text that was
 * cut ends with {@link CUT}. So an answer may echo a file of any size, and takes no more memory than without it.
 */
export class LongTexts {
  readonly #textBytesMax: number;
  #isInText = false;
  #isDropping = false;
  /** Bytes of the present text, without its quotes. */
  #length = 0;
  /** Bytes that still belong to an escape such as `\n` or `\u00e9`. No digit of an escape is a `u`. */
  #escape = 0;

  /** @param textBytesMax bytes that stay of a text. */
  constructor(textBytesMax = TEXT_BYTES_MAX) {
    this.#textBytesMax = textBytesMax;
  }

  /** What stays of the next bytes. */
  cut(chunk: Uint8Array): Uint8Array {
    const kept: Uint8Array[] = [];
    let from = 0;
    for (let at = 0; at < chunk.byteLength; at += 1) {
      const byte = chunk[at] as number;
      if (!this.#isInText) {
        if (byte === QUOTE) this.#begin();
        continue;
      }
      if (byte === QUOTE && this.#escape === 0) {
        if (this.#isDropping) {
          kept.push(Buffer.from(`${this.#length}${CUT}`));
          from = at;
        }
        this.#isInText = false;
        this.#isDropping = false;
        continue;
      }
      if (!this.#isDropping && this.#length >= this.#textBytesMax && this.#isBoundary(byte)) {
        this.#isDropping = true;
        kept.push(chunk.subarray(from, at), CUT_BYTES);
      }
      this.#length += 1;
      this.#followEscape(byte);
    }
    if (this.#isDropping) return Buffer.concat(kept);
    return kept.length === 0 ? chunk : Buffer.concat([...kept, chunk.subarray(from)]);
  }

  #begin(): void {
    this.#isInText = true;
    this.#length = 0;
  }

  /** True if no escape and no character of UTF-8 is cut in two before this byte. */
  #isBoundary(byte: number): boolean {
    return this.#escape === 0 && (byte & 0xc0) !== 0x80;
  }

  #followEscape(byte: number): void {
    if (this.#escape === 1 && byte === SMALL_U) this.#escape = 4;
    else if (this.#escape > 0) this.#escape -= 1;
    else if (byte === BACKSLASH) this.#escape = 1;
  }
}
