import { describe, expect, it } from 'vitest';
import type { Receipt } from '../../functions/publish/receipts.ts';
import type { Route } from '../../functions/uploads/routes.ts';
import { ECHO, LEDGER, RESULTS, type World, type WorldOptions } from '../support/world.ts';
import { nested } from './bad-answers.ts';
import { hostileWorld, MINUTE, onlyReceipt, settledReceipt } from './support.ts';

/** Keys, metadata and bodies of uploads reach the functions as they are written on the wire. */
const worldWithSockets = (options: WorldOptions = {}): Promise<World> =>
  hostileWorld({ ...options, hasS3Sockets: true });

/** Keys that S3 allows and that are special in file systems, URLs, XML or shells. */
const KEYS: readonly (readonly [what: string, key: string])[] = [
  ['a way up', '../x'],
  ['a way up in its middle', 'a/../b'],
  ['a way up at its end', 'a/..'],
  ['a dot', '.'],
  ['a dot for a folder', 'a/./b'],
  ['a leading slash', '/a'],
  ['a trailing slash with bytes in it', 'a/'],
  ['nothing but a slash', '/'],
  ['double slashes', 'a//b'],
  ['a newline', 'two\nlines'],
  ['a carriage return', 'a\rb'],
  ['a line break and a header', 'a\r\nX-Evil: b'],
  ['a control character', 'a\u0001b'],
  ['an escape sequence of a terminal', '\u001b[31mred'],
  ['nothing but a space', ' '],
  ['spaces around it', ' a '],
  ['a space that does not break', 'a\u00a0b'],
  ['an emoji', '🪑.png'],
  ['decomposed letters', 'e\u0301te\u0301.png'],
  ['composed letters', '\u00e9t\u00e9.png'],
  ['a byte order mark', '\ufeffa'],
  ['a noncharacter', 'a\uffffb'],
  ['a replacement character', 'a\ufffdb'],
  ['a line separator', 'a\u2028b'],
  ['the last code point', '\u{10ffff}'],
  ['a percent sign', '100%'],
  ['a percent sequence', 'a%2Fb'],
  ['a percent sequence of nothing', '%00'],
  ['an invalid percent sequence', '%zz'],
  ['a percent sequence twice', '%252e%252e%252f'],
  ['a plus sign', 'a+b'],
  ['a question mark', 'a?versionId=1'],
  ['a fragment', 'a#b'],
  ['an ampersand and an equals sign', 'a&b=c'],
  ['a semicolon', 'a;b'],
  ['quotes', `a'b"c`],
  ['markup', '<Key>a</Key>&amp;'],
  ['the end of a CDATA section', ']]>'],
  ['a backslash', 'a\\b'],
  ['shell commands', '$(touch x)`y`;|z'],
  ['placeholders of the results key', '{key}/{flowId}/{assetId}{ext}'],
  ['replacement patterns', '$&$1$$'],
  ['the name of a receipt', 'receipt.json'],
  ['the name of a receipt in a folder', 'a/receipt.json'],
  ['the name of an entry', 'uploads/x.json'],
  ['a name that objects inherit', '__proto__'],
  ['null', 'null'],
  ['a tilde', '~'],
  ['1,024 bytes', 'a'.repeat(1024)],
  ['1,024 bytes of emoji', '🪑'.repeat(256)],
  ['1,024 bytes of folders', `${'a/'.repeat(511)}ab`],
  ['1,011 bytes, with which a receipt just fits', 'a'.repeat(1011)],
  ['1,012 bytes, with which it does not', 'a'.repeat(1012)],
  ['a long name of two-byte letters', 'ä'.repeat(511)],
];

describe('an upload whose key is', () => {
  const keys = KEYS.map(([, key]) => key).sort();
  const sentKeys = ({ service }: World) =>
    service.flows.map(({ inputs }) => (inputs[0]?.additional as { key?: string } | undefined)?.key).sort();

  it('any of these becomes a flow, and its results are below that key', async () => {
    const world = await worldWithSockets();
    for (const key of keys) await world.upload(key, `bytes of ${key}`, { ContentType: 'application/x-test' });
    await world.settle();
    expect(sentKeys(world)).toEqual(keys);
    const stored = await world.keys(RESULTS);
    expect(stored).toHaveLength(2 * keys.length);
    // An entry for each, and the state of the collector.
    expect(await world.keys(LEDGER)).toHaveLength(keys.length + 1);
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
    expect(ended.sort()).toEqual(keys);
  });

  it('any of these is found by the sweep if its notification is lost', async () => {
    const world = await worldWithSockets();
    const run = () => world.sweep({ uploadsPerSecond: 1000 });
    await run();
    for (const key of keys) await world.upload(key, 'x');
    while (world.takeMessages().length > 0);
    world.clock.advance(60 * MINUTE);
    expect(await run()).toMatchObject({ complete: true, missed: keys.length });
    await world.deliverAll();
    expect(sentKeys(world)).toEqual(keys);
  });
});

const OPEN: Route = { ...ECHO, overrides: true };

