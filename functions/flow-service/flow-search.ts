import { isRejection, type Listing } from './flow-listing.ts';
import type { FlowPage } from './schemas.ts';
import type { FlowRecord, FlowTag, Found } from './types.ts';

/** Most pages and flows that one search reads. */
export const FIND_PAGES_MAX = 50;
export const FIND_FLOWS_MAX = 10_000;

/** Largest difference between the service's clock and ours, in milliseconds. */
const SERVICE_CLOCK_SKEW_MS = 5 * 60_000;

/** Time within which the service lists a new flow, in milliseconds. With a slower service, a search may miss a flow. */
export const LISTING_DELAY_MAX_MS = 5 * 60_000;

/** Different times of creation that prove an order. In random order, ten falling ones come once in 3.6 million. */
const ORDER_TIMES_MIN = 10;

/** Flows from before the request that end the reading. A single one may have been moved to its place. */
const PAST_FLOWS_MIN = 5;

/** Assumed lifetime of an ended flow that does not say when it ended, in milliseconds. */
const FLOW_LIFE_MS = 24 * 60 * 60_000;

/** Most readings of a listing that changes meanwhile. A rejected page may be such a change, or a limit of the service. */
const TRIES_MAX = 3;

/** Extra pages of the second reading. New flows move the others down. */
const SECOND_READING_EXTRA_PAGES = 2;

interface Search {
  readonly tag: FlowTag;
  /** When the request in doubt began, in milliseconds since the epoch. */
  readonly since: number;
  /** Tells whether we know a flow that must be listed by now. Called only for an empty listing. */
  readonly isFlowKnown: () => Promise<boolean>;
  /** Starts a new reading of the listing. */
  readonly list: () => Listing<FlowPage>;
}

/**
 * Searches for the flow that carries a tag. A flow that is wrongly called absent is paid for twice, and no error tells.
 * So absence needs four proofs. Without all of them, the result is `unknown`.
 *
 * 1. *Tags are visible.* A listed flow has an `additional`. Otherwise our flow may be listed without its tag.
 * 2. *Ended flows are listed.* A listed flow has ended. Otherwise our flow may have ended and left the listing.
 * 3. *Nothing is left to read.* The end of the listing is known, or the listing is newest first and was read back past
 *    the request ({@link Order}).
 * 4. *Nothing was skipped.* One page is a snapshot. If pages go by number, the deletion of a flow on a page that was
 *    read moves the first flow of the next page to it, unseen. So the listing is read a second time. If every flow of
 *    the first reading is still there, none was deleted meanwhile, and the first reading skipped nothing.
 *
 * An empty listing is a proof as well, because the first flow of a new account can be in doubt. It proves nothing if
 * this process or the ledger knows a flow from more than {@link LISTING_DELAY_MAX_MS} ago. Then it does not show all.
 *
 * The result stays `unknown` in these cases too: the service rejects the listing; the listing cannot be paged through;
 * it exceeds {@link FIND_PAGES_MAX} pages or {@link FIND_FLOWS_MAX} flows in no known order; it has a flow with an
 * unusable id; or it changes during each of {@link TRIES_MAX} readings. A deletion moves flows, or makes the cursor of
 * the next page invalid.
 */
export async function findFlow(search: Search): Promise<Found> {
  for (let tries = 1; ; tries += 1) {
    const seen = new Sightings(search);
    const found = await readListing(search, seen);
    if (found.result !== 'unknown' || !seen.isDisturbed || tries === TRIES_MAX) return found;
  }
}

/** One reading. If its pages go by number, it is two. */
async function readListing({ isFlowKnown, list }: Search, seen: Sightings): Promise<Found> {
  const listing = list();
  try {
    for await (const { page, fresh } of listing.pages()) {
      const flow = seen.add(page, fresh);
      if (flow !== undefined) return { result: 'found', flow };
      if (seen.isPast) break;
    }
    if (listing.seen.size === 0 && (await isFlowKnown()))
      return seen.unproven('the listing is empty although flows may have been made');
    const why = (seen.isPast ? undefined : listing.stopReason) ?? seen.doubt;
    if (why !== undefined) return listing.isCutOff ? seen.disturbed(why) : seen.unproven(why);
    if (!listing.isNumbered) return seen.absent();

    const missing = new Set(listing.seen);
    const again = list();
    for await (const { page, fresh } of again.pages()) {
      const flow = seen.add(page, fresh);
      if (flow !== undefined) return { result: 'found', flow };
      for (const id of page.ids) missing.delete(id);
      if (missing.size === 0) return seen.absent();
      if (again.pagesRead >= listing.pagesRead + SECOND_READING_EXTRA_PAGES) break;
    }
    return seen.disturbed('flows leave the listing while it is read');
  } catch (error) {
    if (!isRejection(error)) throw error;
    return seen.unproven(error.message);
  }
}

