import { expect, it } from 'vitest';
import { amountText } from '../../functions/base/money.ts';

it.each([
  [0.5, 'EUR', '0.50 EUR'],
  [0, 'EUR', '0.00 EUR'],
  [1234.5, 'USD', '1,234.50 USD'],
  [100, 'JPY', '100 JPY'],
  [1, 'BHD', '1.000 BHD'],
  [0.0125, 'BHD', '0.0125 BHD'],
  // A price may be below the smallest coin.
  [0.0004, 'EUR', '0.0004 EUR'],
  [0.4, 'JPY', '0.4 JPY'],
  [0.000001, 'EUR', '0.000001 EUR'],
  // No currency of today.
  [2, 'QQQ', '2.00 QQQ'],
])('shows %f %s with the digits of the currency', (amount, currency, text) => {
  expect(amountText(amount, currency)).toBe(text);
});
