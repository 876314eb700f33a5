import * as z from 'zod/mini';
import { CLOCK_SKEW_MAX_MS, iso } from '../base/clock.ts';
import { MICROS, microsOf } from '../base/money.ts';
import { compareMembers, matching, strictObject, wholeNumber } from '../base/validation.ts';

/** What one flow costs. */
export interface Price {
  /** The price, with at most six decimals. */
  readonly amount: number;
  /** Its currency in three capital letters, such as `EUR`. */
  readonly currency: string;
}

/** A cap on what is spent in each calendar day, week or month. At least one of `flows` and `amount` is there. */
export interface Budget {
  /** Maximum number of flows. */
  readonly flows?: number | undefined;
  /** Maximum sum of the prices of the flows. */
  readonly amount?: number | undefined;
  /** The currency of `amount`, in three capital letters. All prices must be in it. */
  readonly currency?: string | undefined;
  /** The calendar period that the cap is for. Weeks begin on Monday. */
  readonly per: 'day' | 'week' | 'month';
  /** Name of the time zone in which the days begin, such as `Europe/Berlin`. Default: `UTC`. */
  readonly timezone: string;
}

/** Highest number of flows, and highest amount, that a budget can name. */
const CAP_MAX = 1_000_000_000;

const amountSchema = (what: string) => {
  const error = `expected ${what} from 0 to ${CAP_MAX}, with at most six decimals`;
  return z.number({ error }).check(
    z.gte(0, { error }),
    z.lte(CAP_MAX, { error }),
    z.refine((value) => Number.isInteger(Number((value * MICROS).toPrecision(15))), { error }),
  );
};

const currencySchema = matching('a currency of three capital letters, such as "EUR"', /^[A-Z]{3}$/);

/** @internal */
export const priceSchema: z.ZodMiniType<Price> = strictObject(
  { amount: amountSchema('the price of one flow'), currency: currencySchema },
  'a price such as {"amount": 0.4, "currency": "EUR"}',
);

const PER_ERROR = 'expected "day", "week" or "month"';

/** @internal */
export const budgetSchema: z.ZodMiniType<Budget> = strictObject(
  {
    flows: z.optional(wholeNumber('a whole number of flows', 0, CAP_MAX)),
    amount: z.optional(amountSchema('an amount')),
    currency: z.optional(currencySchema),
    per: z.enum(['day', 'week', 'month'], { error: PER_ERROR }),
    timezone: z._default(
      z
        .string({ error: 'expected the name of a time zone' })
        .check(z.refine(isTimezone, { error: 'expected the name of a time zone, such as "Europe/Berlin"' })),
      'UTC',
    ),
  },
  'a budget such as {"flows": 500, "per": "day"}',
).check(
  compareMembers(({ flows, amount, currency }, isSound, refuse) => {
    if (!isSound('flows') || !isSound('amount') || !isSound('currency')) return;
    if (flows === undefined && amount === undefined) refuse(['flows'], 'expected flows, or amount and currency');
    else if (amount !== undefined && currency === undefined) refuse(['currency'], 'expected the currency of amount');
    else if (amount === undefined && currency !== undefined) refuse(['amount'], 'expected the amount of that currency');
  }),
);

function isTimezone(name: string): boolean {
  try {
    return dates(name) !== undefined;
  } catch {
    return false;
  }
}

const formats = new Map<string, Intl.DateTimeFormat>();

/** Writes the local date of a time zone as `2026-11-24`. Kept, because it takes long to make. @throws {RangeError} */
function dates(timeZone: string): Intl.DateTimeFormat {
  const known = formats.get(timeZone);
  if (known !== undefined) return known;
  const options = { timeZone, calendar: 'iso8601', year: 'numeric', month: '2-digit', day: '2-digit' } as const;
  const made = new Intl.DateTimeFormat('en-CA', options);
  formats.set(timeZone, made);
  return made;
}

const DAY_MS = 24 * 60 * 60_000;

/**
 * The calendar period that a time is in, by its first day: `2026-11-24`, `week of 2026-11-23` or `2026-11`. Weeks begin
 * on Monday. Later periods of a budget sort after earlier ones.
 * @param at milliseconds since the epoch.
 */
export function periodOf({ per, timezone }: Pick<Budget, 'per' | 'timezone'>, at: number): string {
  const date = dates(timezone).format(at);
  if (per === 'day') return date;
  if (per === 'month') return date.slice(0, 'yyyy-mm'.length);
  const midnight = Date.parse(date);
  const sinceMonday = (new Date(midnight).getUTCDay() + 6) % 7;
  return `week of ${iso(midnight - sinceMonday * DAY_MS).slice(0, 'yyyy-mm-dd'.length)}`;
}

/** When the period ends that a time is in, in milliseconds since the epoch. Days have 23 to 25 hours. */
export function periodEnd(budget: Pick<Budget, 'per' | 'timezone'>, at: number): number {
  const period = periodOf(budget, at);
  let inside = at;
  let outside = at + 33 * DAY_MS;
  while (outside - inside > 1) {
    const middle = Math.floor((inside + outside) / 2);
    if (periodOf(budget, middle) === period) inside = middle;
    else outside = middle;
  }
  return outside;
}

/** What is spent in one period: flows, and the sum of their prices in millionths. */
export interface Spent {
  readonly period: string;
  readonly flows: number;
  readonly micros: number;
  /** The highest share that was told, in percent. */
  readonly told?: number | undefined;
  /** The cap that it is a share of, as {@link capOf} writes it. */
  readonly toldOf?: string | undefined;
}

/** Tells the cap of a budget from that of a later deployment. */
export const capOf = ({ flows, amount }: Budget): string => JSON.stringify([flows, amount]);

/** What is spent of a budget by now, of all that was spent. What was spent in another period does not count. */
export function spentNow(budget: Budget, all: readonly Spent[], now: number): Spent {
  const period = periodOf(budget, now);
  // Clocks differ. A period that one process has begun is not ended by another one.
  const begun = periodOf(budget, now + CLOCK_SKEW_MAX_MS);
  return all.find((spent) => spent.period === period || spent.period === begun) ?? { period, flows: 0, micros: 0 };
}

/**
 * The number of flows for which a budget has room. If the cap is 10 flows and 5 EUR, and 7 flows for 3.40 EUR were made,
 * there is room for 3 more flows by their number, and for 4 by a price of 0.40 EUR. So it is 3.
 */
export function roomIn({ flows, amount }: Budget, spent: Spent, price: Price | undefined): number {
  const byFlows = flows === undefined ? Number.POSITIVE_INFINITY : flows - spent.flows;
  const micros = price === undefined ? 0 : microsOf(price.amount);
  const left = amount === undefined ? Number.POSITIVE_INFINITY : microsOf(amount) - spent.micros;
  const byAmount = micros === 0 ? (left >= 0 ? Number.POSITIVE_INFINITY : 0) : Math.floor(left / micros);
  return Math.max(0, Math.min(byFlows, byAmount));
}

/** What is wrong with the price of a route for a budget. A flow without a price would not count. */
export function priceIssueOf(budget: Budget | undefined, price: Price | undefined): string | undefined {
  if (budget?.currency === undefined || price?.currency === budget.currency) return undefined;
  return `expected a price in ${budget.currency}, the currency of the budget`;
}
