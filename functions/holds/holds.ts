import * as z from 'zod/mini';
import type { Json } from '../base/json.ts';
import {
  amountOf,
  type Budget,
  microsOf,
  type Price,
  periodEnd,
  roomIn,
  type Spent,
  spentNow,
} from '../uploads/budget.ts';
import type { Route } from '../uploads/routes.ts';
import { addCosts, costsSchema } from './costs.ts';
import type { HoldReason } from './hold-request.ts';

/*
 * What holds uploads back: the pipeline, or a route, is held for a reason. Its uploads wait in the ledger until the
 * reason is gone.
 *
 *   paused    the operator said so, and says when it is over
 *   budget    the cap of the pipeline or of the route leaves no room
 *   circuit   the service rejected the last files of the route alike
 *
 * No hold has a release time: each tick asks again whether the reason still is. All holds are in one object of the
 * ledger, with all that is counted for them, so that one write counts a flow for every cap that applies.
 */

/** The operator's pause, of the pipeline or of a route. */
const pauseSchema = z.object({
  since: z.number(),
  /** The operator's own words. */
  why: z.optional(z.string()),
});
export type Pause = z.infer<typeof pauseSchema>;

const spentSchema: z.ZodMiniType<Spent> = z.object({
  period: z.string(),
  flows: z.int().check(z.gte(0)),
  micros: z.int().check(z.gte(0)),
  told: z.optional(z.number()),
});

/** What a route sends, apart from the file. */
const requestSchema = z.object({
  template: z.string(),
  input: z.enum(['file', 'text']),
  parameters: z.optional(z.custom<Json>((value) => value !== undefined)),
});
/** What a route sends, apart from the file. */
export type RouteRequest = z.infer<typeof requestSchema>;

const rejectionSchema = z.object({
  /** The code of the failure. */
  code: z.string(),
  /** The words of the service, as they were about the first of these files. */
  message: z.string(),
  /** The same words without ids and numbers. They are the same for all. */
  gist: z.string(),
});

/** Equal rejections, without a success in between. */
const streakSchema = z.extend(rejectionSchema, {
  request: requestSchema,
  /** `<upload id>.<generation>` of each, the latest last. */
  outcomes: z.array(z.string()),
});

const circuitSchema = z.extend(rejectionSchema, {
  since: z.number(),
  /** What the route sent when it was held, or when the last probe went. If it sends something else, one probe goes. */
  request: requestSchema,
  /** True if the operator allows a probe. */
  isProbeAllowed: z.optional(z.boolean()),
  /** `<upload id>.<generation>` of the one file that was let through. */
  probe: z.optional(z.string()),
  /** When the latest attempt to send it began. */
  probedAt: z.optional(z.number()),
  /** True once the event of the hold was sent. */
  isTold: z.optional(z.literal(true)),
});
export type Circuit = z.infer<typeof circuitSchema>;

const scope = {
  paused: z.optional(pauseSchema),
  spent: z.optional(spentSchema),
  /**
   * What was spent in other periods, the latest first. While a deployment changes the period of a budget, invocations of
   * both configurations count.
   */
  earlier: z.optional(z.array(spentSchema)),
};

/** Number of other periods that are kept. */
const EARLIER_MAX = 2;

const routeSchema = z.object({
  ...scope,
  streak: z.optional(streakSchema),
  circuit: z.optional(circuitSchema),
  /** What the route sent at its last success, and the time of the first success with it. */
  succeeded: z.optional(z.object({ at: z.number(), request: requestSchema })),
});
export type RouteHolds = z.infer<typeof routeSchema>;

const countedSchema = z.object({
  /** The price in millionths. */
  micros: z.int().check(z.gte(0)),
  /** The currency of the price. Empty without a price. */
  currency: z.string(),
  at: z.number(),
  /** The period of the pipeline's budget in which the flow is counted, and that of the route's budget. */
  pipeline: z.optional(z.string()),
  route: z.optional(z.string()),
});
/** A flow that is counted. */
type Counted = z.infer<typeof countedSchema>;

