import { isRefusal, type Listing } from './flow-listing.ts';
import type { FlowPage } from './schemas.ts';
import type { FlowRecord, FlowTag, Found } from './types.ts';

/** Pages and flows of a listing that are read in one search. */
export const FIND_PAGES_MAX = 50;
export const FIND_FLOWS_MAX = 10_000;

/** How far the service's clock and ours may be apart, in milliseconds. */
export const CLOCK_SKEW_MS = 5 * 60_000;

/** Time within which a new flow must be listed, in milliseconds. Nothing is promised for a service that takes longer. */
export const LISTING_DELAY_MAX_MS = 5 * 60_000;

/** Different times of creation that show an order. Flows in a random order show ten falling ones once in 3.6 million. */
const ORDER_TIMES_MIN = 10;

/** Flows from before the request that are seen before reading stops. One alone may have been moved to its place. */
const PAST_FLOWS_MIN = 5;

/** Time after which a flow is taken to have ended if it has ended and does not say when, in milliseconds. */
const FLOW_LIFE_MS = 24 * 60 * 60_000;

/** Pages that a second reading may have more than the first: new flows move the others down. */
const SECOND_LOOK_PAGES = 2;

export interface Search {
  readonly tag: FlowTag;
  /** When the request in doubt began, in milliseconds since the epoch. */
  readonly since: number;
  /** Whether a flow is known that must be listed by now. It is asked only about an empty listing. */
  readonly isFlowKnown: () => Promise<boolean>;
  /** Begins to read the listing. */
  readonly list: () => Listing<FlowPage>;
}

/**
 * Looks for the flow that bears a tag. A flow that is wrongly called absent is paid for twice, and nobody is told. So
 * absence needs four proofs, and without one of them it is unknown whether there is a flow.
 *
 * 1. *Marks can be seen.* A listed flow bears an `additional`. Otherwise ours may be there and not be recognised.
 * 2. *Ended flows are listed.* One of those seen has ended. Otherwise ours may have ended and left the listing.
 * 3. *Nothing is left to read.* The end of the listing is known, or the listing is newest first and was read back past
 *    the request ({@link Order}).
 * 4. *Nothing was skipped.* One page is a snapshot. If pages go by number, the deletion of a flow on a page that was
 *    read moves the first flow of the next page to it, unseen. So the listing is read a second time. If every flow of
 *    the first reading is still there, none was deleted meanwhile, and the first reading skipped nothing.
 *
 * An empty listing is proof as well, because the first flow of a new account can be in doubt. It is none if this process
 * heard of a flow, or the ledger has one, from more than {@link LISTING_DELAY_MAX_MS} ago: then it does not show all.
 *
 * It stays unknown if the listing is refused or cannot be paged through, is longer than {@link FIND_PAGES_MAX} pages or
 * {@link FIND_FLOWS_MAX} flows and in no order that is understood, has a flow of an unusable id, shows no `additional`
 * or no ended flow, or loses flows while it is read.
 */
export async function findFlow(search: Search): Promise<Found> {
  const { isFlowKnown, list } = search;
  const seen = new Sightings(search);
  const listing = list();
  try {
    for await (const { page, fresh } of listing.pages()) {
      const flow = seen.take(page, fresh);
      if (flow !== undefined) return { result: 'found', flow };
      if (seen.isPast) break;
    }
    if (listing.seen.size === 0 && (await isFlowKnown()))
      return seen.without('the listing is empty although flows were made');
    const why = (seen.isPast ? undefined : listing.stuck) ?? seen.doubt;
    if (why !== undefined) return seen.without(why);
    if (!listing.isNumbered) return seen.none();

    const missing = new Set(listing.seen);
    const again = list();
    for await (const { page, fresh } of again.pages()) {
      const flow = seen.take(page, fresh);
      if (flow !== undefined) return { result: 'found', flow };
      for (const id of page.ids) missing.delete(id);
      if (missing.size === 0) return seen.none();
      if (again.pagesRead >= listing.pagesRead + SECOND_LOOK_PAGES) break;
    }
    return seen.without('flows leave the listing while it is read');
  } catch (error) {
    if (!isRefusal(error)) throw error;
    return seen.without(error.message);
  }
}

/** What a search has seen so far. */
class Sightings {
  readonly #tag: FlowTag;
  readonly #order: Order;
  /** The newest that bears the tag and has failed: taken only if there is no other. */
  #failed: FlowRecord | undefined;
  #isEmpty = true;
  #hasUnusable = false;
  #showsAdditional = false;
  #showsEnded = false;

  constructor({ tag, since }: Search) {
    this.#tag = tag;
    this.#order = new Order(since - CLOCK_SKEW_MS);
  }

  /** Takes in a page. Returns the flow that is looked for, if it is there and has not failed. */
  take(page: FlowPage, fresh: ReadonlySet<string>): FlowRecord | undefined {
    this.#isEmpty &&= page.entries === 0;
    this.#hasUnusable ||= page.flows.length < page.entries;
    this.#showsAdditional ||= page.showsAdditional;
    for (const flow of page.flows) {
      if (!fresh.has(flow.flowId)) continue;
      this.#order.note(flow);
      this.#showsEnded ||= flow.state !== 'running';
      if (!this.#bearsTag(flow)) continue;
      if (flow.state === 'running' || flow.state === 'completed') return flow;
      if ((flow.createdAt ?? 0) >= (this.#failed?.createdAt ?? 0)) this.#failed = flow;
    }
    return undefined;
  }

  /** Whether nothing that is left to read can be the flow that is looked for. */
  get isPast(): boolean {
    return this.#order.isPast && this.#showsAdditional;
  }

  /** Why the flow may be there although it was not seen. */
  get doubt(): string | undefined {
    if (this.#isEmpty) return undefined;
    if (this.#hasUnusable) return 'the listing has flows whose ids are unusable';
    if (!this.#showsAdditional) return 'the listing shows no additional data of flows, so the tag cannot be seen';
    if (!this.#showsEnded) return 'the listing shows no ended flow, and this one may have ended';
    return undefined;
  }

  without(why: string): Found {
    return this.#failed === undefined ? { result: 'unknown', why } : { result: 'found', flow: this.#failed };
  }

  none(): Found {
    return this.#failed === undefined ? { result: 'absent' } : { result: 'found', flow: this.#failed };
  }

  #bearsTag({ tag }: FlowRecord): boolean {
    const { pipeline, upload, generation } = this.#tag;
    return tag?.pipeline === pipeline && tag.upload === upload && tag.generation === generation;
  }
}

/**
 * Tells whether a listing is newest first and was read back past a time, so that all flows created since were seen. The
 * service does not say how it sorts. Other orders can look the same for a while, and each must be ruled out:
 *
 * - *By id, by name, or none*: every flow has a time of creation, none is newer than the one before, and there are
 *   {@link ORDER_TIMES_MIN} different ones. Ties are allowed.
 * - *By last change or by end*: several flows were created, last changed and ended before the time. By last change, a
 *   flow created since would stand above them. A flow that is still running does not count, for it changes.
 * - *By state*: a state comes again after another, or a running flow stands above an ended one that is older. Sorted by
 *   state, the flows of all other states would come after all those of one state.
 *
 * Where evidence is missing, more pages are read, up to the end. Two orders cannot be told from newest first, and are
 * no service's default: first by something in which all flows that were read agree (one template), and then newest first;
 * and by a state that sorts running flows first and failed ones last, if all flows above are newer.
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
