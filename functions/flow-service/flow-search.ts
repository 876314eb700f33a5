import { FlowServiceError, ThrottledError, UnauthorisedError } from './errors.ts';
import { isRejection, type Listing, type ListingPlace } from './flow-listing.ts';
import { Sightings } from './flow-sightings.ts';
import type { FlowPage } from './schemas.ts';
import type { QueryKind, SearchPlace } from './search-place.ts';
import type { FlowTag, Found } from './types.ts';

/** Maximum number of pages and of flows that one look reads. */
export const FIND_PAGES_MAX = 50;
export const FIND_FLOWS_MAX = 10_000;

/** Time within which the service lists a new flow, in milliseconds. With a slower service, a search may miss a flow. */
export const LISTING_DELAY_MAX_MS = 5 * 60_000;

/**
 * Maximum number of readings of a listing that changes meanwhile. A rejected page may be such a change, or a limit of
 * the service.
 */
const TRIES_MAX = 3;

/** Maximum number of looks of one search. About a minute passes between two looks. */
const LOOKS_MAX = 300;

/** Extra pages of the second reading. New flows move the others down. */
const SECOND_READING_EXTRA_PAGES = 2;

/** A way to ask for the listing of flows. */
export interface Query {
  readonly kind: QueryKind;
  /** The time that the listing is filtered by, in milliseconds since the epoch. */
  readonly filteredSince?: number | undefined;
  /** Starts a reading of the listing, at its first page or where an earlier one stopped. */
  readonly list: (from?: ListingPlace) => Listing<FlowPage>;
}

interface Search {
  readonly tag: FlowTag;
  /** When the request in doubt began, in milliseconds since the epoch. */
  readonly since: number;
  /** When its last byte had been sent, in milliseconds since the epoch. */
  readonly sentBy: number;
  readonly now: () => number;
  /** True if the flow need not be listed yet, so that nothing can prove its absence. */
  readonly isEarly: boolean;
  /** Tells whether we know a flow that must be listed by now. Called only for an empty listing. */
  readonly isFlowKnown: () => Promise<boolean>;
  /** The best way to ask comes first. The last one is the listing as it is. */
  readonly queries: readonly Query[];
  /** The setting that they come from. */
  readonly flowsQuery: string;
  /** Called if the service rejects a query, or a filter does not filter as asked. */
  readonly onUnusable: (kind: QueryKind) => void;
  /** Where the last look stopped. */
  readonly place: SearchPlace | undefined;
  /** Called after each page with the place to go on from. It is undefined if there is none. */
  readonly onPlace: ((place: SearchPlace | undefined) => void) | undefined;
}

/**
 * Searches for the flow that carries a tag. A flow that is wrongly called absent is paid for twice, and no error tells.
 * So absence needs four proofs. Without all of them, the result is `unknown`.
 *
 * 1. *Tags are visible.* A listed flow has an `additional`. Otherwise our flow may be listed without its tag.
 * 2. *Ended flows are listed.* A listed flow has ended. Otherwise our flow may have ended and left the listing.
 * 3. *Nothing is left to read.* The end of the listing is known, or the listing is newest first and was read back past
 *    the request (`Order`).
 * 4. *Nothing was skipped.* One page is a snapshot. If pages go by number, the deletion of a flow on a page that was
 *    read moves the first flow of the next page to it, unseen. So the listing is read a second time. If every flow of
 *    the first reading is still there, none was deleted meanwhile, and the first reading skipped nothing.
 *
 * A filtered listing must also show that its filter means what we think (`Sightings`). Otherwise the search goes on in
 * the listing without a filter.
 *
 * An empty listing is a proof as well, because the first flow of a new account can be in doubt. It proves nothing if
 * this process or the ledger knows a flow from more than {@link LISTING_DELAY_MAX_MS} ago. Then it does not show all.
 *
 * The result is `unfinished` if the listing exceeds {@link FIND_PAGES_MAX} pages or {@link FIND_FLOWS_MAX} flows, goes
 * by cursor and is newest first. The next look goes on there, {@link LOOKS_MAX} times at most.
 *
 * The result stays `unknown` in these cases too: the service rejects the listing; the listing cannot be paged through;
 * it exceeds these limits otherwise; it has a flow with an unusable id; or it changes during each of {@link TRIES_MAX}
 * readings. A deletion moves flows, or makes the cursor of the next page invalid.
 */
export async function findFlow(search: Search): Promise<Found> {
  const { queries, place, flowsQuery } = search;
  // Looks that were cut off count too. Otherwise a search that always runs out of time would never end.
  if (place !== undefined && place.looks >= LOOKS_MAX) {
    return { result: 'unknown', why: `the listing was not read to its end in ${LOOKS_MAX} looks` };
  }
  const isSameQuery = place?.flowsQuery === flowsQuery;
  const known = isSameQuery ? queries.findIndex(({ kind }) => kind === place.kind) : -1;
  let from = known === -1 ? undefined : place;
  let index = Math.max(0, known);
  for (let tries = from?.tries ?? 1; ; ) {
    const reading = new Reading(search, queries[index] as Query, { from, tries });
    const found = await reading.read();
    if (found.result === 'absent' || found.result === 'unfinished' || reading.hasFound) return found;
    from = undefined;
    if (reading.isDisturbed && tries < TRIES_MAX) tries += 1;
    else if (reading.isReplaceable && index < queries.length - 1) [index, tries] = [index + 1, 1];
    else return found;
  }
}

