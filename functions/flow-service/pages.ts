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
  /next|more|cursor|bookmark|continu|resumption|truncat|incomplete|^(?:partial(?:[_-]?results)?|timed[_-]?out|after|marker|scroll[_-]?id|(?:page|pagination)[_-]?token|last[_-]?evaluated[_-]?key)$|^remaining(?:[_-]?(?:count|items|pages|results|outputs))?$/i;
const MORE_AROUND = /\/(?:cursors|page|paging|pagination)\/after$/i;

/** The same beside addresses: the answer about a flow has members of every kind, such as `more_info`. */
const MORE_RESULTS =
  /^(?:has|is)?[_-]?(?:more|next|cursor|bookmark|marker|continuation|resumption|timed[_-]?out|truncated|incomplete|partial)(?:[_-]?(?:cursor|href|items|key|link|marker|page|results|token|uri|url))*$|^(?:scroll_?id|(?:page|pagination)_?token|last_?evaluated_?key)$/i;

/** Words of members that lead to an earlier page: `prev_cursor`. */
const BACK = /^(?:prev|previous|before|start)$/;
/** Values that lead to no page. */
const NOWHERE = /^(?:-1|0|false|nil|none|null)$/i;
/** Members that lead to the next page. One that leads nowhere says that there is none. */
const NEXT = /^next(?:_?(?:page|cursor|token|url|uri|link|href))*$/;

/** Members that say so with `false`, and the contrary with `true`. */
const LAST = /^(?:is[_-]?)?(?:last|final|complete|done|finished)(?:[_-]?page)?$/i;

/** Members that count the entries on all pages, or the pages. The noun of the list is `items` here. */
const ENTRIES_TOTAL =
  /^(?=.*(?:total|count|found|hits|matched))(?:(?:x|num(?:ber)?|nb|of|full|grand|overall|total|count|found|hits?|matched|objects?|items?|results?|elements?|entries|records?|rows?|outputs?|assets?|files?|flows?|jobs?)_?)+$|^total_?(?:images|models|size)$/;
const ENTRIES_AROUND = /\/(?:hits|total)\/(?:count|value)$/i;
const PAGES_TOTAL = /^(?:of|pages|pages?_?(?:count|total)|total_?pages|last_?page|(?:nb|num(?:ber(?:_?of)?)?)_?pages)$/;
const PAGES_AROUND = /\/(?:page|paging|pagination)\/last$/i;

/** Members that are about this page if another one beside them is about all: `{"count": 20, "total": 2}`. */
const ABOUT_ALL: ReadonlyMap<string, (name: string) => boolean> = new Map([
  ['count', (name) => ENTRIES_TOTAL.test(name) && /total|found|matched/.test(name)],
  ['last', (name) => PAGES_TOTAL.test(name)],
]);

/** Members that hold the greatest number of entries on a page. */
const LIMIT = /^(?:limit|max[_-]?(?:items|results)|(?:items|results)?[_-]?per[_-]?page|page[_-]?size)$/i;

/** Words of members that hold such facts further down: `_links.next`, `result_info.count`, `pagination.total`. */
const AROUND =
  /^(?:collection|cursors?|hits|info|links?|listing|meta(?:data)?|pag(?:eable|er|es?|ination|ing)|summary|total|view)$/;

/** Members that stand on every page, the last one too. There, another member says that it is the last. */
const CURSOR = /cursor|bookmark|continu|marker|scroll|token|after$/i;
const NO_MORE = /^(?:(?:has|is)_?(?:more|next|truncated)|more)(?:_?(?:items|page|results))?$/;
const IS_LAST = /^(?:is[_-]?)?last(?:[_-]?page)?$/i;

/** The same in headers, also with the short name of a product: `x-ms-continuation`, `x-wp-totalpages`. */
const MORE_HEADER =
  /^(?:x-)?(?:[a-z]{2,3}-|pagination-)?(?:(?:has-)?next|has-more|continuation|cursor|bookmark)(?:-(?:page|cursor|token|url|link|offset|marker|range|next(?:partition|row)key))*$/;
const ENTRIES_HEADER =
  /^(?:x-)?(?:[a-z]{2,3}-|pagination-)?(?:count|(?:item|record|result|row)s?-(?:count|total)|total(?:-?(?:count|items|results|elements|entries|records|rows))?)$/;
const PAGES_HEADER = /^(?:x-)?(?:[a-z]{2,3}-|pagination-)?(?:total-?pages|page-?count|pages|last-page)$/;
/** Its value is JSON. */
const PAGINATION_HEADER = /^(?:x-)?pagination$/;

