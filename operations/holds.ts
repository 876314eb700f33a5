import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { amountOf, microsOf } from '../functions/base/money.ts';
import { shellWord } from '../functions/base/printable.ts';
import type { HoldRequest, HoldResult } from '../functions/holds/hold-request.ts';
import { HOLDS_AGE_MAX_MS, HoldStore } from '../functions/holds/hold-store.ts';
import { type Failing, type Holds, holdsSchema, type RouteRequest } from '../functions/holds/holds.ts';
import { budgetsOf } from '../functions/holds/tend-holds.ts';
import { type Entry, isWaitingInPlace } from '../functions/ledger/entry.ts';
import { UnreadableEntryError } from '../functions/ledger/store.ts';
import { type HoldReason, isHold, SWEEP_REACH_MS, WAITS, type WaitReason } from '../functions/ledger/waits.ts';
import type { HoldAnswer } from '../functions/operator/operator.ts';
import { type Budget, type Price, periodEnd, roomIn, type Spent } from '../functions/uploads/budget.ts';
import type { Share } from './cost-texts.ts';
import type { Deployment } from './deployment.ts';
import { LedgerWindow } from './ledger-window.ts';
import { readEntries } from './listing.ts';
import { needsSomebody } from './shown-state.ts';

export type { HoldRequest } from '../functions/holds/hold-request.ts';
export type { HoldReason } from '../functions/ledger/waits.ts';
/** @internal */
export { holdRequestSchema } from '../functions/operator/collect-event.ts';

/**
 * What holds uploads of the pipeline, or of a route. A failing route holds only what was submitted in bulk. Times are in
 * ISO 8601.
 */
export interface HoldView {
  readonly reason: HoldReason;
  /** Undefined for the pipeline. */
  readonly route?: string | undefined;
  /** What is held and why, in a sentence. */
  readonly message: string;
  /** Undefined for a budget, which is spent since its last flow. */
  readonly since?: string | undefined;
  /** The operator's words about a pause, or those of the service about the files. */
  readonly why?: string | undefined;
  /** When it ends by itself. Only a budget does. */
  readonly endsAt?: string | undefined;
  /**
   * The first folders of the files that failed alike, with their slash: the customers. Empty for files in no folder. Only
   * of a failing route.
   */
  readonly customers?: readonly string[] | undefined;
  /** The number of further customers. */
  readonly moreCustomers?: number | undefined;
}

/** A budget, and what is spent of it in the present period. */
export interface BudgetView {
  /** Undefined for the budget of the pipeline. */
  readonly route?: string | undefined;
  readonly per: Budget['per'];
  readonly timezone: string;
  /** Such as `2026-11-24`, `week of 2026-11-23` or `2026-11`. */
  readonly period: string;
  readonly endsAt: string;
  /** The share that is spent, in whole percent. */
  readonly percent: number;
  readonly flows?: Share | undefined;
  readonly amount?: (Share & { readonly currency: string }) | undefined;
}

/** What is held, and what is spent. */
export interface HoldsView {
  readonly holds: readonly HoldView[];
  readonly budgets: readonly BudgetView[];
  /** Why the holds cannot be read. Nothing is sent then. */
  readonly issue?: string | undefined;
}

/** @throws {UnreadableEntryError} @internal */
export const readHolds = ({ s3, settings, clock }: Deployment, signal: AbortSignal): Promise<Holds> =>
  new HoldStore({ s3, bucket: settings.ledgerBucket, clock, nonce: randomUUID }).read(signal);

/** What is held, and what is spent of each budget. */
export async function holdsOf(deployment: Deployment, signal: AbortSignal): Promise<HoldsView> {
  try {
    return viewOfHolds(await readHolds(deployment, signal), deployment);
  } catch (error) {
    if (!(error instanceof UnreadableEntryError)) throw error;
    return { holds: [], budgets: [], issue: error.message };
  }
}