interface ReadingOptions {
  readonly from: SearchPlace | undefined;
  /** The number of this reading. */
  readonly tries: number;
}

/** One reading of the listing, or the rest of one that an earlier look began. */
class Reading {
  /** True if the listing seems to have changed while it was read. Then another reading may prove more. */
  isDisturbed = false;
  /** True if another query may prove more. */
  isReplaceable = false;
  /** True if the result is a flow that has not failed. */
  hasFound = false;
  readonly #search: Search;
  readonly #query: Query;
  readonly #options: ReadingOptions;
  readonly #seen: Sightings;
  #place: SearchPlace | undefined;

  constructor(search: Search, query: Query, options: ReadingOptions) {
    this.#search = search;
    this.#query = query;
    this.#options = options;
    const before = options.from?.evidence;
    this.#seen = new Sightings(search, { filteredSince: query.filteredSince, before });
    if (options.from === undefined) search.onPlace?.(undefined);
  }

  async read(): Promise<Found> {
    const { from } = this.#options;
    const listing = this.#query.list(from && { address: from.address, lastId: from.lastFlow, entries: from.flows });
    try {
      return await readListing(this.#search, this, listing);
    } catch (error) {
      if (!this.#mayFallBack(error, listing)) throw error;
      if (isRejection(error)) this.#search.onUnusable(this.#query.kind);
      return this.markReplaceable((error as Error).message);
    }
  }

  /** Starts a second reading of the same listing. */
  again(): Listing<FlowPage> {
    return this.#query.list();
  }

  /** Takes a page. Returns the result if it is known now. */
  take(listing: Listing<FlowPage>, page: FlowPage, fresh: ReadonlySet<string>): Found | undefined {
    const seen = this.#seen;
    const flow = seen.add(page, fresh);
    if (flow !== undefined) {
      this.hasFound = true;
      return { result: 'found', flow };
    }
    if (seen.isFilterUnusable) {
      this.#search.onUnusable(this.#query.kind);
      return this.markReplaceable('the filter shows flows from before its time');
    }
    if (this.#options.from !== undefined && !seen.isFalling) return seen.unproven('the listing has changed its order');
    this.#place = this.#placeIn(listing);
    this.#search.onPlace?.(this.#place);
    return undefined;
  }

  get seen(): Sightings {
    return this.#seen;
  }

  /** The result without a proof of absence, if nothing more can be read now. */
  stopped(listing: Listing<FlowPage>, why: string): Found {
    if (listing.isAtLimit && this.#place !== undefined) return { result: 'unfinished', flows: listing.entries };
    if (listing.isCutOff) return this.markDisturbed(why);
    const mayOthersProve = this.#query.kind === 'filtered' && !this.#search.isEarly;
    return mayOthersProve ? this.markReplaceable(why) : this.#seen.unproven(why);
  }

  /** The same for a listing that seems to have changed while it was read. */
  markDisturbed(why: string): Found {
    this.isDisturbed = true;
    return this.markReplaceable(why);
  }

  /** The same for a query that another one may replace. */
  markReplaceable(why: string): Found {
    this.isReplaceable = this.#query.kind !== 'plain';
    return this.#seen.unproven(why);
  }

  #placeIn({ place }: Listing<FlowPage>): SearchPlace | undefined {
    const { evidence } = this.#seen;
    const looks = (this.#search.place?.looks ?? 0) + 1;
    if (this.#search.isEarly || this.#search.onPlace === undefined) return undefined;
    if (place === undefined || evidence === undefined) return undefined;
    const { address, lastId: lastFlow, entries: flows } = place;
    const { tries } = this.#options;
    const { now, flowsQuery } = this.#search;
    const { kind } = this.#query;
    return { kind, flowsQuery, address, lastFlow, flows, readAt: now(), looks, tries, evidence };
  }

  /** Tells whether the service may have failed because of the query. */
  #mayFallBack(error: unknown, { pagesRead }: Listing<FlowPage>): boolean {
    if (isRejection(error)) return true;
    const isPassing = error instanceof UnauthorisedError || error instanceof ThrottledError;
    const isFirst = pagesRead === 0 && this.#options.from === undefined;
    return isFirst && this.#query.kind !== 'plain' && error instanceof FlowServiceError && !isPassing;
  }
}

/** Reads a listing. If its pages go by number, it is read twice. */
async function readListing({ isFlowKnown }: Search, reading: Reading, listing: Listing<FlowPage>): Promise<Found> {
  const { seen } = reading;
  for await (const { page, fresh } of listing.pages()) {
    const found = reading.take(listing, page, fresh);
    if (found !== undefined) return found;
    if (seen.isPast) break;
  }
  if (listing.entries === 0 && (await isFlowKnown())) {
    return reading.stopped(listing, 'the listing is empty although flows may have been made');
  }
  const why = (seen.isPast ? undefined : listing.stopReason) ?? seen.doubt;
  if (why !== undefined) return reading.stopped(listing, why);
  if (!listing.isNumbered) return seen.absent();

  const missing = new Set(listing.seen);
  const again = reading.again();
  for await (const { page, fresh } of again.pages()) {
    const found = reading.take(again, page, fresh);
    if (found !== undefined) return found;
    for (const id of page.ids) missing.delete(id);
    if (missing.size === 0) return seen.absent();
    if (again.pagesRead >= listing.pagesRead + SECOND_READING_EXTRA_PAGES) break;
  }
  return reading.markDisturbed('flows leave the listing while it is read');
}
