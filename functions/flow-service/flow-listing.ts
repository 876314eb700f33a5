import { shorten } from '../base/printable.ts';
import { meantAddress } from './addresses.ts';
import { NotFoundError, NotServedError, RejectedError } from './errors.ts';
import { nextLink } from './link-header.ts';
import { type PageSigns, type Sign, withSignsInHead } from './pages.ts';
import type { Pages } from './service-description.ts';
import { isCached } from './status-errors.ts';
import type { TransportResponse } from './transport.ts';

/** Longest address or cursor of a next page, in characters. Servers refuse longer ones, and each is remembered. */
const NEXT_CHARS_MAX = 8 * 1024;

/**
 * Number of pages in a row without a new entry that may come from flows that were made meanwhile. If the listing names no
 * next pages, more of them show that it ignores the page number.
 */
const REPEATS_MAX = 3;

/** What is on a page, and the facts that are needed to find the next one. */
export interface ListingPage<T> {
  readonly items: readonly T[];
  /** The ids of the items, in their order. */
  readonly ids: readonly string[];
  /** Number of entries on the page, including those without a usable id. */
  readonly entries: number;
  /** The address or the cursor of the next page. Undefined if the page names none where the description says. */
  readonly next: string | undefined;
  /** The entries on all pages, where the description says. Undefined if the page does not count them there. */
  readonly total: number | undefined;
  readonly signs: readonly Sign[];
}

/** A page, and what is new on it. */
export interface ReadPage<P extends ListingPage<unknown>> {
  readonly page: P;
  /**
   * The ids that no earlier page had, and that stand above one of an earlier page: they came into the listing after the
   * earlier page was read. The page numbers of most services begin with 1, so their first page is read twice, and shows
   * what was made in between.
   */
  readonly added: ReadonlySet<string>;
  /** The items that no earlier page had. */
  readonly freshItems: P['items'];
}

type Head = Pick<TransportResponse, 'status' | 'headers'>;

interface ListingOptions<P> {
  /** The first page. */
  readonly url: URL;
  /** Tells whether a request to a URL may carry the token. */
  readonly isForToken: (url: URL) => boolean;
  /** Reads one page. */
  readonly read: (url: URL) => Promise<{ readonly page: P; readonly response: Head }>;
  /** How the listing names its next page. */
  readonly pages?: Pages | undefined;
  readonly pagesMax: number;
  readonly entriesMax: number;
}

/**
 * Reads a listing page by page, in the form that the description declares.
 *
 * The token goes with every request, so an address of a next page is followed only if it may carry the token.
 *
 * A page without a new entry is no sign of the end if it names a next one: flows that were made meanwhile push the entries
 * of a page to the next one. It is the end if it also says that it is the last one.
 *
 * Numbered pages are read until one is empty, or until all entries that the listing counts were seen. A service that
 * ignores the number repeats itself at the second number and after it.
 *
 * The end is known if a page names no next one, if a numbered page is empty, or if all entries that the listing counts
 * were seen. In all other cases, `stopReason` says why reading stopped. A page that says in another form that there is
 * more is such a case.
 */
export class Listing<P extends ListingPage<unknown>> {
  /** Why the listing may have more entries than were read. Undefined if the end is known, or not yet reached. */
  stopReason: string | undefined;
  /**
   * True if reading the listing again may reach its end. Either the service rejected a page after the first: a deletion
   * may have made its cursor invalid. Or the last pages had no new entry, although earlier page numbers led to some:
   * entries that were made meanwhile may have filled these pages.
   */
  mayPass = false;
  pagesRead = 0;
  /** True if a cache has answered for a page. So the listing may be old. */
  isCached = false;
  /** True if further pages were not read because of a limit of ours. */
  isCut = false;
  readonly #options: ListingOptions<P>;
  readonly #seen = new Set<string>();
  /** Addresses of the pages that were requested. */
  readonly #requested = new Set<string>();
  /** Number of entries that came into the listing while it was read. */
  #added = 0;
  /** The page to read next. Undefined if there is none. */
  #url: URL | undefined;
  /** The number of the page read last, or of the entries before it. Undefined if it was asked for without one. */
  #number: number | undefined;
  /** Number of numbered pages in a row, from the second on, that had no new entry. */
  #repeats = 0;
  /** The lowest total that a page stated. Entries made meanwhile appear on pages already read. */
  #total = Number.POSITIVE_INFINITY;

