import { type Content, once } from './blob.ts';
import type { Served } from './variation.ts';

/** An answer of known size, whose body can be read more than once. */
export interface Answer {
  readonly status: number;
  readonly headers: Record<string, string>;
  readonly body: Content;
  /** Sends the answer without a `Content-Length`. */
  readonly isChunked?: boolean;
}

/** Ends a request with an error answer. */
export class Refusal extends Error {
  override readonly name = 'Refusal';
  readonly status: number;
  readonly detail: unknown;
  readonly headers: Record<string, string>;
  constructor(status: number, detail: unknown, headers: Record<string, string> = {}) {
    super(`${status}`);
    this.status = status;
    this.detail = detail;
    this.headers = headers;
  }
}

/** @throws {Refusal} the variation does not serve the operation. */
export function requireServed(how: Served): void {
  if (how !== 'served') throw new Refusal(how, how === 404 ? 'Not Found' : 'Not served');
}

export function empty(status: number, headers: Record<string, string> = {}): Answer {
  return { status, headers, body: { bytes: 0, open: () => once(Buffer.alloc(0)) } };
}

export function json(status: number, value: unknown, headers: Record<string, string> = {}): Answer {
  const bytes = Buffer.from(JSON.stringify(value));
  return {
    status,
    headers: { 'content-type': 'application/json', ...headers },
    body: { bytes: bytes.length, open: () => once(bytes) },
  };
}

/** @param others members of the object beside the records. A bare list has none. */
export function list(
  shape: 'object' | 'bare',
  name: string,
  records: readonly unknown[],
  others: Record<string, unknown> = {},
): Answer {
  return json(200, shape === 'bare' ? records : { ...others, [name]: records });
}
