import type { Entry } from '../../../functions/ledger/entry.ts';
import { demand } from '../demand.ts';
import { flowTagOf } from '../flow-tag.ts';
import type { World } from '../world.ts';

/**
 * No flow of a reviewed route is made before the operator has approved its upload. An upload that is made anew in a later
 * generation may have other inputs, and needs another approval.
 */
export function checkReviews(world: World, entries: readonly Entry[]): void {
  const { scenario, observed, service, settings } = world;
  if (scenario.isReviewed !== true) return;
  const reviewed = settings.routes.flatMap(({ name, review }) => (review === true ? [name] : []));
  for (const flow of service.flows) {
    const { upload: id, pipeline } = flowTagOf(flow) ?? {};
    const entry = entries.find(({ upload }) => upload.id === id);
    if (pipeline === 'another' || entry === undefined || !reviewed.includes(entry.upload.stage?.route ?? '')) continue;
    const isApproved = observed.asked.some(
      ({ approve = [], at = Number.POSITIVE_INFINITY }) => approve.includes(entry.upload.id) && at <= flow.createdAt,
    );
    demand(isApproved, 'a flow was made before somebody approved it', entry, { flow: flow.createdAt });
    demand(
      entry.review !== undefined || entry.state !== 'succeeded',
      'an entry does not say that it was approved',
      entry,
    );
  }
  for (const { detailType, detail } of observed.published) {
    if (detailType !== 'Review Wanted') continue;
    const { upload } = JSON.parse(detail) as { upload: { id: string } };
    demand(
      entries.some((entry) => entry.upload.id === upload.id),
      'an event wants a review of no upload',
      detail,
    );
  }
}
