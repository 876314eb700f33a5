import { beforeEach, expect, it } from 'vitest';
import { anyPipeline, describeInBrowser } from './support.ts';

const ELEMENT = '<img src=x onerror="document.title=`taken`"><b>bold</b>';
/** Turns the direction of what follows, so that `exe.png` reads `gnp.exe`. */
const REVERSED = 'photo\u202egnp.exe';
const REVERSED_SHOWN = 'photo\\u202egnp.exe';

describeInBrowser('hostile texts', anyPipeline, (shown) => {
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
    await shown.operated.upload('echo/page.txt', ELEMENT, { ContentType: 'text/plain' });
    await visit.shows('page.txt', 'Succeeded');
    await visit.openDetail('page.txt');
    await page.locator('pre').filter({ hasText: ELEMENT }).first().waitFor();
    expect(await page.locator('img[src="x"], b').count()).toBe(0);
  });

  it('fetch nothing from elsewhere: a model that names other files', async () => {
    await using visit = await shown.open();
    const { page } = visit;
    await shown.operated.upload('echo/leak.glb', glbNaming('http://127.0.0.1:9/leak.png'), {
      ContentType: 'model/gltf-binary',
    });
    await visit.shows('leak.glb', 'Succeeded');
    await visit.openDetail('leak.glb');
    await page.waitForFunction(() =>
      [...document.querySelectorAll('.stage')].every((stage) => {
        const viewer = stage.querySelector('model-viewer');
        const isShown = viewer !== null && 'loaded' in viewer && viewer.loaded === true;
        return isShown || stage.textContent?.includes('It cannot be shown here') === true;
      }),
    );
    // The viewer complains that the texture is missing. Nothing of it may concern another host.
    visit.forgive(/not-fetched|Couldn't load texture|THREE|404/);
  });
});

/** A triangle as binary glTF, whose texture is at an address. */
function glbNaming(uri: string): string {
  const json = JSON.stringify({
    asset: { version: '2.0' },
    scene: 0,
    scenes: [{ nodes: [0] }],
    nodes: [{ mesh: 0 }],
    meshes: [{ primitives: [{ attributes: { POSITION: 0, TEXCOORD_0: 0 }, material: 0 }] }],
    materials: [{ pbrMetallicRoughness: { baseColorTexture: { index: 0 } } }],
    textures: [{ source: 0 }],
    images: [{ uri }],
    accessors: [{ bufferView: 0, componentType: 5126, count: 3, type: 'VEC3', min: [0, 0, 0], max: [0, 0, 0] }],
    bufferViews: [{ buffer: 0, byteLength: 36 }],
    buffers: [{ byteLength: 36 }],
  });
  const padded = json.padEnd(Math.ceil(json.length / 4) * 4, ' ');
  const header = Buffer.alloc(20);
  header.write('glTF', 0, 'latin1');
  header.writeUInt32LE(2, 4);
  header.writeUInt32LE(20 + padded.length + 8 + 36, 8);
  header.writeUInt32LE(padded.length, 12);
  header.write('JSON', 16, 'latin1');
  const binary = Buffer.alloc(8 + 36);
  binary.writeUInt32LE(36, 0);
  binary.write('BIN\0', 4, 'latin1');
  // All bytes are ASCII, so they survive as a string.
  return Buffer.concat([header, Buffer.from(padded), binary]).toString('latin1');
}
