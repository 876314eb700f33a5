import { NotFoundError, NotServedError, RejectedError } from './errors.ts';
import { SIZE_PARAMETERS } from './flow-query.ts';
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
export const NEXT_CHARS_MAX = 8 * 1024;

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

/** A place in a listing that an earlier reading reached. */
export interface ListingPlace {
  /** Address of the page that was read last. */
  readonly address: string;
  /** The last id on that page. */
  readonly lastId: string;
  /** Number of entries read so far. */
  readonly entries: number;
}

interface ListingOptions<P> {
  /** The first page. */
  readonly url: URL;
  /** Where to go on. Default: the first page. */
  readonly from?: ListingPlace | undefined;
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
 * A page that does not mention a next one may still be the first of many. Then `?page=` is tried. It starts at 1, which
 * is the second page of a service that counts from 0. A service that ignores the parameter repeats itself.
 *
 * The end is known if a page says so, if the pages stop naming a next one, if a page is empty, or if all entries that
 * the listing counts were seen. In all other cases, `stopReason` says why reading stopped.
 *
 * A reading can go on where an earlier one stopped. It then reads the last page of the earlier one again, and goes on
 * behind the last id of that page. So it does not matter what the address means: if it leads elsewhere by now, the id
 * is not there, and the place is lost.
 */
export class Listing<P extends ListingPage> {
  /** Why the listing may have more entries than were read. Undefined if the end is known, or not yet reached. */
  stopReason: string | undefined;
  /**
   * True if the service rejected a page after the first, because a deletion may have made its cursor invalid. Also if
   * the place to go on from is lost.
   */
  isCutOff = false;
  /** True if reading stopped at a limit of its own. */
  isAtLimit = false;
  /** True if pages were requested by number or offset. Then a deletion moves entries to pages already read. */
  isNumbered = false;
  pagesRead = 0;
  readonly #options: ListingOptions<P>;
  readonly #seen = new Set<string>();
  /** Addresses of the pages that were requested. */
  readonly #requested = new Set<string>();
  /** The page to read next. Undefined if there is none. */
  #url: URL | undefined;
  /** The page number tried last. */
  #number = 0;
  #hasNamedNext: boolean;
  /** The place to go on from, until its page was read. */
  #from: ListingPlace | undefined;
  readonly #entriesBefore: number;
  #entriesRead = 0;
  #place: ListingPlace | undefined;
  /** The lowest total that a page stated. Entries made meanwhile appear on pages already read. */
  #total = Number.POSITIVE_INFINITY;

