import { NotFoundError, NotServedError, RejectedError } from './errors.ts';
import { linksIn } from './link-header.ts';

/** What a page says about the next one. */
export type NextPage =
  /** A URL or a path. */
  | { readonly kind: 'address'; readonly address: string }
  /** A cursor or a number, and the query parameter that takes it. */
  | { readonly kind: 'parameter'; readonly name: string; readonly value: string }
  /** There is no next page. */
  | { readonly kind: 'end' }
  /** There is a next page, but the page does not say where. */
  | { readonly kind: 'more' }
  /** Nothing. */
  | { readonly kind: 'unsaid' };

/** Longest address or cursor of a next page, in characters. Servers refuse longer ones, and each is remembered. */
const NEXT_CHARS_MAX = 8 * 1024;

/**
 * Number of pages in a row without a new entry that may come from flows that were made meanwhile. If the listing names no
 * next pages, more of them show that it ignores the page number.
 */
const REPEATS_MAX = 3;

/** The facts about a page that are needed to find the next one. */
export interface ListingPage {
  /** The ids on the page. */
  readonly ids: readonly string[];
  /** Number of entries on the page, including those without a usable id. */
  readonly entries: number;
  /** Number of entries on all pages. Undefined if the page does not say. */
  readonly total: number | undefined;
  readonly next: NextPage;
}

interface ListingOptions<P> {
  /** The first page. */
  readonly url: URL;
  /** Tells whether a request to a URL may carry the token. */
  readonly isForToken: (url: URL) => boolean;
  /** Reads one page, with its `Link` header. */
  readonly read: (url: URL) => Promise<{ readonly page: P; readonly link: string | undefined }>;
  readonly pagesMax: number;
  readonly entriesMax: number;
  /** True if a page that does not mention further pages may still have some. Then `?page=` is tried. */
  readonly mayBeSilent: boolean;
}

/**
 * Reads a listing page by page. No specification says how the service pages its listings.
 *
 * A page names the next one by an address, a path, a cursor or a number, in its body or in its `Link` header. The token
 * goes with every request, so an address is followed only if it may carry the token.
 *
 * A page without a new entry is no sign of the end if it names a next one: flows that were made meanwhile push the entries
 * of a page to the next one.
 *
 * A page that does not mention a next one may still be the first of many. Then `?page=` is tried. It starts at 1, which
 * is the second page of a service that counts from 0. A service that ignores the parameter repeats itself at 2 and at 3.
 *
 * The end is known if a page says so, if the pages stop naming a next one, if a page is empty, or if all entries that
 * the listing counts were seen. In all other cases, `stopReason` says why reading stopped.
 */
export class Listing<P extends ListingPage> {
  /** Why the listing may have more entries than were read. Undefined if the end is known, or not yet reached. */
  stopReason: string | undefined;
  /**
   * True if reading the listing again may reach its end. Either the service rejected a page after the first: a deletion
   * may have made its cursor invalid. Or the last pages had no new entry, although earlier page numbers led to some:
   * entries that were made meanwhile may have filled these pages.
   */
  mayPass = false;
  pagesRead = 0;
  readonly #options: ListingOptions<P>;
  readonly #seen = new Set<string>();
  /** Addresses of the pages that were requested. */
  readonly #requested = new Set<string>();
  /** The page to read next. Undefined if there is none. */
  #url: URL | undefined;
  /** The page number tried last. */
  #number = 0;
  /** Number of pages in a row, from the second number on, that had no new entry. */
  #repeats = 0;
  #hasNamedNext = false;
  /** The lowest total that a page stated. Entries made meanwhile appear on pages already read. */
  #total = Number.POSITIVE_INFINITY;

  constructor(options: ListingOptions<P>) {
    this.#options = options;
    this.#url = options.url;
  }

