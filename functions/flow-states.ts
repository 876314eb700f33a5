import type { Clock } from './clock.ts';
import { FlowServiceError, ThrottledError, UnauthorisedError, UnavailableError } from './flow-service/errors.ts';
import type { FlowService } from './flow-service/types.ts';
import type { RunningMarker } from './ledger/keys.ts';

/** With fewer flows than this, single looks cost about as much as the listing. */
const FLOWS_MIN = 16;

/** After so many pages, the listing must have shown more flows that are due than it has pages. */
const PAGES_ON_TRIAL = 3;

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
    const disbelieved = [...running]
      .filter((flowId) => believed(flowId) >= BELIEVED_MAX)
      .slice(0, Math.max(DISBELIEVED_MIN, pages));
    for (const flowId of disbelieved) running.delete(flowId);
    this.#believed = new Map([
      ...[...running].map((flowId) => [flowId, believed(flowId) + 1] as const),
      ...disbelieved.map((flowId) => [flowId, 0] as const),
    ]);
    return running;
  }

  /** Reads pages until all flows were seen, or the pages cost more than single looks. */
  async #read(unseen: Set<string>, signal: AbortSignal): Promise<{ running: Set<string>; pages: number }> {
    const { flows, clock } = this.#ports;
    const running = new Set<string>();
    let pages = 0;
    let seen = 0;
    try {
      for await (const page of flows.list(signal)) {
        pages += 1;
        for (const { flowId, state } of page) {
          if (!unseen.delete(flowId)) continue;
          seen += 1;
          if (state === 'running') running.add(flowId);
        }
        if (unseen.size === 0) break;
        if (pages >= PAGES_ON_TRIAL && seen <= pages) {
          this.#asksAt = clock.now() + IN_VAIN_MS;
          break;
        }
      }
    } catch (error) {
      if (!(error instanceof FlowServiceError)) throw error;
      const mayPass =
        error instanceof ThrottledError || error instanceof UnavailableError || error instanceof UnauthorisedError;
      if (!mayPass) this.#asksAt = clock.now() + NOT_SERVED_MS;
    }
    return { running, pages };
  }
}

/** A new process knows no counts. It begins with different ones, so that also short-lived processes disbelieve some. */
const firstCountOf = (flowId: string): number => (flowId.charCodeAt(flowId.length - 1) || 0) % (BELIEVED_MAX + 1);
