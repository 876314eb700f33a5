import { limitedJsonIn, UNREADABLE } from './json-answer.ts';
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
  const total = pages && 'total' in pages ? firstAt(json, pages.total) : undefined;
  return typeof total === 'number' ? total : undefined;
}

/** What a member of a page, or a header, says about the whole listing. It is only told, never followed. */
export interface Sign {
  /**
   * `more`: more follows. `last`: this is the last page. `no next`: no page follows, but a cursor may say otherwise.
   * `entries`, `pages`: the number of all. `limit`: the greatest number of entries on a page. `back`: nothing.
   */
  readonly says: 'more' | 'last' | 'no next' | 'entries' | 'pages' | 'limit' | 'back';
  /** The name as words: `total_items` for `hydra:totalItems`. */
  readonly name: string;
  readonly place: string;
  /** The value, if it is a count. Otherwise 0. */
  readonly count: number;
}

/** Some services write 0 and 1, or texts, for `false` and `true`. */
export const isFalse = (value: unknown): boolean => isScalar(value) && /^(?:false|0|no|n)$/i.test(String(value));
export const isTrue = (value: unknown): boolean => isScalar(value) && /^(?:true|1|yes|y)$/i.test(String(value));
const isScalar = (value: unknown): boolean => ['boolean', 'number', 'string'].includes(typeof value);

/** A count, also one that is written as a text. 0 if there is none. */
function countOf(value: unknown): number {
  const count = typeof value === 'string' && /^\d{1,15}$/.test(value) ? Number(value) : value;
  return Number.isSafeInteger(count) ? Math.max(count as number, 0) : 0;
}

const isCount = (value: unknown): boolean => countOf(value) > 0;

/** True for a value that leads to no page, or only to earlier ones. */
function isNowhere(value: unknown): boolean {
  if (typeof value === 'object' && value !== null)
    return Object.entries(value).every(([name, each]) => BACK.names.test(plain(name)) || isNowhere(each));
  return value === -1 || isNothing(value, /^(?:-1|0|false|nil|none|null)$/i);
}

const isSomewhere = (value: unknown): boolean => !Array.isArray(value) && !isNowhere(value);

/** True for a value that stands for nothing, or that has only such values. @param words that stand for nothing too: texts. */
export function isNothing(value: unknown, words?: RegExp): boolean {
  if (typeof value === 'object' && value !== null) return Object.values(value).every((each) => isNothing(each, words));
  const isWord = typeof value === 'string' && words?.test(value) === true;
  return isWord || [undefined, null, false, 0, ''].includes(value as string);
}

/** A name as words in small letters, without its namespace: `total_items` for `hydra:totalItems`. */
const plain = (name: string): string =>
  name
    .replace(/^.*[:.@]/s, '')
    .replace(/(?<=[a-z])(?=[A-Z])/g, '_')
    .toLowerCase()
    .replace(/[^a-z]+/g, '_')
    .replace(/^_|_$/g, '');

/**
 * A rule: what members of some names say with some values.
 * @param names as words: `has next` is `has_next`, `hasNext`, `hydra:hasNext` or `hasnext`, and `hits/value` is a `value` in
 * `hits`.
 */
const rule = (says: Sign['says'], names: string, isMeant: (value: unknown) => boolean) => ({
  says,
  names: new RegExp(`(?:^|/)(?:${names.replaceAll(' ', '_?')})$`),
  isMeant,
});

/** The names that have one of some words at least, and no others but these and those that may stand beside them. */
const made = (of: string, beside: string): string => `(?:(?:${beside}) )*(?:${of})(?: (?:${of}|${beside}))*`;

/** `total`, `numFound`, `total_row_count`. */
const COUNT_OF_ALL = made(
  'total|count|found|hits|matched',
  'x|num(?:ber)?|nb|of|full|grand|overall|hit|(?:object|item|result|element|record|row|output|asset|file|flow|job)s?|entries|matches',
);