describe('an upload with overrides in its metadata', () => {
  const bad: readonly (readonly [what: string, name: string, value: string, message: RegExp])[] = [
    ['not JSON', 'flow-parameters', '{', /flow-parameters: expected JSON/],
    ['deep nesting', 'flow-additional', `{"a":${nested(900)}}`, /at most 32 deep/],
    ['our own tag, with an escape', 'flow-additional', '{"\\u0066lowdrop":1}', /our own tag/],
    ['a newline, encoded', 'flow-template', '=?UTF-8?B?YQpi?=', /control character/],
    ['an encoded word that is cut', 'flow-parameters', '=?UTF-8?B?eyJh', /expected JSON/],
  ];
  it.each(bad)('fails at once, with a receipt, if they are invalid: %s (%s)', async (_, name, value, message) => {
    const world = await worldWithSockets({ routes: [OPEN] });
    expect(await world.send('a', 'x', { Metadata: { [name]: value } })).toEqual({ batchItemFailures: [] });
    const receipt = await onlyReceipt(world);
    expect(receipt).toMatchObject({ status: 'failed', failure: { code: 'invalid-override' } });
    expect(receipt.failure?.message).toMatch(message);
    expect(receipt.failure?.message.length).toBeLessThan(300);
    // The metadata belongs to the object. Only another upload can have other metadata.
    expect(receipt.failure?.retry).toBeUndefined();
    expect(world.service.counts.createFlow).toBe(0);
  });

  const good: readonly (readonly [what: string, metadata: Record<string, string>, flow: object])[] = [
    ['nesting as deep as it may be', { 'flow-additional': `{"a":${nested(32)}}` }, {}],
    [
      'a name that objects inherit',
      { 'flow-additional': '{"__proto__":{"flowdrop":1},"a":1}' },
      { additional: { a: 1 } },
    ],
    ['a name given twice', { 'flow-additional': '{"a":1,"a":2}' }, { additional: { a: 2 } }],
    ['unknown names of metadata', { 'flow-flowdrop': '{', flowdrop: '{', 'flow-input': 'text' }, {}],
  ];
  it.each(good)('is sent if they are odd: %s', async (_, metadata, flow) => {
    const world = await worldWithSockets({ routes: [OPEN] });
    await world.upload('a', 'x', { Metadata: metadata });
    await world.settle();
    const [made] = world.service.flows;
    expect(made).toMatchObject({ template: 'bytes_echo', ...flow });
    expect(made?.additional).toMatchObject({ flowdrop: { pipeline: 'test', generation: 1 } });
    expect((await onlyReceipt(world)).status).toBe('succeeded');
  });
});

describe('an upload of a size', () => {
  const settings = { inputBytesMax: 1_000, textBytesMax: 100 };
  const sizes: readonly (readonly [Route['input'], number, string | undefined])[] = [
    ['file', 1, undefined],
    ['file', 1_000, undefined],
    ['file', 1_001, 'input-too-large'],
    ['text', 1, undefined],
    ['text', 100, undefined],
    ['text', 101, 'input-too-large'],
    ['text', 1_001, 'input-too-large'],
  ];
  it.each(sizes)('as %s, %i bytes, ends as %s', async (input, bytes, code) => {
    const world = await worldWithSockets({ routes: [{ ...ECHO, input }], settings });
    await world.upload('a', 'x'.repeat(bytes), { ContentType: 'text/plain' });
    const receipt = await settledReceipt(world);
    expect(receipt.failure?.code).toBe(code);
    expect(receipt.status).toBe(code === undefined ? 'succeeded' : 'failed');
    if (code === 'input-too-large') expect(receipt.failure?.message).toContain(`${bytes} bytes`);
    expect(world.service.counts.createFlow).toBe(code === undefined ? 1 : 0);
  });

  const texts: readonly (readonly [what: string, bytes: Uint8Array, code: string | undefined])[] = [
    ['half a surrogate pair', Buffer.from([0xed, 0xa0, 0x80]), 'invalid-text'],
    ['UTF-16', Buffer.from('\ufeffhello', 'utf16le'), 'invalid-text'],
    ['a NUL', Buffer.from('a\0b'), undefined],
    ['the end of our JSON', Buffer.from('"}]}{"template":"evil"'), undefined],
  ];
  it.each(texts)('as text, %s, ends as %s', async (_, bytes, code) => {
    const world = await worldWithSockets({ routes: [{ ...ECHO, input: 'text' }] });
    await world.upload('a', bytes, { ContentType: 'text/plain' });
    const receipt = await settledReceipt(world);
    expect(receipt.failure?.code).toBe(code);
    if (code === undefined) {
      expect((await world.object(RESULTS, receipt.assets[0]?.key ?? '')).bytes.equals(Buffer.from(bytes))).toBe(true);
    }
  });
});

describe('an upload whose media type is', () => {
  const types: readonly (readonly [said: string, sent: string])[] = [
    ['', 'image/png'],
    ['garbage', 'image/png'],
    [`a/${'b'.repeat(2_000)}`, 'application/octet-stream'],
    [`image/gif; a=${'b'.repeat(2_000)}`, 'image/gif'],
  ];
  it.each(types)('%j is sent as %s', async (said, sent) => {
    const world = await worldWithSockets();
    await world.upload('a.png', 'x', { ContentType: said });
    await world.settle();
    expect(world.service.flows[0]?.inputs[0]).toMatchObject({ mediaType: sent, bytes: 1 });
    expect((await onlyReceipt(world)).status).toBe('succeeded');
  });
});
