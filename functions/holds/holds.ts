import * as z from 'zod/mini';
import { iso } from '../base/clock.ts';
import type { Json } from '../base/json.ts';
import { amountOf, amountText, digitsText, microsOf } from '../base/money.ts';
import { shorten } from '../base/printable.ts';
import { byName } from '../base/validation.ts';
import { type CountedFlow, LEDGER_FORMAT } from '../ledger/entry-schema.ts';
import type { TurnClass } from '../ledger/keys.ts';
import type { HoldReason } from '../ledger/waits.ts';
import { type Budget, capOf, type Price, periodEnd, roomIn, type Spent, spentNow } from '../uploads/budget.ts';
import type { Route } from '../uploads/route.ts';
import { addCost, costsSchema } from './costs.ts';

/*
 * A hold keeps the uploads of the pipeline, or of a route, from being sent. They wait in the ledger until its reason is
 * gone. There are three reasons:
 *
 *   paused    the operator has paused the pipeline or the route, and has not resumed it
 *   budget    the cap of the pipeline or of the route has no room for another flow
 *   failing   the last files of the route failed alike. Only what was submitted in bulk is held
 *
 * No hold has a release time. Each tick asks again whether its reason still applies. All holds are in one object of the
 * ledger, with all that is counted for them. So one write counts a flow for every cap that applies.
 */

/** The operator's pause, of the pipeline or of a route. */
const pauseSchema = z.object({
  since: z.number(),
  /** The operator's own words. */
  why: z.optional(z.string()),
});

const spentSchema: z.ZodMiniType<Spent> = z.object({
  period: z.string(),
  flows: z.int().check(z.gte(0)),
  micros: z.int().check(z.gte(0)),
  told: z.optional(z.number()),
  toldOf: z.optional(z.string()),
});

/** What a route sends, apart from the file. */
const requestSchema = z.object({
  template: z.string(),
  input: z.enum(['file', 'text']),
  parameters: z.optional(z.custom<Json>((value) => value !== undefined)),
});
export type RouteRequest = z.infer<typeof requestSchema>;

const failureSchema = z.object({
  /** The code of the failure. */
  code: z.string(),
  /** The service's words about the first failure. */
  message: z.string(),
});

/** Failures of a route that are alike, without a success in between. */
const alikeSchema = z.extend(failureSchema, {
  /** The words without ids and numbers: see {@link gistOf}. All of these failures have the same gist. */
  gist: z.string(),
  /** The failures, the latest last, {@link ALIKE_COUNT} at most. */
  ends: z.array(
    z.object({
      /** `<upload id>.<generation>`, so that no end counts twice. */
      outcome: z.string(),
      /** A hash of the file's key. In a chain, of the first file's key. */
      file: z.string(),
      /** The first folder of the key, with its slash. Empty if it has none. */
      customer: z.string(),
    }),
  ),
});
/** A failure that may be like the one before. */
export type AlikeEnd = z.infer<typeof alikeSchema>['ends'][number];

/** A route whose last files failed alike. */
const failingSchema = z.extend(failureSchema, {
  since: z.number(),
  /** The customers of these files, {@link CUSTOMERS_MAX} at most. */
  customers: z.array(z.string()),
  /** The number of further customers. */
  moreCustomers: z.int().check(z.gte(0)),
  /** When a file that was submitted in bulk was last tried. */
  triedAt: z.optional(z.number()),
  /** True once the event was sent. */
  isTold: z.optional(z.literal(true)),
});
export type Failing = z.infer<typeof failingSchema>;

const scope = {
  paused: z.optional(pauseSchema),
  spent: z.optional(spentSchema),
  /**
   * What was spent in other periods, the latest first. They are needed for two reasons: while a deployment changes the
   * period of a budget, invocations of both configurations count; and the change may be taken back.
   */
  earlier: z.optional(z.array(spentSchema)),
};

/** Number of other periods that are kept of each kind: days, weeks and months. */
const EARLIER_MAX = 2;

const routeSchema = z.object({
  ...scope,
  /** The kinds of failures that are counted, the latest first, {@link KINDS_MAX} at most. */
  alike: z.optional(z.array(alikeSchema)),
  failing: z.optional(failingSchema),
  /** The request that succeeded last, and the time of its first success. */
  succeeded: z.optional(z.object({ at: z.number(), request: requestSchema })),
});
export type RouteHolds = z.infer<typeof routeSchema>;

