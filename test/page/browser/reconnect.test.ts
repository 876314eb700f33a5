import { expect, it } from 'vitest';
import { anyPipeline, describeInBrowser } from './support.ts';

describeInBrowser('the connection', anyPipeline, (shown) => {
  it('comes back after the server was restarted, and nothing is lost in between', async () => {
    await using visit = await shown.open();
    const { page } = visit;
    await shown.operated.upload('echo/before.bin', 'before');
    await visit.shows('before.bin', 'Succeeded');
    await shown.stopPage();
    await page.getByRole('alert').getByText('The page connects again by itself.').waitFor();
    await shown.operated.put('echo/meanwhile.bin', 'succeeded');
    await shown.startPage();
    await visit.shows('meanwhile.bin', 'Succeeded');
    await page.getByText('Live', { exact: true }).waitFor();
    expect(await page.getByRole('alert').count()).toBe(0);

    // The page can still change something, and hears of it.
    await visit.drop([{ name: 'after.txt', type: 'text/plain', body: Buffer.from('A fox') }]);
    await page.getByRole('button', { name: 'Send 1 file' }).click();
    await visit.shows('after.txt', 'Succeeded');
    visit.forgive(/ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE/);
  });

  it('says so if the server has another key by now', async () => {
    await using visit = await shown.open();
    await visit.page.context().clearCookies();
    await shown.stopPage();
    await shown.startPage();
    await visit.page.getByRole('alert').getByText("This page's key is not valid any more.").waitFor();
    visit.forgive(/ERR_CONNECTION_REFUSED|401|ERR_INCOMPLETE_CHUNKED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE/);
  });
});
