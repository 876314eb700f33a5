import { type Content, once } from './blob.ts';
import type { Served } from './variation.ts';

/** Within the service, a body is something that can be read again and whose size is known. */
export interface Answer {
  readonly status: number;
  readonly headers: Record<string, string>;
  readonly body: Content;
  /** The answer does not tell its length. */
  readonly isChunked?: boolean;
}

/** The request ends with this answer. */
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

/** @throws {Refusal} */
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

/** @param others what an object says beside the records; a bare list cannot. */
export function list(
  shape: 'object' | 'bare',
  name: string,
  records: readonly unknown[],
  others: Record<string, unknown> = {},
): Answer {
  return json(200, shape === 'bare' ? records : { ...others, [name]: records });
}
