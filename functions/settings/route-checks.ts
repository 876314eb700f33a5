import { didYouMean } from '../base/did-you-mean.ts';
import {
  extensionOf,
  FORM,
  isInUse,
  OCTET_STREAM,
  registeredType,
  typeByExtension,
  typeOfName,
} from '../base/media-type.ts';
import { amountOf, amountText, microsOf } from '../base/money.ts';
import { counted, quoted, shorten } from '../base/printable.ts';
import type { Budget } from '../uploads/budget.ts';
import { pathTo } from '../uploads/chain-routes.ts';
import type { Route } from '../uploads/route.ts';
import { type Conditions, covers, withinPrefix } from '../uploads/route-conditions.ts';

/*
 * Checks of routes that are valid one by one. They run at synth and at the start of the local run, and not in the
 * functions: what is deployed goes on.
 */

/**
 * Maximum number of combinations of one route's values that are checked one by one. With more, it is checked as a
 * whole.
 */
const COMBINATIONS_MAX = 5_000;

/**
 * The kinds of media types: those that are registered, and `chemical`, which is widely used. A kind that begins with
 * `x-` is one of its users.
 * @see https://www.iana.org/assignments/top-level-media-types
 */
const KINDS: readonly string[] = [
  ...['application', 'audio', 'chemical', 'example', 'font', 'haptics', 'image', 'message', 'model', 'multipart'],
  ...['text', 'video'],
];

/** What a path of another kind has before the key: the address of a bucket, a slash, or the folder that one is in. */
const BEFORE_KEY = /^(?:s3:\/\/[^/]*|\.{0,2}\/)+\/*/i;

/** A member of a route that nothing can meet. */
export interface DeadMember {
  /** The path of the member in its route. */
  readonly path: readonly ['prefixes' | 'suffixes' | 'mediaTypes', number] | readonly ['jobs'];
  readonly message: string;
}

/** Names the conditions of a route that nothing can meet, whatever its other conditions and the other routes are. */
export function deadMembers({ prefixes, suffixes, mediaTypes, jobs }: Partial<Route>): readonly DeadMember[] {
  const each = (name: 'prefixes' | 'suffixes' | 'mediaTypes', issueOf: (value: string) => string | undefined) =>
    ({ prefixes, suffixes, mediaTypes })[name]?.flatMap((value, at): DeadMember[] => {
      const message = issueOf(value);
      return message === undefined ? [] : [{ path: [name, at], message }];
    }) ?? [];
  const issueOfJobs = jobs === undefined ? undefined : issueOfPrefix(jobs);
  return [
    ...each('prefixes', issueOfPrefix),
    ...each('suffixes', issueOfSuffix),
    ...each('mediaTypes', issueOfMediaType),
    ...(issueOfJobs === undefined ? [] : [{ path: ['jobs'] as const, message: issueOfJobs }]),
  ];
}

const neverMatches = (why: string, value: string, hint: string): string =>
  `can never match: ${why}, got ${quoted(value)}${hint}`;

const meaning = (meant: string): string =>
  meant === '' ? '. Leave it out, if any will do.' : `. Did you mean ${shorten(meant)}?`;

const NO_PATTERN = 'it is compared as it stands, so an asterisk stands for nothing else';

function issueOfPrefix(prefix: string): string | undefined {
  const own = prefix.replace(BEFORE_KEY, '');
  const meant = own.replace(/\*.*$/s, '');
  if (own !== prefix) {
    return neverMatches('a key begins with the name of its first folder', prefix, meaning(meant));
  }
  return meant === prefix ? undefined : neverMatches(NO_PATTERN, prefix, meaning(meant));
}

function issueOfSuffix(suffix: string): string | undefined {
  const meant = suffix.replace(/^.*\*/s, '');
  return meant === suffix ? undefined : neverMatches(NO_PATTERN, suffix, meaning(meant));
}

function issueOfMediaType(type: string): string | undefined {
  const essence = type.toLowerCase();
  const [kind = '', subtype = ''] = essence.split('/');
  if ([kind, subtype].some((part) => part !== '*' && part.includes('*'))) {
    return neverMatches('an asterisk stands for a whole type or subtype, as in "image/*"', type, '');
  }
  if (essence === FORM) {
    return neverMatches('a file that is put as a form is judged by its extension, and refused', type, '');
  }
  const registered = registeredType(essence);
  // Programs use other names of a type too, and files with these are taken.
  if (registered !== essence && (registered === OCTET_STREAM || !isInUse(essence))) {
    return neverMatches(`this type is read as ${registered}`, type, meaning(registered));
  }
  if (kind === '*' || kind.startsWith('x-') || KINDS.includes(kind)) return undefined;
  const meant = didYouMean(kind, KINDS);
  const hint = meant === undefined ? '' : meaning(`${meant}/${subtype}`);
  return neverMatches(`there is no kind ${JSON.stringify(kind)} of media types`, type, hint);
}

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
  return routes.flatMap(({ prefixes = [], suffixes = [], mediaTypes = [], after }, index) => [
    ...prefixes.flatMap((prefix, at) => warningOfPattern(prefix, `${where}[${index}].prefixes[${at}]`)),
    ...suffixes.flatMap((suffix, at) => warningOfSuffix(suffix, `${where}[${index}].suffixes[${at}]`)),
    ...mediaTypes.flatMap((type, at) =>
      warningOfMediaType(type, `${where}[${index}].mediaTypes[${at}]`, after !== undefined),
    ),
  ]);
}

