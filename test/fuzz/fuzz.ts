import { setImmediate } from 'node:timers/promises';
import fc from 'fast-check';
import { it } from 'vitest';

/** How many cases each property is tried on: enough for every run of the tests, or `FUZZ_RUNS` for an occasion. */
const RUNS = Number(process.env.FUZZ_RUNS ?? 1_000);

/** Cases at a stretch, between which the test runner gets its turn. */
const STRETCH = 2_000;

/** Milliseconds. A case takes well below one. */
const TIMEOUT = 60_000 + RUNS * 5;

/** A behaviour that holds for whatever comes. Where it does not, fast-check says with which seed it can be seen again. */
export function fuzz<T>(behaviour: string, input: fc.Arbitrary<T>, holds: (input: T) => Promise<void> | void): void {
  it(
    `${behaviour} (${RUNS} cases)`,
    async () => {
      const property = fc.asyncProperty(input, async (value) => holds(value));
      for (let left = RUNS; left > 0; left -= STRETCH) {
        await fc.assert(property, { numRuns: Math.min(left, STRETCH) });
        await setImmediate();
      }
    },
    TIMEOUT,
  );
}

/** Some text with a few of its characters left out, doubled, or become others. */
export const mutated = (text: fc.Arbitrary<string>): fc.Arbitrary<string> =>
  fc
    .tuple(
      text,
      fc.array(
        fc.tuple(
          fc.nat(),
          fc.constantFrom('drop', 'double', 'replace', 'cut'),
          fc.string({ unit: 'binary', size: 'xsmall' }),
        ),
        {
          maxLength: 4,
        },
      ),
    )
    .map(([whole, changes]) =>
      changes.reduce((before, [place, change, other]) => {
        const at = before.length === 0 ? 0 : place % before.length;
        const [head, one, tail] = [before.slice(0, at), before.slice(at, at + 1), before.slice(at + 1)];
        switch (change) {
          case 'drop':
            return head + tail;
          case 'double':
            return head + one + one + tail;
          case 'replace':
            return head + other + tail;
          default:
            return place % 7 === 0 ? head : before; // Seldom: what is cut leaves little to look at.
        }
      }, whole),
    );

/** Any JSON, in which members that somebody looks at are more frequent than others. */
export const jsonWith = (...names: readonly string[]): fc.Arbitrary<unknown> => {
  const leaf = fc.oneof(
    fc.constantFrom<unknown>(null, true, false, 0, -1, 1.5, 1e300, '', '.', '..', '__proto__', 'x'.repeat(300)),
    fc.string({ unit: 'binary' }),
    fc.constantFrom(...names),
    fc.integer(),
  );
  return fc.letrec((tie) => ({
    any: fc.oneof({ depthSize: 'small', withCrossShrink: true }, leaf, tie('list'), tie('object'), tie('object')),
    list: fc.array(tie('any'), { maxLength: 4 }),
    object: fc
      .array(
        fc.tuple(
          fc.oneof({ weight: 5, arbitrary: fc.constantFrom(...names) }, { weight: 1, arbitrary: fc.string() }),
          tie('any'),
        ),
        {
          maxLength: 5,
        },
      )
      .map((members) => Object.fromEntries(members)),
  })).any;
};
