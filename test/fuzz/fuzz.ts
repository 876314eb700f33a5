import { setImmediate } from 'node:timers/promises';
import fc from 'fast-check';
import { it } from 'vitest';

/** Number of cases for each property: enough for every test run. `FUZZ_RUNS` sets another number. */
const RUNS = Number(process.env.FUZZ_RUNS ?? 1_000);

/** Cases in a row. Between two rows, the test runner gets its turn. */
const STRETCH = 2_000;

/** Time limit of a case, in milliseconds. It takes well below one. fast-check prints a case that does not end. */
const CASE_MS = 10_000;

/** Time limit of a property, in milliseconds. */
const TIMEOUT = 60_000 + RUNS * 5;

/** Tests a behaviour with random input. If it fails, fast-check prints the seed that repeats the failure. */
export function fuzz<T>(behaviour: string, input: fc.Arbitrary<T>, holds: (input: T) => Promise<void> | void): void {
  it(
    `${behaviour} (${RUNS} cases)`,
    async () => {
      const property = fc.asyncProperty(input, async (value) => holds(value));
      for (let left = RUNS; left > 0; left -= STRETCH) {
        await fc.assert(property, { numRuns: Math.min(left, STRETCH), timeout: CASE_MS });
        await setImmediate();
      }
    },
    TIMEOUT,
  );
}

const change = fc.record({
  place: fc.nat(),
  kind: fc.constantFrom('drop', 'double', 'replace', 'cut'),
  other: fc.string({ unit: 'binary', size: 'xsmall' }),
});

/** Text with a few characters dropped, doubled or replaced. */
export const mutated = (text: fc.Arbitrary<string>): fc.Arbitrary<string> =>
  fc.tuple(text, fc.array(change, { maxLength: 4 })).map(([whole, changes]) =>
    changes.reduce((before, { place, kind, other }) => {
      const at = before.length === 0 ? 0 : place % before.length;
      const [head, one, tail] = [before.slice(0, at), before.slice(at, at + 1), before.slice(at + 1)];
      // Seldom, because cut text leaves little to test.
      if (kind === 'cut') return place % 7 === 0 ? head : before;
      return head + { drop: '', double: one + one, replace: other }[kind] + tail;
    }, whole),
  );

/** Any JSON. Members with the given names are more frequent than others. */
export const jsonWith = (...names: readonly string[]): fc.Arbitrary<unknown> => {
  const leaf = fc.oneof(
    fc.constantFrom<unknown>(null, true, false, 0, -1, 1.5, 1e300, '', '.', '..', '__proto__', 'x'.repeat(300)),
    fc.string({ unit: 'binary' }),
    fc.constantFrom(...names),
    fc.integer(),
  );
  const name = fc.oneof({ weight: 5, arbitrary: fc.constantFrom(...names) }, { weight: 1, arbitrary: fc.string() });
  return fc.letrec((tie) => ({
    any: fc.oneof({ depthSize: 'small', withCrossShrink: true }, leaf, tie('list'), tie('object'), tie('object')),
    list: fc.array(tie('any'), { maxLength: 4 }),
    object: fc.array(fc.tuple(name, tie('any')), { maxLength: 5 }).map((members) => Object.fromEntries(members)),
  })).any;
};
