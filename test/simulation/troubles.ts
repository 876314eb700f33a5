import type { Variation } from '../../local/flow-service/variation.ts';
import type { Random } from './random.ts';
import type { Change, Scenario } from './scenario.ts';
import { DOUBTFUL } from './storm-faults.ts';

/** Beginnings and ends of ids that need encoding in a path, or look like something else there. */
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

/** An id of which nothing can be taken for granted but that it is no other's. */
export function oddId(random: Random): string {
  return `${random.pick(ODD_STARTS)}${random.hex(16)}${random.pick(ODD_ENDS)}`;
}

/** A storm with what may come on top of it. Each is drawn apart from all that was drawn before. */
export function withTroubles(storm: Scenario, random: Random): Scenario {
  return {
    ...storm,
    keysMax: random.pick([2, 3, 5, 1_000]),
    hasOddIds: random.chance(0.4),
    doNeighboursDelete: random.chance(0.5),
    changes: CHANGES.filter(() => random.chance(0.1)).map((what) => ({ at: random.int(0, storm.chaosMs), what })),
    expiriesAt: random.chance(0.15) ? [random.int(0, storm.chaosMs), random.int(0, storm.chaosMs)] : [],
    damageAt: random.chance(0.07) ? random.int(0, storm.chaosMs) : undefined,
    backfillsAt: random.chance(0.15) ? backfillsIn(random, storm.chaosMs) : [],
    areAllRetried: random.chance(0.3),
    variation: { ...storm.variation, ...furtherVariation(random, storm) },
    ...rarity(random, storm),
  };
}

/** What needs several rare things at the same time. The call that a storm looks at most of all is still looked at. */
function rarity(random: Random, storm: Scenario): Partial<Scenario> {
  const { variation, settings } = storm;
  const { focus } = storm.faultPlan;
  const dice = random.int(1, 20);
  // A claim is taken over by a process whose clock is ahead while its holder waits for the answer to a POST.
  if (dice === 1 && (variation.listingDelayMs ?? 0) <= 60_000) {
    return {
      skewMs: 140_000,
      isSkewWild: true,
      againEarly: 0.9,
      createLimitMs: 50_000,
      visibilitySeconds: 170,
      // Else the flow would be found at once.
      variation: { ...variation, ...furtherVariation(random, storm), listingDelayMs: 60_000 },
      faultPlan: { rate: 0.6, faults: ['slow'], calls: ['flow.create'], persistence: 0, focus },
    };
  }
  // A process dies while it looks for the flow of one that died before.
  if (dice === 2) {
    const faults = [...DOUBTFUL, 'killed before', 'killed before', 'killed after', 'killed after'] as const;
    return {
      suddenDeaths: 0.2,
      faultPlan: { rate: 0.5, faults, calls: ['flow.create', 'flows.list'], persistence: 0, focus },
    };
  }
  // A service that now and then does not know what it knows.
  if (dice === 3) {
    return {
      settings: { ...settings, pollIntervalSeconds: 20 },
      flowMsMin: 180_000,
      flowMsMax: 600_000,
      tickGapMs: { min: 20_000, max: 60_000 },
      faultPlan: { rate: 0.3, faults: ['404'], calls: ['flow.get', 'flow.outputs'], persistence: 0, focus },
    };
  }
  return {};
}

const CHANGES: readonly Change[] = ['route', 'pipeline', 'inbox', 'limits'];

/** Two, at about the same time. */
function backfillsIn(random: Random, chaosMs: number): readonly number[] {
  const at = random.int(0, chaosMs);
  return [at, at + random.int(0, 5_000)];
}

function furtherVariation(random: Random, { steps }: Scenario): Partial<Variation> {
  // The largest asset that is allowed has no room for more.
  const isBig = steps.some(({ key }) => key.startsWith('big/'));
  return {
    listAdditional: random.pick(['object', 'object', 'object', 'object', 'none', 'string']),
    listSort: random.chance(0.15) ? 'changed' : 'created',
    listActiveOnly: random.chance(0.15),
    outputsPaging: random.pick(['none', 'none', 'none', 'next', 'total']),
    outputsPageSize: random.pick([1, 2]),
    assetVaries: random.chance(0.25) && !isBig,
  };
}
