import { DENIED_KEY } from './names.ts';
import type { Random } from './random.ts';
import { type Change, putStep, type Scenario } from './scenario.ts';
import { manySteps } from './steady-scenario.ts';
import { DOUBTFUL } from './storm-faults.ts';
import { BACKFILL_MS, NEEDS } from './storm-needs.ts';
import { MINUTE, SECOND } from './timeline.ts';

/** Beginnings and ends of ids that need encoding in a path, or that look like another part of it. */
const ODD_STARTS = [
  'a b',
  'x/y',
  '.hidden',
  'ü',
  'e\u0301',
  '100%',
  '?q=',
  '#',
  '+',
  '~',
  "'",
  '\\',
  '😀',
  '-',
  '..',
  'a//',
];
const ODD_ENDS = ['', '', '.glb', '/', ' ', '.', '%2F', '&', ':', '*', '(1)', '/outputs', 'é'];

/** A unique id with unusual characters. */
export function oddId(random: Random): string {
  return `${random.pick(ODD_STARTS)}${random.hex(16)}${random.pick(ODD_ENDS)}`;
}

/** A storm with further troubles. They are drawn from random numbers of their own. */
export function withTroubles(storm: Scenario, random: Random): Scenario {
  const troubled: Scenario = {
    ...storm,
    keysMax: random.pick([2, 3, 5, 1_000]),
    hasOddIds: random.chance(0.4),
    doNeighboursDelete: random.chance(0.5),
    changes: random.some(CHANGES, 0.1).map((what) => ({ at: random.int(0, storm.chaosMs), what })),
    expiriesAt: random.chance(0.15) ? [random.int(0, storm.chaosMs), random.int(0, storm.chaosMs)] : [],
    damageAt: random.chance(0.07) ? random.int(0, storm.chaosMs) : undefined,
    backfillsAt: backfillsOf(random, storm),
    areAllRetried: random.chance(0.3),
    ...rarity(random, storm),
    sweepDamageAt: random.chance(0.2) ? random.int(0, storm.chaosMs) : undefined,
  };
  const deniedAt = random.chance(0.1) ? [random.int(0, MINUTE), random.int(0, 4 * MINUTE)] : [];
  return { ...troubled, steps: [...troubled.steps, ...deniedAt.map((at) => putStep(at, DENIED_KEY, `hidden ${at}`))] };
}

/** Number of uploads in a world that waits for a rare takeover. Each is one chance of it. */
const TAKEOVER_UPLOADS = 16;

/** Troubles that need several rare things at the same time. The storm keeps its focus. */
function rarity(random: Random, storm: Scenario): Partial<Scenario> {
  const { variation, settings } = storm;
  const { focus } = storm.faultPlan;
  const dice = random.int(1, 20);
  // A claim is taken over by a process whose clock is ahead while its holder waits for the answer to a POST. The time
  // limit is longer than a slow POST, so that its answer arrives, and the clocks differ by more than a claim holds.
  if (dice === 1 && (variation.listingDelayMs ?? 0) <= MINUTE) {
    return {
      // With the lag of the listing, the clocks may differ by four minutes.
      skewMs: 120 * SECOND,
      isSkewWild: true,
      isSkewExtreme: true,
      steps: [...storm.steps, ...manySteps(random, TAKEOVER_UPLOADS, 18 * MINUTE, ['echo/'])],
      chaosMs: Math.max(20 * MINUTE, storm.chaosMs),
      rotations: [],
      suddenDeaths: 0,
      againEarly: 0.9,
      createLimitMs: 90 * SECOND,
      visibilitySeconds: 210,
      // The flow must not be found at once.
      variation: { ...variation, listingDelayMs: MINUTE },
      faultPlan: { rate: 0.6, faults: ['slow'], calls: ['flow.create'], persistence: 0, focus },
    };
  }
  // A process dies while it searches for the flow of a process that died before.
  if (dice === 2) {
    const faults = [...DOUBTFUL, 'killed before', 'killed before', 'killed after', 'killed after'] as const;
    return {
      suddenDeaths: 0.2,
      faultPlan: { rate: 0.5, faults, calls: ['flow.create', 'flows.list'], persistence: 0, focus },
    };
  }
  // The service answers 404 now and then for flows that exist.
  if (dice === 3) {
    return {
      settings: { ...settings, pollIntervalSeconds: 20 },
      flowMsMin: 3 * MINUTE,
      flowMsMax: 10 * MINUTE,
      tickGapMs: { min: 20 * SECOND, max: MINUTE },
      faultPlan: { rate: 0.3, faults: ['404'], calls: ['flow.get', 'flow.outputs'], persistence: 0, focus },
    };
  }
  return {};
}

const CHANGES: readonly Change[] = ['route', 'pipeline', 'inbox', 'limits'];

/** Two backfills at about the same time, or none. If the storm needs one, they come when uploads are old enough. */
function backfillsOf(random: Random, { faultPlan, chaosMs }: Scenario): readonly number[] {
  const isNeeded = faultPlan.focus !== undefined && NEEDS[faultPlan.focus.call]?.areBackfilled === true;
  if (!random.chance(0.15) && !isNeeded) return [];
  const at = isNeeded ? chaosMs - BACKFILL_MS : random.int(0, chaosMs);
  return [at, at + random.int(0, 5 * SECOND)];
}
