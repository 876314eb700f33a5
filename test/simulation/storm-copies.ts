import type { Random } from './random.ts';
import type { Scenario, Step } from './scenario.ts';
import { MINUTE } from './timeline.ts';

/** Share of storms in which objects are copied onto themselves. */
const SHARE = 0.35;

/**
 * A storm in which somebody changes the metadata of objects, now and then: S3 announces that as copies. What it draws
 * comes from random numbers of their own.
 */
export function withCopies(storm: Scenario, random: Random): Scenario {
  if (!random.chance(SHARE)) return storm;
  const latest = storm.chaosMs - MINUTE;
  const copies = storm.steps.flatMap((step): readonly Step[] => {
    if (step.kind !== 'put' || step.content.byteLength === 0 || step.at >= latest || !random.chance(0.3)) return [];
    // Soon after it was put, or when it may have ended.
    const afterMs = random.chance(0.5) ? MINUTE : storm.chaosMs;
    const at = random.int(step.at + 1, Math.min(latest, step.at + afterMs));
    return [{ at, kind: 'copy', key: step.key }];
  });
  return { ...storm, steps: [...storm.steps, ...copies].sort((a, b) => a.at - b.at) };
}
