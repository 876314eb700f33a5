import { secondsBetween } from '../base/telemetry.ts';
import { readState } from '../ledger/lease.ts';
import type { CollectorShare, CollectPorts } from './tick.ts';

/** What is reported of a collector that never completed a tick, in seconds. Longer than the alarm waits. */
const NEVER_SECONDS = 24 * 3600;

/**
 * Reports how long ago the next collector completed a tick. The collectors form a ring, so the one before a collector
 * that is off, or whose ticks are all cut short, tells of it. If all are off, there is no report, and the count of
 * completed ticks has an alarm of its own. A single collector reports nothing.
 */
export async function reportNeighbour(
  { index, of }: CollectorShare,
  { s3, settings, clock, telemetry }: CollectPorts,
  signal: AbortSignal,
): Promise<void> {
  if (of === 1) return;
  const collector = (index + 1) % of;
  try {
    const { state } = await readState({ s3, bucket: settings.ledgerBucket, clock }, collector, signal);
    const { tickCompletedAt } = state;
    const seconds = tickCompletedAt === undefined ? NEVER_SECONDS : secondsBetween(tickCompletedAt, clock.now());
    telemetry.metrics.count('OldestTickSeconds', seconds);
  } catch (error) {
    telemetry.log.warn('The state of the next collector could not be read', { collector, error: error as Error });
  }
}
