import type { JsonObject } from '../../functions/base/json.ts';
import type { Fault } from './faults.ts';
import { JOB_API } from './job-api.ts';
import type { Random } from './random.ts';
import type { Scenario } from './scenario.ts';
import { DOUBTFUL } from './storm-faults.ts';
import { KEY_HOURS_MAX } from './storm-keys.ts';

/** Share of the storms whose service speaks like {@link JOB_API}, and of these, those whose service lists its jobs. */
const SHARE = 0.25;
const LISTED_SHARE = 0.2;

const SPENT: readonly Fault[] = ['402'];

/**
 * A storm whose service may be a job API, which honours keys for some hours. Most of them list no jobs. What it draws comes
 * from random numbers of their own, so that the other storms stay as they are.
 */
export function withJobApi(storm: Scenario, random: Random): Scenario {
  // A search of a busy account is a trouble of its own.
  if (storm.findPagesMax !== undefined || !random.chance(SHARE)) return storm;
  const { variation, speaks = {}, faultPlan } = storm;
  const { focus } = faultPlan;
  const isListed = focus?.call === 'flows.list' || (speaks.list !== null && random.chance(LISTED_SHARE));
  const { idempotencyHours: hours = random.pick([0.4, 0.7, KEY_HOURS_MAX, KEY_HOURS_MAX]) } = variation;
  const faults = random.pick([DOUBTFUL, DOUBTFUL, DOUBTFUL, SPENT, SPENT, ...Array<undefined>(5)]);
  const list = isListed && { ...(JOB_API.list as JsonObject), ...(speaks.list as JsonObject | null) };
  return {
    ...storm,
    isJobApi: true,
    speaks: { ...speaks, ...JOB_API, list: list || null },
    variation: {
      ...variation,
      ...{ getFlow: 'served', outputsPath: 'flows', assetForm: 'raw', idempotencyHours: hours },
      listFlows: isListed ? 'served' : 404,
    },
    ...(faults && { faultPlan: { rate: 0.5, faults, calls: ['flow.create'], persistence: 0, focus } }),
  };
}
