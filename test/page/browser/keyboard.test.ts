import { readFileSync } from 'node:fs';
import type { Page } from 'playwright-core';
import { expect, it } from 'vitest';
import { anyPipeline, describeInBrowser, PATIENCE_MS } from './support.ts';

/** Stops of the Tab key until a wanted one. More would be a page that nobody can use. */
const STOPS_MAX = 40;

describeInBrowser('the keyboard alone', anyPipeline, (shown) => {
  it('chooses a file, sends it, opens it, acts on it, and comes back', async () => {
    await using visit = await shown.open();
    const { page } = visit;
    shown.operated.refuse(422);
    await page.keyboard.press('Tab');
    expect(await focused(page)).toBe('Skip to the uploads');

    await tabTo(page, 'Choose files');
    const [chooser] = await Promise.all([page.waitForEvent('filechooser'), page.keyboard.press('Space')]);
    await chooser.setFiles({ name: 'robot.png', mimeType: 'image/png', buffer: readFileSync('examples/robot.png') });
    // The button that sends has the focus by itself.
    await expect.poll(() => focused(page), { timeout: PATIENCE_MS }).toBe('Send 1 file');
    await page.keyboard.press('Enter');
    await visit.shows('robot.png', 'Failed');
    shown.operated.refuse(undefined);

    await tabTo(page, /robot\.png.*Failed/);
    await page.keyboard.press('Enter');
    await expect.poll(() => focused(page), { timeout: PATIENCE_MS }).toBe('robot.png');
    await tabTo(page, 'Retry…');
    await page.keyboard.press('Enter');
    await expect.poll(() => focused(page), { timeout: PATIENCE_MS }).toBe('Retry: pay for 1 flow');
    await page.keyboard.press('Enter');
    await visit.shows('robot.png', 'Succeeded');

    // The dialog gives the focus back to where it was, or to the page if that is gone.
    await tabTo(page, /Close|All uploads/, 'Shift+Tab');
    await page.keyboard.press('Escape');
    await expect.poll(() => focused(page), { timeout: PATIENCE_MS }).toMatch(/^robot\.png/);
  });

  it('goes through the list with the arrow keys', async () => {
    await using visit = await shown.open();
    const { page } = visit;
    for (const name of ['one', 'two', 'three']) await shown.operated.put(`echo/${name}.bin`, 'succeeded');
    await visit.shows('three.bin', 'Succeeded');
    await page.getByRole('searchbox').focus();
    await page.keyboard.type('ECHO/');
    await expect.poll(() => page.locator('.row').count(), { timeout: PATIENCE_MS }).toBe(3);
    await tabTo(page, /three\.bin/);
    await page.keyboard.press('ArrowDown');
    await expect.poll(() => focused(page), { timeout: PATIENCE_MS }).toMatch(/two\.bin/);
    await page.keyboard.press('End');
    await expect.poll(() => focused(page), { timeout: PATIENCE_MS }).toMatch(/one\.bin/);
    await page.keyboard.press('Home');
    await expect.poll(() => focused(page), { timeout: PATIENCE_MS }).toMatch(/three\.bin/);
  });
});

/** The words of what has the focus. A field has those of its label. */
function focused(page: Page): Promise<string> {
  return page.evaluate(() => {
    const { activeElement } = document;
    const label = activeElement instanceof HTMLInputElement ? activeElement.labels?.[0] : undefined;
    return ((label ?? activeElement)?.textContent ?? '').replace(/\s+/g, ' ').trim();
  });
}

async function tabTo(page: Page, wanted: string | RegExp, key = 'Tab'): Promise<void> {
  const seen: string[] = [];
  for (let stop = 0; stop < STOPS_MAX; stop += 1) {
    await page.keyboard.press(key);
    const at = await focused(page);
    if (typeof wanted === 'string' ? at === wanted : wanted.test(at)) return;
    seen.push(at);
  }
  throw new Error(`${wanted} was not reached, but ${seen.join(' | ')}`);
}