export const holdsSchema = z.object({
  schema: z.literal(LEDGER_FORMAT),
  pipeline: z.object(scope),
  /** By the name of the route. */
  routes: byName(routeSchema),
  /**
   * The nonces of the last changes of a count, the latest last, {@link CHANGES_MAX} at most. If the answer of S3 to such
   * a change was lost, it is not made twice.
   */
  changes: z._default(z.array(z.string()), []),
  /** What the flows of the last days cost. */
  costs: costsSchema,
});
export type Holds = z.infer<typeof holdsSchema>;

export const NO_HOLDS: Holds = { schema: LEDGER_FORMAT, pipeline: {}, routes: {}, changes: [], costs: {} };

/** An attempt to send an upload, with the caps that apply to its flow, and what it costs. */
export interface Attempt {
  readonly pipeline: Budget | undefined;
  readonly route: Budget | undefined;
  readonly price: Price | undefined;
  readonly routeName: string;
  /** The prefix of the file, for its costs. */
  readonly prefix: string;
  /**
   * False if the route was removed from the configuration. Its pause holds nothing then: nobody could tell why it is
   * there.
   */
  readonly isOfRoute: boolean;
  /** True if it was submitted in bulk, by a backfill or a retry of many. */
  readonly isLate: boolean;
  /** True if an earlier attempt may have made a flow: the upload is in doubt. */
  readonly isResent: boolean;
  /**
   * True if its flow was counted before. It repeats a request that was refused, or one with the same idempotency key,
   * so it makes no second flow.
   */
  readonly isCountedBefore: boolean;
  /** Different in each attempt. Begins with hexadecimal digits. */
  readonly nonce: string;
}

/** Why an attempt is not made. */
export interface Held {
  readonly reason: HoldReason;
  readonly message: string;
}

/**
 * Number of changes of a count that are remembered. Each has 11 bytes, and each flow that is counted writes all of
 * them. At 20 flows a second, a change that is written again is recognised for 50 seconds. S3 is not retried so long.
 */
const CHANGES_MAX = 1_000;

/** The holds of a route, to be changed. */
const ofRoute = (draft: Holds, name: string): RouteHolds => {
  draft.routes[name] ??= {};
  return draft.routes[name];
};

/** True if an attempt must be counted before it is made, because a cap or a price applies. */
export const isToBeCounted = ({ pipeline, route, price, isCountedBefore }: Attempt): boolean =>
  !isCountedBefore && (pipeline !== undefined || route !== undefined || price !== undefined);

/** What keeps an attempt from being made, apart from the budget. */
export function holdOf(holds: Holds, { routeName, isOfRoute, isLate }: Attempt, now: number): Held | undefined {
  const route = isOfRoute ? holds.routes[routeName] : undefined;
  const pause = holds.pipeline.paused ?? route?.paused;
  if (pause !== undefined) {
    const what = holds.pipeline.paused === undefined ? `The route ${routeName}` : 'The pipeline';
    return { reason: 'paused', message: `${what} is paused.${pause.why === undefined ? '' : ` ${pause.why}`}` };
  }
  const failing = route?.failing;
  if (!isLate || failing === undefined || isTrialDue(failing, now)) return undefined;
  const message = `The last files of the route ${routeName} failed alike, so what was submitted in bulk waits: ${failing.message}`;
  return { reason: 'failing', message };
}

/** Time between two files of a failing route that are tried although they were submitted in bulk, in milliseconds. */
const TRIAL_EVERY_MS = 60 * 60_000;

/** True if one file that was submitted in bulk may be sent, to find out whether the route still fails. */
const isTrialDue = ({ since, triedAt = since }: Failing, now: number): boolean => now - triedAt >= TRIAL_EVERY_MS;

/** True if two requests say the same. */
export const isSameRequest = (one: RouteRequest, other: RouteRequest): boolean =>
  JSON.stringify([one.template, one.input, one.parameters]) ===
  JSON.stringify([other.template, other.input, other.parameters]);

/** The answer to an attempt: why it may not be made, or what was counted for it. */
export interface Admission {
  readonly held?: Held;
  /** Undefined if neither a cap nor a price applies, or its flow was counted before. */
  readonly counted?: CountedFlow;
}

/**
 * Counts an attempt for all caps that apply, or returns why it may not be made. If it is called again for the same
 * attempt and time, it changes nothing.
 */
