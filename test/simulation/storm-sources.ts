import type { ChainReport } from '../../functions/publish/report-schemas.ts';
import type { Route } from '../../functions/uploads/route.ts';
import { isOf } from './invariants/facts.ts';
import type { Put } from './observations.ts';
import type { Random } from './random.ts';
import type { CompletedCall } from './s3.ts';
import type { Scenario } from './scenario.ts';
import { NEEDS } from './storm-needs.ts';
import { firstNameOf } from './storm-routes.ts';
import type { World } from './world.ts';

/** Share of the storms in which files are tagged or deleted after their end. */
const SHARE = 0.35;

/** A storm whose routes have an `afterSuccess`. What it draws comes from random numbers of their own. */
export function withSources(storm: Scenario, random: Random): Scenario {
  const { focus } = storm.faultPlan;
  const isNeeded = focus !== undefined && NEEDS[focus.call]?.areSettled === true;
  if (!random.chance(SHARE) && !isNeeded) return storm;
  const asked = new Map<string, Route['afterSuccess']>();
  for (const { name, after, jobs } of storm.routes) {
    if (after !== undefined || jobs !== undefined) continue;
    const one = focus?.call === 'source.delete' ? 'delete' : isNeeded ? 'tag' : random.pick(['tag', 'delete'] as const);
    asked.set(firstNameOf(name), one);
  }
  const settled = (routes: readonly Route[]): readonly Route[] =>
    routes.map((route) => {
      const afterSuccess = asked.get(firstNameOf(route.name));
      return afterSuccess === undefined || route.after !== undefined ? route : { ...route, afterSuccess };
    });
  const routeChanges = storm.routeChanges?.map((change) => ({ ...change, routes: settled(change.routes) }));
  return { ...storm, routes: settled(storm.routes), ...(routeChanges && { routeChanges }) };
}

/** True if everything of a chain succeeded, and no output failed. */
export const isWholeReport = ({ status, stages }: ChainReport): boolean =>
  status === 'succeeded' && stages.every(({ uploads }) => uploads.every(({ failedOutputs }) => failedOutputs === 0));

/** A call of S3 took effect. No file is deleted before the receipt of its whole chain, or if anything failed. */
export function seesSource(world: World, { kind, bucket, key }: CompletedCall & { readonly bucket: string }): void {
  if (kind !== 'source.delete') return;
  const { observed, orderChecker } = world;
  // A process of the deployment before looks after the inbox before.
  const ofKey = observed.puts.filter((put) => put.bucket === bucket && put.key === key);
  const deleted = ofKey.at(-1);
  // The same content may be put again between the two requests of a deletion.
  const same = ofKey.filter((put) => put.etag === deleted?.etag);
  if (same.some((put) => wasWhole(world, put))) return;
  orderChecker.broken.push(`a file was deleted whose result was not whole: ${key}`);
}

function wasWhole({ orderChecker, chainWatch, observed }: World, put: Put): boolean {
  return [...orderChecker.endings.values()].some((end) => {
    if (!isOf(put, end) || end.state !== 'succeeded' || end.failedOutputs.length > 0) return false;
    const { id } = end.upload;
    if ((end.plan ?? []).length === 0) {
      // The receipt of another upload may outrank this one. The event is sent after that was found.
      return orderChecker.receipted.has(`${id}-${end.generation}`) || observed.hasPublished(id, end.generation);
    }
    // That of another chain may outrank this one too.
    const told = observed.published.flatMap(({ detailType, detail }) =>
      detailType === 'Chain Succeeded' ? [JSON.parse(detail) as ChainReport] : [],
    );
    const reports = [...(chainWatch.reports.get(id) ?? []), ...told.filter(({ upload }) => upload.id === id)];
    return reports.some(isWholeReport);
  });
}
