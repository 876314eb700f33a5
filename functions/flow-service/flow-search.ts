import { isDeepStrictEqual } from 'node:util';
import { CLOCK_SKEW_MAX_MS } from '../base/clock.ts';
import type { FlowPage } from './answers.ts';
import { isRejection, type Listing, type ReadPage } from './flow-listing.ts';
import { ANSWER_SECONDS, type ServiceDescription } from './service-description.ts';
import type { FlowRecord, Found, Sought } from './types.ts';

/** Maximum number of pages and of flows of the listing that are read. A longer listing proves nothing. */
export const FIND_PAGES_MAX = 50;
export const FIND_FLOWS_MAX = 10_000;

/** Time within which the service lists a new flow, in milliseconds. With a slower service, a search may miss a flow. */
export const LISTING_DELAY_MAX_MS = 5 * 60_000;

/**
 * Time from the last byte of a creation until its flow must be listed, in milliseconds. A gateway may break the connection
 * while the service still takes its time to make the flow: with `answerSeconds` of 600, that is 20 minutes.
 */
export const listedWithinMs = ({ create: { answerSeconds = ANSWER_SECONDS } }: ServiceDescription): number =>
  Math.max(LISTING_DELAY_MAX_MS, 2 * answerSeconds * 1000);

/**
 * Time within which files are taken to be put together, in milliseconds. They are claimed one after the other, so flows
 * from as long before a claim must be listed too.
 */
export const PUT_TOGETHER_MS = 60_000;

/** How much newer than one above it a flow may be, in milliseconds: an order by id may know whole seconds only. */
const ORDER_MARGIN_MS = 1_000;

/** How often the listing is read, at most, while flows leave it or move in it. */
const READINGS_MAX = 4;

interface Search {
  readonly sought: readonly Sought[];
  /** True if the listing is declared as newest first. Then it is read back past the requests, and no further. */
  readonly isNewestFirst: boolean;
  /** Starts to read the listing, at its first page. */
  readonly list: () => Listing<FlowPage>;
  /** Tells whether we know a flow that must be listed by now. Called only if the listing shows none of Flowdrop. */
  readonly isFlowKnown: () => Promise<boolean>;
  /** The ids of flows that we know, that were made since a time, and that must be listed by now. */
  readonly madeSince: (since: number) => Promise<readonly string[]>;
}

/** The best flow so far of each that is sought. */
type FlowsFound = Map<Sought, FlowRecord>;

type Unfound = Exclude<Found, { readonly result: 'found' }>;

/** What the listing showed when it was read once. */
interface Listed {
  /** True if it shows a flow of Flowdrop, and so keeps the tag. */
  readonly showsOurs: boolean;
  readonly pages: number;
  /** The flows in the order of the listing. If it is newest first, only those that are as new as the requests. */
  readonly ids: readonly string[];
  /** Why a flow may exist although it was not seen. */
  readonly doubt: string | undefined;
  /** True if reading again may remove the doubt. */
  readonly mayPass: boolean;
}

/**
 * Searches the listing for flows by their tags. A flow that is wrongly called absent is paid for twice, and no error
 * tells. So absence needs three proofs. Without one of them, the result is `unknown`.
 *
 * 1. *All was read*: to the known end of the listing or, if it is newest first, back past the requests.
 * 2. *Nothing was skipped.* One page is a snapshot. Between two pages, a flow may be deleted or move. The flows behind
 *    it move up then, and one of them to a page that was read already. So the listing is read twice, and must show the
 *    same flows in the same order both times. Only new flows may be added.
 * 3. *Tags are shown, and so are ended flows.* At least one listed flow shows each, and none has a tag that cannot be read.
 *    All flows that we know from the time of the request are listed. A replica may know only the flows that it has made, and
 *    a service may list flows late, only the first hundred, or for some minutes after their end.
 *
 * A listing without any flow of Flowdrop is a proof as well, because the first flow of a new account can be in doubt. It
 * proves nothing if this process or the ledger knows a flow from more than {@link LISTING_DELAY_MAX_MS} ago: then the
 * service may drop the tag, put it elsewhere, or list only some flows.
 *
 * @throws any error of the service, unless it rejects the listing.
 */
