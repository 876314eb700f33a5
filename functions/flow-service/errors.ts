/**
 * The failures of the flow service: one class for each decision that a caller makes.
 * No message, field or cause of these errors ever holds the token or a request header.
 */

/** The codes of the failures below. */
export type FlowServiceErrorCode =
  | 'rejected'
  | 'unauthorised'
  | 'forbidden'
  | 'throttled'
  | 'unavailable'
  | 'in-doubt'
  | 'misaddressed'
  | 'unintelligible-answer'
  | 'not-found'
  | 'not-served'
  | 'not-ready'
  | 'damaged-asset'
  | 'asset-too-large'
  | 'too-slow'
  | 'not-an-asset'
  | 'output-failed'
  | 'forbidden-address';

/** Base class of every failure of the flow service. */
export abstract class FlowServiceError extends Error {
  /** Stable and machine-readable. Receipts and logs carry it. */
  abstract readonly code: FlowServiceErrorCode;
}

/** Makes the base class of an error: its name and its code. */
function failure<C extends FlowServiceErrorCode>(name: string, code: C) {
  abstract class Failure extends FlowServiceError {
    override readonly name = name;
    override readonly code = code;
  }
  return Failure;
}

/** The service rejected the request for good: a 4xx that a retry would get again. Nothing was created. */
export class RejectedError extends failure('RejectedError', 'rejected') {
  readonly status: number;
  constructor(message: string, options: ErrorOptions & { status: number }) {
    super(message, options);
    this.status = options.status;
  }
}

/**
 * 401 although the token was just read again, or 403 to everything, or the token could not be read at all. Nothing was
 * created.
 */
export class UnauthorisedError extends failure('UnauthorisedError', 'unauthorised') {}

/** 403: the service knows the token but forbids the request. The file may be the reason. Nothing was created. */
export class ForbiddenError extends failure('ForbiddenError', 'forbidden') {}

/** 401 or 403 from an address that the service has just given: it has expired, or is not valid yet. A new one may help. */
export class AddressRefusedError extends ForbiddenError {}

/** 429, 402, or 503 with `Retry-After`; or no turn in time at the pace that the service allows. Nothing was created. */
export class ThrottledError extends failure('ThrottledError', 'throttled') {
  /** The wait that the service asks for, in milliseconds. Undefined if it does not say. */
  readonly retryAfterMs: number | undefined;
  /** False if the request was not sent at all, because earlier ones had been throttled. */
  readonly wasSent: boolean;
  /** True if the request was not sent only because others had been throttled. Then it has not had its turn. */
  readonly isOthersTrouble: boolean;
  constructor(
    message: string,
    options: ErrorOptions & Partial<Pick<ThrottledError, 'retryAfterMs' | 'wasSent' | 'isOthersTrouble'>>,
  ) {
    super(message, options);
    this.retryAfterMs = options.retryAfterMs;
    this.wasSent = options.wasSent ?? true;
    this.isOthersTrouble = options.isOthersTrouble ?? false;
  }

  /** Until when the service asks to wait. Undefined if it did not answer this request, or does not say. */
  askedUntil(now: number): number | undefined {
    return this.wasSent && this.retryAfterMs !== undefined ? now + this.retryAfterMs : undefined;
  }
}

/**
 * The service could not be reached or could not answer, and certainly created nothing: a refused connection, a body
 * that was not sent to its last byte, or any failure of a request that only reads.
 */
export class UnavailableError extends failure('UnavailableError', 'unavailable') {
  /** False if no byte of the request's body was sent. Then the file cannot be the cause. */
  readonly bodyStarted: boolean;
  /** The status of the answer, if it is 5xx. */
  readonly status: number | undefined;
  constructor(message: string, options: ErrorOptions & { bodyStarted: boolean; status?: number }) {
    super(message, options);
    this.bodyStarted = options.bodyStarted;
    this.status = options.status;
  }
}

/**
 * The last byte of `POST /flows` was sent, and no response came that shows whether a flow exists. After an error
 * response, `cause` says what it means if no flow exists.
 */
