import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { assetOf } from '../../functions/flow-service/asset-answer.ts';
import { SCAN_BYTES_MAX } from '../../functions/flow-service/envelope-scanner.ts';
import { AssetTooLargeError, DamagedAssetError } from '../../functions/flow-service/errors.ts';
import { collect, pieces, streamed } from './chunks.ts';

const MIB = 1024 * 1024;

interface Options {
  readonly cuts?: readonly number[];
  readonly mediaType?: string;
  readonly length?: number;
  readonly isDelimited?: boolean;
  readonly assetBytesMax?: number;
}

/** The media type and bytes of the asset in an answer. */
async function read(answer: string | Uint8Array, options: Options = {}): Promise<{ mediaType: string; bytes: Buffer }> {
  const body = typeof answer === 'string' ? Buffer.from(answer) : answer;
  const { cuts = [], mediaType = 'application/json', length, isDelimited = true, assetBytesMax = 100 * MIB } = options;
  const facts = { mediaType, length, isDelimited, assetBytesMax };
  const asset = await assetOf(streamed(pieces(body, cuts)), facts);
  return { mediaType: asset.mediaType, bytes: await collect(asset.chunks) };
}

const decoded = async (answer: string | Uint8Array, options?: Options): Promise<string> =>
  (await read(answer, options)).bytes.toString('latin1');

const damaged = (answer: string | Uint8Array, options?: Options): Promise<void> =>
  expect(read(answer, options)).rejects.toThrow(DamagedAssetError);

/** JSON of any kind for the other members; none of them is called `data`. */
const members = fc.dictionary(
  fc.string({ unit: 'binary', maxLength: 8 }).filter((name) => name !== 'data' && name !== '__proto__'),
  fc.jsonValue({ maxDepth: 3 }),
  { maxKeys: 3 },
);

/** How a character may be written in a JSON string, beside as itself. */
const escapes: Readonly<Record<string, readonly string[]>> = { '/': ['\\/', '\\u002f', '\\u002F'] };
const spelled = (character: string, choice: number): string => {
  const code = character.charCodeAt(0).toString(16).padStart(4, '0');
  const ways = [character, ...(escapes[character] ?? []), `\\u${code}`];
  return choice < 60 ? character : (ways[choice % ways.length] ?? character);
};

const lineBreaks = ['', '', '', '\\n', '\\r\\n', ' '];

/** An envelope around some bytes, in any layout that JSON and base64 allow. */
const envelope = fc
  .record({
    bytes: fc.uint8Array({ maxLength: 120 }),
    before: members,
    after: members,
    space: fc.constantFrom('', ' ', '\n  ', '\r\n\t'),
    isUrlSafe: fc.boolean(),
    isPadded: fc.boolean(),
    choices: fc.array(fc.nat(99), { minLength: 1, maxLength: 40 }),
    breaks: fc.array(fc.constantFrom(...lineBreaks), { minLength: 1, maxLength: 20 }),
    name: fc.constantFrom('"data"', '"d\\u0061ta"'),
    cuts: fc.array(fc.nat(600), { maxLength: 30 }),
  })
  .map(({ bytes, before, after, space, isUrlSafe, isPadded, choices, breaks, name, cuts }) => {
    const base64 = Buffer.from(bytes).toString(isUrlSafe ? 'base64url' : 'base64');
    const padded = isPadded && isUrlSafe ? base64.padEnd(Math.ceil(base64.length / 4) * 4, '=') : base64;
    const payload = isPadded ? padded : padded.replace(/=+$/, '');
    const uri = [...`data:image/png;base64,`].map((c, i) => spelled(c, choices[i % choices.length] ?? 0)).join('');
    const data = [...payload]
      .map(
        (c, i) => spelled(c, choices[(i * 7) % choices.length] ?? 0) + (i % 5 === 4 ? breaks[i % breaks.length] : ''),
      )
      .join('');
    const inside = (object: object): string => JSON.stringify(object, null, space.includes(' ') ? 2 : 0).slice(1, -1);
    const parts = [inside(before), `${name}${space}:${space}"${uri}${data}"`, inside(after)];
    return {
      bytes,
      cuts,
      answer: `${space}{${space}${parts.filter((part) => part.trim() !== '').join(`${space},`)}${space}}${space}`,
    };
  });

