import { hash } from 'node:crypto';
import type { Clock } from '../base/clock.ts';
import { OutOfTimeError } from '../base/invocation.ts';
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

/**
 * When the listing of a service may be asked for next, in milliseconds since the epoch. Kept for the whole process, because
 * it is of use to later ticks.
 */
const asksAt = new WeakMap<FlowService, number>();

/**
 * Reads from the service's listing which of many due flows are running, and therefore need no poll in a round. A page of it
 * costs one request, as much as a poll of one flow. Pages are read until all flows were seen, or the pages cost more than
 * single polls.
 *
 * It only tells that a flow is still running, which saves a poll of it. The listing never ends a flow.
 * @param roundAt when the round began, in milliseconds since the epoch.
 */
export async function listedAsRunning(
  due: readonly RunningMarker[],
  roundAt: number,
  { flows, clock }: { readonly flows: FlowService; readonly clock: Clock },
  signal: AbortSignal,
): Promise<ReadonlySet<string>> {
  const running = new Set<string>();
  if (flows.service.list === undefined || due.length < FLOWS_MIN || clock.now() < (asksAt.get(flows) ?? 0))
    return running;
  const unseen = new Set(due.map(({ flowId }) => flowId).filter((flowId) => !isPolledItself(flowId, roundAt)));
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
      if (isUseless) asksAt.set(flows, clock.now() + USELESS_MS);
      if (isUseless || unseen.size === 0 || pagesWithoutDue >= PAGES_ON_TRIAL || clock.now() > endsAt) break;
    }
  } catch (error) {
    // The polls will find that the time is over.
    if (error instanceof OutOfTimeError) return new Set();
    if (!(error instanceof FlowServiceError)) throw error;
    asksAt.set(flows, clock.now() + USELESS_MS);
  }
  return running;
}

/** True for a tenth of the flows, a different tenth in each round. The listing may lag or be wrong. */
function isPolledItself(flowId: string, roundAt: number): boolean {
  return hash('sha256', `${flowId} ${roundAt}`, 'buffer').readUInt32BE() % 10 === 0;
}
