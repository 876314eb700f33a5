import { didYouMean } from '../base/did-you-mean.ts';
import type { Route, RouteIssue } from './route.ts';
import { matchesKey, matchesObject } from './route-conditions.ts';

/** Maximum number of stages of a chain, the first one included. */
export const STAGES_MAX = 8;

/** Maximum number of assets that one flow gets as its inputs, if a route takes all assets of a stage together. */
export const INPUTS_MAX = 1_000;

/** The routes that come directly after a route. */
export const routesAfter = (routes: readonly Route[], name: string): readonly Route[] =>
  routes.filter(({ after }) => after === name);

/** A later stage of a chain, in its plan. What else it needs is in the configuration of the moment in which it begins. */
export interface PlannedStage {
  /** Name of its route. */
  readonly route: string;
  /** Name of the route before. */
  readonly after: string;
  /** Present if one upload takes all assets of the stage before. */
  readonly inputs?: 'all' | undefined;
}

/** The later stages that the routes put after a route. Each stands behind the one that it comes after. */
export function planAfter(routes: readonly Route[], name: string): readonly PlannedStage[] {
  const plan: PlannedStage[] = [];
  const known = new Set([name]);
  // The loop also reaches the names that are added on the way.
  for (const before of known) {
    for (const { name: route, inputs } of routesAfter(routes, before)) {
      if (known.has(route)) continue;
      known.add(route);
      plan.push({ route, after: before, ...(inputs === 'all' && { inputs }) });
    }
  }
  return plan;
}

/** A plan, with what an earlier one of the same chain has beside it. */
export function joinedPlans(
  plan: readonly PlannedStage[],
  earlier: readonly PlannedStage[] = [],
): readonly PlannedStage[] {
  const known = new Set(plan.map(({ route }) => route));
  return [...plan, ...earlier.filter(({ route }) => !known.has(route))];
}

/** The names of the stages that lead to a stage of a plan, the first one first, that one included. */
export const stagesTo = (plan: readonly PlannedStage[], name: string): readonly string[] =>
  wayTo(name, (stage) => plan.find(({ route }) => route === stage)?.after);

/** The part of a plan that comes after a stage. */
export const planBehind = (plan: readonly PlannedStage[], name: string): readonly PlannedStage[] =>
  plan.filter(({ route }) => route !== name && stagesTo(plan, route).includes(name));

/** The present route of a planned stage. Undefined if the configuration has no later stage of that name any more. */
export const laterRoute = (routes: readonly Route[], name: string): Route | undefined =>
  routes.find((route) => route.name === name && route.after !== undefined);

/** The routes of the chain that leads to a route, the first one first. */
export const pathTo = (routes: readonly Route[], route: Route): readonly Route[] =>
  wayTo(route, ({ after }) => routes.find(({ name }) => name === after));

/** The way that leads to the last of a chain, from its first on. Ends where a circle begins anew. */
function wayTo<T>(last: T, before: (one: T) => T | undefined): readonly T[] {
  const way: T[] = [];
  for (let one: T | undefined = last; one !== undefined && !way.includes(one); one = before(one)) way.unshift(one);
  return way;
}

/**
 * Tells whether an asset meets the conditions of a later stage. Its prefixes are compared with the key of the chain's
 * first file, its suffixes with the key of the asset.
 */
export const matchesAsset = (
  route: Route,
  firstKey: string,
  asset: { readonly key: string; readonly mediaType: string },
): boolean =>
  matchesKey({ prefixes: route.prefixes }, firstKey) &&
  matchesKey({ suffixes: route.suffixes }, asset.key) &&
  matchesObject(route, asset);

/** Names what is wrong with the chains that routes make. */
export function issuesOfChains(routes: readonly Route[]): readonly RouteIssue[] {
  return routes.flatMap((route, index) => [
    ...issuesOfMembers(route).map((issue) => ({ index, ...issue })),
    ...issuesOfAfter(route, routes).map((issue) => ({ index, member: 'after' as const, ...issue })),
  ]);
}

/** Members that a route must not have beside what else it says, and why. */
function issuesOfMembers(route: Route): readonly Omit<RouteIssue, 'index'>[] {
  const { after, inputs, allow, overrides, afterSuccess, settleSeconds, review, reviewHours } = route;
  const isLater = after !== undefined;
  const rules: readonly (readonly [isBroken: boolean, keyof Route, message: string])[] = [
    [inputs !== undefined && !isLater, 'inputs', 'only beside "after", the name of the route before'],
    [allow !== undefined && inputs !== 'all', 'allow', 'only beside "inputs": "all"'],
    [overrides === true && isLater, 'overrides', 'only without "after": an asset has no metadata of yours'],
    [
      afterSuccess !== undefined && isLater,
      'afterSuccess',
      'only without "after": the first route of the chain says what becomes of the file',
    ],
    [review === true && !isLater, 'review', 'only beside "after": what a route made before is looked at'],
    [reviewHours !== undefined && review !== true, 'reviewHours', 'only beside "review": true'],
    [settleSeconds !== undefined && isLater, 'settleSeconds', 'only without "after": an asset does not change'],
  ];
  return rules.flatMap(([isBroken, member, message]) =>
    isBroken ? { member, message: `expected it ${message}` } : [],
  );
}

function issuesOfAfter(route: Route, routes: readonly Route[]): readonly Pick<RouteIssue, 'message' | 'hint'>[] {
  const { name, after } = route;
  if (after === undefined) return [];
  if (!routes.some((each) => each.name === after)) {
    const others = routes.filter((each) => each !== route).map((each) => each.name);
    const meant = didYouMean(after, others);
    const message = 'expected the name of another route';
    return [meant === undefined ? { message } : { message, hint: `. Did you mean ${meant}?` }];
  }
  const path = pathTo(routes, route);
  const first = path[0];
  if (first?.after !== undefined) {
    // Routes that only lead to a circle are not at fault.
    const isInCircle = first.after === name;
    const circle = [...path, first].map((each) => each.name).join(', then ');
    const message = 'expected a chain that begins with a route without "after"';
    return isInCircle ? [{ message, hint: `. This is a circle: ${circle}.` }] : [];
  }
  if (path.length <= STAGES_MAX) return [];
  const stages = path.map((each) => each.name).join(', then ');
  const message = `expected a chain of at most ${STAGES_MAX} stages`;
  return [{ message, hint: `. This one has ${path.length}: ${stages}.` }];
}
