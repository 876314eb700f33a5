import { messageOf } from '../base/printable.ts';
import type { Reach } from './addresses.ts';
import type { Refusal } from './service-description.ts';

/** How much of a request's body went out. It becomes `all` as soon as the last byte may have left. */
export type Sent = 'nothing' | 'part' | 'all';

export interface TransportRequest {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: RequestBody | undefined;
  /**
   * Longest time until the end of the response, in milliseconds. It begins with the last byte of the request's body, or
   * with the response if that comes earlier; without a body, at once. Default: no limit but {@link TransportLimits}.
   */
  readonly answerMs?: number | undefined;
  /** Longest wait from the request's last byte to the head of the response. Default: {@link TransportLimits.firstByteMs}. */
  readonly headMs?: number | undefined;
  /** Refuses to connect to an address outside of it, whatever name led there. Default: any address. */
  readonly reach?: Reach | undefined;
}

export interface RequestBody {
  /** Exact length, sent as `Content-Length`. A body that yields more or fewer bytes fails the request. */
  readonly bytes: number;
  /** The producer leaves each chunk untouched until the next but one is asked for. */
  readonly chunks: AsyncIterable<Uint8Array>;
}

export interface TransportResponse {
  readonly status: number;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string | undefined>>;
  /** How much of the request's body was sent when the response came. Default: all of it. */
  readonly sent?: Sent | undefined;
  /** The IP address of the server. Undefined if unknown. */
  readonly address?: string | undefined;
  /**
   * The body, to be read once. The reader may keep the chunks. Throws {@link TransportError} if the body is cut.
   * Leaving the loop early destroys the connection.
   */
  readonly body: AsyncIterable<Uint8Array>;
  /** Tells, once the body was read, whether bytes came behind its end. Its length is wrong then, and it may be cut. */
  readonly goesOn?: (() => boolean) | undefined;
  /** What the status means by the service's description. The transport does not know. */
  readonly refusal?: Refusal | undefined;
  /** Releases the connection. Harmless after the body was read. */
  destroy(): void;
}

/**
 * One HTTP exchange, without redirects, retries or judgement of the status. Only the transport touches sockets, so a
 * simulation replaces it.
 * @throws {TransportError} no response came. If the signal aborted, its reason is the cause.
 * @throws {ForbiddenAddressError} the address is outside of the request's reach.
 */
export type Transport = (request: TransportRequest, signal: AbortSignal) => Promise<TransportResponse>;

export class TransportError extends Error {
  override readonly name = 'TransportError';
  readonly sent: Sent;
  /** True if a time limit was exceeded; false if the connection failed. */
  readonly timedOut: boolean;
  constructor(message: string, options: ErrorOptions & { sent: Sent; timedOut?: boolean }) {
    super(message, options);
    this.sent = options.sent;
    this.timedOut = options.timedOut ?? false;
  }
}

/** The longest time for each part of an exchange, in milliseconds. */
export interface TransportLimits {
  /** Name resolution, connection and TLS handshake. */
  readonly connectMs: number;
  /** Maximum wait from the request's last byte to the head of the response. */
  readonly firstByteMs: number;
  /** Maximum time in which no block is sent, or in which no byte arrives although the reader waits. */
  readonly idleMs: number;
}

export const TRANSPORT_LIMITS: TransportLimits = { connectMs: 10_000, firstByteMs: 60_000, idleMs: 30_000 };

/** The code that Node gives an error. */
export const codeOf = (error: unknown): unknown =>
  typeof error === 'object' && error !== null && 'code' in error ? error.code : undefined;

/** A copy without the properties that Node adds. Packets and certificates do not belong in logs. */
export const plain = (error: unknown): Error => Object.assign(new Error(messageOf(error)), { code: codeOf(error) });

/** Passes chunks on. `onError` gets the failure of their source, apart from that of their reader. */
export async function* watched(
  body: AsyncIterable<Uint8Array>,
  onError: (error: unknown) => void,
): AsyncGenerator<Uint8Array> {
  try {
    yield* body;
  } catch (error) {
    onError(error);
    throw error;
  }
}