/** The flows that a search has seen so far. */
class Sightings {
  /** True if the listing seems to have changed while it was read. Then another reading may prove more. */
  isDisturbed = false;
  readonly #tag: FlowTag;
  readonly #order: Order;
  /** The newest flow with the tag that has failed. Returned only if there is no other. */
  #failed: FlowRecord | undefined;
  #isEmpty = true;
  #hasUnusable = false;
  #showsAdditional = false;
  #showsEnded = false;

  constructor({ tag, since }: Search) {
    this.#tag = tag;
    this.#order = new Order(since - SERVICE_CLOCK_SKEW_MS);
  }

  /** Adds a page. Returns the flow with the tag, if the page has it and it has not failed. */
  add(page: FlowPage, fresh: ReadonlySet<string>): FlowRecord | undefined {
    this.#isEmpty &&= page.entries === 0;
    this.#hasUnusable ||= page.flows.length < page.entries;
    this.#showsAdditional ||= page.showsAdditional;
    for (const flow of page.flows) {
      if (!fresh.has(flow.flowId)) continue;
      this.#order.note(flow);
      this.#showsEnded ||= flow.state !== 'running';
      if (!this.#hasTag(flow)) continue;
      if (flow.state === 'running' || flow.state === 'completed') return flow;
      if ((flow.createdAt ?? 0) >= (this.#failed?.createdAt ?? 0)) this.#failed = flow;
    }
    return undefined;
  }

  /** True if no unread page can have the flow. */
  get isPast(): boolean {
    return this.#order.isPast && this.#showsAdditional;
  }

  /** The reason why the flow may exist although it was not seen. */
  get doubt(): string | undefined {
    if (this.#isEmpty) return undefined;
    if (this.#hasUnusable) return 'the listing has flows whose ids are unusable';
    if (!this.#showsAdditional) return 'the listing shows no additional data of flows, so the tag cannot be seen';
    if (!this.#showsEnded) return 'the listing shows no ended flow, and this one may have ended';
    return undefined;
  }

  /** The result without a proof of absence. */
  unproven(why: string): Found {
    return this.#failed === undefined ? { result: 'unknown', why } : { result: 'found', flow: this.#failed };
  }

  /** The same for a listing that seems to have changed while it was read. */
  disturbed(why: string): Found {
    this.isDisturbed = true;
    return this.unproven(why);
  }

  /** The result with a proof of absence. A failed flow with the tag still counts as found. */
  absent(): Found {
    return this.#failed === undefined ? { result: 'absent' } : { result: 'found', flow: this.#failed };
  }

  #hasTag({ tag }: FlowRecord): boolean {
    const { pipeline, upload, generation } = this.#tag;
    return tag?.pipeline === pipeline && tag.upload === upload && tag.generation === generation;
  }
}

/**
 * Tells whether a listing is newest first and was read back past a time. Then all flows created since were seen. The
 * service does not say how it sorts. Other orders can look the same for a while, so each must be ruled out:
 *
 * - *By id, by name, or none*: every flow has a time of creation, none is newer than the one before, and there are
 *   {@link ORDER_TIMES_MIN} different times. Ties are allowed.
 * - *By last change or by end*: several flows were created, last changed and ended before the time. In this order, a
 *   flow created since would stand above them. A running flow does not count, because it still changes.
 * - *By state*: a state returns after another one, or a running flow stands above an older flow that has ended. In this
 *   order, all flows of one state would come before those of the next.
 *
 * While evidence is missing, more pages are read, up to the end. Two orders cannot be told from newest first, and no
 * service has them as its default. One sorts first by a property that all flows read so far share (one template), and
 * then newest first. The other sorts by a state that puts running flows first and failed ones last, if all flows above
 * are newer.
 */
class Order {
  readonly #horizon: number;
  #isFalling = true;
  #previous = Number.POSITIVE_INFINITY;
  #times = 0;
  #pastFlows = 0;
  #areStatesMixed = false;
  #state: FlowRecord['state'] | undefined;
  readonly #states = new Set<FlowRecord['state']>();

  constructor(horizon: number) {
    this.#horizon = horizon;
  }

  get isPast(): boolean {
    return (
      this.#isFalling &&
      this.#times >= ORDER_TIMES_MIN &&
      this.#pastFlows >= PAST_FLOWS_MIN &&
      this.#areStatesMixed &&
      this.#previous < this.#horizon
    );
  }

  note({ createdAt, changedAt, state }: FlowRecord): void {
    if (createdAt === undefined || createdAt > this.#previous) {
      this.#isFalling = false;
      return;
    }
    if (createdAt < this.#previous) this.#times += 1;
    this.#previous = createdAt;

    const hasEnded = state !== 'running';
    const endedBy = changedAt ?? createdAt + FLOW_LIFE_MS;
    if (hasEnded && Math.max(createdAt, endedBy) < this.#horizon) this.#pastFlows += 1;

    const isBack = state !== this.#state && this.#states.has(state);
    this.#areStatesMixed ||= isBack || (hasEnded && this.#states.has('running'));
    this.#states.add(state);
    this.#state = state;
  }
}
