import { OutOfTimeError } from '../base/invocation.ts';
import {
  ForbiddenError,
  InDoubtError,
  InvalidTextError,
  MisaddressedError,
  NotFoundError,
  NotServedError,
  RejectedError,
  ThrottledError,
  UnauthorisedError,
  UnavailableError,
  UnintelligibleAnswerError,
} from '../flow-service/errors.ts';
import { HeldError, HoldsUnavailableError } from '../holds/permit.ts';
import type { ClaimedEntry } from '../ledger/entry.ts';
import type { FailureCode, KnownFailure } from '../ledger/failures.ts';
import { SUPERSEDED } from '../ledger/terminal-states.ts';
import { BACKOFF_MAX_MS, type WaitReason } from '../ledger/waits.ts';
import { spreadOf } from '../uploads/upload.ts';
import {
  UploadArchivedError,
  UploadDeniedError,
  UploadEncodedError,
  UploadGoneError,
  UploadUnreadableError,
} from '../uploads/upload-errors.ts';

/** Minimum time for an attempt, in milliseconds. With less time left, none is begun. */
export const ATTEMPT_TIME_MIN_MS = 30_000;

/** First backoff after an uncounted failure, in milliseconds. The longest is {@link BACKOFF_MAX_MS}. */
const BACKOFF_FIRST_MS = 5_000;

/**
 * Longest backoff of a throttled upload, in milliseconds. A short wait is safe: the collector limits how many it
 * resubmits.
 */
const THROTTLED_BACKOFF_MAX_MS = 5 * 60_000;

/**
 * First and longest backoff after a counted failure, in milliseconds. Five attempts span 40 minutes to two hours.
 */
const COUNTED_BACKOFF_FIRST_MS = 60_000;
const COUNTED_BACKOFF_MAX_MS = 60 * 60_000;

/**
 * How long an upload waits while something other than the flow service answers, in milliseconds. Three days outlast a
 * weekend. After that the upload fails, because the alarm has probably gone unnoticed.
 */
const MISADDRESSED_MAX_MS = 3 * 24 * 60 * 60_000;

/** The code of that failure. */
export const MISADDRESSED = 'misaddressed';

/** Minimum wait after a refused token or an answer of something else, in milliseconds. The operator has to act. */
const OPERATOR_WAIT_MS = 60_000;

/**
 * How long a listing that cannot be read is asked for again, except in an outage, in milliseconds. It counts from the
 * time when the listing must show the flow.
 */
const LISTING_PATIENCE_MS = 60 * 60_000;

/**
 * How long an outage may last, in milliseconds: until then, doubts wait for the service, and no last attempt is charged. A
 * day outlasts a night.
 */
export const OUTAGE_MAX_MS = 24 * 60 * 60_000;

/** The code of a failure after the last attempt. */
export const ATTEMPTS_EXHAUSTED = 'attempts-exhausted';

/** What an error of sending means for the upload. */
export type RetryDecision =
  | { readonly kind: 'fail'; readonly failure: KnownFailure }
  /** `delayMs` is the time until the next attempt, if no flow is found. */
  | {
      readonly kind: 'doubt';
      readonly counted: boolean;
      /** True if the attempt is counted later: when the upload is sent again without a proof that it has no flow. */
      readonly isUncounted?: true;
      readonly delayMs: number;
    }
  | {
      readonly kind: 'wait';
      readonly reason: WaitReason;
      readonly counted: boolean;
      readonly delayMs: number;
      /** The code of the failure after the last attempt. Default: that all attempts are used up. */
      readonly failsAs?: FailureCode;
    };

/**
 * Decides what an error of sending means for the upload. Undefined if the error is unknown: the caller must throw it.
 */
export function classify(error: unknown, entry: ClaimedEntry, now: number): RetryDecision | undefined {
  const delayMs = backoffMs(entry);
  const operatorMs = operatorBackoffMs(entry);
  const countedMs = countedBackoffMs(entry);
  const fail = (code: FailureCode, message: string) => ({ kind: 'fail', failure: { code, message } }) as const;
  const doubt = (delayMs: number, counted = false) => ({ kind: 'doubt', counted, delayMs }) as const;
  const wait = (reason: WaitReason, delayMs: number, counted = false) =>
    ({ kind: 'wait', reason, counted, delayMs }) as const;
  if (error instanceof InDoubtError) {
    const { cause } = error;
    // The file is not to blame if the service throttles, or if something else answers.
    if (cause instanceof ThrottledError) return { ...doubt(throttledMs(cause, entry)), isUncounted: true };
    if (!(cause instanceof MisaddressedError)) return doubt(countedMs, true);
    // A 404, 405 or 501 says that most probably nothing was done (RFC 9110, sections 15.5.5, 15.5.6 and 15.6.2).
    const isNothingThere = cause.cause instanceof NotFoundError || cause.cause instanceof NotServedError;
    return isNothingThere ? doubt(operatorMs) : { ...doubt(operatorMs), isUncounted: true };
  }
  if (error instanceof RejectedError || error instanceof InvalidTextError) return fail(error.code, error.message);
  if (error instanceof UploadGoneError) return fail(goneCode(error, entry), `${error.message}.`);
  if (error instanceof UploadArchivedError) return fail('input-archived', `${error.message}: have it restored first.`);
  if (error instanceof UploadEncodedError) return fail('input-encoded', error.message);
  if (error instanceof UnauthorisedError) return wait('unauthorised', operatorMs);
  if (error instanceof MisaddressedError) return wait(MISADDRESSED, operatorMs);
  if (error instanceof HoldsUnavailableError) return wait('unavailable', delayMs);
  if (error instanceof HeldError) return wait(error.reason, 0);
  if (error instanceof ForbiddenError) return wait('forbidden', countedMs, true);
  if (error instanceof ThrottledError) return wait('throttled', throttledMs(error, entry));
  if (error instanceof UnavailableError) {
    return error.bodyStarted ? wait('unavailable', countedMs, true) : wait('unavailable', delayMs);
  }
  if (error instanceof UploadDeniedError) return { ...wait('forbidden', countedMs, true), failsAs: 'input-denied' };
  if (error instanceof UploadUnreadableError) return wait('unavailable', countedMs, true);
  // If the claim is younger than half a minute, the file is not to blame.
  const isOld = now - entry.claimedAt > ATTEMPT_TIME_MIN_MS;
  if (error instanceof OutOfTimeError) return wait('out-of-time', delayMs, isOld);
  return undefined;
}

