import type { Answer } from './answer.ts';
import type { Content } from './blob.ts';
import type { ServiceResponse } from './call.ts';

/**
 * The faults to inject into one call. `delayMs` comes before all others.
 *
 * The stages of a call:
 * - `before-body`: before a byte of the request's body is read;
 * - `mid-body`: after half of the request's body is read or, without a body, after half of the answer's body is sent;
 * - `after-body`: after the request is read, before it has an effect;
 * - `after-effect`: when the answer is ready to be sent.
 */
export interface Fault {
  /** Delays the answer. */
  readonly delayMs?: number;
  /** Answers with this status instead. */
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  /** The body of that answer. An iterable may be endless; any other body gets a `Content-Length`. */
  readonly body?: string | Uint8Array | AsyncIterable<Uint8Array>;
  /** The stage at which that answer is sent. Default `after-body`. */
  readonly at?: 'before-body' | 'after-body' | 'after-effect';
  /** Breaks the connection at this stage. */
  readonly reset?: 'before-body' | 'mid-body' | 'after-effect';
  /** Sends nothing more until the client leaves. `true`: after the request is read, without an effect. */
  readonly hang?: true | 'mid-body' | 'after-effect';
  /** Ends the answer's body, and the connection, after this number of bytes. */
  readonly truncate?: number;
  /** The same, but the answer looks complete: the `Content-Length` fits, or there is a proper last chunk. */
  readonly truncateCleanly?: number;
  /**
   * Replaces the byte in the middle of the answer's body by a control character, which is invalid in JSON and base64.
   */
  readonly garble?: boolean;
}

/** The connection must break (`reset`) or end (`closed`). Thrown by the service, or by the body of its answer. */
export class ConnectionLostError extends Error {
  override readonly name = 'ConnectionLostError';
  readonly how: 'reset' | 'closed';
  constructor(how: 'reset' | 'closed') {
    super(`The connection is ${how}: a fault was injected.`);
    this.how = how;
  }
}

/** The first `bytes` bytes. */
export async function* upTo(bytes: number, chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  let left = bytes;
  if (left <= 0) return;
  for await (const chunk of chunks) {
    yield chunk.subarray(0, left);
    left -= chunk.length;
    if (left <= 0) return;
  }
}

async function* garbled({ bytes, open }: Content): AsyncGenerator<Uint8Array> {
  const middle = Math.floor(bytes / 2);
  let at = 0;
  for await (const chunk of open()) {
    if (at <= middle && middle < at + chunk.length) {
      const copy = Buffer.from(chunk);
      copy[middle - at] = 1;
      yield copy;
    } else {
      yield chunk;
    }
    at += chunk.length;
  }
}

/** The answer of {@link Fault.status}. */
export function scripted(status: number, { headers = {}, body = '' }: Fault): ServiceResponse {
  if (typeof body !== 'string' && !(body instanceof Uint8Array)) return { status, headers: { ...headers }, body };
  const bytes = Buffer.from(body);
  return { status, headers: { 'content-length': String(bytes.length), ...headers }, body: bytes };
}

/** Makes a signal that aborts when the client has left or the service is closed. */
export type Gone = () => AbortSignal;

/** Breaks the connection: at once or, if the fault is to hang, when {@link Gone} aborts. */
export async function loseConnection(fault: Fault, gone: Gone): Promise<never> {
  if (fault.hang === undefined) throw new ConnectionLostError('reset');
  return new Promise((_, reject) => {
    const end = () => reject(new ConnectionLostError('reset'));
    const signal = gone();
    if (signal.aborted) end();
    else signal.addEventListener('abort', end, { once: true });
  });
}

/** The response for an answer, with the fault in its body. */
export function spoiled(answer: Answer, fault: Fault, gone: Gone): ServiceResponse {
  const { status, isChunked = false } = answer;
  const body = fault.garble ? { bytes: answer.body.bytes, open: () => garbled(answer.body) } : answer.body;
  const length = Math.min(body.bytes, fault.truncateCleanly ?? body.bytes);
  const headers = { ...answer.headers, ...(!isChunked && status !== 204 && { 'content-length': String(length) }) };

  const cut = fault.truncateCleanly ?? fault.truncate;
  const isLost = fault.reset === 'mid-body' || fault.hang === 'mid-body';
  async function* open(): AsyncGenerator<Uint8Array> {
    yield* upTo(isLost ? body.bytes / 2 : (cut ?? body.bytes), body.open());
    if (isLost) await loseConnection(fault, gone);
    if (fault.truncate !== undefined && fault.truncate < body.bytes) throw new ConnectionLostError('closed');
  }
  return { status, headers, body: open() };
}
