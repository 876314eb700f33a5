import type { Variation } from '../../local/flow-service/variation.ts';
import type { Random } from './random.ts';
import type { Scenario } from './scenario.ts';
import { manySteps } from './steady-scenario.ts';
import { DOUBTFUL } from './storm-faults.ts';
import { MINUTE, SECOND } from './timeline.ts';

/** Uploads of a busy account whose requests are in doubt. Each is one chance of a wrong end. */
const DOUBTFUL_UPLOADS = 12;

/** What the listing's filter does. The functions cannot know it. */
const FILTERS: readonly Variation['listFilter'][] = [
  'created',
  'created',
  'ignored',
  'inverted',
  'minute',
  'minute',
  'changed',
  'ended',
  'rejected',
];

const FLOWS_QUERY = 'created_after={iso}';

/** A storm whose functions filter the listing of flows, or in which the listing is longer than one look. */
export function withLongListings(storm: Scenario, random: Random): Scenario {
  const dice = random.int(1, 10);
  // The listing of a busy account may lag by four minutes, and then clocks may not differ by minutes too.
  if (dice === 1 && !storm.isSkewWild) return busy(storm, random);
  if (dice > 3) return storm;
  return {
    ...storm,
    settings: { ...storm.settings, flowsQuery: FLOWS_QUERY },
    variation: { ...storm.variation, listFilter: random.pick(FILTERS) },
  };
}

/** An account in which other clients make a flow every few seconds, and a search reads few pages in a look. */
function busy(storm: Scenario, random: Random): Scenario {
  const { focus } = storm.faultPlan;
  return {
    ...storm,
    settings: { ...storm.settings, flowsQuery: random.pick(['', FLOWS_QUERY]) },
    busyGapMs: { min: 4 * SECOND, max: 12 * SECOND },
    findPagesMax: random.pick([3, 4, 40]),
    flowMsMin: SECOND,
    flowMsMax: 2 * MINUTE,
    steps: [...storm.steps, ...manySteps(random, DOUBTFUL_UPLOADS, 12 * MINUTE, ['echo/'])],
    chaosMs: 20 * MINUTE,
    variation: {
      ...storm.variation,
      listFlows: 'served',
      listAdditional: 'object',
      listActiveOnly: false,
      listSort: random.pick(['created', 'created', 'created', 'changed']),
      listFilter: random.pick(FILTERS),
      order: random.pick(['descending', 'descending', 'descending', 'ascending']),
      paging: random.pick(['next', 'next_cursor', 'next_url', 'link', 'page']),
      pageSize: 5,
      listingDelayMs: random.pick([0, MINUTE, 4 * MINUTE]),
    },
    faultPlan: { rate: 0.5, faults: DOUBTFUL, calls: ['flow.create'], persistence: 0, focus },
  };
}
