import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  ASSET_METADATA,
  aliasKey,
  assetKey,
  chainReportKey,
  FLOW_METADATA,
  receiptKey,
  UPLOAD_METADATA,
} from '../../functions/results/results-keys.ts';

const settings = { resultsPrefix: '', resultsKey: '{key}/{flowId}/{assetId}{ext}' };
const asset = { key: 'in/a.png', flowId: 'f1', assetId: 'a1', mediaType: 'model/gltf-binary' };

describe('the key of an asset', () => {
  it.each([
    ['model/gltf-binary', '.glb'],
    ['image/png', '.png'],
    ['audio/mpeg', '.mp3'],
    ['text/plain', '.txt'],
    ['application/json', '.json'],
    ['application/vnd.openxmlformats-officedocument.wordprocessingml.document', '.docx'],
    ['application/x-nobody-knows', ''],
    ['not a media type', ''],
    ['', ''],
  ])('ends with the extension of its media type: %s', (mediaType, extension) => {
    expect(assetKey(settings, { ...asset, mediaType })).toBe(`in/a.png/f1/a1${extension}`);
  });

  it('follows the pattern and the prefix of the settings', () => {
    expect(assetKey({ resultsPrefix: 'out/', resultsKey: '{flowId}/{assetId}' }, asset)).toBe('out/f1/a1');
  });

  it('does not replace placeholders within an id or an upload key', () => {
    expect(assetKey(settings, { ...asset, key: '{flowId}', flowId: '{assetId}' })).toBe(
      '{flowId}/%7BassetId%7D/a1.glb',
    );
  });

  it('is never the key of a receipt', () => {
    const upload = 'in/a.png/f1';
    expect(receiptKey('', upload)).toBe('in/a.png/f1/receipt.json');
    expect(assetKey(settings, { ...asset, assetId: 'receipt', mediaType: 'application/json' })).toBe(
      'in/a.png/f1/%72eceipt.json',
    );
    expect(assetKey(settings, { ...asset, assetId: 'receipt.json', mediaType: '' })).toBe('in/a.png/f1/receipt%2Ejson');
  });

  it.each(['receipt.json', 'chain.json', 'chain'])('gives no flow the folder %s, which is taken', (flowId) => {
    const settings = { resultsPrefix: '', resultsKey: '{key}/{flowId}/{assetId}{ext}' };
    const key = assetKey(settings, { key: 'a.png', flowId, assetId: 'x', mediaType: '' });
    expect(key).toMatch(/^a\.png\/%(72eceipt\.json|63hain|63hain\.json)\/x$/);
  });

  it('differs for any two assets, whatever their ids and media types', () => {
    fc.assert(
      fc.property(
        fc.uniqueArray(fc.stringMatching(/^[a.%/glbjson]{1,8}$/), { minLength: 2, maxLength: 2 }),
        fc.constantFrom('', 'model/gltf-binary', 'application/json'),
        fc.constantFrom('', 'model/gltf-binary', 'application/json'),
        ([one = '', other = ''], type, otherType) => {
          expect(assetKey(settings, { ...asset, assetId: one, mediaType: type })).not.toBe(
            assetKey(settings, { ...asset, assetId: other, mediaType: otherType }),
          );
        },
      ),
    );
  });

  it('differs for ids that differ only in how they are written', () => {
    const ids = ['a', 'A', 'a ', ' a', 'a/', 'a%2F', 'a.txt', 'a\u0301', '\u00e1', 'receipt.json', 'receipt', '../a'];
    const keys = ids.map((assetId) => assetKey(settings, { ...asset, assetId, mediaType: 'text/plain' }));
    expect(new Set(keys).size).toBe(ids.length);
    for (const key of keys) expect(key).toMatch(/^in\/a\.png\/f1\/[^/]+$/);
  });

  it('differs from the key of a receipt at the top of the bucket', () => {
    const top = { resultsPrefix: '', resultsKey: '{assetId}{ext}' };
    expect(assetKey(top, { ...asset, assetId: 'receipt', mediaType: 'application/json' })).toBe('%72eceipt.json');
    expect(assetKey(top, { ...asset, assetId: 'receipt', mediaType: 'application/json5' })).toMatch(/^receipt/);
  });

  it('stays in its own folder, whatever the ids', () => {
    expect(assetKey(settings, { ...asset, flowId: '../../x', assetId: '..' })).toBe(
      'in/a.png/%2E.%2F..%2Fx/%2E%2E.glb',
    );
  });
});

