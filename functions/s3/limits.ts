/** Limits of S3. (Amazon S3 User Guide, "Naming Amazon S3 objects" and "Multipart upload limits".) */

/** Maximum length of a key, in bytes of UTF-8. */
export const KEY_BYTES_MAX = 1024;

/** Minimum size of every part but the last, in bytes. */
export const PART_BYTES_MIN = 5 * 1024 * 1024;

/** Maximum number of parts of an object. */
export const PARTS_MAX = 10_000;

/** Size of the parts in which an object of this length is uploaded, in bytes. */
export const partBytesOf = (bytes: number): number => Math.max(PART_BYTES_MIN, Math.ceil(bytes / PARTS_MAX));
