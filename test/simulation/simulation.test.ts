import { describe, expect, it } from 'vitest';
import { find } from './find-mutations.ts';
import { MUTATIONS } from './mutations.ts';
import { simulate } from './simulation.ts';

// A short form of `npm run test:faults`, which runs more seeds, all mutations, and single seeds again. The gate runs it
// too, with these seeds among others.
const SEEDS = [7, 8] as const;
/** Mutations that are searched for here. They are the first, which take few seeds. */
const MUTATIONS_SEARCHED = 2;
const MINUTE = 60_000;

describe('the simulation', () => {
  it('breaks no invariant, and repeats a seed exactly, whatever ran before', { timeout: 5 * MINUTE }, async () => {
    const reports = [];
    for (const seed of SEEDS) reports.push(await simulate(seed));
    expect(reports.map(({ violation }) => violation)).toEqual(SEEDS.map(() => undefined));
    expect(new Set(reports.map(({ traceHash }) => traceHash)).size).toBe(SEEDS.length);
    expect(await simulate(SEEDS[0])).toEqual(reports[0]);
  });
});

describe('a mutation', () => {
  // Some take hundreds of seeds. `npm run test:faults -- --mutations` searches for all, every night.
  it.each(MUTATIONS.slice(0, MUTATIONS_SEARCHED))('is found: $name', { timeout: 5 * MINUTE }, async (mutation) => {
    expect(await find(mutation)).toBeDefined();
  });
});