export function admit(draft: Holds, attempt: Attempt, now: number): Admission {
  const isWritten = draft.changes.includes(changeId(attempt.nonce));
  const caps = isToBeCounted(attempt) ? capsOf(draft, attempt, now) : [];
  // An attempt that is counted already is not held: its own count may have filled the budget.
  const held = isWritten ? undefined : (holdOf(draft, attempt, now) ?? fullBudget(caps, attempt, now));
  if (held !== undefined) return { held };
  const failing = draft.routes[attempt.routeName]?.failing;
  if (failing !== undefined && attempt.isLate) failing.triedAt = now;
  if (!isToBeCounted(attempt)) return {};
  const counted = countedOf(attempt, caps, now);
  once(draft, changeId(attempt.nonce), () => {
    for (const { scope, spent } of caps) {
      keepSpent(scope, { ...spent, flows: spent.flows + 1, micros: spent.micros + counted.micros });
    }
    addCost(draft.costs, attempt, counted, 1);
  });
  return { counted };
}

/** The part of a nonce that {@link Holds.changes} keeps. */
const changeId = (nonce: string): string => nonce.slice(0, 8);

function once(draft: Holds, id: string, change: () => void): void {
  if (draft.changes.includes(id)) return;
  change();
  draft.changes = [...draft.changes, id].slice(-CHANGES_MAX);
}

type Scope = Pick<RouteHolds, 'spent' | 'earlier'>;

/** A cap, and the part of the holds that says how much of it is spent. */
interface Cap {
  readonly of: 'pipeline' | 'route';
  readonly name: string;
  readonly budget: Budget;
  readonly scope: Scope;
  readonly spent: Spent;
}

function capsOf(draft: Holds, { routeName, pipeline, route }: Attempt, now: number): readonly Cap[] {
  const cap = (of: Cap['of'], name: string, budget: Budget, scope: Scope): Cap => ({
    ...{ of, name, budget, scope },
    spent: spentOf(scope, budget, now),
  });
  return [
    ...(pipeline === undefined ? [] : [cap('pipeline', 'the pipeline', pipeline, draft.pipeline)]),
    ...(route === undefined ? [] : [cap('route', `the route ${routeName}`, route, ofRoute(draft, routeName))]),
  ];
}

/** What is spent of a budget by now. */
export const spentOf = (scope: Scope | undefined, budget: Budget, now: number): Spent =>
  spentNow(budget, allSpent(scope), now);

const allSpent = ({ spent, earlier = [] }: Scope = {}): readonly Spent[] =>
  spent === undefined ? earlier : [spent, ...earlier];

/**
 * Keeps what is spent in a period, and the last other periods of each kind beside it. After a change from days to
 * months, `spent` is `2026-11`, and `earlier` has `2026-11-24` and `2026-11-23`. So the day is known if the change is
 * taken back.
 */
function keepSpent(scope: Scope, spent: Spent): void {
  const others = allSpent(scope)
    .filter(({ period }) => period !== spent.period)
    .toSorted((one, other) => (one.period < other.period ? 1 : -1));
  const earlier = [...Map.groupBy(others, ({ period }) => kindOf(period)).values()];
  scope.spent = spent;
  if (others.length > 0) scope.earlier = earlier.flatMap((each) => each.slice(0, EARLIER_MAX));
}

/** Days, weeks and months are written differently: `2026-11-24`, `week of 2026-11-23`, `2026-11`. */
const kindOf = (period: string): string => period.replaceAll(/\d/g, '');

function fullBudget(caps: readonly Cap[], { price }: Attempt, now: number): Held | undefined {
  const full = caps.find(({ budget, spent }) => roomIn(budget, spent, price) < 1);
  return full && { reason: 'budget', message: wordsOf(full.name, full.budget, full.spent, now) };
}

function countedOf({ price, isResent }: Attempt, caps: readonly Cap[], now: number): CountedFlow {
  return {
    micros: price === undefined ? 0 : microsOf(price.amount),
    currency: price?.currency ?? '',
    at: now,
    ...Object.fromEntries(caps.map(({ of, spent }) => [of, spent.period])),
    ...(isResent && { isAgain: true }),
  };
}

function wordsOf(name: string, budget: Budget, { period, flows, micros }: Spent, now: number): string {
  const { amount, currency } = budget;
  const spent = [
    ...(budget.flows === undefined ? [] : [`${flows} of ${budget.flows} flows`]),
    ...(amount === undefined || currency === undefined
      ? []
      : [`${digitsText(amountOf(micros), currency)} of ${amountText(amount, currency)}`]),
  ].join(', ');
  const end = iso(periodEnd(budget, now)).replace('.000Z', 'Z');
  return `The budget of ${name} has no room: ${spent} in ${period} (${budget.timezone}). The ${budget.per} ends at ${end}.`;
}