function goneCode({ key, isReplaced }: UploadGoneError, { upload }: ClaimedEntry): FailureCode {
  if (upload.stage !== undefined) return 'asset-gone';
  if (key !== upload.key) return 'input-gone';
  return isReplaced ? SUPERSEDED : 'upload-gone';
}

/** True if an upload has waited long enough for the flow service to answer at its address. */
export function isMisaddressedTooLong({ misaddressedSince }: Pick<ClaimedEntry, 'misaddressedSince'>, now: number) {
  return now - (misaddressedSince ?? now) >= MISADDRESSED_MAX_MS;
}

/** True if the flow listing is not asked for again: its answer will be the same, or it has failed for too long. */
export function isListingHopeless(error: unknown, overdueMs: number): boolean {
  // If the listing answers with an error of its own, it may answer the next request.
  const isUnfit = error instanceof UnintelligibleAnswerError && !error.isOwnError;
  const isFinal = error instanceof ForbiddenError || isUnfit || error instanceof MisaddressedError;
  if (isFinal) return true;
  return !(error instanceof UnauthorisedError) && overdueMs > (isOutage(error) ? OUTAGE_MAX_MS : LISTING_PATIENCE_MS);
}

/** True if the service is unavailable, or throttles. */
export const isOutage = (error: unknown): boolean =>
  error instanceof UnavailableError || error instanceof ThrottledError;

/**
 * The backoff after an uncounted failure, in milliseconds. It doubles with every wait: 5, 10, 20 seconds, and from the
 * ninth on 15 minutes. The upload id spreads it from half to one and a half of its length, so that files which began to
 * wait together do not come back together. An id whose `spreadOf` is 0.25 makes that 3.75, 7.5, 15 seconds.
 */
export function backoffMs(entry: Pick<ClaimedEntry, 'waits' | 'upload'>): number {
  const exponential = Math.min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS * 2 ** Math.min(entry.waits, 20));
  return Math.round(exponential * (0.5 + spreadOf(entry.upload.id)));
}

/**
 * The backoff after a failure that only the operator can mend, in milliseconds: like any other, but at least a minute.
 */
export const operatorBackoffMs = (entry: Pick<ClaimedEntry, 'waits' | 'upload'>): number =>
  Math.max(OPERATOR_WAIT_MS, backoffMs(entry));

/**
 * The backoff after a counted failure, in milliseconds. It grows fourfold, because few attempts must outlast an outage:
 * 1, 4, 16, 60 minutes, spread like the backoff of an uncounted failure.
 */
export function countedBackoffMs(entry: Pick<ClaimedEntry, 'attempts' | 'upload'>): number {
  const exponential = Math.min(COUNTED_BACKOFF_MAX_MS, COUNTED_BACKOFF_FIRST_MS * 4 ** Math.min(entry.attempts, 20));
  return Math.round(exponential * (0.5 + spreadOf(entry.upload.id)));
}

/**
 * The wait of a throttled upload, in milliseconds. It is as long as the service says, and up to a quarter longer. The
 * backoff is the floor, so `Retry-After: 0` cannot cause a hot loop. An upload that was not sent, because its turn did
 * not come in time, has no backoff: it waits in the line.
 *
 * With `spreadOf` 0.5, the first wait is 67.5 seconds after `Retry-After: 60`, and 5 seconds after `Retry-After: 0`.
 */
function throttledMs({ retryAfterMs = 0, wasSent }: ThrottledError, entry: ClaimedEntry): number {
  if (!wasSent) return retryAfterMs;
  const backoff = Math.min(THROTTLED_BACKOFF_MAX_MS, backoffMs(entry));
  return Math.max(Math.round(retryAfterMs * (1 + spreadOf(entry.upload.id) / 4)), backoff);
}

/** What the last attempt came to, as a sentence to be added. Empty if it is unknown. */
export const lastAnswerOf = ({ answer }: Pick<ClaimedEntry, 'answer'>): string =>
  answer === undefined ? '' : ` The last answer: ${answer.message}`;
