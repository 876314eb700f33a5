import { NotFoundError, NotServedError, RejectedError } from './errors.ts';
import { linksIn } from './link-header.ts';

/** How a listing says what comes next: as an address or path, as a cursor with the parameter that takes it, or not. */
export type NextPage =
  | { readonly kind: 'address'; readonly address: string }
  | { readonly kind: 'parameter'; readonly name: string; readonly value: string }
  /** It speaks of a next page and says that there is none. */
  | { readonly kind: 'end' }
  /** It says that there is a next page, and not where. */
  | { readonly kind: 'more' }
  /** It does not speak of it. */
  | { readonly kind: 'unsaid' };

/** What a page of any listing must tell, so that the next one can be found. */
export interface ListingPage {
  /** The ids that it lists. */
  readonly ids: readonly string[];
  /** How many entries it lists, with those that have no usable id. */
  readonly entries: number;
  /** How many entries all pages together have, where it says. */
  readonly total: number | undefined;
  readonly next: NextPage;
}

export interface ListingOptions<P> {
  /** The first page. All others are on its origin, and below `base`. */
  readonly url: URL;
  /** The base address of the service, without a slash at its end. */
  readonly base: string;
  /** Reads one page, with its `Link` header. */
  readonly read: (url: URL) => Promise<{ readonly page: P; readonly link: string | undefined }>;
  readonly pagesMax: number;
  readonly entriesMax: number;
  /** Whether a page that says nothing of others may have them all the same, so that `?page=` is tried. */
  readonly mayBeSilent: boolean;
}

/**
 * Reads a listing page by page. Nobody has specified how the service's listings are cut into pages.
 *
 * A page names the next by an address, a path, a cursor or a number, in its body or in its `Link` header. The token goes
 * with every request, so an address is followed only on the same origin and below the base path.
 *
 * A page that says nothing of a next one may still be the first of many. Then `?page=` is tried: 1 first, because a
 * service that counts from 0 has its second page there. A service that ignores the parameter repeats itself.
 *
 * The end is known if a page says so, if the pages stop naming a next one, if a page is empty, or if as many entries
 * were seen as the listing counts. In all other cases `stuck` says why reading stopped.
 */
export class Listing<P extends ListingPage> {
  /** Why there may be more than was read. Undefined: the end is known, or was not yet reached. */
  stuck: string | undefined;
  /** Whether pages were asked for by number or offset. Then a deletion moves entries to pages already read. */
  isNumbered = false;
  pagesRead = 0;
  readonly #options: ListingOptions<P>;
  readonly #seen = new Set<string>();
  readonly #asked = new Set<string>();
  /** The page to read next. Undefined: there is none. */
  #url: URL | undefined;
  /** The number last tried. */
  #number = 0;
  #hasNamedNext = false;
  /** The fewest entries that a page counted: those made meanwhile come on top of the pages that were read. */
  #total = Number.POSITIVE_INFINITY;

  constructor(options: ListingOptions<P>) {
    this.#options = options;
    this.#url = options.url;
  }

  get seen(): ReadonlySet<string> {
    return this.#seen;
  }

  /** The pages. Each is requested when it is asked for, and `fresh` holds the ids that no page before it had. */
  async *pages(): AsyncGenerator<{ readonly page: P; readonly fresh: ReadonlySet<string> }, void> {
    while (this.#url !== undefined) {
      this.#asked.add(this.#url.href);
      this.isNumbered ||= hasNumber(this.#url, this.#options.url);
      const answer = await this.#read(this.#url);
      if (answer === undefined) return;
      const { page, link } = answer;
      const fresh = new Set(page.ids).difference(this.#seen);
      this.#turn(page, link, fresh);
      yield { page, fresh };
    }
  }

  /** @throws whatever reading the first page throws. The refusal of a later one says only that it cannot be had. */
  async #read(url: URL): Promise<Awaited<ReturnType<ListingOptions<P>['read']>> | undefined> {
    try {
      return await this.#options.read(url);
    } catch (error) {
      if (this.pagesRead === 0 || !isRefusal(error)) throw error;
      this.#stop(error.message);
      return undefined;
    }
  }

  #stop(why: string): void {
    this.#url = undefined;
    this.stuck = why;
  }

