import { PutObjectCommand } from '@aws-sdk/client-s3';
import { expect, it, vi } from 'vitest';
import { costs } from '../../operations/costs.ts';
import { issuesOf } from '../support/json-schema.ts';
import { Operated, ROUTES, signal } from './support.ts';

vi.mock('../../operations/wait.ts', () => import('./quick-wait.ts'));

const EUR = { amount: 0.4, currency: 'EUR' };
const DAY_MS = 24 * 60 * 60_000;
const PICTURE = { ContentType: 'image/png' };

it('the costs are told by route, by folder and by day, with those of days that have ended', async () => {
  const routes = [
    { ...ROUTES[0], price: EUR },
    { ...ROUTES[1], price: { amount: 1, currency: 'USD' } },
  ] as typeof ROUTES;
  const operated = await Operated.forTest({ routes });
  for (const key of ['anna/a.png', 'anna/b.png', 'c.png']) await operated.upload(key, key, PICTURE);
  await operated.upload('anna/prompt.txt', 'a chair');
  for (const key of ['anna/a.png', 'anna/b.png', 'c.png', 'anna/prompt.txt']) await operated.becomes(key, 'succeeded');
  const { deployment } = operated;
  const before = new Date(Date.now() - 40 * DAY_MS).toISOString().slice(0, 10);
  const totals = { [JSON.stringify(['pictures', 'anna/', 'EUR'])]: { flows: 1000, micros: 400_000_000, again: 2 } };
  const Body = JSON.stringify(totals);
  const { ledgerBucket: Bucket } = deployment.settings;
  await operated.pipeline.s3.send(new PutObjectCommand({ Bucket, Key: `state/costs/${before}.json`, Body }));

  const since = Date.now() - 30 * DAY_MS;
  expect((await costs({ by: 'route', since }, deployment, signal)).rows).toEqual([
    { name: 'pictures', flows: 3, mayBeSecond: 0, amounts: { EUR: 1.2 } },
    { name: 'texts', flows: 1, mayBeSecond: 0, amounts: { USD: 1 } },
  ]);
  const byPrefix = await costs({ by: 'prefix', since: since - 30 * DAY_MS }, deployment, signal);
  expect(byPrefix.rows).toEqual([
    { name: 'anna/', flows: 1003, mayBeSecond: 2, amounts: { EUR: 400.8, USD: 1 } },
    { name: '', flows: 1, mayBeSecond: 0, amounts: { EUR: 0.4 } },
  ]);
  const { output } = await operated.run('costs', '--by', 'day', '--since', '60d');
  expect(output).toContain(`${before}  1000`);
  expect(output).toContain('401.20 EUR + 1.00 USD  2 of them may have been paid twice');
  const json = JSON.parse((await operated.run('costs', '--json')).output);
  expect(issuesOf('costs', json)).toBe('');
  expect(json.total).toEqual({ name: 'total', flows: 4, mayBeSecond: 0, amounts: { EUR: 1.2, USD: 1 } });
});

it('without a price and a budget, the command says that nothing is counted', async () => {
  const operated = await Operated.forTest();
  const { output, code } = await operated.run('costs');
  expect(code).toBe(0);
  expect(output).toContain('No flow is counted, because no route has a price');
});
