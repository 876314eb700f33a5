import { type Content, once } from './blob.ts';
import type { Flow } from './flow.ts';
import type { Served, Variation } from './variation.ts';

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

export function empty(status: number): Answer {
  return { status, headers: {}, body: { bytes: 0, open: () => once(Buffer.alloc(0)) } };
}

export function json(status: number, value: unknown, headers: Record<string, string> = {}): Answer {
  const bytes = Buffer.from(JSON.stringify(value));
  return {
    status,
    headers: { 'content-type': 'application/json', ...headers },
    body: { bytes: bytes.length, open: () => once(bytes) },
  };
}

/**
 * One page of the listing of flows, in the variation's form.
 * @param flows all visible flows, oldest first.
 * @throws {Refusal} the page number, page size or cursor is invalid.
 */
export function listingPage(
  flows: readonly Flow[],
  { path, query }: { readonly path: string; readonly query: URLSearchParams },
  { paging, pageSize, order }: Readonly<Variation>,
  record: (flow: Flow) => unknown,
): Answer {
  const ordered = order === 'descending' ? flows.toReversed() : flows;
  if (paging === 'none') return json(200, { flows: ordered.map(record) });

  const size = Math.min(positive(query.get('page_size') ?? String(pageSize)), pageSize);
  const cursor = query.get('cursor');
  const page = positive(query.get('page') ?? '1');
  let from = 0;
  if (paging === 'page') from = (page - 1) * size;
  else if (cursor !== null) from = paging === 'cursor' ? positive(fromCursor(cursor)) : placeAfter(ordered, cursor);

  const to = from + size;
  const records = ordered.slice(from, to).map(record);
  const last = ordered[to - 1];
  const hasMore = last !== undefined && to < ordered.length;
  switch (paging) {
    case 'page':
      return json(200, { page, page_size: size, total: ordered.length, flows: records });
    case 'cursor':
      return json(200, { flows: records, next: hasMore ? toCursor(String(to)) : null });
    case 'link': {
      const following = new URLSearchParams(query);
      following.set('cursor', toCursor(last?.id ?? ''));
      return json(200, { flows: records }, hasMore ? { link: `<${path}?${following}>; rel="next"` } : {});
    }
  }
}

const toCursor = (place: string): string => Buffer.from(place).toString('base64url');
const fromCursor = (cursor: string): string => Buffer.from(cursor, 'base64url').toString();

/** Index after the flow that the cursor names. New flows do not shift that page. */
function placeAfter(flows: readonly Flow[], cursor: string): number {
  const at = flows.findIndex(({ id }) => id === fromCursor(cursor));
  if (at === -1) throw new Refusal(422, 'The cursor is not valid');
  return at + 1;
}

function positive(text: string): number {
  const number = Number(text);
  if (Number.isSafeInteger(number) && number > 0) return number;
  throw new Refusal(422, `A page, its size and its cursor are positive integers, not ${text}`);
}
