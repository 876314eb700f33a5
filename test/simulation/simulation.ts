import { inspect } from 'node:util';
import { liveWithBackfill } from './backfill.ts';
import { Violation } from './demand.ts';
import type { FaultTable } from './faults.ts';
import { checkAll, checkFirstTicks, checkRetried, checkUnchanged, snapshotOf } from './invariants.ts';
import { liveWithinLimits } from './limits.ts';
import { liveWithPoison } from './poison.ts';
import { warmUp } from './s3.ts';
import { type NeededPermission, World } from './world.ts';

const MINUTE = 60_000;

export interface Outcome {
  readonly seed: number;
  /** What was broken; undefined where all held. */
  readonly violation: string | undefined;
  /** Of everything that happened: two runs of a seed have the same. */
  readonly traceHash: string;
  readonly faults: FaultTable;
  readonly calls: Readonly<Record<string, number>>;
  readonly counts: Readonly<Record<string, number>>;
}

let warmth: Promise<void> | undefined;

/** Runs one seed's world from its beginning to the check of its invariants. Everything follows from the seed. */
export async function simulate(
  seed: number,
  onTrace?: (line: string) => void,
  onCall?: (call: NeededPermission) => void,
): Promise<Outcome> {
  warmth ??= warmUp();
  await warmth;
  const world = new World(seed, onTrace, onCall);
  let unhandled: unknown;
  const onUnhandled = (error: unknown): void => {
    unhandled ??= error;
  };
  process.on('unhandledRejection', onUnhandled);
  let violation: string | undefined;
  try {
    await live(world);
    if (unhandled !== undefined) throw new Violation(`a rejection that nobody handled: ${describe(unhandled)}`);
  } catch (error) {
    violation = error instanceof Violation ? error.message : `the simulation failed: ${describe(error)}`;
  } finally {
    process.off('unhandledRejection', onUnhandled);
    if (world.figures !== undefined) onTrace?.(`measured: ${inspect(world.figures, { depth: 6, breakLength: 160 })}`);
    world.close();
  }
  return {
    seed,
    violation,
    traceHash: world.traceHash,
    faults: world.faultPlan.table,
    calls: world.faultPlan.calls,
    counts: { ...world.stats, ...Object.fromEntries(world.counted) },
  };
}

async function live(world: World): Promise<void> {
  switch (world.scenario.kind) {
    case 'storm':
      return liveThroughStorm(world);
    case 'limits':
      await liveWithinLimits(world);
      break;
    case 'poison':
      await liveWithPoison(world);
      break;
    case 'backfill':
      await liveWithBackfill(world);
  }
  await world.settle();
  await checkAll(world);
}

async function liveThroughStorm(world: World): Promise<void> {
  await world.chaos();
  world.heal();
  await checkFirstTicks(world);
  await world.settle();
  const { isLossy, versioning, areRetried } = world.scenario;
  // Three things beside lost messages are for the sweep alone. Where no versions are kept, the message of an upload that
  // was replaced after its claim no longer leads to its entry. A person's retry that failed may be left half done. And
  // where an entry has expired, a first entry that S3 wrote late may be all that there is, with no message any more.
  if (isLossy || versioning !== 'Enabled' || areRetried || world.expired.size > 0) {
    // What is younger than a quarter of an hour may still be on its ordinary way, for all that the sweep knows.
    await world.pass(20 * MINUTE);
    await world.sweep(); // It may only end a pass that had begun before.
    await world.sweep();
    await world.settle();
  }
  // A doubt that is held is looked into every hour, and now that all is well it may be settled.
  if (await world.isAnyHeld()) {
    await world.pass(70 * MINUTE);
    await world.settle();
  }
  await checkAll(world);
  if (world.scenario.areAllRetried) {
    await world.retryFailures();
    await world.settle();
    await checkAll(world);
    await checkRetried(world);
  }
  const before = await snapshotOf(world);
  world.redeliver();
  await world.retrySucceeded();
  await world.settle();
  await world.pass(20 * MINUTE);
  await world.sweep();
  await world.settle();
  await checkAll(world);
  // An upload whose entry expired is paid for again when its message or the sweep brings it again.
  if (world.expired.size === 0) checkUnchanged(before, await snapshotOf(world));
}

const describe = (error: unknown): string =>
  error instanceof Error
    ? `${error.stack}${error.cause === undefined ? '' : `\ncaused by ${describe(error.cause)}`}`
    : String(error);
