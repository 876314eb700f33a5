import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ConfigurationError } from '../../functions/base/validation.ts';
import { parseContext } from '../../functions/settings/context.ts';
import {
  InvalidOverrideError,
  mayMatch,
  mediaTypeOf,
  type Route,
  type RouteSnapshot,
  routeFor,
  snapshot,
} from '../../functions/uploads/routes.ts';

const route = (conditions: Partial<Route> = {}): Route => ({ name: 'a', input: 'file', template: 't', ...conditions });
const matches = (conditions: Partial<Route>, key: string, mediaType = 'application/octet-stream') =>
  routeFor([route(conditions)], { key, mediaType }) !== undefined;

describe('routeFor', () => {
  it('takes the first route that matches, in their order', () => {
    const routes = [
      route({ name: 'png', suffixes: ['.png'] }),
      route({ name: 'pictures', mediaTypes: ['image/*'] }),
      route({ name: 'rest' }),
    ];
    const named = (key: string, mediaType: string) => routeFor(routes, { key, mediaType })?.name;
    expect(named('a.png', 'image/png')).toBe('png');
    expect(named('a.jpg', 'image/jpeg')).toBe('pictures');
    expect(named('a.txt', 'text/plain')).toBe('rest');
  });

  it('gives nothing where no route matches', () => {
    expect(routeFor([route({ suffixes: ['.png'] })], { key: 'a.txt', mediaType: 'text/plain' })).toBeUndefined();
  });

  it('needs every kind of condition to be met, by any one of its kind', () => {
    const conditions = { prefixes: ['in/', 'also/'], suffixes: ['.png', '.jpg'], mediaTypes: ['image/*'] };
    expect(matches(conditions, 'also/a.jpg', 'image/jpeg')).toBe(true);
    expect(matches(conditions, 'other/a.jpg', 'image/jpeg')).toBe(false);
    expect(matches(conditions, 'in/a.gif', 'image/jpeg')).toBe(false);
    expect(matches(conditions, 'in/a.jpg', 'text/plain')).toBe(false);
  });

  it.each([
    [{ suffixes: ['.png'] }, 'A.PNG'],
    [{ suffixes: ['.PNG'] }, 'a.png'],
    [{ prefixes: ['Größe/'] }, 'GRÖSSE/a'],
    [{ prefixes: ['ΟΔΟΣ'] }, 'οδοσ1'],
    [{ prefixes: ['ΟΔΟΣ'] }, 'οδος'],
    [{ suffixes: ['.ÉTÉ'] }, 'a.été'],
    [{ prefixes: ['Straẞe/'] }, 'straße/a'],
  ])('%j takes %s, whatever the case', (conditions, key) => {
    expect(matches(conditions, key)).toBe(true);
  });

  it('finds every key that starts and ends as wanted, in any case', () => {
    const text = fc.string({ unit: 'grapheme', minLength: 1, maxLength: 8 });
    fc.assert(
      fc.property(text, fc.string({ unit: 'grapheme' }), text, (prefix, middle, suffix) => {
        const key = prefix + middle + suffix;
        const conditions = { prefixes: [prefix], suffixes: [suffix] };
        expect(matches(conditions, key)).toBe(true);
        expect(matches({ prefixes: [prefix.toLowerCase()], suffixes: [suffix.toUpperCase()] }, key)).toBe(true);
        expect(matches(conditions, key.toLowerCase())).toBe(true);
        expect(matches(conditions, key.toUpperCase())).toBe(true);
      }),
    );
  });

  it.each([
    ['image/png', 'image/png', true],
    ['image/png', 'IMAGE/PNG; charset=x', true],
    ['IMAGE/PNG', 'image/png', true],
    ['image/*', 'image/svg+xml', true],
    ['*/*', 'application/octet-stream', true],
    ['image/*', 'imagery/png', false],
    ['image/png', 'image/pngx', false],
    ['text/plain', 'text/plain;charset=utf-8', true],
    ['text/plain', ' Text/Plain ;charset=utf-8', true],
    ['text/*', 'text', true],
    ['*/png', 'image/png', true],
    ['*/png', 'image/jpeg', false],
  ])('%s and %s: %s', (wanted, mediaType, expected) => {
    expect(matches({ mediaTypes: [wanted] }, 'a', mediaType)).toBe(expected);
  });
});

