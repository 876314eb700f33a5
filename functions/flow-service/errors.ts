/**
 * What can go wrong between us and the flow service: one class for each decision that a caller makes.
 * No message, field or cause of any of these ever holds the token or a request header.
 */

/** The base of them all, for the one question "was it the flow service?". */
export abstract class FlowServiceError extends Error {
  /** Stable and machine-readable; it is what receipts and logs carry. */
  abstract readonly code: string;
}

/** The service refused the request for good (a 4xx that will be the same next time). Nothing was created. */
export class RejectedError extends FlowServiceError {
  override readonly name = 'RejectedError';
  readonly code = 'rejected';
  readonly status: number;
  constructor(message: string, options: ErrorOptions & { status: number }) {
    super(message, options);
    this.status = options.status;
  }
}

/** 401 with the token just read anew, or no token could be read at all. Nothing was created. */
export class UnauthorisedError extends FlowServiceError {
  override readonly name = 'UnauthorisedError';
  readonly code = 'unauthorised';
}

/** 403: the token is known but may not do this; the file may be why. Nothing was created. */
export class ForbiddenError extends FlowServiceError {
  override readonly name = 'ForbiddenError';
  readonly code = 'forbidden';
}

/** 429, 402, or 503 with `Retry-After`, or no turn at the pace that the service allows. Nothing was created. */
export class ThrottledError extends FlowServiceError {
  override readonly name = 'ThrottledError';
  readonly code = 'throttled';
  /** How long the service asks us to wait, in milliseconds. Undefined if it does not say. */
  readonly retryAfterMs: number | undefined;
  /** False if the request was not sent at all, because others had been refused. */
  readonly wasSent: boolean;
  constructor(message: string, options: ErrorOptions & { retryAfterMs?: number | undefined; wasSent?: boolean }) {
    super(message, options);
    this.retryAfterMs = options.retryAfterMs;
    this.wasSent = options.wasSent ?? true;
  }
}

/**
 * The service could not be reached or could not answer, and surely nothing was created: a refused connection, a
 * request whose body was not sent to its last byte, any failure of a request that only reads.
 */
export class UnavailableError extends FlowServiceError {
  override readonly name = 'UnavailableError';
  readonly code = 'unavailable';
  /** False where not a byte of the request's body was sent: then the file cannot be the cause. */
  readonly bodyStarted: boolean;
  constructor(message: string, options: ErrorOptions & { bodyStarted: boolean }) {
    super(message, options);
    this.bodyStarted = options.bodyStarted;
  }
}

/** The body of `POST /flows` was sent to its last byte and no usable answer came: a flow may or may not exist. */
export class InDoubtError extends FlowServiceError {
  override readonly name = 'InDoubtError';
  readonly code = 'in-doubt';
}

/** An answer that fits none of the known shapes. The message quotes the first 300 characters of its body. */
export class UnintelligibleAnswerError extends FlowServiceError {
  override readonly name = 'UnintelligibleAnswerError';
  readonly code = 'unintelligible-answer';
}

/** 404: the service does not know this flow, or does not serve this operation; `knownToBeServed` tells which. */
export class NotFoundError extends FlowServiceError {
  override readonly name = 'NotFoundError';
  readonly code = 'not-found';
  /** True where the same operation has answered for another flow in this process, so that the flow must be gone. */
  readonly knownToBeServed: boolean;
  constructor(message: string, options: ErrorOptions & { knownToBeServed: boolean }) {
    super(message, options);
    this.knownToBeServed = options.knownToBeServed;
  }
}

/** 405 or 501: the service does not have this operation. */
export class NotServedError extends FlowServiceError {
  override readonly name = 'NotServedError';
  readonly code = 'not-served';
}

/** 409 or 425 on a read: what was asked for is not there yet (outputs of a flow that still runs). */
export class NotReadyError extends FlowServiceError {
  override readonly name = 'NotReadyError';
  readonly code = 'not-ready';
}

/** An asset's answer ended early, ended late, or did not decode. What was received must not be kept. */
export class DamagedAssetError extends FlowServiceError {
  override readonly name = 'DamagedAssetError';
  readonly code = 'damaged-asset';
}

/** An asset is larger than the limit that was given. */
export class AssetTooLargeError extends FlowServiceError {
  override readonly name = 'AssetTooLargeError';
  readonly code = 'asset-too-large';
}

/** An address that the client will not talk to: not https, or a redirect to where it must not go. */
export class ForbiddenAddressError extends FlowServiceError {
  override readonly name = 'ForbiddenAddressError';
  readonly code = 'forbidden-address';
}

/**
 * A text input that is not UTF-8. It is the file that is wrong, not the service: nothing was sent.
 */
export class InvalidTextError extends Error {
  override readonly name = 'InvalidTextError';
  readonly code = 'invalid-text';
}