function warningOfSuffix(suffix: string, path: string): string[] {
  const isExtension = /^[a-z0-9]+$/i.test(suffix) && typeOfName(`.${suffix}`) !== undefined;
  if (!isExtension) return warningOfPattern(suffix, path);
  return [`${path}: ${shorten(suffix)} also fits the end of a name such as my${shorten(suffix)}. Say .${suffix}.`];
}

/** What has a meaning in patterns and lists. A key may have all of it, in any place. */
const OF_PATTERN = /[?|^$\\]|[[{(].*[\]})]|[,;] *\./s;

function warningOfPattern(value: string, path: string): string[] {
  if (!OF_PATTERN.test(value)) return [];
  return [`${path}: ${shorten(value)} is compared as it stands, and is no pattern and no list.`];
}

function warningOfMediaType(type: string, path: string, isLaterStage: boolean): string[] {
  const meant = typeByExtension(type.toLowerCase());
  if (type.includes('*') || (meant === undefined && extensionOf(type) !== '')) return [];
  const hint = meant === undefined ? '' : ` Did you mean ${meant}?`;
  const what = isLaterStage ? 'asset that the service gives this type' : 'upload with this Content-Type';
  return [`${path}: no extension of a file name stands for ${shorten(type)}, so only an ${what} fits.${hint}`];
}

/**
 * Names the members of budgets that can never matter, because another cap always comes first, and the amounts that pay
 * for no flow. They are most likely mistakes.
 */
export function idleBudgets(routes: readonly Route[], pipeline: Budget | 'unlimited'): string[] {
  const all = pipeline === 'unlimited' ? undefined : pipeline;
  return [
    ...(all === undefined ? [] : idleCaps(all, routes, 'the budget of the pipeline')),
    ...routes.flatMap((route) => {
      const whose = `the budget of the route ${shorten(route.name)}`;
      if (route.budget === undefined) return [];
      const own = idleCaps(route.budget, [route], whose);
      return own.length > 0 || all === undefined ? own : idleBesides(route.budget, all, whose);
    }),
  ];
}

/** @param routes those that the budget applies to. */
function idleCaps({ flows, amount, currency }: Budget, routes: readonly Route[], whose: string): string[] {
  const prices = routes.map(({ price }) => (price === undefined ? 0 : microsOf(price.amount)));
  if (amount === undefined || currency === undefined || prices.length === 0) return [];
  const [least, most] = [Math.min(...prices), Math.max(...prices)];
  if (most === 0 && amount > 0) return [`${whose}: amount can never matter, because all prices are 0.`];
  if (amount > 0 && least > microsOf(amount)) {
    const price = amountText(amountOf(least), currency);
    return [`${whose}: every file waits for ever, because amount is less than the price of a flow, ${price}.`];
  }
  if (flows === undefined) return [];
  if (flows * most <= microsOf(amount)) {
    const sum = `${counted(flows, 'flow')} ${flows === 1 ? 'costs' : 'cost'} ${amountText(amountOf(flows * most), currency)} at most`;
    return [`${whose}: amount can never matter, because ${sum}.`];
  }
  if (least > 0 && Math.floor(microsOf(amount) / least) <= flows) {
    const enough = `${amountText(amount, currency)} pay for ${counted(Math.floor(microsOf(amount) / least), 'flow')} at most`;
    return [`${whose}: flows can never matter, because ${enough}.`];
  }
  return [];
}

/** What the pipeline spends in a period includes what the route spends in it. */
function idleBesides(own: Budget, all: Budget, whose: string): string[] {
  const isInside = own.timezone === all.timezone && (own.per === all.per || own.per === 'day');
  if (!isInside) return [];
  const isIdle = (cap: number | undefined, other: number | undefined) =>
    cap !== undefined && other !== undefined && cap >= other;
  const said = (member: string, cap: string) =>
    `${whose}: ${member} can never matter, because the pipeline may spend ${cap} each ${all.per}.`;
  return [
    ...(isIdle(own.flows, all.flows) ? [said('flows', counted(all.flows ?? 0, 'flow'))] : []),
    ...(all.amount !== undefined && all.currency !== undefined && isIdle(own.amount, all.amount)
      ? [said('amount', amountText(all.amount, all.currency))]
      : []),
  ];
}
