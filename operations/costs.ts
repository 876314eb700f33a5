import { GetObjectCommand } from '@aws-sdk/client-s3';
import pMap from 'p-map';
import { amountOf } from '../functions/base/money.ts';
import { costKeyOf, type DayCosts, dayCostsSchema, dayOf } from '../functions/holds/costs.ts';
import { HoldStore } from '../functions/holds/hold-store.ts';
import { COSTS_PREFIX, costsKey } from '../functions/ledger/keys.ts';
import { routesAfter } from '../functions/uploads/chain-routes.ts';
import type { Route } from '../functions/uploads/route.ts';
import { matchesKey } from '../functions/uploads/route-conditions.ts';
import { type ExpectedCosts, sumOfCosts, timesCosts } from './cost-texts.ts';
import type { Deployment } from './deployment.ts';
import { objects, READS_MAX } from './listing.ts';

export { type ExpectedCosts, sumOfCosts } from './cost-texts.ts';

/** The beginning of one or more flows. */
export interface FlowStart {
  /** Undefined if the route is not known. */
  readonly route: string | undefined;
  /** The key of the chain's first file, if it is known. */
  readonly firstKey?: string | undefined;
  /** Flows with the same one belong to one chain. Default: each begins a chain of its own. */
  readonly chain?: string | undefined;
  /** Number of flows. Default: 1. */
  readonly count?: number | undefined;
}

/**
 * The flows that these would begin, with one for each stage that comes after them. A stage that takes all assets of a
 * chain together makes one flow in each chain.
 */
export function expectedCosts(routes: readonly Route[], starts: readonly FlowStart[]): ExpectedCosts {
  const chains = Map.groupBy(starts, (start) => start.chain ?? start);
  const costs: ExpectedCosts[] = [];
  for (const ofChain of chains.values()) {
    const joined = new Set<Route>();
    const add = (name: string | undefined, firstKey: string | undefined, count: number, isLater: boolean): void => {
      const price = routes.find((route) => route.name === name)?.price;
      const one = { flows: 1, later: isLater ? 1 : 0, unpriced: price === undefined ? 1 : 0 };
      const amounts = price === undefined ? {} : { [price.currency]: price.amount };
      costs.push(timesCosts({ ...one, amounts }, count));
      for (const next of name === undefined ? [] : routesAfter(routes, name)) {
        if (firstKey !== undefined && !matchesKey({ prefixes: next.prefixes }, firstKey)) continue;
        if (next.inputs === 'all' && joined.has(next)) continue;
        if (next.inputs === 'all') joined.add(next);
        add(next.name, firstKey, count, true);
      }
    };
    for (const { route, firstKey, count = 1 } of ofChain) add(route, firstKey, count, false);
  }
  return sumOfCosts(costs);
}

/** How far back costs are told by default, in milliseconds: 30 days. */
const SINCE_MS = 30 * 24 * 60 * 60_000;

/** What costs can be told apart by. */
export const COSTS_BY = ['route', 'prefix', 'day'] as const;
export type CostsBy = (typeof COSTS_BY)[number];

/** What flows cost together. */
export interface CostRow {
  /** The route, the prefix or the day. `…` for the prefixes beyond 500 of a day. */
  readonly name: string;
  readonly flows: number;
  /** Of these, flows that may be the second ones of their uploads, because it was unknown whether one existed. */
  readonly mayBeSecond: number;
  /** The sum of the prices, by currency. Empty if the routes have no price. */
  readonly amounts: Readonly<Record<string, number>>;
}

export interface CostsView {
  readonly by: CostsBy;
  /** The first and the last day in UTC, such as `2026-11-24`. Whole days are counted. */
  readonly since: string;
  readonly until: string;
  /** Those with most flows first, and days in their order. */
  readonly rows: readonly CostRow[];
  readonly total: CostRow;
  /** False if no route has a price or a budget: then no flow is counted. */
  readonly isCounted: boolean;
}

/**
 * What the flows of the last days cost, as they were counted when they were sent. It reads an object for each day, and
 * no entry.
 * @param since milliseconds since the epoch. Default: 30 days ago.
 */
