import type { Receipt } from '../../functions/publish/report-schemas.ts';
import { demand } from './demand.ts';
import type { Fault } from './faults.ts';
import { RESULTS } from './names.ts';
import type { Random } from './random.ts';
import { type Poison, putStep, type Scenario } from './scenario.ts';
import { runSteadily } from './steady.ts';
import { manySteps, steadyScenario } from './steady-scenario.ts';
import { THROTTLING } from './storm-faults.ts';
import { MINUTE, SECOND } from './timeline.ts';
import type { World } from './world.ts';

/*
 * Worlds in which single flows or single assets meet a fault at every call, for ever. They delay no other upload. When
 * their flows are past the maximum age, they end with a receipt of the failure.
 */

/** Faults that a flow or an asset may meet for ever. */
const FAULTS: readonly Fault[] = [
  '401',
  '402',
  '429 without Retry-After',
  '429 in seconds',
  '429 with a date',
  '500',
  '502',
  '503',
  '503 in seconds',
  'half',
  'lost',
];

/** Faults that an asset may meet for ever. */
const ASSET_FAULTS: readonly Fault[] = [...FAULTS, 'page'];

/**
 * Time from the end of a healthy flow to its receipt: a minute until a tick sees the flow, a minute between two polls
 * of it, and three for the ticks that meet the poison first.
 */
const HEALTHY_MS = 5 * MINUTE;

/** What `429 in seconds` asks for at most, in milliseconds: see `scriptOf`. */
const ASKED_MAX_MS = 120 * SECOND;

/** Faults whose backoff may be longer than the three minutes for the ticks that meet the poison first. */
const LONG_RETRY_AFTER: readonly Fault[] = ['429 with a date', '503 in seconds', '402'];

/**
 * Longest hold on the healthy flows because of such a backoff, in milliseconds. If several flows in a row are refused
 * and none is answered, nothing tells poison from a limit of the service. The hold is two seconds after the first flow,
 * and doubles with each further one. So a few poisoned flows may not cause a long hold, whatever they ask for.
 */
function longestHoldMs({ fault, count }: Poison): number {
  const holdAfter = (refused: number): number => 2 * SECOND * 2 ** (refused - 1);
  if (LONG_RETRY_AFTER.includes(fault)) return holdAfter(count);
  if (fault !== '429 in seconds') return 0;
  // One such hold is short, but each refused flow may ask for another one.
  const holds = Array.from({ length: count }, (_, index) => Math.min(holdAfter(index + 1), ASKED_MAX_MS));
  return holds.reduce((sum, each) => sum + each, 0);
}

/**
 * Longest time for which a poisoned flow holds back the others in a round, in milliseconds: how long a refused poll is
 * sent again, and a poll and one more request at the lowest rate. Several at a time share that rate.
 */
const REFUSED_POLL_MS = 30 * SECOND;

/** The round that is under way when a healthy flow ends, and the next one, may meet all poisoned flows first. */
const longestRoundsMs = ({ of, count }: Poison): number => (of === 'flow' ? 2 * count * REFUSED_POLL_MS : 0);

/** Number of refused flows from which ticks may halt for them before they come to an answer for another flow. */
const HALTING_COUNT = 8;

/** True if ticks may halt because so many flows in a row are refused. */
const mayHaltTicks = ({ fault, count }: Poison): boolean =>
  count >= HALTING_COUNT && (THROTTLING.includes(fault) || fault === '402');

/**
 * Time for the poll that ends a flow past its maximum age. The longest gap between two polls is a quarter of an hour.
 */
const LAST_POLL_MS = 25 * MINUTE;

