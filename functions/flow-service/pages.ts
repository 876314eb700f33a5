import { at } from './json-pointer.ts';
import type { Pages } from './service-description.ts';

/** What a page says about the next one. */
export type NextPage =
  /** A URL or a path. */
  | { readonly kind: 'address'; readonly address: string }
  /** A cursor, and the query parameter that takes it. */
  | { readonly kind: 'parameter'; readonly name: string; readonly value: string }
  /** The page with the next number, unless all `total` entries were seen. */
  | { readonly kind: 'number'; readonly name: string; readonly first: number; readonly total: number | undefined }
  /** The `Link` header tells. */
  | { readonly kind: 'link' }
  /** There is no next page. */
  | { readonly kind: 'end' };

/** What the body of a page says about the next one, in the declared form. */
export function nextOf(json: unknown, pages: Pages | undefined): NextPage {
  switch (pages?.by) {
    case undefined:
      return { kind: 'end' };
    case 'link':
      return { kind: 'link' };
    case 'number': {
      const total = pages.total === undefined ? undefined : first(json, pages.total);
      return {
        kind: 'number',
        name: pages.parameter,
        first: pages.first ?? 1,
        total: typeof total === 'number' ? total : undefined,
      };
    }
    case 'address': {
      const address = first(json, pages.at);
      return typeof address === 'string' && address !== '' ? { kind: 'address', address } : { kind: 'end' };
    }
    case 'cursor': {
      const value = first(json, pages.at);
      const isThere = typeof value === 'number' || (typeof value === 'string' && value !== '');
      return isThere ? { kind: 'parameter', name: pages.parameter, value: String(value) } : { kind: 'end' };
    }
  }
}

const first = (json: unknown, pointers: string | readonly string[]): unknown =>
  [pointers]
    .flat()
    .map((pointer) => at(json, pointer))
    .find((value) => value !== undefined && value !== null);

/** Members whose value says that there is more, unless it is nothing: a cursor, an address, `true`. */
const MORE = /next|more|cursor|continu|truncat/i;

/** Members that count the entries on all pages, or the pages. */
const ENTRIES_TOTAL = /^(?:total|count|hits|total[_-]?(?:count|items|results|elements|entries|hits|size)|x?-?total)$/i;
const PAGES_TOTAL = /^(?:pages|page[_-]?count|total[_-]?pages|last[_-]?page|num[_-]?pages)$/i;

/** Members that hold such facts one level further down: `_links.next`, `page.totalPages`, `meta.total`. */
const AROUND = /^_?(?:links|meta|metadata|page|paging|pagination|page[_-]?info|cursors?)$/i;

/** What a page says about the whole listing, beside what is declared. */
export interface PageSigns {
  /** Members by which it says that there is more, in a form that is not declared: `/page/totalPages`. */
  readonly more: readonly string[];
  /** The entries on all pages, as it counts them. */
  readonly counted: number | undefined;
}

/** Looks for such signs. They are only told, never followed. */
export function signsIn(json: unknown, pages: Pages | undefined): PageSigns {
  const more: string[] = [];
  let counted: number | undefined;
  if (typeof json !== 'object' || json === null || Array.isArray(json)) return { more, counted };
  const declared = pages !== undefined && 'at' in pages ? [pages.at].flat() : [];
  const look = (members: object, path: string): void => {
    for (const [name, value] of Object.entries(members)) {
      const place = `${path}/${name}`;
      if (declared.some((each) => each === place || each.startsWith(`${place}/`)) || isNothing(value)) continue;
      if (typeof value === 'number' && ENTRIES_TOTAL.test(name)) {
        // Numbered pages have a declared count. Another one may be that of the page.
        if (pages?.by !== 'number') counted = Math.max(counted ?? 0, value);
      } else if (MORE.test(name) && !Array.isArray(value)) more.push(place);
      else if (typeof value === 'number' && PAGES_TOTAL.test(name) && pages === undefined && value > 1)
        more.push(place);
      else if (path === '' && AROUND.test(name) && typeof value === 'object') look(value as object, place);
    }
  };
  look(json, '');
  return { more, counted };
}

const isNothing = (value: unknown): boolean =>
  value === undefined ||
  value === null ||
  value === false ||
  value === '' ||
  value === 0 ||
  (typeof value === 'object' && Object.values(value).every(isNothing));
