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

/**
 * 412: the object exists (If-None-Match), or it is not the named one (If-Match). S3 may say so after it has answered 200,
 * to keep a long completion from timing out. The SDK calls that a 503.
 * @see https://docs.aws.amazon.com/AmazonS3/latest/API/API_CompleteMultipartUpload.html
 */
export const isPreconditionFailed = (error: unknown): boolean =>
  statusOf(error) === 412 || (isServiceError(error) && error.name === 'PreconditionFailed');

/**
 * 403 or 400: S3 refuses to hand out the object. The caller may lack a permission for it or for its KMS key, the key
 * may be disabled, or the object is encrypted with a key of the customer's own (SSE-C). The object may also be
 * absent, which S3 hides in this way. A throttled KMS and a malformed request are also answered with 400, and
 * do not count.
 * @see https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
 */
export const isDenied = (error: unknown): boolean =>
  isServiceError(error) &&
  (statusOf(error) === 403 || statusOf(error) === 400) &&
  !isThrottled(error) &&
  error.name !== 'InvalidArgument';

/** A throttled KMS is answered with 400. */
const isThrottled = (error: unknown): boolean => isServiceError(error) && error.name.includes('Throttling');

/** The object is in an archive storage class. It cannot be read before its owner restores it. */
export const isArchived = (error: unknown): boolean => isServiceError(error) && error.name === 'InvalidObjectState';

/** Answers that may differ the next time: a request that took too long, a conflict, and too many requests. */
const PASSING: readonly number[] = [408, 409, 429];

/** S3 will most likely answer the same again: a permission is missing, or this S3 does not know the request. */
export const isRefused = (error: unknown): boolean => {
  const status = statusOf(error) ?? 0;
  return status === 501 || (status >= 400 && status < 500 && !PASSING.includes(status) && !isThrottled(error));
};

/** 409: another conditional write of the same key was in progress. S3 asks the caller to retry. */
export const isConflict = (error: unknown): boolean => statusOf(error) === 409;

/** Tries of a conditional write that S3 answers with 409. */
export const CONFLICT_TRIES_MAX = 10;

/** Writes again while S3 answers with 409. @throws the last answer. */
export async function pastConflicts<T>(write: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await write();
    } catch (error) {
      if (!isConflict(error) || tries === CONFLICT_TRIES_MAX) throw error;
    }
  }
}

/**
 * The object, or that version of it, does not exist: 404, or 405 if the version is a delete marker. To a caller without
 * permission to list the bucket, S3 answers 403 instead. Therefore both functions have that permission.
 */
export const isAbsent = (error: unknown): boolean =>
  (statusOf(error) === 404 && isServiceError(error) && error.name !== 'NoSuchBucket') || statusOf(error) === 405;

/** Undefined if the object does not exist. @throws any other error. */
export async function ifThere<T>(answer: Promise<T>): Promise<T | undefined> {
  try {
    return await answer;
  } catch (error) {
    if (isAbsent(error)) return undefined;
    throw error;
  }
}

/**
 * True if S3 refused a write because the object is not as its condition demands: another process has put, replaced or
 * deleted it. If it is gone, S3 answers If-Match with 404.
 */
export const isConditionUnmet = (error: unknown): boolean => isPreconditionFailed(error) || isAbsent(error);
