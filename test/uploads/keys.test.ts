import { expect, it } from 'vitest';
import type { Receipt } from '../../functions/publish/report-schemas.ts';
import { LEDGER, RESULTS, start, world } from '../support/world.ts';

/** Keys that S3 allows and that are special in file systems, URLs, XML or shells. */
const KEYS = [
  ...['../x', 'a/../b', 'a/..', '.', 'a/./b', '/a', 'a/', '/', 'a//b', '~/a', 'a/~b'],
  // White space and characters that nobody sees.
  ...[
    'two\nlines',
    'a\rb',
    'a\r\nX-Evil: b',
    'a\u0001b',
    '\u001b[31mred',
    ' ',
    ' a ',
    'a\u00a0b',
    'a\u2028b',
    '\ufeffa',
  ],
  ...['🪑.png', 'e\u0301te\u0301.png', '\u00e9t\u00e9.png', 'a\uffffb', 'a\ufffdb', '\u{10ffff}'],
  // Encodings and parts of URLs.
  ...['100%', 'a%2Fb', '%00', '%zz', '%252e%252e%252f', 'a+b', 'a?versionId=1', 'a#b', 'a&b=c', 'a;b'],
  ...[`a'b"c`, '<Key>a</Key>&amp;', ']]>', 'a\\b', '$(touch x)`y`;|z', '{key}/{flowId}/{assetId}{ext}', '$&$1$$'],
  ...['receipt.json', 'a/receipt.json', 'uploads/x.json', '__proto__', 'null'],
  // As long as a key can be, and with a receipt that just fits or does not.
  ...['a'.repeat(1024), '🪑'.repeat(256), `${'a/'.repeat(511)}ab`, 'a'.repeat(1011), 'a'.repeat(1012), 'ä'.repeat(511)],
].sort();

// `test/uploads/inbox.test.ts` shows that the sweep finds such keys.
it('an upload of any key becomes a flow, and its results are below that key', async () => {
  // Keys and bodies go over the wire.
  await start({ isVirtual: false });
  for (const key of KEYS) await world.upload(key, `bytes of ${key}`, { ContentType: 'application/x-test' });
  await world.settle();
  expect(world.sentKeys.sort()).toEqual(KEYS);
  const stored = await world.keys(RESULTS);
  expect(stored).toHaveLength(2 * KEYS.length);
  // An entry for each, the state of the collector, and the holds.
  expect(await world.keys(LEDGER)).toHaveLength(KEYS.length + 2);
  const ended: string[] = [];
  for (const receiptKey of stored.filter((each) => each.endsWith('/receipt.json'))) {
    const { status, upload, assets } = await world.json<Receipt>(RESULTS, receiptKey);
    const { key } = upload;
    ended.push(key);
    expect({ key, status, assets }).toMatchObject({ status: 'succeeded', assets: [{ key: expect.any(String) }] });
    const assetKey = assets[0]?.key ?? '';
    expect((await world.object(RESULTS, assetKey)).bytes.toString()).toBe(`bytes of ${key}`);
    for (const each of [receiptKey, assetKey]) {
      expect(Buffer.byteLength(each), key).toBeLessThanOrEqual(1024);
      if (Buffer.byteLength(key) < 900) expect(each.startsWith(`${key}/`), key).toBe(true);
    }
  }
  expect(ended.sort()).toEqual(KEYS);
});
