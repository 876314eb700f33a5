import type { Invocation } from '../base/invocation.ts';
import type { HoldPorts } from '../holds/attempt.ts';
import { tendHolds } from '../holds/tend-holds.ts';
import { makeAnew } from '../operator/anew.ts';
import type { Changed, OperatorPorts } from '../operator/changes.ts';
import { parseCollectEvent } from '../operator/collect-event.ts';
import { keepRoutes } from '../operator/kept-routes.ts';
import {
  approveUploads,
  cancelUploads,
  changeHold,
  collectAgain,
  deleteFlows,
  type HoldAnswer,
  showOther,
} from '../operator/operator.ts';
import {
  type FlowAnswer,
  flowAnswer,
  type ListingAnswer,
  listingAnswer,
  type OfferedTemplates,
  offeredTemplates,
} from '../operator/questions.ts';
import { retryUploads } from '../operator/retry.ts';
import { continueSweep, requestSweep, type SweepReport } from '../sweep/sweep.ts';
import type { SweepPorts } from '../sweep/sweep-run.ts';
import { type CollectPorts, collectOutputs, type TickSummary } from './tick.ts';

export { type CollectPorts, collectOutputs, type TickSummary } from './tick.ts';

/**
 * Does what the event asks for: runs a tick, carries out an operator's request, asks the flow service something, or
 * records a sweep. The first collector tends the holds, stores routes that are too long for the environment, and runs
 * the sweeps that were requested. They run in parallel with its tick, because a busy tick takes all of the invocation's
 * time.
 * @throws {InvalidCollectEventError}
 */
export async function collect(
  event: unknown,
  ports: CollectPorts & OperatorPorts & SweepPorts & HoldPorts,
  invocation: Invocation,
): Promise<
  TickSummary | SweepReport | readonly Changed[] | FlowAnswer | OfferedTemplates | ListingAnswer | HoldAnswer
> {
  const asked = parseCollectEvent(event);
  const { closing } = invocation;
  const { collector, until, left, parameters, template, from, late } = asked;
  const given = parameters === undefined && template === undefined ? undefined : { parameters, template };
  if (asked.ask !== undefined) return flowAnswer(asked.ask, ports, closing);
  if (asked.templates !== undefined) return offeredTemplates(ports.flows, closing);
  if (asked.listing !== undefined) return listingAnswer(ports.flows, closing);
  if (asked.retry !== undefined) return retryUploads(asked.retry, ports, closing, { given, late });
  if (asked.again !== undefined) return makeAnew(asked.again, { from, given, late }, ports, closing);
  if (asked.approve !== undefined) return approveUploads(asked.approve, ports, closing);
  if (asked.cancel !== undefined) return cancelUploads(asked.cancel, ports, closing);
  if (asked.collect !== undefined) return collectAgain(asked.collect, ports, closing);
  if (asked.delete !== undefined) return deleteFlows(asked.delete, ports, closing);
  if (asked.alias !== undefined) return [await showOther(asked.alias.upload, asked.alias.to, ports, closing)];
  if (asked.hold !== undefined) return changeHold(asked.hold, ports, closing);
  if (asked.sweep !== undefined) return requestSweep(asked.sweep, ports, invocation);
  if (until !== undefined) return collectOutputs(collector, ports, invocation, { until, left });
  const isFirst = collector.index === 0;
  const [tick, ...others] = await Promise.allSettled([
    collectOutputs(collector, ports, invocation),
    isFirst ? continueSweep(ports, invocation) : undefined,
    isFirst ? tendHolds(ports, closing) : undefined,
    isFirst ? keepRoutes(ports, closing) : undefined,
  ]);
  const reasons = [tick, ...others].flatMap((part) => (part.status === 'rejected' ? [part.reason] : []));
  if (reasons.length > 1) throw new AggregateError(reasons, 'Several parts of the tick failed');
  if (tick.status === 'rejected' || reasons.length > 0) throw reasons[0];
  return tick.value;
}
