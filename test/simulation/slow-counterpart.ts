import type { Receipt } from '../../functions/publish/report-schemas.ts';
import { demand } from './demand.ts';
import type { Fault } from './faults.ts';
import { heal } from './healing.ts';
import { CREATES_MAX, RESULTS } from './names.ts';
import type { Random } from './random.ts';
import { POISONED_BODY_BYTES_MIN, POISONED_PREFIX, type Poison, putStep, type Scenario } from './scenario.ts';
import { runSteadily } from './steady.ts';
import { manySteps, steadyScenario } from './steady-scenario.ts';
import { MINUTE, SECOND } from './timeline.ts';
import type { World } from './world.ts';

/*
 * Worlds in which one counterpart is slow for ever in one or more places: it sends no head, or sends one late, or
 * trickles. It delays no other upload by more than a minute. The
 * slow ones end as well, as far as their bytes can be read.
 */

/** A place in which a counterpart may be slow, and how. One of `faults` and one of `counts` is picked. */
interface SlowPlace extends Pick<Poison, 'of' | 'calls'> {
  readonly faults: readonly Fault[];
  readonly counts: readonly number[];
}

/** `hung`: no head, or no more than a half. `slow`: a late head. `trickled`: white space, or too few bytes. */
const SERVICE_FAULTS: readonly Fault[] = ['hung', 'slow', 'trickled', 'trickled'];
/** `late`: no answer within the time limit of the client. The call takes effect. */
const AWS_FAULTS: readonly Fault[] = ['late', 'slow'];

const flows = { of: 'flow', faults: SERVICE_FAULTS, counts: [1, 8] } as const;
const PLACES: readonly SlowPlace[] = [
  { ...flows, calls: ['flow.asset'], counts: [40] },
  { ...flows, calls: ['flow.get'] },
  { ...flows, calls: ['flow.outputs'] },
  { ...flows, calls: ['flow.get', 'flow.outputs', 'flow.asset', 'flow.abort'] },
  // With more slow creations than invocations, others wait for one of these.
  { ...flows, calls: ['flow.create'], of: 'upload', counts: [CREATES_MAX - 1] },
  { ...flows, calls: ['flow.create', 'flows.list'], of: 'upload', counts: [CREATES_MAX - 1] },
  // From sixteen running flows on, a round asks for the listing.
  { ...flows, calls: ['flows.list'], of: 'all', counts: [24] },
  { of: 'upload', calls: ['inbox.get'], faults: AWS_FAULTS, counts: [CREATES_MAX - 1] },
  { of: 'upload', calls: ['asset.put', 'receipt.put', 'receipt.head'], faults: AWS_FAULTS, counts: [12] },
  { of: 'all', calls: ['secret.read'], faults: ['slow'], counts: [1] },
];

/** Time from the end of a healthy flow to its receipt, in milliseconds: two minutes without slow flows, and one more. */
const HEALTHY_MS = 3 * MINUTE;

/** With the five of a deployment, a slow creation may take two hours. */
const ATTEMPTS_MAX = 2;

/** Time for two creations in doubt. For an hour each, a listing that does not answer is asked again. */
const DOUBTS_MS = 150 * MINUTE;

/** Time for the last poll of a flow, and for a run that is its last. */
const LAST_RUN_MS = 30 * MINUTE;

export function slowScenarioOf(random: Random): Scenario {
  const { of, calls, faults, counts } = random.pick(PLACES);
  const count = random.pick(counts);
  const ageMaxMs = random.pick([20, 30]) * MINUTE;
  const slow = manySteps(random, count, SECOND, [POISONED_PREFIX]).map((step) => ({
    ...step,
    ...(calls.includes('flow.create') && { content: Buffer.alloc(POISONED_BODY_BYTES_MIN + random.int(0, 1_000)) }),
  }));
  const healthy = manySteps(random, random.int(2, 6), MINUTE, ['two/']).map((step) => ({
    ...step,
    at: step.at + MINUTE,
  }));
  const companion = putStep(ageMaxMs / 2, 'text/companion.txt', 'The service answers for me.', 'text/plain');
  const steady = steadyScenario(random, [...slow, ...healthy, companion]);
  return {
    ...steady,
    kind: 'slow counterpart',
    settings: { ...steady.settings, flowAgeMaxSeconds: ageMaxMs / SECOND, attemptsMax: ATTEMPTS_MAX },
    // As deployed: a slow asset has time to be in the way.
    collectLimitMs: 15 * MINUTE,
    flowMsMax: 30 * SECOND,
    textFlowMs: 0.9 * ageMaxMs,
    poison: { fault: random.pick(faults), of, count, calls },
  };
}

export async function liveWithSlowCounterpart(world: World): Promise<void> {
  const { scenario, observed, timeline, inspector } = world;
  const { publishedAt } = observed;
  const { steps, settings, flowMsMax, poison } = scenario;
  const { fault, of, calls } = poison as Poison;
  const startedAt = timeline.now();
  const healthy = steps.filter(({ key }) => key.startsWith('two/'));
  const slow = steps.filter(({ key }) => key.startsWith(POISONED_PREFIX));
  // Without its bytes, an upload is left in the queue or is a dead letter.
  const ending = calls.includes('inbox.get') ? healthy : [...healthy, ...slow];
  const areAllPublished = () => ending.every(({ key }) => publishedAt.has(key));
  const ageMs = calls.includes('flow.create') ? DOUBTS_MS : 2 * settings.flowAgeMaxSeconds * SECOND;
  const tookMs = await runSteadily(world, ageMs + LAST_RUN_MS, areAllPublished);
  const published = [...publishedAt].map(([key, at]) => `${key} ${(at - startedAt) / SECOND} s`);
  const figures = { poison, published };
  observed.figures = figures;
  for (const { key, at } of healthy) {
    const latest = startedAt + at + flowMsMax + HEALTHY_MS;
    const isInTime = (publishedAt.get(key) ?? Number.POSITIVE_INFINITY) <= latest;
    demand(isInTime, 'an upload was delayed by a slow counterpart', key, figures);
  }
  demand(tookMs !== undefined, 'an upload with a slow counterpart came to no end', figures);
  demand(observed.poisoned.size > 0, 'nothing was slow', figures);
  heal(world);
  // An answer whose head is late is an answer. With the time limit of polls it may also come too late.
  if (of !== 'flow' || fault === 'slow') return;
  for (const { key } of slow) {
    const receipt = await inspector.json<Receipt>(RESULTS, `${settings.resultsPrefix}${key}/receipt.json`);
    const { status, failure, failedOutputs } = receipt;
    demand(status === 'failed', 'a receipt does not say that it failed', { key, failure, failedOutputs });
  }
}
