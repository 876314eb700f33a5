import { demand } from './demand.ts';
import type { Random } from './random.ts';
import type { Scenario } from './scenario.ts';
import { runSteadily } from './steady.ts';
import { manySteps, steadyScenario } from './steady-scenario.ts';
import { MINUTE, SECOND } from './timeline.ts';
import type { World } from './world.ts';

/*
 * Worlds in which the service answers from a replica that does not know some of the flows, every now and then for a few
 * seconds. A flow may be given up as gone only after two polls in a row that say so. Two flows are always known, and all
 * flows run for longer than a new flow may be missing: else other rules would keep a flow from being given up, and a
 * lack of this one would not be seen.
 */

/** How long the world lasts at most, in milliseconds. */
const SPAN_MS = 30 * MINUTE;

export function laggingReplicaScenarioOf(random: Random): Scenario {
  const count = random.int(4, 8);
  const steady = steadyScenario(random, manySteps(random, count, MINUTE, ['echo/']));
  return {
    ...steady,
    kind: 'lagging replica',
    variation: { ...steady.variation, listFlows: 404 },
    flowMsMin: 8 * MINUTE,
    flowMsMax: 15 * MINUTE,
    poison: {
      fault: '404',
      of: 'flow',
      count: count - 2,
      calls: ['flow.get', 'flow.outputs'],
      spans: spansOf(random),
    },
  };
}

/** About a fifth of the time, in spans that are longer than the polls and the look before a flow is given up. */
function spansOf(random: Random): readonly (readonly [from: number, to: number])[] {
  const spans: [from: number, to: number][] = [];
  for (let at = random.int(0, 30 * SECOND); at < SPAN_MS; ) {
    const to = at + random.int(4 * SECOND, 10 * SECOND);
    spans.push([at, to]);
    at = to + random.int(5 * SECOND, 50 * SECOND);
  }
  return spans;
}

/** Runs until every upload has a receipt. How each one ended is checked as in every other world. */
export async function liveWithLaggingReplica(world: World): Promise<void> {
  const { observed } = world;
  const tookMs = await runSteadily(world, SPAN_MS);
  observed.figures = { tookMs, answers: observed.answers };
  demand(tookMs !== undefined, 'an upload came to no end while a replica lagged', observed.figures);
}
