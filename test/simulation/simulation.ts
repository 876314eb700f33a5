import { inspect } from 'node:util';
import { uploadId } from '../../functions/uploads/upload.ts';
import { liveWithBackfill } from './backfill.ts';
import { Violation } from './demand.ts';
import type { FaultTable } from './faults.ts';
import { heal, redeliver, settle } from './healing.ts';
import { checkFirstTicks, checkRetried, checkUnchanged, snapshotOf } from './invariants/after-healing.ts';
import { checkAll } from './invariants/check-all.ts';
import { checkCountAtRest } from './invariants/holds.ts';
import { liveWithLaggingReplica } from './lagging-replica.ts';
import { liveWithinLimits } from './limits.ts';
import { liveWithLongRounds } from './long-rounds.ts';
import { retryFailures, retrySuccesses } from './operator.ts';
import { liveWithPoison } from './poison.ts';
import { liveWithReplicas } from './replicas.ts';
import { warmUp } from './s3.ts';
import { liveWithSlowCounterpart } from './slow-counterpart.ts';
import { runStorm } from './storm.ts';
import { endHolds } from './storm-holds.ts';
import { routeNameFor } from './storm-routes.ts';
import { MINUTE } from './timeline.ts';
import { type NeededPermission, World } from './world.ts';

export interface Outcome {
  readonly seed: number;
  /** The broken invariant; undefined if all held. */
  readonly violation: string | undefined;
  /** Hash of everything that happened. Two runs of a seed have the same. */
  readonly traceHash: string;
  readonly faults: FaultTable;
  readonly calls: Readonly<Record<string, number>>;
  readonly counts: Readonly<Record<string, number>>;
}

/** Most sweeps after a storm. Messages about a damaged entry die each time. */
const PASSES_MAX = 5;

let warmth: Promise<void> | undefined;

/** Runs the world of a seed from its beginning to the check of its invariants. Everything follows from the seed. */
export async function simulate(
  seed: number,
  onTrace?: (line: string) => void,
  onCall?: (call: NeededPermission) => void,
): Promise<Outcome> {
  warmth ??= warmUp();
  await warmth;
  const world = new World(seed, { onTrace, onCall });
  const { observed, faultPlan } = world;
  let unhandled: unknown;
  const onUnhandled = (error: unknown): void => {
    unhandled ??= error;
  };
  process.on('unhandledRejection', onUnhandled);
  let violation: string | undefined;
  try {
    await live(world);
    if (unhandled !== undefined) throw new Violation(`an unhandled rejection: ${describe(unhandled)}`);
  } catch (error) {
    violation = error instanceof Violation ? error.message : `the simulation failed: ${describe(error)}`;
  } finally {
    process.off('unhandledRejection', onUnhandled);
    if (observed.figures !== undefined) {
      onTrace?.(`measured: ${inspect(observed.figures, { depth: 6, breakLength: 160 })}`);
    }
    world.close();
  }
  return {
    seed,
    violation,
    traceHash: world.traceHash,
    faults: faultPlan.table,
    calls: faultPlan.calls,
    counts: { ...observed.stats, ...Object.fromEntries(observed.counted) },
  };
}

/** How a world of each kind runs until its uploads have ended. */
const LIVES = {
  limits: liveWithinLimits,
  poison: liveWithPoison,
  backfill: liveWithBackfill,
  'long rounds': liveWithLongRounds,
  'lagging replica': liveWithLaggingReplica,
  replicas: liveWithReplicas,
  'slow counterpart': liveWithSlowCounterpart,
} as const;

async function live(world: World): Promise<void> {
  const { kind } = world.scenario;
  if (kind === 'storm') return liveThroughStorm(world);
  await LIVES[kind](world);
  await settle(world);
  await checkAll(world);
}

/**
 *   storm: uploads, notifications, ticks and everything that can go wrong ──▶ healing: nothing goes wrong any more, and
 *   time passes until nothing is left to do ──▶ the invariants ──▶ everything once more, which must change nothing
 */
