import { PutObjectCommand, type S3Client } from '@aws-sdk/client-s3';
import { microsOf } from '../base/money.ts';
import { costsKey } from '../ledger/keys.ts';
import { readableOr } from '../ledger/store.ts';
import type { EventBus } from '../publish/event-bus.ts';
import { pauseCommand, type RetrySettings } from '../publish/retry-command.ts';
import { type Budget, capOf, roomIn, type Spent } from '../uploads/budget.ts';
import type { Route } from '../uploads/route.ts';
import type { HoldPorts } from './attempt.ts';
import { dayOf } from './costs.ts';
import { alikeEvent, budgetEvent, type SpentBudget } from './hold-events.ts';
import { type Holds, noteTold, removeRoutes, spentOf } from './holds.ts';

/*
 * What a tick of the first collector does for the holds. It tells of failing routes and of budgets that are nearly spent,
 * and moves the costs of past days out of the holds.
 */

/**
 * How long the costs of a day stay in the holds after its end, in milliseconds. Until then, a flow of that day may be in
 * doubt, and may have to be uncounted.
 */
const COSTS_KEPT_MS = 24 * 60 * 60_000;

/** Shares of a budget at which an event is sent, in percent. */
const TOLD_PERCENTS = [80, 100] as const;

export interface TendPorts extends HoldPorts {
  readonly events: EventBus;
  readonly s3: S3Client;
  readonly settings: HoldPorts['settings'] &
    RetrySettings & { readonly pipeline: string; readonly ledgerBucket: string };
}

/** @throws any error of S3. The next tick does the rest then. */
export async function tendHolds(ports: TendPorts, signal: AbortSignal): Promise<void> {
  const holds = await readableOr(ports.holds.read(signal), (error) => {
    ports.telemetry.metrics.add('HoldsUnreadable');
    ports.telemetry.log.error('Nothing is sent, because the holds cannot be read', { error });
    return undefined;
  });
  if (holds === undefined) return;
  await forgetRoutes(holds, ports, signal);
  await tellFailingRoutes(holds, ports, signal);
  await tellBudgets(holds, ports, signal);
  await moveCosts(holds, ports, signal);
}

/** Removes what is kept of routes that were removed from the configuration. */
async function forgetRoutes(holds: Holds, { holds: store, clock, settings }: TendPorts, signal: AbortSignal) {
  const names = new Set(settings.routes.map(({ name }) => name));
  if (Object.keys(holds.routes).every((name) => names.has(name))) return;
  await store.change((draft) => removeRoutes(draft, names, clock.now()), signal);
}

async function tellFailingRoutes(holds: Holds, ports: TendPorts, signal: AbortSignal): Promise<void> {
  const { pipeline } = ports.settings;
  const all = Object.entries(holds.routes).flatMap(([name, { failing }]) => (failing ? [{ name, failing }] : []));
  if (all.length > 0) ports.telemetry.metrics.add('RoutesFailing', all.length);
  for (const { name, failing } of all) {
    if (failing.isTold) continue;
    await ports.events.send(alikeEvent(pipeline, name, failing, pauseCommand(ports.settings, name)), signal);
    await ports.holds.change((draft) => {
      const now = draft.routes[name]?.failing;
      if (now?.since === failing.since) now.isTold = true;
    }, signal);
  }
}

async function tellBudgets(holds: Holds, ports: TendPorts, signal: AbortSignal): Promise<void> {
  const now = ports.clock.now();
  const all = budgetsOf(holds, ports.settings, now);
  if (all.length === 0) return;
  ports.telemetry.metrics.add('BudgetSpentPercent', Math.max(...all.map(({ percent }) => percent)));
  for (const each of all) {
    const { budget, spent } = each;
    const reached = TOLD_PERCENTS.findLast((share) => each.percent >= share);
    // If a deployment has changed the cap, the shares of the new one are told.
    const told = (spent.toldOf ?? capOf(budget)) === capOf(budget) ? (spent.told ?? 0) : 0;
    if (reached === undefined || reached <= told) continue;
    await ports.events.send(budgetEvent(ports.settings.pipeline, each, reached, now), signal);
    await ports.holds.change((draft) => noteTold(draft, each, reached), signal);
  }
}

/**
 * Moves the costs of days that have ended out of the holds, into an object for each day. No flow is added to such a day
 * any more. So after a crash in between, the next tick writes the same object again.
 */
async function moveCosts(holds: Holds, ports: TendPorts, signal: AbortSignal): Promise<void> {
  const before = dayOf(ports.clock.now() - COSTS_KEPT_MS);
  for (const [day, costs] of Object.entries(holds.costs)) {
    if (day >= before) continue;
    const { ledgerBucket: Bucket } = ports.settings;
    const put = { Bucket, Key: costsKey(day), Body: JSON.stringify(costs), ContentType: 'application/json' };
    await ports.s3.send(new PutObjectCommand(put), { abortSignal: signal });
    await ports.holds.change((draft) => {
      delete draft.costs[day];
    }, signal);
  }
}

/** Every budget, and what is spent of it. */
export function budgetsOf(
  holds: Holds,
  { routes, budget }: { readonly routes: readonly Route[]; readonly budget: Budget | 'unlimited' },
  now: number,
): SpentBudget[] {
  const spentBudget = (route: string | undefined, cap: Budget, of: readonly Route[]): SpentBudget => {
    const spent = spentOf(route === undefined ? holds.pipeline : holds.routes[route], cap, now);
    return { route, budget: cap, spent, percent: percentOf(cap, spent, of) };
  };
  return [
    ...(budget === 'unlimited' ? [] : [spentBudget(undefined, budget, routes)]),
    ...routes.flatMap((route) => (route.budget === undefined ? [] : [spentBudget(route.name, route.budget, [route])])),
  ];
}

/**
 * The share that is spent, in whole percent, rounded down: 99 for 499 of 500 flows. At least 100 if what is left pays
 * for no flow: 1 EUR, 0.80 of it spent, and a price of 0.40.
 * @param routes those that the budget applies to.
 */
function percentOf(budget: Budget, spent: Spent, routes: readonly Route[]): number {
  const { flows, amount } = budget;
  const isFull = routes.every(({ price }) => roomIn(budget, spent, price) < 1);
  const shares = [
    isFull ? 1 : 0,
    ...(flows === undefined || flows === 0 ? [] : [spent.flows / flows]),
    ...(amount === undefined || amount === 0 ? [] : [spent.micros / microsOf(amount)]),
  ];
  return Math.floor(100 * Math.max(...shares));
}