/** What a page says about the whole listing, beside what is declared. */
export interface PageSigns {
  /** Members by which it says that there is more, in a form that is not declared: `/_links/next`. */
  readonly more: readonly string[];
  /** The entries on all pages, as it counts them. */
  readonly counted?: number | undefined;
  /** The number of pages, as it counts them, and the member that says so. */
  readonly pages?: { readonly counted: number; readonly place: string } | undefined;
  /** The greatest number of entries on a page, and the member that says so. A full page may not be the last one. */
  readonly limit?: { readonly entries: number; readonly place: string } | undefined;
  /** True if it says that it is the last page. It may have a cursor all the same. */
  readonly isLast?: boolean | undefined;
}

/**
 * Looks for such signs. They are only told, never followed. A member that is declared is one too if its value cannot be
 * followed.
 * @param items where the list is. What stands beside it counts, on each level.
 */
export function signsIn(json: unknown, pages: Pages | undefined, items: Pointers, more = MORE): PageSigns {
  const isFollowed = nextOf(json, pages) !== undefined;
  const places = pages !== undefined && 'at' in pages ? [pages.at].flat() : [];
  const declared = isFollowed ? places : [];
  const levels = levelsOf([items].flat());
  const isElsewhere = (place: string): boolean =>
    levels.has(place) || declared.some((each) => each === place || each.startsWith(`${place}/`));
  const signs = new Signs({}, more, isElsewhere, nounsOf([items].flat()));
  for (const level of levels) signs.look(at(json, level), level);
  if (!isFollowed) signs.noteUnusable(json, places);
  // Where pages are declared, a page without a next one is the last, however full it is.
  return pages === undefined ? signs.found : { ...signs.found, limit: undefined };
}

/** The places around those of some pointers: `""` and `"/data"` for `/data/list`. */
export const levelsOf = (pointers: readonly string[]): ReadonlySet<string> =>
  new Set(pointers.map(stepsOf).flatMap((steps) => steps.map((_, index) => pointerOf(steps.slice(0, index)))));

/** What the lists at some pointers are of: `generations` and `generation` for `/data/generations`. */
const nounsOf = (pointers: readonly string[]): ReadonlySet<string> =>
  new Set(
    pointers
      .flatMap((each) => wordsOf(stepsOf(each).at(-1) ?? ''))
      .flatMap((word) => [word, word.replace(/e?s$/, ''), word.replace(/s$/, '')]),
  );

/** The same beside lists of addresses. A limit there need not be one of entries. */
export const signsOfResults = (json: unknown, lists: readonly string[]): PageSigns => ({
  ...signsIn(json, undefined, lists, MORE_RESULTS),
  limit: undefined,
});

/** Levels below the one with the list in which such facts are looked for. */
const AROUND_DEPTH_MAX = 2;

/** Adds the signs in the status and the headers of an answer to those in its body. */
export function withSignsInHead(
  body: PageSigns,
  { status, headers }: Pick<TransportResponse, 'status' | 'headers'>,
): PageSigns {
  const signs = new Signs(body, MORE);
  const counted = countOf(headers['content-range']?.split('/')[1]);
  if (status === 206 && counted === undefined) signs.more.push('the status 206');
  signs.countEntries(counted);
  for (const [name, value] of Object.entries(headers)) {
    const place = `the header ${name}`;
    if (ENTRIES_HEADER.test(name)) signs.countEntries(countOf(value));
    else if (PAGES_HEADER.test(name)) signs.countPages(countOf(value), place);
    else if (PAGINATION_HEADER.test(name)) signs.look(jsonOf(value), place);
    else if (MORE_HEADER.test(name) && !isNowhere(value)) signs.more.push(place);
  }
  return signs.found;
}

/** Links of a page that are looked at. */
const LINKS_MAX = 20;

class Signs {
  readonly more: string[];
  #counted: number | undefined;
  #pages: PageSigns['pages'];
  #limit: PageSigns['limit'];
  readonly #cursors = new Set<string>();
  #isLast: boolean;
  #isNextNowhere = false;
  readonly #isMore: RegExp;
  readonly #isElsewhere: (place: string) => boolean;
  readonly #nouns: ReadonlySet<string>;

  /**
   * @param found the signs so far. @param isMore the members that say that there is more.
   * @param isElsewhere the places that are looked at by themselves, or not at all. @param nouns what the list is of.
   */
  constructor(
    { more = [], counted, pages, limit, isLast = false }: Partial<PageSigns>,
    isMore: RegExp,
    isElsewhere: (place: string) => boolean = () => false,
    nouns: ReadonlySet<string> = new Set(),
  ) {
    this.more = [...more];
    this.#counted = counted;
    this.#pages = pages;
    this.#limit = limit;
    this.#isLast = isLast;
    this.#isMore = isMore;
    this.#isElsewhere = isElsewhere;
    this.#nouns = nouns;
  }