async function liveThroughStorm(world: World): Promise<void> {
  await runStorm(world);
  heal(world);
  await checkFirstTicks(world);
  endHolds(world);
  await settle(world);
  if (needsSweep(world)) await sweepEverything(world);
  // The functions search for the flow of a held doubt every hour. Now that all is well, it may be settled.
  if (world.scenario.holds !== undefined || (await world.entries()).some(({ state }) => state === 'waiting')) {
    await world.pass(70 * MINUTE);
    await settle(world);
  }
  await checkAll(world);
  await checkCountAtRest(world, await world.entries());
  if (world.scenario.areAllRetried) {
    await retryFailures(world);
    await settle(world);
    await checkAll(world);
    await checkRetried(world);
  }
  await doEverythingAgain(world);
}

/**
 * Besides lost messages, four things are left to the sweep. If the inbox keeps no versions, the message of an upload
 * that was replaced after its claim does not lead to its entry any more. If the inbox was replaced, no message of S3 leads
 * to the entries of the old one. An operator's retry that failed may be half done. If an entry has expired, a first entry
 * that S3 wrote late may be left alone, without a message.
 */
function needsSweep({ scenario, observed }: World): boolean {
  const { isLossy, versioning, areRetried } = scenario;
  const { expired, deployedAt } = observed;
  // What no route wanted for a while has no entry, and its message does not come again.
  if (observed.routings.some((routes) => routes.length !== observed.routings[0]?.length)) return true;
  return isLossy || versioning !== 'Enabled' || areRetried || expired.size > 0 || deployedAt.has('inbox');
}

/**
 * Sweeps until no message of a sweep has died. A message goes back unattempted if half of the invocation's time is over.
 * If it may be received once only, it dies then, and the pass of the next day finds its upload.
 */
async function sweepEverything(world: World): Promise<void> {
  const { deadLetters } = world;
  // The sweep leaves uploads alone that are younger than a quarter of an hour: they may still be on their way.
  await world.pass(20 * MINUTE);
  await sweep(world); // This one may only end a pass that had begun before.
  for (let passes = 0; passes < PASSES_MAX; passes += 1) {
    const dead = deadLetters.counts().visible;
    await sweep(world);
    await settle(world);
    if (deadLetters.counts().visible === dead) return;
  }
}

/** Requests a daily pass, and runs it in a tick. If that is cut off, later ticks continue it. */
async function sweep({ invocations }: World): Promise<void> {
  await invocations.collect({ sweep: {} });
  await invocations.tick();
}

async function doEverythingAgain(world: World): Promise<void> {
  // While neighbours delete flows, it is chance whether the next search settles a held doubt.
  const isHeld = (await world.entries()).some(({ state }) => state === 'waiting');
  const mayGoOn = isHeld && world.scenario.doNeighboursDelete;
  const before = await snapshotOf(world);
  redeliver(world);
  await retrySuccesses(world);
  await settle(world);
  await world.pass(20 * MINUTE);
  await sweep(world);
  await settle(world);
  await checkAll(world);
  // An upload whose entry expired is paid for again if its message or the sweep brings it again. And what no route wanted
  // when its message came may have a route now.
  const { expired, puts, routings } = world.observed;
  const mayBeWanted = puts.some(
    ({ key }) => new Set(routings.map((routes) => routeNameFor(routes, key) === undefined)).size > 1,
  );
  // If clocks differ by minutes, nobody knows whether a copy came before the failure of what it repeats.
  const mayBeMeant = world.scenario.isSkewWild === true && puts.some(({ isCopy }) => isCopy);
  // Nor whether the sweep has found a copy or a put. The message of a put, if it comes at last, tells.
  const takenForCopies = world.observed.logged
    .filter(({ message }) => message.startsWith('A copy with the same content'))
    .map(({ fields }) => fields?.uploadId);
  const wasTakenForCopy = puts.some((put) => !put.isCopy && takenForCopies.includes(uploadId(put)));
  // What a damaged entry was about cannot be known, so a copy of its upload is sent.
  const { damaged } = world.observed;
  const mayRepeatDamaged = puts.some(({ isCopy, key }) => isCopy && key === damaged?.key);
  const isComparable =
    expired.size === 0 && !mayRepeatDamaged && !mayGoOn && !mayBeWanted && !mayBeMeant && !wasTakenForCopy;
  const namesOfRoutes = new Set(routings.map((routes) => routes.map(({ name }) => name).join()));
  if (isComparable) checkUnchanged(before, await snapshotOf(world), namesOfRoutes.size > 1);
}

const describe = (error: unknown): string =>
  error instanceof Error
    ? `${error.stack}${error.cause === undefined ? '' : `\ncaused by ${describe(error.cause)}`}`
    : String(error);
