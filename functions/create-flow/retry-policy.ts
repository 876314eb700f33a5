import { OutOfTimeError } from '../base/invocation.ts';
import {
  ForbiddenError,
  InDoubtError,
  InvalidTextError,
  RejectedError,
  ThrottledError,
  UnauthorisedError,
  UnavailableError,
  UnintelligibleAnswerError,
} from '../flow-service/errors.ts';
import type { ClaimedEntry, Failure, WaitReason } from '../ledger/entry.ts';
import { UploadGoneError, UploadUnreadableError } from '../uploads/inbox.ts';

/** Time that must be left after a wait in place for another attempt to be worth its while, in milliseconds. */
export const ATTEMPT_TIME_MIN_MS = 30_000;

/** First and longest wait after a failure for which the service names no time, in milliseconds. */
const BACKOFF_FIRST_MS = 5_000;
const BACKOFF_MAX_MS = 15 * 60_000;

/** Longest wait of a throttled upload, in milliseconds. Its queue bounds how many are tried, so each need not wait long. */
const THROTTLED_BACKOFF_MAX_MS = 5 * 60_000;

/** The same after a failure that is counted: five attempts go over an hour or two. */
const COUNTED_BACKOFF_FIRST_MS = 60_000;
const COUNTED_BACKOFF_MAX_MS = 60 * 60_000;

/** How long a refused token is left alone, in milliseconds: a person has to act. */
const UNAUTHORISED_WAIT_MS = 60_000;

/** How long a flow listing that cannot be had is asked for after it would have been conclusive, in milliseconds. */
const LISTING_PATIENCE_MS = 60 * 60_000;

/** What an error of sending means for the upload. Undefined: it is not known here, and must not be hidden. */
export type RetryDecision =
  | { readonly kind: 'fail'; readonly failure: Failure }
  /** The delay is that of the next attempt, should no flow be found. */
  | { readonly kind: 'doubt'; readonly counted: boolean; readonly delayMs: number }
  | { readonly kind: 'wait'; readonly reason: WaitReason; readonly counted: boolean; readonly delayMs: number };

export function classify(error: unknown, entry: ClaimedEntry, now: number): RetryDecision | undefined {
  const delayMs = backoffMs(entry);
  const countedMs = countedBackoffMs(entry);
  if (error instanceof InDoubtError) {
    const { cause } = error;
    return cause instanceof ThrottledError
      ? { kind: 'doubt', counted: false, delayMs: throttledMs(cause, entry) }
      : { kind: 'doubt', counted: true, delayMs: countedMs };
  }
  if (error instanceof RejectedError || error instanceof InvalidTextError) {
    return { kind: 'fail', failure: { code: error.code, message: error.message } };
  }
  if (error instanceof UploadGoneError) {
    return { kind: 'fail', failure: { code: 'upload-gone', message: `${error.message}.` } };
  }
  if (error instanceof UnauthorisedError) {
    return { kind: 'wait', reason: 'unauthorised', counted: false, delayMs: Math.max(UNAUTHORISED_WAIT_MS, delayMs) };
  }
  if (error instanceof ForbiddenError) return { kind: 'wait', reason: 'forbidden', counted: true, delayMs: countedMs };
  if (error instanceof ThrottledError) {
    return { kind: 'wait', reason: 'throttled', counted: false, delayMs: throttledMs(error, entry) };
  }
  if (error instanceof UnavailableError) {
    const counted = error.bodyStarted;
    return { kind: 'wait', reason: 'unavailable', counted, delayMs: counted ? countedMs : delayMs };
  }
  if (error instanceof UploadUnreadableError) {
    return { kind: 'wait', reason: 'unavailable', counted: true, delayMs: countedMs };
  }
  if (error instanceof OutOfTimeError) {
    // What had less than half a minute before the time ran out was only unlucky.
    return { kind: 'wait', reason: 'out-of-time', counted: now - entry.claimedAt > ATTEMPT_TIME_MIN_MS, delayMs };
  }
  return undefined;
}

/** Whether asking for the listing again is in vain: what it says will be the same, or it has had its time. */
export function isListingInVain(error: unknown, overdueMs: number): boolean {
  if (error instanceof ForbiddenError || error instanceof UnintelligibleAnswerError) return true;
  const mayPass = error instanceof UnauthorisedError || error instanceof OutOfTimeError;
  return !mayPass && overdueMs > LISTING_PATIENCE_MS;
}

/**
 * Doubles with every wait up to its longest. The upload id spreads it over half its length either way, so that files
 * which began to wait together do not come back together.
 */
export function backoffMs(entry: Pick<ClaimedEntry, 'waits' | 'upload'>): number {
  const exponential = Math.min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS * 2 ** Math.min(entry.waits, 20));
  return Math.round(exponential * (0.5 + spreadOf(entry)));
}

/** The same for a failure that is counted, but growing by attempts and faster: few attempts must outlast an outage. */
export function countedBackoffMs(entry: Pick<ClaimedEntry, 'attempts' | 'upload'>): number {
  const exponential = Math.min(COUNTED_BACKOFF_MAX_MS, COUNTED_BACKOFF_FIRST_MS * 4 ** Math.min(entry.attempts, 20));
  return Math.round(exponential * (0.5 + spreadOf(entry)));
}

/**
 * As long as the service asks, and not less than the backoff, so that `Retry-After: 0` makes no loop of whole uploads. An
 * upload that was not sent only waits for its turn in the queue of those that are throttled.
 */
function throttledMs({ retryAfterMs = 0, wasSent }: ThrottledError, entry: ClaimedEntry): number {
  if (!wasSent) return retryAfterMs;
  const backoff = Math.min(THROTTLED_BACKOFF_MAX_MS, backoffMs(entry));
  return Math.max(Math.round(retryAfterMs * (1 + spreadOf(entry) / 4)), backoff);
}

/** From 0 to below 1, and always the same for one upload. */
function spreadOf({ upload }: Pick<ClaimedEntry, 'upload'>): number {
  return Number.parseInt(upload.id.slice(0, 8), 16) / 2 ** 32;
}

export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
