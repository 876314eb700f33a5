import type { Entry } from '../../../functions/ledger/entry.ts';
import { demand } from '../demand.ts';
import { flowTagOf } from '../flow-tag.ts';
import type { Caps, HoldState, Post } from '../hold-watch.ts';
import { LEDGER } from '../names.ts';
import { firstNameOf, routeNameFor } from '../storm-routes.ts';
import { MINUTE, SECOND } from '../timeline.ts';
import type { World } from '../world.ts';
import { SECOND_FLOW_LINES } from './flows.ts';

/** How long a function may not know of a hold, in milliseconds. */
const UNKNOWN_MS = 3 * SECOND;

/** Time between two trials of a failing route, in milliseconds, less than clocks may differ. */
const TRIAL_EVERY_MS = 50 * MINUTE;

/** How long an invocation may repeat a request, in milliseconds. */
const TRIAL_MS_MAX = 15 * MINUTE;

/** Answers that surely mean that no flow was made. */
const REFUSALS: readonly (number | undefined)[] = [400, 401, 402, 413, 415, 422, 429];

/** Checks what the service got, by what the ledger said of holds at that time. */
export function checkHolds(world: World): void {
  if (world.holdWatch === undefined) return;
  checkCaps(world);
  const posts = world.holdWatch.posts.filter(({ lambda, route }) => !lambda.wasFrozen && route !== 'text');
  for (const post of posts) checkPost(world, post);
}

/** A flow that was made, and when it can have been counted. */
interface Made {
  readonly route: string;
  /** The first request of its generation, less the time from a count to its request. */
  readonly from: number;
  /** The request that made it. */
  readonly to: number;
  /** True if its route is gone while it is in doubt. Then only the cap of the pipeline counts. */
  readonly isRouteGone: boolean;
}

/** Longest time from a count to the request, in milliseconds, unless processes are frozen for longer than claims hold. */
const COUNT_TO_REQUEST_MS = 2 * MINUTE;
const FROZEN_MS = 60 * MINUTE;

/** No more flows were made in a day than the highest cap of that day allows. */
function checkCaps(world: World): void {
  const { service, scenario, holdWatch, observed } = world;
  const { timezone = 'UTC' } = scenario.holds ?? {};
  const { skewMs, isSkewWild } = scenario;
  const day = (at: number): string => new Date(at).toLocaleDateString('en-CA', { timeZone: timezone });
  const caps = holdWatch?.caps ?? [];
  const earlierMs = observed.wasAnyFrozen || isSkewWild ? FROZEN_MS : COUNT_TO_REQUEST_MS;
  const made = service.flows.flatMap((flow): Made[] => {
    const tag = flowTagOf(flow);
    if (tag === undefined || tag.pipeline === 'another') return [];
    const key = `${tag.upload}.${tag.generation}`;
    const posts = holdWatch?.posts.filter((one) => one.key === key && one.at <= flow.createdAt) ?? [];
    const [first, last] = [posts[0], posts.at(-1)];
    if (first === undefined || last === undefined) return [];
    const { route, isInDoubt, routes } = last;
    const isRouteGone = isInDoubt && !routes.some(({ name }) => name === route);
    return [{ route, from: first.at - earlierMs, to: last.at, isRouteGone }];
  });
  // Close to midnight it depends on the clock of a process to which day it belongs.
  const isSure = ({ from, to }: Made): boolean => day(from - skewMs) === day(to + skewMs);
  const check = (all: readonly Made[], most: (caps: Caps) => number | undefined, what: string): void => {
    const capBy = (last: number): number =>
      Math.max(...caps.filter(({ at }) => at <= last).map((each) => most(each) ?? Number.POSITIVE_INFINITY));
    const demandIn = (flows: readonly Made[], cap: number): void =>
      demand(flows.length <= cap, 'more flows were made than a budget allows', what, cap, flows);
    for (const flows of Map.groupBy(all.filter(isSure), ({ to }) => day(to)).values()) {
      demandIn(flows, capBy(Math.max(...flows.map(({ to }) => to))));
    }
    // Whatever the day, all days together have no more than all their caps.
    const times = all.flatMap(({ from, to }) => [from - skewMs, to + skewMs]);
    const sum = [...Map.groupBy(times, day).values()].reduce((before, each) => before + capBy(Math.max(...each)), 0);
    demandIn(all, sum);
  };
  check(made, ({ pipeline }) => pipeline, 'the pipeline');
  for (const [route, all] of Map.groupBy(made, (one) => one.route)) {
    const capped = all.filter(({ isRouteGone }) => !isRouteGone);
    // A deployment without the route allows nothing.
    check(capped, (each) => (each.names.includes(route) ? capOf(each, route) : 0), route);
  }
}

