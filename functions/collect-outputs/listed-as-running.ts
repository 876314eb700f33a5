import { createHash } from 'node:crypto';
import type { Clock } from '../base/clock.ts';
import { FlowServiceError } from '../flow-service/errors.ts';
import type { FlowService } from '../flow-service/types.ts';
import type { RunningMarker } from '../ledger/keys.ts';

/** With fewer due flows than this, single polls cost about as much as the listing. */
const FLOWS_MIN = 16;

/**
 * After this many pages, reading stops unless each page shows more than one due flow on average. It also stops after as
 * many pages in a row without any due flow.
 */
const PAGES_ON_TRIAL = 3;

/** Longest time for which one round reads pages, in milliseconds. Single polls must begin then. */
const READING_MS = 60_000;

/** How long the listing is not asked for after it failed or was of no use, in milliseconds. */
const USELESS_MS = 10 * 60_000;

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

  constructor(ports: ListedAsRunningPorts) {
    this.#ports = ports;
  }

  /**
   * Returns those of the due flows that need no poll in a round, because the listing shows them as running.
   * @param roundAt when the round began, in milliseconds since the epoch.
   */
  async running(due: readonly RunningMarker[], roundAt: number, signal: AbortSignal): Promise<ReadonlySet<string>> {
    const { clock, flows } = this.#ports;
    const isAsked = flows.service.list !== undefined && due.length >= FLOWS_MIN && clock.now() >= this.#asksAt;
    if (!isAsked) return new Set();
    const flowIds = due.map(({ flowId }) => flowId).filter((flowId) => !isPolledItself(flowId, roundAt));
    return this.#read(new Set(flowIds), signal);
  }

  /** Reads pages until all flows were seen, or the pages cost more than single polls. */
  async #read(unseen: Set<string>, signal: AbortSignal): Promise<ReadonlySet<string>> {
    const { flows, clock } = this.#ports;
    const running = new Set<string>();
    const endsAt = clock.now() + READING_MS;
    let [pages, seen, pagesWithoutDue] = [0, 0, 0];
    try {
      for await (const page of flows.list(signal)) {
        pages += 1;
        pagesWithoutDue += 1;
        for (const { flowId, state, isDeclared } of page) {
          if (!unseen.delete(flowId)) continue;
          seen += 1;
          pagesWithoutDue = 0;
          // An undeclared word may mean that the flow has ended. So such a flow is polled, which counts the word.
          if (state === 'running' && isDeclared !== false) running.add(flowId);
        }
        const isUseless = pages >= PAGES_ON_TRIAL && seen <= pages;
        if (isUseless) this.#asksAt = clock.now() + USELESS_MS;
        if (isUseless || unseen.size === 0 || pagesWithoutDue >= PAGES_ON_TRIAL || clock.now() > endsAt) break;
      }
    } catch (error) {
      if (!(error instanceof FlowServiceError)) throw error;
      this.#asksAt = clock.now() + USELESS_MS;
    }
    return running;
  }
}

/** True for a tenth of the flows, a different tenth in each round. The listing may lag or be wrong. */
function isPolledItself(flowId: string, roundAt: number): boolean {
  return createHash('sha256').update(`${flowId} ${roundAt}`).digest().readUInt32BE() % 10 === 0;
}
