import { describe, expect, it } from 'vitest';
import { find } from './find-mutations.ts';
import { MUTATIONS } from './mutations.ts';
import { simulate } from './simulation.ts';

// A short form of what `npm run test:faults` does; the long form, all planted mistakes and the replay of a seed are its.
const SEEDS = 40;
/** Mistakes that take no more seeds than this are looked for here. */
const SOON_SEEDS = 50;
const MINUTE = 60_000;

describe('a world in which everything goes wrong, and heals', () => {
  it(`keeps all its promises (${SEEDS} seeds)`, { timeout: 5 * MINUTE }, async () => {
    const broken: string[] = [];
    for (let seed = 1; seed <= SEEDS; seed += 1) {
      const { violation } = await simulate(seed);
      if (violation !== undefined) broken.push(`seed ${seed}: ${violation}`);
    }
    expect(broken).toEqual([]);
  });

  it('is the same again from the same seed, whatever ran before it', { timeout: 5 * MINUTE }, async () => {
    const first = await simulate(7);
    await simulate(8);
    const second = await simulate(7);
    expect(second).toEqual(first);
    expect((await simulate(9)).traceHash).not.toBe(first.traceHash);
  });
});

describe('a mistake that is made on purpose', () => {
  // Those that are found soon. The others take hundreds of seeds: `npm run test:faults -- --mutations` looks for all.
  const soon = MUTATIONS.filter(({ seedsMax }) => seedsMax <= SOON_SEEDS);

  it.each(soon)('is found: $name', { timeout: 5 * MINUTE }, async (mutation) => {
    expect(await find(mutation)).toBeDefined();
  });
});