/** @internal */
export function viewOfHolds(holds: Holds, { settings, clock }: Pick<Deployment, 'settings' | 'clock'>): HoldsView {
  const now = clock.now();
  return {
    holds: [...pausesOf(holds), ...failingOf(holds), ...spentBudgets(holds, settings, now)],
    budgets: budgetsOf(holds, settings, now).map((each) => budgetView(each, now)),
  };
}

function pausesOf({ pipeline, routes }: Holds): HoldView[] {
  const scopes = [[undefined, pipeline], ...Object.entries(routes)] as const;
  return scopes.flatMap(([route, { paused }]) =>
    paused === undefined ? [] : [withMessage({ reason: 'paused', route, since: iso(paused.since), why: paused.why })],
  );
}

const withMessage = (hold: Omit<HoldView, 'message'>): HoldView => ({ ...hold, message: messageOf(hold) });

function messageOf({ reason, route, why, customers = [], moreCustomers = 0 }: Omit<HoldView, 'message'>): string {
  const what = route === undefined ? 'The pipeline' : `The route ${route}`;
  if (reason === 'budget') return `${what} has no room left in its budget.`;
  const because = why === undefined ? '' : ` ${/[.!?]$/.test(why) ? why : `${why}.`}`;
  if (reason === 'paused') return `${what} is paused.${because}`;
  return `The last files of the route ${route} failed alike:${because} They are ${placesOf(customers, moreCustomers)}. What was submitted in bulk waits.`;
}

/** Such as `in alice/, in bob/, in no folder and in 3 more`. */
function placesOf(customers: readonly string[], more: number): string {
  const named = customers.map((customer) => `in ${customer === '' ? 'no folder' : customer}`);
  const all = more === 0 ? named : [...named, `in ${more} more`];
  return all.length < 2 ? all.join('') : `${all.slice(0, -1).join(', ')} and ${all.at(-1)}`;
}

const failingOf = ({ routes }: Holds): HoldView[] =>
  Object.entries(routes).flatMap(([route, { failing }]) =>
    failing === undefined ? [] : [failingView(route, failing)],
  );

const failingView = (route: string, { since, message, customers, moreCustomers }: Failing): HoldView =>
  withMessage({ reason: 'failing', route, since: iso(since), why: message, customers, moreCustomers });

/** The budgets that leave no room for another flow: of the pipeline, or of a route. */
function spentBudgets(holds: Holds, settings: Deployment['settings'], now: number): HoldView[] {
  const all = budgetsOf(holds, settings, now);
  const isFull = ({ budget, spent }: { budget: Budget; spent: Spent }, price: Price | undefined) =>
    roomIn(budget, spent, price) < 1;
  const pipeline = all.find(({ route }) => route === undefined);
  const full = settings.routes.filter(({ price }) => pipeline !== undefined && isFull(pipeline, price));
  const isAllFull =
    pipeline !== undefined && (full.length > 0 ? full.length === settings.routes.length : isFull(pipeline, undefined));
  const hold = (budget: Budget, route?: string): HoldView =>
    withMessage({ reason: 'budget', route, endsAt: iso(periodEnd(budget, now)) });
  if (pipeline !== undefined && isAllFull) return [hold(pipeline.budget)];
  return settings.routes.flatMap((route) => {
    // The pipeline may have room for the cheaper routes only.
    if (pipeline !== undefined && full.includes(route)) return [hold(pipeline.budget, route.name)];
    const own = all.find((each) => each.route === route.name);
    return own !== undefined && isFull(own, route.price) ? [hold(own.budget, route.name)] : [];
  });
}

function budgetView({ route, budget, spent, percent }: ReturnType<typeof budgetsOf>[number], now: number): BudgetView {
  const { per, timezone, flows, amount, currency } = budget;
  return {
    ...{ route, per, timezone, period: spent.period, endsAt: iso(periodEnd(budget, now)), percent },
    ...(flows !== undefined && { flows: shareOf(flows, spent.flows) }),
    ...(amount !== undefined &&
      currency !== undefined && {
        amount: { ...inAmounts(shareOf(microsOf(amount), spent.micros)), currency },
      }),
  };
}