/** Words that say nothing by themselves. */
const BESIDE_NEXT = 'has|is|page|results|items|href|link|token|uri|url|key|offset|range|partition|row';

/** `has_more`, `next_page_url`, `truncated`. */
const WAY_ON = made(
  'next|more|cursor|bookmark|marker|continuation|resumption|timed out|truncated|incomplete|partial',
  BESIDE_NEXT,
);

/** A way back, unless it is about more: `prev_cursor`, but not `has_more_before`. */
const BACK = rule(
  'back',
  '(?![a-z_]*(?:next|more|truncat|incomplete))(?:[a-z_]*_)?(?:prev|previous|before|start)(?:_[a-z_]*)?',
  () => true,
);

/** The first rule that a member or a header meets tells what it says. Without one, it says nothing. */
const RULES = [
  rule('entries', COUNT_OF_ALL, isCount),
  rule('entries', 'total (?:images|models|size)|(?:total|hits)/value', isCount),
  rule('pages', 'of|pages|pages? (?:count|total)|(?:total|nb|num|number|number of) pages|last page', isCount),
  rule('pages', '(?:page|paging|pagination)/last', isCount),
  rule('more', '(?:is )?(?:last|final|complete|done|finished)(?: page)?', (value) => value === false),
  rule('last', '(?:is )?last(?: page)?', (value) => value === true),
  rule('last', '(?:more|(?:has|is) (?:more|next|truncated))(?: (?:items|page|results))?', isFalse),
  rule('no next', `next(?: (?:cursor|${BESIDE_NEXT}))*`, isNowhere),
  BACK,
  rule('more', WAY_ON, isSomewhere),
  rule('more', 'scroll id|(?:page|pagination) token|last evaluated key', isSomewhere),
  rule('more', '(?:cursors|page|paging|pagination)/after', isSomewhere),
  rule('more', 'offset', (value) => typeof value === 'string' && isSomewhere(value) && !isCount(value)),
];

/** The rules beside a list of entries. Beside addresses, a limit is of other things, and `more_info` leads to no page. */
const LIST_RULES = [
  ...RULES,
  rule('limit', 'limit|max (?:items|results)|page size|(?:(?:items|results) )?per page', isCount),
  rule('more', '[a-z_]*(?:next|more|cursor|bookmark|continu|resumption|truncat|incomplete)[a-z_]*', isSomewhere),
  rule('more', 'after|remaining(?: (?:count|items|pages|results|outputs))?', isSomewhere),
];

/** Names of ways on that may stand on the last page too. There, another member says that it is the last. */
const CURSOR = /cursor|bookmark|continu|marker|scroll|token|after$/;

/** Words of members that have signs further down: `_links.next`, `result_info.count`, `pagination.total`. */
const AROUND =
  /(?:^|_)(?:collection|cursors?|hits|info|links?|listing|meta(?:data)?|pag(?:eable|er|es?|ination|ing)|summary|total|view)(?:_|$)/;

/** Levels below the one with the list in which such members are looked for. */
const AROUND_DEPTH_MAX = 2;

/** Links of a page that are looked at. */
const LINKS_MAX = 20;

/** How the members of a page are read. */
interface Reading {
  readonly rules: typeof RULES;
  /** What the list is of. */
  readonly nouns?: ReadonlySet<string>;
  /** True for places that are looked at by themselves, or not at all. */
  readonly isElsewhere?: (place: string) => boolean;
}

/**
 * The signs in a page, beside what is declared. A declared member is one too if its value cannot be followed.
 * @param items where the list is. What stands beside it counts, on each level.
 */
