import { beforeEach, expect, it } from 'vitest';
import { pause, resume } from '../../../operations/intake.ts';
import { signal } from '../../operations/support.ts';
import { anyPipeline, describeInBrowser } from './support.ts';

describeInBrowser('what failed', anyPipeline, (shown) => {
  beforeEach(() => shown.operated.refuse(undefined));
  const created = () => shown.operated.pipeline.standIn?.counts.createFlow;

  it('says why, and is retried after the user has seen how many flows are paid for', async () => {
    await using visit = await shown.open();
    const { page } = visit;
    shown.operated.refuse(422);
    await shown.operated.upload('echo/one.bin', 'one');
    await visit.shows('one.bin', 'Failed');
    shown.operated.refuse(undefined);

    await visit.openDetail('one.bin');
    await page.locator('.words').getByText('It failed: rejected').waitFor();
    const before = created();
    await page.getByRole('button', { name: 'Retry…', exact: true }).click();
    const dialog = page.getByRole('dialog', { name: 'Retry' });
    await dialog.getByText('The service makes 1 flow, which is paid for.').waitFor();
    await dialog.getByRole('button', { name: 'Do nothing' }).click();
    expect(created()).toBe(before);

    await page.getByRole('button', { name: 'Retry…', exact: true }).click();
    await dialog.getByRole('button', { name: 'Retry: pay for 1 flow' }).click();
    await visit.shows('one.bin', 'Succeeded');
    await dialog.waitFor({ state: 'hidden' });
    await page.locator('.badge').filter({ hasText: 'Succeeded' }).waitFor();
  });

  it('is retried all at once, by its code', async () => {
    await using visit = await shown.open();
    const { page } = visit;
    shown.operated.refuse(422);
    for (const name of ['a', 'b', 'c']) await shown.operated.upload(`echo/many/${name}.bin`, name);
    for (const name of ['a', 'b', 'c']) await visit.shows(`${name}.bin`, 'Failed');
    for (const name of ['a', 'b', 'c']) await shown.operated.becomes(`echo/many/${name}.bin`, 'failed');
    shown.operated.refuse(undefined);

    await page.getByRole('button', { name: /^Failed/ }).click();
    await page.getByLabel('Failure').selectOption({ label: 'rejected (3)' });
    await page.getByRole('button', { name: 'Retry all 3…' }).click();
    await page.getByRole('button', { name: 'Retry: pay for 3 flows' }).click();
    await page.getByRole('button', { name: /^Succeeded/ }).click();
    for (const name of ['a', 'b', 'c']) await visit.shows(`${name}.bin`, 'Succeeded');
  });

  it("is sent again with other parameters, in a form of the template's parameters", async () => {
    await using visit = await shown.open();
    const { page } = visit;
    await shown.operated.upload('echo/again.bin', 'again', { Metadata: { 'flow-parameters': '{"fail":true}' } });
    await visit.shows('again.bin', 'Failed');
    await visit.openDetail('again.bin');
    await page.locator('.words').getByText('The flow was asked to fail.').waitFor();
    await page.getByRole('button', { name: 'Retry with other parameters…' }).click();
    const dialog = page.getByRole('dialog', { name: 'Retry with other parameters' });
    await dialog.getByText('One flow is paid for.').waitFor();
    expect(await dialog.locator('[name=fail]').inputValue()).toBe('true');
    await dialog.locator('[name=fail]').selectOption('false');
    await dialog.locator('[name=copies]').fill('2');
    await dialog.getByRole('button', { name: 'Send again: pay for 1 flow' }).click();
    await page.locator('.badge').filter({ hasText: 'Succeeded' }).waitFor();
    await page.getByText('Result 2 of 2').waitFor();
  });

  it('is sent again, and shown as sent until it has come to the pipeline', async () => {
    await using visit = await shown.open();
    const { page } = visit;
    await shown.operated.putRefused('echo/late.bin');
    await visit.shows('late.bin', 'Failed');
    await visit.openDetail('late.bin');
    await pause(shown.operated.deployment, signal);
    try {
      await page.getByRole('button', { name: 'Retry with other parameters…' }).click();
      await page.getByRole('button', { name: 'Send again: pay for 1 flow' }).click();
      await page.getByText('It is in the inbox, and has not come to the pipeline yet.').waitFor();
      expect(await page.locator('.detail-title').textContent()).toBe('echo/late.bin');
    } finally {
      await resume(shown.operated.deployment, signal);
    }
    await page.locator('.badge').filter({ hasText: 'Succeeded' }).waitFor();
    await page.locator('upload-detail .timeline').waitFor();
  });

  it('is examined by the doctor on demand', async () => {
    await using visit = await shown.open();
    const { page } = visit;
    await page.getByRole('button', { name: 'Check' }).click();
    await page
      .getByRole('dialog', { name: 'Check of the pipeline' })
      .getByText(/checks passed/)
      .waitFor();
  });

  it('has no blue button and is not collected again, if neither can help', async () => {
    await using visit = await shown.open();
    await shown.operated.upload('echo/empty.bin', '');
    await visit.shows('empty.bin', 'Failed');
    await visit.openDetail('empty.bin');
    await visit.page.locator('.words').getByText('It failed: input-empty').waitFor();
    const buttons = visit.page.locator('.actions button');
    const classes = await buttons.evaluateAll((all) => all.map((each) => [each.textContent?.trim(), each.className]));
    expect(classes[0]).toEqual(['Retry…', 'quiet']);
    expect(classes.map(([name]) => name)).not.toContain('Collect again…');
  });
});
