import type { Entry } from '../../../functions/ledger/entry.ts';
import { demand } from '../demand.ts';
import { flowTagOf } from '../flow-tag.ts';
import type { Caps, Counted, HoldState, Post } from '../hold-watch.ts';
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

/** No more flows were counted in a day than the highest cap of that day allows. Each flow was counted before. */
function checkCaps(world: World): void {
  const { service, scenario, holdWatch, observed } = world;
  const { timezone = 'UTC' } = scenario.holds ?? {};
  const { skewMs, isSkewWild } = scenario;
  const day = (at: number): string => new Date(at).toLocaleDateString('en-CA', { timeZone: timezone });
  const caps = holdWatch?.caps ?? [];
  const isStrict = !observed.wasAnyFrozen && !isSkewWild;
  const made: Counted[] = [];
  // What is in doubt keeps a route that is gone. Then only the cap of the pipeline counts.
  const uncapped = new Set<Counted>();
  for (const flow of service.flows) {
    const tag = flowTagOf(flow);
    if (tag === undefined || tag.pipeline === 'another') continue;
    const key = `${tag.upload}.${tag.generation}`;
    const post = holdWatch?.posts.findLast((one) => one.key === key && one.at <= flow.createdAt);
    const { route = '', at = flow.createdAt } = post ?? {};
    const mayBeFree = caps.some(
      (each) => each.at <= flow.createdAt && each.pipeline === undefined && capOf(each, route) === undefined,
    );
    // Of two processes that both take a claim for theirs, one may end what the other has counted.
    const open = statesBefore(world, at).at(-1)?.reservations[key];
    const isAny = open === undefined && !isStrict && !mayBeFree;
    const counted = holdWatch?.counted.findLast(
      (one) => one.key === key && one.at <= at && (isAny || one.nonce === open?.nonce),
    );
    demand(counted !== undefined || mayBeFree, 'a flow was made that nobody had counted', flow);
    // What was counted stays open while it is in doubt. Without a cap, the next attempt counts nothing.
    const isFree = mayBeFree && made.some((one) => one === counted);
    if (counted !== undefined && !isFree) made.push(counted);
    const isRouteGone = post?.isInDoubt === true && !post.routes.some(({ name }) => name === route);
    if (counted !== undefined && isRouteGone) uncapped.add(counted);
  }
  // Otherwise two of them send for one count.
  const paid = isStrict ? made : [...new Set(made)];
  // Close to midnight it depends on the clock of a process to which day it belongs.
  const isSure = ({ at }: Counted): boolean => day(at - skewMs) === day(at + skewMs);
  const check = (all: readonly Counted[], most: (caps: Caps) => number | undefined, what: string): void => {
    const capBy = (last: number): number =>
      Math.max(...caps.filter(({ at }) => at <= last).map((each) => most(each) ?? Number.POSITIVE_INFINITY));
    const demandIn = (counted: readonly Counted[], cap: number): void =>
      demand(counted.length <= cap, 'more flows were made than a budget allows', what, cap, counted);
    for (const counted of Map.groupBy(all.filter(isSure), ({ at }) => day(at)).values()) {
      demandIn(counted, capBy(Math.max(...counted.map(({ at }) => at))));
    }
    // Whatever the day, all days together have no more than all their caps.
    const times = all.flatMap(({ at }) => [at - skewMs, at + skewMs]);
    const sum = [...Map.groupBy(times, day).values()].reduce((before, each) => before + capBy(Math.max(...each)), 0);
    demandIn(all, sum);
  };
  check(paid, ({ pipeline }) => pipeline, 'the pipeline');
  for (const [route, all] of Map.groupBy(paid, (one) => one.route)) {
    const capped = all.filter((one) => !uncapped.has(one));
    // A deployment without the route allows nothing.
    check(capped, (each) => (each.names.includes(route) ? capOf(each, route) : 0), route);
  }
}

/** The cap of a route. Undefined if there is none, or no such route. */
const capOf = ({ names, routes }: Caps, route: string): number | undefined =>
  names.includes(route) ? routes[firstNameOf(route)] : undefined;

/** The states of the last seconds before a time, and the state at that time. */
function statesBefore({ holdWatch }: World, at: number): readonly HoldState[] {
  const none: HoldState = { pipeline: {}, routes: {}, reservations: {} };
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

/** An hour after all is well, nothing is counted that was not made, apart from what may have been. */
export async function checkCountAtRest(world: World, entries: readonly Entry[]): Promise<void> {
  const { holdWatch, service, observed, inspector } = world;
  if (holdWatch === undefined || holdWatch.states.length === 0) return;
  const { reservations, pipeline } = await inspector.json<HoldState>(LEDGER, 'state/holds.json');
  const held = entries.filter(({ state }) => state === 'waiting').map(({ upload }) => upload.id);
  const open = Object.keys(reservations).filter((key) => !held.some((id) => key.startsWith(id)));
  demand(open.length === 0 || observed.damaged !== undefined, 'a reservation is left open', open, reservations);
  if (observed.expired.size > 0 || observed.damaged !== undefined || world.scenario.areRetried) return;
  const flows = service.flows.filter((flow) => ![undefined, 'another'].includes(flowTagOf(flow)?.pipeline));
  const unclear = holdWatch.posts.filter(({ status = 0 }) => status >= 300 && !REFUSALS.includes(status)).length;
  const unanswered = holdWatch.posts.filter(({ status }) => status === undefined).length;
  const resent = observed.logged.filter(({ message }) => message.startsWith(SECOND_FLOW_LINES.resent)).length;
  const most = flows.length + unclear + unanswered + resent + held.length;
  const counted = [pipeline.spent, ...(pipeline.earlier ?? [])].reduce((sum, spent) => sum + (spent?.flows ?? 0), 0);
  demand(counted <= most, 'more flows are counted than can have been made', { counted, most }, pipeline);
}
