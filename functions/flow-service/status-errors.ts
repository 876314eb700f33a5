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
import { exhaustedMs, retryAfterMs } from './rate-limit-headers.ts';
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
 * Tells whether the service asks us to slow down. 402 counts too: the account's budget is spent. No file is at fault
 * then, so none should fail and need a retry by hand.
 */
export const isThrottled = ({ status, headers }: TransportResponse): boolean =>
  status === 429 || status === 402 || (status === 503 && headers['retry-after'] !== undefined);

/** The error for a status other than success. `create` treats some of them differently: see `client.ts`. */
export function errorForStatus(response: TransportResponse, facts: ErrorFacts): FlowServiceError {
  const { status } = response;
  const { message, now, isServed, bodyStarted } = facts;
  if (isThrottled(response)) {
    return new ThrottledError(message, { retryAfterMs: retryAfterMs(response, now) ?? exhaustedMs(response, now) });
  }
  switch (status) {
    case 401:
      return new UnauthorisedError(message);
    case 403:
      return new ForbiddenError(message);
    case 404:
      return new NotFoundError(message, { knownToBeServed: isServed });
    case 405:
    case 501:
      return new NotServedError(message);
    case 408: // The request did not arrive in time (RFC 9110, section 15.5.9), so the service did not act on it.
      return new UnavailableError(message, { bodyStarted });
    case 409:
    case 425:
      return new NotReadyError(message);
    case 410: // The status itself says that the flow existed.
      return new NotFoundError(message, { knownToBeServed: true });
  }
  if (status >= 500) return new UnavailableError(message, { bodyStarted });
  if (status >= 400) return new RejectedError(message, { status });
  return new UnintelligibleAnswerError(message);
}