describe('a route of several media types', () => {
  it('takes any one of them', () => {
    expect(matches({ mediaTypes: ['text/plain', 'image/*'] }, 'a', 'image/png')).toBe(true);
    expect(matches({ mediaTypes: ['text/plain', 'image/*'] }, 'a', 'model/gltf-binary')).toBe(false);
  });
});

describe('mayMatch', () => {
  it('is false only where the key alone rules every route out', () => {
    const routes = [route({ prefixes: ['in/'], mediaTypes: ['image/*'] }), route({ suffixes: ['.glb'] })];
    expect(mayMatch(routes, 'in/anything')).toBe(true);
    expect(mayMatch(routes, 'x.GLB')).toBe(true);
    expect(mayMatch(routes, 'x.png')).toBe(false);
  });

  it('is true for every key that some media type would find a route for', () => {
    const key = fc.constantFrom('in/a.png', 'IN/b.txt', 'c.glb', 'in/', '');
    const condition = fc.option(fc.constantFrom('in/', '.png', '.TXT'), { nil: undefined });
    fc.assert(
      fc.property(key, condition, condition, fc.constantFrom('image/png', 'text/plain'), (k, prefix, suffix, type) => {
        const routes = [route({ ...(prefix && { prefixes: [prefix] }), ...(suffix && { suffixes: [suffix] }) })];
        expect(mayMatch(routes, k)).toBe(routeFor(routes, { key: k, mediaType: type }) !== undefined);
      }),
    );
  });
});

describe('mediaTypeOf', () => {
  it.each([
    ['image/png', 'a.txt', 'image/png'],
    ['Image/PNG; charset=x', 'a.txt', 'image/png'],
    [undefined, 'a.png', 'image/png'],
    [undefined, 'A.PNG', 'image/png'],
    ['', 'a.webp', 'image/webp'],
    ['binary/octet-stream', 'a.tiff', 'image/tiff'],
    ['application/octet-stream', 'dir.with.dots/a.glb', 'model/gltf-binary'],
    ['application/octet-stream', 'a.txt', 'text/plain'],
    [undefined, 'dir.png/a', 'application/octet-stream'],
    [undefined, 'png', 'application/octet-stream'],
    [undefined, 'a.b/c.d/png', 'application/octet-stream'],
    [undefined, 'dir.x/png', 'application/octet-stream'],
    [' image/png ; charset=x', 'a.txt', 'image/png'],
    ['BINARY/octet-stream', 'a.png', 'image/png'],
    ['x image/png', 'a.jpg', 'image/jpeg'],
    ['image/png x', 'a.jpg', 'image/jpeg'],
    [undefined, 'a.unheard-of', 'application/octet-stream'],
    ['nonsense', 'a.jpg', 'image/jpeg'],
    ['image/png,evil', 'a.jpg', 'image/jpeg'],
  ])('Content-Type %s of %s is %s', (contentType, key, expected) => {
    expect(mediaTypeOf(contentType, key)).toBe(expected);
  });
});

