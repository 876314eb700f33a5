import { doStep } from './storm.ts';
import { MINUTE, SECOND } from './timeline.ts';
import type { World } from './world.ts';

/**
 * Runs both functions as they are deployed until `isDone`: one tick of each collector a minute, and an event source
 * that polls all the time. Returns the time since the first upload, in milliseconds; undefined if it would exceed
 * `limitMs`.
 * @param isDone default: all uploads have ended.
 */
export async function runSteadily(
  world: World,
  limitMs: number,
  isDone = () => world.observed.publishedAt.size >= world.scenario.steps.length,
): Promise<number | undefined> {
  const { scenario, timeline, invocations, service } = world;
  await invocations.collect({}); // The first tick of a deployment, as in a storm.
  const startedAt = timeline.now();
  const end = startedAt + limitMs;
  for (const step of scenario.steps) timeline.schedule(startedAt + step.at, () => void doStep(world, step));
  const { lowered } = scenario;
  if (lowered !== undefined) {
    timeline.schedule(startedAt + lowered.at, () => service.limiter.change(lowered.limits));
  }
  world.repeat({ min: SECOND, max: 3 * SECOND }, end, () => {
    while (invocations.deliver());
  });
  for (let index = 0; index < scenario.collectors; index += 1) {
    const collector = { index, of: scenario.collectors };
    world.repeat({ min: MINUTE, max: MINUTE }, end, () => void invocations.startCollect({ collector }));
  }
  return (await timeline.run(isDone, end)) ? timeline.now() - startedAt : undefined;
}
