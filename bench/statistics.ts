/** The median of some values, and their range. */
export interface Spread {
  readonly median: number;
  readonly min: number;
  readonly max: number;
}

export function spread(values: readonly number[]): Spread {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length / 2;
  const [low, high] = [sorted[Math.ceil(middle) - 1], sorted[Math.floor(middle)]];
  return {
    median: ((low ?? Number.NaN) + (high ?? Number.NaN)) / 2,
    min: sorted[0] ?? Number.NaN,
    max: sorted.at(-1) ?? Number.NaN,
  };
}

/** Ratios of `a` to `b`, pair by pair. A pair was measured one after the other, under the same load of the machine. */
export const ratio = (a: readonly number[], b: readonly number[]): Spread =>
  spread(a.map((value, index) => value / (b[index] ?? Number.NaN)));

/** Numbers of requests, by operation. */
export type Counts = Readonly<Record<string, number>>;

export const total = (counts: Counts): number => Object.values(counts).reduce((sum, count) => sum + count, 0);