  /** Yields the pages. Each step sends one request. `fresh` holds the ids that no earlier page had. */
  async *pages(): AsyncGenerator<{ readonly page: P; readonly fresh: ReadonlySet<string> }, void> {
    while (this.#url !== undefined) {
      this.#requested.add(this.#url.href);
      const answer = await this.#read(this.#url);
      if (answer === undefined) return;
      const { page, link } = answer;
      const fresh = new Set(page.ids).difference(this.#seen);
      this.#advance(page, link, fresh);
      yield { page, fresh };
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

  #advance(page: P, link: string | undefined, fresh: ReadonlySet<string>): void {
    const { pagesMax, entriesMax } = this.#options;
    this.pagesRead += 1;
    for (const id of fresh) this.#seen.add(id);
    this.#total = Math.min(this.#total, page.total ?? Number.POSITIVE_INFINITY);
    let following = this.#following(page, nextOf(page, link), fresh);
    if (following instanceof URL && (this.pagesRead >= pagesMax || this.#seen.size > entriesMax)) {
      following = `the listing has more than ${this.#seen.size} entries`;
    }
    if (following instanceof URL) this.#url = following;
    else [this.#url, this.stopReason] = [undefined, following];
  }

  /** The address of the next page, or the reason why it cannot be read. Undefined if this page is the last. */
  #following(page: P, next: NextPage, fresh: ReadonlySet<string>): URL | string | undefined {
    const isLast = next.kind === 'end' || (next.kind === 'unsaid' && this.#isComplete(page));
    if (isLast) return this.#shortage(page);
    if (next.kind === 'address' || next.kind === 'parameter') {
      this.#hasNamedNext = true;
      const { length } = next.kind === 'parameter' ? next.value : next.address;
      if (length > NEXT_CHARS_MAX) {
        return `the address of the next page has ${length} characters, and at most ${NEXT_CHARS_MAX} are sent`;
      }
      const url = next.kind === 'parameter' ? this.#with(next.name, next.value) : this.#at(next.address);
      if (url === undefined) return 'the next page of the listing is elsewhere';
      return this.#requested.has(url.href) ? 'the listing repeats itself' : url;
    }
    this.#repeats = this.#number >= 2 && fresh.size === 0 ? this.#repeats + 1 : 0;
    if (this.#repeats > REPEATS_MAX || (page.entries === 0 && this.#number >= 1)) {
      // If the service ignored the number, there would have been nothing new from 2 on.
      this.mayPass = this.#number - this.#repeats >= 2;
      return 'the listing cannot be paged through';
    }
    this.#number += 1;
    return this.#with('page', String(this.#number));
  }

  /** Tells whether a page that does not mention a next one is the last. */
  #isComplete({ entries, total }: P): boolean {
    if (this.#hasNamedNext || entries === 0) return true;
    if (total === undefined) return !this.#options.mayBeSilent;
    return Math.max(this.#seen.size, entries) >= total;
  }

  /** Compares the listing with its own count, at its end. Undefined if no entry is missing. */
  #shortage({ entries }: P): string | undefined {
    const listed = Math.max(this.#seen.size, entries);
    if (this.#total === Number.POSITIVE_INFINITY || listed >= this.#total) return undefined;
    return `the listing counts ${this.#total} entries but shows ${listed}`;
  }

  #with(name: string, value: string): URL {
    const url = new URL(this.#options.url);
    url.searchParams.set(name, value);
    return url;
  }

  /** The URL of an address in the listing. Undefined if the token must not be sent there. */
  #at(address: string): URL | undefined {
    const url = URL.parse(address, this.#url?.href ?? this.#options.url.href);
    return url !== null && this.#options.isForToken(url) ? url : undefined;
  }
}

/** Tells whether the service rejected the request for a page. A retry would be rejected too. */
export const isRejection = (error: unknown): error is NotFoundError | NotServedError | RejectedError =>
  error instanceof NotFoundError || error instanceof NotServedError || error instanceof RejectedError;

/** What a page says about the next one, in its body or in its `Link` header. */
function nextOf({ next }: ListingPage, link: string | undefined): NextPage {
  if ((next.kind !== 'unsaid' && next.kind !== 'more') || link === undefined) return next;
  const links = linksIn(link);
  const address = links.get('next');
  if (address !== undefined) return { kind: 'address', address };
  const isAmongPages = ['prev', 'previous', 'first', 'last'].some((relation) => links.has(relation));
  return isAmongPages && next.kind === 'unsaid' ? { kind: 'end' } : next;
}
