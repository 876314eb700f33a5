import { type Answer, json, list, Refusal } from './answer.ts';
import type { Flow } from './flow.ts';
import type { Variation } from './variation.ts';

/**
 * One page of the listing of flows, in the variation's form.
 * @param flows all visible flows, oldest first.
 * @throws {Refusal} the page number, page size or cursor is invalid.
 */
export function listingPage(
  flows: readonly Flow[],
  { path, query }: { readonly path: string; readonly query: URLSearchParams },
  { paging, pageSize, order, listShape }: Readonly<Variation>,
  record: (flow: Flow) => unknown,
): Answer {
  const ordered = order === 'descending' ? flows.toReversed() : flows;
  if (paging === 'none') return list(listShape, 'flows', ordered.map(record));

  const asked = positive(query.get('page_size') ?? query.get('limit') ?? String(pageSize), 'The size of a page');
  const size = Math.min(asked, pageSize);
  if (paging === 'page') {
    const page = positive(query.get('page') ?? '1', 'A page');
    const records = ordered.slice((page - 1) * size, page * size).map(record);
    return list(listShape, 'flows', records, { page, page_size: size, total: ordered.length });
  }

  const from = startOf(ordered, query.get('cursor'), paging);
  const records = ordered.slice(from, from + size).map(record);
  const last = ordered[from + size - 1];
  const place = paging === 'next_cursor' ? String(from + size) : last?.id;
  const cursor = place !== undefined && from + size < ordered.length ? Buffer.from(place).toString('base64url') : null;
  const following = new URLSearchParams(query);
  following.set('cursor', cursor ?? '');
  const address = cursor === null ? null : `${path}?${following}`;
  switch (paging) {
    case 'next':
      return json(200, { flows: records, next: cursor });
    case 'next_cursor':
      return json(200, { flows: records, next_cursor: cursor });
    case 'next_url':
      return json(200, { flows: records, next: address });
    case 'link': {
      const answer = list(listShape, 'flows', records);
      return address === null
        ? answer
        : { ...answer, headers: { ...answer.headers, link: `<${address}>; rel="next"` } };
    }
  }
}

function positive(text: string, what: string): number {
  const number = Number(text);
  if (!Number.isSafeInteger(number) || number < 1) throw new Refusal(422, `${what} is a positive integer`);
  return number;
}

/**
 * One page of the listing of a flow's outputs, in the variation's form.
 * @param others members of the object beside the records. A bare list has none.
 * @throws {Refusal} the page number is invalid.
 */
export function outputsPage(
  records: readonly unknown[],
  query: URLSearchParams,
  { outputsPaging, outputsPageSize: size, outputsShape }: Readonly<Variation>,
  others: Record<string, unknown>,
): Answer {
  switch (outputsPaging) {
    case 'none':
      return list(outputsShape, 'outputs', records, others);
    case 'next': {
      const from = Number(query.get('cursor') ?? 0);
      const to = from + size;
      const next = to < records.length ? String(to) : null;
      return json(200, { ...others, outputs: records.slice(from, to), next });
    }
    case 'total': {
      const page = positive(query.get('page') ?? '1', 'A page');
      const outputs = records.slice((page - 1) * size, page * size);
      return json(200, { ...others, outputs, total: records.length, page, page_size: size });
    }
  }
}

/**
 * Index of the first flow after the cursor. A cursor is a flow's id, so that new flows do not shift the next page. In
 * `next_cursor` it is that index.
 */
function startOf(flows: readonly Flow[], cursor: string | null, paging: Variation['paging']): number {
  if (cursor === null) return 0;
  const place = Buffer.from(cursor, 'base64url').toString();
  if (paging === 'next_cursor' && /^\d+$/.test(place)) return Number(place);
  const at = flows.findIndex((flow) => flow.id === place);
  if (at === -1) throw new Refusal(422, 'The cursor is not valid');
  return at + 1;
}
