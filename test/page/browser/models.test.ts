import { readFileSync } from 'node:fs';
import type { Locator, Page } from 'playwright-core';
import { beforeAll, expect, it, vi } from 'vitest';
import { glb, triangle } from '../../support/glb.ts';
import { PATIENCE } from '../../support/patience.ts';
import { describeInBrowser, PATIENCE_MS, ROBOT, START_MS, type Visit, violations } from './support.ts';

/** The gem of examples/, compressed with glTF Transform 4.5. */
const compressed = (compression: string) => ({
  name: `${compression}.glb`,
  type: 'model/gltf-binary',
  body: readFileSync(new URL(`./models/${compression}.glb`, import.meta.url)),
});
/** The processor draws the models. It is done sooner in a small window. */
const SMALL = { viewport: { width: 480, height: 480 } };

const GLB = { ContentType: 'model/gltf-binary' };

describeInBrowser('models', (shown) => {
  // One window for all that are drawn: without a graphics card, it takes the first viewer of each several seconds to make
  // its light.
  let visit: Visit;
  beforeAll(async () => {
    visit = shown.closing.use(await shown.open(SMALL));
  }, START_MS);

  it('are shown when they are opened, compressed ones and those of each stage too, and the first turns with the mouse', async () => {
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
    await visit.row('robot.png').filter({ hasText: 'Chain of 2' }).filter({ hasText: 'Succeeded' }).waitFor();
    expect(viewers()).toEqual([]);
    const picture = visit.row('robot.png').locator('row-thumbnail img');
    const drawn = () => picture.evaluate((each) => (each as HTMLImageElement).naturalWidth);
    await expect.poll(drawn, { timeout: PATIENCE_MS }).toBeGreaterThan(0);
    const source = await picture.getAttribute('src');
    expect(await visit.row('draco.glb').locator('row-thumbnail img').count()).toBe(0);

    for (const { name } of files) {
      await visit.openDetail(name);
      await page.getByRole('heading', { name }).waitFor();
      const viewer = page.locator('model-viewer').first();
      await comesIntoView(viewer);
      expect(viewers()).toHaveLength(1);
      if (name === ROBOT.name) {
        // Two viewers at once have the same landmark inside, which is not the page's.
        expect(await violations(page, 'upload-detail')).toEqual([]);
        await turns(page, viewer);
        await seesStages(page);
      }
      await page.getByRole('link', { name: 'All uploads' }).click();
    }
    // The row of the robot shows its model from now on.
    await expect.poll(() => picture.getAttribute('src'), { timeout: PATIENCE_MS }).not.toBe(source);
    await expect.poll(drawn, { timeout: PATIENCE_MS }).toBeGreaterThan(0);
  });

  it('are sent to the next stage if they are approved beside the viewer, and not if they are cancelled there', async () => {
    const { page } = visit;
    const created = () => shown.operated.standIn.counts.createFlow;
    const look = async (name: string) => {
      await visit.drop([{ ...ROBOT, name }]);
      await page.getByRole('button', { name: 'Send 1 file' }).click();
      await visit.row(name).getByText('Chain of 2: 1 waiting for your approval').waitFor();
      await visit.openDetail(name);
      await page.getByRole('link', { name: 'Look at what waits for approval' }).click();
      await page.getByRole('heading', { name: `${name} › refined` }).waitFor();
      await comesIntoView(page.locator('model-viewer').first());
      for (const action of ['Approve…', 'Cancel…']) {
        const button = page.getByRole('region', { name: 'Input' }).getByRole('button', { name: action, exact: true });
        expect(await button.evaluate(isInWindow)).toBe(true);
      }
    };
    const decide = async (action: string, confirmation: string) => {
      await page.getByRole('button', { name: `${action}…`, exact: true }).click();
      await page.getByRole('dialog', { name: action }).getByRole('button', { name: confirmation }).click();
    };

    await look('good.preview.png');
    expect(await violations(page, 'upload-detail')).toEqual([]);
    const before = created();
    await decide('Approve', 'Approve: pay for 1 flow');
    await page.locator('.badge').filter({ hasText: 'Succeeded' }).waitFor();
    await comesIntoView(page.locator('.object').filter({ hasText: 'Result' }).locator('model-viewer'));
    await page.locator('.chain-state').getByText('Succeeded').waitFor();
    expect(created()).toBe(before + 1);

    await page.getByRole('link', { name: 'All uploads' }).click();
    await look('poor.preview.png');
    const paid = created();
    await decide('Cancel', 'Cancel: 1 upload');
    await page.locator('.words').getByText('It failed: cancelled').waitFor();
    await page.locator('.chain-state').getByText('Failed').waitFor();
    expect(await page.getByRole('button', { name: 'Approve…' }).count()).toBe(0);
    expect(created()).toBe(paid);
  });

  it('do not fail to load if they are closed while the viewer still begins', async () => {
    await using visit = await shown.open();
    const { page } = visit;
    // The viewer fetches its decoder first, and the model after that.
    const decoder = Promise.withResolvers<void>();
    await page.route('**/assets/decoders/meshopt.js', async (route) => {
      await decoder.promise;
      await route.continue();
    });
    await shown.operated.upload('echo/closed.glb', glb(triangle(), new Uint8Array(36)), GLB);
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

  it('are not shown, and nothing is loaded, if they name another file', async () => {
    const uri = '/api/status';
    await using visit = await shown.open();
    const { page } = visit;
    const model = glb(triangle({ images: [{ uri }], textures: [{ source: 0 }] }), new Uint8Array(36));
    await shown.operated.upload('echo/leak.glb', model, GLB);
    await visit.shows('leak.glb', 'Succeeded');
    const requested: string[] = [];
    page.on('request', (request) => void requested.push(new URL(request.url()).pathname));
    await visit.openDetail('leak.glb');
    const stages = page.locator('.stage').filter({ hasText: 'The model is not shown: it names other files.' });
    await vi.waitFor(async () => expect(await stages.count()).toBe(2), PATIENCE);
    expect(await page.locator('model-viewer').count()).toBe(0);
    expect(requested.filter((path) => path === uri)).toEqual([]);
  });

  it('load nothing that they name, if the check should miss it', async () => {
    // So low that the viewer is not in view, and draws nothing.
    await using visit = await shown.open({ viewport: { width: 480, height: 100 } });
    const { page } = visit;
    await shown.operated.upload('echo/good.glb', glb(triangle(), new Uint8Array(36)), GLB);
    await visit.shows('good.glb', 'Succeeded');
    await visit.openDetail('good.glb');
    await page.locator('model-viewer').first().waitFor();
    const requested: string[] = [];
    page.on('request', (request) => void requested.push(new URL(request.url()).pathname));
    const model = Buffer.from(
      glb(triangle({ buffers: [{ byteLength: 36, uri: `${new URL(page.url()).origin}/api/status` }] })),
    ).toString('base64');
    await page.evaluate(async (base64) => {
      const viewer = document.createElement('model-viewer');
      const isDone = new Promise((resolve) => {
        viewer.addEventListener('error', resolve);
        viewer.addEventListener('load', resolve);
      });
      // It would load the model when it comes into view, and then draw it.
      viewer.setAttribute('loading', 'eager');
      viewer.setAttribute('src', `data:model/gltf-binary;base64,${base64}`);
      document.querySelector('.stage')?.append(viewer);
      await isDone;
    }, model);
    expect(requested.filter((path) => path.startsWith('/api/status'))).toEqual([]);
    visit.forgive(/not-fetched|THREE|404|Failed to/);
  });
});

/**
 * Scrolls to a model until it is shown. The viewer loads a model when it comes into view, and what the page fetches
 * meanwhile may move it out of view again.
 */
async function comesIntoView(viewer: Locator): Promise<void> {
  const isVisible = async () => {
    await viewer.scrollIntoViewIfNeeded();
    return await viewer.evaluate((each: ModelViewer) => each.modelIsVisible);
  };
  await expect.poll(isVisible, { timeout: PATIENCE_MS }).toBe(true);
}

/** True if one can see it without scrolling. */
function isInWindow(element: Element): boolean {
  const { left, right, top, bottom } = element.getBoundingClientRect();
  return element.contains(document.elementFromPoint((left + right) / 2, (top + bottom) / 2));
}

/** Turns a model with the mouse. */
async function turns(page: Page, viewer: Locator): Promise<void> {
  const theta = () => viewer.evaluate((each: ModelViewer) => each.getCameraOrbit().theta);
  const before = await theta();
  const { x, y, width, height } = (await viewer.boundingBox()) ?? { x: 0, y: 0, width: 0, height: 0 };
  expect(Math.min(width, height)).toBeGreaterThan(100);
  await page.mouse.move(x + width / 2, y + height / 2);
  await page.mouse.down();
  await page.mouse.move(x + width / 2 + 60, y + height / 2, { steps: 5 });
  await page.mouse.up();
  await expect.poll(async () => Math.abs((await theta()) - before), { timeout: PATIENCE_MS }).toBeGreaterThan(0.1);
}

/** Goes to the second stage of the chain, and sees what that stage got and what it made. */
async function seesStages(page: Page): Promise<void> {
  await page
    .locator('upload-chain')
    .getByRole('link', { name: /^optimised Succeeded/ })
    .click();
  await page.getByRole('heading', { name: 'robot.png › optimised' }).waitFor();
  for (const label of ['Input', 'Result']) {
    await comesIntoView(page.locator('.object').filter({ hasText: label }).locator('model-viewer'));
  }
}

/** What a test keeps in the window: when the viewer began to load a model, and when that ended. */
interface Loading {
  readonly begun: Promise<unknown>;
  readonly ended: Promise<unknown>;
}

interface ModelViewer extends HTMLElement {
  readonly modelIsVisible: boolean;
  getCameraOrbit(): { readonly theta: number };
}