export async function costs(
  { by, since }: { readonly by: CostsBy; readonly since?: number | undefined },
  deployment: Deployment,
  signal: AbortSignal,
): Promise<CostsView> {
  const first = dayOf(since ?? deployment.clock.now() - SINCE_MS);
  return sumOf(await daysSince(first, deployment, signal), { by, first }, deployment);
}

/** What the flows of each route cost. */
export interface RecentCosts {
  readonly today: CostsView;
  /** The last 30 days, and today. */
  readonly lately: CostsView;
}

/** What the flows of each route cost today and in the last 30 days, by one reading. */
export async function recentCosts(deployment: Deployment, signal: AbortSignal): Promise<RecentCosts> {
  const now = deployment.clock.now();
  const first = dayOf(now - SINCE_MS);
  const days = await daysSince(first, deployment, signal);
  return {
    today: sumOf(days, { by: 'route', first: dayOf(now) }, deployment),
    lately: sumOf(days, { by: 'route', first }, deployment),
  };
}

type Days = readonly (readonly [day: string, costs: DayCosts])[];

/** Sums up the days from the first one on. */
function sumOf(
  days: Days,
  { by, first }: { readonly by: CostsBy; readonly first: string },
  { settings, clock }: Deployment,
): CostsView {
  const rows = new Map<string, MutableRow>();
  const total = emptyRow('total');
  for (const [day, totals] of days.filter(([day]) => day >= first)) {
    for (const [text, { flows, micros, again = 0 }] of Object.entries(totals)) {
      const key = costKeyOf(text);
      if (key === undefined || flows === 0) continue;
      const name = by === 'day' ? day : key[by];
      const row = rows.get(name) ?? emptyRow(name);
      rows.set(name, row);
      for (const each of [row, total]) {
        each.flows += flows;
        each.mayBeSecond += again;
        if (key.currency !== '') each.micros[key.currency] = (each.micros[key.currency] ?? 0) + micros;
      }
    }
  }
  const ordered = [...rows.values()].sort((one, other) =>
    by === 'day' ? one.name.localeCompare(other.name) : other.flows - one.flows || one.name.localeCompare(other.name),
  );
  return {
    by,
    since: first,
    until: dayOf(clock.now()),
    rows: ordered.map(rowOf),
    total: rowOf(total),
    isCounted:
      settings.budget !== 'unlimited' ||
      settings.routes.some(({ price, budget }) => price !== undefined || budget !== undefined),
  };
}

interface MutableRow {
  readonly name: string;
  flows: number;
  mayBeSecond: number;
  readonly micros: Record<string, number>;
}

const emptyRow = (name: string): MutableRow => ({ name, flows: 0, mayBeSecond: 0, micros: {} });

const rowOf = ({ name, flows, mayBeSecond, micros }: MutableRow): CostRow => ({
  ...{ name, flows, mayBeSecond },
  amounts: Object.fromEntries(Object.entries(micros).map(([currency, sum]) => [currency, amountOf(sum)])),
});

/** The costs of each day from this one on, the earliest first. */
async function daysSince(first: string, { s3, settings, clock }: Deployment, signal: AbortSignal): Promise<Days> {
  const bucket = settings.ledgerBucket;
  const ended: string[] = [];
  const after = costsKey(first).replace(/\.json$/, '');
  for await (const { Key = '' } of objects({ s3, bucket, prefix: COSTS_PREFIX, after }, signal)) ended.push(Key);
  const read = await pMap(
    ended,
    async (Key) => {
      const { Body } = await s3.send(new GetObjectCommand({ Bucket: bucket, Key }), { abortSignal: signal });
      const totals = dayCostsSchema.parse(JSON.parse((await Body?.transformToString()) ?? ''));
      return [Key.slice(COSTS_PREFIX.length, -'.json'.length), totals] as const;
    },
    { concurrency: READS_MAX },
  );
  // The last days are still in the holds. A day is in both places for a moment, and then both say the same.
  const store = new HoldStore({ s3, bucket, clock, nonce: () => '0000' });
  const { costs: open } = await store.read(signal);
  const days = new Map([...read, ...Object.entries(open).filter(([day]) => day >= first)]);
  return [...days].sort(([one], [other]) => one.localeCompare(other));
}