/** Notes the percentage of a budget whose event was sent, even if nothing was spent yet. */
export function noteTold(
  draft: Holds,
  {
    route,
    budget,
    spent: before,
  }: { readonly route: string | undefined; readonly budget: Budget; readonly spent: Spent },
  percent: number,
): void {
  const scope = route === undefined ? draft.pipeline : ofRoute(draft, route);
  const now = allSpent(scope).find(({ period }) => period === before.period) ?? before;
  keepSpent(scope, { ...now, told: percent, toldOf: capOf(budget) });
}

/**
 * Uncounts flows of an upload that were certainly not made.
 * @param nonce different for each such change. If it is made again with the same nonce, it changes nothing.
 */
export function uncount(
  draft: Holds,
  of: Pick<Attempt, 'routeName' | 'prefix'>,
  all: readonly CountedFlow[],
  nonce: string,
): void {
  once(draft, changeId(nonce), () => {
    for (const counted of all) {
      takeFrom(draft.pipeline, counted.pipeline, counted.micros);
      takeFrom(draft.routes[of.routeName], counted.route, counted.micros);
      addCost(draft.costs, of, counted, -1);
    }
  });
}

function takeFrom(scope: Scope | undefined, period: string | undefined, micros: number): void {
  const less = (spent: Spent): Spent =>
    spent.period === period
      ? { ...spent, flows: Math.max(0, spent.flows - 1), micros: Math.max(0, spent.micros - micros) }
      : spent;
  if (scope?.spent !== undefined) scope.spent = less(scope.spent);
  if (scope?.earlier !== undefined) scope.earlier = scope.earlier.map(less);
}

/** Number of failures alike after which a route is failing. */
const ALIKE_COUNT = 20;

/** Minimum number of different files among these failures. */
const FILES_MIN = 10;

/** Kinds of failures that are counted side by side: customers may send files that are bad in different ways. */
const KINDS_MAX = 3;

/** Maximum number of customers that are named. */
const CUSTOMERS_MAX = 5;

/**
 * The words of a failure without what differs from file to file: ids and numbers, quoted names and addresses.
 * `Template "cartun" of job 4711 is unknown` becomes `Template "…" of job … is unknown`.
 */
export const gistOf = (message: string): string =>
  message
    .replaceAll(/"[^"]*"|'[^']*'|`[^`]*`/g, '"…"')
    .replaceAll(/\b(?=[\w-]*\d)[\w-]+/g, '…')
    .slice(0, 300);

/** The service's verdict about an attempt, or about the flow that it made. */
export interface Verdict {
  readonly code: string;
  readonly message: string;
}

/**
 * Notes that a file of the route failed. The route is failing after {@link ALIKE_COUNT} failures alike of at least
 * {@link FILES_MIN} files, until a file of it succeeds or the operator resumes it. If 9 files fail alike 30 times, it
 * is not failing. If a tenth file fails like them then, it is.
 * @returns true if the route is failing now, and was not before.
 */
export function failed(
  draft: Holds,
  routeName: string,
  { end, code, message }: Verdict & { readonly end: AlikeEnd },
  now: number,
): boolean {
  const route = ofRoute(draft, routeName);
  if (route.failing !== undefined) return false;
  const gist = gistOf(message);
  const first = { code, message: shorten(message, MESSAGE_LENGTH_MAX), gist, ends: [] };
  const kinds = route.alike ?? [];
  const before = kinds.find((each) => each.code === code && each.gist === gist) ?? first;
  if (before.ends.some(({ outcome }) => outcome === end.outcome)) return false;
  const ends = [...before.ends, end].slice(-ALIKE_COUNT);
  route.alike = [{ ...before, ends }, ...kinds.filter((each) => each !== before)].slice(0, KINDS_MAX);
  if (ends.length < ALIKE_COUNT || new Set(ends.map(({ file }) => file)).size < FILES_MIN) return false;
  const customers = [...new Set(ends.map(({ customer }) => customer))];
  route.failing = {
    code,
    message: before.message,
    since: now,
    customers: customers.slice(0, CUSTOMERS_MAX),
    moreCustomers: Math.max(0, customers.length - CUSTOMERS_MAX),
  };
  delete route.alike;
  return true;
}

const MESSAGE_LENGTH_MAX = 500;

/** What a file that went well shows. */
export interface Success {
  /** `created`: the service has taken the request. `succeeded`: the flow has succeeded as well. */
  readonly what: 'created' | 'succeeded';
  /** What the route sends. */
  readonly request: RouteRequest;
}

/**
 * Notes a success, and forgets the failures that it disproves. A flow that succeeded disproves all of them. A request
 * that the service took disproves only rejections, because its flow may still fail.
 */
