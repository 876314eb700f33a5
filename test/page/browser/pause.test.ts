import { expect, it } from 'vitest';
import { anyPipeline, describeInBrowser, PATIENCE_MS } from './support.ts';

describeInBrowser('a pause', anyPipeline, (shown) => {
  it('begins after a confirmation, is shown since when, and ends after the costs were seen', async () => {
    await using visit = await shown.open({ viewport: { width: 380, height: 800 } });
    const { page } = visit;
    const created = () => shown.operated.pipeline.standIn?.counts.createFlow ?? 0;
    const note = page.locator('.pause-note');
    const focused = () => page.evaluate(() => document.activeElement?.textContent?.trim());

    await page.getByRole('button', { name: 'Pause…' }).click();
    const pause = page.getByRole('dialog', { name: 'Pause' });
    await pause.getByText('No new flow begins until you resume.').waitFor();
    await pause.getByRole('button', { name: 'Do nothing' }).click();
    await pause.waitFor({ state: 'hidden' });
    expect(await note.count()).toBe(0);

    await page.getByRole('button', { name: 'Pause…' }).click();
    await pause.getByRole('button', { name: 'Pause', exact: true }).click();
    await note.getByText(/New flows are paused \(since \d\d:\d\d:\d\d\)/).waitFor();
    await pause.waitFor({ state: 'hidden' });
    expect(await page.locator('#announcements').textContent()).toBe('New flows are paused');
    // The keyboard is where it was.
    expect(await focused()).toBe('Resume…');

    await shown.operated.upload('echo/one.bin', 'one');
    await shown.operated.upload('echo/two.bin', 'two');
    await note.getByText('2 uploads wait in the queue, and may be paid for when you resume.').waitFor();
    expect(await visit.overflow()).toBe(0);
    expect(created()).toBe(0);

    await page.getByRole('button', { name: 'Resume: pay for up to 2 uploads…' }).click();
    const resume = page.getByRole('dialog', { name: 'Resume' });
    await resume.getByText('Each may become a flow, which is paid for.').waitFor();
    await resume.getByRole('button', { name: 'Resume: pay for up to 2 flows' }).click();
    for (const name of ['one.bin', 'two.bin']) await visit.shows(name, 'Succeeded');
    await note.waitFor({ state: 'detached' });
    await resume.waitFor({ state: 'hidden' });
    await expect.poll(focused, { timeout: PATIENCE_MS }).toBe('Pause…');
    expect(created()).toBe(2);
  });
});
