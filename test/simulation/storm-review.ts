import type { Route } from '../../functions/uploads/route.ts';
import type { Random } from './random.ts';
import type { Scenario } from './scenario.ts';

/** Share of storms with chains in which the operator approves later stages. */
const SHARE = 0.4;

/** A storm some of whose later stages wait to be approved. What it draws comes from random numbers of their own. */
export function withReview(storm: Scenario, random: Random): Scenario {
  const stages = storm.routes.filter(({ after }) => after !== undefined);
  if (stages.length === 0 || storm.routeChanges !== undefined || !random.chance(SHARE)) return storm;
  const names = random.some(stages, 0.7).map(({ name }) => name);
  const reviewHours = random.chance(0.3) ? 1 : undefined;
  const reviewed = (route: Route): Route =>
    names.includes(route.name) ? { ...route, review: true, ...(reviewHours && { reviewHours }) } : route;
  return { ...storm, isReviewed: true, routes: storm.routes.map(reviewed) };
}
