/**
 * An id from the service as one segment of an S3 key. Ids are opaque and may be hostile: no part of one may look like
 * a separator, and a leading dot may not look like a parent directory.
 */
export function encodedId(id: string): string {
  return encodeURIComponent(id.toWellFormed())
    .replace(/[!'()*]/g, (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`)
    .replace(/^\./, '%2E');
}

/** The id that a segment encodes. Undefined if the segment is not encoded as {@link encodedId} does. */
export function decodedId(segment: string): string | undefined {
  try {
    return decodeURIComponent(segment);
  } catch {
    return undefined;
  }
}
