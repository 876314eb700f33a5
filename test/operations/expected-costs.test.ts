import { expect, it } from 'vitest';
import type { Route } from '../../functions/uploads/route.ts';
import { costsText } from '../../operations/cost-texts.ts';
import { expectedCosts, type FlowStart } from '../../operations/costs.ts';

const route = (name: string, amount?: number, more: Partial<Route> = {}): Route => ({
  ...{ name, input: 'file', template: 'bytes_echo' },
  ...(amount !== undefined && { price: { amount, currency: 'EUR' } }),
  ...more,
});

/** `first`, then `checked` for each result, then `packed` for all of them; and `other`, without a price. */
const ROUTES = [
  route('first', 0.3),
  route('checked', 0.2, { after: 'first' }),
  route('packed', 0.1, { after: 'checked', inputs: 'all' }),
  route('other'),
];

const words = (...starts: readonly FlowStart[]) => costsText(expectedCosts(ROUTES, starts));

it('counts one flow for each stage of a chain', () => {
  expect(words({ route: 'first' })).toBe('3 flows, 0.60 EUR');
  expect(words({ route: 'checked' })).toBe('2 flows, 0.30 EUR');
  expect(words({ route: 'packed' })).toBe('1 flow, 0.10 EUR');
  expect(expectedCosts(ROUTES, [{ route: 'first' }])).toMatchObject({ flows: 3, later: 2, unpriced: 0 });
});

it('counts a stage that takes all results together once in each chain', () => {
  const inChain = (chain: string) => ({ route: 'checked', chain });
  expect(words(inChain('a'), inChain('a'))).toBe('3 flows, 0.50 EUR');
  expect(words(inChain('a'), inChain('b'))).toBe('4 flows, 0.60 EUR');
  expect(words({ route: 'checked', count: 2 })).toBe('4 flows, 0.60 EUR');
});

it('counts flows without a price, and of routes that are not known', () => {
  expect(words({ route: 'other' })).toBe('1 flow');
  expect(words({ route: undefined })).toBe('1 flow');
  expect(words({ route: 'gone' }, { route: 'packed' })).toBe('2 flows, 0.10 EUR and 1 flow without a price');
  expect(words()).toBe('0 flows');
});

it('leaves out stages that are for other keys', () => {
  const routes = [route('first', 1), route('left', 1, { after: 'first', prefixes: ['left/'] })];
  const flows = (firstKey?: string) => expectedCosts(routes, [{ route: 'first', firstKey }]).flows;
  expect([flows('left/a.png'), flows('right/a.png'), flows()]).toEqual([2, 1, 2]);
});
