import { jsonIn } from '../base/json.ts';

/** Helpers for the inside of a JSON string that arrives in pieces, with the bytes that matter in it. */

export const QUOTE = 0x22;
export const BACKSLASH = 0x5c;
export const LOWER_U = 0x75;

/** Decodes the escapes in the inside of a JSON string. Returns undefined if it is not one. */
export const unescaped = (text: string): string | undefined => jsonIn(`"${text}"`) as string | undefined;

/** The place of the quote that ends the string. `piece` must begin with a character or a whole escape. */
export function closingQuote(piece: Buffer): number | undefined {
  for (let quote = piece.indexOf(QUOTE); quote !== -1; quote = piece.indexOf(QUOTE, quote + 1)) {
    if (!isEscaped(piece, quote)) return quote;
  }
  return undefined;
}

/** The length of `piece` without an escape that is cut by its end. */
export function lengthWithoutCutEscape(piece: Buffer): number {
  const last = piece.lastIndexOf(BACKSLASH);
  if (last === -1 || isEscaped(piece, last)) return piece.byteLength;
  const escapeLength = piece[last + 1] === LOWER_U ? '\\u0000'.length : '\\n'.length;
  return last + escapeLength > piece.byteLength ? last : piece.byteLength;
}

/** True if an odd number of backslashes stands directly before this place. */
function isEscaped(piece: Buffer, at: number): boolean {
  let isOdd = false;
  for (let before = at - 1; before >= 0 && piece[before] === BACKSLASH; before -= 1) isOdd = !isOdd;
  return isOdd;
}
