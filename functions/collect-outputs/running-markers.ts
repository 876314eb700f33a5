import { secondsBetween, type Telemetry } from '../base/telemetry.ts';
import { type RunningMarker, runningKey } from '../ledger/keys.ts';
import type { Ledger } from '../ledger/store.ts';

export interface RunningMarkers {
  /** This collector's markers by their keys, the greatest age first, without those that share a flow. */
  readonly ours: ReadonlyMap<string, RunningMarker>;
  /** This collector's markers whose flow belongs to another upload as well. */
  readonly shared: readonly RunningMarker[];
  /** All running flows, also those of other collectors. */
  readonly flowIds: ReadonlySet<string>;
}

/** Lists the markers of all running flows, and measures them. */
export async function listRunningMarkers(
  { ledger, telemetry }: { readonly ledger: Ledger; readonly telemetry: Telemetry },
  isOurs: (uploadId: string) => boolean,
  now: number,
  signal: AbortSignal,
): Promise<RunningMarkers> {
  const ours = new Map<string, RunningMarker>();
  const uploadOf = new Map<string, string>();
  const sharedFlowIds = new Set<string>();
  let count = 0;
  let oldest = now;
  for await (const marker of ledger.runningMarkers(signal)) {
    const { flowId, uploadId, ageFrom } = marker;
    count += 1;
    oldest = Math.min(oldest, ageFrom);
    if ((uploadOf.get(flowId) ?? uploadId) !== uploadId) sharedFlowIds.add(flowId);
    uploadOf.set(flowId, uploadId);
    if (isOurs(uploadId)) ours.set(runningKey(marker), marker);
  }
  const shared = [...ours.values()].filter(({ flowId }) => sharedFlowIds.has(flowId));
  for (const marker of shared) ours.delete(runningKey(marker));
  // Each collector lists all markers, so the highest count is right for any number of collectors. It also includes the
  // flows of a collector that does not run.
  telemetry.metrics.add('FlowsRunning', count);
  telemetry.metrics.add('OldestRunningSeconds', secondsBetween(oldest, now));
  return { ours, shared, flowIds: new Set(uploadOf.keys()) };
}
