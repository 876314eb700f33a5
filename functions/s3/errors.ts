/** The one place that knows what S3's error answers mean. */

interface ServiceError {
  readonly name: string;
  readonly $metadata: { readonly httpStatusCode?: number };
}

function isServiceError(error: unknown): error is ServiceError {
  return error instanceof Error && '$metadata' in error;
}

const statusOf = (error: unknown): number | undefined =>
  isServiceError(error) ? error.$metadata.httpStatusCode : undefined;

/** 412: the object is there (If-None-Match), or is not the one named (If-Match). */
export const isPreconditionFailed = (error: unknown): boolean => statusOf(error) === 412;

/** The object is in an archive storage class, and cannot be read before somebody has it restored. */
export const isArchived = (error: unknown): boolean => isServiceError(error) && error.name === 'InvalidObjectState';

/** 409: another conditional write of the same key was under way; S3 asks to do it again. */
export const isConflict = (error: unknown): boolean => statusOf(error) === 409;

/**
 * The object or that version of it is not there: 404, or 405 for a version that is a delete marker. Without ListBucket
 * S3 would say 403 instead, which is why both functions are allowed to list.
 */
export const isAbsent = (error: unknown): boolean =>
  (statusOf(error) === 404 && isServiceError(error) && error.name !== 'NoSuchBucket') || statusOf(error) === 405;
