import type { Segment } from './bodies.ts';
import { type Call, demand, KEY_BYTES_MAX, type Service } from './call.ts';
import type { NewVersion, Version } from './catalog.ts';
import { checkWrite, type WriteCondition } from './conditions.ts';
import { S3Error } from './errors.ts';

/** S3 requires `s3:GetObject` too if the request compares an ETag, and a permission for tags if it has some. */
export function demandWrite(service: Service, call: Call): void {
  demand(service, call, 's3:PutObject');
  if (call.headers['if-match'] !== undefined) demand(service, call, 's3:GetObject');
  if (call.headers['x-amz-tagging'] !== undefined) demand(service, call, 's3:PutObjectTagging');
}

/** Checks that the key is valid and the bucket exists, before a byte of the body is read. */
export function checkTarget({ catalog }: Service, { bucket, key }: Pick<Call, 'bucket' | 'key'>): void {
  catalog.bucket(bucket);
  const bytes = Buffer.byteLength(key);
  if (bytes > KEY_BYTES_MAX) {
    throw new S3Error('KeyTooLongError', { details: { Size: String(bytes), MaxSizeAllowed: String(KEY_BYTES_MAX) } });
  }
}

/**
 * Adds a version to the catalog. It is the only place that does, except for delete markers. The condition is checked
 * in the same transaction. Afterwards the bodies of the overwritten version are removed.
 */
export function commit(
  service: Service,
  condition: WriteCondition | undefined,
  version: NewVersion,
  alongside: () => void = () => {},
): Version {
  const { database, catalog, bodies } = service;
  const { added, replaced } = database.transaction(() => {
    checkConflict(service, condition);
    catalog.bucket(version.bucket);
    checkWrite(condition, catalog.latest(version.bucket, version.key));
    alongside();
    return catalog.addVersion(version);
  });
  if (replaced !== undefined) bodies.remove(replaced.segments);
  return added;
}

/** Runs `work`, which commits a stored body. If it throws, the body is removed. */
export function keeping<T>({ bodies }: Service, segment: Segment, work: () => T): T {
  try {
    return work();
  } catch (error) {
    bodies.remove([segment]);
    throw error;
  }
}

export function checkConflict(service: Service, condition: WriteCondition | undefined): void {
  if (condition !== undefined && service.conflict()) throw new S3Error('ConditionalRequestConflict');
}

/** `x-amz-version-id`, if the bucket has or had versioning. */
export function versionHeader({ catalog }: Service, { bucket, versionId }: Version): Record<string, string> {
  return catalog.bucket(bucket).versioning === undefined ? {} : { 'x-amz-version-id': versionId };
}
