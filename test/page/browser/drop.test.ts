import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { glb, triangle } from '../../support/glb.ts';
import { describeInBrowser, PATIENCE_MS } from './support.ts';

const example = (name: string, type: string) => ({ name, type, body: readFileSync(`examples/${name}`) });
const ROBOT = example('robot.png', 'image/png');
/** The gem of examples/, compressed with glTF Transform 4.5. */
const compressed = (compression: string) => ({
  name: `${compression}.glb`,
  type: 'model/gltf-binary',
  body: readFileSync(new URL(`./models/${compression}.glb`, import.meta.url)),
});
/** The processor draws the models. It is done sooner in a small window. */
const SMALL = { viewport: { width: 480, height: 480 } };

describeInBrowser('dropping files on the page', (shown) => {
  it('shows the route of each file before anything is sent, and says at once what no route wants', async () => {
    await using visit = await shown.open();
    const { page } = visit;
    await visit.drop([ROBOT, { name: 'letter.docx', type: 'application/msword', body: Buffer.from('Dear') }]);
    const items = page.locator('.tray-item');
    await items.filter({ hasText: 'Route pictures, template model_generate_fromimage' }).waitFor();
    await items.filter({ hasText: 'letter.docx' }).getByText('No route takes a file like this').waitFor();
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

  it('sends files, follows them to their ends, and shows models, compressed ones too, which turn with the mouse', async () => {
    await using visit = await shown.open(SMALL);
    const { page } = visit;
    const scripts: string[] = [];
    page.on('request', (request) => {
      if (request.resourceType() === 'script') scripts.push(new URL(request.url()).pathname);
    });
    const viewers = () => scripts.filter((path) => path.includes('viewer'));
    const files = [ROBOT, compressed('draco'), compressed('meshopt')];
    await visit.drop(files);
    await page.getByRole('button', { name: 'Send 3 files' }).click();
    for (const { name } of files) await visit.shows(name, 'Succeeded');
    expect(viewers()).toEqual([]);

    for (const { name } of files) {
      await visit.openDetail(name);
      await page.getByRole('heading', { name }).waitFor();
      const viewer = page.locator('model-viewer').first();
      // The viewer loads a model when it comes into view.
      await viewer.scrollIntoViewIfNeeded();
      await expect
        .poll(() => viewer.evaluate((each: ModelViewer) => each.modelIsVisible), { timeout: PATIENCE_MS })
        .toBe(true);
      expect(viewers()).toHaveLength(1);
      const theta = () => viewer.evaluate((each: ModelViewer) => each.getCameraOrbit().theta);
      const before = await theta();
      const { x, y, width, height } = (await viewer.boundingBox()) ?? { x: 0, y: 0, width: 0, height: 0 };
      expect(Math.min(width, height)).toBeGreaterThan(100);
      await page.mouse.move(x + width / 2, y + height / 2);
      await page.mouse.down();
      await page.mouse.move(x + width / 2 + 60, y + height / 2, { steps: 5 });
      await page.mouse.up();
      await expect.poll(async () => Math.abs((await theta()) - before), { timeout: PATIENCE_MS }).toBeGreaterThan(0.1);
      await page.getByRole('link', { name: 'All uploads' }).click();
    }
  });

  it('does not fail to load a model that is closed while the viewer still begins', async () => {
    await using visit = await shown.open();
    const { page } = visit;
    // The viewer fetches its decoder first, and the model after that.
    const decoder = Promise.withResolvers<void>();
    await page.route('**/assets/decoders/meshopt.js', async (route) => {
      await decoder.promise;
      await route.continue();
    });
    await shown.operated.upload('echo/closed.glb', glb(triangle(), new Uint8Array(36)), {
      ContentType: 'model/gltf-binary',
    });
    await visit.shows('closed.glb', 'Succeeded');
    await page.evaluate(() => {
      const begun = new Promise<EventTarget>((resolve) => {
        document.addEventListener('progress', ({ target }) => target && resolve(target), { capture: true, once: true });
      });
      const ended = begun.then(
        (viewer) =>
          new Promise((resolve) => {
            for (const end of ['load', 'error']) viewer.addEventListener(end, resolve);
          }),
      );
      Object.assign(window, { begun, ended });
    });
    await visit.openDetail('closed.glb');
    await page.evaluate(() => (window as unknown as Loading).begun.then(() => undefined));
    await page.getByRole('link', { name: 'Close', exact: true }).click();
    await page.locator('model-viewer').first().waitFor({ state: 'detached' });
    decoder.resolve();
    await page.evaluate(() => (window as unknown as Loading).ended.then(() => undefined));
  });

  it('shows how much of a large file is sent, and can stop it', async () => {
    await using visit = await shown.open();
    const { page } = visit;
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

  it('shows texts, JSON and pictures in place, and everything else only as a download', async () => {
    await using visit = await shown.open();
    const { page } = visit;
    await shown.operated.upload('echo/data.json', '{"a":[1]}', { ContentType: 'application/json' });
    await shown.operated.upload('echo/drawing.svg', '<svg xmlns="http://www.w3.org/2000/svg"/>', {
      ContentType: 'image/svg+xml',
    });
    await visit.shows('data.json', 'Succeeded');
    await visit.shows('drawing.svg', 'Succeeded');
    await visit.openDetail('data.json');
    await page.locator('pre').filter({ hasText: '"a": [' }).first().waitFor();
    await visit.openDetail('drawing.svg');
    await page.getByText('It cannot be shown here.').first().waitFor();
    expect(await page.locator('.stage img').count()).toBe(0);
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('link', { name: 'Download' }).first().click(),
    ]);
    expect(download.suggestedFilename()).toBe('drawing.svg');
  });
});

/** What a test keeps in the window: when the viewer began to load a model, and when that ended. */
interface Loading {
  readonly begun: Promise<unknown>;
  readonly ended: Promise<unknown>;
}

interface ModelViewer extends HTMLElement {
  readonly modelIsVisible: boolean;
  getCameraOrbit(): { readonly theta: number };
}