export function succeeded(draft: Holds, routeName: string, { what, request }: Success, now: number): void {
  const route = ofRoute(draft, routeName);
  const isOver = ({ code }: Verdict): boolean => what === 'succeeded' || code === 'rejected';
  const kinds = route.alike?.filter((each) => !isOver(each)) ?? [];
  if (kinds.length > 0) route.alike = kinds;
  else delete route.alike;
  if (route.failing !== undefined && isOver(route.failing)) delete route.failing;
  if (route.succeeded === undefined || !isSameRequest(route.succeeded.request, request))
    route.succeeded = { at: now, request };
}

/** True if a success changes anything. */
export function isNews(holds: Holds, routeName: string, success: Success): boolean {
  const known = holds.routes[routeName] ?? {};
  const draft = { ...NO_HOLDS, routes: { [routeName]: structuredClone(known) } };
  succeeded(draft, routeName, success, 0);
  return JSON.stringify(draft.routes) !== JSON.stringify({ [routeName]: known });
}

/**
 * Removes routes that are not in the configuration. A pause stays, and what was spent stays while its period may last:
 * the route may come back.
 * @param names of the routes that stay.
 */
export function removeRoutes(draft: Holds, names: ReadonlySet<string>, now: number): void {
  for (const [name, held] of Object.entries(draft.routes)) {
    if (names.has(name)) continue;
    delete draft.routes[name];
    const recent = allSpent(held).filter(({ period }) => beginOf(period) > now - SPENT_KEPT_MS);
    if (held.paused === undefined && recent.length === 0) continue;
    const [spent, ...earlier] = recent;
    draft.routes[name] = {
      ...(held.paused && { paused: held.paused }),
      ...(spent && { spent }),
      ...(earlier.length > 0 && { earlier }),
    };
  }
}

/** Longer than a month, in milliseconds. */
const SPENT_KEPT_MS = 33 * 24 * 60 * 60_000;

const beginOf = (period: string): number => Date.parse(period.replace('week of ', ''));

/** All reasons of a pause together, in characters. */
const WHYS_CHARS_MAX = 1_000;

/** Pauses the pipeline, or a route. An earlier pause goes on, and its reason stands before the new one. */
export function pause(draft: Holds, routeName: string | undefined, why: string | undefined, now: number): void {
  const held = routeName === undefined ? draft.pipeline : ofRoute(draft, routeName);
  held.paused ??= { since: now };
  const { why: before = '' } = held.paused;
  if (why === undefined || before.includes(why)) return;
  const stop = before === '' || /[.!?]$/.test(before) ? '' : '.';
  held.paused.why = shorten(`${before}${stop} ${why}`.trim(), WHYS_CHARS_MAX);
}

/**
 * Ends the pause of the pipeline or of a route. For a route, it also ends the hold `failing`.
 * @returns false if there was nothing to end.
 */
export function resume(draft: Holds, routeName: string | undefined): boolean {
  const held: RouteHolds | undefined = routeName === undefined ? draft.pipeline : draft.routes[routeName];
  if (held?.paused === undefined && held?.failing === undefined) return false;
  delete held.paused;
  delete held.failing;
  return true;
}

/**
 * How many uploads may leave the line now: of the whole pipeline, or of a route, in one class. If 7 of the
 * pipeline's 10 flows are spent, and 3.40 of the route's 5 EUR, the route has room for 3 flows at a price of 0.40. A
 * paused route has room for none, and a failing one for one late upload an hour.
 */
export function roomOf(
  holds: Holds,
  { routes, budget }: { readonly routes: readonly Route[]; readonly budget: Budget | 'unlimited' },
  now: number,
): (routeName?: string, of?: TurnClass) => number {
  const left = (cap: Budget | 'unlimited' | undefined, scope: Scope | undefined, price?: Price) =>
    cap === undefined || cap === 'unlimited' ? Number.POSITIVE_INFINITY : roomIn(cap, spentOf(scope, cap, now), price);
  return (routeName, of) => {
    if (holds.pipeline.paused !== undefined) return 0;
    if (routeName === undefined) return left(budget, holds.pipeline);
    const route = routes.find(({ name }) => name === routeName);
    // An upload whose route was removed leaves the line, and is sent by the route that wants it now.
    if (route === undefined) return left(budget, holds.pipeline);
    const held = holds.routes[routeName];
    const failing = held?.failing;
    if (held?.paused !== undefined) return 0;
    if (of === 'late' && failing !== undefined && !isTrialDue(failing, now)) return 0;
    return Math.min(
      of === 'late' && failing !== undefined ? 1 : Number.POSITIVE_INFINITY,
      left(budget, holds.pipeline, route.price),
      left(route.budget, held, route.price),
    );
  };
}
