import { beforeEach, expect, it, vi } from 'vitest';
import { glb, triangle } from '../../support/glb.ts';
import { PATIENCE } from '../../support/patience.ts';
import { describeInBrowser } from './support.ts';

const ELEMENT = '<img src=x onerror="document.title=`taken`"><b>bold</b>';
/** Turns the direction of what follows, so that `exe.png` reads `gnp.exe`. */
const REVERSED = 'photo\u202egnp.exe';
const REVERSED_SHOWN = 'photo\\u202egnp.exe';

const GLB = { ContentType: 'model/gltf-binary' };

describeInBrowser('hostile texts and models', (shown) => {
  beforeEach(() => shown.operated.refuse(undefined));

  it('stay text: names of files and words of the service', async () => {
    await using visit = await shown.open();
    const { page } = visit;
    const { standIn } = shown.operated.pipeline;
    if (standIn === undefined) throw new Error('There is no stand-in.');
    standIn.intercept = (_, { operation }) =>
      operation === 'createFlow'
        ? {
            status: 422,
            headers: { 'content-type': 'application/json' },
            body: JSON.stringify({ detail: `${ELEMENT}<script>document.title='taken'</script>` }),
          }
        : undefined;
    const name = `${ELEMENT}.bin`;
    await shown.operated.upload(`echo/${name}`, 'x');
    await shown.operated.upload(`echo/${REVERSED}`, 'x');
    // The words of the service are in the other row too.
    const row = page.locator('.row a').filter({ has: page.locator('.name', { hasText: ELEMENT }) });
    await row.filter({ hasText: 'Failed' }).waitFor();
    await row.click();
    await page.locator('.timeline').waitFor();
    await page.locator('.words').getByText(ELEMENT).waitFor();
    expect(await page.locator('img[src="x"], b, .words script').count()).toBe(0);

    await visit.drop([{ name: `${ELEMENT.replaceAll('/', '')}.txt`, type: 'text/plain', body: Buffer.from('x') }]);
    await page.locator('.tray-item').waitFor();
    await page.getByRole('button', { name: 'Retry…', exact: true }).click();
    await page.getByRole('dialog').getByText('will be retried').waitFor();
    expect(await page.locator('img[src="x"], b, .words script').count()).toBe(0);
    expect(await page.title()).toBe('Flowdrop');
  });

  it('do not turn the direction of what stands beside them', async () => {
    await using visit = await shown.open();
    const row = visit.row(REVERSED_SHOWN);
    await row.waitFor();
    expect(await row.locator('bdi').textContent()).toBe(REVERSED_SHOWN);
  });

  it('are shown as text if a model or a text of the service holds them', async () => {
    await using visit = await shown.open();
    const { page } = visit;
    await shown.operated.upload('echo/page.bin', ELEMENT, { ContentType: 'text/plain' });
    await visit.shows('page.bin', 'Succeeded');
    await visit.openDetail('page.bin');
    await page.locator('pre').filter({ hasText: ELEMENT }).first().waitFor();
    expect(await page.locator('img[src="x"], b').count()).toBe(0);
  });

  it('load nothing for a model that names another file', async () => {
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

  it('do not let the viewer load what a model names, if the check should miss it', async () => {
    await using visit = await shown.open({ viewport: { width: 480, height: 480 } });
    const { page } = visit;
    await shown.operated.upload('echo/good.glb', glb(triangle(), new Uint8Array(36)), GLB);
    await visit.shows('good.glb', 'Succeeded');
    await visit.openDetail('good.glb');
    // A viewer loads a model when it comes into view.
    await page.locator('model-viewer').first().scrollIntoViewIfNeeded();
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
      viewer.setAttribute('src', `data:model/gltf-binary;base64,${base64}`);
      document.querySelector('.stage')?.append(viewer);
      viewer.scrollIntoView();
      await isDone;
    }, model);
    expect(requested.filter((path) => path.startsWith('/api/status'))).toEqual([]);
    visit.forgive(/not-fetched|THREE|404|Failed to/);
  });

  it('are copied as they are shown', async () => {
    await using visit = await shown.open();
    const { page } = visit;
    await shown.operated.upload('echo/y\u001b[201~\u0003\ntouch pwned\n.bin', 'x');
    await visit.shows('y\\u001b[201~\\u0003\\ntouch pwned\\n.bin', 'Succeeded');
    await visit.openDetail('y\\u001b[201~\\u0003\\ntouch pwned\\n.bin');
    await page.evaluate(() => {
      const copied: string[] = [];
      Object.assign(window, { copied });
      navigator.clipboard.writeText = async (text) => void copied.push(text);
    });
    const count = await page.locator('.facts copy-button button').evaluateAll((buttons) => {
      for (const button of buttons) (button as HTMLElement).click();
      return buttons.length;
    });
    expect(count).toBeGreaterThan(5);
    const copied = await page.evaluate(() => (window as unknown as { copied: readonly string[] }).copied);
    expect(copied.length).toBe(count);
    expect(copied.filter((each) => /[\p{Cc}\p{Bidi_Control}\p{Zl}\p{Zp}]/u.test(each))).toEqual([]);
    const id = copied[1] ?? '';
    expect(copied[0]).toBe('echo/y\\u001b[201~\\u0003\\ntouch pwned\\n.bin');
    expect(copied).toContain(`flowdrop status ${id}`);
    expect(copied).toContain(`flowdrop get ${id}`);
  });
});
