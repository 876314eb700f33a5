import { expect, it, vi } from 'vitest';
import { PATIENCE } from '../support/patience.ts';
import { DAY_MS, visitWorld } from './world.ts';

const TOTALS = JSON.stringify({
  [JSON.stringify(['pictures', '', 'EUR'])]: { flows: 10, micros: 4_000_000, again: 2 },
});

const keyOf = (daysAgo: number): string =>
  `state/costs/${new Date(Date.now() - daysAgo * DAY_MS).toISOString().slice(0, 10)}.json`;

it('the costs of today and of the last 30 days are read when they are asked for, and not at each look of the feed', async () => {
  const { world, visitor } = await visitWorld();
  for (const days of [0, 3, 40]) await world.putObject(keyOf(days), TOTALS);
  visitor.listen();
  const looksTo = world.lists + 20;
  await vi.waitFor(() => expect(world.lists).toBeGreaterThan(looksTo), PATIENCE);
  expect(world.costReads).toBe(0);
  const { today, lately } = (await visitor.ask('/api/costs')).json;
  expect(today.rows).toEqual([{ name: 'pictures', flows: 10, mayBeSecond: 2, amounts: { EUR: 4 } }]);
  expect(lately).toMatchObject({ rows: [{ name: 'pictures', flows: 20 }], total: { flows: 20 } });
  expect(world.costReads).toBe(2);
});
