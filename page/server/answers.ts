import type { ServerResponse } from 'node:http';
import type { ApiError, ErrorCode } from '../api.ts';

/** Headers of every answer. */
const COMMON_HEADERS = {
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'cache-control': 'no-store',
};

/** A browser that opens such an answer runs and loads nothing, and shows it in no frame. */
export const INERT_POLICY = "sandbox; default-src 'none'; frame-ancestors 'none'";

/**
 * What the page may do. The viewer of models compiles its decoders (`wasm-unsafe-eval`) and runs them in workers that
 * it makes itself (`blob:`). Models may hold their parts as `data:`. The only frames are documents that the page has in
 * memory, as PDF: see `page/app/stored-object.ts`.
 */
export const PAGE_POLICY = [
  "default-src 'none'",
  "script-src 'self' 'wasm-unsafe-eval'",
  "style-src 'self'",
  "img-src 'self' blob: data:",
  "connect-src 'self' blob: data:",
  "worker-src 'self' blob:",
  "media-src 'self' blob:",
  'frame-src blob:',
  "form-action 'none'",
  "frame-ancestors 'none'",
  "base-uri 'none'",
].join('; ');

/** An answer that is an error. The message is a sentence for a person. */
export class PageError extends Error {
  override readonly name = 'PageError';
  readonly status: number;
  readonly code: ErrorCode;
  readonly headers: Readonly<Record<string, string>>;
  constructor(
    { status, code }: { readonly status: number; readonly code: ErrorCode },
    message: string,
    headers: Readonly<Record<string, string>> = {},
  ) {
    super(message);
    this.status = status;
    this.code = code;
    this.headers = headers;
  }
}

export const invalid = (message: string): PageError => new PageError({ status: 400, code: 'invalid' }, message);

export const notFound = (message: string): PageError => new PageError({ status: 404, code: 'not-found' }, message);

export const notPossible = (message: string): PageError =>
  new PageError({ status: 409, code: 'not-possible' }, message);

/** Begins an answer with the headers that every answer has. */
export function begin(
  response: ServerResponse,
  status: number,
  headers: Readonly<Record<string, string | number | undefined>>,
): ServerResponse {
  for (const [name, value] of Object.entries({ ...COMMON_HEADERS, ...headers })) {
    if (value !== undefined) response.setHeader(name, value);
  }
  return response.writeHead(status);
}

export function sendJson(response: ServerResponse, value: unknown, status = 200, headers = {}): void {
  const body = Buffer.from(JSON.stringify(value));
  const own = { 'content-type': 'application/json', 'content-length': body.length };
  begin(response, status, { ...own, 'content-security-policy': INERT_POLICY, ...headers }).end(body);
}

/** Sends one sentence as a page, for a person who opened an address. */
export function sendSentence(response: ServerResponse, status: number, sentence: string): void {
  const body = `<!doctype html><html lang="en"><meta charset="utf-8"><title>Flowdrop</title><p>${escaped(sentence)}</p></html>`;
  const headers = { 'content-type': 'text/html; charset=utf-8', 'content-security-policy': INERT_POLICY };
  begin(response, status, headers).end(body);
}

const ENTITIES: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };

/** Text as text in HTML. */
export const escaped = (text: string): string => text.replace(/[&<>"]/g, (character) => ENTITIES[character] ?? '');

export function sendError(response: ServerResponse, { status, code, message, headers }: PageError): void {
  const body: ApiError = { error: { code, message } };
  sendJson(response, body, status, headers);
}