describe('the key of what a chain came to', () => {
  it('is beside the receipt, and is shortened like it', () => {
    expect(chainReportKey('out/', 'in/a.png')).toBe('out/in/a.png/chain.json');
    expect(chainReportKey('', 'a'.repeat(1024))).toMatch(/^a{992}~[0-9a-f]{20}\/chain\.json$/);
  });
});

describe('a key that would be too long', () => {
  const long = `${'ä'.repeat(500)}/a.png`;

  it('is shortened to the limit of S3, and keeps its end', () => {
    expect(receiptKey('', `${long}${'b'.repeat(30)}`)).toMatch(/~[0-9a-f]{20}\/receipt\.json$/);
    expect(assetKey(settings, { ...asset, key: `${long}${'b'.repeat(30)}` })).toMatch(/~[0-9a-f]{20}\/a1\.glb$/);
  });

  it('stays unchanged up to 1,024 bytes, and is shortened to that above', () => {
    const exact = 'a'.repeat(1024 - '/receipt.json'.length);
    expect(receiptKey('', exact)).toBe(`${exact}/receipt.json`);
    const hash = '[0-9a-f]{20}';
    expect(receiptKey('', `${exact}a`)).toMatch(new RegExp(`^a{990}~${hash}/receipt\\.json$`));
    expect(Buffer.byteLength(receiptKey('', `${exact}a`))).toBe(1024);
  });

  it('keeps its last name if that is at most a quarter of the limit', () => {
    const named = (bytes: number) =>
      assetKey(settings, { ...asset, key: 'k'.repeat(1000), assetId: 'b'.repeat(bytes - 5) });
    expect(named(256)).toMatch(/^k{747}~[0-9a-f]{20}\/b{251}\.glb$/);
    expect(named(257)).toMatch(/^k{1000}\/f1~[0-9a-f]{20}$|^k{1000}\/f1\/~?b*~[0-9a-f]{20}$/);
    expect(Buffer.byteLength(named(257))).toBeLessThanOrEqual(1024);
  });

  it('loses the character that the cut divides, and no other', () => {
    const key = receiptKey('', `\ufffdb${'🪑'.repeat(300)}`);
    expect(key).toMatch(/^\ufffdb(🪑)+~[0-9a-f]{20}\/receipt\.json$/u);
    expect(Buffer.byteLength(key)).toBeGreaterThan(1020);
  });

  it('is not the key of a shorter name that looks shortened', () => {
    const name = 'a'.repeat(1_015);
    const lookalike = receiptKey('', name).slice(0, -'/receipt.json'.length);
    expect(Buffer.byteLength(lookalike)).toBe(1_011);
    expect(receiptKey('', lookalike)).not.toBe(receiptKey('', name));
    expect(Buffer.byteLength(receiptKey('', lookalike))).toBe(1_024);
  });

  /** Names around the limit, of characters of one to four bytes, some of which look shortened. */
  const name = fc
    .tuple(
      fc.constantFrom('a', 'ä', '\ufffd', '🪑', '~0'),
      fc.integer({ min: 980, max: 1_030 }),
      fc.stringMatching(/^[a~0/]{0,4}$/),
      fc.constantFrom('', `~${'0'.repeat(20)}`, `~${'0'.repeat(20)}/b`),
    )
    .map(([character, bytes, middle, end]) => {
      const count = Math.max(1, Math.floor((bytes - middle.length - end.length) / Buffer.byteLength(character)));
      return character.repeat(count) + middle + end;
    });

  it('differs for any two names, also if one of them is made of the key of the other', () => {
    const suffix = '/receipt.json';
    const differ = (one: string, other: string) => {
      if (one !== other) expect(receiptKey('', one)).not.toBe(receiptKey('', other));
    };
    fc.assert(
      fc.property(name, name, (one, other) => {
        differ(one, other);
        // The names whose literal keys are the keys of these two, and of those again.
        const forged = receiptKey('', one).slice(0, -suffix.length);
        const again = receiptKey('', forged).slice(0, -suffix.length);
        differ(forged, one);
        differ(again, forged);
        differ(again, one);
        differ(forged, other);
      }),
      { numRuns: 2_000 },
    );
  });

  it('differs for any two assets, also if one of them is named by the key of the other', () => {
    const flat = { resultsPrefix: '', resultsKey: '{key}/{flowId}/{assetId}' };
    const keyOf = (key: string, assetId: string) => assetKey(flat, { ...asset, key, assetId, mediaType: '' });
    fc.assert(
      fc.property(name, fc.constantFrom('b', 'b'.repeat(255), 'b'.repeat(256)), (key, assetId) => {
        const made = keyOf(key, assetId);
        const forged = /^(.*)\/f1\/([^/]*)$/s.exec(made);
        if (forged === null || (forged[1] === key && forged[2] === assetId)) return;
        expect(keyOf(forged[1] as string, forged[2] as string)).not.toBe(made);
      }),
    );
  });

  it('is valid UTF-8 of at most 1,024 bytes, whatever the input', () => {
    fc.assert(
      fc.property(
        // U+FFFD shows a broken character. A key that contains it itself has it in the results too.
        fc
          .string({ unit: 'grapheme', minLength: 1, maxLength: 600, size: 'max' })
          .filter((key) => !key.includes('\uFFFD')),
        fc.string({ minLength: 1, maxLength: 200, size: 'max' }),
        (key, assetId) => {
          const made = assetKey(settings, { ...asset, key, assetId });
          expect(Buffer.byteLength(made)).toBeLessThanOrEqual(1024);
          expect(made).not.toContain('\uFFFD');
        },
      ),
    );
  });
});

