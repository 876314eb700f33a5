import type { Random } from './random.ts';
import type { Scenario } from './scenario.ts';
import { DOUBTFUL } from './storm-faults.ts';

/** Longer than any storm with its healing, in hours. */
export const KEY_HOURS_MAX = 10_000;

/** A storm whose service may honour idempotency keys. Most such services list no flows. */
export function withKeys(storm: Scenario, random: Random): Scenario {
  // A search of a busy account is a trouble of its own.
  if (storm.findPagesMax !== undefined || !random.chance(0.25)) return storm;
  const isListed = random.chance(0.25);
  const { focus } = storm.faultPlan;
  const isDoubtful = random.chance(0.5);
  return {
    ...storm,
    speaks: { ...storm.speaks, ...(!isListed && { list: null }) },
    variation: {
      ...storm.variation,
      ...(!isListed && { listFlows: 404 }),
      idempotencyHours: random.pick([0.4, KEY_HOURS_MAX, KEY_HOURS_MAX]),
    },
    settings: { ...storm.settings, attemptsMax: random.pick([2, 3, 5, 10]) },
    ...(isDoubtful && {
      faultPlan: { rate: 0.5, faults: DOUBTFUL, calls: ['flow.create'], persistence: 0, focus },
    }),
  };
}
