import { hash } from 'node:crypto';

/** Maximum length of a {@link shortSegment}, in bytes. Two of them fit into a key beside three times and an id. */
const SHORT_BYTES_MAX = 128;

/** Digits of the hash at the end of a segment that was too long. */
const HASH_DIGITS = 16;

/**
 * Encodes any text as one short segment of an S3 key, the same for the same text. A long text loses its end, and gets a
 * hash of the whole in its place.
 */
export function shortSegment(text: string): string {
  const whole = encodedId(text);
  if (whole.length <= SHORT_BYTES_MAX) return whole;
  const digits = hash('sha256', whole).slice(0, HASH_DIGITS);
  return `${whole.slice(0, SHORT_BYTES_MAX - HASH_DIGITS - 1)}~${digits}`;
}

/**
 * Encodes an id from the service as one segment of an S3 key. Ids are opaque and may be hostile. The result contains no
 * separator, and no leading dot that could look like a parent directory.
 */
export function encodedId(id: string): string {
  return encodeURIComponent(id.toWellFormed())
    .replace(/[!'()*]/g, (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`)
    .replace(/^\./, '%2E');
}

/** Decodes a segment. Returns undefined if it is not percent-encoded UTF-8. */
export function decodedId(segment: string): string | undefined {
  try {
    return decodeURIComponent(segment);
  } catch {
    return undefined;
  }
}