export function signsIn(json: unknown, pages: Pages | undefined, items: Pointers, rules = LIST_RULES): Sign[] {
  const isFollowed = nextOf(json, pages) !== undefined;
  const places = pages !== undefined && 'at' in pages ? [pages.at].flat() : [];
  const followed = isFollowed ? places : [];
  const levels = levelsOf([items].flat());
  const isElsewhere = (place: string): boolean =>
    levels.has(place) || followed.some((each) => each === place || each.startsWith(`${place}/`));
  const reading = { rules, nouns: nounsOf([items].flat()), isElsewhere };
  const signs = [...levels].flatMap((level) => signsAt(at(json, level), level, reading));
  const unusable = isFollowed ? [] : places.filter((place) => !isNowhere(at(json, place)));
  signs.push(...unusable.map((place) => moreAt(place, lastStep(place))));
  // Where pages are declared, a page without a next one is the last, however full it is.
  return pages === undefined ? signs : signs.filter(({ says }) => says !== 'limit');
}

/** The same beside lists of addresses. */
export const signsOfResults = (json: unknown, lists: readonly string[]): Sign[] =>
  signsIn(json, undefined, lists, RULES);

/** Names of a query that say how many entries a page may have at most: `page_size`, `$top`, `maxResults`. */
const ASKED_LIMIT = /(?:^|_)(?:count|first|limit|max|per_?page|size|take|top)(?:_|$)/;

/** What a query asks for. A listing with as many entries may have more. */
export const limitsIn = (query: string): Sign[] =>
  [...new URLSearchParams(query)].flatMap(([name, value]) => {
    const isLimit = ASKED_LIMIT.test(plain(name)) && isCount(value);
    return isLimit ? { says: 'limit', name: plain(name), place: `${name} in its query`, count: countOf(value) } : [];
  });

/** The places around those of some pointers: `""` and `"/data"` for `/data/list`. */
export const levelsOf = (pointers: readonly string[]): ReadonlySet<string> =>
  new Set(pointers.map(stepsOf).flatMap((steps) => steps.map((_, index) => pointerOf(steps.slice(0, index)))));

/** What the lists at some pointers are of: `generations` and `generation` for `/data/generations`. */
const nounsOf = (pointers: readonly string[]): ReadonlySet<string> =>
  new Set(
    pointers
      .flatMap((each) => lastStep(each).split('_'))
      .flatMap((word) => [word, word.replace(/e?s$/, ''), word.replace(/s$/, '')]),
  );

/** The signs among the members of an object, and of the objects in it that may have some. */
function signsAt(json: unknown, path: string, reading: Reading, depth = 0): Sign[] {
  if (typeof json !== 'object' || json === null) return [];
  if (Array.isArray(json)) return hasNextLink(json) ? [moreAt(path)] : [];
  const holder = lastStep(path);
  const members = Object.entries(json)
    .map(([name, value]) => ({ name: plain(name), place: path + pointerOf([name]), value }))
    .filter(({ place }) => !reading.isElsewhere?.(place));
  const further = depth < AROUND_DEPTH_MAX ? members.filter(({ name }) => AROUND.test(name)) : [];
  const own = members.flatMap(({ name, place, value }) => {
    // The noun of the list is the word `entries`: `total_renders` beside `renders`.
    const general = name.replace(/[a-z]+/g, (word) => (reading.nouns?.has(word) ? 'entries' : word));
    return signOf(reading.rules, [`${holder}/${name}`, general], { name, place, value });
  });
  // A count or a last is about this page if another one beside it is about all: `{"count": 20, "total": 2}`.
  const ofAll = new Set(own.flatMap(({ says, name }) => (/total|found|matched|page|^of$/.test(name) ? says : [])));
  const isOfPage = ({ says, name }: Sign): boolean => ofAll.has(says) && /^(?:count|last)$/.test(name);
  return [
    ...further.flatMap(({ place, value }) => signsAt(value, place, reading, depth + 1)),
    ...own.filter((sign) => !isOfPage(sign)),
  ];
}

/** What a member says. @param forms of its name. A rule may be for any of them. */
function signOf(
  rules: Reading['rules'],
  forms: readonly string[],
  { name, place, value }: { readonly name: string; readonly place: string; readonly value: unknown },
): Sign[] {
  const found = rules.find(({ names, isMeant }) => forms.some((form) => names.test(form)) && isMeant(value));
  return found === undefined ? [] : [{ says: found.says, name, place, count: countOf(value) }];
}

