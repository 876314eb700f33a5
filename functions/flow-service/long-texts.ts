import { BACKSLASH, LOWER_U, QUOTE } from './json-string.ts';

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

/**
 * Cuts the long texts in the bytes of a JSON text while they arrive. What comes out is JSON again, and each text that was
 * cut ends with {@link CUT}. So an answer may echo a file of any size, and takes no more memory than without it.
 */
export class LongTexts {
  readonly #textBytesMax: number;
  /**
   * Where the bytes so far end. `length` counts those of the present text, without its quotes. `escapeBytes` counts those
   * that still belong to an escape such as `\n` or `\u00e9`. No digit of an escape is a `u`.
   */
  #state = { isInText: false, isDropping: false, length: 0, escapeBytes: 0 };

  /** @param textBytesMax bytes that stay of a text. */
  constructor(textBytesMax = TEXT_BYTES_MAX) {
    this.#textBytesMax = textBytesMax;
  }

  /** What stays of the next bytes. */
  cut(chunk: Uint8Array): Uint8Array {
    const kept: Uint8Array[] = [];
    let from = 0;
    // An answer may have megabytes. With fields in place of variables, each byte takes twice as long.
    let { isInText, isDropping, length, escapeBytes } = this.#state;
    const { byteLength } = chunk;
    const textBytesMax = this.#textBytesMax;
    for (let at = 0; at < byteLength; at += 1) {
      const byte = chunk[at] as number;
      if (!isInText) {
        if (byte === QUOTE) {
          isInText = true;
          length = 0;
        }
      } else if (byte === QUOTE && escapeBytes === 0) {
        if (isDropping) {
          kept.push(Buffer.from(`${length}${CUT}`));
          from = at;
        }
        isInText = false;
        isDropping = false;
      } else {
        // No escape and no character of UTF-8 is cut in two.
        if (length >= textBytesMax && !isDropping && escapeBytes === 0 && (byte & 0xc0) !== 0x80) {
          isDropping = true;
          kept.push(chunk.subarray(from, at), CUT_BYTES);
        }
        length += 1;
        if (escapeBytes > 0) escapeBytes = escapeBytes === 1 && byte === LOWER_U ? 4 : escapeBytes - 1;
        else if (byte === BACKSLASH) escapeBytes = 1;
      }
    }
    this.#state = { isInText, isDropping, length, escapeBytes };
    if (isDropping) return Buffer.concat(kept);
    return kept.length === 0 ? chunk : Buffer.concat([...kept, chunk.subarray(from)]);
  }
}