  get found(): PageSigns {
    const [counted, pages, isLast] = [this.#counted, this.#pages, this.#isLast];
    const more = isLast ? this.more.filter((place) => !this.#cursors.has(place)) : this.more;
    return { more, counted, pages, limit: isLast || this.#isNextNowhere ? undefined : this.#limit, isLast };
  }

  /** Looks at the members of an object, and at those of the objects in it that may hold signs. */
  look(members: unknown, path: string, depth = 0): void {
    if (typeof members !== 'object' || members === null) return;
    if (Array.isArray(members)) {
      this.#noteLinks(members, path);
      return;
    }
    const counts = Object.entries(members).flatMap(([name, value]) => (countOf(value) ? plain(name) : []));
    const aboutPage = new Set([...ABOUT_ALL].flatMap(([name, isAboutAll]) => (counts.some(isAboutAll) ? name : [])));
    for (const [name, value] of Object.entries(members)) {
      const place = path + pointerOf([name]);
      if (this.#isElsewhere(place) || aboutPage.has(plain(name))) continue;
      if (depth < AROUND_DEPTH_MAX && wordsOf(name).some((word) => AROUND.test(word)))
        this.look(value, place, depth + 1);
      this.#note(plain(name), value, place);
    }
  }

  #note(name: string, value: unknown, place: string): void {
    if (value === false && LAST.test(name)) this.more.push(place);
    if ((isFalse(value) && NO_MORE.test(name)) || (value === true && IS_LAST.test(name))) this.#isLast = true;
    if (isNowhere(value) && NEXT.test(name)) this.#isNextNowhere = true;
    if (isNowhere(value) || Array.isArray(value)) return;
    const count = countOf(value);
    const counted = name.replace(/[a-z]+/g, (word) => (this.#nouns.has(word) ? 'items' : word));
    if (count !== undefined && (ENTRIES_TOTAL.test(counted) || ENTRIES_AROUND.test(place))) this.countEntries(count);
    else if (count !== undefined && (PAGES_TOTAL.test(name) || PAGES_AROUND.test(place))) this.countPages(count, place);
    else if (count === undefined && typeof value === 'string' && name === 'offset') this.more.push(place);
    else if (count !== undefined && LIMIT.test(name)) this.#limit ??= { entries: count, place };
    else if ((this.#isMore.test(name) || MORE_AROUND.test(place)) && !(CURSOR.test(name) && isBack(name))) {
      this.more.push(place);
      if (CURSOR.test(name)) this.#cursors.add(place);
    }
  }

  /** A list of links such as `{"rel": "next", "href": …}`. */
  #noteLinks(links: readonly unknown[], place: string): void {
    if (links.slice(0, LINKS_MAX).some((link) => /^next$/i.test(String(at(link, '/rel'))))) this.more.push(place);
  }

  /** A declared cursor or address that cannot be followed. */
  noteUnusable(json: unknown, pointers: readonly string[]): void {
    const place = pointers.find((pointer) => !isNowhere(at(json, pointer)));
    if (place !== undefined && !this.more.includes(place)) this.more.push(place);
  }

  countEntries(count = 0): void {
    if (count > (this.#counted ?? 0)) this.#counted = count;
  }

  countPages(counted = 0, place: string): void {
    if (counted > (this.#pages?.counted ?? 0)) this.#pages = { counted, place };
  }
}

/** The words of a name: `resultInfo` and `result_info` have `result` and `info`. */
const wordsOf = (name: string): readonly string[] =>
  name
    .replace(/(?<=[a-z])(?=[A-Z])/g, ' ')
    .toLowerCase()
    .split(/[^a-z]+/)
    .filter(Boolean);

/** A name in small letters, and without its namespace: `total_items` for `hydra:totalItems`. */
const plain = (name: string): string => wordsOf(name.replace(/^.*[:.@]/s, '')).join('_');

function jsonOf(text = ''): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** A count, also one that is written as a text. */
function countOf(value: unknown): number | undefined {
  if (typeof value === 'number') return Number.isSafeInteger(value) ? value : undefined;
  return typeof value === 'string' && /^\d{1,15}$/.test(value) ? Number(value) : undefined;
}

const isBack = (name: string): boolean => wordsOf(name).some((word) => BACK.test(word)) && !/next/.test(name);

/** Some services write 0 and 1, or texts, for `false` and `true`. */
export const isFalse = (value: unknown): boolean => [false, 0, '0', 'false'].includes(value as string);
export const isTrue = (value: unknown): boolean => [true, 1, '1', 'true'].includes(value as string);

/** True for a value that leads to no page, or only to earlier ones. */
function isNowhere(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return value === -1 || isNothing(value, NOWHERE);
  return Object.entries(value).every(([name, each]) => isBack(name) || isNowhere(each));
}

/** True for a value that stands for nothing, or that has only such values. @param words that stand for nothing too: texts. */
export function isNothing(value: unknown, words?: RegExp): boolean {
  if (typeof value === 'object' && value !== null) return Object.values(value).every((each) => isNothing(each, words));
  const isWord = typeof value === 'string' && words?.test(value) === true;
  return isWord || [undefined, null, false, 0, ''].includes(value as string);
}