describe('an envelope around a data URI', () => {
  it('gives the bytes inside, in whatever layout and in whatever pieces it comes', async () => {
    await fc.assert(
      fc.asyncProperty(envelope, async ({ bytes, answer, cuts }) => {
        JSON.parse(answer); // The test's own work must be JSON.
        const asset = await read(answer, { cuts, isDelimited: false });
        expect(asset.mediaType).toBe('image/png');
        expect(asset.bytes).toEqual(Buffer.from(bytes));
      }),
      { numRuns: 1_000 },
    );
  });

  it('gives the same in pieces of one byte', async () => {
    await fc.assert(
      fc.asyncProperty(envelope, async ({ bytes, answer }) => {
        const cuts = Array.from(Buffer.from(answer).keys());
        expect((await read(answer, { cuts, isDelimited: false })).bytes).toEqual(Buffer.from(bytes));
      }),
      { numRuns: 100 },
    );
  });

  it('that is cut is damaged, wherever it was cut', async () => {
    await fc.assert(
      fc.asyncProperty(envelope, fc.nat(), async ({ answer, cuts }, at) => {
        const whole = Buffer.from(answer.trimEnd());
        await damaged(whole.subarray(0, at % whole.byteLength), { cuts, isDelimited: false });
      }),
      { numRuns: 1_000 },
    );
    const whole = Buffer.from('{"a":[1],"data":"data:image\\/png;base64,aGVsbG8\\u002fAA==","b":{"c":"}"}}');
    for (let length = 0; length < whole.byteLength; length += 1) {
      await damaged(whole.subarray(0, length), { isDelimited: false });
      if (length > 0) await damaged(whole.subarray(0, length), { length: whole.byteLength });
    }
  });

  it('never gives bytes that are not the asset, whichever of its bytes is another', async () => {
    const content = Buffer.from('The asset, all of it, and nothing but it; ÿ and so on?>');
    const text = `{"data":"data:image/png;base64,${content.toString('base64')}","id":7}`;
    const start = text.indexOf(',') + 1;
    const end = text.indexOf('"', start);
    for (let at = start; at < end; at += 1) {
      for (let byte = 0; byte < 256; byte += 1) {
        const flipped = Buffer.from(text);
        flipped[at] = byte;
        const character = String.fromCharCode(byte);
        // Other base64 in its place cannot be found out.
        if (/[A-Za-z0-9+/_-]/.test(character)) continue;
        const outcome = await decoded(flipped).catch((error: unknown) => error);
        if (outcome instanceof DamagedAssetError) continue;
        // Only padding may vanish: without it the rest is complete.
        expect([at, byte, outcome]).toEqual([at, byte, content.toString('latin1')]);
        expect(text[at]).toBe('=');
      }
    }
  });

  it('is found out however the JSON around the data is broken', async () => {
    const data = '"data":"data:;base64,QUJD"';
    await damaged(`{${data}}}`);
    await damaged(`{${data}} x`);
    await damaged(`{${data}}{}`);
    await damaged(`{${data}]`);
    await damaged(`{${data},}`);
    await damaged(`{${data} "b":1}`);
    await damaged(`{"a":nope,${data}}`);
    await damaged(`{"a" 1,${data}}`);
    await damaged(`{"a":"\n",${data}}`);
    await damaged(`{${data},"b":01}`);
    await damaged(`{${data},"data":"data:;base64,REVG"}`);
  });

  it.each([
    ['a character that is not base64', 'QUJD*EJD'],
    ['a character that is not ASCII', 'QUJDü'],
    ['a line break that is not escaped', 'QUJD\nQUJD'],
    ['a line break that is not escaped beside one that is', 'QU\\nJD\nQUJD'],
    ['an unknown escape', 'QU\\xJD'],
    ['an escaped quote', 'QUJD\\"'],
    ['one character too many', 'QUJDQ'],
    ['padding that is too long', 'QUJD='],
    ['padding that is too short', 'QQ='],
    ['three of padding', 'Q==='],
    ['padding alone', '=='],
    ['data behind the padding', 'QQ==QUJD'],
    ['data behind the padding, after a line break', 'QQ==\\nQUJD'],
    ['padding in the middle of a group', 'QU=D'],
    ['bits at the end that nobody encodes', 'QR=='],
    ['bits at the end that nobody encodes, without padding', 'QUK'],
  ])('with %s is damaged', async (_, data) => {
    await damaged(`{"data":"data:image/png;base64,${data}"}`);
    const behindMany = `${'QUJD'.repeat(30_000)}${data}`;
    await damaged(`{"data":"data:image/png;base64,${behindMany}"}`);
  });

  it.each([
    ['data:image/png;base64,', 'image/png'],
    ['DATA:image/png;BASE64,', 'image/png'],
    ['data:text/plain;charset=utf-8;base64,', 'text/plain;charset=utf-8'],
    ['data:text/plain; charset=utf-8 ;base64,', 'text/plain;charset=utf-8'],
    ['data:model\\/gltf-binary;base64\\u002c', 'model/gltf-binary'],
    ['data:;base64,', 'text/plain;charset=US-ASCII'],
    ['data:;charset=utf-8;base64,', 'text/plain;charset=utf-8'],
    ['data:no media type;base64,', 'application/octet-stream'],
  ])('that begins with %s is of the media type %s', async (uri, mediaType) => {
    const asset = await read(`{"data":"${uri}QUJD"}`);
    expect(asset).toEqual({ mediaType, bytes: Buffer.from('ABC') });
  });

  it('is decoded whatever media type the answer claims', async () => {
    const answer = '{"data":"data:model/gltf-binary;base64,QUJD"}';
    for (const mediaType of ['application/json', 'application/vnd.api+json', 'model/gltf-binary', 'text/html']) {
      expect(await read(answer, { mediaType })).toMatchObject({ mediaType: 'model/gltf-binary' });
    }
    expect(await decoded(`\uFEFF${answer}`)).toBe('ABC');
  });

  it.each([
    ['hello%20world', 'hello world'],
    ['%00%ff%7E', '\x00\xff~'],
    ['say%20\\"hi\\"', 'say "hi"'],
    ['100%25', '100%'],
    ['a\\u0020b+c', 'a b+c'],
    ['', ''],
  ])('without base64 is percent-decoded: %s', async (data, content) => {
    const answer = `{"data":"data:text/plain,${data}"}`;
    for (const cuts of [[], Array.from(answer, (_, index) => index)]) {
      expect(await read(answer, { cuts })).toEqual({ mediaType: 'text/plain', bytes: Buffer.from(content, 'latin1') });
    }
  });

  it.each(['%', '%2', '%zz', 'a%', 'ä', '\\u00e4', '\t'])('without base64 is damaged by %j', async (data) => {
    await damaged(`{"data":"data:text/plain,${data}"}`);
  });

  it('of megabytes comes whole, whatever the size of the pieces, also full of escapes and line breaks', async () => {
    const content = Buffer.alloc(3 * MIB + 1, Buffer.from('megabytes ÿÿÿ of them?'));
    const base64 = content.toString('base64');
    const lines = base64.replace(/.{76}/g, '$&\\r\\n');
    for (const data of [base64, base64.replaceAll('/', '\\/'), lines]) {
      const answer = Buffer.from(`{"id":1,"data":"data:image/png;base64,${data}","more":[{}]}`);
      for (const size of [16_384, 65_536, 99_999, answer.byteLength]) {
        const cuts = Array.from({ length: Math.ceil(answer.byteLength / size) }, (_, index) => index * size);
        expect((await read(answer, { cuts, isDelimited: false })).bytes.equals(content)).toBe(true);
      }
    }
  });

  it('may be followed by much, but not without end', async () => {
    const start = '{"data":"data:;base64,QUJD","more":"';
    expect(await decoded(`${start}${'x'.repeat(900_000)}"}`)).toBe('ABC');
    await damaged(`${start}${'x'.repeat(2 * MIB)}"}`, { cuts: [MIB] });
    await damaged(`{"data":"data:${'x'.repeat(10_000)};base64,QUJD"}`);
  });

  it('is decoded if its data begins at the last place looked at, and stays as it is behind that', async () => {
    const answerAt = (place: number): string => {
      const start = '{"pad":"","data":"';
      return `${start.replace('""', `"${'x'.repeat(place - start.length)}"`)}data:;base64,QUJD"}`;
    };
    expect(await decoded(answerAt(SCAN_BYTES_MAX))).toBe('ABC');
    const beyond = answerAt(SCAN_BYTES_MAX + 1);
    expect(await decoded(beyond)).toBe(beyond);
  });
});