const shareOf = (max: number, spent: number): Share => ({ max, spent, left: Math.max(0, max - spent) });

const inAmounts = ({ max, spent, left }: Share): Share => ({
  ...{ max: amountOf(max), spent: amountOf(spent), left: amountOf(left) },
});

const iso = (ms: number): string => new Date(ms).toISOString();

/**
 * The hold that keeps an upload of a route back.
 * @param upload `reason`: why it waits, by default the first that applies. `late`: true if it was submitted in bulk.
 */
export const holdOn = (
  { holds }: HoldsView,
  route: string,
  { reason, late = false }: { readonly reason?: string | undefined; readonly late?: boolean | undefined } = {},
): HoldView | undefined =>
  holds.find(
    (each) =>
      (each.route === undefined || each.route === route) &&
      (reason ?? each.reason) === each.reason &&
      (late || each.reason !== 'failing'),
  );

/** True for a wait that is told even while its route is held: sending does not end it, or somebody has to act. */
const isToldFirst = (reason: WaitReason): boolean => reason === 'in-doubt' || needsSomebody(WAITS[reason].ending);

/**
 * The hold that keeps a waiting upload back. The upload may have begun to wait for something else, such as the service,
 * or for another hold that is over.
 * @internal
 */
export function heldBy(entry: Entry, holds: HoldsView | undefined): HoldView | undefined {
  if (holds === undefined || entry.state !== 'waiting' || isToldFirst(entry.reason)) return undefined;
  const { reason, route, late } = entry;
  return holdOn(holds, route.name, { reason, late }) ?? holdOn(holds, route.name, { late });
}

/** The holds, if one of these entries waits: only then they matter for what is shown of it. @internal */
export const holdsFor = async (
  entries: readonly (Entry | undefined)[],
  deployment: Deployment,
  signal: AbortSignal,
): Promise<HoldsView | undefined> =>
  entries.some((entry) => entry?.state === 'waiting') ? holdsOf(deployment, signal) : undefined;

/** What ends a hold, in a sentence with the command. */
export function endOfHold(
  { reason, route, endsAt }: Omit<HoldView, 'message'>,
  { command, isLocal }: Pick<Deployment, 'command' | 'isLocal'>,
): string {
  const deployed = isLocal ? 'after a start with' : 'within a minute of a deployment with';
  switch (reason) {
    case 'paused':
      return `To go on: ${resumeCommand(command, route)}`;
    case 'budget':
      return `It goes on ${endsAt === undefined ? 'in the next period' : `at ${endsAt.replace('.000Z', 'Z')}`}, or ${deployed} a higher budget.`;
    case 'failing':
      return `If the route is wrong, ${isLocal ? 'correct it and start again' : 'deploy the corrected one'}. The bulk goes on after a success, or at once: ${resumeCommand(command, route)}. New files are sent as before. To stop them: ${command} pause --route ${shellWord(route as string)}`;
  }
}

const resumeCommand = (command: string, route: string | undefined): string =>
  route === undefined ? `${command} resume` : `${command} resume --route ${shellWord(route)}`;

/** Why an upload waits in the ledger, by what is held now. Undefined if it does not. @internal */
export const reasonOfWait = (entry: Entry, holds?: HoldsView): WaitReason | undefined =>
  entry.state === 'waiting' ? (heldBy(entry, holds)?.reason ?? entry.reason) : undefined;

/** Uploads that are held for one reason, of one route. */
export interface HeldCount {
  readonly reason: HoldReason;
  readonly route: string;
  readonly count: number;
}

/** @internal */
export function heldCounts(entries: readonly Entry[], holds?: HoldsView): readonly HeldCount[] {
  const counts = new Map<string, HeldCount>();
  for (const entry of entries) {
    const reason = reasonOfWait(entry, holds);
    if (reason === undefined || !isHold(reason)) continue;
    const route = entry.route.name;
    const key = JSON.stringify([reason, route]);
    counts.set(key, { reason, route, count: (counts.get(key)?.count ?? 0) + 1 });
  }
  return [...counts.values()];
}

