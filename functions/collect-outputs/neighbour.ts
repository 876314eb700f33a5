import { secondsBetween } from '../base/telemetry.ts';
import type { CollectorState } from '../ledger/collector-state.ts';
import { readState } from '../ledger/lease.ts';
import type { CollectorShare, CollectPorts } from './tick.ts';

/**
 * Reports how long ago the next collector completed a tick. The collectors form a ring, so a collector that is off, or
 * whose ticks are all cut short, is reported by the one before it. If all are off, there is no report, and the count of
 * completed ticks has an alarm of its own. A single collector reports nothing.
 *
 * A collector that never completed a tick counts from when the one before it first saw that.
 * @returns what the state of this collector has to remember.
 */
export async function reportNeighbour(
  { index, of }: CollectorShare,
  remembered: CollectorState,
  { s3, settings, clock, telemetry }: CollectPorts,
  signal: AbortSignal,
): Promise<Partial<CollectorState>> {
  if (of === 1) return {};
  const collector = (index + 1) % of;
  try {
    const { state } = await readState({ s3, bucket: settings.ledgerBucket, clock }, collector, signal);
    const now = clock.now();
    const neverSince = state.tickCompletedAt === undefined ? (remembered.neighbourNeverSince ?? now) : undefined;
    telemetry.metrics.add('OldestTickSeconds', secondsBetween(state.tickCompletedAt ?? neverSince ?? now, now));
    return { neighbourNeverSince: neverSince };
  } catch (error) {
    telemetry.log.warn('The state of the next collector could not be read', { collector, error: error as Error });
    return {};
  }
}
