import type { Route } from '../../functions/uploads/route.ts';
import type { Random } from './random.ts';
import { putStep, type Scenario, type Step } from './scenario.ts';
import { NEEDS } from './storm-needs.ts';
import { MINUTE } from './timeline.ts';

/** Share of storms whose routes make chains. */
const CHAINED_SHARE = 0.4;

/** Number of steps above which a storm has no chains: each of them would take as long as several others. */
const STEPS_MAX = 9;

/** Names of the routes of the inbox after which later stages come. The flows of others store nothing, or are large. */
const FIRST_ROUTES = ['echo', 'two', 'odd'];

/** Longest duration of a flow in a chained storm, in milliseconds. So later stages run while the storm goes on. */
const FLOW_MS_MAX = MINUTE / 2;

/** How much longer than others a chained storm lasts, in milliseconds: a tick or two for each later stage. */
const LONGER_MS = 3 * MINUTE;

/** Time within which the files of {@link ownSteps} come, in milliseconds. */
const OWN_SPAN_MS = MINUTE;

/** What flows of later stages make of each input: one asset, several, some that fail, or none. */
const WORKS: readonly NonNullable<Route['parameters']>[] = [
  { copies: 1 },
  { copies: 1 },
  { copies: 2 },
  { copies: 3, failed_outputs: 1 },
  { copies: 1, failed_outputs: 1 },
  { fail: true, partial: 1 },
];

/**
 * A storm whose assets may go on to later stages. What it draws comes from random numbers of their own, so that the storms
 * without chains stay as they are.
 */
export function withChains(storm: Scenario, random: Random): Scenario {
  const { focus } = storm.faultPlan;
  const { areChained, areMadeAnew = false } = (focus && NEEDS[focus.call]) ?? {};
  if (storm.steps.length > STEPS_MAX || (!random.chance(CHAINED_SHARE) && areChained !== true)) return storm;
  const isOperated = random.chance(0.5) || areMadeAnew;
  const isQuick = storm.flowMsMin < FLOW_MS_MAX && storm.flowMsMax < storm.settings.flowAgeMaxSeconds * 1000;
  return {
    ...storm,
    routes: [...storm.routes, ...laterRoutes(random, storm)],
    steps: [...storm.steps, ...ownSteps(random)].sort((a, b) => a.at - b.at),
    flowMsMax: isQuick ? Math.min(FLOW_MS_MAX, storm.flowMsMax) : storm.flowMsMax,
    chaosMs: storm.chaosMs + LONGER_MS,
    isOperated,
    areRetried: storm.areRetried || isOperated,
  };
}

/** Files whose keys are put once, so that no newer file ends their chains. */
const ownSteps = (random: Random): readonly Step[] =>
  random.some(FIRST_ROUTES, 0.5).map((route) => {
    const content = `${route} ${random.hex(random.int(1, 100))}`;
    return putStep(random.int(0, OWN_SPAN_MS), `${route}/own.bin`, content, random.pick(['image/png', 'text/plain']));
  });

/** Routes of one or two later stages. Each stands behind the one that it comes after. */
function laterRoutes(random: Random, storm: Scenario): readonly Route[] {
  const routes: Route[] = [];
  for (const first of FIRST_ROUTES) {
    const count = random.pick([1, 1, 2]);
    for (let second = 1; second <= count; second += 1) {
      const stage = laterRoute(random, storm, first, `${first} ${second}`);
      routes.push(stage);
      if (random.chance(0.5)) routes.push(laterRoute(random, storm, stage.name, `${stage.name}/then`));
    }
  }
  return routes;
}

function laterRoute(random: Random, { variation }: Scenario, after: string, name: string): Route {
  // Only after a stage of several uploads does it matter when the last of them ends.
  const isAll = random.chance(FIRST_ROUTES.includes(after) ? 0.3 : 0.7);
  const mediaTypes = random.chance(0.15) ? ['image/png'] : undefined;
  // Without `GET /flows/{id}`, a flow that makes nothing cannot be told from one that runs.
  const works = variation.getFlow === 'served' ? [...WORKS, { copies: 0 }] : WORKS;
  return {
    name,
    after,
    input: 'file',
    template: 'bytes_echo',
    parameters: random.pick(works),
    ...(mediaTypes && { mediaTypes }),
    ...(isAll && { inputs: 'all' }),
    ...(isAll && random.chance(0.5) && { allow: 'partial' }),
  };
}