export async function findFlows(search: Search): Promise<readonly Found[]> {
  const found: FlowsFound = new Map();
  const unfound = await readTwice(search, found);
  return search.sought.map((each) => {
    const flow = found.get(each);
    if (flow !== undefined) return { result: 'found', flow };
    return each.mayBeAbsent ? unfound : { result: 'unknown', why: 'the flow need not be listed yet' };
  });
}

/** Reads the listing twice, or as often as it takes. Returns the result for the flows that were not found. */
async function readTwice(search: Search, found: FlowsFound): Promise<Unfound> {
  let before: Listed | undefined;
  let why: string | undefined;
  for (let times = 0; times < READINGS_MAX; times += 1) {
    let listed: Listed;
    try {
      listed = await readOnce(search, found);
    } catch (error) {
      if (!isRejection(error)) throw error;
      return { result: 'unknown', why: error.message };
    }
    const { doubt, mayPass, showsOurs, pages } = listed;
    if (doubt !== undefined && !mayPass) return { result: 'unknown', why: doubt };
    if (areAllFound(search, found) || !needsProof(search)) break;
    if (!showsOurs && (await search.isFlowKnown())) {
      return { result: 'unknown', why: 'the listing shows no flow of Flowdrop although some may have been made' };
    }
    if (doubt === undefined && (pages === 1 || isShownAgain(before, listed)))
      return absentUnlessLacking(search, listed);
    before = doubt === undefined ? listed : undefined;
    why = doubt;
  }
  return { result: 'unknown', why: why ?? 'flows leave the listing, or move in it, while it is read' };
}

/** Absence, unless the listing lacks a flow that it must show if it shows the one that is sought. */
async function absentUnlessLacking({ sought, madeSince }: Search, { ids }: Listed): Promise<Unfound> {
  const made = await madeSince(Math.min(...sought.map(({ since }) => since)));
  if (made.every((id) => ids.includes(id))) return { result: 'absent' };
  return { result: 'unknown', why: 'the listing lacks a known flow of the same minutes', mayPass: true };
}

async function readOnce(search: Search, found: FlowsFound): Promise<Listed> {
  const { sought, isNewestFirst, list } = search;
  const since = Math.min(...sought.map((each) => each.since)) - PUT_TOGETHER_MS - CLOCK_SKEW_MAX_MS;
  const horizon = isNewestFirst ? since : Number.NEGATIVE_INFINITY;
  const ids: string[] = [];
  const idsAdded: string[] = [];
  let [entries, usable] = [0, 0];
  let [showsTags, showsOurs, showsEnded, isPast, isUnread] = [false, false, false, false, false];
  const order = new ListingOrder();
  const listing = list();
  for await (const read of listing.pages()) {
    const { page, added } = read;
    entries += page.entries;
    usable += page.items.length;
    showsTags ||= page.showsAdditional;
    showsOurs ||= page.items.some(({ tag }) => tag !== undefined);
    for (const flow of order.read(read)) {
      const { flowId, state, createdAt = Number.POSITIVE_INFINITY } = flow;
      note(flow, sought, found);
      showsEnded ||= state !== 'running';
      if (createdAt < horizon) continue;
      isUnread ||= flow.isTagUnread === true;
      (added.has(flowId) ? idsAdded : ids).push(flowId);
    }
    isPast = order.isFalling && order.oldest < horizon && showsTags && showsEnded;
    if (isPast && !showsOurs && needsProof(search)) isPast = !(await search.isFlowKnown());
    if (isPast || areAllFound(search, found)) break;
  }
  let doubt = isPast ? undefined : listing.stopReason;
  if (isNewestFirst && !order.isFalling) doubt ??= 'the listing is not newest first, although the settings say so';
  if (listing.isCached) doubt ??= 'a cache has answered for the listing, so it may be old';
  if (usable < entries) doubt ??= 'the listing has flows whose ids are unusable';
  if (!showsTags && entries > 0) doubt ??= 'the listing shows no additional data of flows, so the tag cannot be seen';
  if (isUnread) doubt ??= 'the listing has a flow whose additional data cannot be read, and may hold the tag';
  if (!showsEnded && entries > 0) doubt ??= 'the listing shows no ended flow, and this one may have ended';
  return {
    showsOurs,
    pages: listing.pagesRead,
    ids: [...idsAdded, ...ids],
    doubt,
    // If new flows fill a whole page, an older page that is read after it looks newer than the one before.
    mayPass: listing.mayPass || (isNewestFirst && !order.isFalling),
  };
}

