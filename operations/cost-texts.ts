import { amountOf, amountText, digitsText, microsOf } from '../functions/base/money.ts';

/* How budgets and expected costs are told. The page loads this file into the browser. */

/** `1.20 EUR + 1.00 USD`. Empty without an amount. */
export const sumText = (amounts: Readonly<Record<string, number>>): string =>
  Object.entries(amounts)
    .map(([currency, amount]) => amountText(amount, currency))
    .join(' + ');

/** How far a limit is used up. */
export interface Share {
  readonly max: number;
  readonly spent: number;
  readonly left: number;
}

/** What is used up of a budget: `2 of 5 flows spent, 3 left; 0.50 of 1.25 EUR spent, 0.75 left`. */
export function sharesText({
  flows,
  amount,
}: {
  readonly flows?: Share | undefined;
  readonly amount?: (Share & { readonly currency: string }) | undefined;
}): string {
  const words = ({ spent, max, left }: Share, unit: string, digits: (each: number) => string): string =>
    `${digits(spent)} of ${digits(max)} ${unit} spent, ${digits(left)} left`;
  return [
    ...(flows === undefined ? [] : [words(flows, 'flows', (each) => each.toLocaleString('en'))]),
    ...(amount === undefined ? [] : [words(amount, amount.currency, (each) => digitsText(each, amount.currency))]),
  ].join('; ');
}

/** Flows that something would begin, and what they cost. */
export interface ExpectedCosts {
  /** Number of flows, with one for each later stage of their chains. */
  readonly flows: number;
  /** Of these, flows of later stages. */
  readonly later: number;
  /** Of all, flows whose routes have no price. */
  readonly unpriced: number;
  /** The sum of the prices, by currency. Empty if the routes have no price. */
  readonly amounts: Readonly<Record<string, number>>;
}

/** Adds costs up. */
export function sumOfCosts(all: readonly ExpectedCosts[]): ExpectedCosts {
  const sum = { flows: 0, later: 0, unpriced: 0 };
  const micros: Record<string, number> = {};
  for (const { flows, later, unpriced, amounts } of all) {
    sum.flows += flows;
    sum.later += later;
    sum.unpriced += unpriced;
    for (const [currency, amount] of Object.entries(amounts)) {
      micros[currency] = (micros[currency] ?? 0) + microsOf(amount);
    }
  }
  return { ...sum, amounts: Object.fromEntries(Object.entries(micros).map(([name, each]) => [name, amountOf(each)])) };
}

/** The costs of the same so many times. */
export const timesCosts = ({ flows, later, unpriced, amounts }: ExpectedCosts, count: number): ExpectedCosts => ({
  ...{ flows: flows * count, later: later * count, unpriced: unpriced * count },
  amounts: Object.fromEntries(
    Object.entries(amounts).map(([currency, amount]) => [currency, amountOf(microsOf(amount) * count)]),
  ),
});

/** `2 flows, 0.50 EUR`; `2 flows` without a price; `3 flows, 0.50 EUR and 1 flow without a price`. */
export function costsText({ flows, unpriced, amounts }: ExpectedCosts): string {
  const sum = sumText(amounts);
  if (sum === '') return flowsText(flows);
  return `${flowsText(flows)}, ${sum}${unpriced === 0 ? '' : ` and ${flowsText(unpriced)} without a price`}`;
}

const flowsText = (count: number): string =>
  `${new Intl.NumberFormat('en').format(count)} ${count === 1 ? 'flow' : 'flows'}`;

/** What a number of flows leaves open. Undefined if it is exact. */
export const laterText = ({ later }: ExpectedCosts): string | undefined =>
  later === 0
    ? undefined
    : 'Each later stage is counted with one flow. It makes one for each result that it takes, so there may be more or fewer.';

/** `2 flows, 0.50 EUR.`, and what that leaves open. */
export const costsSentence = (costs: ExpectedCosts): string =>
  [`${costsText(costs)}.`, laterText(costs) ?? []].flat().join(' ');