export function poisonedScenarioOf(random: Random): Scenario {
  const healthy = random.int(2, 6);
  const count = random.pick([1, 1, 1, 2, 2, 8]);
  const of = random.pick(['flow', 'flow', 'asset'] as const);
  const ageMaxMs = random.pick([20, 30]) * MINUTE;
  const poisonedSteps = manySteps(random, of === 'asset' ? 1 : count, SECOND, ['echo/']);
  // The poisoned flows are the first to be polled: the others come when all of them have been seen.
  const healthySteps = manySteps(random, healthy, MINUTE, ['two/']).map((step) => ({
    ...step,
    at: step.at + 3 * MINUTE,
  }));
  const companion = putStep(ageMaxMs / 2, 'text/companion.txt', 'The service answers for me.', 'text/plain');
  const hasCompanion = random.chance(0.5);
  const calls: readonly Poison['calls'][] =
    of === 'asset' ? [['flow.asset']] : [['flow.get', 'flow.outputs', 'flow.asset'], ['flow.get'], ['flow.outputs']];
  const steady = steadyScenario(random, [...poisonedSteps, ...healthySteps, ...(hasCompanion ? [companion] : [])]);
  return {
    ...steady,
    kind: 'poison',
    // With one poll at a time, a round that begins at the poison anew never comes to the others.
    settings: {
      ...steady.settings,
      flowAgeMaxSeconds: ageMaxMs / SECOND,
      pollConcurrency: healthy % 2 === 0 ? 1 : steady.settings.pollConcurrency,
    },
    flowMsMax: 30 * SECOND,
    // From half of the poisoned flows' greatest age to almost half as much beyond it.
    textFlowMs: 0.9 * ageMaxMs,
    poison: {
      fault: random.pick(of === 'asset' ? ASSET_FAULTS : FAULTS),
      of,
      count: of === 'asset' ? 1 : count,
      calls: random.pick(calls),
    },
  };
}

export async function liveWithPoison(world: World): Promise<void> {
  const { scenario, observed } = world;
  const { publishedAt } = observed;
  const { steps, settings, flowMsMax, poison, variation } = scenario;
  const ageMaxMs = settings.flowAgeMaxSeconds * SECOND;
  const hasCompanion = steps.some(({ key }) => key.startsWith('text/'));
  const healthy = steps.filter(({ key }) => key.startsWith('two/'));
  const poisoned = steps.filter(({ key }) => key.startsWith('echo/'));
  // Without an answer for another flow in the same tick, a flow ends at twice its maximum age: the service may be down.
  // If long holds or many refusals end a tick early, the companion is answered in another one.
  const isAnsweredBeside = hasCompanion && longestHoldMs(poison as Poison) < MINUTE && !mayHaltTicks(poison as Poison);
  const limitMs = (isAnsweredBeside ? 1 : 2) * ageMaxMs + LAST_POLL_MS + MINUTE;
  const startedAt = world.timeline.now();
  const areAllPublished = () => [...healthy, ...poisoned].every(({ key }) => publishedAt.has(key));
  const tookMs = await runSteadily(world, limitMs, areAllPublished);

  const published = [...publishedAt].map(([key, at]) => `${key} ${(at - startedAt) / SECOND} s`);
  const figures = { poison, variation, ageMaxMs, hasCompanion, published };
  observed.figures = figures;
  for (const { key, at } of healthy) {
    const delayMs = longestHoldMs(poison as Poison) + longestRoundsMs(poison as Poison);
    const latest = startedAt + at + flowMsMax + HEALTHY_MS + delayMs;
    const isInTime = (publishedAt.get(key) ?? Infinity) <= latest;
    demand(isInTime, 'an upload was delayed by the poison of another', key, figures);
  }
  demand(tookMs !== undefined, 'an upload whose flow never answers came to no end', figures);
  demand(observed.poisoned.size > 0, 'nothing was poisoned', figures);
  for (const { key } of poisoned) await checkReceiptOfPoisoned(world, key);
}

async function checkReceiptOfPoisoned({ inspector, scenario }: World, key: string): Promise<void> {
  const { resultsPrefix } = scenario.settings;
  const receipt = await inspector.json<Receipt>(RESULTS, `${resultsPrefix}${key}/receipt.json`);
  const { status, failure, failedOutputs } = receipt;
  const isFailure = status === 'failed' && failure !== undefined;
  demand(isFailure, 'a receipt does not say that it failed', { status, code: failure?.code, failedOutputs });
}