describe('snapshot', () => {
  const open = route({ overrides: true, parameters: { quality: 'low' }, additional: { team: 'a' } });

  it('keeps what the entry needs of its route and nothing else', () => {
    expect(snapshot(route({ prefixes: ['in/'], parameters: { seed: 1 } }))).toEqual({
      name: 'a',
      input: 'file',
      template: 't',
      parameters: { seed: 1 },
    } satisfies RouteSnapshot);
  });

  it('does not look at metadata where the route does not allow it', () => {
    const metadata = { 'flow-template': 'expensive', 'flow-parameters': '{{{' };
    expect(snapshot(route(), metadata)).toEqual(snapshot(route()));
  });

  it('lets metadata replace template, parameters and additional where the route allows it', () => {
    const metadata = { 'flow-template': 'other', 'flow-parameters': '{"seed":7}', 'flow-additional': '{"team":"b"}' };
    expect(snapshot(open, metadata)).toMatchObject({
      template: 'other',
      parameters: { seed: 7 },
      additional: { team: 'b' },
    });
  });

  it('keeps what the metadata does not replace', () => {
    expect(snapshot(open, { 'flow-parameters': 'null', unrelated: 'x' })).toMatchObject({
      template: 't',
      parameters: null,
      additional: { team: 'a' },
    });
  });

  it.each([
    ['flow-parameters', '{"seed":', 'expected JSON'],
    ['flow-parameters', '', 'expected JSON'],
    ['flow-additional', '[1]', 'expected an object'],
    ['flow-additional', '"a"', 'expected an object'],
    ['flow-additional', '{"flowdrop":{"upload":"forged"}}', 'our own tag'],
    ['flow-template', ' ', 'template'],
    ['flow-template', 'x'.repeat(257), '256 characters'],
    ['flow-template', '=?UTF-8?B?/w==?=', 'readable UTF-8'],
    ['flow-template', '=?no-such-charset?Q?a?=', 'readable UTF-8'],
  ])('refuses %s: %s, naming the header', (header, value, why) => {
    const act = () => snapshot(open, { [header]: value });
    expect(act).toThrow(InvalidOverrideError);
    expect(act).toThrow(`metadata ${header}: `);
    expect(act).toThrow(why);
  });

  it('says why by a code of its own, with what it met', () => {
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

  it('takes JSON that is nested as deeply as it may be', () => {
    expect(snapshot(open, { 'flow-parameters': JSON.stringify(nested(32)) }).parameters).toEqual(nested(32));
    expect(snapshot(open, { 'flow-additional': '{"a":null,"b":"text"}' }).additional).toEqual({ a: null, b: 'text' });
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
  ])('reads words as S3 encodes them: %s', (value, template) => {
    expect(snapshot(open, { 'flow-template': value }).template).toBe(template);
  });

  it('cuts a long bad value short', () => {
    expect(() => snapshot(open, { 'flow-parameters': 'x'.repeat(2000) })).toThrow(/^.{1,200}$/);
  });

  it.each([
    ['=?UTF-8?B?eyJhIjoiw6QifQ==?=', { a: 'ä' }],
    ['=?utf-8?q?{"a":"=C3=A4_b"}?=', { a: 'ä b' }],
    ['=?UTF-8?Q?{"a":"=C3?= =?UTF-8?Q?=A4"}?=', { a: 'ä' }],
    ['=?UTF-8?B?eyJhIjoi?= =?UTF-8?B?w6QifQ==?=', { a: 'ä' }],
    ['=?ISO-8859-1?Q?{"a":"=E4"}?=', { a: 'ä' }],
    ['{"a": =?UTF-8?Q?"=C3=A4"?= }', { a: 'ä' }],
    ['{"a":"=?"}', { a: '=?' }],
  ])('decodes %s', (value, expected) => {
    expect(snapshot(open, { 'flow-parameters': value }).parameters).toEqual(expected);
  });

  it('decodes any text, in either encoding and wherever it was cut', () => {
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

const words = (what: string, max: number) =>
  `expected ${what} of 1 to ${max} characters, none of them a control character`;
const nested = (depth: number): unknown => (depth === 0 ? 1 : [nested(depth - 1)]);

/** What a route cannot have, and what is said of it. */
const WRONG: readonly (readonly [fields: object, message: string])[] = [
  [{ name: 5 }, `routes[0].name: ${words('a name', 64)}, got 5`],
  [{ name: '' }, `routes[0].name: ${words('a name', 64)}, got ""`],
  [{ name: 'x'.repeat(65) }, `routes[0].name: ${words('a name', 64)}, got "xxx`],
  [{ name: '\na' }, `routes[0].name: ${words('a name', 64)}, got "\\na"`],
  [{ name: 'a\n' }, `routes[0].name: ${words('a name', 64)}, got "a\\n"`],
  [{ template: undefined }, `routes[0].template: ${words('the id or name of a template', 256)}, but it is missing`],
  [{ template: 'x'.repeat(257) }, `routes[0].template: ${words('the id or name of a template', 256)}, got`],
  [{ prefixes: 'in/' }, 'routes[0].prefixes: expected a list of 1 to 200 prefixes, or nothing at all, got "in/"'],
  [{ prefixes: [] }, 'routes[0].prefixes: expected a list of 1 to 200 prefixes, or nothing at all, got []'],
  [{ prefixes: Array(201).fill('a') }, 'routes[0].prefixes: expected a list of 1 to 200 prefixes, or nothing at all'],
  [{ prefixes: ['x'.repeat(1025)] }, `routes[0].prefixes[0]: ${words('a prefix', 1024)}`],
  [{ suffixes: [5] }, `routes[0].suffixes[0]: ${words('a suffix', 1024)}, got 5`],
  [{ suffixes: 5 }, 'routes[0].suffixes: expected a list of 1 to 200 suffixes, or nothing at all, got 5'],
  [{ mediaTypes: 5 }, 'routes[0].mediaTypes: expected a list of 1 to 200 media types, or nothing at all, got 5'],
  ...[5, '', 'image', 'image/png;a=b', ' image/png', 'image/png ', 'a b/c', 'a/b/c', '/', 'image/', 'é/a'].map(
    (type): readonly [object, string] => [
      { mediaTypes: [type] },
      `routes[0].mediaTypes[0]: expected a media type such as "image/png", "image/*" or "*/*", without parameters, got ${JSON.stringify(type)}`,
    ],
  ),
  [{ overrides: 'yes' }, 'routes[0].overrides: expected true or false, got "yes"'],
  [{ additional: [] }, 'routes[0].additional: expected an object, got []'],
  [
    { additional: { a: nested(33) } },
    'routes[0].additional.a: expected something that JSON can say, nested at most 32',
  ],
  [{ parameters: { a: 1, b: nested(32), c: 1 } }, 'routes[0].parameters: expected something that JSON can say, nested'],
  [{ parameters: nested(33) }, 'routes[0].parameters: expected something that JSON can say, nested at most 32 deep'],
];

describe('the list of routes', () => {
  const parse = (routes: unknown) => parseContext({ baseUrl: 'https://flows.example.com', routes }).routes;

  it('takes a route with every field, and one without a condition', () => {
    const full: Route = {
      name: 'full',
      prefixes: ['in/'],
      suffixes: ['.png'],
      mediaTypes: ['image/*'],
      input: 'text',
      template: 't',
      parameters: [1, { a: null }],
      additional: { b: 2 },
      overrides: true,
    };
    expect(parse([full, { name: 'rest', template: 't' }])).toEqual([full, route({ name: 'rest' })]);
  });

  it.each<readonly [string, unknown, string]>([
    [
      'two routes of one name',
      [route(), route()],
      'flowdrop.routes[1].name: expected a name that routes[0] does not have',
    ],
    ['no routes', [], 'flowdrop.routes: expected a list of 1 to 200 routes, got []'],
    [
      'an unknown field',
      [{ ...route(), sufixes: ['.png'] }],
      'flowdrop.routes[0].sufixes: unknown, expected only name',
    ],
    ['an empty list of suffixes', [route({ suffixes: [] })], 'flowdrop.routes[0].suffixes: expected a list of 1'],
    ['an empty suffix', [route({ suffixes: [''] })], 'flowdrop.routes[0].suffixes[0]: expected a suffix of 1'],
    [
      'a media type with parameters',
      [route({ mediaTypes: ['a/b; c=d'] })],
      'flowdrop.routes[0].mediaTypes[0]: expected',
    ],
    [
      'an unknown input',
      [{ ...route(), input: 'json' }],
      'flowdrop.routes[0].input: expected "file" or "text", got "json"',
    ],
    ['our own tag', [route({ additional: { flowdrop: 1 } })], 'flowdrop.routes[0].additional: expected no "flowdrop"'],
    ...WRONG.map(
      ([fields, message]) => [JSON.stringify(fields).slice(0, 40), [{ ...route(), ...fields }], message] as const,
    ),
  ])('refuses %s', (_, routes, message) => {
    expect(() => parse(routes)).toThrow(ConfigurationError);
    expect(() => parse(routes)).toThrow(message);
  });
});