describe('an answer that is the asset itself', () => {
  const answers = [
    '',
    'glTF\x02\x00\x00\x00',
    '{"asset":{"version":"2.0"},"buffers":[{"uri":"data:application/octet-stream;base64,QUJD"}]}',
    '{"data":{"data":"data:image/png;base64,QUJD"}}',
    '{"a":{"data":"data:image/png;base64,QUJD"}}',
    '["data","data:image/png;base64,QUJD"]',
    '{"a":"data","b":"data:image/png;base64,QUJD"}',
    '{"data":"hello"}',
    '{"data":"database, of sorts"}',
    '{"data":"data: none"}',
    '{"data":["data:image/png;base64,QUJD"]}',
    '{"data":null}',
    '{"Data":"data:image/png;base64,QUJD"}',
    '{}',
    '{',
    '{"dat',
    '  {\\rtf1 "data":',
    '"data:image/png;base64,QUJD"',
  ];

  it.each(answers)('stays as it is: %j', async (answer) => {
    for (const cuts of [[], Array.from(answer, (_, index) => index)]) {
      const asset = await read(Buffer.from(answer, 'latin1'), { cuts, mediaType: 'model/gltf+json' });
      expect(asset).toEqual({ mediaType: 'model/gltf+json', bytes: Buffer.from(answer, 'latin1') });
    }
  });

  it('stays as it is whatever its bytes, in whatever pieces', async () => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 300 }), fc.array(fc.nat(300)), async (bytes, cuts) => {
        expect((await read(bytes, { cuts, length: bytes.byteLength })).bytes).toEqual(Buffer.from(bytes));
      }),
    );
  });

  it('is damaged if it is shorter or longer than announced', async () => {
    await damaged('glTF and more', { length: 12 });
    await damaged('glTF and more', { length: 14 });
    await damaged('', { length: 1 });
  });

  it('is refused if nothing says where it ends', async () => {
    await damaged('glTF and more', { isDelimited: false });
  });
});

