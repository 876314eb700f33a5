import { createHash } from 'node:crypto';

/** One version of one object, as the answer to a GET or a listing described it. */
export interface Upload {
  readonly id: string;
  readonly bucket: string;
  readonly key: string;
  /** Undefined if the bucket is not versioned, or was not when the object was put. */
  readonly versionId?: string | undefined;
  /** Without quotes. */
  readonly etag: string;
  readonly bytes: number;
  /** Milliseconds since the epoch, in whole seconds: HTTP dates are no more precise. */
  readonly lastModified: number;
  readonly mediaType: string;
}

/** Length of an upload id, in hexadecimal digits: 160 bits of SHA-256. */
const UPLOAD_ID_DIGITS = 40;

/** Matches every upload id. */
export const UPLOAD_ID = new RegExp(`^[0-9a-f]{${UPLOAD_ID_DIGITS}}$`);

/**
 * The upload id: a hash of the facts that identify one version of an object. A bucket without versioning, or with
 * suspended versioning (`null`), has only ETag and LastModified to tell an upload from the next one at the same key.
 * LastModified counts in whole seconds, because a GET is no more precise, although a listing is.
 */
export function uploadId(object: Pick<Upload, 'bucket' | 'key' | 'versionId' | 'etag' | 'lastModified'>): string {
  const versionId = pinnedVersion(object.versionId);
  const pin =
    versionId === undefined
      ? ['etag', unquoted(object.etag), Math.floor(object.lastModified / 1000)]
      : ['version', versionId];
  return createHash('sha256')
    .update(JSON.stringify([object.bucket, object.key, ...pin]))
    .digest('hex')
    .slice(0, UPLOAD_ID_DIGITS);
}

/** The version id if it identifies a version. Absent, empty and `null`, which unversioned objects have, do not. */
export function pinnedVersion(versionId: string | undefined | null): string | undefined {
  return versionId === undefined || versionId === null || versionId === '' || versionId === 'null'
    ? undefined
    : versionId;
}

/** Removes the quotes of an ETag. S3 quotes it in headers and listings, but not in events. */
export function unquoted(etag: string): string {
  return etag.replace(/^(?:W\/)?"(.*)"$/, '$1');
}