  constructor(options: ListingOptions<P>) {
    this.#options = options;
    this.#url = options.url;
  }

  /** Yields the pages. Each step sends one request. */
  async *pages(): AsyncGenerator<ReadPage<P>, void> {
    while (this.#url !== undefined) {
      this.#requested.add(this.#url.href);
      const answer = await this.#read(this.#url);
      if (answer === undefined) return;
      const { page, response } = answer;
      const fresh = new Set(page.ids).difference(this.#seen);
      const lastRepeated = page.ids.findLastIndex((id) => this.#seen.has(id));
      const added = new Set(page.ids.slice(0, lastRepeated + 1)).intersection(fresh);
      this.#added += added.size;
      this.#advance(page, response, fresh);
      yield { page, added, freshItems: page.items.filter((_, index) => fresh.has(page.ids[index] ?? '')) };
    }
  }

  /** @throws any error of the first page. If the service rejects a later page, reading only stops. */
  async #read(url: URL): Promise<Awaited<ReturnType<ListingOptions<P>['read']>> | undefined> {
    try {
      return await this.#options.read(url);
    } catch (error) {
      if (this.pagesRead === 0 || !isRejection(error)) throw error;
      this.mayPass = true;
      this.stopReason = error.message;
      return undefined;
    }
  }

  #advance(page: P, response: Head, fresh: ReadonlySet<string>): void {
    const { pagesMax, entriesMax } = this.#options;
    this.pagesRead += 1;
    this.isCached ||= isCached(response);
    for (const id of fresh) this.#seen.add(id);
    let following = this.#following(page, response, fresh);
    if (following instanceof URL && (this.pagesRead >= pagesMax || this.#seen.size > entriesMax)) {
      this.isCut = true;
      following = `the listing has more than ${this.#seen.size} entries`;
    }
    if (following instanceof URL) this.#url = following;
    else [this.#url, this.stopReason] = [undefined, following];
  }

  /** The address of the next page, or the reason why it cannot be read. Undefined if this page is the last. */
  #following(page: P, response: Head, fresh: ReadonlySet<string>): URL | string | undefined {
    const { pages } = this.#options;
    // The service declares that there is one page, whatever this one says.
    if (pages?.by === 'none') return undefined;
    const signs = withSignsInHead(page.signs, response);
    if (pages?.by === 'number' || pages?.by === 'offset') return this.#numbered(page, pages, signs.more, fresh);
    // Numbered pages use only their declared count. Here none is declared, so any count counts.
    this.#total = Math.min(this.#total, signs.counted ?? Number.POSITIVE_INFINITY);
    const link = nextLink(response.headers.link);
    const next = pages?.by === 'link' ? link : page.next;
    // After its last page, a service may go on to name pages, and to list nothing.
    if (next !== undefined && !(signs.isLast && fresh.size === 0)) {
      return this.#named(next, pages?.by === 'cursor' ? this.#with(pages.parameter, next) : this.#at(next));
    }
    return this.#ended(page, moreThan(this.pagesRead, page.entries, signs, pages?.by === 'link' ? undefined : link));
  }

  /** Checks the address of a next page that this page names. */
  #named({ length }: string, url: URL | undefined): URL | string {
    if (length > NEXT_CHARS_MAX) {
      return `the address of the next page has ${length} characters, and at most ${NEXT_CHARS_MAX} are sent`;
    }
    if (url === undefined) return 'the next page of the listing is elsewhere';
    return this.#requested.has(url.href) ? 'the listing repeats itself' : url;
  }

