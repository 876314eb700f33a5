/** Amounts are added as whole millionths, because sums of decimal fractions are not exact. */
export const MICROS = 1_000_000;

/** An amount in whole millionths. */
export const microsOf = (amount: number): number => Math.round(amount * MICROS);

/** The amount of so many millionths. */
export const amountOf = (micros: number): number => micros / MICROS;

/** Maximum number of decimals of an amount. */
const DECIMALS_MAX = 6;

/**
 * An amount with the digits of its currency: `0.50` of EUR, `1,200` of JPY, `0.500` of BHD. A price with a part of the
 * smallest coin keeps its decimals: `0.0004` of EUR.
 */
export function digitsText(amount: number, currency: string): string {
  const { maximumFractionDigits: digits = 2 } = new Intl.NumberFormat('en', {
    style: 'currency',
    currency,
  }).resolvedOptions();
  const options = { minimumFractionDigits: digits, maximumFractionDigits: Math.max(digits, DECIMALS_MAX) };
  return new Intl.NumberFormat('en', options).format(amount);
}

/** `0.50 EUR` */
export const amountText = (amount: number, currency: string): string => `${digitsText(amount, currency)} ${currency}`;
