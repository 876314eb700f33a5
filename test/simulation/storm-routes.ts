import type { Route } from '../../functions/uploads/route.ts';
import { NEXT_RESULTS } from './names.ts';
import { beginAdded } from './operator.ts';
import type { Random } from './random.ts';
import type { Scenario } from './scenario.ts';
import { corrected } from './scenario.ts';
import { deployCaps } from './storm-holds.ts';
import { MINUTE } from './timeline.ts';
import type { World } from './world.ts';

/** Share of the storms with holds in which the routes of the inbox change. */
const SHARE = 0.5;

/** The routes that change. Flows of each make assets, so that a file may end well with any of them. */
const CHANGING = ['echo', 'two', 'odd', 'jobs'];

/** A customer with a route of its own, whose files another route takes if that is gone. */
export const CUSTOMER = 'anna';

/** Stands between the name that a route had at first and the number of its renaming. */
const RENAMED = '~';

/** The name that a route had at first. Caps are set by it. */
export const firstNameOf = (name: string): string => name.split(RENAMED)[0] as string;

/** Routes that are deployed in a storm, in milliseconds from its beginning. */
export interface RouteChange {
  readonly at: number;
  /** True if the results go to another bucket from then on. */
  readonly areResultsMoved?: boolean;
  readonly what: string;
  /** The names of stages that were not there before. */
  readonly added?: readonly string[];
  readonly routes: readonly Route[];
}

/**
 * A storm with holds in which routes are renamed, removed and brought back, and give their prefixes to each other. What it
 * draws comes from random numbers of their own.
 */
export function withRouteChanges(storm: Scenario, random: Random): Scenario {
  const isChained = storm.routes.some(({ after }) => after !== undefined);
  if (storm.holds === undefined || isChained || !random.chance(SHARE)) return storm;
  const own: Route = { name: CUSTOMER, prefixes: [`echo/${CUSTOMER}/`], input: 'file', template: 'bytes_echo' };
  let routes: readonly Route[] = random.chance(0.5) ? [own, ...storm.routes] : storm.routes;
  const first = routes;
  const changes: RouteChange[] = [];
  const gone: Route[] = [];
  for (const share of random.some([0.15, 0.35, 0.5, 0.65, 0.8], 0.5)) {
    const candidates = routes.filter(({ name }) => [...CHANGING, CUSTOMER].includes(firstNameOf(name)));
    const route = random.pick(candidates);
    const kind = random.pick(['rename', 'rename', 'remove', 'give', 'bring back'] as const);
    const other = random.pick(candidates.filter(({ prefixes }) => prefixes !== undefined));
    if (kind === 'rename') {
      const name = `${firstNameOf(route.name)}${RENAMED}${changes.length + 1}`;
      routes = routes.map((each) => (each === route ? { ...each, name } : each));
    } else if (kind === 'remove' && candidates.length > 1) {
      routes = routes.filter((each) => each !== route);
      gone.push(route);
    } else if (kind === 'give' && route !== other && route.prefixes !== undefined) {
      const [prefixes, none] = [[...(other.prefixes ?? []), ...route.prefixes], [`nowhere/${route.name}/`]];
      routes = routes.map((each) => {
        if (each === route) return { ...each, prefixes: none };
        return each === other ? { ...each, prefixes } : each;
      });
    } else if (gone.length > 0) routes = [...routes, gone.pop() as Route];
    changes.push({ at: share * storm.chaosMs, what: `${kind} ${route.name}`, routes });
  }
  return { ...storm, routes: first, routeChanges: changes };
}

/** Share of the storms with chains in which the routes of later stages change. */
const CHAINED_SHARE = 0.5;

