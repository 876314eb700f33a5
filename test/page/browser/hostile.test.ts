import { beforeEach, expect, it } from 'vitest';
import { OWN_COMMAND } from '../../../functions/settings/own-command.ts';
import { describeInBrowser } from './support.ts';

const ELEMENT = '<img src=x onerror="document.title=`taken`"><b>bold</b>';
/** Turns the direction of what follows, so that `exe.png` reads `gnp.exe`. */
const REVERSED = 'photo\u202egnp.exe';
const REVERSED_SHOWN = 'photo\\u202egnp.exe';

describeInBrowser('hostile texts', (shown) => {
  beforeEach(() => shown.operated.refuse(undefined));

  it('stay text: names of files and words of the service', async () => {
    await using visit = await shown.open();
    const { page } = visit;
    shown.operated.standIn.intercept = (_, { operation }) =>
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

  it('are shown as text if a result holds them', async () => {
    await using visit = await shown.open();
    const { page } = visit;
    await shown.operated.upload('echo/page.bin', ELEMENT, { ContentType: 'text/plain' });
    await visit.shows('page.bin', 'Succeeded');
    await visit.openDetail('page.bin');
    await page.locator('pre').filter({ hasText: ELEMENT }).first().waitFor();
    expect(await page.locator('img[src="x"], b').count()).toBe(0);
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
    expect(copied).toContain(`${OWN_COMMAND} status ${id}`);
    expect(copied).toContain(`${OWN_COMMAND} get ${id}`);
  });
});