describe('the key of an alias', () => {
  it.each([
    ['{key}{ext}', 'in/a.b.png', 'in/a.b.png.glb'],
    ['{folder}/{name}{ext}', 'in/2026/a.b.png', 'in/2026/a.b.glb'],
    ['models/{folder}/{name}/{n}{ext}', 'in/a.png', 'models/in/a/7.glb'],
    ['models/{folder}/{name}{ext}', 'a.png', 'models/a.glb'],
    ['models/{name}{ext}', 'in/.hidden', 'models/.hidden.glb'],
    ['models/{name}{ext}', 'in/plain', 'models/plain.glb'],
    ['{name}-{other}{ext}', '{key}.png', '{key}-{other}.glb'],
    ['{folder}/receipt.json', 'in/a.png', 'in/%72eceipt.json'],
  ])('follows the pattern %s for %s', (pattern, key, alias) => {
    expect(aliasKey('out/', pattern, { key, mediaType: 'model/gltf-binary', n: 7 })).toBe(`out/${alias}`);
  });

  it('has no extension for a type that has none', () => {
    expect(aliasKey('', '{name}{ext}', { key: 'a.png', mediaType: 'application/x-nobody-knows', n: 1 })).toBe('a');
  });
});

it('the metadata of results keep their names, by which stored assets are known again', () => {
  expect([UPLOAD_METADATA, FLOW_METADATA, ASSET_METADATA]).toEqual([
    'flowdrop-upload',
    'flowdrop-flow',
    'flowdrop-asset',
  ]);
});
