import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, it, vi } from 'vitest';
import { type ServedPage, servePage } from '../../page/server/serve-page.ts';
import { Visitor } from '../page/support.ts';
import { Operated } from './support.ts';

vi.mock('../../operations/wait.ts', () => import('./quick-wait.ts'));

/*
 * Every question that pays says how many flows, and what they cost.
 */

const price = (amount: number, currency = 'EUR') => ({ amount, currency });
const echo = { input: 'file', template: 'bytes_echo' } as const;

let operated: Operated;
let page: ServedPage;
let visitor: Visitor;
beforeAll(async () => {
  const routes = [
    { name: 'pictures', ...echo, suffixes: ['.png'], price: price(0.25) },
    { name: 'chained', ...echo, suffixes: ['.txt'], overrides: true, price: price(0.3) },
    { name: 'after', ...echo, after: 'chained', price: price(0.2) },
    { name: 'yen', ...echo, suffixes: ['.yen'], price: price(40, 'JPY') },
    { name: 'free', ...echo, suffixes: ['.free'] },
    { name: 'views', ...echo, jobs: 'views/', price: price(1) },
  ] as const;
  operated = await Operated.start({ routes });
  page = await servePage(operated.deployment);
  visitor = await Visitor.open(page.url);
});
afterEach(() => operated.refuse(undefined));
afterAll(async () => {
  await page.close();
  await operated[Symbol.asyncDispose]();
});

const write = async (name: string, content = name): Promise<void> => {
  await mkdir(join(operated.directory, name, '..'), { recursive: true });
  await writeFile(join(operated.directory, name), content);
};

/** What a command asks, without somebody to answer. */
const asked = async (...words: readonly string[]): Promise<string> => {
  const { code, errors } = await operated.run(...words);
  expect(code).toBe(2);
  return errors;
};

it('put', async () => {
  for (const name of ['a.png', 'b.png', 'c.yen', 'd.free', 'e.txt']) await write(name);
  expect(await asked('put', 'a.png', 'b.png')).toContain(
    '2 files would be uploaded, and paid for: 2 flows, 0.50 EUR. Go on?',
  );
  expect(await asked('put', 'c.yen')).toContain('paid for: 1 flow, 40 JPY. Go on?');
  expect(await asked('put', 'd.free')).toContain('paid for: 1 flow. Go on?');
  expect(await asked('put', 'a.png', 'c.yen', 'd.free')).toContain(
    'paid for: 3 flows, 0.25 EUR + 40 JPY and 1 flow without a price. Go on?',
  );
  expect(await asked('put', 'e.txt')).toContain(
    'paid for: 2 flows, 0.50 EUR. Each later stage is counted with one flow.',
  );
});

it('put of a job, which is one flow however many files it has', async () => {
  await write('chair/job.json', JSON.stringify({ inputs: ['front.png', 'back.png'] }));
  for (const name of ['front.png', 'back.png']) await write(`chair/${name}`);
  expect(await asked('put', 'chair')).toContain('3 files would be uploaded, and paid for: 1 flow, 1.00 EUR. Go on?');
});

it('the canary', async () => {
  await write('canary.txt');
  expect(await asked('doctor', '--canary', 'canary.txt')).toContain('and paid for: 2 flows, 0.50 EUR.');
});

it('a retry, in the command line and on the page', async () => {
  operated.refuse(422);
  const { id: picture } = await operated.put('one.png', 'failed');
  const { id: text } = await operated.put('one.txt', 'failed');
  operated.refuse(undefined);
  expect(await asked('retry', 'one.png', 'one.txt')).toContain(
    '2 files would be sent again, and may be paid for: 3 flows, 0.75 EUR.',
  );
  const plan = async (body: object) => (await visitor.post('/api/plan', { action: 'retry', ...body })).json.costs;
  expect(await plan({ uploads: [picture] })).toEqual({ flows: 1, later: 0, unpriced: 0, amounts: { EUR: 0.25 } });
  expect(await plan({ uploads: [picture, text] })).toMatchObject({ flows: 3, later: 1, amounts: { EUR: 0.75 } });
  expect((await visitor.post('/api/plan', { action: 'collect', uploads: [text] })).json.costs.flows).toBe(0);
});

it('a chain that is made anew, whole or from a stage on', async () => {
  const { id } = await operated.put('whole.txt', 'succeeded');
  await vi.waitFor(async () => {
    const { json } = await visitor.ask(`/api/uploads/${id}/chain`);
    expect(json.chain?.state).toBe('succeeded');
  }, 60_000);
  expect(await asked('again', 'whole.txt', '--from', 'chained')).toContain('may be paid for: 2 flows, 0.50 EUR.');
  expect(await asked('again', 'whole.txt', '--from', 'after')).toContain('may be paid for: 1 flow, 0.20 EUR. Go on?');
  const { json: planned } = await visitor.post('/api/plan', { action: 'again', chain: id, from: 'chained' });
  expect(planned.costs).toEqual({ flows: 2, later: 1, unpriced: 0, amounts: { EUR: 0.5 } });
  const whole = { flows: 2, later: 1, unpriced: 0, amounts: { EUR: 0.5 } };
  expect((await visitor.post('/api/plan', { action: 'again', uploads: [id] })).json.costs).toEqual(whole);
  expect(await asked('again', 'whole.txt')).toContain('would be made anew, and may be paid for: 2 flows, 0.50 EUR.');
});

it('files that are dropped', async () => {
  const files = ['x.png', 'x.txt', 'x.none'].map((key) => ({ key, bytes: 1 }));
  const { json } = await visitor.post('/api/route', { files });
  expect(json.map(({ costs }: { costs?: object }) => costs)).toEqual([
    { flows: 1, later: 0, unpriced: 0, amounts: { EUR: 0.25 } },
    { flows: 2, later: 1, unpriced: 0, amounts: { EUR: 0.5 } },
    undefined,
  ]);
});

it('an input that a job of the inbox waits for', async () => {
  await operated.put('views/lamp/job.json', 'waiting', JSON.stringify({ inputs: ['front.png', 'back.png'] }));
  const files = ['front.png', 'back.png'].map((name) => ({ key: `views/lamp/${name}`, bytes: 1 }));
  const { json } = await visitor.post('/api/route', { files });
  const flows = json.map(({ costs }: { costs?: { flows: number } }) => costs?.flows ?? 0);
  expect(flows).toEqual([1, 0]);
});

it('the end of a pause', async () => {
  await operated.run('pause');
  await operated.put('held.png', 'waiting');
  await operated.put('held.txt', 'waiting');
  expect(await asked('resume')).toContain('wait for the end of a pause, and may be paid for: 3 flows, 0.75 EUR.');
  const { json } = await visitor.ask('/api/about');
  expect(json.routes.map(({ costs }: { costs: { flows: number } }) => costs.flows)).toEqual([1, 2, 1, 1, 1, 1]);
  await operated.run('resume', '--yes');
});
