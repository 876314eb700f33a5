import { didYouMean } from '../base/did-you-mean.ts';
import { matchesKey, matchesObject } from './route-conditions.ts';
import type { Route } from './routes.ts';

/** Maximum number of stages of a chain, the first one included. */
export const STAGES_MAX = 8;

/** Maximum number of assets that one flow gets as its inputs, if a route takes all assets of a stage together. */
export const INPUTS_MAX = 1_000;

/** The routes that come directly after a route. */
export const routesAfter = (routes: readonly Route[], name: string): readonly Route[] =>
  routes.filter(({ after }) => after === name);

/** The routes of the chain that leads to a route, the first one first. */
export function pathTo(routes: readonly Route[], route: Route): readonly Route[] {
  const path: Route[] = [];
  let each: Route | undefined = route;
  while (each !== undefined && !path.includes(each)) {
    path.unshift(each);
    const after: string | undefined = each.after;
    each = routes.find(({ name }) => name === after);
  }
  return path;
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

/** What is wrong with a member of one route, beside its other members or other routes. */
export interface RouteIssue {
  readonly index: number;
  readonly member: keyof Route;
  readonly message: string;
  /** Sentences that follow the value in a message. */
  readonly hint?: string;
}

/** Names what is wrong with the chains that routes make. */
export function issuesOfChains(routes: readonly Route[]): readonly RouteIssue[] {
  return routes.flatMap((route, index) => [
    ...issuesOfMembers(route).map((issue) => ({ index, ...issue })),
    ...issuesOfAfter(route, routes).map((issue) => ({ index, member: 'after' as const, ...issue })),
  ]);
}

function issuesOfMembers({ after, inputs, allow, overrides }: Route): readonly Omit<RouteIssue, 'index'>[] {
  const issues: Omit<RouteIssue, 'index'>[] = [];
  if (inputs !== undefined && after === undefined) {
    issues.push({ member: 'inputs', message: 'expected it only beside "after", the name of the route before' });
  }
  if (allow !== undefined && inputs !== 'all') {
    issues.push({ member: 'allow', message: 'expected it only beside "inputs": "all"' });
  }
  if (overrides === true && after !== undefined) {
    issues.push({
      member: 'overrides',
      message: 'expected it only without "after": an asset has no metadata of yours',
    });
  }
  return issues;
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