  #numbered(
    page: P,
    { parameter, ...pages }: Extract<Pages, { readonly by: 'number' | 'offset' }>,
    more: readonly string[],
    fresh: ReadonlySet<string>,
  ): URL | string | undefined {
    const { entries, total = Number.POSITIVE_INFINITY } = page;
    const [first, step] = pages.by === 'offset' ? [0, entries] : [pages.first ?? 1, 1];
    // A count below what is on its own page counts something else, or is a placeholder.
    if (total >= entries) this.#total = Math.min(this.#total, total);
    // The lowest count does not include those that came meanwhile.
    const isAllRead = Math.max(this.#seen.size - this.#added, entries) >= this.#total;
    if (entries === 0 || isAllRead) return this.#ended(page, more);
    // The first one is read twice.
    const pagesAfterFirst = this.pagesRead - 2;
    this.#repeats = pagesAfterFirst > 0 && fresh.size === 0 ? this.#repeats + 1 : 0;
    if (this.#repeats > REPEATS_MAX) {
      // If the service ignored the number, there would have been nothing new after the first page.
      this.mayPass = pagesAfterFirst - this.#repeats >= 1;
      return 'the listing cannot be paged through';
    }
    // The first page is read once more by its number. This shows what was made in between.
    this.#number = this.#number === undefined ? first : this.#number + step;
    return this.#with(parameter, String(this.#number));
  }

  #ended({ entries }: P, more: readonly string[]): string | undefined {
    return missing(more, Math.max(this.#seen.size, entries), this.#total);
  }

  #with(name: string, value: string): URL {
    const url = new URL(this.#options.url);
    url.searchParams.set(name, value);
    return url;
  }

  /** The URL of an address in the listing. Undefined if the token must not be sent there. */
  #at(address: string): URL | undefined {
    const named = URL.parse(address, this.#url?.href ?? this.#options.url.href);
    const url = named && meantAddress(named, this.#options.url);
    return url !== null && this.#options.isForToken(url) ? url : undefined;
  }
}

/** The signs on a page that more pages follow. @param entries on the page. */
function moreThan(
  pagesRead: number,
  entries: number,
  { more, counted, pages, limit }: PageSigns,
  link: string | undefined,
): readonly string[] {
  const isShort = pages !== undefined && pagesRead < pages.count;
  const isFull = counted === undefined && pages === undefined && limit?.count === entries;
  return [
    ...more,
    ...(isShort ? [pages.place] : []),
    ...(isFull ? [`${limit.place}, as many as are listed`] : []),
    ...(link === undefined ? [] : ['the header Link']),
  ];
}

/**
 * Why a listing is not at its end, although no page follows in the declared form. Undefined if it is.
 * @param more the signs that more pages follow. @param total the entries that the listing counts. Default: it does not.
 * @param todo what to declare if more pages follow.
 */
function missing(
  more: readonly string[],
  listed: number,
  total = Number.POSITIVE_INFINITY,
  todo = 'Declare "pages" of the listing',
): string | undefined {
  if (more.length > 0)
    return `it says that there is more (${shorten(more.join(', '))}), in a form that is not declared. ${todo}`;
  if (Number.isFinite(total) && listed < total) return `the listing counts ${total} entries but shows ${listed}`;
  return undefined;
}

/** Only listings are read page by page. */
const IF_NONE = 'Addresses are read from one page. If that is not what it means, declare "pages": {"by": "none"}';

/** Why a page of addresses, which is read alone, may not be the whole. Undefined if it is. */
export function missingOf({ signs: inBody, entries }: ListingPage<unknown>, response: Head): string | undefined {
  const signs = withSignsInHead(inBody, response);
  return missing(moreThan(1, entries, signs, nextLink(response.headers.link)), entries, signs.counted, IF_NONE);
}

/** Tells whether the service rejected the request for a page. A retry would be rejected too. */
export const isRejection = (error: unknown): error is NotFoundError | NotServedError | RejectedError =>
  error instanceof NotFoundError || error instanceof NotServedError || error instanceof RejectedError;
