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

export const iso = (ms: number): string => new Date(ms).toISOString();
