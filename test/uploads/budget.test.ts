import { describe, expect, it } from 'vitest';
import { check } from '../../functions/base/validation.ts';
import {
  type Budget,
  budgetSchema,
  periodEnd,
  periodOf,
  priceSchema,
  roomIn,
  spentNow,
} from '../../functions/uploads/budget.ts';

const at = (time: string): number => Date.parse(time);
const issuesOf = (budget: unknown) => check(budgetSchema, budget, 'budget').issues;
const HOUR = 3_600_000;

describe('the period of a budget', () => {
  it.each([
    ['day', 'UTC', '2026-11-24T23:59:59.999Z', '2026-11-24', '2026-11-25T00:00:00.000Z'],
    ['day', 'Europe/Berlin', '2026-11-24T22:59:59.999Z', '2026-11-24', '2026-11-24T23:00:00.000Z'],
    ['day', 'America/Los_Angeles', '2026-11-24T07:59:59.999Z', '2026-11-23', '2026-11-24T08:00:00.000Z'],
    ['day', 'Asia/Kathmandu', '2026-11-24T18:14:59.999Z', '2026-11-24', '2026-11-24T18:15:00.000Z'],
    ['week', 'UTC', '2026-11-29T12:00:00.000Z', 'week of 2026-11-23', '2026-11-30T00:00:00.000Z'],
    ['week', 'UTC', '2026-01-01T00:00:00.000Z', 'week of 2025-12-29', '2026-01-05T00:00:00.000Z'],
    ['month', 'UTC', '2026-02-28T23:59:59.999Z', '2026-02', '2026-03-01T00:00:00.000Z'],
    ['month', 'Europe/Berlin', '2026-12-31T23:00:00.000Z', '2027-01', '2027-01-31T23:00:00.000Z'],
  ] as const)('%s in %s at %s is %s and ends %s', (per, timezone, time, period, end) => {
    const budget = { per, timezone };
    expect(periodOf(budget, at(time))).toBe(period);
    expect(new Date(periodEnd(budget, at(time))).toISOString()).toBe(end);
  });

  it('has 23 hours when clocks go forward, and 25 when they go back', () => {
    const budget = { per: 'day', timezone: 'Europe/Berlin' } as const;
    const spring = at('2026-03-28T23:00:00Z');
    const autumn = at('2026-10-24T22:00:00Z');
    expect(periodOf(budget, spring)).toBe('2026-03-29');
    expect(periodEnd(budget, spring) - spring).toBe(23 * HOUR);
    expect(periodOf(budget, autumn)).toBe('2026-10-25');
    expect(periodEnd(budget, autumn) - autumn).toBe(25 * HOUR);
  });
});

describe('what is spent', () => {
  const budget: Budget = { flows: 5, per: 'day', timezone: 'UTC' };
  const midnight = at('2026-11-25T00:00:00Z');

  it('counts until the period ends, and then begins at nothing', () => {
    const spent = { period: '2026-11-24', flows: 5, micros: 0 };
    expect(spentNow(budget, [spent], midnight - 1)).toBe(spent);
    expect(spentNow(budget, [spent], midnight)).toEqual({ period: '2026-11-25', flows: 0, micros: 0 });
    expect(spentNow(budget, [], midnight)).toEqual({ period: '2026-11-25', flows: 0, micros: 0 });
  });

  it('counts for a slow clock in the period that a faster clock has begun', () => {
    const spent = { period: '2026-11-25', flows: 1, micros: 0 };
    expect(spentNow(budget, [spent], midnight - 5 * 60_000)).toBe(spent);
    expect(spentNow(budget, [spent], midnight - 5 * 60_000 - 1).flows).toBe(0);
  });

  it.each([
    [{ flows: 5 }, undefined, 3],
    [{ flows: 2 }, undefined, 0],
    [{ flows: 1 }, undefined, 0],
    [{ amount: 1, currency: 'EUR' }, { amount: 0.1, currency: 'EUR' }, 7],
    [{ amount: 0.3, currency: 'EUR' }, { amount: 0.1, currency: 'EUR' }, 0],
    [{ amount: 1, currency: 'EUR' }, { amount: 0, currency: 'EUR' }, Number.POSITIVE_INFINITY],
    [{ flows: 4, amount: 1, currency: 'EUR' }, { amount: 0.1, currency: 'EUR' }, 2],
  ])('leaves room in %j at a price of %j for %s', (caps, price, room) => {
    const spent = { period: '2026-11-24', flows: 2, micros: 300_000 };
    expect(roomIn({ per: 'day', timezone: 'UTC', ...caps }, spent, price)).toBe(room);
  });
});

describe('a budget in the configuration', () => {
  it.each([
    [{ per: 'day' }, 'budget.flows: expected flows, or amount and currency, but it is missing'],
    [{ flows: 5 }, 'budget.per: expected "day", "week" or "month", but it is missing'],
    [{ flows: 1.5, per: 'day' }, 'budget.flows: expected a whole number of flows from 0 to 1000000000, got 1.5'],
    [{ amount: 5, per: 'day' }, 'budget.currency: expected the currency of amount, but it is missing'],
    [
      { flows: 5, currency: 'EUR', per: 'day' },
      'budget.amount: expected the amount of that currency, but it is missing',
    ],
    [
      { amount: 0.0000001, currency: 'EUR', per: 'day' },
      'budget.amount: expected an amount from 0 to 1000000000, with at most six decimals, got 1e-7',
    ],
    [
      { flows: 5, per: 'day', timezone: 'Europe/Atlantis' },
      'budget.timezone: expected the name of a time zone, such as "Europe/Berlin", got "Europe/Atlantis"',
    ],
    [
      { flows: 5, per: 'day', currency: 'euro', amount: 1 },
      'budget.currency: expected a currency of three capital letters, such as "EUR", got "euro"',
    ],
  ])('%j is refused: %s', (budget, issue) => {
    expect(issuesOf(budget)).toEqual([issue]);
  });

  it('is in UTC unless it says otherwise, and a price may have six decimals', () => {
    expect(check(budgetSchema, { flows: 0, per: 'week' }, '').data).toEqual({ flows: 0, per: 'week', timezone: 'UTC' });
    expect(check(priceSchema, { amount: 0.000001, currency: 'USD' }, '').issues).toEqual([]);
  });
});
