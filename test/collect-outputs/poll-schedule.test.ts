import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Clock } from '../../functions/base/clock.ts';
import { gridIndex, isDue, isEarly, isTooOld } from '../../functions/collect-outputs/poll-schedule.ts';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const T0 = Date.parse('2026-01-01T00:00:00Z');

/** Ages at which a flow is polled when a round is completed every `everyMs`, up to `untilMs`. */
function agesPolled(everyMs: number, untilMs: number, pollIntervalMs: number): number[] {
  const ages: number[] = [];
  let lastCompletedAt: number | undefined = T0 - everyMs;
  for (let age = everyMs; age <= untilMs; age += everyMs) {
    if (isDue(T0, lastCompletedAt, T0 + age, pollIntervalMs)) ages.push(age);
    lastCompletedAt = T0 + age;
  }
  return ages;
}

describe('a running flow', () => {
  it('is early for two poll intervals', () => {
    expect(isEarly(T0, T0 + 2 * MINUTE - 1, MINUTE)).toBe(true);
    expect(isEarly(T0, T0 + 2 * MINUTE, MINUTE)).toBe(false);
  });

  it.each([
    [1, 60_000],
    [2, 120_000],
  ] as const)('is too old after %i times its maximum age, and not at that age', (times, ageMs) => {
    const at = (ms: number) => ({ clock: { now: () => T0 + ms } as Clock, settings: { flowAgeMaxSeconds: 60 } });
    expect(isTooOld(T0, at(ageMs), times)).toBe(false);
    expect(isTooOld(T0, at(ageMs + 1), times)).toBe(true);
  });

  it('is due at the first round after it was created', () => {
    expect(isDue(T0, undefined, T0, MINUTE)).toBe(true);
    expect(isDue(T0, T0 - 1, T0 + 1, MINUTE)).toBe(true);
    // A round that began at its creation has polled it.
    expect(isDue(T0, T0, T0 + 1, MINUTE)).toBe(false);
  });

  it('is polled every interval while it is young', () => {
    expect(agesPolled(MINUTE, 10 * MINUTE, MINUTE)).toEqual(Array.from({ length: 10 }, (_, i) => (i + 1) * MINUTE));
  });

  it('is young for ten minutes, however short the interval is', () => {
    expect(gridIndex(10 * MINUTE, 10_000) - gridIndex(9 * MINUTE, 10_000)).toBe(6);
    expect(gridIndex(12 * MINUTE, 10_000) - gridIndex(10 * MINUTE, 10_000)).toBeLessThan(3);
  });

  it('is polled at a tenth of its age when it is older, and at least every 15 minutes', () => {
    const ages = agesPolled(MINUTE, 48 * HOUR, MINUTE);
    for (const [index, age] of ages.entries()) {
      const previous = ages[index - 1];
      if (previous === undefined || previous < 10 * MINUTE) continue;
      // Rounds come once a minute, so a gap may be a minute longer than the grid's.
      expect(age - previous).toBeLessThanOrEqual(Math.min(previous * 0.1, 15 * MINUTE) + MINUTE);
      expect(age - previous).toBeGreaterThanOrEqual(Math.min(previous * 0.1, 15 * MINUTE) - MINUTE);
    }
    expect(ages.length).toBeLessThan(10 + 28 + 4 * 46);
  });

  it('that a cut-off round did not reach is due at once', () => {
    const at = T0 + 5 * HOUR;
    expect(isDue(T0, at - 16 * MINUTE, at, MINUTE)).toBe(true);
  });

  it.each([5 * MINUTE, HOUR])(
    'is never polled more often than its interval of %i ms, once it is two intervals old',
    (ms) => {
      const ages = agesPolled(7_000, 20 * ms, ms).filter((age) => age > 2 * ms);
      for (const [index, age] of ages.slice(1).entries()) expect(age - (ages[index] ?? 0)).toBeGreaterThan(0.8 * ms);
    },
  );

  it('is polled three times as often at first, because many flows take only seconds', () => {
    const ages = agesPolled(1_000, 2 * MINUTE, MINUTE);
    expect(ages).toEqual([1_000, 20_000, 40_000, 60_000, 80_000, 100_000, 120_000]);
  });

  it('passes the points of its grid one after another, never back', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: 400 * 24 * HOUR }),
        fc.integer({ min: 0, max: HOUR }),
        fc.integer({ min: 1_000, max: HOUR }),
        (age, step, interval) => {
          expect(gridIndex(age + step, interval)).toBeGreaterThanOrEqual(gridIndex(age, interval));
          // Two points are never closer than nine tenths of a third of the interval: growth is cut to whole points.
          expect(gridIndex(age + step, interval) - gridIndex(age, interval)).toBeLessThanOrEqual(
            (3 * step) / interval / 0.9 + 2,
          );
        },
      ),
    );
  });
});
