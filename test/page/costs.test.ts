import { PutObjectCommand } from '@aws-sdk/client-s3';
import { expect, it, vi } from 'vitest';
import { costs } from '../../operations/costs.ts';
import { Operated, ROUTES, signal } from '../operations/support.ts';
import { PATIENCE } from '../support/patience.ts';
import { serve, Visitor } from './support.ts';
import { DAY_MS, visitWorld } from './world.ts';

const TOTALS = JSON.stringify({
  [JSON.stringify(['pictures', '', 'EUR'])]: { flows: 10, micros: 4_000_000, again: 2 },
});

const keyOf = (daysAgo: number): string =>
  `state/costs/${new Date(Date.now() - daysAgo * DAY_MS).toISOString().slice(0, 10)}.json`;

it('the costs of today and of the last 30 days are those of the command', async () => {
  const routes = [{ ...ROUTES[0], price: { amount: 0.4, currency: 'EUR' } }, ROUTES[1]] as typeof ROUTES;
  const operated = await Operated.forTest({ routes });
  const { deployment, pipeline } = operated;
  const { ledgerBucket: Bucket } = deployment.settings;
  for (const days of [3, 40]) await pipeline.s3.send(new PutObjectCommand({ Bucket, Key: keyOf(days), Body: TOTALS }));
  await operated.upload('a.png', 'a', { ContentType: 'image/png' });
  await operated.becomes('a.png', 'succeeded');
  const { url } = await serve(deployment);
  const { json } = await (await Visitor.open(url)).ask('/api/costs');
  const own = { name: 'pictures', flows: 1, mayBeSecond: 0, amounts: { EUR: 0.4 } };
  expect(json.today.rows).toEqual([own]);
  expect(json.lately.rows).toEqual([{ name: 'pictures', flows: 11, mayBeSecond: 2, amounts: { EUR: 4.4 } }]);
  expect(json.lately).toEqual(await costs({ by: 'route' }, deployment, signal));
  expect(json.lately).toEqual(JSON.parse((await operated.run('costs', '--json')).output));
});

it('the costs are read when they are asked for, and not at each look of the feed', async () => {
  const { world, visitor } = await visitWorld();
  await world.putObject(keyOf(3), TOTALS);
  visitor.listen();
  const looksTo = world.lists + 20;
  await vi.waitFor(() => expect(world.lists).toBeGreaterThan(looksTo), PATIENCE);
  expect(world.costReads).toBe(0);
  expect((await visitor.ask('/api/costs')).json.lately.total.flows).toBe(10);
  expect(world.costReads).toBe(1);
});
