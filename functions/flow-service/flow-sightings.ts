import { CLOCK_SKEW_MAX_MS } from '../base/clock.ts';
import type { FlowPage } from './schemas.ts';
import { type Evidence, NOTHING_SEEN } from './search-place.ts';
import type { FlowRecord, FlowTag, Found } from './types.ts';

/**
 * How much earlier a filter begins than the flow in doubt can have been created, in milliseconds. A flow from this time
 * shows that the filter does not begin too late. A flow from as long after the last byte shows that it does not end too
 * early.
 */
export const FILTER_MARGIN_MS = 60_000;

/** How much earlier than asked a filter may begin, in milliseconds. Some services compare whole seconds. */
const FILTER_ROUNDING_MS = 1_000;

/** Different times of creation that prove an order. In random order, ten falling ones come once in 3.6 million. */
const ORDER_TIMES_MIN = 10;

/** Flows from before the request that end the reading. A single one may have been moved to its place. */
const PAST_FLOWS_MIN = 5;

/** Flows that changed and ended later than one above them, which prove that the order is not by change or end. */
const SWAPS_MIN = 3;

/**
 * Minimum difference for such a swap, in milliseconds. The time that a service shows may differ a little from the one
 * it sorts by.
 */
const SWAP_MS = 2_000;

/** Assumed lifetime of an ended flow that does not say when it ended, in milliseconds. */
const FLOW_LIFE_MS = 24 * 60 * 60_000;

interface Sought {
  readonly tag: FlowTag;
  /** When the request in doubt began, and when its last byte had been sent, in milliseconds since the epoch. */
  readonly since: number;
  readonly sentBy: number;
}

interface SightingsOptions {
  /** The time that the listing was filtered by. Undefined if it was not filtered. */
  readonly filteredSince: number | undefined;
  /** What earlier looks of the same reading have seen. */
  readonly before: Evidence | undefined;
}

/** The flows that one reading of the listing has seen so far, and what they show about the listing. */
export class Sightings {
  /** True if a flow shows that the filter is not by time of creation, or begins earlier than asked. */
  isFilterUnusable = false;
  readonly #tag: FlowTag;
  readonly #horizon: number;
  readonly #afterwards: number;
  readonly #filteredSince: number | undefined;
  readonly #seen: Evidence;
  readonly #order: Order;
  #isEmpty: boolean;
  #failed: FlowRecord | undefined;

  constructor({ tag, since, sentBy }: Sought, { filteredSince, before }: SightingsOptions) {
    this.#tag = tag;
    this.#horizon = since - CLOCK_SKEW_MAX_MS;
    this.#afterwards = Math.max(since, sentBy) + FILTER_MARGIN_MS;
    this.#filteredSince = filteredSince;
    this.#seen = { ...(before ?? NOTHING_SEEN) };
    this.#order = new Order(this.#seen, this.#horizon);
    this.#isEmpty = before === undefined;
    this.#failed = this.#seen.failed && { ...this.#seen.failed, state: 'failed' };
  }

