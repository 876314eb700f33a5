import * as z from 'zod/mini';
import { iso } from '../base/clock.ts';
import { jsonIn } from '../base/json.ts';
import type { CountedFlow } from '../ledger/entry-schema.ts';

/*
 * The costs of each day's flows, by route and by the prefix of the file. A flow is added by the write that counts it
 * for the budgets, so it is added once. Days that have ended move into objects of their own: see `tend-holds.ts`.
 */

/** What flows cost together. */
const totalsSchema = z.object({
  flows: z.int(),
  /** The sum of their prices, in millionths. */
  micros: z.int(),
  /** How many of these flows may be second flows of their uploads, because an earlier request may have made one too. */
  again: z.optional(z.int()),
});

/** Each of these combinations has totals of its own. */
export interface CostKey {
  readonly route: string;
  /**
   * The first segment of the file's key below `inboxPrefix`, with its slash. In a chain, the key is that of the first
   * file. Empty if the key has no slash. {@link OTHER_PREFIXES} if the day has its maximum number of totals.
   */
  readonly prefix: string;
  /** Empty if the route has no price. */
  readonly currency: string;
}

/** The totals of a day. Each is under its {@link CostKey}, as JSON: `["videos","anna/","EUR"]`. */
export const dayCostsSchema = z.record(z.string(), totalsSchema);
export type DayCosts = z.infer<typeof dayCostsSchema>;

/** By day in UTC, such as `2026-11-24`. */
export const costsSchema = z.record(z.string(), dayCostsSchema);
export type Costs = z.infer<typeof costsSchema>;

/** Maximum number of totals of a day. Each flow that is counted writes all of them, a hundred bytes each. */
const DAY_TOTALS_MAX = 500;

/** Stands for all further prefixes of a route, which are counted together. */
const OTHER_PREFIXES = '…';

export const dayOf = (at: number): string => iso(at).slice(0, 'yyyy-mm-dd'.length);

const textOf = ({ route, prefix, currency }: CostKey): string => JSON.stringify([route, prefix, currency]);

/** Reads the key of totals. Undefined if the text is no such key. */
export function costKeyOf(text: string): CostKey | undefined {
  const parsed = z.tuple([z.string(), z.string(), z.string()]).safeParse(jsonIn(text)).data;
  return parsed && { route: parsed[0], prefix: parsed[1], currency: parsed[2] };
}

/**
 * Adds a flow to the costs of its day, or takes it away again. Two flows at 400,000 make `{ flows: 2, micros: 800_000 }`.
 * If one of them was not made, -1 leaves `{ flows: 1, micros: 400_000 }`.
 */
export function addCost(
  costs: Costs,
  { routeName: route, prefix }: { readonly routeName: string; readonly prefix: string },
  { micros, currency, at, isAgain }: CountedFlow,
  flows: 1 | -1,
): void {
  const day = dayOf(at);
  // A day that has its own object already is not changed: its flows stay counted.
  if (flows < 0 && costs[day] === undefined) return;
  costs[day] ??= {};
  const totals = costs[day];
  const own = textOf({ route, prefix, currency });
  const isFull = totals[own] === undefined && Object.keys(totals).length >= DAY_TOTALS_MAX;
  const text = isFull ? textOf({ route, prefix: OTHER_PREFIXES, currency }) : own;
  const before = totals[text] ?? { flows: 0, micros: 0 };
  const again = (before.again ?? 0) + (isAgain ? flows : 0);
  totals[text] = {
    flows: Math.max(0, before.flows + flows),
    micros: Math.max(0, before.micros + flows * micros),
    ...(again > 0 && { again }),
  };
}

/** The prefix of a file with this key: `anna/` for `in/anna/cat.png` below `in/`, and empty for `in/cat.png`. */
export function prefixIn(key: string, inboxPrefix: string): string {
  const rest = key.startsWith(inboxPrefix) ? key.slice(inboxPrefix.length) : key;
  const end = rest.indexOf('/');
  return end < 0 ? '' : rest.slice(0, Math.min(end + 1, PREFIX_LENGTH_MAX));
}

/** Maximum length of a prefix that is kept, in characters. */
const PREFIX_LENGTH_MAX = 100;
