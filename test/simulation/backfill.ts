import { demand } from './demand.ts';
import { LEDGER } from './names.ts';
import type { Random } from './random.ts';
import { putStep, type Scenario } from './scenario.ts';
import { runSteadily } from './steady.ts';
import { manySteps, steadyScenario } from './steady-scenario.ts';
import { beginMultipartUploads } from './storm.ts';
import { MINUTE, SECOND } from './timeline.ts';
import type { World } from './world.ts';

/*
 * Worlds in which a bucket that already has files is backfilled slowly. The backfill is asked for several times. No
 * upload is submitted twice, and the daily sweep repairs an upload before the backfill ends.
 */

/** When the backfill begins, in milliseconds. By then no upload can still be on its ordinary way. */
const BACKFILL_AT_MS = 17 * MINUTE;
const DAILY_SWEEP_AT_MS = BACKFILL_AT_MS + MINUTE;

/** The upload whose marker is lost, as if its invocation had died before it put the marker. */
const REPAIRED = 'two/repaired.bin';

/** Time from the daily sweep to the receipt of the repaired upload: the sweep, two ticks, and the poll of the flow. */
const REPAIR_MS = 6 * MINUTE;

/**
 * How much longer than its pace says a backfill may take. A run that is cut off waits for the next tick and its lease.
 */
const SLACK = 1.5;
const FIXED_MS = 6 * MINUTE;

/** Number of uploads that may be submitted twice: a run can be cut off before it writes down its position. */
const AGAIN_MAX = 3;

export function backfillScenarioOf(random: Random): Scenario {
  const count = random.int(14, 20);
  // Its multipart upload begins before the first tick. So its date is before the watermark of the daily sweep, and only
  // the margin of the sweep covers it.
  const repaired = { ...putStep(0, REPAIRED, 'Its marker is lost.'), isMultipart: true };
  const steady = steadyScenario(random, [repaired, ...manySteps(random, count, 10 * SECOND, ['echo/'])]);
  return {
    ...steady,
    kind: 'backfill',
    versioning: random.pick(['Enabled', 'Suspended', undefined]),
    keysMax: random.pick([2, 3, 5]),
    flowMsMin: 30 * SECOND,
    isLossy: true,
    collectLimitMs: random.pick([MINUTE, 2 * MINUTE]),
    uploadsPerSecond: 0.02,
  };
}

export async function liveWithBackfill(world: World): Promise<void> {
  const { scenario, timeline, observed } = world;
  const { steps, uploadsPerSecond = 1, keysMax } = scenario;
  const { publishedAt, counted } = observed;
  await beginMultipartUploads(world);
  await world.pass(4 * SECOND);
  const startedAt = timeline.now();
  scheduleBackfill(world, startedAt);
  const backfilled = steps.length - 1;
  const limitMs = BACKFILL_AT_MS + SLACK * (backfilled / uploadsPerSecond) * SECOND + FIXED_MS;
  const tookMs = await runSteadily(world, limitMs);
  const submitted = counted.get('UploadsBackfilled') ?? 0;
  const repairedMs = (publishedAt.get(REPAIRED) ?? Number.NaN) - startedAt;
  const figures = { backfilled, submitted, keysMax, uploadsPerSecond, tookMs, limitMs, repairedMs };
  observed.figures = figures;
  demand(submitted <= backfilled + AGAIN_MAX, 'a backfill submitted its uploads more than once', figures);
  demand(tookMs !== undefined, 'a backfill does not come to its end', figures);
  demand(repairedMs <= DAILY_SWEEP_AT_MS + REPAIR_MS, 'a repair had to wait for a backfill', figures);
}

/** Loses a marker, and then asks three times for a backfill, and for the daily sweep. */
function scheduleBackfill({ scenario, timeline, inspector, invocations, randoms }: World, startedAt: number): void {
  const at = (ms: number, act: () => void) => timeline.schedule(startedAt + ms, act);
  at(MINUTE / 2, () => {
    void inspector.list(LEDGER, 'running/').then(async (markers) => {
      for (const { key } of markers) await inspector.delete(LEDGER, key);
    });
  });
  const { uploadsPerSecond = 1 } = scenario;
  const since = new Date(startedAt - MINUTE).toISOString();
  for (const delayMs of [0, randoms.main.int(0, 5 * SECOND), 3 * MINUTE]) {
    at(BACKFILL_AT_MS + delayMs, () => void invocations.startCollect({ sweep: { since, uploadsPerSecond } }));
  }
  at(DAILY_SWEEP_AT_MS, () => void invocations.startCollect({ sweep: {} }));
}
