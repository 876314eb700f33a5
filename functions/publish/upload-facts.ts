import { iso } from '../base/clock.ts';
import type { Upload } from '../uploads/upload.ts';

/**
 * What receipts and `chain.json` say of an upload.
 * @param content its size and media type, where these are told.
 */
export function uploadFacts<C extends object>(
  { id, bucket, key, versionId, etag, lastModified, currentAt, sequencer }: Upload,
  content: C,
) {
  const rank = { currentAt: currentAt === undefined ? undefined : iso(currentAt), sequencer };
  return { id, bucket, key, versionId, etag, ...content, lastModified: iso(lastModified), ...rank };
}

/** Bytes that an item of a list takes in a receipt or in `chain.json`, with its comma. */
export const bytesInList = (item: unknown): number => Buffer.byteLength(JSON.stringify(item)) + 1;

/** The first items of a list that take at most so many bytes. @param bytesOf one item. Default: {@link bytesInList}. */
export function fitting<T>(
  items: readonly T[],
  bytesMax: number,
  bytesOf: (item: T) => number = bytesInList,
): readonly T[] {
  let bytes = 0;
  const end = items.findIndex((item) => {
    bytes += bytesOf(item);
    return bytes > bytesMax;
  });
  return end === -1 ? items : items.slice(0, end);
}
