import type { Invocation } from '../base/invocation.ts';
import type { HoldPorts } from '../holds/attempt.ts';
import { tendHolds } from '../holds/tend-holds.ts';
import { parseCollectEvent } from '../operator/collect-event.ts';
import { keepRoutes } from '../operator/kept-routes.ts';
import {
  approveUploads,
  type Changed,
  cancelUploads,
  changeHold,
  collectAgain,
  deleteFlows,
  type FlowAnswer,
  flowAnswer,
  type HoldAnswer,
  type ListingAnswer,
  listingAnswer,
  makeAnew,
  type OfferedTemplates,
  type OperatorPorts,
  offeredTemplates,
  retryUploads,
  showOther,
} from '../operator/operator.ts';
import { continueSweep, requestSweep, type SweepReport } from '../sweep/sweep.ts';
import type { SweepPorts } from '../sweep/sweep-run.ts';
import { type CollectPorts, collectOutputs, type TickSummary } from './tick.ts';

export { type CollectPorts, collectOutputs, type TickSummary } from './tick.ts';

/**
 * Does what the event asks for: runs a tick, carries out an operator's request, asks the flow service something, or
 * records a sweep. The first collector tends the holds, keeps long routes for operators, and runs the sweeps that were
 * requested. They run in parallel with its tick, because a busy tick takes all of the invocation's time.
 * @throws {InvalidCollectEventError}
 */
export async function collect(
  event: unknown,
  ports: CollectPorts & OperatorPorts & SweepPorts & HoldPorts,
  invocation: Invocation,
): Promise<
  TickSummary | SweepReport | readonly Changed[] | FlowAnswer | OfferedTemplates | ListingAnswer | HoldAnswer
> {
  const {
    collector,
    until,
    left,
    retry,
    again,
    parameters,
    template,
    from,
    late,
    cancel,
    approve,
    collect,
    delete: deleted,
    alias,
    sweep,
    hold,
    ask,
    templates,
    listing,
  } = parseCollectEvent(event);
  const given = parameters === undefined && template === undefined ? undefined : { parameters, template };
  if (ask !== undefined) return flowAnswer(ask, ports, invocation.closing);
  if (templates !== undefined) return offeredTemplates(ports.flows, invocation.closing);
  if (listing !== undefined) return listingAnswer(ports.flows, invocation.closing);
  if (retry !== undefined) return retryUploads(retry, ports, invocation.closing, { given, late });
  if (again !== undefined) return makeAnew(again, { from, given, late }, ports, invocation.closing);
  if (approve !== undefined) return approveUploads(approve, ports, invocation.closing);
  if (cancel !== undefined) return cancelUploads(cancel, ports, invocation.closing);
  if (collect !== undefined) return collectAgain(collect, ports, invocation.closing);
  if (deleted !== undefined) return deleteFlows(deleted, ports, invocation.closing);
  if (alias !== undefined) return [await showOther(alias.upload, alias.to, ports, invocation.closing)];
  if (hold !== undefined) return changeHold(hold, ports, invocation.closing);
  if (sweep !== undefined) return requestSweep(sweep, ports, invocation);
  if (until !== undefined) return collectOutputs(collector, ports, invocation, { until, left });
  const isFirst = collector.index === 0;
  const [tick, ...others] = await Promise.allSettled([
    collectOutputs(collector, ports, invocation),
    isFirst ? continueSweep(ports, invocation) : undefined,
    isFirst ? tendHolds(ports, invocation.closing) : undefined,
    isFirst ? keepRoutes(ports, invocation.closing) : undefined,
  ]);
  const reasons = [tick, ...others].flatMap((part) => (part.status === 'rejected' ? [part.reason] : []));
  if (reasons.length > 1) throw new AggregateError(reasons, 'Several parts of the tick failed');
  if (tick.status === 'rejected' || reasons.length > 0) throw reasons[0];
  return tick.value;
}
