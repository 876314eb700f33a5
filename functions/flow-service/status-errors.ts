import {
  type FlowServiceError,
  ForbiddenError,
  NotFoundError,
  NotReadyError,
  NotServedError,
  RejectedError,
  ThrottledError,
  UnauthorisedError,
  UnavailableError,
  UnintelligibleAnswerError,
} from './errors.ts';
import { exhaustedMs, hasRetryAfter, retryAfterMs } from './rate-limit-headers.ts';
import type { TransportResponse } from './transport.ts';

interface ErrorFacts {
  readonly message: string;
  /** Milliseconds since the epoch. */
  readonly now: number;
  /** True if the operation has succeeded before in this process. */
  readonly isServed: boolean;
  /** True if a byte of the request's body was sent. */
  readonly bodyStarted: boolean;
}

/**
 * Tells whether the service asks us to slow down. A spent credit counts too: no file is at fault then, so none should
 * fail and need a retry by hand.
 */
export const isThrottled = (response: TransportResponse): boolean =>
  response.refusal === 'throttled' ||
  response.refusal === 'outOfCredit' ||
  (response.status === 503 && hasRetryAfter(response));

/** Tells whether a cache before the service has answered, with what the service said earlier (RFC 9111, section 5.1). */
export const isCached = ({ headers }: Pick<TransportResponse, 'headers'>): boolean => Number(headers.age) > 0;

/** Words about an account. Some services use them with a status that means the request. */
const OF_ACCOUNT = /\b(?:balance|billing|credits?|funds|payment|quota|subscription|api[ _-]?key|suspended)\b/i;

/** The message of a refusal, with what to do if all files are refused so. */
const ofAccount = (message: string): string =>
  OF_ACCOUNT.test(message)
    ? `${message.replace(/\.?$/, '.')} If this is about your account, and not about the file, declare it in "errors" of "service".`
    : message;

/** The error for a status other than success. `create` treats some of them differently: see `client.ts`. */
export function errorForStatus(response: TransportResponse, facts: ErrorFacts): FlowServiceError {
  const { status, refusal } = response;
  const { message, now, isServed, bodyStarted } = facts;
  if (isThrottled(response)) {
    return new ThrottledError(message, { retryAfterMs: retryAfterMs(response, now) ?? exhaustedMs(response, now) });
  }
  if (refusal === 'tokenRefused') return new UnauthorisedError(message);
  if (refusal === 'notReady') return new NotReadyError(message);
  if (refusal === 'rejected') return new RejectedError(message, { status });
  switch (status) {
    case 202: // An asset: any other answer with these two is a success.
    case 204:
      return new NotReadyError(message);
    case 401:
    case 403:
      return new ForbiddenError(ofAccount(message));
    case 404:
      return new NotFoundError(message, { knownToBeServed: isServed && !isCached(response) });
    case 405:
    case 501:
      return new NotServedError(message);
    case 408: // The request did not arrive in time (RFC 9110, section 15.5.9), so the service did not act on it.
      return new UnavailableError(message, { bodyStarted });
    case 410: // The status itself says that the flow existed.
      return new NotFoundError(message, { knownToBeServed: true, isGone: true });
  }
  if (status >= 500) return new UnavailableError(message, { bodyStarted, status });
  if (status >= 400) return new RejectedError(ofAccount(message), { status });
  return new UnintelligibleAnswerError(message);
}