describe('a limit on the size', () => {
  it('lets through what is just as large, and nothing that is larger, in either form', async () => {
    const envelopeOfThree = '{"data":"data:;base64,QUJD"}';
    expect(await decoded(envelopeOfThree, { assetBytesMax: 3 })).toBe('ABC');
    expect(await decoded('ABC', { assetBytesMax: 3 })).toBe('ABC');
    await expect(read(envelopeOfThree, { assetBytesMax: 2 })).rejects.toThrow(AssetTooLargeError);
    await expect(read('ABC', { assetBytesMax: 2 })).rejects.toThrow(AssetTooLargeError);
  });
});

describe('the connection', () => {
  it('is let go of when the reader leaves early, when the data is damaged, and at the end', async () => {
    const answers = {
      'left early': `{"data":"data:;base64,${'QUJD'.repeat(200_000)}"}`,
      'left early, as it is': 'x'.repeat(200_000),
      damaged: '{"data":"data:;base64,*"}',
      'damaged at once': `{"data":"data:${'x'.repeat(10_000)}`,
      whole: '{"data":"data:;base64,QUJD"}',
    };
    for (const [name, answer] of Object.entries(answers)) {
      let isOpen = true;
      const body = async function* () {
        try {
          yield* pieces(Buffer.from(answer), [10, 20, 70_000]);
          yield Buffer.alloc(0);
        } finally {
          isOpen = false;
        }
      };
      const facts = { mediaType: 'x/y', isDelimited: true, assetBytesMax: MIB };
      const reading = async () => {
        for await (const _ of (await assetOf(body(), facts)).chunks) if (name.startsWith('left')) break;
      };
      if (name.startsWith('damaged')) await expect(reading()).rejects.toThrow(DamagedAssetError);
      else await reading();
      expect([name, isOpen]).toEqual([name, false]);
    }
  });
});