/** An upload whose flow is not known yet, and what is counted for it. */
const reservationSchema = z.object({
  route: z.string(),
  prefix: z.string(),
  at: z.number(),
  /** One for each attempt that may have made a flow, the latest last. */
  counted: z.array(countedSchema),
  /** Of the attempt that wrote this. */
  nonce: z.string(),
});
export type Reservation = z.infer<typeof reservationSchema>;

export const holdsSchema = z.object({
  schema: z.literal(1),
  pipeline: z.object(scope),
  /** By the name of the route. */
  routes: z.record(z.string(), routeSchema),
  /** By `<upload id>.<generation>`. */
  reservations: z.record(z.string(), reservationSchema),
  /** What the flows of the last days cost. */
  costs: z._default(costsSchema, {}),
});
export type Holds = z.infer<typeof holdsSchema>;

export const NO_HOLDS: Holds = { schema: 1, pipeline: {}, routes: {}, reservations: {}, costs: {} };

/** The caps that apply to a flow, and what it costs. */
export interface Terms {
  readonly pipeline: Budget | undefined;
  readonly route: Budget | undefined;
  readonly price: Price | undefined;
}

/** An attempt to send an upload. */
export interface Attempt extends Terms {
  readonly uploadId: string;
  readonly generation: number;
  readonly routeName: string;
  /** The prefix of the file, for its costs. */
  readonly prefix: string;
  /** What the route sends, by the present configuration. */
  readonly request: RouteRequest;
  /** False if the upload began with another configuration of its route, and would send that. */
  readonly isPresent: boolean;
  /** What is sent. It may be of an earlier configuration, or replaced for this upload. */
  readonly sent: RouteRequest;
  /** False if the configuration has the route no more. Then its pause holds nothing: nobody could tell what it is for. */
  readonly isOfRoute: boolean;
  /** True if an earlier attempt may have made a flow, and absence is not proven. */
  readonly isResent: boolean;
  /** Different in each attempt. */
  readonly nonce: string;
}

/** Why an attempt is not made. */
export interface Held {
  readonly reason: HoldReason;
  readonly message: string;
}

/**
 * Maximum number of open reservations. Each has two hundred bytes, and each flow that is counted writes all of them. The
 * flows of the oldest stay counted.
 */
export const RESERVATIONS_MAX = 2_000;

/** Maximum number of attempts of one upload that can be uncounted. Those before stay counted. */
const COUNTED_MAX = 20;

export const outcomeOf = ({ uploadId, generation }: Pick<Attempt, 'uploadId' | 'generation'>): string =>
  `${uploadId}.${generation}`;

/** The holds of a route, to be changed. */
const ofRoute = (draft: Holds, name: string): RouteHolds => {
  draft.routes[name] ??= {};
  return draft.routes[name];
};

/** True if an attempt must be written down before it is made. */
export const isCounted = ({ pipeline, route, price }: Terms): boolean =>
  pipeline !== undefined || route !== undefined || price !== undefined;

/** What keeps an attempt from being made, apart from the budget. */
export function holdOf(holds: Holds, attempt: Attempt): Held | undefined {
  const { routeName, isOfRoute } = attempt;
  const route = isOfRoute ? holds.routes[routeName] : undefined;
  const pause = holds.pipeline.paused ?? route?.paused;
  if (pause !== undefined) {
    const what = holds.pipeline.paused === undefined ? `The route ${routeName}` : 'The pipeline';
    return { reason: 'paused', message: `${what} is paused.${pause.why === undefined ? '' : ` ${pause.why}`}` };
  }
  const circuit = route?.circuit;
  if (circuit === undefined || mayProbe(circuit, attempt)) return undefined;
  const message = `The route ${routeName} is held, because the service rejected its last files alike: ${circuit.message}`;
  return { reason: 'circuit', message };
}

