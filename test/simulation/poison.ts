import type { TerminalEntry } from '../../functions/ledger/entry.ts';
import { demand } from './demand.ts';
import type { Fault } from './faults.ts';
import type { Random } from './random.ts';
import { manySteps, type Poison, type Scenario, type Step, steadyScenario } from './scenario.ts';
import { RESULTS, type World } from './world.ts';

/*
 * Worlds in which single flows or single assets meet a fault at every call, for ever. They delay no other upload, and
 * past their flows' maximum age they end with a receipt that says so.
 */

const SECOND = 1_000;
const MINUTE = 60 * SECOND;

/** What is asked for in vain, and with what. */
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

/**
 * Until the receipt of an upload that nothing is wrong with: a minute until a tick sees its flow, a minute between two
 * looks at it, and three for the ticks that meet the poison first.
 */
const HEALTHY_MS = 5 * MINUTE;

/** Past its age a flow ends at the next look at it, and the longest gap between two looks is a quarter of an hour. */
const LAST_LOOK_MS = 25 * MINUTE;

export function poisonedScenarioOf(random: Random): Scenario {
  const healthy = random.int(2, 6);
  const count = random.pick([1, 1, 1, 2, 2, 8]);
  const of = random.pick(['flow', 'flow', 'asset'] as const);
  const ageMaxMs = random.pick([20, 30]) * MINUTE;
  const poisonedSteps = manySteps(random, of === 'asset' ? 1 : count, SECOND, ['echo/']);
  // The poisoned are the first that are looked at: the others come when all of them have been seen.
  const healthySteps = manySteps(random, healthy, MINUTE, ['two/']).map((step) => ({
    ...step,
    at: step.at + 3 * MINUTE,
  }));
  const companion: Step = {
    at: ageMaxMs / 2,
    kind: 'put',
    key: 'text/companion.txt',
    content: Buffer.from('The service answers for me.'),
    mediaType: 'text/plain',
  };
  const hasCompanion = random.chance(0.5);
  const calls: readonly Poison['calls'][] =
    of === 'asset' ? [['flow.asset']] : [['flow.get', 'flow.outputs', 'flow.asset'], ['flow.get'], ['flow.outputs']];
  const steady = steadyScenario(random, [...poisonedSteps, ...healthySteps, ...(hasCompanion ? [companion] : [])]);
  return {
    ...steady,
    kind: 'poison',
    settings: { ...steady.settings, flowAgeMaxSeconds: ageMaxMs / SECOND },
    flowMsMax: 30 * SECOND,
    // From half of the poisoned flows' greatest age to almost half as much beyond it.
    textFlowMs: 0.9 * ageMaxMs,
    poison: { fault: random.pick(FAULTS), of, count: of === 'asset' ? 1 : count, calls: random.pick(calls) },
  };
}

export async function liveWithPoison(world: World): Promise<void> {
  const { scenario, toldAt } = world;
  const { steps, settings, flowMsMax } = scenario;
  const ageMaxMs = settings.flowAgeMaxSeconds * SECOND;
  const companion = steps.find(({ key }) => key.startsWith('text/'));
  const healthy = steps.filter(({ key }) => key.startsWith('two/'));
  const poisoned = steps.filter(({ key }) => key.startsWith('echo/'));
  // Alone, a flow ends at twice its age: until then its service may only be down.
  const limitMs = (companion === undefined ? 2 : 1) * ageMaxMs + LAST_LOOK_MS + MINUTE;
  const startedAt = world.timeline.now();
  const areAllTold = (some: readonly Step[]) => some.every(({ key }) => toldAt.has(key));
  const tookMs = await world.runSteadily(() => areAllTold([...healthy, ...poisoned]), limitMs);

  const figures = {
    poison: scenario.poison,
    variation: scenario.variation,
    ageMaxMs,
    hasCompanion: companion !== undefined,
    told: [...toldAt].map(([key, at]) => `${key} ${(at - startedAt) / SECOND} s`),
  };
  world.figures = figures;
  for (const { key, at } of healthy) {
    const latest = startedAt + at + flowMsMax + HEALTHY_MS;
    demand((toldAt.get(key) ?? Infinity) <= latest, 'an upload was delayed by the poison of another', key, figures);
  }
  demand(tookMs !== undefined, 'an upload whose flow never answers came to no end', figures);

  const entries = (await world.entries()) as readonly TerminalEntry[];
  for (const { key } of poisoned) {
    const entry = entries.find(({ upload }) => upload.key === key) as TerminalEntry;
    demand(world.poisoned.size > 0, 'nothing was poisoned', figures);
    const receipt = await world.inspector.json<{ status: string; failure?: { code: string } }>(
      RESULTS,
      `${settings.resultsPrefix}${key}/receipt.json`,
    );
    const says = { status: receipt.status, code: receipt.failure?.code, failedOutputs: entry.failedOutputs };
    demand(receipt.status === 'failed' && receipt.failure !== undefined, 'a receipt does not say that it failed', says);
  }
}
