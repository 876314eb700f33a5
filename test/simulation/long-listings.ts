import type { Random } from './random.ts';
import type { Scenario } from './scenario.ts';
import { manySteps } from './steady-scenario.ts';
import { DOUBTFUL } from './storm-faults.ts';
import { MINUTE, SECOND } from './timeline.ts';

/** Uploads of a busy account whose requests are in doubt. Each is one chance of a wrong end. */
const DOUBTFUL_UPLOADS = 12;

/** A storm whose settings declare the listing of flows, and perhaps in a busy account. */
export function withDeclaredListing(storm: Scenario, random: Random): Scenario {
  // The listing of a busy account may lag by four minutes, and then clocks may not differ by minutes too.
  const scenario = random.chance(0.1) && !storm.isSkewWild ? busy(storm, random) : storm;
  const isNewestFirst = scenario.variation.order === 'descending' && random.chance(0.5);
  const list = random.chance(0.1) ? null : { order: isNewestFirst ? 'newest-first' : 'any-order' };
  return { ...scenario, speaks: { list } };
}

/** An account in which other clients make a flow every few seconds, and a search reads few pages. */
function busy(storm: Scenario, random: Random): Scenario {
  const { focus } = storm.faultPlan;
  return {
    ...storm,
    busyGapMs: { min: 4 * SECOND, max: 12 * SECOND },
    findPagesMax: random.pick([20, 40, 80]),
    flowMsMin: SECOND,
    flowMsMax: 2 * MINUTE,
    steps: [...storm.steps, ...manySteps(random, DOUBTFUL_UPLOADS, 12 * MINUTE, ['echo/'])],
    // Some storms need longer, for the last steps of theirs.
    chaosMs: Math.max(20 * MINUTE, storm.chaosMs),
    variation: {
      ...storm.variation,
      listFlows: 'served',
      order: random.pick(['descending', 'descending', 'descending', 'ascending']),
      paging: random.pick(['cursor', 'link', 'page']),
      pageSize: 5,
      listingDelayMs: random.pick([0, MINUTE, 4 * MINUTE]),
    },
    faultPlan: { rate: 0.5, faults: DOUBTFUL, calls: ['flow.create'], persistence: 0, focus },
  };
}
