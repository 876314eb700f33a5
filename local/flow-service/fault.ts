import type { Content } from './blob.ts';

/**
 * What is to go wrong with one call. Where several are given, `delayMs` comes first.
 *
 * The stages of a call: `before-body` is before a byte of the request's body is read; `mid-body` is after half of it
 * has been read or, where the request has no body, after half of the answer's body has been sent; `after-body` is
 * after the request was read whole but had no effect; `after-effect` is when the answer is ready to be sent.
 */
export interface Fault {
  /** Answer late. */
  readonly delayMs?: number;
  /** Answer with this status instead. */
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  /** The body of that answer; an iterable may be endless. A `Content-Length` is added where it is not an iterable. */
  readonly body?: string | Uint8Array | AsyncIterable<Uint8Array>;
  /** When that answer is given. Default `after-body`. */
  readonly at?: 'before-body' | 'after-body' | 'after-effect';
  /** The connection breaks. */
  readonly reset?: 'before-body' | 'mid-body' | 'after-effect';
  /** Nothing more comes, until the client goes away. `true` means after the request was read, without an effect. */
  readonly hang?: true | 'mid-body' | 'after-effect';
  /** The answer's body ends after so many bytes, and the connection with it. */
  readonly truncate?: number;
  /** The same, but as if that had been all: a `Content-Length` that fits, or a proper last chunk. */
  readonly truncateCleanly?: number;
  /** The byte in the middle of the answer's body becomes a control character, which no JSON and no base64 has. */
  readonly garble?: boolean;
}

/** The connection is to break (`reset`) or to end (`closed`). Thrown by the service, or by the body of its answer. */
export class ConnectionLostError extends Error {
  override readonly name = 'ConnectionLostError';
  readonly how: 'reset' | 'closed';
  constructor(how: 'reset' | 'closed') {
    super(`The connection is ${how}, as was scripted.`);
    this.how = how;
  }
}

/** The first so many bytes. */
export async function* upTo(bytes: number, chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  let left = bytes;
  if (left <= 0) return;
  for await (const chunk of chunks) {
    yield chunk.subarray(0, left);
    left -= chunk.length;
    if (left <= 0) return;
  }
}

export async function* garbled({ bytes, open }: Content): AsyncGenerator<Uint8Array> {
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