export class InDoubtError extends failure('InDoubtError', 'in-doubt') {
  /** True for a 4xx in the form of the service's own errors. It is believed unless the flow is listed. */
  readonly isOwnRefusal: boolean;
  /** True for a success that cannot be read: most probably the flow exists. */
  readonly isAccepted: boolean;
  constructor(message: string, options: ErrorOptions & { isOwnRefusal?: boolean; isAccepted?: boolean } = {}) {
    super(message, options);
    this.isOwnRefusal = options.isOwnRefusal ?? false;
    this.isAccepted = options.isAccepted ?? false;
  }

  /** True if the answer was lost: none came, or it could not be read to its end. */
  get isLost(): boolean {
    return !(this.cause instanceof FlowServiceError) || (this.isAccepted && this.cause instanceof UnavailableError);
  }
}

/** A response that does not fit the description of the service. The message quotes the first 300 characters of its body. */
export class UnintelligibleAnswerError extends failure('UnintelligibleAnswerError', 'unintelligible-answer') {
  /** True for a success that has the form of the service's own errors, or that says otherwise that it failed. */
  readonly isOwnError: boolean;
  constructor(message: string, options: ErrorOptions & { isOwnError?: boolean } = {}) {
    super(message, options);
    this.isOwnError = options.isOwnError ?? false;
  }
}

/** The declared pointers find no address of a result in the answer, and no place for one. */
export class NoAddressError extends UnintelligibleAnswerError {}

/**
 * The answer is not one of the flow service: a redirect, a page, or an address that does not make flows. It says more
 * about the base address, or about a proxy or a login in front of the service, than about the request. A creation made
 * no flow, unless this is the cause of an {@link InDoubtError}.
 */
export class MisaddressedError extends failure('MisaddressedError', 'misaddressed') {}

/** 302 or 303 to another path below the base address. In place of a state, it may lead to what the flow has made. */
export class LedOnError extends MisaddressedError {}

/** 404: the service does not know this flow, or does not serve this operation. `knownToBeServed` tells which. */
export class NotFoundError extends failure('NotFoundError', 'not-found') {
  /** True if the same operation has succeeded for another flow in this process. Then the flow must be gone. */
  readonly knownToBeServed: boolean;
  /** True if only the service can say so of a flow: by 410, or by a declared word. A 404 may be that of a proxy. */
  readonly isGone: boolean;
  constructor(message: string, options: ErrorOptions & { knownToBeServed: boolean; isGone?: boolean }) {
    super(message, options);
    this.knownToBeServed = options.knownToBeServed;
    this.isGone = options.isGone ?? false;
  }
}

/** 405 or 501: the service does not have this operation. */
export class NotServedError extends failure('NotServedError', 'not-served') {}

/** 409, 423 or 425 on a read, or 202 or 204 for an asset: not there yet, such as the outputs of a running flow. */
export class NotReadyError extends failure('NotReadyError', 'not-ready') {}

/** The response with an asset was too short, too long, or could not be decoded. Discard the bytes received so far. */
export class DamagedAssetError extends failure('DamagedAssetError', 'damaged-asset') {}

/** The service sends an asset too slowly, or stopped in the middle of it. */
export class TooSlowError extends failure('TooSlowError', 'too-slow') {}

/** An asset exceeds the limit. */
export class AssetTooLargeError extends failure('AssetTooLargeError', 'asset-too-large') {}

/** In place of its results, the service says that the flow has failed. The message is its explanation. */
export class JobFailedError extends failure('JobFailedError', 'output-failed') {}

/** Something came in place of an asset: a login, an error, a progress, nothing. A retry may bring the asset. */
export class NotAnAssetError extends failure('NotAnAssetError', 'not-an-asset') {}

/** A success without any byte came in place of an asset. The service may not have it yet. */
export class EmptyAssetError extends NotAnAssetError {}

/** An address that the client must not use: a base URL without https or with credentials, or a forbidden redirect. */
export class ForbiddenAddressError extends failure('ForbiddenAddressError', 'forbidden-address') {}

/** A text input is not UTF-8, or blank. The file is at fault, not the service: nothing was sent. */
export class InvalidTextError extends Error {
  override readonly name = 'InvalidTextError';
  readonly code: 'invalid-text' | 'input-blank';
  constructor(message: string, options: ErrorOptions & { code?: 'invalid-text' | 'input-blank' } = {}) {
    super(message, options);
    this.code = options.code ?? 'invalid-text';
  }
}
