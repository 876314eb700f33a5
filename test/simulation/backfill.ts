import { demand } from './demand.ts';
import type { Random } from './random.ts';
import { manySteps, type Scenario, type Step, steadyScenario } from './scenario.ts';
import type { World } from './world.ts';

/*
 * Worlds in which a bucket that already has files is backfilled, slowly, and by several sweeps with `since` at a time.
 * Nothing is submitted twice, and what the daily sweep repairs does not wait for the end of the backfill.
 */

const SECOND = 1_000;
const MINUTE = 60 * SECOND;

/** By then all files are older than what may still be on its ordinary way. */
const BACKFILL_AT_MS = 17 * MINUTE;
const DAILY_SWEEP_AT_MS = BACKFILL_AT_MS + MINUTE;

/** The upload whose marker is lost, as where an invocation dies before it has put it. */
const REPAIRED = 'two/repaired.bin';

/** From the daily sweep to the receipt of what it repaired: the sweep itself, two ticks, and the look at the flow. */
const REPAIR_MS = 6 * MINUTE;

/** How much longer than its pace a backfill may take: a run that is cut off waits for the next tick and its lease. */
const SLACK = 1.5;
const FIXED_MS = 6 * MINUTE;

/** Uploads that may be submitted again because a run was cut off before it could write down how far it was. */
const AGAIN_MAX = 3;

export function backfillScenarioOf(random: Random): Scenario {
  const count = random.int(14, 20);
  const repaired: Step = {
    at: 0,
    kind: 'put',
    key: REPAIRED,
    content: Buffer.from('Its marker is lost.'),
    mediaType: 'application/octet-stream',
  };
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
  const { scenario, timeline, toldAt, counted, inspector } = world;
  const { steps, uploadsPerSecond = 1 } = scenario;
  const startedAt = timeline.now();
  const since = new Date(startedAt - MINUTE).toISOString();
  const at = (ms: number, act: () => void) => timeline.schedule(startedAt + ms, act);
  at(MINUTE / 2, () => {
    void inspector.list('ledger', 'running/').then(async (markers) => {
      for (const { key } of markers) await inspector.delete('ledger', key);
    });
  });
  for (const delayMs of [0, world.pickDelay(5 * SECOND), 3 * MINUTE]) {
    at(BACKFILL_AT_MS + delayMs, () => void world.startSweep({ since, uploadsPerSecond }));
  }
  at(DAILY_SWEEP_AT_MS, () => void world.startSweep({}));

  const backfilled = steps.length - 1;
  const limitMs = BACKFILL_AT_MS + SLACK * (backfilled / uploadsPerSecond) * SECOND + FIXED_MS;
  const tookMs = await world.runSteadily(() => toldAt.size >= steps.length, limitMs);
  const submitted = counted.get('UploadsMissed') ?? 0;
  const figures = {
    backfilled,
    submitted,
    keysMax: scenario.keysMax,
    uploadsPerSecond,
    tookMs,
    limitMs,
    repairedMs: (toldAt.get(REPAIRED) ?? Number.NaN) - startedAt,
  };
  world.figures = figures;
  demand(submitted <= backfilled + AGAIN_MAX, 'a backfill submitted its uploads more than once', figures);
  demand(tookMs !== undefined, 'a backfill does not come to its end', figures);
  const repairedBy = startedAt + DAILY_SWEEP_AT_MS + REPAIR_MS;
  demand((toldAt.get(REPAIRED) ?? Infinity) <= repairedBy, 'a repair had to wait for a backfill', figures);
}
