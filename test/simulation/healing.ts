import { type Entry, isTerminal } from '../../functions/ledger/entry.ts';
import { Violation } from './demand.ts';
import { LEDGER } from './names.ts';
import { approveSome, redrive } from './operator.ts';
import { releaseHeld } from './storm-holds.ts';
import { MINUTE, SECOND } from './timeline.ts';
import type { World } from './world.ts';

/**
 * Number of steps of {@link settle} within which everything must come to rest: 42 hours. The daily sweep may find a file
 * after a day, and ten refusals of S3, which are the most that a run allows, take ten hours more.
 */
const SETTLING_STEPS_MAX = 160;

/** Longest time between two ticks of {@link settle}, in milliseconds. */
export const HEALING_GAP_MAX_MS = 16 * MINUTE;

/** Ends the storm: no faults any more, and the right token everywhere. Frozen processes still have to thaw. */
export function heal(world: World): void {
  world.faultPlan.isClear = true;
  world.isHealing = true;
  world.secret = world.observed.tokens.at(-1) as string;
  world.trace('all is well');
  if (!world.scenario.isLossy) redrive(world);
}

/**
 * Lets time pass, with deliveries and ticks, until nothing is left to do. @throws {Violation} if that never happens.
 */
export async function settle(world: World): Promise<void> {
  const { scenario, invocations, inspector, queue } = world;
  let stepMs = 20 * SECOND;
  for (let step = 0; step < SETTLING_STEPS_MAX; step += 1) {
    await invocations.deliverAll();
    await releaseHeld(world);
    if (world.scenario.isReviewed) await approveSome(world, 1);
    await invocations.tick();
    if (!scenario.isLossy) redrive(world);
    if (await isQuiet(world)) return;
    await world.pass(stepMs);
    stepMs = Math.min(3 * stepMs, HEALING_GAP_MAX_MS);
  }
  const left = [...(await inspector.list(LEDGER)).map(({ key }) => key), JSON.stringify(queue.counts())];
  throw new Violation(`nothing comes to an end: ${left.join(', ')}`);
}

/** True if nothing is queued, running or waiting. A held doubt can be ignored: it waits for the operator. */
async function isQuiet(world: World): Promise<boolean> {
  const { queue, notifications, invocations, inspector } = world;
  const { visible, inFlight, delayed } = queue.counts();
  if (notifications.underwayCount + invocations.runningCount > 0) return false;
  const running = await inspector.list(LEDGER, 'running/');
  if (running.some(({ key }) => !world.isDamaged(key))) return false;
  const waiting = await inspector.list(LEDGER, 'waiting/');
  let held = 0;
  for (const { key } of waiting.filter(({ key }) => !world.isStuck(key))) {
    const opened = await inspector.open(LEDGER, `uploads/${key.split('/').at(-1)}.json`);
    // A marker may stand without an entry until a tick takes it up: the sweep writes it first.
    if (opened === undefined) return false;
    const entry = JSON.parse(opened.body.toString()) as Entry;
    // Its chain may wait for the decision about another upload.
    if (isKept(world, entry)) continue;
    if (entry.state !== 'waiting' || entry.reason !== 'undecided') return false;
    held += 1;
  }
  // Each held upload is searched for once an hour. If there are many, one of them is always on its way.
  return visible + inFlight + delayed <= held;
}

/**
 * True if the flow of a success is to be deleted once its chain has ended, or by another attempt, within a day. It may be
 * an earlier success of an upload that was made anew, and failed.
 */
export function isKept({ chainWatch, scenario, timeline }: World, entry: Entry): boolean {
  if (!isTerminal(entry) || scenario.routes.every(({ deleteFlow }) => deleteFlow !== true)) return false;
  if ([entry, ...(entry.previous ?? [])].every(({ state }) => state !== 'succeeded')) return false;
  if (entry.flowDeletion?.message !== undefined) return true;
  const first = entry.upload.stage?.first.id ?? entry.upload.id;
  // Each look for the end of a chain is twice as far from the end of the upload as the one before.
  const toEndMs = (chainWatch.endWrittenAt(first) ?? 0) - entry.endedAt;
  const isLeft = entry.flowDeletion?.deletedAt === undefined;
  const isLookedFor = isLeft && timeline.now() - entry.endedAt < 2 * toEndMs + HEALING_GAP_MAX_MS;
  return chainWatch.isUnderWay(first) || isLookedFor;
}

/** Delivers everything once more that ever came through the queue. Dead letters did not come through. */
export function redeliver({ deadLetters, queue, notifications }: World): void {
  const dead = new Set<string>();
  for (let letters = deadLetters.receive({ max: 10 }); letters.length > 0; ) {
    for (const { body } of letters) dead.add(body);
    letters = deadLetters.receive({ max: 10 });
  }
  for (const message of notifications.messages) if (!dead.has(message)) queue.send(message);
}
