import { type PipelineSettings, SETTINGS_DEFAULT } from '../../functions/settings/settings.ts';
import type { Variation } from '../../local/flow-service/variation.ts';
import type { Focus } from './faults.ts';
import type { Random } from './random.ts';
import { ASSET_BYTES_MAX, BIG_ASSET_BYTES, ROUTES, type Scenario } from './scenario.ts';
import { NOTHING_SPECIAL } from './steady-scenario.ts';
import { bigAssetFaultsOf, stormFaultsOf } from './storm-faults.ts';
import { BACKFILL_MS, NEEDS, type StormNeeds } from './storm-needs.ts';
import { stormStepsOf } from './storm-steps.ts';
import { MINUTE, SECOND } from './timeline.ts';

/** Age from which the sweep submits an upload that has no entry, in milliseconds. */
const SWEPT_AFTER_MS = 15 * MINUTE;

/** Time in which a file is replaced, in milliseconds: long enough for each file to have its results first. */
const REPLACED_MS = 40 * MINUTE;

/** A storm: everything at once, and then over. @param focus a call that the storm must make. */
export function stormScenarioOf(random: Random, focus: Focus | undefined): Scenario {
  const scenario = drawnScenarioOf(random, focus);
  // A lossy storm may lose a message at its first receive: the sweep then leads to a claim that has died.
  return scenario.isLossy && scenario.receivesMax === 3 ? { ...scenario, receivesMax: 1 } : scenario;
}

function drawnScenarioOf(random: Random, focus: Focus | undefined): Scenario {
  const needs = (focus && NEEDS[focus.call]) ?? {};
  const variation = variationOf(random);
  // Clocks that differ and a listing that lags are five minutes together at most.
  const isSkewWild = random.chance(0.1) && (variation.listingDelayMs ?? 0) <= 20 * SECOND;
  const createLimitMs = random.pick([90 * SECOND, 5 * MINUTE, 15 * MINUTE]);
  const spanMs = needs.areAliasesMoved ? REPLACED_MS : random.pick([MINUTE, 4 * MINUTE, 10 * MINUTE]);
  const calmMs = needs.areBackfilled ? SWEPT_AFTER_MS + BACKFILL_MS : 0;
  const chaosMs = spanMs + random.int(needs.areTimedOut ? 8 : 2, 10) * MINUTE + calmMs;
  const steps = stormStepsOf(random, spanMs, focus, needs);
  const isBig = steps.some(({ key }) => key.startsWith('big/'));
  const areTimedOut = needs.areTimedOut ?? (!needs.areQuick && random.chance(0.12));
  return {
    kind: 'storm',
    versioning: random.pick(['Enabled', 'Enabled', 'Enabled', 'Suspended', undefined]),
    routes: ROUTES,
    settings: settingsOf(random, isBig, areTimedOut),
    variation,
    collectors: random.pick([1, 1, 1, 2, 3]),
    createLimitMs,
    collectLimitMs: random.pick([60 * SECOND, 5 * MINUTE, 15 * MINUTE]),
    visibilitySeconds: createLimitMs / SECOND + 120,
    receivesMax: random.pick([3, 20]),
    flowMsMin: 1,
    serviceLimits: {},
    flowMsMax: flowMsMaxOf(random, needs, areTimedOut),
    skewMs: isSkewWild ? 140 * SECOND : random.pick([0, 0, 25 * SECOND]),
    isSkewWild,
    isLossy: needs.areSwept ?? needs.areBackfilled ?? random.chance(0.3),
    faultPlan: { ...(needs.faultPlan ?? (isBig ? bigAssetFaultsOf(random) : stormFaultsOf(random))), focus },
    steps,
    rotations: rotationsOf(random, chaosMs),
    suddenDeaths: random.pick([0, 0, 0.05, 0.2]),
    chaosMs,
    tickGapMs: random.pick([
      { min: 20 * SECOND, max: 150 * SECOND },
      { min: MINUTE, max: 5 * MINUTE },
    ]),
    sweepGapMs: sweepGapOf(needs),
    areRetried: needs.areRetried ?? random.chance(0.2),
    hasNeighbours: random.chance(0.5),
    ...NOTHING_SPECIAL,
  };
}

/** Time between two daily passes. If a backfill is needed, none comes before it. */
function sweepGapOf({ areSwept, areBackfilled }: StormNeeds): Scenario['sweepGapMs'] {
  if (areBackfilled) return { min: 60 * MINUTE, max: 60 * MINUTE };
  return areSwept ? { min: MINUTE, max: 4 * MINUTE } : { min: 5 * MINUTE, max: 20 * MINUTE };
}

function settingsOf(random: Random, isBig: boolean, areTimedOut: boolean): PipelineSettings {
  return {
    ...SETTINGS_DEFAULT,
    uploadConcurrency: random.int(1, 4),
    assetBytesMax: isBig ? BIG_ASSET_BYTES : ASSET_BYTES_MAX,
    attemptsMax: random.pick([1, 2, 3, 5]),
    inDoubt: random.chance(0.7) ? 'retry' : 'ask',
    pollIntervalSeconds: random.pick([20, 60, 60, 120]),
    pollConcurrency: random.pick([1, 4, 64]),
    assetConcurrency: random.pick([2, 4]),
    flowAgeMaxSeconds: areTimedOut ? random.int(60, 240) : SETTINGS_DEFAULT.flowAgeMaxSeconds,
    resultsPrefix: random.chance(0.2) ? 'out/' : '',
  };
}

function flowMsMaxOf(random: Random, { areQuick }: StormNeeds, areTimedOut: boolean): number {
  if (areTimedOut) return 60 * MINUTE;
  return areQuick ? 20 * SECOND : random.pick([20 * SECOND, 3 * MINUTE, 20 * MINUTE]);
}

/** The secret gets each new token up to two minutes before or ten minutes after the service does. */
function rotationsOf(random: Random, chaosMs: number): Scenario['rotations'] {
  return Array.from({ length: random.pick([0, 0, 1, 2]) }, () => {
    const at = random.int(0, chaosMs);
    return { at, secretAt: at + random.int(-2 * MINUTE, 10 * MINUTE) };
  });
}

/** How the service answers. */
function variationOf(random: Random): Partial<Variation> {
  const getFlow = random.chance(0.7) ? 'served' : random.pick([404, 405, 501, 'forgotten', 'leading-on'] as const);
  const served = random.pick([404, 405, 501] as const);
  return {
    outputsPath: random.pick(['flows', 'root']),
    getFlow,
    listFlows: random.chance(0.75) ? 'served' : served,
    changeFlow: random.chance(0.8) ? 'served' : served,
    flowIdName: random.pick(['flow_id', 'id']),
    assetIdName: random.pick(['asset_id', 'id']),
    outputsShape: random.pick(['object', 'bare']),
    // If the service does not serve flows, only a 404 of the outputs tells that a flow is gone.
    earlyOutputs: random.pick(
      getFlow === 'served' ? ['conflict', 'not-found', 'empty', 'pending'] : ['conflict', 'empty', 'pending'],
    ),
    paging: random.pick(['page', 'cursor', 'link', 'none']),
    pageSize: random.pick([1, 2, 5, 50]),
    order: random.pick(['descending', 'ascending']),
    listingDelayMs: random.pick([0, 0, 20 * SECOND, MINUTE, 4 * MINUTE]),
    assetForm: random.pick(['raw', 'json']),
    assetLength: random.pick(['content-length', 'chunked']),
  };
}
