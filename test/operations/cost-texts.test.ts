import { expect, it } from 'vitest';
import { costsSentence, costsText, sharesText, sumOfCosts, sumText, timesCosts } from '../../operations/cost-texts.ts';

it('shows sums of several currencies', () => {
  expect(sumText({ EUR: 1.2, JPY: 40 })).toBe('1.20 EUR + 40 JPY');
  expect(sumText({})).toBe('');
});

const flow = (amounts: Record<string, number> = {}, later = 0) => ({
  ...{ flows: 1, later, amounts },
  unpriced: Object.keys(amounts).length === 0 ? 1 : 0,
});

it('says how many flows, and their sum where prices are set', () => {
  expect(costsText(flow())).toBe('1 flow');
  expect(costsText(timesCosts(flow(), 1_200))).toBe('1,200 flows');
  expect(costsText(timesCosts(flow({ EUR: 0.25 }), 2))).toBe('2 flows, 0.50 EUR');
  expect(costsText(sumOfCosts([flow({ EUR: 0.25 }), flow({ USD: 1 })]))).toBe('2 flows, 0.25 EUR + 1.00 USD');
  const mixed = sumOfCosts([flow({ EUR: 0.25 }), flow(), flow({ EUR: 0.25 })]);
  expect(costsText(mixed)).toBe('3 flows, 0.50 EUR and 1 flow without a price');
  expect(costsText(sumOfCosts([flow({ EUR: 0 })]))).toBe('1 flow, 0.00 EUR');
});

it('adds as exact decimals', () => {
  const tenth = flow({ EUR: 0.1 });
  expect(sumOfCosts([tenth, tenth, tenth]).amounts).toEqual({ EUR: 0.3 });
  expect(timesCosts(flow({ EUR: 0.07 }), 3).amounts).toEqual({ EUR: 0.21 });
});

it('says that later stages may make more flows', () => {
  expect(costsSentence(flow())).toBe('1 flow.');
  expect(costsSentence(sumOfCosts([flow(), flow({}, 1)]))).toMatch(
    /^2 flows\. Each later stage is counted with one flow\./,
  );
});

it('says what is used up of a budget, the same for flows and amounts', () => {
  const flows = { max: 1_200, spent: 2, left: 1_197 };
  const amount = { max: 5, spent: 1.2, left: 3.8, currency: 'EUR' };
  expect(sharesText({ flows })).toBe('2 of 1,200 flows spent, 1,197 left');
  expect(sharesText({ amount })).toBe('1.20 of 5.00 EUR spent, 3.80 left');
  expect(sharesText({ flows, amount })).toBe(`${sharesText({ flows })}; ${sharesText({ amount })}`);
});
