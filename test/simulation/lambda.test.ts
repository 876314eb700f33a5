import { expect, it } from 'vitest';
import { Lambda } from './lambda.ts';
import { Random } from './random.ts';
import { MINUTE, SECOND, Timeline } from './timeline.ts';

/** When a timer of 35 seconds fires in a process that is frozen five seconds before, and for how long it is frozen. */
async function firedAfterFreezing(isAsleep: boolean): Promise<{ readonly firedMs: number; readonly frozenMs: number }> {
  const timeline = new Timeline(0);
  const lambda = new Lambda('create', 1, timeline, 0);
  let firedMs = Number.NaN;
  let frozenMs = Number.NaN;
  lambda.after(35 * SECOND, 'timer', () => {
    firedMs = timeline.now();
  });
  timeline.schedule(30 * SECOND, () => lambda.freeze(new Random(1), isAsleep));
  timeline.schedule(31 * SECOND, () => {
    lambda.after(0, 'answer', () => {
      frozenMs = timeline.now() - 30 * SECOND;
    });
  });
  await timeline.run(() => false, 120 * MINUTE);
  return { firedMs, frozenMs };
}

it('an overdue timer of a process that was frozen fires at once', async () => {
  const { firedMs, frozenMs } = await firedAfterFreezing(false);
  expect(frozenMs).toBeGreaterThan(5 * SECOND);
  expect(firedMs).toBe(30 * SECOND + frozenMs);
});

it('a timer of a machine that slept is late by that time', async () => {
  const { firedMs, frozenMs } = await firedAfterFreezing(true);
  expect(firedMs).toBe(35 * SECOND + frozenMs);
});

it('a clock that steps moves no timer', async () => {
  const timeline = new Timeline(0);
  const lambda = new Lambda('create', 1, timeline, 0);
  let firedAt = Number.NaN;
  void lambda.clock.sleep(MINUTE).then(() => {
    firedAt = timeline.now();
  });
  timeline.schedule(SECOND, () => lambda.stepClock(5 * MINUTE));
  await timeline.run(() => false, 2 * MINUTE);
  expect(firedAt).toBe(MINUTE);
  expect(lambda.clock.now()).toBe(7 * MINUTE);
});