const moreAt = (place: string, name = ''): Sign => ({ says: 'more', name, place, count: 0 });

const lastStep = (pointer: string): string => plain(stepsOf(pointer).at(-1) ?? '');

/** True for a list of links such as `{"rel": "next", "href": …}`. */
const hasNextLink = (links: readonly unknown[]): boolean =>
  links.slice(0, LINKS_MAX).some((link) => /^next$/i.test(String(at(link, '/rel'))));

/** A header may begin with `x-`, and with the name of a product: `x-wp-total`, `x-ms-continuation`, `x-nomad-nexttoken`. */
const HEADER_PREFIX = /^(?:x_)?(?:[a-z]{2,3}_|pagination_|[a-z]+_(?=next))?/;

/** The rules for headers. Salesforce has `Sforce-Locator`. */
const HEADER_RULES = [...RULES, rule('more', 'sforce locator', isSomewhere)];

/** Nesting of the JSON in a header that is read. A header of 64 KiB could otherwise overflow the stack. */
const HEADER_DEPTH_MAX = 10;

/** Words of headers that count other things: the hits of a cache, bytes. */
const OTHER_COUNT = /hit|size/;

function signsInHeader(header: string, value = ''): Sign[] {
  const place = `the header ${header}`;
  const name = plain(header).replace(HEADER_PREFIX, '');
  if (name === 'pagination') return signsAt(limitedJsonIn(value, HEADER_DEPTH_MAX), place, { rules: LIST_RULES });
  return OTHER_COUNT.test(name) ? [] : signOf(HEADER_RULES, [name], { name, place, value });
}

/** What a page says about the whole listing, beside what is declared. */
export interface PageSigns {
  /** Where it says that there is more, in a form that is not declared: `/_links/next`. */
  readonly more: readonly string[];
  /** The entries on all pages, as it counts them. */
  readonly counted: number | undefined;
  /** The number of pages, as it counts them. */
  readonly pages: Sign | undefined;
  /** The greatest number of entries on a page. A full page may not be the last one. */
  readonly limit: Sign | undefined;
  /** True if it says that it is the last page. It may have a cursor all the same. */
  readonly isLast: boolean;
}

const signsInHeaders = (headers: TransportResponse['headers']): Sign[] =>
  Object.entries(headers).flatMap(([name, value]) => signsInHeader(name, value));

/** True if a header says that more follows. */
export const leadsOn = (headers: TransportResponse['headers']): boolean =>
  said(signsInHeaders(headers)).more.length > 0;

/** What the signs in a body say, with those in the status and the headers of the answer. */
export function withSignsInHead(
  inBody: readonly Sign[],
  { status, headers }: Pick<TransportResponse, 'status' | 'headers'>,
): PageSigns {
  const range = { name: 'total', place: 'the header content-range', value: headers['content-range']?.split('/')[1] };
  const inRange = signOf(RULES, [range.name], range);
  return said([
    ...inBody,
    ...(status === 206 && inRange.length === 0 ? [moreAt('the status 206')] : inRange),
    ...signsInHeaders(headers),
  ]);
}

/** What signs say together. */
export function said(signs: readonly Sign[]): PageSigns {
  const saying = (says: Sign['says']) => signs.filter((sign) => sign.says === says);
  const greatest = (says: Sign['says']) =>
    saying(says).reduce<Sign | undefined>((most, sign) => (most && most.count >= sign.count ? most : sign), undefined);
  const isLast = saying('last').length > 0;
  const hasNoNext = isLast || saying('no next').length > 0;
  return {
    more: [...new Set(saying('more').flatMap(({ name, place }) => (isLast && CURSOR.test(name) ? [] : place)))],
    counted: greatest('entries')?.count,
    pages: greatest('pages'),
    limit: hasNoNext ? undefined : saying('limit')[0],
    isLast,
  };
}
