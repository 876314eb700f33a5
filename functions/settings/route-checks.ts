import mime from 'mime';
import { shorten } from '../base/validation.ts';
import { pathTo } from '../uploads/chain-routes.ts';
import { type Conditions, covers, withinPrefix } from '../uploads/route-conditions.ts';
import type { Route } from '../uploads/routes.ts';

/*
 * Checks of routes that are valid one by one. They run at synth and at the start of the local run, and not in the
 * functions: what is deployed goes on.
 */

/**
 * Maximum number of combinations of one route's values that are checked one by one. With more, it is checked as a
 * whole.
 */
const COMBINATIONS_MAX = 5_000;

/** A route that can never match, by its index. */
export interface DeadRoute {
  readonly index: number;
  readonly message: string;
}

/**
 * Names the routes that can never match, because earlier ones take every upload that they could, or because they want
 * keys outside of the inbox. The later stages of chains take no uploads of the inbox. They are named if their prefixes
 * and those of the stages before have no key in common. A route that can match is never named.
 * @param routes undefined stands for a route that cannot be read.
 */
export function deadRoutes(routes: readonly (Route | undefined)[], inboxPrefix: string): DeadRoute[] {
  const conditions = routes.map((route) => route && withinPrefix(keysOf(route), inboxPrefix));
  return routes.flatMap((route, index) => {
    if (route === undefined) return [];
    const wanted = conditions[index];
    if (wanted === undefined) {
      return [{ index, message: `can never match: expected a prefix inside of inboxPrefix, ${shorten(inboxPrefix)}` }];
    }
    if (route.after !== undefined) return deadStage(routes, index, inboxPrefix);
    if (route.jobs !== undefined) return [];
    const earlier = conditions.map((each, at) => {
      const isEarlier = routes[at]?.jobs !== undefined || (at < index && routes[at]?.after === undefined);
      return isEarlier ? each : undefined;
    });
    const takers = takersOf(wanted, earlier);
    if (takers === undefined) return [];
    const names = namesOf(routes, takers);
    const verb = takers.length === 1 ? 'takes' : 'take';
    if (takers.some((at) => routes[at]?.jobs !== undefined)) {
      const why = 'A route with "jobs" owns all keys below that prefix.';
      return [{ index, message: `can never match: ${names} ${verb} all that it could. ${why}` }];
    }
    const them = takers.length === 1 ? 'it' : 'them';
    const todo = `Put ${shorten(route.name)} before ${them}, or remove it.`;
    return [{ index, message: `can never match: ${names} before it ${verb} all that it could. ${todo}` }];
  });
}

/** What a route asks of a key, and of the object there. */
const keysOf = (route: Route): Conditions => (route.jobs === undefined ? route : { prefixes: [route.jobs] });

const namesOf = (routes: readonly (Route | undefined)[], indices: readonly number[]): string =>
  indices.map((at) => `routes[${at}] (${shorten(routes[at]?.name)})`).join(' and ');

/** Names a later stage if no key of a first file fits it and all stages before it. */
function deadStage(routes: readonly (Route | undefined)[], index: number, inboxPrefix: string): DeadRoute[] {
  const readable = routes.filter((route) => route !== undefined);
  const path = pathTo(readable, routes[index] as Route);
  // A route of the chain is missing or cannot be read, which is told elsewhere.
  if (path[0]?.after !== undefined) return [];
  const before = path.slice(0, -1);
  // If nothing fits the stages before, one of them is named, and this one is not at fault.
  if (startsOf(before, inboxPrefix).length === 0 || startsOf(path, inboxPrefix).length > 0) return [];
  const limiting = before.filter((route) => keysOf(route).prefixes !== undefined).map((route) => routes.indexOf(route));
  const names = namesOf(routes, limiting);
  const verb = limiting.length === 1 ? 'leaves' : 'leave';
  const why = `its prefixes are compared with the key of the first file, and ${names} before it ${verb} no key for them`;
  return [{ index, message: `can never match: ${why}` }];
}

/** The beginnings of all keys that fit the prefixes of each of these routes. */
function startsOf(routes: readonly Route[], inboxPrefix: string): readonly string[] {
  return routes.reduce<readonly string[]>(
    (starts, route) => [...new Set(starts.flatMap((start) => withinPrefix(keysOf(route), start)?.prefixes ?? []))],
    [inboxPrefix],
  );
}

/** The earlier routes that together take all that a route could. Undefined if something is left for it. */
function takersOf(wanted: Conditions, earlier: readonly (Conditions | undefined)[]): readonly number[] | undefined {
  const takers = new Set<number>();
  for (const each of combinationsOf(wanted)) {
    const taker = earlier.findIndex((one) => one !== undefined && covers(one, each));
    if (taker === -1) return undefined;
    takers.add(taker);
  }
  return [...takers].sort((one, other) => one - other);
}

/** The conditions with one value each. A route matches what any combination matches. */
function combinationsOf(conditions: Conditions): readonly Conditions[] {
  const lists = Object.entries(conditions).filter((each): each is [keyof Conditions, readonly string[]] => !!each[1]);
  if (lists.reduce((product, [, values]) => product * values.length, 1) > COMBINATIONS_MAX) return [conditions];
  return lists.reduce<readonly Conditions[]>(
    (all, [name, values]) => all.flatMap((each) => values.map((value) => ({ ...each, [name]: [value] }))),
    [{}],
  );
}

/**
 * Names what is most likely a mistake in a route that can match all the same. A suffix may well have no dot, and a
 * client may send any `Content-Type`. So these are warnings.
 */
export function warningsOfRoutes(routes: readonly Route[], where: string): string[] {
  return routes.flatMap(({ suffixes = [], mediaTypes = [], after }, index) => [
    ...suffixes.flatMap((suffix, at) => warningOfSuffix(suffix, `${where}[${index}].suffixes[${at}]`)),
    ...mediaTypes.flatMap((type, at) =>
      warningOfMediaType(type, `${where}[${index}].mediaTypes[${at}]`, after !== undefined),
    ),
  ]);
}

function warningOfSuffix(suffix: string, path: string): string[] {
  const isExtension = /^[a-z0-9]+$/i.test(suffix) && mime.getType(`.${suffix}`) !== null;
  if (!isExtension) return [];
  return [`${path}: ${shorten(suffix)} also fits the end of a name such as my${shorten(suffix)}. Say .${suffix}.`];
}

function warningOfMediaType(type: string, path: string, isLaterStage: boolean): string[] {
  if (type.includes('*') || mime.getExtension(type) !== null) return [];
  const [kind = '', subtype = ''] = type.toLowerCase().split('/');
  // People take an extension for a subtype: image/jpg, text/txt, image/svg.
  const meant = mime.getType(`.${subtype.replace(/^x-/, '')}`);
  const hint = meant?.startsWith(`${kind}/`) ? ` Did you mean ${meant}?` : '';
  const what = isLaterStage ? 'asset that the service gives this type' : 'upload with this Content-Type';
  return [`${path}: no extension of a file name stands for ${shorten(type)}, so only an ${what} fits.${hint}`];
}
