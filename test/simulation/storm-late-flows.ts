import type { JsonObject } from '../../functions/base/json.ts';
import type { ServiceCallKind } from './faults.ts';
import type { Random } from './random.ts';
import type { Scenario } from './scenario.ts';
import { manySteps } from './steady-scenario.ts';
import { MINUTE, SECOND } from './timeline.ts';
import type { World } from './world.ts';

/** Share of storms whose service may make a flow long after the connection has broken. */
const SHARE = 0.15;

/** Share of creations that this happens to. */
const CREATIONS_SHARE = 0.4;

/** Uploads beside those of the storm. Each is one chance of a late flow. */
const UPLOADS = 12;

/** Time after which a flow must be listed, in milliseconds, unless twice `create.answerSeconds` is longer. */
const LISTED_MS = 5 * MINUTE;

/** Longest time until a gateway breaks the connection, in milliseconds: some clients give up before. */
const BREAK_MS_MAX = 70 * SECOND;

/** Time that is left for the network, and smallest time that is worth it, in milliseconds. */
const MARGIN_MS = SECOND;
const LATE_MS_MIN = 5 * SECOND;

/**
 * A storm whose service goes on with a creation although the connection has broken, and makes the flow seconds or minutes
 * later. It is listed in the time in which the functions rely on that. What it draws comes from random numbers of its own.
 */
export function withLateFlows(storm: Scenario, random: Random): Scenario {
  const isDrawn = random.chance(SHARE);
  const answerSeconds = random.pick([60, 600, 600]);
  const { variation, skewMs, chaosMs } = storm;
  // Without a listing, only a key keeps a second flow from being made.
  const isListed = storm.speaks?.list !== null || (variation.idempotencyHours ?? 0) === 0;
  const list = isListed && { list: storm.speaks?.list ?? {} };
  const speaks = { ...storm.speaks, ...list, create: { ...(storm.speaks?.create as JsonObject), answerSeconds } };
  const listedMs = Math.max(LISTED_MS, 2 * answerSeconds * SECOND);
  const msMax = listedMs - (variation.listingDelayMs ?? 0) - 2 * skewMs - MARGIN_MS;
  if (!isDrawn || msMax < LATE_MS_MIN) return storm;
  const more = manySteps(random, UPLOADS, chaosMs / 2, ['echo/late/']);
  return {
    ...storm,
    speaks,
    variation: { ...variation, ...(isListed && { listFlows: 'served' }) },
    steps: [...storm.steps, ...more].sort((one, other) => one.at - other.at),
    lateFlows: { share: CREATIONS_SHARE, msMax },
  };
}

/** How a creation goes on: when its connection breaks after the last byte, and how much later its flow is made. */
export interface LateFlow {
  readonly breakMs: number;
  readonly lateMs: number;
}

/** Draws whether a call is a creation with a late flow. */
export function lateFlowOf(
  { scenario: { lateFlows }, faultPlan, randoms }: World,
  kind: ServiceCallKind,
): LateFlow | undefined {
  const random = randoms.lateFlows;
  if (lateFlows === undefined || kind !== 'flow.create' || faultPlan.isClear) return undefined;
  if (!random.chance(lateFlows.share)) return undefined;
  const { msMax } = lateFlows;
  // Often at the end of the time, where a search that comes too early has most chances.
  return {
    breakMs: random.int(1, BREAK_MS_MAX),
    lateMs: random.chance(0.5) ? random.int(1, msMax) : random.int(Math.ceil(0.8 * msMax), msMax),
  };
}
