import type { Receipt } from '../../functions/publish/receipts.ts';
import { demand } from './demand.ts';
import type { Fault, ServiceCallKind } from './faults.ts';
import { RESULTS } from './names.ts';
import type { Random } from './random.ts';
import { putStep, type Scenario } from './scenario.ts';
import { runSteadily } from './steady.ts';
import { manySteps, steadyScenario } from './steady-scenario.ts';
import { MINUTE, SECOND } from './timeline.ts';
import type { World } from './world.ts';

/*
 * Worlds in which the service is slow for ever at some flows: it sends no head, or sends one late, or trickles. They
 * delay no other upload by more than a minute, and end with a receipt of the failure.
 */

/** `hung`: no head, or no more than a half. `slow`: a late head. `trickled`: white space, or too few bytes. */
const MANNERS: readonly Fault[] = ['hung', 'slow', 'trickled', 'trickled'];

const PLACES: readonly (readonly ServiceCallKind[])[] = [
  ['flow.asset'],
  ['flow.asset'],
  ['flow.get'],
  ['flow.outputs'],
  ['flow.get', 'flow.outputs', 'flow.asset', 'flow.abort'],
];

/** Time from the end of a healthy flow to its receipt, in milliseconds: two minutes without slow flows, and one more. */
const HEALTHY_MS = 3 * MINUTE;

/** Time for the last poll of a flow, and for a run that is its last. */
const LAST_RUN_MS = 30 * MINUTE;

export function slowScenarioOf(random: Random): Scenario {
  const calls = random.pick(PLACES);
  const isAsset = calls[0] === 'flow.asset';
  // Ten flows in a row without an answer are an outage.
  const count = random.pick(isAsset ? [40] : [1, 8]);
  const ageMaxMs = random.pick([20, 30]) * MINUTE;
  const slow = manySteps(random, count, SECOND, ['echo/']);
  const healthy = manySteps(random, random.int(2, 6), MINUTE, ['two/']).map((step) => ({
    ...step,
    at: step.at + MINUTE,
  }));
  const companion = putStep(ageMaxMs / 2, 'text/companion.txt', 'The service answers for me.', 'text/plain');
  const steady = steadyScenario(random, [...slow, ...healthy, companion]);
  return {
    ...steady,
    kind: 'slow counterpart',
    settings: { ...steady.settings, flowAgeMaxSeconds: ageMaxMs / SECOND },
    // As deployed: a slow asset has time to be in the way.
    collectLimitMs: 15 * MINUTE,
    flowMsMax: 30 * SECOND,
    textFlowMs: 0.9 * ageMaxMs,
    poison: { fault: random.pick(MANNERS), of: 'flow', count, calls },
  };
}

export async function liveWithSlowCounterpart(world: World): Promise<void> {
  const { scenario, observed, timeline, inspector } = world;
  const { publishedAt } = observed;
  const { steps, settings, flowMsMax, poison } = scenario;
  const startedAt = timeline.now();
  const tookMs = await runSteadily(world, 2 * settings.flowAgeMaxSeconds * SECOND + LAST_RUN_MS);
  const published = [...publishedAt].map(([key, at]) => `${key} ${(at - startedAt) / SECOND} s`);
  const figures = { poison, published };
  observed.figures = figures;
  for (const { key, at } of steps.filter((step) => step.key.startsWith('two/'))) {
    const latest = startedAt + at + flowMsMax + HEALTHY_MS;
    const isInTime = (publishedAt.get(key) ?? Number.POSITIVE_INFINITY) <= latest;
    demand(isInTime, 'an upload was delayed by slow flows', key, figures);
  }
  demand(tookMs !== undefined, 'a slow flow came to no end', figures);
  demand(observed.poisoned.size > 0, 'nothing was slow', figures);
  // An answer whose head is late is an answer. With the time limit of polls it may also come too late.
  if (poison?.fault === 'slow') return;
  for (const { key } of steps.filter((step) => step.key.startsWith('echo/'))) {
    const receipt = await inspector.json<Receipt>(RESULTS, `${settings.resultsPrefix}${key}/receipt.json`);
    const { status, failure, failedOutputs } = receipt;
    demand(status === 'failed', 'a receipt does not say that it failed', { key, failure, failedOutputs });
  }
}
