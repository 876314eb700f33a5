import { expect, it, onTestFinished } from 'vitest';
import { flowTagOf } from './flow-tag.ts';
import { NEXT_PIPELINE, PIPELINE } from './names.ts';
import { MINUTE } from './timeline.ts';
import { World } from './world.ts';

it('neighbours create flows and delete theirs, but none of ours, not even one of the renamed pipeline', async () => {
  const world = new World(1);
  onTestFinished(() => world.close());
  for (const pipeline of ['another', PIPELINE, NEXT_PIPELINE]) {
    await world.neighbours.createFlow({ pipeline, upload: 'a'.repeat(40), generation: 1 });
  }
  world.neighbours.create();
  await world.pass(60 * MINUTE);
  for (let times = 1; times <= 50; times += 1) world.neighbours.deleteSoon();
  await world.pass(MINUTE);

  expect(world.service.flows).toHaveLength(4);
  const left = world.service.flows.filter(({ deleted }) => !deleted);
  expect(left.map((flow) => flowTagOf(flow)?.pipeline)).toEqual([PIPELINE, NEXT_PIPELINE]);
});