/** Follows how a listing is sorted while its pages are read. */
export class ListingOrder {
  /** True while no flow is newer than one above it. */
  isFalling = true;
  /** When the oldest flow was made, in milliseconds since the epoch, of those that stood there from the beginning. */
  oldest = Number.POSITIVE_INFINITY;

  /** @returns the flows that no earlier page had. */
  read({ page, added, freshItems }: ReadPage<FlowPage>): readonly FlowRecord[] {
    let above = Number.POSITIVE_INFINITY;
    for (const flow of page.items) above = this.#below(flow, above);
    for (const flow of freshItems) {
      // Only flows that stood there from the beginning show how the listing is sorted, and how far back it was read.
      if (!added.has(flow.flowId)) this.oldest = this.#below(flow, this.oldest);
    }
    return freshItems;
  }

  /** @returns when the older of the flow and those above it was made. */
  #below({ createdAt = Number.POSITIVE_INFINITY }: FlowRecord, above: number): number {
    this.isFalling &&= createdAt <= above + ORDER_MARGIN_MS;
    return Math.min(above, createdAt);
  }
}

/** Keeps a flow that carries a tag. One that has not failed is the best, and then the newest of those that have. */
function note(flow: FlowRecord, sought: readonly Sought[], found: FlowsFound): void {
  const { tag, createdAt = 0 } = flow;
  const each = tag && sought.find((one) => isDeepStrictEqual(one.tag, tag));
  if (each === undefined) return;
  const known = found.get(each);
  if (isAlive(flow) || (!isAlive(known) && createdAt >= (known?.createdAt ?? 0))) found.set(each, flow);
}

const isAlive = (flow: FlowRecord | undefined): boolean => flow?.state === 'running' || flow?.state === 'completed';

const needsProof = ({ sought }: Search): boolean => sought.some(({ mayBeAbsent }) => mayBeAbsent);

const areAllFound = ({ sought }: Search, found: FlowsFound): boolean =>
  sought.every((each) => isAlive(found.get(each)));

/** True if all flows that were listed before are listed again, in the same order. */
function isShownAgain(before: Listed | undefined, { ids }: Listed): boolean {
  if (before === undefined) return false;
  const known = new Set(before.ids);
  return isDeepStrictEqual(
    ids.filter((id) => known.has(id)),
    before.ids,
  );
}

interface Batch {
  readonly sought: Sought[];
  readonly found: Promise<readonly Found[]>;
}

/**
 * The searches of one invocation, one at a time. Doubts that arise while a search runs share the next one, so the
 * listing is not read for each.
 */
export class SharedSearch {
  readonly #find: (sought: readonly Sought[]) => Promise<readonly Found[]>;
  /** The search that has not begun. */
  #next: Batch | undefined;
  #last: Promise<unknown> = Promise.resolve();

  constructor(find: (sought: readonly Sought[]) => Promise<readonly Found[]>) {
    this.#find = find;
  }

  /** @throws any error of the search, to all who share it. */
  async find(sought: Sought): Promise<Found> {
    this.#next ??= this.#begin();
    const { sought: all, found } = this.#next;
    const index = all.push(sought) - 1;
    return (await found)[index] as Found;
  }

  #begin(): Batch {
    const sought: Sought[] = [];
    const found = this.#last.then(() => {
      this.#next = undefined;
      return this.#find(sought);
    });
    this.#last = found.catch(() => undefined);
    return { sought, found };
  }
}
