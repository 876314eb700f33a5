import { SETTINGS_DEFAULT } from '../../functions/settings/settings.ts';
import type { Random } from './random.ts';
import { ASSET_BYTES_MAX, putStep, ROUTES, type Scenario, type Step } from './scenario.ts';
import { MINUTE } from './timeline.ts';

/** Troubles that no scenario has unless they are added. */
export const NOTHING_SPECIAL = {
  againEarly: 0.2,
  changes: [],
  expiriesAt: [],
  backfillsAt: [],
  areAllRetried: false,
  isOperated: false,
  doNeighboursDelete: false,
  keysMax: 1_000,
  hasOddIds: false,
  isSkewExtreme: false,
} as const satisfies Partial<Scenario>;

/** A world in which nothing goes wrong, unless a trouble is added. */
export function steadyScenario(random: Random, steps: readonly Step[]): Scenario {
  return {
    kind: 'limits',
    versioning: 'Enabled',
    routes: ROUTES,
    settings: { ...SETTINGS_DEFAULT, assetBytesMax: ASSET_BYTES_MAX },
    variation: {
      outputsPath: random.pick(['flows', 'root']),
      paging: random.pick(['page', 'cursor', 'link']),
      assetForm: random.pick(['raw', 'json']),
    },
    collectors: 1,
    createLimitMs: 5 * MINUTE,
    collectLimitMs: 5 * MINUTE,
    visibilitySeconds: 7 * 60,
    receivesMax: 20,
    flowMsMin: 1,
    flowMsMax: MINUTE,
    serviceLimits: {},
    skewMs: 0,
    isSkewWild: false,
    isLossy: false,
    faultPlan: { rate: 0, faults: [], persistence: 0 },
    steps,
    rotations: [],
    suddenDeaths: 0,
    chaosMs: 0,
    tickGapMs: { min: MINUTE, max: MINUTE },
    sweepGapMs: { min: MINUTE, max: MINUTE },
    areRetried: false,
    hasNeighbours: false,
    ...NOTHING_SPECIAL,
  };
}

/** `count` uploads within `spanMs`, each at a key of its own. */
export function manySteps(random: Random, count: number, spanMs: number, prefixes: readonly string[]): readonly Step[] {
  const steps = Array.from({ length: count }, (_, index) => {
    const content = `upload ${index} ${random.hex(random.int(1, 200))}`;
    const key = `${random.pick(prefixes)}${index}.bin`;
    return putStep(random.int(0, spanMs), key, content);
  });
  return steps.sort((a, b) => a.at - b.at);
}
