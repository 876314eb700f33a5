import type { Route } from '../../functions/uploads/route.ts';
import type { Random } from './random.ts';
import { ALIAS_FOLDER } from './s3-calls.ts';
import type { Scenario } from './scenario.ts';
import { NEEDS } from './storm-needs.ts';
import { firstNameOf } from './storm-routes.ts';

/** Share of the storms in which results are copied to aliases. */
const SHARE = 0.35;

/** A storm whose routes have aliases, those of later stages too. What it draws comes from random numbers of their own. */
export function withAliases(storm: Scenario, random: Random): Scenario {
  const { focus } = storm.faultPlan;
  const { haveAliases = false, areAliasesMoved = false } = (focus && NEEDS[focus.call]) ?? {};
  if (!random.chance(SHARE) && !haveAliases) return storm;
  const rest = new Map(
    storm.routes.map(({ name }) => [
      firstNameOf(name),
      random.pick(areAliasesMoved ? ['{key}{ext}'] : ['{key}{ext}', '{key}/{n}{ext}', '{folder}/{name}']),
    ]),
  );
  const named = (routes: readonly Route[]): readonly Route[] =>
    routes.map((route) => {
      const name = firstNameOf(route.name);
      const folder = `${ALIAS_FOLDER}${name.replace(/[^a-z0-9]/g, '-')}/`;
      return route.jobs === undefined ? { ...route, alias: `${folder}${rest.get(name) ?? '{key}'}` } : route;
    });
  const routeChanges = storm.routeChanges?.map((change) => ({ ...change, routes: named(change.routes) }));
  return { ...storm, routes: named(storm.routes), ...(routeChanges && { routeChanges }) };
}
