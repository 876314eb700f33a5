import type { Clock } from '../base/clock.ts';
import { FlowServiceError, ThrottledError, UnauthorisedError, UnavailableError } from '../flow-service/errors.ts';
import type { FlowService } from '../flow-service/types.ts';
import type { RunningMarker } from '../ledger/keys.ts';

/** With fewer flows than this, single looks cost about as much as the listing. */
const FLOWS_MIN = 16;

/** After so many pages, the listing must have shown more flows than pages. So many without any in a row end it. */
const PAGES_ON_TRIAL = 3;

/** Longest time for which pages are read in one round, in milliseconds: single looks must have their turn. */
const READING_MS = 60_000;

/** How long the listing is left alone if it is not served, or is in vain, in milliseconds. */
const NOT_SERVED_MS = 60 * 60_000;
const IN_VAIN_MS = 10 * 60_000;

/** The listing may call a flow running so often in a row. Then the flow itself is asked for: listings lag, or lie. */
const BELIEVED_MAX = 3;

/** So many of those are asked for in one round at least. More if the listing has more pages. */
const DISBELIEVED_MIN = 64;

export interface FlowStatesPorts {
  readonly flows: FlowService;
  readonly clock: Clock;
}

/**
 * The states of many flows at once, out of the service's listing. A page of it costs one request, as a look at a single
 * flow does.
 *
 * It only ever says that a flow is still running, so that a look at it can be saved. The listing never ends a flow.
 */
export class FlowStates {
  readonly #ports: FlowStatesPorts;
  /** When the listing may be asked for next, milliseconds since the epoch. */
  #asksAt = 0;
  /** How often in a row the listing was believed about a flow. */
  #believed = new Map<string, number>();

  constructor(ports: FlowStatesPorts) {
    this.#ports = ports;
  }

  /** Of these flows, those that need no look now, since the listing shows them as running. */
  async running(due: readonly RunningMarker[], signal: AbortSignal): Promise<ReadonlySet<string>> {
    if (due.length < FLOWS_MIN || this.#ports.clock.now() < this.#asksAt) return new Set();
    const { running, pages } = await this.#read(new Set(due.map(({ flowId }) => flowId)), signal);
    const believed = (flowId: string): number => this.#believed.get(flowId) ?? firstCountOf(flowId);
    // Those that were believed longest are asked for first, so that each has its turn.
    const disbelieved = [...running]
      .filter((flowId) => believed(flowId) >= BELIEVED_MAX)
      .sort((one, other) => believed(other) - believed(one))
      .slice(0, Math.max(DISBELIEVED_MIN, pages));
    for (const flowId of running) this.#believed.set(flowId, believed(flowId) + 1);
    for (const flowId of disbelieved) {
      running.delete(flowId);
      this.#believed.set(flowId, 0);
    }
    return running;
  }

  /** Forgets the flows that are not running any more. */
  retain(flowIds: ReadonlySet<string>): void {
    for (const flowId of this.#believed.keys()) if (!flowIds.has(flowId)) this.#believed.delete(flowId);
  }

  /** Reads pages until all flows were seen, or the pages cost more than single looks. */
  async #read(unseen: Set<string>, signal: AbortSignal): Promise<{ running: Set<string>; pages: number }> {
    const { flows, clock } = this.#ports;
    const running = new Set<string>();
    const endsAt = clock.now() + READING_MS;
    let pages = 0;
    let seen = 0;
    let pagesInVain = 0;
    try {
      for await (const page of flows.list(signal)) {
        pages += 1;
        const seenBefore = seen;
        for (const { flowId, state } of page) {
          if (!unseen.delete(flowId)) continue;
          seen += 1;
          if (state === 'running') running.add(flowId);
        }
        if (unseen.size === 0) break;
        pagesInVain = seen === seenBefore ? pagesInVain + 1 : 0;
        const isInVain = pages >= PAGES_ON_TRIAL && seen <= pages;
        if (isInVain) this.#asksAt = clock.now() + IN_VAIN_MS;
        if (isInVain || pagesInVain >= PAGES_ON_TRIAL || clock.now() > endsAt) break;
      }
    } catch (error) {
      if (!(error instanceof FlowServiceError)) throw error;
      const mayPass =
        error instanceof ThrottledError || error instanceof UnavailableError || error instanceof UnauthorisedError;
      this.#asksAt = clock.now() + (mayPass ? IN_VAIN_MS : NOT_SERVED_MS);
    }
    return { running, pages };
  }
}

/** A new process knows no counts. It begins with different ones, so that also short-lived processes disbelieve some. */
const firstCountOf = (flowId: string): number => (flowId.charCodeAt(flowId.length - 1) || 0) % (BELIEVED_MAX + 1);
