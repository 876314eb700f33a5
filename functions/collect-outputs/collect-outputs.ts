import type { Invocation } from '../base/invocation.ts';
import { parseCollectEvent } from '../operator/collect-event.ts';
import {
  type Changed,
  cancelUploads,
  collectAgain,
  type ListingAnswer,
  listingAnswer,
  makeAnew,
  type OfferedTemplates,
  type OperatorPorts,
  offeredTemplates,
  retryUploads,
} from '../operator/operator.ts';
import { continueSweep, requestSweep, type SweepReport } from '../sweep/sweep.ts';
import type { SweepPorts } from '../sweep/sweep-run.ts';
import { type CollectPorts, collectOutputs, type TickSummary } from './tick.ts';

export { type CollectPorts, collectOutputs, type TickSummary } from './tick.ts';

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
): Promise<TickSummary | SweepReport | readonly Changed[] | OfferedTemplates | ListingAnswer> {
  const {
    collector,
    retry,
    parameters,
    from,
    cancel,
    collect: again,
    sweep,
    templates,
    listing,
  } = parseCollectEvent(event);
  const given = parameters === undefined ? undefined : { parameters };
  if (templates !== undefined) return offeredTemplates(ports.flows, invocation.closing);
  if (listing !== undefined) return listingAnswer(ports.flows, invocation.closing);
  if (retry !== undefined && from !== undefined) return makeAnew(retry, from, ports, invocation.closing);
  if (retry !== undefined) return retryUploads(retry, ports, invocation.closing, { given });
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
