import type { Route } from '../../functions/uploads/route.ts';
import { flowTagOf } from './flow-tag.ts';
import type { Random } from './random.ts';
import type { Scenario } from './scenario.ts';
import { NEEDS } from './storm-needs.ts';
import type { World } from './world.ts';

/** Share of the storms in which flows are deleted at the service. */
const SHARE = 0.35;

/** A storm whose routes have `deleteFlow`. What it draws comes from random numbers of its own. */
export function withDeletions(storm: Scenario, random: Random): Scenario {
  const { focus } = storm.faultPlan;
  const isNeeded = focus !== undefined && NEEDS[focus.call]?.areDeleted === true;
  // Few services of another shape can delete a flow.
  if ((!random.chance(SHARE) && !isNeeded) || storm.isJobApi) return storm;
  const deleting = (routes: readonly Route[]): readonly Route[] =>
    routes.map((route) => ({ ...route, deleteFlow: true }));
  const routeChanges = storm.routeChanges?.map((change) => ({ ...change, routes: deleting(change.routes) }));
  // Otherwise the listing would be the only proof in a doubt, which a configuration may not have.
  const settings = { ...storm.settings, inDoubt: 'ask' } as const;
  return { ...storm, settings, routes: deleting(storm.routes), ...(routeChanges && { routeChanges }) };
}

/** A process asks for the deletion of a flow: never before the receipt of its success, or before its chain has ended. */
export function seesFlowDeletion({ service, orderChecker, chainWatch }: World, flowId: string): void {
  const flow = service.flows.find(({ id }) => id === flowId);
  const tag = flow && flowTagOf(flow);
  const ends = [...orderChecker.endings.values()].filter(
    ({ upload, state, flow: own }) => upload.id === tag?.upload && state === 'succeeded' && own?.id === flowId,
  );
  const isOver = ends.some(({ upload, generation, plan = [], endedAt }) => {
    const hasChain = upload.stage !== undefined || plan.length > 0;
    // The receipt may be that of a newer file of its key.
    const isTold = orderChecker.told.has(`${upload.id}-${generation}`);
    return isTold && (!hasChain || chainWatch.hasEndedAfter(upload.stage?.first.id ?? upload.id, endedAt));
  });
  if (!isOver) orderChecker.broken.push(`a flow was deleted before all of it had succeeded and was told: ${flowId}`);
}
