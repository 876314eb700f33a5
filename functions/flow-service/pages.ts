import { UNREADABLE } from './json-answer.ts';
import { at, firstAt, pointerOf, stepsOf } from './json-pointer.ts';
import type { Pages, Pointers } from './service-description.ts';
import type { TransportResponse } from './transport.ts';

/** The address or the cursor of the next page, where the description says. Undefined if there is none. */
export function nextOf(json: unknown, pages: Pages | undefined): string | undefined {
  if (pages === undefined || !('at' in pages)) return undefined;
  const next = firstAt(json, pages.at);
  if (pages.by === 'cursor' && typeof next === 'number') return String(next);
  return typeof next === 'string' && next !== '' && !next.includes(UNREADABLE) ? next : undefined;
}

/** The number of entries on all pages, where the description says. Undefined if there is none. */
export function totalOf(json: unknown, pages: Pages | undefined): number | undefined {
  const total = pages?.by === 'number' ? firstAt(json, pages.total) : undefined;
  return typeof total === 'number' ? total : undefined;
}

/** Members whose value says that there is more, unless it is nothing: a cursor, an address, `true`. */
const MORE =
  /next|more|cursor|continu|truncat|incomplete|^(?:partial|marker|scroll[_-]?id|page[_-]?token|last[_-]?evaluated[_-]?key)$|^remaining(?:[_-]?(?:count|items|pages|results|outputs))?$/i;
const MORE_AROUND = /\/(?:page|paging|pagination)\/after$/i;

/** The same beside addresses: the answer about a flow has members of every kind, such as `more_info`. */
const MORE_RESULTS =
  /^(?:has|is|@odata\.)?[_-]?(?:more|next|cursor|marker|continuation|truncated|incomplete|partial)(?:[_-]?(?:cursor|href|items|key|link|marker|page|results|token|uri|url))*$/i;

/** Members that say so with `false`. */
const LAST = /^(?:is[_-]?)?(?:last|final|complete|done|finished)(?:[_-]?page)?$/i;

/** Members that count the entries on all pages, or the pages. */
const ENTRIES_TOTAL =
  /^(?:total|count|hits|(?:total[_-]?|@odata\.)count|total[_-]?(?:items|results|elements|entries|hits|size|records|outputs|assets|files|flows|jobs)|x?-?total|num(?:ber)?[_-]?(?:found|matched)|(?:items?|results?|records|outputs?|assets?|files?|flows?|jobs?)[_-]?(?:total|count))$/i;
const PAGES_TOTAL = /^(?:of|pages|pages?[_-]?count|total[_-]?pages|last[_-]?page|num(?:ber[_-]?of)?[_-]?pages)$/i;
const PAGES_AROUND = /\/(?:page|paging|pagination)\/last$/i;

/** Members that hold such facts further down: `_links.next`, `page.totalPages`, `meta.pagination.total`. */
const AROUND = /^_?(?:links|meta|metadata|page|paging|pagination|page[_-]?info|cursors?)$/i;

/** The same in headers. */
const MORE_HEADER = /^x-(?:next|has-more|continuation|cursor)(?:-(?:page|cursor|token|url|link|offset|marker))?$/;
const ENTRIES_HEADER = /^x-total(?:-(?:count|items|results|elements|entries))?$/;
const PAGES_HEADER = /^x-(?:total-pages|page-count|pages|last-page)$/;

/** What a page says about the whole listing, beside what is declared. */
export interface PageSigns {
  /** Members by which it says that there is more, in a form that is not declared: `/_links/next`. */
  readonly more: readonly string[];
  /** The entries on all pages, as it counts them. */
  readonly counted?: number | undefined;
  /** The number of pages, as it counts them, and the member that says so. */
  readonly pages?: { readonly counted: number; readonly place: string } | undefined;
}

/**
 * Looks for such signs. They are only told, never followed. A member that is declared is one too if its value cannot be
 * followed.
 * @param items where the list is. What stands beside it counts, on each level.
 */