/** True if two requests say the same. */
export const isSameRequest = (one: RouteRequest, other: RouteRequest): boolean =>
  JSON.stringify([one.template, one.input, one.parameters]) ===
  JSON.stringify([other.template, other.input, other.parameters]);

/** True if this attempt is the probe of a held route, or may become it. */
const mayProbe = (circuit: Circuit, attempt: Attempt): boolean =>
  circuit.probe === outcomeOf(attempt) || (isProbeDue(circuit, attempt.request) && isOfProbe(circuit, attempt));

/**
 * True if a file may be the probe: its outcome says something of the route as it is. One in doubt keeps the route with
 * which it began, and says nothing. But it goes too, because it would wait for ever if no other file came.
 */
const isOfProbe = ({ isProbeAllowed, request: before }: Circuit, { isPresent, isResent, sent }: Attempt): boolean =>
  isPresent ? isProbeAllowed === true || !isSameRequest(before, sent) : isResent;

/**
 * True if one file of a held route may be let through.
 * @param request what the route sends now.
 */
export const isProbeDue = ({ probe, isProbeAllowed, request: before }: Circuit, request: RouteRequest): boolean =>
  probe === undefined && (isProbeAllowed === true || !isSameRequest(before, request));

/**
 * Counts an attempt for all caps that apply, or says why it may not be made. Done again for the same attempt, it changes
 * nothing.
 */
export function admit(draft: Holds, attempt: Attempt, now: number): Held | undefined {
  const held = holdOf(draft, attempt);
  if (held !== undefined) return held;
  const key = outcomeOf(attempt);
  if (isCounted(attempt) && draft.reservations[key]?.nonce !== attempt.nonce) {
    const full = count(draft, attempt, now);
    if (full !== undefined) return full;
  }
  const circuit = draft.routes[attempt.routeName]?.circuit;
  if (circuit !== undefined) {
    if (circuit.probe !== key) {
      circuit.probe = key;
      circuit.request = attempt.request;
      delete circuit.isProbeAllowed;
    }
    circuit.probedAt = now;
  }
  return undefined;
}

type Scope = Pick<RouteHolds, 'spent' | 'earlier'>;

/** A cap, and where what is spent of it is kept. */
interface Cap {
  readonly of: 'pipeline' | 'route';
  readonly name: string;
  readonly budget: Budget;
  readonly scope: Scope;
}

function capsOf(draft: Holds, { routeName, pipeline, route }: Attempt): Cap[] {
  const caps: Cap[] = [];
  if (pipeline !== undefined) {
    caps.push({ of: 'pipeline', name: 'the pipeline', budget: pipeline, scope: draft.pipeline });
  }
  if (route !== undefined) {
    caps.push({ of: 'route', name: `the route ${routeName}`, budget: route, scope: ofRoute(draft, routeName) });
  }
  return caps;
}

/** What is spent of a budget by now. */
function spentOf({ spent, earlier = [] }: Scope, budget: Budget, now: number): Spent {
  const known = [spent, ...earlier].find((each) => each !== undefined && spentNow(budget, each, now) === each);
  return known ?? spentNow(budget, undefined, now);
}

/** Keeps what is spent in a period, beside that of the last other ones. */
function keepSpent(scope: Scope, spent: Spent): void {
  const others = [scope.spent, ...(scope.earlier ?? [])].flatMap((each) =>
    each === undefined || each.period === spent.period ? [] : [each],
  );
  scope.spent = spent;
  if (others.length > 0) scope.earlier = others.slice(0, EARLIER_MAX);
}

