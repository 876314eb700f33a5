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
