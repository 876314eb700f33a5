import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Route } from '../../functions/uploads/route.ts';
import {
  type GivenOverrides,
  InvalidOverrideError,
  type RouteSnapshot,
  snapshot,
} from '../../functions/uploads/route-snapshot.ts';

const route = (conditions: Partial<Route> = {}): Route => ({ name: 'a', input: 'file', template: 't', ...conditions });
const nested = (depth: number): unknown => (depth === 0 ? 1 : [nested(depth - 1)]);

describe('snapshot', () => {
  const open = route({ overrides: true, parameters: { quality: 'low' }, additional: { team: 'a' } });

  it('keeps the members that an entry needs, and no others', () => {
    expect(snapshot(route({ prefixes: ['in/'], parameters: { seed: 1 } }))).toEqual({
      name: 'a',
      input: 'file',
      template: 't',
      parameters: { seed: 1 },
      revision: { hash: expect.stringMatching(/^[0-9a-f]{12}$/) },
    } satisfies RouteSnapshot);
  });

  it('keeps the metadata that may replace parts of the route, whatever its order, and no other metadata', () => {
    const metadata = { 'flow-template': 'other', 'flow-parameters': '{"a":1}' };
    const kept = snapshot(open, { ...metadata, mtime: '5' }).metadata;
    expect(JSON.parse(kept ?? '')).toEqual(metadata);
    expect(snapshot(open, Object.fromEntries(Object.entries(metadata).toReversed())).metadata).toBe(kept);
    expect(snapshot(open, { mtime: '5' })).not.toHaveProperty('metadata');
  });

  it('keeps the price, if the route has one', () => {
    const price = { amount: 0.4, currency: 'EUR' };
    expect(snapshot(route({ price })).price).toEqual(price);
    expect(snapshot(route())).not.toHaveProperty('price');
  });

  it('ignores metadata if the route does not allow overrides', () => {
    const metadata = { 'flow-template': 'expensive', 'flow-parameters': '{{{' };
    expect(snapshot(route(), metadata)).toEqual(snapshot(route()));
  });

  it('refuses other parameters for a retry if the route does not allow overrides', () => {
    expect(() => snapshot(route(), {}, { parameters: { seed: 2 } })).toThrow(
      new InvalidOverrideError('The retry came with other parameters or another template, and the route a allows none'),
    );
    const metadata = { 'flow-parameters': '{"seed":1}' };
    expect(snapshot(open, metadata, { parameters: { seed: 2 } }).parameters).toEqual({ seed: 2 });
    expect(snapshot(open, metadata).parameters).toEqual({ seed: 1 });
  });

  it('lets the operator replace the template alone, the parameters alone, or both', () => {
    const metadata = { 'flow-template': 'm', 'flow-parameters': '{"seed":1}' };
    const sent = (given: GivenOverrides) => {
      const { template, parameters } = snapshot(open, metadata, given);
      return [template, parameters];
    };
    expect(sent({ template: 'mine' })).toEqual(['mine', { seed: 1 }]);
    expect(sent({ parameters: null })).toEqual(['m', null]);
    expect(sent({ template: 'mine', parameters: { seed: 2 } })).toEqual(['mine', { seed: 2 }]);
  });

  it('has another revision if the route makes other flows, or has another name for them, and not otherwise', () => {
    const hash = (conditions: Partial<Route>, metadata = {}) => snapshot(route(conditions), metadata).revision?.hash;
    const base = { overrides: true, parameters: { a: 1, b: { c: 2, d: 3 } } };
    const same = { prefixes: ['in/'], price: { amount: 1, currency: 'EUR' }, parameters: { b: { d: 3, c: 2 }, a: 1 } };
    expect(hash({ ...base, ...same }, { 'flow-template': 'm' })).toBe(hash(base));
    const others = [
      { template: 'u' },
      { input: 'text' },
      { parameters: { a: 1 } },
      { additional: { a: 1 } },
      { revision: '2' },
    ] as const;
    const hashes = [hash(base), ...others.map((other) => hash({ ...base, ...other }))];
    expect(new Set(hashes).size).toBe(hashes.length);
    expect(snapshot(route({ revision: '2' })).revision?.name).toBe('2');
  });

  it('lets metadata replace template, parameters and additional if the route allows it', () => {
    const metadata = { 'flow-template': 'other', 'flow-parameters': '{"seed":7}', 'flow-additional': '{"team":"b"}' };
    expect(snapshot(open, metadata)).toMatchObject({
      template: 'other',
      parameters: { seed: 7 },
      additional: { team: 'b' },
    });
  });

  it('keeps the members that the metadata does not replace', () => {
    expect(snapshot(open, { 'flow-parameters': 'null', unrelated: 'x' })).toMatchObject({
      template: 't',
      parameters: null,
      additional: { team: 'a' },
    });
  });

  it.each([
    ['flow-parameters', '{"seed":', 'expected JSON'],
    ['flow-parameters', '', 'expected JSON'],
    ['flow-parameters', '['.repeat(1_900), 'expected JSON'],
    ['flow-parameters', JSON.stringify(nested(33)), 'at most 32 deep'],
    ['flow-parameters', '=?UTF-8?B?eyJh', 'expected JSON'],
    ['flow-parameters', '=?UTF-8?X?e30=?=', 'expected JSON'],
    ['flow-parameters', `=?UTF-8?Q?${'='.repeat(900)}`, 'expected JSON'],
    ['flow-parameters', '=?a?q?'.repeat(300), 'expected JSON'],
    ['flow-additional', 'null', 'expected an object'],
    ['flow-additional', '[1]', 'expected an object'],
    ['flow-additional', '"a"', 'expected an object'],
    ['flow-additional', '{"flowdrop":{"upload":"forged"}}', 'our own tag'],
    ['flow-additional', '{"\\u0066lowdrop":1}', 'our own tag'],
    ['flow-template', '', 'template'],
    ['flow-template', ' ', 'template'],
    ['flow-template', '=?UTF-8?B?YQpi?=', 'control character'],
    ['flow-template', 'x'.repeat(257), '256 characters'],
    ['flow-template', '=?UTF-8?B?/w==?=', 'readable UTF-8'],
    ['flow-template', '=?no-such-charset?Q?a?=', 'readable UTF-8'],
  ])('refuses %s: %s, and names the header', (header, value, why) => {
    const act = () => snapshot(open, { [header]: value });
    expect(act).toThrow(InvalidOverrideError);
    expect(act).toThrow(`metadata ${header}: `);
    expect(act).toThrow(why);
  });

  it('has an error code of its own, and a cause', () => {
    const refused = (header: string, value: string): unknown => {
      try {
        return snapshot(open, { [header]: value });
      } catch (error) {
        return error;
      }
    };
    expect(refused('flow-parameters', '{')).toMatchObject({
      name: 'InvalidOverrideError',
      code: 'invalid-override',
      message: 'metadata flow-parameters: expected JSON in readable UTF-8, got "{"',
      cause: expect.any(SyntaxError),
    });
    expect(refused('flow-additional', `${'{"a":'.repeat(34)}1${'}'.repeat(34)}`)).toMatchObject({
      message: expect.stringContaining('nested at most 32 deep'),
      cause: expect.anything(),
    });
  });

  it.each(['653247040368672771', '-653247040368672771', '1e400', '9007199254740993', '123456789012345678.5'])(
    'refuses a number that would be sent with other digits: %s',
    (number) => {
      for (const text of [`{"seed":${number}}`, `{"a":[{"b":${number}}]}`, number]) {
        expect(() => snapshot(open, { 'flow-parameters': text })).toThrow('expected no number beyond 2^53');
      }
      expect(() => snapshot(open, { 'flow-additional': `{"seed":${number}}` })).toThrow('write it as a text');
    },
  );

  it.each(['9007199254740991', '-9007199254740991', '1e21', '0.1', '-0', '"653247040368672771"'])(
    'takes a number that loses nothing: %s',
    (number) => {
      const { parameters } = snapshot(open, { 'flow-parameters': `{"seed":${number}}` });
      expect(parameters).toEqual({ seed: JSON.parse(number) });
    },
  );

  it('accepts JSON at the maximum depth', () => {
    expect(snapshot(open, { 'flow-parameters': JSON.stringify(nested(32)) }).parameters).toEqual(nested(32));
    expect(snapshot(open, { 'flow-additional': '{"a":null,"b":"text"}' }).additional).toEqual({ a: null, b: 'text' });
    expect(snapshot(open, { 'flow-additional': '{"a":1,"a":2}' }).additional).toEqual({ a: 2 });
    const odd = '{"__proto__":{"flowdrop":1},"a":2}';
    expect(JSON.stringify(snapshot(open, { 'flow-additional': odd }).additional)).toBe(odd);
  });

  it.each([
    ['=?UTF-8?B?YQ==?=', 'a'],
    ['=?UTF-8?B?YQ==?= =?UTF-8?B?Yg==?=', 'ab'],
    ['=?UTF-8?B?YQ==?=  \t =?UTF-8?B?Yg==?=', 'ab'],
    ['=?UTF-8?B?ww==?= =?UTF-8?B?pA==?=', 'ä'],
    ['=?UTF-8?Q?=C3?= =?utf-8?q?=A4?=', 'ä'],
    ['=?ISO-8859-1?Q?=E4?= =?UTF-8?Q?=C3=A4?=', 'ää'],
    ['=?UTF-8?Q?a?= b =?UTF-8?Q?c?=', 'a b c'],
    ['=?UTF-8?Q?a?=b=?UTF-8?Q?c?=', 'abc'],
    ['=?UTF-8?Q?a?==?UTF-8?Q?b?=', 'ab'],
    ['x =?UTF-8?Q?a_b=20c?= y', 'x a b c y'],
    ['=?UTF-8?Q??=a', 'a'],
    ['=?UTF-8?Q?a?= ', 'a'],
    // The example of AWS: S3 has read the UTF-8 of a header as Latin-1.
    ['=?UTF-8?B?w4PChE3Dg8KEWsODwpXDg8KRIFMz?=', 'ÄMÄZÕÑ S3'],
    [Buffer.from('Möbel 🪑').toString('latin1'), 'Möbel 🪑'],
    ['caf\xe9 \xa9', 'café ©'],
    ['=?UTF-8?Q?=C3=83=C2=B6_=E2=82=AC?=', 'Ã¶ €'],
  ])('decodes words as S3 encodes them: %s', (value, template) => {
    expect(snapshot(open, { 'flow-template': value }).template).toBe(template);
  });

  it('quotes only the beginning of a long invalid value', () => {
    expect(() => snapshot(open, { 'flow-parameters': 'x'.repeat(2000) })).toThrow(/^.{1,200}$/);
  });

  it.each([
    ['=?UTF-8?B?eyJhIjoiw6QifQ==?=', { a: 'ä' }],
    ['{"a": =?UTF-8?Q?"=C3=A4"?= }', { a: 'ä' }],
    ['{"a":"=?"}', { a: '=?' }],
  ])('decodes the words within JSON in the same way: %s', (value, expected) => {
    expect(snapshot(open, { 'flow-parameters': value }).parameters).toEqual(expected);
  });

  it('decodes any text, in either encoding, cut at any byte', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme' }), fc.nat(), fc.boolean(), (text, at, quoted) => {
        const bytes = Buffer.from(JSON.stringify(text));
        const cut = at % (bytes.length + 1);
        const word = (part: Buffer) =>
          quoted
            ? `=?UTF-8?Q?${Array.from(part, (byte) => `=${byte.toString(16).padStart(2, '0')}`).join('')}?=`
            : `=?UTF-8?B?${part.toString('base64')}?=`;
        const value = `${word(bytes.subarray(0, cut))} ${word(bytes.subarray(cut))}`;
        expect(snapshot(open, { 'flow-parameters': value }).parameters).toBe(text);
      }),
    );
  });
});
