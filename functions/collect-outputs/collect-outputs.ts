import type { Invocation } from '../base/invocation.ts';
import { parseCollectEvent } from '../operator/collect-event.ts';
import {
  type Cancelled,
  type CollectedAgain,
  cancelUploads,
  collectAgain,
  type ListingAnswer,
  listingAnswer,
  type OfferedTemplates,
  type OperatorPorts,
  offeredTemplates,
  type Retried,
  retryUploads,
} from '../operator/operator.ts';
import { continueSweep, requestSweep, type SweepReport } from '../sweep/sweep.ts';
import type { SweepPorts } from '../sweep/sweep-run.ts';
import { type CollectorShare, Lease } from './collector.ts';
import { type CollectPorts, Tick, type TickSummary } from './tick.ts';

export type { CollectPorts, TickSummary } from './tick.ts';

/**
 * Time from a tick's start after which it begins no further round unless assets are coming, in milliseconds. The next
 * tick starts after a minute.
 */
const TICK_MS = 55_000;

/** What became of each upload that an operator named. */
type PerUpload = readonly Retried[] | readonly Cancelled[] | readonly CollectedAgain[];

/**
 * Does what the event asks for: one tick, what an operator wants of single uploads, a question to the flow service, or
 * to record a sweep. The first collector runs the sweeps that were requested. They run in parallel with its tick,
 * because a busy tick takes all of the invocation's time.
 * @throws {InvalidCollectEventError}
 */
export async function collect(
  event: unknown,
  ports: CollectPorts & OperatorPorts & SweepPorts,
  invocation: Invocation,
): Promise<TickSummary | SweepReport | PerUpload | OfferedTemplates | ListingAnswer> {
  const { collector, retry, parameters, cancel, collect: again, sweep, templates, listing } = parseCollectEvent(event);
  const given = parameters === undefined ? undefined : { parameters };
  if (templates !== undefined) return offeredTemplates(ports.flows, invocation.closing);
  if (listing !== undefined) return listingAnswer(ports.flows, invocation.closing);
  if (retry !== undefined) return retryUploads(retry, ports, invocation.closing, given);
  if (cancel !== undefined) return cancelUploads(cancel, ports, invocation.closing);
  if (again !== undefined) return collectAgain(again, ports, invocation.closing);
  if (sweep !== undefined) return requestSweep(sweep, ports, invocation);
  const [tick, sweeping] = await Promise.allSettled([
    collectOutputs(collector, ports, invocation),
    collector.index === 0 ? continueSweep(ports, invocation) : undefined,
  ]);
  const reasons = [tick, sweeping].flatMap((part) => (part.status === 'rejected' ? [part.reason] : []));
  if (reasons.length > 1) throw new AggregateError(reasons, 'Both the tick and the sweep failed');
  if (tick.status === 'rejected' || reasons.length > 0) throw reasons[0];
  return tick.value;
}

/**
 * Runs one tick. It resubmits the waiting uploads that are due, polls the running flows that are due, and stores and
 * ends the flows that finished. Rounds repeat for as long as assets are coming or slow polls are left, and within the
 * tick's minute while a young flow is running.
 * @throws {AggregateError} the failures of single uploads, at the end of the tick.
 */
export async function collectOutputs(
  share: CollectorShare,
  ports: CollectPorts,
  invocation: Invocation,
): Promise<TickSummary> {
  const { clock, settings, telemetry } = ports;
  const { startedAt: tickStartedAt, work, workEndsAt, closing } = invocation;
  const lease = await Lease.take({ s3: ports.s3, bucket: settings.ledgerBucket, clock }, share.index, closing);
  const tick = new Tick(share, lease, ports, invocation);
  if (lease === undefined) return tick.summary('lease taken');
  lease.keeps(() => tick.memory);
  const mayRoundBeginAt = (time: number): boolean =>
    !work.aborted &&
    time < workEndsAt &&
    (tick.isStoring || tick.isSlowLeft || (tick.isYoungRunning && time < tickStartedAt + TICK_MS));
  try {
    for (;;) {
      const startedAt = clock.now();
      await tick.round();
      if (tick.halt !== undefined) break;
      await lease.write(closing);
      if (lease.isLost) break;
      const next = startedAt + tick.roundMs;
      while (clock.now() < next && mayRoundBeginAt(next)) await tick.pauseUntil(next);
      if (lease.isLost || !mayRoundBeginAt(Math.max(next, clock.now()))) break;
    }
    await tick.finish();
  } finally {
    await tick.allStored();
    await lease.release(closing, tick.isCutShort ? {} : { tickCompletedAt: clock.now() });
  }
  if (tick.isCutShort) telemetry.metrics.add('TicksCutShort');
  else {
    telemetry.metrics.add('TicksCompleted');
    // With one collector it would be the same count.
    if (share.of > 1) telemetry.metrics.add(`TicksOfCollector${share.index}`);
  }
  const summary = tick.summary(tick.halt ?? 'completed');
  telemetry.log.info('Tick ended', { ...summary });
  tick.throwFailures();
  return summary;
}