/** A storm whose later stages are renamed, removed, brought back, and put after other routes. */
export function withStageChanges(storm: Scenario, random: Random): Scenario {
  const isStage = ({ after }: Route): boolean => after !== undefined;
  if (!storm.routes.some(isStage) || storm.isOperated || !random.chance(CHAINED_SHARE)) return storm;
  let routes = storm.routes;
  const changes: RouteChange[] = [];
  for (const share of random.some([0.05, 0.2, 0.4, 0.6], 0.5)) {
    const later = routes.filter(isStage);
    // Stages of a third step are in a plan long before they begin.
    const third = later.filter(({ after }) => later.some(({ name }) => name === after));
    const stages = third.length > 0 && random.chance(0.5) ? third : later;
    const kind = stages.length === 0 ? 'bring back' : random.pick(['rename', 'remove', 'move', 'bring back'] as const);
    const stage = random.pick(stages.length === 0 ? routes : stages);
    if (kind === 'rename') {
      const name = `${firstNameOf(stage.name)}${RENAMED}${changes.length + 1}`;
      routes = routes.map((each) => {
        if (each === stage) return { ...each, name };
        return each.after === stage.name ? { ...each, after: name } : each;
      });
    } else if (kind === 'remove') {
      // What comes after it goes too.
      routes = routes.filter((each) => each !== stage && each.after !== stage.name);
    } else if (kind === 'move') {
      const after = random.pick(storm.routes.filter((each) => !isStage(each))).name;
      routes = routes.map((each) => (each === stage ? { ...each, after } : each));
    } else {
      // As they were at first. First files have kept their routes.
      routes = storm.routes;
    }
    const areResultsMoved = random.chance(0.15);
    changes.push({ at: share * storm.chaosMs, what: `${kind} ${stage.name}`, routes, areResultsMoved });
  }
  return { ...storm, routeChanges: changes };
}

/** When the operator begins the stages that were added, after their deployment, in milliseconds. */
const ADDED_STAGES_WAITS_MS = [MINUTE, 4 * MINUTE, 12 * MINUTE];

/** Share of the operated storms with chains in which stages are added later. */
const ADDED_SHARE = 0.4;

/**
 * A storm in which a stage after some routes, and what comes after that, is deployed while files have succeeded already. The
 * operator begins it in their chains.
 */
export function withAddedStages(storm: Scenario, random: Random): Scenario {
  const { routes } = storm;
  const firsts = routes.filter(({ after, name }) => after === undefined && routes.some((each) => each.after === name));
  const isFree = storm.isOperated && storm.routeChanges === undefined;
  if (!isFree || firsts.length === 0 || !random.chance(ADDED_SHARE)) return storm;
  const missing = new Set<string>();
  for (const { name } of random.some(firsts, 0.7)) {
    missing.add(random.pick(routes.filter(({ after }) => after === name)).name);
  }
  // What comes after a missing stage is missing too. Each stage stands behind the one that it comes after.
  for (const { name, after } of routes) if (after !== undefined && missing.has(after)) missing.add(name);
  const at = random.pick([0.15, 0.3, 0.5, 0.7]) * storm.chaosMs;
  const change = { at, what: `add ${[...missing].join()}`, routes, added: [...missing] };
  return { ...storm, routes: routes.filter(({ name }) => !missing.has(name)), routeChanges: [change] };
}

/** Tells whether these routes want a file. @returns the name of the route. */
export function routeNameFor(routes: readonly Route[], key: string): string | undefined {
  const owner = routes.find(({ jobs }) => jobs !== undefined && key.startsWith(jobs));
  if (owner !== undefined) return key.endsWith('/job.json') ? owner.name : undefined;
  const fits = ({ prefixes = [], after, jobs }: Route): boolean =>
    after === undefined && jobs === undefined && prefixes.some((prefix) => key.startsWith(prefix));
  return routes.find(fits)?.name;
}

function deployRoutes(world: World, routes: readonly Route[]): void {
  if (world.holdWatch !== undefined) {
    deployCaps(world, undefined, routes);
    return;
  }
  world.settings = { ...world.settings, routes };
  world.observed.routings.push(routes);
  world.processes.replaceAll();
}

/** Schedules the deployments of other routes. @param start when the storm begins, in milliseconds since the epoch. */
export function scheduleRouteChanges(world: World, start: number): void {
  const { timeline, scenario } = world;
  for (const { at, what, routes, areResultsMoved, added = [] } of scenario.routeChanges ?? []) {
    for (const wait of added.length === 0 ? [] : ADDED_STAGES_WAITS_MS) {
      timeline.schedule(start + at + wait, () => void beginAdded(world, added));
    }
    timeline.schedule(start + at, () => {
      if (areResultsMoved) world.settings = { ...world.settings, resultsBucket: NEXT_RESULTS };
      world.trace(`the operator: deploy routes: ${what}`);
      deployRoutes(world, world.observed.deployedAt.has('route') ? corrected(routes) : routes);
    });
  }
}
