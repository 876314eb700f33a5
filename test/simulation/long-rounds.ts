import { demand } from './demand.ts';
import type { Random } from './random.ts';
import type { Scenario } from './scenario.ts';
import { runSteadily } from './steady.ts';
import { manySteps, steadyScenario } from './steady-scenario.ts';
import { MINUTE, SECOND } from './timeline.ts';
import type { World } from './world.ts';

/*
 * Worlds in which a round of polls takes several ticks, because the service answers each poll after half a minute. Every
 * tick is cut off, and every flow still gets its polls.
 */

/** Number of flows that are polled side by side. */
const SIDE_BY_SIDE = 4;

/** Smallest number of flows that such a tick polls: it has 45 seconds for work, and a poll takes up to 59. */
const POLLS_PER_TICK_MIN = SIDE_BY_SIDE;

/** Time between two polls of a flow, in milliseconds. */
const POLL_GAP_MS = 5 * MINUTE;

/** Time for the last poll, the outputs and the receipt, in milliseconds. */
const FIXED_MS = 2 * MINUTE;

export function longRoundsScenarioOf(random: Random): Scenario {
  const steady = steadyScenario(random, manySteps(random, random.int(16, 24), 10 * SECOND, ['echo/']));
  return {
    ...steady,
    kind: 'long rounds',
    settings: { ...steady.settings, pollIntervalSeconds: POLL_GAP_MS / SECOND, pollConcurrency: SIDE_BY_SIDE },
    // With a listing of flows, one request polls many of them.
    variation: { ...steady.variation, listFlows: 404 },
    collectLimitMs: MINUTE,
    // So old that they are polled once in a gap. A younger flow is polled more often.
    flowMsMin: 11 * MINUTE,
    flowMsMax: 30 * MINUTE,
    faultPlan: { rate: 1, faults: ['slow'], calls: ['flow.get'], persistence: 0 },
    againEarly: 0,
  };
}

export async function liveWithLongRounds(world: World): Promise<void> {
  const { scenario, service, observed, faultPlan } = world;
  const { steps, flowMsMax } = scenario;
  const { publishedAt } = observed;
  // A flow waits for its gap, then for the rest of the round, and then for its turn in the next one.
  const roundMs = Math.ceil(steps.length / POLLS_PER_TICK_MIN) * MINUTE;
  const lateMs = POLL_GAP_MS + 2 * roundMs + FIXED_MS;
  faultPlan.isClear = false;
  const tookMs = await runSteadily(world, flowMsMax + lateMs + MINUTE);
  faultPlan.isClear = true;
  const finishedAt = new Map(service.flows.map(({ id, finishedAt: at = Number.NaN }) => [id, at]));
  const late = (await world.entries()).map((entry) => {
    const endedAt = 'flow' in entry ? finishedAt.get(entry.flow?.id ?? '') : undefined;
    const { key } = entry.upload;
    return { key, seconds: ((publishedAt.get(key) ?? Number.POSITIVE_INFINITY) - (endedAt ?? Number.NaN)) / SECOND };
  });
  observed.figures = { flows: steps.length, tookMs, lateMs, late };
  demand(tookMs !== undefined, 'a flow was never polled after its end', observed.figures);
  const isInTime = late.every(({ seconds }) => seconds * SECOND <= lateMs);
  demand(isInTime, 'a round that was cut off cost a flow its polls', observed.figures);
}