function count(draft: Holds, attempt: Attempt, now: number): Held | undefined {
  const { routeName, prefix, price, isResent, nonce } = attempt;
  const key = outcomeOf(attempt);
  // Unless it is in doubt, no earlier attempt has made a flow.
  if (!isResent) giveBack(draft, key, 'all');
  const micros = price === undefined ? 0 : microsOf(price.amount);
  const caps = capsOf(draft, attempt).map((cap) => ({ ...cap, spent: spentOf(cap.scope, cap.budget, now) }));
  const full = caps.find(({ budget, spent }) => roomIn(budget, spent, price) < 1);
  if (full !== undefined) return { reason: 'budget', message: wordsOf(full.name, full.budget, full.spent, now) };
  const currency = price?.currency ?? '';
  const counted: Counted = { micros, currency, at: now };
  for (const { of, scope, spent } of caps) {
    keepSpent(scope, { ...spent, flows: spent.flows + 1, micros: spent.micros + micros });
    counted[of] = spent.period;
  }
  const { [key]: known, ...others } = draft.reservations;
  const all = [...(known?.counted ?? []), counted].slice(-COUNTED_MAX);
  const again = known === undefined ? 0 : 1;
  addCosts(draft.costs, now, { route: routeName, prefix, currency }, { flows: 1, price: micros, again });
  const open = Object.entries(others).slice(1 - RESERVATIONS_MAX);
  draft.reservations = {
    ...Object.fromEntries(open),
    [key]: { route: routeName, prefix, at: now, counted: all, nonce },
  };
  return undefined;
}

function wordsOf(name: string, budget: Budget, { period, flows, micros }: Spent, now: number): string {
  const { amount, currency } = budget;
  const spent = [
    ...(budget.flows === undefined ? [] : [`${flows} of ${budget.flows} flows`]),
    ...(amount === undefined ? [] : [`${amountOf(micros)} of ${amount} ${currency}`]),
  ].join(', ');
  const end = new Date(periodEnd(budget, now)).toISOString().replace('.000Z', 'Z');
  return `The budget of ${name} has no room: ${spent} in ${period} (${budget.timezone}). The ${budget.per} ends at ${end}.`;
}

/** Notes the share that was told, in percent. If nothing was spent yet, that is noted too. */
export function noteTold(draft: Holds, routeName: string | undefined, before: Spent, percent: number): void {
  const scope = routeName === undefined ? draft.pipeline : ofRoute(draft, routeName);
  const { spent = before } = scope;
  if (spent.period === before.period) scope.spent = { ...spent, told: percent };
}

/** Uncounts flows that were certainly not made: of the latest attempt, or of all. */
function giveBack(draft: Holds, key: string, which: 'latest' | 'all'): void {
  const known = draft.reservations[key];
  if (known === undefined) return;
  const kept = which === 'all' ? [] : known.counted.slice(0, -1);
  for (const [index, { micros, currency, at, pipeline, route }] of known.counted.entries()) {
    if (index < kept.length) continue;
    uncount(draft.pipeline, pipeline, micros);
    uncount(draft.routes[known.route], route, micros);
    const again = index === 0 ? 0 : -1;
    addCosts(draft.costs, at, { ...known, currency }, { flows: -1, price: micros, again });
  }
  if (kept.length === 0) delete draft.reservations[key];
  // Another nonce, so that it is not done again.
  else draft.reservations[key] = { ...known, counted: kept, nonce: `after ${known.nonce}` };
}

function uncount(scope: Scope | undefined, period: string | undefined, micros: number): void {
  const less = (spent: Spent): Spent =>
    spent.period === period
      ? { ...spent, flows: Math.max(0, spent.flows - 1), micros: Math.max(0, spent.micros - micros) }
      : spent;
  if (scope?.spent !== undefined) scope.spent = less(scope.spent);
  if (scope?.earlier !== undefined) scope.earlier = scope.earlier.map(less);
}

/** The upload has a flow, or may have one for good. What was counted stays counted. */
export function settle(draft: Holds, key: string, nonce: string): void {
  if (draft.reservations[key]?.nonce === nonce) delete draft.reservations[key];
}

/**
 * No flow of the upload exists, or none of the latest attempt.
 * @param nonce of the attempt that found that out. Nothing is given back if a later attempt has begun.
 */