  /** Adds a page. Returns the flow with the tag, if the page has it and it has not failed. */
  add(page: FlowPage, fresh: ReadonlySet<string>): FlowRecord | undefined {
    const seen = this.#seen;
    this.#isEmpty &&= page.entries === 0;
    seen.hasUnusable ||= page.flows.length < page.entries;
    seen.showsAdditional ||= page.showsAdditional;
    const flows = page.flows.filter(({ flowId }) => fresh.has(flowId));
    this.#order.addPage(flows);
    for (const flow of flows) {
      this.#noteTime(flow);
      seen.showsEnded ||= flow.state !== 'running';
      seen.showsRunning ||= flow.state === 'running';
      if (!this.#hasTag(flow)) continue;
      if (flow.state === 'running' || flow.state === 'completed') return flow;
      if ((flow.createdAt ?? 0) >= (this.#failed?.createdAt ?? 0)) this.#failed = flow;
    }
    return undefined;
  }

  /** True if no unread page can have the flow. A filtered listing is read to its end. */
  get isPast(): boolean {
    return this.#filteredSince === undefined && this.#order.isPast && this.#seen.showsAdditional;
  }

  /** True if no flow was newer than the one above it. */
  get isFalling(): boolean {
    return this.#seen.isFalling;
  }

  /** What a later look needs to go on. Undefined if it could not rely on the order. */
  get evidence(): Evidence | undefined {
    if (!this.#order.isLasting) return undefined;
    const { flowId, createdAt } = this.#failed ?? {};
    return {
      ...this.#seen,
      states: [...this.#seen.states],
      failed: flowId === undefined ? undefined : { flowId, createdAt },
    };
  }

  /** The reason why the flow may exist although it was not seen. */
  get doubt(): string | undefined {
    const seen = this.#seen;
    if (this.#filteredSince !== undefined && !this.#isFilterShown) {
      return 'the listing does not show that it can be filtered by time of creation';
    }
    if (this.#isEmpty) return undefined;
    if (seen.hasUnusable) return 'the listing has flows whose ids are unusable';
    if (!seen.showsAdditional) return 'the listing shows no additional data of flows, so the tag cannot be seen';
    if (!seen.showsEnded) return 'the listing shows no ended flow, and this one may have ended';
    return undefined;
  }

  /** The result without a proof of absence. */
  unproven(why: string): Found {
    return this.#failed === undefined ? { result: 'unknown', why } : { result: 'found', flow: this.#failed };
  }

  /** The result with a proof of absence. A failed flow with the tag still counts as found. */
  absent(): Found {
    return this.#failed === undefined ? { result: 'absent' } : { result: 'found', flow: this.#failed };
  }

  /**
   * True if the filter surely shows every flow that was created when the one in doubt can have been. A filter by time
   * of creation that shows a flow from before and one from after shows all between, wherever it begins and ends. It is
   * not by another time, because it shows no older flow and also shows running ones.
   */
  get #isFilterShown(): boolean {
    const { showsBefore, showsAfter, showsRunning } = this.#seen;
    return showsBefore && showsAfter && showsRunning && !this.isFilterUnusable;
  }

  #noteTime({ createdAt }: FlowRecord): void {
    if (this.#filteredSince === undefined) return;
    if (createdAt === undefined || createdAt < this.#filteredSince - FILTER_ROUNDING_MS) {
      this.isFilterUnusable = true;
      return;
    }
    this.#seen.showsBefore ||= createdAt < this.#horizon;
    this.#seen.showsAfter ||= createdAt >= this.#afterwards;
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
 * - *By last change or by end*: several flows were created, last changed and ended before the time. In such an order, a
 *   newer flow would be listed above them. A running flow does not count, because it still changes.
 * - *By state*: a state returns after another one, or a running flow stands above an older flow that has ended. In this
 *   order, all flows of one state would come before those of the next.
 *
 * While evidence is missing, more pages are read, up to the end. Two orders cannot be told from newest first, and no
 * service has them as its default. One sorts first by a property that all flows read so far share (one template), and
 * then newest first. The other sorts by a state that puts running flows first and failed ones last, if all flows above
 * are newer.
 *
 * Between two looks, minutes pass. In an order by last change, a flow that ends meanwhile moves from a page that is not
 * read yet to one that was. So a later look goes on only if this order is ruled out already: several flows stand below
 * one on the same page that had changed and ended before them.
 */
class Order {
  readonly #seen: Evidence;
  readonly #horizon: number;

  constructor(seen: Evidence, horizon: number) {
    this.#seen = seen;
    this.#horizon = horizon;
    seen.states = [...seen.states];
  }

  get isPast(): boolean {
    const { previous = Number.POSITIVE_INFINITY, pastFlows } = this.#seen;
    return this.#isNewestFirst && pastFlows >= PAST_FLOWS_MIN && previous < this.#horizon;
  }

  /** True if no flow can have moved to a page already read by the time of a later look. */
  get isLasting(): boolean {
    return this.#isNewestFirst && this.#seen.swaps >= SWAPS_MIN;
  }

  get #isNewestFirst(): boolean {
    const { isFalling, times, areStatesMixed } = this.#seen;
    return isFalling && times >= ORDER_TIMES_MIN && areStatesMixed;
  }

  addPage(flows: readonly FlowRecord[]): void {
    for (const flow of flows) this.#note(flow);
    this.#seen.swaps = Math.min(SWAPS_MIN, this.#seen.swaps + swapsIn(flows));
  }

  #note({ createdAt, changedAt, state }: FlowRecord): void {
    const seen = this.#seen;
    const { previous = Number.POSITIVE_INFINITY } = seen;
    if (createdAt === undefined || createdAt > previous) {
      seen.isFalling = false;
      return;
    }
    if (createdAt < previous) seen.times += 1;
    seen.previous = createdAt;

    const hasEnded = state !== 'running';
    const endedBy = changedAt ?? createdAt + FLOW_LIFE_MS;
    if (hasEnded && Math.max(createdAt, endedBy) < this.#horizon) seen.pastFlows += 1;

    const isBack = state !== seen.state && seen.states.includes(state);
    seen.areStatesMixed ||= isBack || (hasEnded && seen.states.includes('running'));
    if (!seen.states.includes(state)) seen.states.push(state);
    seen.state = state;
  }
}

/** Number of flows on a page that changed and ended later than one above them. */
function swapsIn(flows: readonly FlowRecord[]): number {
  let [changed, ended] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
  let swaps = 0;
  for (const { changedAt, endedAt, state } of flows) {
    if (state === 'running' || changedAt === undefined || endedAt === undefined) continue;
    if (changedAt > changed + SWAP_MS && endedAt > ended + SWAP_MS) swaps += 1;
    changed = Math.min(changed, changedAt);
    ended = Math.min(ended, endedAt);
  }
  return swaps;
}
