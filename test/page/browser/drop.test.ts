import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { mkdir, writeFile } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { temporaryFolder } from '../../support/folder.ts';
import { describeInBrowser, PATIENCE_MS, ROBOT, violations } from './support.ts';

/** The requests of this test that bring a file to the server of the page. */
function filesOnTheirWay(): readonly IncomingMessage[] {
  const requests: IncomingMessage[] = [];
  const watch = (message: unknown) => {
    const { request } = message as { readonly request: IncomingMessage };
    if (request.method === 'PUT' && request.url?.startsWith('/api/files/')) requests.push(request);
  };
  subscribe('http.server.request.start', watch);
  onTestFinished(() => void unsubscribe('http.server.request.start', watch));
  return requests;
}

describeInBrowser('dropping files on the page', (shown) => {
  it('shows the route of each file before anything is sent, and says at once what no route wants', async () => {
    await using visit = await shown.open();
    const { page } = visit;
    await visit.drop([ROBOT, { name: 'letter.docx', type: 'application/msword', body: Buffer.from('Dear') }]);
    const items = page.locator('.tray-item');
    await items.filter({ hasText: 'Route pictures, template model_generate_fromimage' }).waitFor();
    await items.filter({ hasText: 'letter.docx' }).getByText('No route takes this file').waitFor();
    await page.getByRole('heading', { name: '1 file ready to send, 1 refused' }).waitFor();
    expect(await visit.row('robot.png').count()).toBe(0);
    await page.getByRole('button', { name: 'Discard' }).click();
    expect(await items.count()).toBe(0);
  });

  it('says so if a file takes the place of another one with the same name', async () => {
    await using visit = await shown.open();
    const { page } = visit;
    await visit.drop([ROBOT, { ...ROBOT, body: Buffer.from('another picture') }]);
    await page.getByText('Files with the same name replace each other. Only the last is kept: robot.png.').waitFor();
    await page.getByRole('heading', { name: '1 file ready to send' }).waitFor();
    await page.getByText('15 B').waitFor();
    await page.getByRole('button', { name: 'Discard' }).click();
  });

  it('shows how much of a large file is sent, and can stop it', async () => {
    await using visit = await shown.open();
    const { page } = visit;
    const requests = filesOnTheirWay();
    await visit.throttle(50_000);
    await page
      .locator('input[type=file]')
      .first()
      .setInputFiles({
        name: 'large.png',
        mimeType: 'image/png',
        buffer: Buffer.alloc(2_000_000, 1),
      });
    await page.getByRole('button', { name: 'Send 1 file' }).click();
    const progress = page.locator('.tray-item progress');
    await expect
      .poll(() => progress.evaluate((each) => (each as HTMLProgressElement).position), { timeout: PATIENCE_MS })
      .toBeGreaterThan(0.001);
    expect(await progress.evaluate((each) => (each as HTMLProgressElement).position)).toBeLessThan(1);
    await page
      .getByText(/ of 2.0 MB/)
      .first()
      .waitFor();
    await page.getByRole('button', { name: 'Stop' }).click();
    await page.getByRole('heading', { name: '1 file not sent' }).waitFor();
    await page
      .getByText('You stopped it. If nearly all of it was sent, it may be in the inbox all the same.')
      .waitFor();
    // If the bytes left were let go before the server has seen the end, all of them could still arrive.
    await expect.poll(() => requests[0]?.destroyed, { timeout: PATIENCE_MS }).toBe(true);
    expect(requests[0]?.complete).toBe(false);
    await visit.throttle(undefined);
    await page.getByRole('button', { name: 'Try again' }).click();
    await page.getByRole('heading', { name: '1 file sent' }).waitFor();
    await visit.row('large.png').waitFor();
  });

  it('sends the files of a folder under their paths', async () => {
    await using visit = await shown.open();
    const { page } = visit;
    await page.locator('input[webkitdirectory]').setInputFiles('examples/own-app');
    await page.locator('.tray-item').filter({ hasText: 'own-app/README.md' }).waitFor();
  });

  it('takes a folder with a job file as one job, and says what it waits for', async () => {
    await using visit = await shown.open();
    const { page } = visit;
    const folder = join(await temporaryFolder(), 'chair');
    await mkdir(join(folder, 'sides'), { recursive: true });
    const inputs = ['front.png', 'sides/left.png', 'back.png'];
    await writeFile(join(folder, 'job.json'), JSON.stringify({ inputs }));
    await writeFile(join(folder, 'front.png'), 'front');
    await writeFile(join(folder, 'sides', 'left.png'), 'left');
    const sent: string[] = [];
    page.on('request', (request) => {
      if (request.method() === 'PUT') sent.push(decodeURIComponent(new URL(request.url()).pathname));
    });
    const before = shown.operated.standIn.flows.length;
    await page.locator('input[webkitdirectory]').setInputFiles(folder);
    const items = page.locator('.tray-item');
    await items.getByText('Route views, template bytes_echo, with 2 inputs. It waits for back.png').waitFor();
    expect(await items.count()).toBe(1);
    expect(await items.textContent()).toContain('multiview/chair/');
    await page.getByRole('button', { name: 'Send 3 files' }).click();
    await visit.shows('job.json', 'Waiting');
    expect(sent.at(-1)).toBe('/api/files/multiview/chair/job.json');
    await visit
      .row('job.json')
      .getByText(/^Fails \S.* · Missing inputs: back\.png\.$/)
      .waitFor();
    await visit.openDetail('job.json');
    await page.getByText('It fails without them: ').waitFor();
    await page.getByText('It goes on when they are in the inbox, below multiview/chair/.').waitFor();
    await shown.operated.upload('multiview/chair/back.png', 'back');
    await visit.shows('job.json', 'Succeeded');
    expect(shown.operated.standIn.flows.length).toBe(before + 1);
  });

  it('shows texts, JSON and pictures in place, and everything else only as a download', async () => {
    await using visit = await shown.open();
    const { page } = visit;
    await shown.operated.upload('echo/data.json', '{"a":[1]}', { ContentType: 'application/json' });
    await shown.operated.upload('echo/page.odt', 'PK', { ContentType: 'application/vnd.oasis.opendocument.text' });
    await visit.shows('data.json', 'Succeeded');
    await visit.shows('page.odt', 'Succeeded');
    await visit.openDetail('data.json');
    await page.locator('pre').filter({ hasText: '"a": [' }).first().waitFor();
    await visit.openDetail('page.odt');
    await page.getByText('It cannot be shown here.').first().waitFor();
    expect(await page.locator('.stage img').count()).toBe(0);
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('link', { name: 'Download' }).first().click(),
    ]);
    expect(download.suggestedFilename()).toBe('page.odt');
  });

  it('shows a drawing as a picture, and runs no script of it, also if its address is opened', async () => {
    await using visit = await shown.open();
    const { page } = visit;
    const script = '<script>fetch("/ran"); document.documentElement.setAttribute("data-ran", "")</script>';
    const drawing = `<svg xmlns="http://www.w3.org/2000/svg" width="40" height="30">${script}<rect width="40" height="30"/></svg>`;
    await shown.operated.upload('echo/drawing.svg', drawing, { ContentType: 'image/svg+xml' });
    await visit.shows('drawing.svg', 'Succeeded');
    await visit.openDetail('drawing.svg');
    const picture = page.locator('.stage img').first();
    await picture.waitFor();
    const width = () => picture.evaluate((img) => (img as HTMLImageElement).naturalWidth);
    await expect.poll(width, { timeout: PATIENCE_MS }).toBe(40);
    const requests: string[] = [];
    page.on('request', (request) => requests.push(new URL(request.url()).pathname));
    await page.goto(new URL((await picture.getAttribute('src')) ?? '', page.url()).href);
    expect(await page.locator('svg').getAttribute('data-ran')).toBeNull();
    expect(requests).not.toContain('/ran');
    visit.forgive(/sandboxed|script|favicon/i);
  });

  it('shows a PDF in the viewer of the browser, and runs nothing that only says to be one', async () => {
    await using visit = await shown.open();
    const { page } = visit;
    const script = '<script>parent.document.title = "ran"; fetch("/ran")</script>';
    await shown.operated.upload('echo/false.pdf', script, { ContentType: 'application/pdf' });
    await shown.operated.upload('echo/page.pdf', pdf('Hello'), { ContentType: 'application/pdf' });
    const requests: string[] = [];
    page.on('request', (request) => requests.push(new URL(request.url()).pathname));
    for (const name of ['false.pdf', 'page.pdf']) {
      await visit.shows(name, 'Succeeded');
      await visit.openDetail(name);
      const frame = page.locator('.stage iframe').first();
      await frame.waitFor();
      expect(await frame.getAttribute('src')).toMatch(/^blob:/);
      expect(await frame.getAttribute('title')).toBe(`Input: ${name}`);
      // The viewer is an extension of the browser, in a frame of its own.
      const isViewer = () => page.frames().filter((each) => each.url().startsWith('chrome-extension:')).length;
      await expect.poll(isViewer, { timeout: PATIENCE_MS }).toBe(2);
    }
    expect(await page.title()).not.toBe('ran');
    expect(requests).not.toContain('/ran');
    expect(await violations(page, 'upload-detail')).toEqual([]);
  });
});

/** A PDF of one page with a few words. */
function pdf(words: string): string {
  const drawn = `BT /F1 24 Tf 40 100 Td (${words}) Tj ET`;
  const objects = [
    '<</Type/Catalog/Pages 2 0 R>>',
    '<</Type/Pages/Kids[3 0 R]/Count 1>>',
    '<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 200]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>',
    `<</Length ${drawn.length}>>\nstream\n${drawn}\nendstream`,
    '<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>',
  ];
  const parts = ['%PDF-1.4\n', ...objects.map((each, index) => `${index + 1} 0 obj\n${each}\nendobj\n`)];
  // The table says where each object begins.
  const places = objects.map((_, index) => parts.slice(0, index + 1).join('').length);
  const rows = places.map((place) => `${String(place).padStart(10, '0')} 00000 n \n`);
  const table = `xref\n0 6\n0000000000 65535 f \n${rows.join('')}trailer<</Size 6/Root 1 0 R>>\nstartxref\n${parts.join('').length}\n%%EOF`;
  return [...parts, table].join('');
}