export function release(draft: Holds, key: string, nonce: string, which: 'latest' | 'all'): void {
  if (draft.reservations[key]?.nonce === nonce) giveBack(draft, key, which);
}

/** After how many equal rejections a route is held. */
export type CircuitTerms = NonNullable<Route['circuit']>;

/** Equal rejections after which a route is held, unless it says another number. */
export const CIRCUIT_AFTER = 20;

/** Different files that these rejections must be about, if there are so many. */
const FILES_MIN = 10;

/** The words of a rejection without what differs from file to file: ids and numbers, quoted names and addresses. */
export const gistOf = (message: string): string =>
  message
    .replaceAll(/"[^"]*"|'[^']*'|`[^`]*`/g, '"…"')
    .replaceAll(/\b(?=[\w-]*\d)[\w-]+/g, '…')
    .slice(0, 300);

/** The service's verdict about an attempt, or about the flow that it made. */
export interface Rejection {
  readonly code: string;
  readonly message: string;
}

/**
 * Notes a rejection. Holds the route after `after` equal ones of at least {@link FILES_MIN} files.
 * @returns true if the route is held now, and was not before.
 */
export function rejected(
  draft: Holds,
  attempt: Pick<Attempt, 'uploadId' | 'generation' | 'routeName' | 'request'>,
  { code, message }: Rejection,
  { after, now }: { readonly after: number; readonly now: number },
): boolean {
  const route = ofRoute(draft, attempt.routeName);
  const { uploadId, request } = attempt;
  const outcome = outcomeOf(attempt);
  const rejection = { code, message: message.slice(0, MESSAGE_LENGTH_MAX), gist: gistOf(message) };
  if (route.circuit !== undefined) {
    // Another rejection says nothing about the one for which the route is held. But the probe is over.
    dropProbe(draft, attempt.routeName, outcome);
    return false;
  }
  const { streak } = route;
  const isLikeLast = streak?.code === code && streak.gist === rejection.gist && isSameRequest(streak.request, request);
  if (!isLikeLast) route.streak = { ...rejection, request, outcomes: [outcome] };
  else if (!streak.outcomes.includes(outcome)) streak.outcomes = [...streak.outcomes, outcome].slice(-after);
  const { outcomes } = route.streak as NonNullable<RouteHolds['streak']>;
  const files = new Set(outcomes.map((each) => each.slice(0, uploadId.length)));
  if (outcomes.length < after || files.size < Math.min(FILES_MIN, after)) return false;
  route.circuit = { ...rejection, since: now, request };
  delete route.streak;
  return true;
}

/**
 * The probe of a held route is over, and the route stays held.
 * @param isTold false if it says nothing of the route. Then another file is let through.
 */
export function dropProbe(draft: Holds, routeName: string, outcome: string, isTold = true): void {
  const circuit = draft.routes[routeName]?.circuit;
  if (circuit?.probe !== outcome) return;
  delete circuit.probe;
  delete circuit.probedAt;
  if (!isTold) circuit.isProbeAllowed = true;
}

const MESSAGE_LENGTH_MAX = 500;

/** What a success shows: that the service takes the request, or also that the flow of it succeeds. */
export type Success = 'created' | 'succeeded';

/** A rejection of the request itself. Any other one is about the flow that it made. */
const isOfRequest = ({ code }: Rejection): boolean => code === 'rejected';

/** True if a success changes anything. */
export function isNews(
  holds: Holds,
  attempt: Pick<Attempt, 'uploadId' | 'generation' | 'routeName' | 'request'>,
  success: Success,
): boolean {
  const known = holds.routes[attempt.routeName] ?? {};
  const draft = { ...NO_HOLDS, routes: { [attempt.routeName]: structuredClone(known) } };
  succeeded(draft, attempt, success, 0);
  return JSON.stringify(draft.routes) !== JSON.stringify({ [attempt.routeName]: known });
}

