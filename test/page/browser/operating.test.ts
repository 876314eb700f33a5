import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PutObjectCommand } from '@aws-sdk/client-s3';
import type { Page } from 'playwright-core';
import { beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { Operated } from '../../operations/support.ts';
import { PATIENCE } from '../../support/patience.ts';
import { Visitor } from '../support.ts';
import { describeInBrowser, PATIENCE_MS, violations } from './support.ts';

/** Stops of the Tab key until a wanted one. More would be a page that nobody can use. */
const STOPS_MAX = 40;

/** What the browser says when a server ends, or another one takes its place. */
const ENDED =
  /ERR_CONNECTION_REFUSED|401|ERR_INCOMPLETE_CHUNKED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|ERR_SOCKET_NOT_CONNECTED/;

const WIDTHS = [320, 390, 768, 1024, 1280, 1920];

describeInBrowser('operating', (shown) => {
  beforeEach(() => shown.operated.refuse(undefined));
  const created = () => shown.operated.standIn.counts.createFlow;

  describe('the keyboard alone', () => {
    it('chooses a file, sends it, opens it, acts on it, and comes back', async () => {
      await using visit = await shown.open();
      const { page } = visit;
      shown.operated.refuse(422);
      await page.keyboard.press('Tab');
      expect(await focused(page)).toBe('Skip to the uploads');

      // The browser must know that files are chosen for it before the key is pressed. It is asked in between.
      const chosen = page.waitForEvent('filechooser');
      await tabTo(page, 'Choose files');
      await page.keyboard.press('Space');
      const chooser = await chosen;
      await chooser.setFiles({ name: 'note.md', mimeType: 'text/markdown', buffer: Buffer.from('A note') });
      // The button that sends has the focus by itself.
      await expect.poll(() => focused(page), { timeout: PATIENCE_MS }).toBe('Send 1 file: pay for 1 flow');
      await page.keyboard.press('Enter');
      await visit.shows('note.md', 'Failed');
      shown.operated.refuse(undefined);

      await tabTo(page, /note\.md.*Failed/);
      await page.keyboard.press('Enter');
      await expect.poll(() => focused(page), { timeout: PATIENCE_MS }).toBe('note.md');
      await tabTo(page, 'Retry…');
      await page.keyboard.press('Enter');
      await expect.poll(() => focused(page), { timeout: PATIENCE_MS }).toBe('Retry: pay for 1 flow');
      await page.keyboard.press('Enter');
      await visit.shows('note.md', 'Succeeded');

      // The dialog gives the focus back to where it was, or to the page if that is gone.
      await tabTo(page, /Close|All uploads/, 'Shift+Tab');
      await page.keyboard.press('Escape');
      await expect.poll(() => focused(page), { timeout: PATIENCE_MS }).toMatch(/^note\.md/);
    });

    it('goes through the list with the arrow keys', async () => {
      await using visit = await shown.open();
      const { page } = visit;
      for (const name of ['one', 'two', 'three']) await shown.operated.put(`echo/keys/${name}.bin`, 'succeeded');
      await visit.shows('three.bin', 'Succeeded');
      await page.getByRole('searchbox').focus();
      await page.keyboard.type('ECHO/KEYS/');
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

  describe('what failed', () => {
    it('says why, and is retried after the user has seen how many flows are paid for', async () => {
      await using visit = await shown.open();
      const { page } = visit;
      shown.operated.refuse(422);
      await shown.operated.upload('echo/alone.bin', 'alone');
      await visit.shows('alone.bin', 'Failed');
      shown.operated.refuse(undefined);

      await visit.openDetail('alone.bin');
      await page.locator('.words').getByText('It failed: rejected').waitFor();
      const before = created();
      await page.getByRole('button', { name: 'Retry…', exact: true }).click();
      const dialog = page.getByRole('dialog', { name: 'Retry' });
      await dialog.getByText('1 flow is paid for.').waitFor();
      await dialog.getByRole('button', { name: 'Do nothing' }).click();
      expect(created()).toBe(before);

      await page.getByRole('button', { name: 'Retry…', exact: true }).click();
      await dialog.getByRole('button', { name: 'Retry: pay for 1 flow' }).click();
      await visit.shows('alone.bin', 'Succeeded');
      await dialog.waitFor({ state: 'hidden' });
      await page.locator('.badge').filter({ hasText: 'Succeeded' }).waitFor();
    });

    it('is retried all at once, by its code', async () => {
      await using visit = await shown.open();
      const { page } = visit;
      shown.operated.refuse(422);
      for (const name of ['a', 'b']) await shown.operated.upload(`echo/many/${name}.bin`, name);
      for (const name of ['a', 'b']) await visit.shows(`${name}.bin`, 'Failed');
      for (const name of ['a', 'b']) await shown.operated.becomes(`echo/many/${name}.bin`, 'failed');
      shown.operated.refuse(undefined);

      await page.getByRole('button', { name: /^Failed/ }).click();
      await page.getByLabel('Failure').selectOption({ label: 'rejected (2)' });
      await page.getByRole('button', { name: 'Retry all 2…' }).click();
      await page.getByRole('button', { name: 'Retry: pay for 2 flows' }).click();
      await page.getByRole('button', { name: /^Succeeded/ }).click();
      for (const name of ['a', 'b']) await visit.shows(`${name}.bin`, 'Succeeded');
    });

    it("is made anew with other parameters, in a form of the template's parameters", async () => {
      await using visit = await shown.open();
      const { page } = visit;
      await shown.operated.upload('echo/again.bin', 'again', { Metadata: { 'flow-parameters': '{"fail":true}' } });
      await visit.shows('again.bin', 'Failed');
      await visit.openDetail('again.bin');
      await page.locator('.words').getByText('The flow was asked to fail.').waitFor();
      await page.getByRole('button', { name: 'Make anew…' }).click();
      const dialog = page.getByRole('dialog', { name: 'Make anew' });
      await dialog.getByText('1 flow is paid for.').waitFor();
      expect(await dialog.locator('[name=fail]').inputValue()).toBe('true');
      await dialog.locator('[name=fail]').selectOption('false');
      await dialog.locator('[name=copies]').fill('2');
      await dialog.getByRole('button', { name: 'Make anew: pay for 1 flow' }).click();
      await page.locator('.badge').filter({ hasText: 'Succeeded' }).waitFor();
      await page.getByText('Result 2 of 2').waitFor();
      const earlier = page.getByRole('region', { name: 'Earlier generations' });
      await earlier.getByText('{"fail":true}').waitFor();
      expect(await violations(page, 'upload-detail')).toEqual([]);
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
      // As for an empty file, but that one is looked at again after five seconds.
      await shown.operated.upload('echo/wrapped.bin', 'a form', { ContentType: 'multipart/form-data' });
      await visit.shows('wrapped.bin', 'Failed');
      await visit.openDetail('wrapped.bin');
      await visit.page.locator('.words').getByText('It failed: input-encoded').waitFor();
      const buttons = visit.page.locator('.actions button');
      const classes = await buttons.evaluateAll((all) => all.map((each) => [each.textContent?.trim(), each.className]));
      expect(classes.map(([, name]) => name)).not.toContain('primary');
      expect(classes.map(([name]) => name)).not.toContain('Retry…');
      expect(classes.map(([name]) => name)).not.toContain('Collect again…');
    });
  });

  it('shows what the service was sent, and what it answers while a flow runs and after it', async () => {
    const { standIn } = shown.operated;
    const link = 'https://a.test/preview.png?signature=5ec7e7';
    const answers = (progress: number) => {
      const body = JSON.stringify({ state: 'running', progress, link });
      const headers = { 'content-type': 'application/json' };
      standIn.intercept = (_, { operation }) => (operation === 'getFlow' ? { status: 200, headers, body } : undefined);
    };
    answers(41);
    await using visit = await shown.open({ viewport: { width: 390, height: 800 } });
    const { page } = visit;
    await shown.operated.upload('echo/spoken.bin', 'a file'.repeat(1_000));
    await visit.shows('spoken.bin', 'Running');
    await visit.openDetail('spoken.bin');
    const says = page.locator('upload-detail .service-words');
    await says.getByText('The service says "running", progress 41.').waitFor();
    answers(42);
    await says.getByText('The service says "running", progress 42.').waitFor();

    expect(await page.locator('upload-service pre').filter({ visible: true }).count()).toBe(0);
    await page.getByText('What the service was sent').click();
    const request = (await page.getByLabel('the request', { exact: true }).textContent()) ?? '';
    expect(request).toMatch(/^POST \/flows\n.*\nAuthorization: Bearer \[token\]\n.*\n\n\{/s);
    expect(request).toContain('… (6000 bytes in all)');
    await page.getByText('What it answers').click();
    const answer = page.getByLabel('the answer', { exact: true });
    expect(JSON.parse((await answer.textContent()) ?? '')).toMatchObject({ link: 'https://a.test/preview.png?…' });
    expect(await violations(page, 'upload-detail')).toEqual([]);
    expect(await visit.overflow()).toBe(0);

    standIn.intercept = undefined;
    await page.locator('.badge').filter({ hasText: 'Succeeded' }).waitFor();
    expect(await says.count()).toBe(0);
    await page.getByRole('button', { name: 'Ask the service now' }).click();
    await page.getByText('The service says "completed"').waitFor();
  });

  it('an alias is a link, shows an earlier generation if the user wants, and the newest one again', async () => {
    const { operated } = shown;
    await operated.put('named/oak.bin', 'succeeded');
    await operated.run('again', 'named/oak.bin', '--yes');
    await operated.becomes('named/oak.bin', 'succeeded');
    await using visit = await shown.open({ viewport: { width: 390, height: 800 } });
    const { page } = visit;
    await visit.openDetail('oak.bin');
    const alias = page.getByRole('region', { name: 'Alias' });
    await alias.getByText('It shows the results above').waitFor();
    const download = page.waitForEvent('download');
    await alias.getByRole('link', { name: 'models/named/oak' }).click();
    expect((await download).suggestedFilename()).toMatch(/^oak/);
    expect(await violations(page, 'upload-detail')).toEqual([]);
    expect(await visit.overflow()).toBe(0);

    const earlier = page.getByRole('region', { name: 'Earlier generations' });
    await earlier.getByRole('button', { name: 'Have the alias show these' }).click();
    await alias.getByText('It shows generation 1').waitFor();
    await page.locator('#announcements').getByText('The alias shows it now').waitFor();
    await alias.getByRole('button', { name: 'Have it show the results above' }).click();
    await alias.getByText('It shows the results above').waitFor();
  });

  describe('a chain', () => {
    const linesOf = (page: Page) =>
      page.locator('upload-chain .chain-name').evaluateAll((all) => all.map((each) => each.textContent ?? ''));
    const words = (lines: readonly string[]) =>
      lines.map((line) =>
        line
          .replace(/\s+/g, ' ')
          .replace(/ · .*|(took|for) .*/, '')
          .trim(),
      );

    it('is a tree that the keyboard goes through, is retried where it failed, made anew and cancelled', async () => {
      await using visit = await shown.open();
      const { page } = visit;
      shown.operated.refuseAfter(2, 422);
      await shown.operated.upload('chain/broken.bin', 'x');
      await visit.shows('broken.bin', 'Failed');
      await visit.openDetail('broken.bin');
      await page.getByText('An upload or an output of the stages before failed.').waitFor();
      const told = ['doubled Succeeded 2 results', 'checked Succeeded 1 result', 'checked Failed'];
      const lines = words(await linesOf(page));
      expect([lines[0], ...lines.slice(1, 3).sort().reverse()]).toEqual(told);
      expect(lines[3]).toBe('packed did not begin after checked');
      await page.locator('.chain-reason').getByText('rejected: create: 422').waitFor();
      expect(await page.locator('.chain-state').textContent()).toBe('Failed');
      expect(await violations(page, 'upload-chain')).toEqual([]);

      // Each upload of the chain is a link to its input, its results and its words.
      await tabTo(page, /^checked Failed/);
      await page.keyboard.press('Enter');
      await expect.poll(() => focused(page), { timeout: PATIENCE_MS }).toBe('chain/broken.bin › checked');
      await page.locator('.words').getByText('It failed: rejected').waitFor();
      await page.getByText('It began with an asset of chain/broken.bin: route checked.').waitFor();
      await page.locator('.object-label').getByText('Input', { exact: true }).waitFor();
      expect(await page.locator('upload-chain [aria-current]').textContent()).toContain('Failed');

      shown.operated.refuse(undefined);
      const before = created();
      await tabTo(page, 'Retry what failed in the chain…');
      await page.keyboard.press('Enter');
      const dialog = page.getByRole('dialog', { name: 'Retry in the chain' });
      await dialog.getByText('1 upload will be retried. 2 flows are paid for.').waitFor();
      await dialog.getByText('Each later stage is counted with one flow.').waitFor();
      await page.keyboard.press('Enter');
      await page.locator('.chain-state').getByText('Succeeded').waitFor();
      // The upload that had failed, and the one that takes the assets of all.
      expect(created()).toBe(before + 2);
      const whole = ['doubled Succeeded 2 results', ...Array(2).fill('checked Succeeded 1 result')];
      expect(words(await linesOf(page))).toEqual([...whole, 'packed Succeeded 2 results']);

      // The results of the last stage are reached in the same way.
      await tabTo(page, /^packed Succeeded/);
      await page.keyboard.press('Enter');
      await expect.poll(() => focused(page), { timeout: PATIENCE_MS }).toBe('chain/broken.bin › packed');
      const download = page.waitForEvent('download');
      await tabTo(page, /^Download/);
      await page.keyboard.press('Enter');
      expect((await download).suggestedFilename()).toMatch(/\.bin$/);
      await tabTo(page, /^checked Succeeded/, 'Shift+Tab');
      await page.keyboard.press('Enter');

      // The uploads that begin now wait for a valid token.
      shown.operated.refuse(401);
      const anew = page.getByRole('group', { name: 'Make anew, with all stages after it:' });
      await anew.getByRole('button', { name: 'checked…' }).click();
      const remake = page.getByRole('dialog', { name: 'Make checked anew' });
      await remake.getByText('2 uploads will be made anew.').waitFor();
      await remake.getByRole('button', { name: 'Make anew: pay for 3 flows' }).click();
      await page.getByText('Stages were made anew or added 1 time.').waitFor();
      const waiting = ['doubled Succeeded 2 results', 'checked Waiting', 'checked Waiting'];
      await expect.poll(async () => words(await linesOf(page)), { timeout: PATIENCE_MS }).toEqual(waiting);
      // An upload waits for its turn before it waits for the token.
      await expect
        .poll(() => page.locator('.chain-reason').allTextContents(), { timeout: PATIENCE_MS })
        .toEqual(Array(2).fill(expect.stringContaining('401')));

      await page.getByRole('button', { name: 'Cancel the chain…' }).click();
      const cancel = page.getByRole('dialog', { name: 'Cancel in the chain' });
      await cancel.getByText('2 uploads will be cancelled.').waitFor();
      await page.getByRole('button', { name: 'Cancel: 2 uploads' }).click();
      await page.locator('.chain-state').getByText('Failed').waitFor();
    });
  });

  it('a chain is one row with the state of the whole, which opens to its stages', async () => {
    const { operated } = shown;
    operated.refuseAfter(2, 422);
    await operated.upload('chain/row.bin', 'x');
    await using visit = await shown.open();
    const { page } = visit;
    await visit.shows('row.bin', 'Failed');
    await page.getByRole('searchbox').fill('chain/row.bin');
    await visit.row('row.bin').getByText('Chain of 3: 1 failed').waitFor();
    const names = () => page.locator('upload-list .row .name').allTextContents();
    const stage = 'chain/row.bin › checked';
    const [closed, open] = [['chain/row.bin'], ['chain/row.bin', stage, stage]];
    expect(await names()).toEqual(closed);
    expect(await visit.toggle('row.bin').getAttribute('aria-expanded')).toBe('false');

    // The keyboard reaches the button from its row, and opens and closes the chain by both keys.
    await tabTo(page, /row\.bin.*Failed/);
    await page.keyboard.press('Tab');
    expect(await focused(page)).toBe('Later stages of row.bin');
    await page.keyboard.press('Enter');
    await expect.poll(names, { timeout: PATIENCE_MS }).toEqual(open);
    expect(await visit.toggle('row.bin').getAttribute('aria-expanded')).toBe('true');
    expect(await violations(page, 'upload-list')).toEqual([]);
    await page.keyboard.press('Space');
    await expect.poll(names, { timeout: PATIENCE_MS }).toEqual(closed);
    // So do the arrow keys of a tree, also from a stage.
    await tabTo(page, /row\.bin.*Failed/, 'Shift+Tab');
    await page.keyboard.press('ArrowRight');
    await expect.poll(names, { timeout: PATIENCE_MS }).toEqual(open);
    await page.keyboard.press('ArrowDown');
    await expect.poll(() => focused(page), { timeout: PATIENCE_MS }).toMatch(/› checked/);
    await page.keyboard.press('ArrowLeft');
    await expect.poll(names, { timeout: PATIENCE_MS }).toEqual(closed);
    await expect.poll(() => focused(page), { timeout: PATIENCE_MS }).toMatch(/^chain\/row\.bin Failed/);

    // With a state, each upload has a row: what failed in it is found.
    await page.getByRole('button', { name: /^Failed/ }).click();
    await expect.poll(names, { timeout: PATIENCE_MS }).toEqual([stage]);
    // The address of a stage opens its chain.
    const address = await visit.row('row.bin › checked').getAttribute('href');
    await page.getByRole('button', { name: /^All/ }).click();
    await expect.poll(names, { timeout: PATIENCE_MS }).toEqual(closed);
    await page.goto(new URL(address ?? '', page.url()).href);
    await expect.poll(names, { timeout: PATIENCE_MS }).toEqual(open);
    operated.refuse(undefined);
  });

  it('a pause begins after a confirmation, is shown since when, and ends after the costs were seen', async () => {
    await using visit = await shown.open({ viewport: { width: 380, height: 800 } });
    const { page } = visit;
    const before = created();
    const note = page.locator('.hold-notes li');
    const focused = () => page.evaluate(() => document.activeElement?.textContent?.trim());

    await page.getByRole('button', { name: 'Pause…' }).click();
    const pause = page.getByRole('dialog', { name: 'Pause' });
    await pause.getByText('No new flow begins until you resume.').waitFor();
    await pause.getByRole('button', { name: 'Do nothing' }).click();
    await pause.waitFor({ state: 'hidden' });
    expect(await note.count()).toBe(0);

    await page.getByRole('button', { name: 'Pause…' }).click();
    await pause.getByLabel('Why').fill('The invoice is not paid.');
    await pause.getByRole('button', { name: 'Pause', exact: true }).click();
    await note.getByText('The pipeline is paused. The invoice is not paid.').waitFor();
    await note.getByText(/Since \d\d:\d\d:\d\d\./).waitFor();
    await pause.waitFor({ state: 'hidden' });
    await page.locator('#announcements').getByText('New flows are paused').waitFor();
    // The keyboard is where it was.
    expect(await focused()).toBe('Resume…');

    await shown.operated.upload('echo/paused-1.bin', 'one');
    await shown.operated.upload('echo/paused-2.bin', 'two');
    for (const name of ['paused-1.bin', 'paused-2.bin']) await visit.shows(name, 'Waiting');
    await note.getByText('2 files wait.').waitFor();
    expect(await visit.overflow()).toBe(0);
    expect(await violations(page, 'page-header')).toEqual([]);
    expect(created()).toBe(before);
    await visit.openDetail('paused-1.bin');
    await page.locator('.words').getByText('The pipeline is paused. The invoice is not paid.').waitFor();
    await page.keyboard.press('Escape');

    await page.getByRole('button', { name: 'Resume: pay for up to 2 uploads…' }).click();
    const resume = page.getByRole('dialog', { name: 'Resume' });
    await resume.getByText('may be paid for.').waitFor();
    await resume.getByRole('button', { name: 'Resume: pay for up to 2 flows' }).click();
    for (const name of ['paused-1.bin', 'paused-2.bin']) await visit.shows(name, 'Succeeded');
    await note.waitFor({ state: 'detached' });
    await resume.waitFor({ state: 'hidden' });
    await expect.poll(focused, { timeout: PATIENCE_MS }).toBe('Pause…');
    expect(created()).toBe(before + 2);
  });

  it('a pause of one route has a button of its own', async () => {
    await using visit = await shown.open();
    const { page } = visit;
    await page.getByRole('button', { name: 'Pause…' }).click();
    const pause = page.getByRole('dialog', { name: 'Pause' });
    await pause.getByLabel('For').selectOption('echoes');
    await pause.getByRole('button', { name: 'Pause', exact: true }).click();
    const note = page.locator('.hold-notes li');
    await note.getByText('The route echoes is paused.').waitFor();
    await shown.operated.upload('echo/route.bin', 'one');
    await visit.shows('route.bin', 'Waiting');
    await note.getByRole('button', { name: 'Resume echoes…' }).click();
    await page
      .getByRole('dialog', { name: 'Resume' })
      .getByRole('button', { name: /^Resume: pay for up to 1 flow/ })
      .click();
    await visit.shows('route.bin', 'Succeeded');
    await note.waitFor({ state: 'detached' });
  });

  it('what was spent is in the header, each minute anew, and by route behind it', async () => {
    const { pipeline, deployment } = shown.operated;
    const spend = (daysAgo: number, totals: Readonly<Record<string, object>>) => {
      const day = new Date(Date.now() - daysAgo * 86_400_000).toISOString().slice(0, 10);
      const where = { Bucket: deployment.settings.ledgerBucket, Key: `state/costs/${day}.json` };
      return pipeline.s3.send(new PutObjectCommand({ ...where, Body: JSON.stringify(totals) }));
    };
    const [pictures, views] = ['["pictures","","EUR"]', '["views","","EUR"]'];
    await spend(0, { [pictures]: { flows: 3, micros: 1_200_000 } });
    await spend(3, { [pictures]: { flows: 90, micros: 36_000_000, again: 2 }, [views]: { flows: 1, micros: 5_000 } });
    await using visit = await shown.open({ viewport: { width: 380, height: 800 } });
    const { page } = visit;
    const today = page.getByRole('button', { name: 'Spent today: 1.20 EUR. Show it by route' });
    await today.waitFor();
    const lately = page.locator('.figure').filter({ hasText: 'Spent in 30 days' });
    expect(await lately.textContent()).toContain('37.205 EUR');
    expect(await lately.getAttribute('title')).toBe(
      'pictures: 37.20 EUR, 2 flows may have been paid twice\nviews: 0.005 EUR',
    );
    expect(await visit.overflow()).toBe(0);
    expect(await violations(page, 'page-header')).toEqual([]);

    await tabTo(page, '1.20 EUR');
    await page.keyboard.press('Enter');
    const dialog = page.getByRole('dialog', { name: 'What it cost' });
    const cells = (name: string) =>
      dialog
        .getByRole('row', { name })
        .getByRole('cell')
        .evaluateAll((all) => all.map((each) => (each as HTMLElement).innerText));
    await dialog.getByRole('row', { name: 'Total' }).waitFor();
    expect(await cells('pictures')).toEqual([
      '1.20 EUR\n3 flows',
      expect.stringMatching(/^37\.20 EUR\n93 flows\n2 flows may/),
    ]);
    expect(await cells('views')).toEqual(['–', '0.005 EUR\n1 flow']);
    expect(await visit.overflow()).toBe(0);
    expect(await violations(page, 'costs-dialog')).toEqual([]);
    await page.keyboard.press('Escape');
    await dialog.waitFor({ state: 'hidden' });
    expect(await focused(page)).toBe('1.20 EUR');

    await spend(0, { [pictures]: { flows: 4, micros: 1_600_000 } });
    await page.clock.setFixedTime(Date.now() + 61_000);
    await page.getByRole('button', { name: 'Spent today: 1.60 EUR' }).waitFor();
  });

  describe('the connection', () => {
    it('comes back after it was lost, and nothing is lost in between', async () => {
      await using visit = await shown.open();
      const { page } = visit;
      // A window without a network keeps its open connections.
      await page.addInitScript(() => {
        const { EventSource } = window;
        window.EventSource = class extends EventSource {
          constructor(url: string | URL) {
            super(url);
            window.addEventListener('offline', () => this.dispatchEvent(new Event('error')));
          }
        };
      });
      await page.reload();
      await shown.operated.upload('echo/before.bin', 'before');
      await visit.shows('before.bin', 'Succeeded');
      await page.context().setOffline(true);
      await page.getByRole('alert').getByText('The page connects again by itself.').waitFor();
      await shown.operated.put('echo/meanwhile.bin', 'succeeded');
      await page.context().setOffline(false);
      await visit.shows('meanwhile.bin', 'Succeeded');
      await page.getByText('Live', { exact: true }).waitFor();
      expect(await page.getByRole('alert').count()).toBe(0);

      // The page can still change something, and hears of it.
      await visit.drop([{ name: 'after.txt', type: 'text/plain', body: Buffer.from('A fox') }]);
      await page.getByRole('button', { name: 'Send 1 file' }).click();
      await visit.shows('after.txt', 'Succeeded');
      visit.forgive(/ERR_INTERNET_DISCONNECTED/);
    });

    it('is given up by a tab that nobody sees, so that more tabs than a browser has connections can be open', async () => {
      await using visit = await shown.open();
      const { page } = visit;
      const see = (tab: typeof page, state: 'visible' | 'hidden') =>
        tab.evaluate((value) => {
          Object.defineProperty(document, 'visibilityState', { value, configurable: true });
          document.dispatchEvent(new Event('visibilitychange'));
        }, state);
      await see(page, 'hidden');
      for (let tab = 2; tab <= 7; tab += 1) {
        const other = await page.context().newPage();
        await other.goto(new URL(shown.url).origin);
        await other.getByText('Live', { exact: true }).waitFor({ timeout: 30_000 });
        await see(other, 'hidden');
      }
      await shown.operated.put('echo/unseen.bin', 'succeeded');
      await see(page, 'visible');
      await visit.shows('unseen.bin', 'Succeeded');
    });

    it('ends with the run, and the address of the next run opens the page in the same tab', async () => {
      await using visit = await shown.open();
      const { page } = visit;
      const before = shown.url;
      await shown.stopPage();
      await shown.startPage();
      await page.getByRole('alert').getByText('This page has no valid key.').waitFor();
      await page.goto(before);
      await page.getByRole('alert').getByText('This page has no valid key.').waitFor();
      await page.goto(shown.url);
      await page.getByText('Live', { exact: true }).waitFor();
      expect(page.url()).toBe(`${new URL(shown.url).origin}/`);
      // The key is there for the next visit in this run.
      await page.goto('about:blank');
      await page.goto(new URL(shown.url).origin);
      await page.getByText('Live', { exact: true }).waitFor();
      visit.forgive(ENDED);
    });

    it('gives another program at the port of an ended run neither proofs nor files', async () => {
      await using visit = await shown.open();
      const { page } = visit;
      const { port, origin } = new URL(shown.url);
      await visit.drop([{ name: 'secret.txt', type: 'text/plain', body: Buffer.from('A secret fox') }]);
      await page.getByRole('button', { name: 'Send 1 file' }).waitFor();
      await shown.stopPage();
      const heard: string[] = [];
      const impostor = createServer((request, response) => {
        heard.push(`${request.method} ${request.url?.replace(/nonce=[\w-]{43}$/, 'nonce=')}`);
        heard.push(...[request.headers['x-flowdrop-proof'], request.headers.cookie].flatMap((each) => each ?? []));
        response.setHeader('content-type', 'application/json').end('{"proofs":["nothing"],"key":"nothing"}');
      }).listen(Number(port), '127.0.0.1');
      try {
        await page.getByRole('button', { name: 'Send 1 file' }).click();
        await page.locator('drop-zone').getByText('This server does not have the key of this page.').waitFor();
        await page.getByRole('alert').getByText('This page has no valid key.').waitFor();
        expect([...new Set(heard)]).toEqual(['GET /api/proof?nonce=']);
        // A program at another port of this machine gets nothing that the browser keeps.
        expect(await page.context().cookies()).toEqual([]);
      } finally {
        impostor.closeAllConnections();
        await new Promise((resolve) => impostor.close(resolve));
        await shown.startPage();
      }
      // All that the browser has kept opens nothing of the next run.
      const { origins } = await page.context().storageState();
      expect(origins.map((each) => each.origin)).toEqual([origin]);
      for (const { value } of origins.flatMap(({ localStorage }) => localStorage)) {
        expect((await new Visitor(origin, value).ask('/api/about')).status).toBe(401);
      }
      visit.forgive(ENDED);
    });
  });

  it('has no violation that axe finds, light or dark', async () => {
    const { operated } = shown;
    await operated.put('echo/fine.bin', 'succeeded');
    await operated.putRefused('echo/refused.bin');
    operated.refuse(401);
    await operated.put('echo/later.bin', 'waiting');
    await using visit = await shown.open();
    const { page } = visit;
    const isFine = async (part: string, selector: string) => {
      await page.emulateMedia({ colorScheme: 'light' });
      expect(await violations(page, selector), `${part}, light`).toEqual([]);
      // The dark page differs in its colours only.
      await page.emulateMedia({ colorScheme: 'dark' });
      expect(await violations(page, selector, ['color-contrast']), `${part}, dark`).toEqual([]);
    };
    await visit.shows('later.bin', 'Waiting');
    await isFine('list', 'html');
    await visit.drop([
      { name: 'a.txt', type: 'text/plain', body: Buffer.from('a') },
      { name: 'a.doc', type: '', body: Buffer.from('a') },
    ]);
    await page.getByRole('button', { name: 'Send 1 file' }).waitFor();
    await isFine('tray', 'drop-zone');
    await page.getByRole('button', { name: 'Discard' }).click();
    await page.getByRole('button', { name: /^Failed/ }).click();
    await isFine('filtered', 'upload-list');
    await page.getByRole('button', { name: /^All/ }).click();
    for (const name of ['fine.bin', 'refused.bin', 'later.bin']) {
      await visit.openDetail(name);
      await page.getByRole('heading', { name }).waitFor();
      await isFine(name, 'upload-detail');
    }
    // Rules for the page as a whole, such as the order of its headings, with all that it can show at once.
    expect(await violations(page, 'html')).toEqual([]);
    await page.getByRole('button', { name: 'Cancel…' }).click();
    await page.getByRole('dialog').getByText('will be cancelled').waitFor();
    await isFine('dialog', 'action-dialog');
  });

  it('announces what has ended', async () => {
    await using visit = await shown.open();
    await shown.operated.upload('echo/told.bin', 'told');
    const told = visit.page.locator('[role=status]').filter({ hasText: /told\.bin succeeded|uploads succeeded/ });
    await told.waitFor({ state: 'attached' });
  });

  it('keeps the numbers of the header in one line, and the others behind a button', async () => {
    await using visit = await shown.open({ viewport: { width: 1280, height: 800 } });
    const { page } = visit;
    const tops = await page
      .locator('.figures-few .figure')
      .evaluateAll((figures) => figures.map((each) => each.getBoundingClientRect().top));
    expect(tops.length).toBeGreaterThan(2);
    expect(new Set(tops).size).toBe(1);
    const tick = page.locator('.figure').filter({ hasText: 'Last tick' });
    expect(await tick.isVisible()).toBe(false);
    const labels = (part: string) => page.locator(`${part} dt`).allTextContents();
    expect((await labels('.figures-few')).slice(0, 3)).toEqual(['Waiting', 'Running', 'Failed in 24 h']);
    await page.getByText('More numbers').click();
    await tick.waitFor();
    expect(await labels('.figures-more')).toEqual(expect.arrayContaining(['In the queue', 'Pace', 'Last tick']));
  });

  describe('a list that is longer than the window', () => {
    let lineId: string;
    beforeAll(async () => {
      const { operated } = shown;
      operated.refuse(undefined);
      // Its result is no model, which the processor would draw.
      await operated.upload('echo/line.bin', 'one line', { ContentType: 'text/plain' });
      lineId = (await operated.becomes('echo/line.bin', 'succeeded')).id;
      const [oldest = '', ...later] = Array.from({ length: 12 }, (_, n) => `echo/later/${n}.bin`);
      await operated.put(oldest, 'succeeded');
      await Promise.all(later.map((key) => operated.put(key, 'succeeded')));
    });

    it.each([
      ['a telephone', 390, 780],
      // A window of 1280 pixels at 200 %.
      ['a window at 200 %', 640, 400],
    ])('shows the list first on %s, and a file that is opened in view', async (_, width, height) => {
      await using visit = await shown.open({ viewport: { width, height } });
      const { page } = visit;
      await page.getByRole('searchbox').fill('echo/later/');
      await visit.row('0.bin').waitFor();
      const top = async (selector: string) => (await page.locator(selector).first().boundingBox())?.y ?? Number.NaN;
      expect(await top('.rows')).toBeLessThan(await top('drop-zone'));
      // What sends files is in the window all the time.
      expect(await top('drop-zone')).toBeLessThan(height);
      await visit.openDetail('0.bin');
      await expect.poll(() => top('.detail-title'), { timeout: PATIENCE_MS }).toBeLessThan(height / 2);
      expect(await visit.overflow()).toBe(0);
    });

    it('shows a text of one line as one line, ended steps without a turning shape, and the row that is open', async () => {
      await using visit = await shown.open({ viewport: { width: 1280, height: 500 } });
      const { page } = visit;
      await visit.shows('line.bin', 'Succeeded');
      // Not by a click, which would scroll to it.
      const address = await visit.row('line.bin').getAttribute('href');
      await page.evaluate((hash) => {
        window.location.hash = hash;
      }, String(address));
      await page.locator('.stage pre.text').first().waitFor();
      const heightOf = async (selector: string) => (await page.locator(selector).first().boundingBox())?.height;
      expect(await heightOf('.stage:has(pre.text)')).toBeLessThan(120);
      expect(await page.locator('.timeline .turning').count()).toBe(0);
      const selected = await page.locator('.row a[aria-current]').boundingBox();
      expect(selected?.y).toBeGreaterThanOrEqual(0);
      expect((selected?.y ?? 0) + (selected?.height ?? 0)).toBeLessThanOrEqual(501);
    });

    it.each([
      ['a large window', 1280, 500],
      ['a telephone', 390, 780],
      ['a window at 200 %', 640, 400],
    ])('has the file that its address names in view when it loads, and its row: %s', async (_, width, height) => {
      await using visit = await shown.open({ viewport: { width, height } });
      const { page } = visit;
      await page.goto('about:blank');
      await page.goto(`${new URL(shown.url).origin}/#/uploads/${lineId}`);
      await page.locator('upload-detail .timeline').waitFor();
      const isInView = (selector: string) =>
        page.locator(selector).evaluate((each) => {
          const { top, bottom } = each.getBoundingClientRect();
          return top >= 0 && bottom <= window.innerHeight + 1;
        });
      await expect.poll(() => isInView('.detail-title'), { timeout: PATIENCE_MS }).toBe(true);
      const top = () => page.locator('.detail-title').evaluate((each) => each.getBoundingClientRect().top);
      await expect.poll(top, { timeout: PATIENCE_MS }).toBeLessThan(height / 3);
      // On a narrow window the row is there when the file is left.
      if (width < 1_000) await page.getByRole('link', { name: 'All uploads' }).click();
      const row = `.row a[data-id="${lineId}"]`;
      await page.locator(row).waitFor();
      await expect.poll(() => isInView(row), { timeout: PATIENCE_MS }).toBe(true);
    });
  });

  it('keeps that file in view when its header grows after everything has come', async () => {
    const { id } = await shown.operated.put('echo/named-late.bin', 'succeeded');
    await using visit = await shown.open({ viewport: { width: 390, height: 500 } });
    const { page } = visit;
    await page.addInitScript(() => {
      const addStyle = (rules: string) => {
        const style = new CSSStyleSheet();
        style.replaceSync(rules);
        document.adoptedStyleSheets = [...document.adoptedStyleSheets, style];
      };
      addStyle('page-header { display: none }');
      const watch = setInterval(() => {
        if (document.querySelector('upload-detail .timeline') === null) return;
        clearInterval(watch);
        setTimeout(() => {
          addStyle('page-header { display: block; min-height: 300px }');
          document.documentElement.setAttribute('data-is-grown', '');
        }, 1_000);
      }, 50);
    });
    await page.goto('about:blank');
    await page.goto(`${new URL(shown.url).origin}/#/uploads/${id}`);
    await page.locator('html[data-is-grown]').waitFor();
    const top = () => page.locator('.detail-title').evaluate((each) => each.getBoundingClientRect().top);
    await expect.poll(top, { timeout: PATIENCE_MS }).toBeLessThan(500 / 3);
  });

  it('has no horizontal scroll bar, from a telephone to a large screen', async () => {
    await using visit = await shown.open();
    const { page } = visit;
    const fits = async () => {
      for (const width of WIDTHS) {
        await page.setViewportSize({ width, height: 720 });
        expect([width, await visit.overflow()]).toEqual([width, 0]);
      }
    };
    const long = `${'a-very-long-name-without-a-space'.repeat(6)}.txt`;
    await visit.drop([{ name: long, type: 'text/plain', body: Buffer.from('a') }]);
    await page.getByRole('button', { name: 'Send 1 file' }).click();
    await visit.row(long).first().waitFor();
    await fits();
    await shown.operated.putRefused('echo/wide.bin');
    await visit.openDetail('wide.bin');
    await fits();
    await page.getByRole('button', { name: 'Retry…', exact: true }).click();
    await page.getByRole('dialog').getByText('will be retried').waitFor();
    await fits();
  });
});

/** A pipeline whose routes were changed between two runs. */
let restarted: Operated;

describeInBrowser(
  'a later route that was added after a file had succeeded',
  (shown) => {
    it('begins from its results, after the costs were seen, and is made anew from then on', async () => {
      await using visit = await shown.open({ viewport: { width: 390, height: 800 } });
      const { page } = visit;
      await visit.openDetail('old.bin');
      expect(await page.locator('upload-chain .chain').count()).toBe(0);
      const added = page.getByRole('group', { name: 'Begin from its results:' });
      await added.getByRole('button', { name: 'checked…' }).click();
      const dialog = page.getByRole('dialog', { name: 'Begin checked' });
      await dialog.getByText('1 upload will begin.').waitFor();
      await dialog.getByText('1 flow, 0.25 EUR is paid for.').waitFor();
      expect(await dialog.textContent()).not.toMatch(/anew|old results/);
      expect(await violations(page, 'action-dialog')).toEqual([]);
      expect(await visit.overflow()).toBe(0);
      expect(restarted.standIn.counts.createFlow).toBe(0);

      await dialog.getByRole('button', { name: 'Begin: pay for 1 flow, 0.25 EUR' }).click();
      await page.locator('#announcements').getByText('1 upload begun').waitFor();
      await page.locator('.chain-state').getByText('Succeeded').waitFor();
      await page.locator('upload-chain').getByText('2 stages').waitFor();
      expect(restarted.standIn.counts.createFlow).toBe(1);
      const anew = page.getByRole('group', { name: 'Make anew, with all stages after it:' });
      expect(await anew.getByRole('button').allTextContents()).toEqual(['kept…', 'checked…']);
      expect(await page.getByRole('group', { name: /^Begin/ }).count()).toBe(0);
      await anew.getByRole('button', { name: 'checked…' }).click();
      await page.getByRole('dialog', { name: 'Make checked anew' }).getByText('The old results stay.').waitFor();
    });

    it('is shown beside what it made of the file before that was made anew', async () => {
      await vi.waitFor(async () => {
        expect((await restarted.run('again', 'old.bin', '--yes', '--wait')).code).toBe(0);
      }, PATIENCE);
      await using visit = await shown.open({ viewport: { width: 390, height: 800 } });
      const { page } = visit;
      await visit.openDetail('old.bin');
      await page
        .locator('upload-chain')
        .getByRole('link', { name: /^checked Succeeded/ })
        .click();
      const earlier = page.getByRole('region', { name: 'Earlier generations' });
      await earlier.getByRole('heading', { name: 'Generation 1, from old.bin, generation 1' }).waitFor();
      await earlier.getByText('0.25 EUR').waitFor();
      const download = page.waitForEvent('download');
      await earlier.getByRole('link', { name: /^Download/ }).click();
      expect((await download).suggestedFilename()).toMatch(/\.bin$/);
      expect(await violations(page, 'upload-detail')).toEqual([]);
      expect(await visit.overflow()).toBe(0);
    });
  },
  async ({ closing }) => {
    const stateDir = await mkdtemp(join(tmpdir(), 'flowdrop-routes-'));
    closing.defer(() => rm(stateDir, { recursive: true, force: true, maxRetries: 5 }));
    const kept = { name: 'kept', input: 'file', template: 'bytes_echo' } as const;
    const checked = { ...kept, name: 'checked', after: 'kept', price: { amount: 0.25, currency: 'EUR' } } as const;
    {
      await using before = await Operated.start({ routes: [kept], stateDir });
      await before.put('old.bin', 'succeeded');
    }
    restarted = closing.use(await Operated.start({ routes: [kept, checked], stateDir }));
    await restarted.pipeline.resume();
    return restarted.deployment;
  },
);

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
