import type { Clock } from '../base/clock.ts';
import { FlowServiceError, ThrottledError, UnauthorisedError, UnavailableError } from '../flow-service/errors.ts';
import type { FlowService } from '../flow-service/types.ts';
import type { RunningMarker } from '../ledger/keys.ts';

/** With fewer due flows than this, single polls cost about as much as the listing. */
const FLOWS_MIN = 16;

/**
 * After this many pages, reading stops unless each page shows more than one due flow on average. It also stops after as
 * many pages in a row without any due flow.
 */
const PAGES_ON_TRIAL = 3;

/** Longest time for which one round reads pages, in milliseconds: single polls must have their turn. */
const READING_MS = 60_000;

/** How long the listing is not asked for after it was not served, in milliseconds. */
const NOT_SERVED_MS = 60 * 60_000;

/** How long the listing is not asked for after it was of no use, in milliseconds. */
const USELESS_MS = 10 * 60_000;

/** Times in a row that the listing is believed about a flow. Then the flow itself is polled: listings lag, or lie. */
const BELIEVED_MAX = 3;

/** Flows polled in one round although they are listed as running. It is more if the listing has more pages. */
const DISBELIEVED_MIN = 64;

interface ListedAsRunningPorts {
  readonly flows: FlowService;
  readonly clock: Clock;
}

/**
 * Reads from the service's listing which of many flows are running. A page of it costs one request, as much as a poll
 * of one flow.
 *
 * It only tells that a flow is still running, which saves a poll of it. The listing never ends a flow.
 */
export class ListedAsRunning {
  readonly #ports: ListedAsRunningPorts;
  /** When the listing may be asked for next, milliseconds since the epoch. */
  #asksAt = 0;
  /** By flow id: how often in a row the listing was believed. */
  #believed = new Map<string, number>();

  constructor(ports: ListedAsRunningPorts) {
    this.#ports = ports;
  }

  /** Returns the flows that need no poll now, because the listing shows them as running. */
  async running(due: readonly RunningMarker[], signal: AbortSignal): Promise<ReadonlySet<string>> {
    if (due.length < FLOWS_MIN || this.#ports.clock.now() < this.#asksAt) return new Set();
    const { running, pages } = await this.#read(new Set(due.map(({ flowId }) => flowId)), signal);
    const believed = (flowId: string): number => this.#believed.get(flowId) ?? firstCountOf(flowId);
    // The flows that were believed longest are polled first, so that each has its turn.
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

  /** Forgets all flows but these, which are still running. */
  retain(flowIds: ReadonlySet<string>): void {
    for (const flowId of this.#believed.keys()) if (!flowIds.has(flowId)) this.#believed.delete(flowId);
  }

  /** Reads pages until all flows were seen, or the pages cost more than single polls. */
  async #read(unseen: Set<string>, signal: AbortSignal): Promise<{ running: Set<string>; pages: number }> {
    const { flows, clock } = this.#ports;
    const running = new Set<string>();
    const endsAt = clock.now() + READING_MS;
    let pages = 0;
    let seen = 0;
    let pagesWithoutDue = 0;
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
        pagesWithoutDue = seen === seenBefore ? pagesWithoutDue + 1 : 0;
        const isUseless = pages >= PAGES_ON_TRIAL && seen <= pages;
        if (isUseless) this.#asksAt = clock.now() + USELESS_MS;
        if (isUseless || pagesWithoutDue >= PAGES_ON_TRIAL || clock.now() > endsAt) break;
      }
    } catch (error) {
      if (!(error instanceof FlowServiceError)) throw error;
      const mayPass =
        error instanceof ThrottledError || error instanceof UnavailableError || error instanceof UnauthorisedError;
      this.#asksAt = clock.now() + (mayPass ? USELESS_MS : NOT_SERVED_MS);
    }
    return { running, pages };
  }
}

/** A new process has no counts. It begins with a different one for each flow: even a short-lived process polls some. */
const firstCountOf = (flowId: string): number => (flowId.charCodeAt(flowId.length - 1) || 0) % (BELIEVED_MAX + 1);