/** Notes a success. It ends a streak of rejections, and the success of the probe opens the route. */
export function succeeded(
  draft: Holds,
  attempt: Pick<Attempt, 'uploadId' | 'generation' | 'routeName' | 'request'>,
  success: Success,
  now: number,
): void {
  const route = ofRoute(draft, attempt.routeName);
  const { streak, circuit } = route;
  const isProof = (rejection: Rejection) => success === 'succeeded' || isOfRequest(rejection);
  if (streak !== undefined && isProof(streak)) delete route.streak;
  if (circuit?.probe === outcomeOf(attempt) && isProof(circuit)) delete route.circuit;
  const { request } = attempt;
  if (route.succeeded === undefined || !isSameRequest(route.succeeded.request, request))
    route.succeeded = { at: now, request };
}

/**
 * Removes routes that are not in the configuration. A pause stays, and what was spent stays while its period may last: the
 * route may come back.
 * @param names of the routes that stay.
 */
export function removeRoutes(draft: Holds, names: ReadonlySet<string>, now: number): void {
  for (const [name, { paused, spent }] of Object.entries(draft.routes)) {
    if (names.has(name)) continue;
    delete draft.routes[name];
    const isRecent = spent !== undefined && beginOf(spent.period) > now - SPENT_KEPT_MS;
    const kept = { ...(paused && { paused }), ...(isRecent && { spent }) };
    if (Object.keys(kept).length > 0) draft.routes[name] = kept;
  }
}

/** Longer than a month, in milliseconds. */
const SPENT_KEPT_MS = 33 * 24 * 60 * 60_000;

const beginOf = (period: string): number => Date.parse(period.replace('week of ', ''));

/** The operator pauses the pipeline, or a route. An earlier pause stays. */
export function pause(draft: Holds, routeName: string | undefined, why: string | undefined, now: number): void {
  const held = routeName === undefined ? draft.pipeline : ofRoute(draft, routeName);
  held.paused ??= { since: now, ...(why !== undefined && { why }) };
}

/** The operator ends a pause. */
export function resume(draft: Holds, routeName: string | undefined): void {
  const held = routeName === undefined ? draft.pipeline : draft.routes[routeName];
  if (held !== undefined) delete held.paused;
}

/** The operator lets one file of a held route through. @returns false if the route is not held for its rejections. */
export function allowProbe(draft: Holds, routeName: string): boolean {
  const circuit = draft.routes[routeName]?.circuit;
  if (circuit === undefined) return false;
  circuit.isProbeAllowed = true; // It goes when the probe under way is over.
  return true;
}

/** How many uploads may leave the line now: of the whole pipeline, or of a route. */
export function roomOf(
  holds: Holds,
  { routes, budget }: { readonly routes: readonly Route[]; readonly budget: Budget | 'unlimited' },
  now: number,
): (routeName?: string) => number {
  const left = (cap: Budget | 'unlimited' | undefined, spent: Spent | undefined, price?: Price) =>
    cap === undefined || cap === 'unlimited' ? Number.POSITIVE_INFINITY : roomIn(cap, spentNow(cap, spent, now), price);
  return (routeName) => {
    if (holds.pipeline.paused !== undefined) return 0;
    if (routeName === undefined) return left(budget, holds.pipeline.spent);
    const route = routes.find(({ name }) => name === routeName);
    // What waits for a route that is gone leaves the line, and takes the route that wants it now.
    if (route === undefined) return left(budget, holds.pipeline.spent);
    const held = holds.routes[routeName] ?? {};
    if (held.paused !== undefined) return 0;
    const ofCircuit = held.circuit && (isProbeDue(held.circuit, route ?? held.circuit.request) ? 1 : 0);
    return Math.min(
      ofCircuit ?? Number.POSITIVE_INFINITY,
      left(budget, holds.pipeline.spent, route?.price),
      left(route?.budget, held.spent, route?.price),
    );
  };
}
