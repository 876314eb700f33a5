/** What each placeholder of a query stands for: a time in milliseconds since the epoch, as text. */
const PLACEHOLDERS: Readonly<Record<string, (time: number) => string>> = {
  '{iso}': (time) => new Date(time).toISOString(),
  '{seconds}': (time) => String(Math.floor(time / 1000)),
  '{milliseconds}': (time) => String(time),
};

const PLACEHOLDER = /\{[^{}]*\}/g;

/** Query parameters for the size of a page. */
export const SIZE_PARAMETERS: readonly string[] = ['limit', 'size', 'count', 'page_size', 'per_page'];

/** Query parameters that select a page. The listing itself names them. */
const PAGE_PARAMETERS: readonly string[] = ['page', 'cursor', 'page_token', 'offset'];

/** Names of parameters that sort, as whole words: `sort_by` and `orderBy`, and not `order_id` or `order_status`. */
const SORTS = /^(?:sort[-_.]?(?:by|order|key|field|dir|direction)?|order(?:ing)?[-_.]?(?:by|dir|direction)?)$/i;

/** Longest query, in characters. */
export const QUERY_CHARS_MAX = 500;

const hasPlaceholder = (value: string): boolean => value.search(PLACEHOLDER) >= 0;

/**
 * Returns what is wrong with a query for the listing of flows, if anything is.
 *
 * A parameter with a placeholder is the filter. The search checks what the filter does and can do without it. It cannot
 * check any other parameter that leaves out flows, so all others may only sort or set the size of a page.
 */
export function issueOfFlowsQuery(query: string): string | undefined {
  if (query === '') return undefined;
  if (query.length > QUERY_CHARS_MAX) return `expected at most ${QUERY_CHARS_MAX} characters`;
  if (/[^\x21-\x7e]|[?#]/.test(query)) return 'expected printable ASCII characters without spaces, "?" and "#"';
  const unknown = (query.match(PLACEHOLDER) ?? []).find((each) => !(each in PLACEHOLDERS));
  if (unknown !== undefined) return `expected only {iso}, {seconds} and {milliseconds} in braces, not ${unknown}`;
  if (/[{}]/.test(query.replaceAll(PLACEHOLDER, ''))) return 'expected every brace to be part of a placeholder';
  const parameters = [...new URLSearchParams(query)];
  const names = parameters.map(([name]) => name);
  if (names.includes('') || /[{}]/.test(names.join(''))) return 'expected a name in front of every "="';
  if (new Set(names).size < names.length) return 'expected each parameter once';
  const paging = names.find((name) => PAGE_PARAMETERS.includes(name));
  if (paging !== undefined) return `expected no parameter that selects a page, not ${paging}`;
  const hiding = parameters.find(([name, value]) => !hasPlaceholder(value) && !isHarmless(name));
  if (hiding !== undefined) {
    return `expected a placeholder of the time in ${hiding[0]}, because a parameter without one may only sort or set the size of a page`;
  }
  return undefined;
}

const isHarmless = (name: string): boolean => SORTS.test(name) || SIZE_PARAMETERS.includes(name);

/** The parameters of a query without those that have a placeholder. */
export const withoutFilter = (query: string): URLSearchParams =>
  new URLSearchParams([...new URLSearchParams(query)].filter(([, value]) => !hasPlaceholder(value)));

/** The parameters of a query at a time in milliseconds since the epoch. Undefined if it has no filter. */
export function filteredSince(query: string, time: number): URLSearchParams | undefined {
  const parameters = [...new URLSearchParams(query)];
  if (!parameters.some(([, value]) => hasPlaceholder(value))) return undefined;
  const text = (value: string): string => value.replaceAll(PLACEHOLDER, (each) => PLACEHOLDERS[each]?.(time) ?? each);
  return new URLSearchParams(parameters.map(([name, value]): [string, string] => [name, text(value)]));
}