export function signsIn(json: unknown, pages: Pages | undefined, items: Pointers, more = MORE): PageSigns {
  const signs = new Signs();
  const isFollowed = nextOf(json, pages) !== undefined;
  const places = pages !== undefined && 'at' in pages ? [pages.at].flat() : [];
  const declared = isFollowed ? places : [];
  const levels = levelsOf([items].flat());
  const look = (members: unknown, path: string, depth: number): void => {
    if (typeof members !== 'object' || members === null) return;
    if (Array.isArray(members)) {
      signs.noteLinks(members, path);
      return;
    }
    for (const [name, value] of Object.entries(members)) {
      const place = path + pointerOf([name]);
      if (levels.has(place) || declared.some((each) => each === place || each.startsWith(`${place}/`))) continue;
      if (depth < AROUND_DEPTH_MAX && AROUND.test(name)) look(value, place, depth + 1);
      signs.note(name, value, place, more);
    }
  };
  for (const level of levels) look(at(json, level), level, 0);
  if (!isFollowed) signs.noteUnusable(json, places);
  return signs;
}

/** The places around those of some pointers: `""` and `"/data"` for `/data/list`. */
export const levelsOf = (pointers: readonly string[]): ReadonlySet<string> =>
  new Set(pointers.map(stepsOf).flatMap((steps) => steps.map((_, index) => pointerOf(steps.slice(0, index)))));

/** The same beside lists of addresses. */
export const signsOfResults = (json: unknown, lists: readonly string[]): PageSigns =>
  signsIn(json, undefined, lists, MORE_RESULTS);

/** Levels below the one with the list in which such facts are looked for. */
const AROUND_DEPTH_MAX = 2;

/** Adds the signs in the status and the headers of an answer to those in its body. */
export function withSignsInHead(
  body: PageSigns,
  { status, headers }: Pick<TransportResponse, 'status' | 'headers'>,
): PageSigns {
  const signs = new Signs(body);
  if (status === 206) signs.more.push('the status 206');
  for (const [name, value] of Object.entries(headers)) {
    const place = `the header ${name}`;
    if (name === 'content-range') signs.countEntries(countOf(value?.split('/')[1]));
    else if (ENTRIES_HEADER.test(name)) signs.countEntries(countOf(value));
    else if (PAGES_HEADER.test(name)) signs.countPages(countOf(value), place);
    else if (MORE_HEADER.test(name) && !isNothing(value) && value !== 'false') signs.more.push(place);
  }
  return signs;
}

/** Links of a page that are looked at. */
const LINKS_MAX = 20;

class Signs implements PageSigns {
  readonly more: string[];
  counted: number | undefined;
  pages: PageSigns['pages'];

  constructor({ more = [], counted, pages }: Partial<PageSigns> = {}) {
    this.more = [...more];
    this.counted = counted;
    this.pages = pages;
  }

  note(name: string, value: unknown, place: string, more: RegExp): void {
    if (value === false && LAST.test(name)) this.more.push(place);
    if (isNothing(value) || Array.isArray(value)) return;
    const count = countOf(value);
    if (count !== undefined && ENTRIES_TOTAL.test(name)) this.countEntries(count);
    else if (count !== undefined && (PAGES_TOTAL.test(name) || PAGES_AROUND.test(place))) this.countPages(count, place);
    else if (more.test(name) || MORE_AROUND.test(place)) this.more.push(place);
  }

  /** A list of links such as `{"rel": "next", "href": …}`. */
  noteLinks(links: readonly unknown[], place: string): void {
    if (links.slice(0, LINKS_MAX).some((link) => /^next$/i.test(String(at(link, '/rel'))))) this.more.push(place);
  }

  /** A declared cursor or address that cannot be followed. */
  noteUnusable(json: unknown, pointers: readonly string[]): void {
    const place = pointers.find((pointer) => !isNothing(at(json, pointer)));
    if (place !== undefined && !this.more.includes(place)) this.more.push(place);
  }

  countEntries(count = 0): void {
    if (count > (this.counted ?? 0)) this.counted = count;
  }

  countPages(counted = 0, place: string): void {
    if (counted > (this.pages?.counted ?? 0)) this.pages = { counted, place };
  }
}

/** A count, also one that is written as a text. */
function countOf(value: unknown): number | undefined {
  if (typeof value === 'number') return value;
  return typeof value === 'string' && /^\d{1,15}$/.test(value) ? Number(value) : undefined;
}

/** True for a value that stands for nothing, or that has only such values. @param words that stand for nothing too: texts. */
export function isNothing(value: unknown, words?: RegExp): boolean {
  if (typeof value === 'object' && value !== null) return Object.values(value).every((each) => isNothing(each, words));
  const isWord = typeof value === 'string' && words?.test(value) === true;
  return isWord || [undefined, null, false, 0, ''].includes(value as string);
}
