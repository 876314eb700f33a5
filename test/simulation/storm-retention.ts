import type { Random } from './random.ts';
import type { Scenario } from './scenario.ts';
import { NEEDS } from './storm-needs.ts';

/** Share of the storms in which assets expire. */
const SHARE = 0.35;

/** A storm whose assets may expire, long after it. What it draws comes from random numbers of their own. */
export function withRetention(storm: Scenario, random: Random): Scenario {
  const { focus } = storm.faultPlan;
  const isNeeded = focus !== undefined && NEEDS[focus.call]?.doExpire === true;
  return random.chance(SHARE) || isNeeded ? { ...storm, resultsRetentionDays: 30 } : storm;
}
