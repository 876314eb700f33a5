import axe, { type AxeResults } from 'axe-core';
import type { Page } from 'playwright-core';
import { beforeAll, expect, it } from 'vitest';
import { anyPipeline, describeInBrowser, START_MS } from './support.ts';

describeInBrowser('accessibility', anyPipeline, (shown) => {
  beforeAll(async () => {
    const { operated } = shown;
    await operated.put('prompts/fox.txt', 'succeeded', 'A fox');
    operated.refuse(422);
    await operated.put('echo/refused.bin', 'failed');
    operated.refuse(401);
    await operated.put('echo/later.bin', 'waiting');
  }, START_MS);

  for (const colorScheme of ['light', 'dark'] as const) {
    it(`has no violation that axe finds, ${colorScheme}`, async () => {
      await using visit = await shown.open({ colorScheme });
      const { page } = visit;
      await visit.shows('later.bin', 'Waiting');
      expect(await violations(page), 'list').toEqual([]);

      await visit.drop([
        { name: 'a.txt', type: 'text/plain', body: Buffer.from('a') },
        { name: 'a.doc', type: '', body: Buffer.from('a') },
      ]);
      await page.getByRole('button', { name: 'Send 1 file' }).waitFor();
      expect(await violations(page), 'tray').toEqual([]);
      await page.getByRole('button', { name: 'Discard' }).click();

      await page.getByRole('button', { name: /^Failed/ }).click();
      expect(await violations(page), 'filtered').toEqual([]);
      await page.getByRole('button', { name: /^All/ }).click();

      for (const name of ['fox.txt', 'refused.bin', 'later.bin']) {
        await visit.openDetail(name);
        await page.getByRole('heading', { name }).waitFor();
        expect(await violations(page), name).toEqual([]);
      }

      await page.getByRole('button', { name: 'Cancel…' }).click();
      await page.getByRole('dialog').getByText('will be cancelled').waitFor();
      expect(await violations(page), 'dialog').toEqual([]);
    });
  }

  it('announces what has ended', async () => {
    await using visit = await shown.open();
    shown.operated.refuse(undefined);
    await shown.operated.upload('echo/told.bin', 'told');
    await visit.page
      .locator('[role=status]')
      .filter({ hasText: /told\.bin succeeded|uploads succeeded/ })
      .waitFor({
        state: 'attached',
      });
  });

  for (const width of [320, 390, 768, 1024, 1280, 1920]) {
    it(`has no horizontal scroll bar at ${width} pixels`, async () => {
      await using visit = await shown.open({ viewport: { width, height: 720 } });
      const { page } = visit;
      const long = `${'a-very-long-name-without-a-space'.repeat(6)}.txt`;
      await visit.drop([{ name: long, type: 'text/plain', body: Buffer.from('a') }]);
      await page.getByRole('button', { name: 'Send 1 file' }).click();
      await visit.row(long).first().waitFor();
      expect(await visit.overflow()).toBe(0);
      await visit.openDetail('refused.bin');
      expect(await visit.overflow()).toBe(0);
      await page.getByRole('button', { name: 'Retry…', exact: true }).click();
      await page.getByRole('dialog').getByText('will be retried').waitFor();
      expect(await visit.overflow()).toBe(0);
    });
  }
});

/** What axe finds, in a form that a failed test can show. */
async function violations(page: Page): Promise<readonly string[]> {
  await page.evaluate(axe.source);
  const { violations: found } = await page.evaluate(() =>
    (globalThis as unknown as { axe: { run(): Promise<AxeResults> } }).axe.run(),
  );
  return found.flatMap(({ id, nodes }) =>
    nodes.map(({ html, failureSummary }) => `${id}: ${html.slice(0, 300)} ${failureSummary}`),
  );
}