/** The number of uploads that a hold keeps back, of those that were counted. */
export const countOf = ({ reason, route }: Pick<HoldView, 'reason' | 'route'>, held: readonly HeldCount[]): number =>
  held
    .filter((each) => each.reason === reason && (route === undefined || each.route === route))
    .reduce((sum, { count }) => sum + count, 0);

/** What became of a request, and what is held now. */
export interface HoldChange extends HoldsView {
  readonly result: HoldResult;
  /** The files that were being sent when a pause took effect. They may still become flows. */
  readonly sending?: SendingCount | undefined;
}

/** A number of files. If `isSample` is true, there may be more. */
export interface SendingCount {
  readonly count: number;
  readonly isSample: boolean;
}

/**
 * Where files are looked for that are being sent: the newest entries, and those with a marker. An older file has a marker
 * while it is claimed.
 */
const SENDING_WINDOW = { windowMs: SWEEP_REACH_MS, rowsMax: 1_000 };

/**
 * Pauses the pipeline or a route, or has it go on. Flows that run go on, and their results are collected. After a
 * pause, only files that are being sent already become flows, and the answer says how many those are.
 * @throws {AwsRequestError} @throws {FunctionFailedError}
 */
export async function changeHold(
  request: HoldRequest,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<HoldChange> {
  const answer = (await deployment.collecting.invoke({ hold: request }, signal)) as HoldAnswer;
  // Until then an invocation may go by what it has read before.
  if (answer.result === 'paused') await sleep(HOLDS_AGE_MAX_MS, undefined, { signal });
  const sending = answer.result === 'paused' ? await sendingNow(request.route, deployment, signal) : undefined;
  return {
    result: answer.result,
    ...viewOfHolds(holdsSchema.parse(answer.holds), deployment),
    ...(sending && { sending }),
  };
}

/** How many files of a route, or of the pipeline, are being sent. */
async function sendingNow(
  route: string | undefined,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<SendingCount> {
  const ids = [...(await new LedgerWindow(deployment, SENDING_WINDOW).look(signal)).keys()];
  const { rowsMax } = SENDING_WINDOW;
  const read = await readEntries(ids.slice(0, rowsMax), deployment, signal);
  const isSent = (entry: Entry | undefined): boolean =>
    entry?.state === 'claimed' && !isWaitingInPlace(entry) && (route ?? entry.route.name) === entry.route.name;
  return { count: read.filter(({ entry }) => isSent(entry)).length, isSample: ids.length >= rowsMax };
}

/** How a member of a request differs: `parameters.size was 3, and is 4`. @internal */
export function differences(was: RouteRequest, is: RouteRequest): readonly string[] {
  const before = leavesOf(was);
  const after = leavesOf(is);
  return [...new Set([...before.keys(), ...after.keys()])].flatMap((path) => {
    const [old, now] = [before.get(path), after.get(path)];
    return isDeepStrictEqual(old, now) ? [] : [`${path} was ${shown(old)}, and is ${shown(now)}`];
  });
}

const shown = (value: unknown): string => (value === undefined ? 'absent' : JSON.stringify(value));

/** The values in a request by their paths. An empty object or array is a value. */
function leavesOf({ template, input, parameters }: RouteRequest): ReadonlyMap<string, unknown> {
  const leaves = new Map<string, unknown>();
  const walk = (path: string, value: unknown): void => {
    const members = typeof value === 'object' && value !== null ? Object.entries(value) : [];
    if (members.length === 0) leaves.set(path, value);
    for (const [name, member] of members) walk(`${path}.${name}`, member);
  };
  walk('template', template);
  walk('input', input);
  if (parameters !== undefined) walk('parameters', parameters);
  return leaves;
}
