/** The meaning of S3's error answers, in one place. */

interface ServiceError {
  readonly name: string;
  readonly $metadata: { readonly httpStatusCode?: number };
}

function isServiceError(error: unknown): error is ServiceError {
  return error instanceof Error && '$metadata' in error;
}

const statusOf = (error: unknown): number | undefined =>
  isServiceError(error) ? error.$metadata.httpStatusCode : undefined;

/** 412: the object exists (If-None-Match), or it is not the named one (If-Match). */
export const isPreconditionFailed = (error: unknown): boolean => statusOf(error) === 412;

/** 403: the caller lacks a permission. S3 may also hide an absent object so. */
export const isForbidden = (error: unknown): boolean => statusOf(error) === 403;

/** The object is in an archive storage class. It cannot be read before its owner restores it. */
export const isArchived = (error: unknown): boolean => isServiceError(error) && error.name === 'InvalidObjectState';

/** 409: another conditional write of the same key was in progress. S3 asks the caller to retry. */
export const isConflict = (error: unknown): boolean => statusOf(error) === 409;

/**
 * The object, or that version of it, does not exist: 404, or 405 if the version is a delete marker. To a caller without
 * permission to list the bucket, S3 answers 403 instead. Therefore both functions have that permission.
 */
export const isAbsent = (error: unknown): boolean =>
  (statusOf(error) === 404 && isServiceError(error) && error.name !== 'NoSuchBucket') || statusOf(error) === 405;
