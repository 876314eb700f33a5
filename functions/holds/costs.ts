import * as z from 'zod/mini';

/*
 * What the flows of each day cost, by route and by the prefix of the file. Flows are added where they are counted,
 * so each counts once. Days that have ended move into objects of their own: see `tend-holds.ts`.
 */

const totalsSchema = z.object({
  flows: z.int(),
  /** The sum of their prices, in millionths. */
  micros: z.int(),
  /** How many of the flows may be the second ones of their uploads: an earlier request may have made one too. */
  again: z.optional(z.int()),
});

/** What flows cost together. */
export type Totals = z.infer<typeof totalsSchema>;

/** What is told apart. */
export interface CostKey {
  readonly route: string;
  /**
   * The first segment of the file's key, with its slash: below `inboxPrefix`, and in a chain of the first file. Empty if
   * the key has no slash. {@link OTHER_PREFIXES} for those beyond the limit.
   */
  readonly prefix: string;
  /** Empty if the route has no price. */
  readonly currency: string;
}

/** The totals of a day, by the JSON of {@link CostKey} as a list. */
export const dayCostsSchema = z.record(z.string(), totalsSchema);
export type DayCosts = z.infer<typeof dayCostsSchema>;

/** By day in UTC, such as `2026-11-24`. */
export const costsSchema = z.record(z.string(), dayCostsSchema);
export type Costs = z.infer<typeof costsSchema>;

/** Maximum number of totals of a day. Each flow that is counted writes all of them, a hundred bytes each. */
const DAY_TOTALS_MAX = 500;

/** Stands for the prefixes beyond that number. */
const OTHER_PREFIXES = '…';

export const dayOf = (at: number): string => new Date(at).toISOString().slice(0, 'yyyy-mm-dd'.length);

const textOf = ({ route, prefix, currency }: CostKey): string => JSON.stringify([route, prefix, currency]);

/** The key of totals. Undefined if the text is none. */
export function costKeyOf(text: string): CostKey | undefined {
  const parsed = z.tuple([z.string(), z.string(), z.string()]).safeParse(parsedJson(text)).data;
  return parsed && { route: parsed[0], prefix: parsed[1], currency: parsed[2] };
}

function parsedJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/**
 * Adds flows to a day, or takes them away again.
 * @param flows negative if they were not made.
 * @param price of each, in millionths.
 */
export function addCosts(
  costs: Costs,
  at: number,
  key: CostKey,
  { flows, price, again = 0 }: { readonly flows: number; readonly price: number; readonly again?: number },
): void {
  const day = dayOf(at);
  // Flows of a day that was moved away stay counted.
  if (flows < 0 && costs[day] === undefined) return;
  costs[day] ??= {};
  const totals = costs[day];
  const own = textOf(key);
  const isFull = totals[own] === undefined && Object.keys(totals).length >= DAY_TOTALS_MAX;
  const text = isFull ? textOf({ ...key, prefix: OTHER_PREFIXES }) : own;
  const before = totals[text] ?? { flows: 0, micros: 0 };
  const sum = (before.again ?? 0) + again;
  totals[text] = {
    flows: Math.max(0, before.flows + flows),
    micros: Math.max(0, before.micros + flows * price),
    ...(sum > 0 && { again: sum }),
  };
}

/** The prefix of a file with this key. */
export function prefixIn(key: string, inboxPrefix: string): string {
  const rest = key.startsWith(inboxPrefix) ? key.slice(inboxPrefix.length) : key;
  const end = rest.indexOf('/');
  return end < 0 ? '' : rest.slice(0, Math.min(end + 1, PREFIX_LENGTH_MAX));
}

/** Maximum length of a prefix that is kept, in characters. */
const PREFIX_LENGTH_MAX = 100;