  #turn(page: P, link: string | undefined, fresh: ReadonlySet<string>): void {
    this.pagesRead += 1;
    for (const id of fresh) this.#seen.add(id);
    this.#total = Math.min(this.#total, page.total ?? Number.POSITIVE_INFINITY);
    const following = this.#following(page, nextOf(page, link), fresh);
    this.#url = following instanceof URL ? following : undefined;
    if (typeof following === 'string') this.stuck = following;
    if (this.#url === undefined) return;

    const { pagesMax, entriesMax } = this.#options;
    if (this.pagesRead >= pagesMax || this.#seen.size > entriesMax) {
      this.#stop(`the listing has more than ${this.#seen.size} entries`);
    }
  }

  /** The address of the page that follows, or why it cannot be had. Undefined: this page is the last. */
  #following(page: P, next: NextPage, fresh: ReadonlySet<string>): URL | string | undefined {
    const isLast = next.kind === 'end' || (next.kind === 'unsaid' && this.#isComplete(page));
    if (isLast) return this.#shortage(page);
    if (next.kind === 'address' || next.kind === 'parameter') {
      const isRepetition = this.pagesRead > 1 && fresh.size === 0 && page.entries > 0;
      if (isRepetition) return 'the listing repeats itself';
      this.#hasNamedNext = true;
      const url = next.kind === 'parameter' ? this.#with(next.name, next.value) : this.#at(next.address);
      if (url === undefined) return 'the next page of the listing is elsewhere';
      return this.#asked.has(url.href) ? 'the listing repeats itself' : url;
    }
    const isInVain = (this.#number >= 2 && fresh.size === 0) || (page.entries === 0 && this.#number >= 1);
    if (isInVain) return 'the listing cannot be paged through';
    this.#number += 1;
    return this.#with('page', String(this.#number));
  }

  /** Whether a page that says nothing of a next one is the last. */
  #isComplete({ entries, total }: P): boolean {
    if (this.#hasNamedNext || entries === 0) return true;
    if (total === undefined) return !this.#options.mayBeSilent;
    return Math.max(this.#seen.size, entries) >= total;
  }

  /** At the end of a listing: says how many entries it lacks by its own count, or nothing if it is whole. */
  #shortage({ entries }: P): string | undefined {
    const listed = Math.max(this.#seen.size, entries);
    if (this.#total === Number.POSITIVE_INFINITY || listed >= this.#total) return undefined;
    return `the listing counts ${this.#total} entries and shows ${listed}`;
  }

  #with(name: string, value: string): URL {
    const url = new URL(this.#options.url);
    url.searchParams.set(name, value);
    return url;
  }

  /** An address that the listing names, if the token may be sent there. */
  #at(address: string): URL | undefined {
    const url = URL.parse(address, this.#url?.href ?? this.#options.url.href);
    return url?.href.startsWith(`${this.#options.base}/`) ? url : undefined;
  }
}

/** Whether the service answered that it does not serve this page or listing, as it will the next time. */
export const isRefusal = (error: unknown): error is NotFoundError | NotServedError | RejectedError =>
  error instanceof NotFoundError || error instanceof NotServedError || error instanceof RejectedError;

/** Parameters that say how large a page is, and not which. */
const SIZE_PARAMETERS: readonly string[] = ['limit', 'size', 'count', 'page_size', 'per_page'];

/** Whether an address picks its page by a number that the first page's address does not have. */
function hasNumber(url: URL, first: URL): boolean {
  return [...url.searchParams].some(
    ([name, value]) => /^\d+$/.test(value) && !SIZE_PARAMETERS.includes(name) && first.searchParams.get(name) !== value,
  );
}

/** What a page says of the next, in its body or in its `Link` header. */
function nextOf({ next }: ListingPage, link: string | undefined): NextPage {
  if ((next.kind !== 'unsaid' && next.kind !== 'more') || link === undefined) return next;
  const links = linksIn(link);
  const address = links.get('next');
  if (address !== undefined) return { kind: 'address', address };
  const isAmongPages = ['prev', 'previous', 'first', 'last'].some((relation) => links.has(relation));
  return isAmongPages && next.kind === 'unsaid' ? { kind: 'end' } : next;
}
