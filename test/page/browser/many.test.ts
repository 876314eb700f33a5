import { beforeAll, expect, it } from 'vitest';
import { ended, failedMarkerOf, running } from '../../../functions/ledger/entry.ts';
import { failedKey } from '../../../functions/ledger/keys.ts';
import { DAY_MS, World } from '../world.ts';
import { describeInBrowser, PATIENCE_MS, START_MS, type Visit } from './support.ts';

const UPLOADS = 990;
/** Rows in the document. A tall window shows about twenty. */
const ROWS_MAX = 80;
const FAILURE = { code: 'flow-failed', message: 'The flow failed: the picture is empty.' } as const;

const viewport = { width: 1280, height: 800 };

let world: World;

describeInBrowser(
  'hundreds of uploads',
  (shown) => {
    let visit: Visit;
    beforeAll(async () => {
      // One window for all tests: so many rows take some seconds to come.
      visit = shown.closing.use(await shown.open({ viewport }));
      await visit.page.getByRole('button', { name: 'All 990' }).waitFor();
    }, START_MS);

    it('are all in the list, of which the document holds a screenful', async () => {
      const { page } = visit;
      const rows = page.locator('.row');
      await visit.row('file-00000.png').waitFor();
      expect(await rows.count()).toBeLessThan(ROWS_MAX);
      expect(await rows.first().getAttribute('aria-setsize')).toBe('990');

      await page.evaluate(() => window.scrollTo(0, document.documentElement.scrollHeight));
      await visit.row('file-00989.png').waitFor();
      expect(await rows.count()).toBeLessThan(ROWS_MAX);
      await page.evaluate(() => window.scrollTo(0, document.documentElement.scrollHeight / 2));
      await visit.row('file-00500.png').waitFor();
      expect(await rows.count()).toBeLessThan(ROWS_MAX);
    });

    it('are filtered by name and state', async () => {
      const { page } = visit;
      await page.getByRole('searchbox').fill('FILE-0012');
      await page.getByRole('button', { name: 'All 10' }).waitFor();
      await visit.row('file-00125.png').waitFor();
      await page.getByRole('button', { name: 'Failed 1' }).click();
      await expect.poll(() => page.locator('.row').count(), { timeout: PATIENCE_MS }).toBe(1);
      await visit.row('file-00120.png').waitFor();
      await page.getByRole('button', { name: 'All 10' }).click();
      await page.getByRole('searchbox').fill('');
      await page.getByRole('button', { name: 'All 990' }).waitFor();
    });

    it('are found by a name whose letters have another form', async () => {
      const { page } = visit;
      await world.put(ended(world.claimed('gru\u0308n.png', 30_000), {}, world.now));
      await page.getByRole('searchbox').fill('gr\u00fcn');
      await visit.row('gru\u0308n.png').waitFor();
      await page.getByRole('searchbox').fill('');
      await page.getByRole('button', { name: 'All 991' }).waitFor();
    });

    it('are retried all at once as far back as the list goes', async () => {
      const { page } = visit;
      const failed = (key: string, age: number) => {
        const begun = running(world.claimed(key, age), { id: key, createdAt: world.now - age });
        return ended(begun, { failure: FAILURE }, world.now - age + 1_000);
      };
      for (const entry of [failed('old.png', 9 * DAY_MS), failed('new.png', 60_000)]) {
        await world.put(entry);
        if (entry.state === 'failed') await world.putObject(failedKey(failedMarkerOf(entry)));
      }
      await page.getByRole('button', { name: 'Failed 100' }).click();
      await page.getByRole('button', { name: 'Retry all 100…' }).click();
      // The other failures of this ledger have no markers.
      await page.getByRole('dialog').getByText('1 upload will be retried.').waitFor();
      await page.getByRole('button', { name: 'Do nothing' }).click();
      await page.getByRole('button', { name: 'All 992' }).click();
    });

    it('stay in their place while others come', async () => {
      const { page } = visit;
      await page.evaluate(() => window.scrollTo(0, 9_600));
      const row = visit.row('file-00150.png');
      await row.waitFor();
      const before = await row.boundingBox();
      await world.put(ended(world.claimed('newest.png', -1_000), {}, world.now));
      await page.getByRole('button', { name: 'All 993' }).waitFor();
      expect((await row.boundingBox())?.y).toBeCloseTo(before?.y ?? Number.NaN, 0);
    });
  },
  async ({ closing }) => {
    world = await World.start((close) => closing.defer(close));
    for (let number = 0; number < UPLOADS; number += 1) {
      const claimed = world.claimed(`shelf/file-${String(number).padStart(5, '0')}.png`, 60_000 + number * 1_000);
      const begun = running(claimed, { id: `flow-${number}`, createdAt: world.now });
      await world.put(ended(begun, number % 10 === 0 ? { failure: FAILURE } : {}, world.now));
    }
    return world.deployment;
  },
);