/** The cap of a route. Undefined if there is none, or no such route. */
const capOf = ({ names, routes }: Caps, route: string): number | undefined =>
  names.includes(route) ? routes[firstNameOf(route)] : undefined;

/** The states of the last seconds before a time, and the state at that time. */
function statesBefore({ holdWatch }: World, at: number): readonly HoldState[] {
  const none: HoldState = { pipeline: {}, routes: {}, costs: {} };
  const states = [{ at: 0, state: none }, ...(holdWatch?.states ?? [])];
  const first = states.findLastIndex((one) => one.at <= at - UNKNOWN_MS);
  return states.slice(first).flatMap((one) => (one.at <= at ? [one.state] : []));
}

function isHeld({ pipeline, routes }: HoldState, { route, isLate, at, routes: known }: Post): boolean {
  // What is in doubt keeps a route that is gone. The pause of such a route holds nothing.
  const { paused, failing } = (known.some(({ name }) => name === route) && routes[route]) || {};
  if ((pipeline.paused ?? paused) !== undefined) return true;
  return isLate && failing !== undefined && at - (failing.triedAt ?? failing.since) < TRIAL_EVERY_MS;
}

/** Nothing is sent that was held for some seconds, apart from the trial of a failing route. */
function checkPost(world: World, post: Post): void {
  const states = statesBefore(world, post.at);
  const { lambda, ...facts } = post;
  const isTrial = world.holdWatch?.posts.some(
    (one) => one.lambda === lambda && one.key === post.key && one.at < post.at && one.at > post.at - TRIAL_MS_MAX,
  );
  const isSent = isTrial !== true && states.every((state) => isHeld(state, post));
  demand(!isSent, 'a held upload was sent', lambda.name, facts, states);
  const { upload, routes, route, isInDoubt } = post;
  if (upload === undefined || isInDoubt) return;
  const { stage } = upload;
  const present =
    stage === undefined ? routeNameFor(routes, upload.key) : routes.find(({ name }) => name === stage.route)?.name;
  demand(route === present, 'an upload was sent by another route than the present one', lambda.name, facts, present);
}

/** Lines after which a flow that was not made stays counted. */
const STAYS_COUNTED_LINES = ['Flows that were not made could not be uncounted', 'S3 does not hand out the holds'];

/** When all is well, each flow of a capped route is counted. No other is, apart from what may have been made. */
export async function checkCountAtRest(world: World, entries: readonly Entry[]): Promise<void> {
  const { holdWatch, service, observed, inspector } = world;
  if (holdWatch === undefined || holdWatch.states.length === 0) return;
  if (observed.expired.size > 0 || observed.damaged !== undefined || world.scenario.areRetried) return;
  const flows = service.flows.filter((flow) => ![undefined, 'another'].includes(flowTagOf(flow)?.pipeline));
  const capped = flows.filter((flow) => {
    const tag = flowTagOf(flow);
    const key = `${tag?.upload}.${tag?.generation}`;
    return holdWatch.posts.findLast((one) => one.key === key && one.at <= flow.createdAt)?.isCapped === true;
  });
  const { costs } = await inspector.json<HoldState>(LEDGER, 'state/holds.json');
  const moved = (await inspector.list(LEDGER, 'state/costs/')).map(({ key }) =>
    inspector.json<HoldState['costs'][string]>(LEDGER, key),
  );
  const counted = [...Object.values(costs), ...(await Promise.all(moved))]
    .flatMap((day) => Object.values(day))
    .reduce((sum, totals) => sum + totals.flows, 0);
  demand(counted >= capped.length, 'a flow was made that nobody had counted', { counted }, capped);
  const { stats, wasAnyFrozen, logged } = observed;
  const staysCounted = logged.some(({ message, fields }) =>
    STAYS_COUNTED_LINES.some((line) => `${message} ${(fields.error as Error | undefined)?.message}`.includes(line)),
  );
  // An invocation may have given up on a count that took effect later.
  const mayBeLate = 'hold.put × late' in world.faultPlan.table;
  if (stats.kills > 0 || wasAnyFrozen || staysCounted || mayBeLate) return;
  const held = entries.filter(({ state }) => state === 'waiting');
  const unclear = holdWatch.posts.filter(({ status = 0 }) => status >= 300 && !REFUSALS.includes(status)).length;
  const unanswered = holdWatch.posts.filter(({ status }) => status === undefined).length;
  const resent = logged.filter(({ message }) => message.startsWith(SECOND_FLOW_LINES.resent)).length;
  const most = flows.length + unclear + unanswered + resent + held.length;
  demand(counted <= most, 'more flows are counted than can have been made', { counted, most }, costs);
}
