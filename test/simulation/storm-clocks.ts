import type { Lambda } from './lambda.ts';
import type { Random } from './random.ts';
import type { Scenario } from './scenario.ts';
import { manySteps } from './steady-scenario.ts';
import { MINUTE, SECOND } from './timeline.ts';
import type { World } from './world.ts';

/** Share of storms whose clocks step, and of these, those whose machines sleep when they would freeze. */
const SHARE = 0.12;
const SLEEPING_SHARE = 0.6;

/** Share of invocations in whose middle the clock steps. */
const STEPS_SHARE = 0.3;

/** Longest listing delay that leaves room for clocks which differ by minutes, in milliseconds. */
const LISTING_DELAY_MAX_MS = 20 * SECOND;

/** Uploads of a storm whose machines sleep. Each is some chances of that. */
const UPLOADS = 10;

/** A storm whose clocks step while timers do not. What it draws comes from random numbers of its own. */
export function withClockSteps(storm: Scenario, random: Random): Scenario {
  const isDrawn = random.chance(SHARE);
  const areAsleep = random.chance(SLEEPING_SHARE);
  if (!isDrawn || (storm.variation.listingDelayMs ?? 0) > LISTING_DELAY_MAX_MS) return storm;
  const stepping = { ...storm, skewMs: 140 * SECOND, isSkewWild: true, clockSteps: { share: STEPS_SHARE, areAsleep } };
  if (!areAsleep) return stepping;
  const { focus } = storm.faultPlan;
  const more = manySteps(random, UPLOADS, storm.chaosMs / 2, ['echo/asleep/']);
  return {
    ...stepping,
    steps: [...storm.steps, ...more].sort((one, other) => one.at - other.at),
    // If another proves that there is no flow, it makes one, and the flow of the machine that wakes up is the second one.
    variation: { ...storm.variation, ...(storm.speaks?.list !== null && { listFlows: 'served' }) },
    // A flow may end while the machine that made it sleeps. Flows that are to be too old last for an hour.
    flowMsMax: storm.flowMsMax === 60 * MINUTE ? storm.flowMsMax : 20 * SECOND,
    tickGapMs: { min: 20 * SECOND, max: MINUTE },
    // A machine sleeps for longer than an invocation lasts, and others are told of its uploads meanwhile.
    createLimitMs: 90 * SECOND,
    visibilitySeconds: 210,
    againEarly: 0.7,
    faultPlan: {
      rate: 0.3,
      faults: ['frozen', 'frozen', 'frozen', 'lost', 'slow'],
      calls: ['flow.create', 'entry.create', 'entry.replace', 'hold.get'],
      persistence: 0,
      focus,
    },
  };
}

/** Schedules the moment of an invocation at which its clock steps forward or back. */
export function scheduleClockStep(world: World, lambda: Lambda, limitMs: number): void {
  const { scenario, timeline, faultPlan, randoms } = world;
  const { clockSteps, skewMs } = scenario;
  const random = randoms.clocks;
  if (clockSteps === undefined || faultPlan.isClear || !random.chance(clockSteps.share)) return;
  const afterMs = random.int(1, random.pick([2 * SECOND, 20 * SECOND, limitMs]));
  timeline.schedule(timeline.now() + afterMs, () => {
    if (faultPlan.isClear) return;
    const ms = random.int(-skewMs, skewMs);
    world.trace(`${lambda.name} has its clock set to ${ms / SECOND} s`);
    lambda.stepClock(ms);
  });
}
