import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { expect, it } from 'vitest';
import type { Route } from '../../../functions/uploads/route.ts';
import { chargeForExisting } from '../../../local/start/existing-files.ts';
import { temporaryFolder } from '../../support/folder.ts';

const ROUTES: readonly Route[] = [
  {
    ...{ name: 'pictures', input: 'file', template: 'a', suffixes: ['.png'] },
    price: { amount: 0.25, currency: 'EUR' },
  },
  { name: 'texts', input: 'text', template: 'b', suffixes: ['.txt'] },
  { name: 'jobs', input: 'file', template: 'c', jobs: 'jobs/', price: { amount: 1, currency: 'EUR' } },
];

async function charge(files: readonly string[], routes = ROUTES, inboxPrefix = ''): Promise<string | undefined> {
  const inboxDir = await temporaryFolder();
  for (const file of files) {
    await mkdir(dirname(join(inboxDir, file)), { recursive: true });
    await writeFile(join(inboxDir, file), 'x');
  }
  const said = await chargeForExisting({ inboxDir, serviceUrl: 'https://flows.example' }, { routes, inboxPrefix });
  return said?.replace(inboxDir, 'INBOX');
}

it.each([
  [['a.png', 'b.png'], '2 files, for which https://flows.example may charge: 2 flows, 0.50 EUR.'],
  [['a.txt'], '1 file, for which https://flows.example may charge: 1 flow.'],
  [
    ['a.png', 'a.txt', 'c.csv'],
    '3 files, for which https://flows.example may charge: 2 flows, 0.25 EUR and 1 flow with',
  ],
  [['jobs/7/job.json', 'jobs/7/a.png'], '2 files, for which https://flows.example may charge: 1 flow, 1.00 EUR.'],
])(
  'files that are in the inbox already are told with their flows and the sum of the prices: %j',
  async (files, said) => {
    const told = await charge(files);
    expect(told).toContain(`The inbox INBOX already holds ${said}`);
    expect(told).toMatch(/ Add --send-existing to send them, or name another folder with --inbox$/);
  },
);

it('a later stage is counted, and the prefix of the inbox is part of the key', async () => {
  const later: Route = { ...(ROUTES[0] as Route), name: 'later', after: 'pictures', suffixes: undefined };
  const routes = [{ ...(ROUTES[0] as Route), prefixes: ['in/'] }, later];
  expect(await charge(['a.png'], routes, 'in/')).toContain('2 flows, 0.50 EUR. Each later stage is counted');
});

it.each([[[]], [['c.csv']], [['a.png.part', 'a.png~']], [['.hidden/a.png', '.a.png']], [['jobs/7/a.png']]])(
  'nothing is told if nothing would be sent: %j',
  async (files) => {
    expect(await charge(files)).toBeUndefined();
  },
);