  constructor(options: ListingOptions<P>) {
    const { url, from, isForToken } = options;
    this.#options = options;
    this.#from = from;
    this.#entriesBefore = from?.entries ?? 0;
    this.#hasNamedNext = from !== undefined;
    this.#url = from === undefined ? url : (URL.parse(from.address) ?? undefined);
    if (from === undefined || (this.#url !== undefined && isForToken(this.#url))) return;
    this.#cutOff('the place in the listing is elsewhere');
  }

  get seen(): ReadonlySet<string> {
    return this.#seen;
  }

  /** Number of entries with a usable id that were read, by earlier readings too. */
  get entries(): number {
    return this.#entriesBefore + this.#entriesRead;
  }

  /**
   * Where a later reading can go on. Undefined if there is no such place: pages that go by number, the first page, or a
   * page that is the last.
   */
  get place(): ListingPlace | undefined {
    return this.isNumbered ? undefined : this.#place;
  }

  /** Yields the pages. Each step sends one request. `fresh` holds the ids that no earlier page had. */
  async *pages(): AsyncGenerator<{ readonly page: P; readonly fresh: ReadonlySet<string> }, void> {
    while (this.#url !== undefined) {
      this.#requested.add(this.#url.href);
      this.isNumbered ||= hasNumber(this.#url, this.#options.url);
      const answer = await this.#read(this.#url);
      if (answer === undefined) return;
      const { page, link } = answer;
      const fresh = this.#freshOf(page);
      if (fresh === undefined) {
        this.#cutOff('the place in the listing is lost');
        return;
      }
      this.#advance(page, link, fresh);
      yield { page, fresh };
    }
  }

  /** @throws any error of the first page. If the service rejects a later page, reading only stops. */
  async #read(url: URL): Promise<Awaited<ReturnType<ListingOptions<P>['read']>> | undefined> {
    try {
      return await this.#options.read(url);
    } catch (error) {
      if ((this.pagesRead === 0 && this.#from === undefined) || !isRejection(error)) throw error;
      this.#cutOff(error.message);
      return undefined;
    }
  }

  /** The ids on a page that were not read before. Undefined if the page should have the place to go on from. */
  #freshOf({ ids }: P): ReadonlySet<string> | undefined {
    const from = this.#from;
    this.#from = undefined;
    if (from === undefined) return new Set(ids).difference(this.#seen);
    const at = ids.indexOf(from.lastId);
    if (at === -1) return undefined;
    for (const id of ids) this.#seen.add(id);
    return new Set(ids.slice(at + 1)).difference(new Set(ids.slice(0, at + 1)));
  }

  #cutOff(why: string): void {
    this.isCutOff = true;
    this.#stop(why);
  }

  #stop(why: string): void {
    this.#url = undefined;
    this.stopReason = why;
  }

  #advance(page: P, link: string | undefined, fresh: ReadonlySet<string>): void {
    this.pagesRead += 1;
    for (const id of fresh) this.#seen.add(id);
    this.#entriesRead += fresh.size;
    const { href } = this.#url ?? this.#options.url;
    this.#total = Math.min(this.#total, page.total ?? Number.POSITIVE_INFINITY);
    const following = this.#following(page, nextOf(page, link), fresh);
    this.#url = following instanceof URL ? following : undefined;
    if (typeof following === 'string') this.stopReason = following;
    this.#place = this.#url === undefined ? undefined : this.#placeAt(href, page);
    if (this.#url === undefined) return;

    const { pagesMax, entriesMax } = this.#options;
    if (this.pagesRead >= pagesMax || this.#seen.size > entriesMax) {
      this.isAtLimit = true;
      this.#stop(`the listing has more than ${this.entries} entries`);
    }
  }

  /** The place behind a page. The first page has none, because its address soon leads to newer entries. */
  #placeAt(address: string, { ids }: P): ListingPlace | undefined {
    const lastId = ids.at(-1);
    const isUsable = this.#hasNamedNext && address !== this.#options.url.href && address.length <= NEXT_CHARS_MAX;
    return isUsable && lastId !== undefined ? { address, lastId, entries: this.entries } : undefined;
  }

  /** The address of the next page, or the reason why it cannot be read. Undefined if this page is the last. */
  #following(page: P, next: NextPage, fresh: ReadonlySet<string>): URL | string | undefined {
    const isLast = next.kind === 'end' || (next.kind === 'unsaid' && this.#isComplete(page));
    if (isLast) return this.#shortage(page);
    if (next.kind === 'address' || next.kind === 'parameter') {
      const isRepetition = this.pagesRead > 1 && fresh.size === 0 && page.entries > 0;
      if (isRepetition) return 'the listing repeats itself';
      this.#hasNamedNext = true;
      const { length } = next.kind === 'parameter' ? next.value : next.address;
      if (length > NEXT_CHARS_MAX) {
        return `the address of the next page has ${length} characters, and at most ${NEXT_CHARS_MAX} are sent`;
      }
      const url = next.kind === 'parameter' ? this.#with(next.name, next.value) : this.#at(next.address);
      if (url === undefined) return 'the next page of the listing is elsewhere';
      return this.#requested.has(url.href) ? 'the listing repeats itself' : url;
    }
    const isUnpageable = (this.#number >= 2 && fresh.size === 0) || (page.entries === 0 && this.#number >= 1);
    if (isUnpageable) return 'the listing cannot be paged through';
    this.#number += 1;
    return this.#with('page', String(this.#number));
  }

  /** Tells whether a page that does not mention a next one is the last. */
  #isComplete({ entries, total }: P): boolean {
    if (this.#hasNamedNext || entries === 0) return true;
    if (total === undefined) return !this.#options.mayBeSilent;
    return Math.max(this.entries, entries) >= total;
  }

  /** Compares the listing with its own count, at its end. Undefined if no entry is missing. */
  #shortage({ entries }: P): string | undefined {
    const listed = Math.max(this.entries, entries);
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

/** Tells whether an address selects its page by a number that the first page's address does not have. */
function hasNumber(url: URL, first: URL): boolean {
  return [...url.searchParams].some(
    ([name, value]) => /^\d+$/.test(value) && !SIZE_PARAMETERS.includes(name) && first.searchParams.get(name) !== value,
  );
}

/** What a page says about the next one, in its body or in its `Link` header. */
function nextOf({ next }: ListingPage, link: string | undefined): NextPage {
  if ((next.kind !== 'unsaid' && next.kind !== 'more') || link === undefined) return next;
  const links = linksIn(link);
  const address = links.get('next');
  if (address !== undefined) return { kind: 'address', address };
  const isAmongPages = ['prev', 'previous', 'first', 'last'].some((relation) => links.has(relation));
  return isAmongPages && next.kind === 'unsaid' ? { kind: 'end' } : next;
}
