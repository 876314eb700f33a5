import type { TerminalEntry } from '../../../functions/ledger/entry.ts';
import { demand } from '../demand.ts';
import { isKept } from '../healing.ts';
import type { World } from '../world.ts';

/**
 * In the end, every flow of a success is deleted at the service if its route asks for it and its chain has ended, and no
 * other.
 */
export function checkDeletions(world: World, entries: readonly TerminalEntry[]): void {
  const { observed, settings, service } = world;
  if (observed.routings.length > 1 || observed.damaged !== undefined) return;
  for (const entry of entries) {
    const { upload, route, state, flow, previous = [] } = entry;
    const name = upload.stage?.route ?? route.name;
    const isAsked = settings.routes.find((each) => each.name === name)?.deleteFlow === true;
    const ends = [...previous, ...(flow === undefined ? [] : [{ state, flow: flow.id }])];
    for (const end of ends) {
      const isDeleted = service.flows.find(({ id }) => id === end.flow)?.deleted === true;
      // Two wrong answers in a row, to the deletion and to the question after it, cannot be told from right ones.
      const isCalledGone = (['flow.delete', 'flow.get'] as const).every((kind) =>
        observed.incidents.some((one) => one.kind === kind && one.fault === '404' && one.path.includes(end.flow)),
      );
      const mayBe = isAsked && end.state === 'succeeded';
      const mustBe = mayBe && !isCalledGone && !observed.expired.has(upload.id) && !isKept(world, entry);
      demand(!mustBe || isDeleted, 'a flow was not deleted after its success', entry);
      demand(!isDeleted || mayBe, 'a flow was deleted that was to stay', end, entry);
    }
  }
}
