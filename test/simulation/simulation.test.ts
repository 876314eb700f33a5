import { describe, expect, it } from 'vitest';
import { find } from './find-mutations.ts';
import { MUTATIONS } from './mutations.ts';
import { simulate } from './simulation.ts';

// A short form of `npm run test:faults`, which runs more seeds, all mutations, and single seeds again. The gate runs 100
// seeds with it, among them these.
const SEEDS = 10;
/** Mutations that are searched for here. They are the first, which take few seeds. */
const MUTATIONS_SEARCHED = 3;
const MINUTE = 60_000;

describe('the simulation', () => {
  it(`breaks no invariant in ${SEEDS} seeds`, { timeout: 5 * MINUTE }, async () => {
    const broken: string[] = [];
    for (let seed = 1; seed <= SEEDS; seed += 1) {
      const { violation } = await simulate(seed);
      if (violation !== undefined) broken.push(`seed ${seed}: ${violation}`);
    }
    expect(broken).toEqual([]);
  });

  it('repeats a seed exactly, whatever ran before', { timeout: 5 * MINUTE }, async () => {
    const first = await simulate(7);
    await simulate(8);
    const second = await simulate(7);
    expect(second).toEqual(first);
    expect((await simulate(9)).traceHash).not.toBe(first.traceHash);
  });
});

describe('a mutation', () => {
  // Some take hundreds of seeds. `npm run test:faults -- --mutations` searches for all, every night.
  it.each(MUTATIONS.slice(0, MUTATIONS_SEARCHED))('is found: $name', { timeout: 5 * MINUTE }, async (mutation) => {
    expect(await find(mutation)).toBeDefined();
  });
});
