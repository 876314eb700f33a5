import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ConfigurationError } from '../../functions/base/validation.ts';
import { parseContext } from '../../functions/settings/context.ts';
import type { Route } from '../../functions/uploads/route.ts';
import {
  isLeftOut,
  isWantedByKey,
  mayMatch,
  routeFor,
  skippedNameOf,
  skipping,
  whySkipped,
} from '../../functions/uploads/routes.ts';
import { fittingName, SKIPPED_NAMES } from '../../functions/uploads/skipped-names.ts';
import { messagesOf } from '../settings/fixtures.ts';

const route = (conditions: Partial<Route> = {}): Route => ({ name: 'a', input: 'file', template: 't', ...conditions });
const matches = (conditions: Partial<Route>, key: string, mediaType = 'application/octet-stream') =>
  routeFor([route(conditions)], { key, mediaType }) !== undefined;

describe('routeFor', () => {
  it('returns the first route that matches, in their order', () => {
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

  it.each([
    ['photo.png/chain/optimised/', '0'.repeat(40), false],
    ['in/a/b/chain/a%20b/', '0123456789'.repeat(4), false],
    ['a\n/chain/chain/', 'f'.repeat(40), false],
    ['photo.png/chain/optimised/', '0'.repeat(39), true],
    ['photo.png/chain/optimised/', 'F'.repeat(40), true],
    ['photo.png/chain/optimised/', `${'0'.repeat(40)}.png`, true],
    ['photo.png/chain/', '0'.repeat(40), true],
    ['chain/optimised/', '0'.repeat(40), true],
    ['photo.png/chains/optimised/', '0'.repeat(40), true],
  ])('takes no key of a later stage, and every other one: %s%s', (start, end, isTaken) => {
    const key = start + end;
    expect([matches({}, key), mayMatch([route()], key), isWantedByKey([route()], key)]).toEqual(Array(3).fill(isTaken));
  });

  it('needs every condition to be met, by any of its values', () => {
    const mediaTypes = ['text/csv', 'image/*'];
    const conditions = { prefixes: ['in/', 'also/'], suffixes: ['.png', '.jpg'], mediaTypes };
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
  ])('%j matches %s, whatever the case', (conditions, key) => {
    expect(matches(conditions, key)).toBe(true);
  });

  it('matches every key with the prefix and the suffix, in any case', () => {
    const text = fc.string({ unit: 'grapheme', minLength: 1, maxLength: 8 });
    fc.assert(
      fc.property(text, fc.string({ unit: 'grapheme' }), text, (prefix, middle, suffix) => {
        const key = prefix + middle + suffix;
        fc.pre(fittingName(SKIPPED_NAMES, key) === undefined);
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
    ['image/jpeg', 'image/pjpeg', true],
    ['model/gltf-binary', 'model/gltf+binary', true],
    ['binary/octet-stream', 'application/octet-stream', true],
  ])('%s and %s: %s', (wanted, mediaType, expected) => {
    expect(matches({ mediaTypes: [wanted] }, 'a', mediaType)).toBe(expected);
  });

  it.each([
    ['M\u00f6bel/', 'Mo\u0308bel/a.png'],
    ['Mo\u0308bel/', 'M\u00f6bel/a.png'],
    ['M\u00f6bel/', 'MO\u0308BEL/a.png'],
    ['Neue M\u00f6bel/', 'Neue\u00a0Mo\u0308bel/a.png'],
    ['a b/', 'a\u202fb/a.png'],
    ['a\u00a0b/', 'a b/a.png'],
  ])('a prefix fits a key that is written in another form: %s', (prefix, key) => {
    expect(matches({ prefixes: [prefix] }, key)).toBe(true);
    expect(matches({ jobs: prefix }, key.replace('a.png', 'job.json'))).toBe(true);
  });

  it.each([
    ['-r\u00fcck.png', 'a-ru\u0308ck.png'],
    ['-ru\u0308ck.png', 'a-R\u00dcCK.PNG'],
    [' pm.png', 'Screenshot 10.15\u202fPM.png'],
  ])('a suffix fits a key that is written in another form: %s', (suffix, key) => {
    expect(matches({ suffixes: [suffix] }, key)).toBe(true);
  });

  it('several blanks are not one', () => {
    expect(matches({ prefixes: ['a b/'] }, 'a\u00a0 b/c.png')).toBe(false);
  });

  it('a form is taken by the route of the file in it, which refuses it', () => {
    const form = 'multipart/form-data; boundary=x';
    expect(matches({ mediaTypes: ['image/*'] }, 'a.png', form)).toBe(true);
    expect(matches({ mediaTypes: ['image/*'] }, 'a.txt', form)).toBe(false);
  });
});

/** One route that also needs the media type, and one that the key alone decides. */
const routes = [route({ prefixes: ['in/'], mediaTypes: ['image/*'] }), route({ suffixes: ['.glb'] })];

describe('isWantedByKey', () => {
  it('is true only if a route takes the key, whatever the object is', () => {
    expect(isWantedByKey(routes, 'x.glb')).toBe(true);
    expect(isWantedByKey(routes, 'in/a.png')).toBe(false);
    expect(isWantedByKey(routes, 'x.png')).toBe(false);
  });
});

describe('mayMatch', () => {
  it('is false only if the key alone excludes every route', () => {
    expect(mayMatch(routes, 'in/anything')).toBe(true);
    expect(mayMatch(routes, 'x.GLB')).toBe(true);
    expect(mayMatch(routes, 'x.png')).toBe(false);
  });

  it('is true for every key that has a route with some media type', () => {
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

const words = (what: string, max: number) =>
  `expected ${what} of 1 to ${max} characters, none of them a control character`;
const nested = (depth: number): unknown => (depth === 0 ? 1 : [nested(depth - 1)]);

/** Invalid members of a route, and the message for each. */
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
  [{ suffixes: [] }, 'routes[0].suffixes: expected a list of 1'],
  [{ suffixes: [''] }, 'routes[0].suffixes[0]: expected a suffix of 1'],
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
  [{ sufixes: ['.png'] }, 'routes[0].sufixes: unknown, expected only name'],
  [{ input: 'json' }, 'routes[0].input: expected "file" or "text", got "json"'],
  [{ alias: 5 }, 'routes[0].alias: expected a pattern such as "models/{folder}/{name}{ext}", got 5'],
  [{ alias: 'models/{what}' }, 'routes[0].alias: expected only {key}, {folder}, {name}, {n}, {ext} in braces'],
  [{ alias: `models/${'x'.repeat(501)}/{key}` }, 'routes[0].alias: expected at most 512 characters, got "models/xxx'],
  [{ revision: '' }, `routes[0].revision: ${words('a name', 64)}, got ""`],
  [{ review: 5 }, 'routes[0].review: expected true or false, got 5'],
  [{ deleteFlow: 5 }, 'routes[0].deleteFlow: expected true or false, got 5'],
  [{ parameters: { list: [1, { seed: 2 ** 60 }] } }, 'routes[0].parameters: expected no number beyond 2^53'],
  [{ overrides: 'yes' }, 'routes[0].overrides: expected true or false, got "yes"'],
  [{ afterSuccess: 'move' }, 'routes[0].afterSuccess: expected "tag" or "delete", got "move"'],
  [{ additional: [] }, 'routes[0].additional: expected an object, got []'],
  [{ additional: { flowdrop: 1 } }, 'routes[0].additional.flowdrop: expected no "flowdrop"'],
  [
    { additional: { a: nested(33) } },
    'routes[0].additional.a: expected something that JSON can say, nested at most 32',
  ],
  [{ parameters: { a: 1, b: nested(32), c: 1 } }, 'routes[0].parameters: expected something that JSON can say, nested'],
  [{ parameters: { seed: 2 ** 60 } }, 'routes[0].parameters: expected no number beyond 2^53'],
  [{ parameters: nested(33) }, 'routes[0].parameters: expected something that JSON can say, nested at most 32 deep'],
  ...['__proto__', 'constructor', 'toString', 'hasOwnProperty', '__defineGetter__'].map(
    (name): readonly [object, string] => [
      { name },
      `routes[0].name: expected another name, because every object of JavaScript has a member called like this, got "${name}"`,
    ],
  ),
  ...[false, { after: 20 }].map((circuit): readonly [object, string] => [
    { circuit },
    'routes[0].circuit: is gone, because one uploader could stop a route for all others. After twenty failures alike, ' +
      'the event Failures Alike and the alarm failures-alike tell of them',
  ]),
  [{ weight: 2 }, 'routes[0].weight: is gone: while files wait for their turns, these go round the routes evenly.'],
  ...[0, 2_592_001, 1.5, 'x'].map((deadlineSeconds): readonly [object, string] => [
    { jobs: 'm/', deadlineSeconds },
    `routes[0].deadlineSeconds: expected a whole number of seconds from 1 to 2592000, got ${JSON.stringify(deadlineSeconds)}`,
  ]),
  ...[0, 721].map((reviewHours): readonly [object, string] => [
    { reviewHours },
    `routes[0].reviewHours: expected a whole number of hours from 1 to 720, got ${reviewHours}`,
  ]),
  ...[0, 901, 1.5].map((settleSeconds): readonly [object, string] => [
    { settleSeconds },
    `routes[0].settleSeconds: expected a whole number of seconds from 1 to 900, got ${settleSeconds}`,
  ]),
  ...['/', 'a\n/', 'a/b', 'a/\n', 5].map((jobs): readonly [object, string] => [
    { jobs },
    'routes[0].jobs: expected a prefix with a slash at its end, of at most 1024 characters, ' +
      `none of them a control character, got ${JSON.stringify(jobs)}`,
  ]),
  [{ jobs: `${'x'.repeat(1024)}/` }, 'routes[0].jobs: expected a prefix with a slash at its end, of at most 1024'],
];

/** The smallest and the largest values of members with a limit. */
const AT_LIMITS: readonly object[] = [
  ...[1, 2_592_000].map((deadlineSeconds) => ({ jobs: 'm/', deadlineSeconds })),
  { jobs: `${'x'.repeat(1023)}/` },
  { alias: `models/${'x'.repeat(499)}/{key}` },
  ...(['tag', 'delete'] as const).map((afterSuccess) => ({ afterSuccess })),
  ...[1, 900].map((settleSeconds) => ({ settleSeconds })),
];

describe('a media type that is written with an extension', () => {
  it.each([
    ['image/jpg', 'image/jpeg'],
    ['image/JPG; q=1', 'image/jpeg'],
    ['text/txt', 'text/plain'],
    ['image/svg', 'image/svg+xml'],
    ['model/glb', 'model/gltf-binary'],
    ['image/x-png', 'image/png'],
    ['binary/octet-stream', 'application/octet-stream'],
  ])('%s fits a route for %s', (mediaType, wanted) => {
    const pictures = route({ name: 'a', mediaTypes: [wanted] });
    expect(routeFor([pictures], { key: 'a', mediaType })).toBe(pictures);
  });

  it.each(['audio/flac', 'text/x-foo', 'audio/mp3', 'application/octet-stream', 'image/png'])(
    '%s stands for itself',
    (mediaType) => {
      const own = route({ name: 'a', mediaTypes: [mediaType] });
      expect(routeFor([own], { key: 'a', mediaType })).toBe(own);
    },
  );
});

describe('a route of a later stage', () => {
  it('takes no upload of the inbox', () => {
    const later = route({ name: 'later', after: 'first' });
    expect(routeFor([later], { key: 'a.png', mediaType: 'image/png' })).toBeUndefined();
    expect([mayMatch([later], 'a.png'), isWantedByKey([later], 'a.png')]).toEqual([false, false]);
  });
});

describe('the list of routes', () => {
  const parse = (routes: unknown) => parseContext({ baseUrl: 'https://flows.example.com', routes }).routes;

  it('accepts a route with every member, and one without a condition', () => {
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

  it.each(AT_LIMITS)('accepts values at their limits: %j', (fields) => {
    expect(parse([{ ...route(), ...fields }])).toEqual([{ ...route(), ...fields }]);
  });

  /** Routes that each take other keys. */
  const many = (count: number) =>
    Array.from({ length: count }, (_, n) => route({ name: `route ${n}`, prefixes: [`${n}/`] }));

  it('has at most 200 routes', () => {
    expect(parse(many(200))).toHaveLength(200);
    for (const routes of [many(201), 5]) {
      expect(() => parse(routes)).toThrow('flowdrop.routes: expected a list of 1 to 200 routes, got ');
    }
  });

  it('compares no names that cannot be read', () => {
    const issues = messagesOf(() =>
      parse([
        { ...route(), name: 5 },
        { ...route(), name: 5 },
      ]),
    );
    expect(issues).toEqual([0, 1].map((n) => `flowdrop.routes[${n}].name: ${words('a name', 64)}, got 5`));
  });

  it('needs a price in the currency of a budget, if both can be read', () => {
    const budget = { amount: 1, currency: 'EUR', per: 'day', timezone: 'UTC' };
    const price = { amount: 1, currency: 'EUR' };
    const issues = (more: object) => messagesOf(() => parse([{ ...route(), ...more }]));
    const inEuros = 'flowdrop.routes[0].price: expected a price in EUR, the currency of the budget';
    expect(issues({ budget, price })).toEqual([]);
    expect(issues({ budget })).toEqual([`${inEuros}, but it is missing`]);
    const dollars = { amount: 1, currency: 'USD' };
    expect(issues({ budget, price: dollars })).toEqual([`${inEuros}, got {"amount":1,"currency":"USD"}`]);
    expect(issues({ budget, price: 5 })).toEqual([expect.stringContaining('.price: expected a price such as ')]);
    expect(issues({ budget: { ...budget, amount: 'x' } })).toEqual([expect.stringContaining('.budget.amount: ')]);
  });

  it.each<readonly [string, unknown, string]>([
    [
      'two routes of one name',
      [route(), route()],
      'flowdrop.routes[1].name: expected a name that routes[0] does not have',
    ],
    ['no routes', [], 'flowdrop.routes: expected a list of 1 to 200 routes, got []'],
    ...WRONG.map(
      ([fields, message]) => [JSON.stringify(fields).slice(0, 40), [{ ...route(), ...fields }], message] as const,
    ),
  ])('refuses %s', (_, routes, message) => {
    expect(() => parse(routes)).toThrow(ConfigurationError);
    expect(() => parse(routes)).toThrow(message);
  });
});

describe('the chains of routes', () => {
  const named = (name: string, more: Partial<Route> = {}) => ({ name, template: 't', ...more });
  const issuesOf = (...routes: readonly unknown[]) =>
    messagesOf(() => parseContext({ baseUrl: 'https://flows.example.com', routes }));
  /** A chain with this many stages. */
  const chainOf = (stages: number) =>
    Array.from({ length: stages }, (_, index) =>
      index === 0 ? named('stage1') : named(`stage${index + 1}`, { after: `stage${index}` }),
    );

  it('are accepted in any order, with branches, and with up to eight stages', () => {
    expect(issuesOf(...chainOf(8).toReversed(), named('branch', { after: 'stage1', inputs: 'each' }))).toEqual([]);
    expect(issuesOf(named('a'), named('b', { after: 'a', inputs: 'all', allow: 'partial', overrides: false }))).toEqual(
      [],
    );
  });

  it('are refused with every issue at once, each with its path and value', () => {
    const issues = issuesOf(
      named('draft'),
      named('like', { after: 'drfat' }),
      named('unlike', { after: 'nowhere' }),
      named('one', { after: 'three' }),
      named('two', { after: 'one' }),
      named('three', { after: 'two' }),
      named('behind', { after: 'one' }),
      named('itself', { after: 'itself' }),
      named('inputs', { inputs: 'each' }),
      named('allow', { after: 'draft', allow: 'partial' }),
      named('overrides', { after: 'draft', overrides: true }),
      named('tag', { after: 'draft', afterSuccess: 'tag' }),
    );
    const noCircle = 'expected a chain that begins with a route without "after"';
    expect(issues).toEqual([
      'flowdrop.routes[1].after: expected the name of another route, got "drfat". Did you mean draft?',
      'flowdrop.routes[2].after: expected the name of another route, got "nowhere"',
      `flowdrop.routes[3].after: ${noCircle}, got "three". This is a circle: two, then three, then one, then two.`,
      `flowdrop.routes[4].after: ${noCircle}, got "one". This is a circle: three, then one, then two, then three.`,
      `flowdrop.routes[5].after: ${noCircle}, got "two". This is a circle: one, then two, then three, then one.`,
      `flowdrop.routes[7].after: ${noCircle}, got "itself". This is a circle: itself, then itself.`,
      'flowdrop.routes[8].inputs: expected it only beside "after", the name of the route before, got "each"',
      'flowdrop.routes[9].allow: expected it only beside "inputs": "all", got "partial"',
      'flowdrop.routes[10].overrides: expected it only without "after": an asset has no metadata of yours, got true',
      'flowdrop.routes[11].afterSuccess: expected it only without "after": the first route of the chain says what becomes of the file, got "tag"',
    ]);
  });

  it('are refused with more than eight stages, at each stage that is too much', () => {
    const stages = (count: number) => Array.from({ length: count }, (_, at) => `stage${at + 1}`).join(', then ');
    const atMost = 'expected a chain of at most 8 stages';
    expect(issuesOf(...chainOf(10))).toEqual([
      `flowdrop.routes[8].after: ${atMost}, got "stage8". This one has 9: ${stages(9)}.`,
      `flowdrop.routes[9].after: ${atMost}, got "stage9". This one has 10: ${stages(10)}.`,
    ]);
  });

  it('are not looked at while a route cannot be read', () => {
    expect(issuesOf(named('a', { after: 'b' }), { template: 't' })).toEqual([
      expect.stringMatching(/^flowdrop\.routes\[1\]\.name: expected a name .*, but it is missing$/),
    ]);
  });

  it.each<[object, string]>([
    [{ after: 5 }, `routes[1].after: ${words('the name of a route', 64)}, got 5`],
    [{ inputs: 'some' }, 'routes[1].inputs: expected "each" or "all", got "some"'],
    [{ allow: true }, 'routes[1].allow: expected "partial", or nothing, got true'],
  ])('are refused with %j', (more, message) => {
    expect(issuesOf(named('a'), { ...named('b'), ...more })).toEqual([`flowdrop.${message}`]);
  });
});

describe('a route for jobs', () => {
  const jobs = route({ name: 'views', jobs: 'multi/' });
  const all = [route({ name: 'all' }), jobs];
  const taker = (key: string) => routeFor(all, { key, mediaType: 'text/plain' })?.name;

  it('owns its prefix, wherever it stands, and takes only the job files there', () => {
    expect(taker('multi/chair/job.json')).toBe('views');
    expect(taker('multi/job.json')).toBe('views');
    expect(taker('Multi/chair/job.json')).toBe('views');
    expect(taker('multi/chair/front.png')).toBeUndefined();
    expect(taker('multi/chair/JOB.json')).toBeUndefined();
    expect(taker('multi/chair/ajob.json')).toBeUndefined();
    expect(taker('multi.png')).toBe('all');
    expect(taker('job.json')).toBe('all');
    expect([mayMatch(all, 'multi/a.png'), isWantedByKey(all, 'multi/job.json')]).toEqual([false, true]);
  });

  const issuesOf = (...routes: readonly object[]) =>
    messagesOf(() =>
      parseContext({
        baseUrl: 'https://flows.example.com',
        routes: routes.map((each) => ({ template: 't', ...each })),
      }),
    );

  it.each([
    [{ name: 'a', jobs: 'multi' }, 'routes[0].jobs: expected a prefix with a slash at its end'],
    [{ name: 'a', jobs: 'multi/', suffixes: ['.png'] }, 'routes[0].suffixes: expected it only without "jobs"'],
    [{ name: 'a', jobs: 'multi/', after: 'b' }, 'routes[0].after: expected it only without "jobs"'],
    [{ name: 'a', jobs: 'm/', afterSuccess: 'tag' }, 'routes[0].afterSuccess: expected it only without "jobs"'],
    [{ name: 'a', deadlineSeconds: 60 }, 'routes[0].deadlineSeconds: expected it only beside "jobs"'],
    [{ name: 'a', jobs: 'multi/', settleSeconds: 60 }, 'routes[0].settleSeconds: expected it only without "jobs"'],
    [{ name: 'a', review: true }, 'routes[0].review: expected it only beside "after"'],
    [{ name: 'a', after: 'b', reviewHours: 1 }, 'routes[0].reviewHours: expected it only beside "review": true'],
    [{ name: 'a', after: 'b', settleSeconds: 60 }, 'routes[0].settleSeconds: expected it only without "after"'],
  ])('refuses %j', (first, message) => {
    expect(issuesOf(first, { name: 'b' }).join('\n')).toContain(message);
  });

  it('has no key in common with another one', () => {
    expect(issuesOf({ name: 'a', jobs: 'multi/' }, { name: 'b', jobs: 'Multi/big/' }).join('\n')).toContain(
      'routes[1].jobs: expected a prefix that has no key in common with that of routes[0], got "Multi/big/"',
    );
  });

  it('leaves nothing to a route whose prefixes are all below it', () => {
    expect(issuesOf({ name: 'a', prefixes: ['multi/x/'] }, { name: 'b', jobs: 'multi/' }).join('\n')).toContain(
      'routes[0]: can never match: routes[1] (b) takes all that it could',
    );
  });
});

describe('a file that no person meant', () => {
  const all = route({ name: 'all' });
  const pictures = route({ name: 'pictures', prefixes: ['in/'], suffixes: ['.png'] });

  it.each(['.DS_Store', 'in/.a.png', '.cache/a.png', 'in/a.part', 'in/A.PART', 'in/~$a.docx'])(
    'is skipped by its name: %s',
    (key) => {
      expect(mayMatch([all], key)).toBe(false);
      expect(skippedNameOf([all], key)).toBeDefined();
      expect(whySkipped([all], { key })).toContain(`"${skippedNameOf([all], key)}"`);
      expect(isLeftOut([all], key)).toBe(true);
    },
  );

  it.each([
    [{ suffixes: ['.part'] }, 'in/a.part'],
    [{ prefixes: ['in/.cache/'] }, 'in/.cache/a.png'],
    [{ prefixes: ['.well-known'] }, '.well-known'],
  ])('is taken by a route that names it: %j', (conditions, key) => {
    const own = route({ name: 'own', ...conditions });
    expect(mayMatch([own], key)).toBe(true);
    expect(skippedNameOf([own], key)).toBeUndefined();
    expect(whySkipped([own], { key })).toBeUndefined();
    expect(isLeftOut([own], key)).toBe(false);
    expect(mayMatch([all, own], key)).toBe(true);
    expect(isLeftOut([all, own], key)).toBe(false);
  });

  it.each([
    // The suffix names pictures, and the prefix a folder. Neither names what begins with a dot in it.
    [{ suffixes: ['.png'] }, 'in/.a.png'],
    [{ prefixes: ['in/'] }, 'in/.a.png'],
    // They name another file than this one.
    [{ prefixes: ['in/', 'out/.'] }, 'in/.a.png'],
    [{ prefixes: ['in/'], suffixes: ['part', '.tmp'] }, 'in/a.part'],
  ])('is skipped by a route that names something else: %j', (conditions, key) => {
    const own = route({ name: 'own', ...conditions });
    expect(mayMatch([own], key)).toBe(false);
    expect(isLeftOut([own], key)).toBe(true);
  });

  it('has no name to be skipped by if no route would take it anyway', () => {
    expect(skippedNameOf([pictures], 'elsewhere/.a.txt')).toBeUndefined();
    expect(whySkipped([pictures], { key: 'elsewhere/.a.txt' })).toBeUndefined();
    expect(whySkipped([all], { key: 'in/a.png' })).toBeUndefined();
    expect(isLeftOut([all], 'in/a.png')).toBe(false);
  });

  it('is another one with other names', () => {
    const [own] = skipping([all], ['*.png', 'Thumbs.db']);
    expect(own).toEqual({ ...all, skippedNames: ['*.png', 'Thumbs.db'] });
    expect(mayMatch([own as Route], 'a.png')).toBe(false);
    expect(mayMatch([own as Route], '.DS_Store')).toBe(true);
    expect(skipping([all], SKIPPED_NAMES)).toEqual([all]);
  });

  it('may be an input of a job', () => {
    const jobs = route({ name: 'jobs', jobs: 'jobs/' });
    const skipping = { ...all, prefixes: ['jobs/'] };
    for (const routes of [
      [all, jobs],
      [skipping, jobs],
    ]) {
      expect(whySkipped(routes, { key: 'jobs/1/.a.png' })).toBeUndefined();
      expect(isLeftOut(routes, 'jobs/1/.a.png')).toBe(false);
    }
    expect(whySkipped([jobs], { key: 'jobs/.a/job.json' })).toContain('".*/"');
  });

  it('is left out if one of the routes would skip it', () => {
    expect(isLeftOut([route({ name: 'own', skippedNames: ['*.bak'] }), all], 'a.tmp')).toBe(false);
    const others = route({ name: 'others', prefixes: ['out/'], skippedNames: ['*.tmp'] });
    expect(isLeftOut([route({ name: 'own', prefixes: ['out/'], skippedNames: ['*.bak'] }), others], 'in/a.tmp')).toBe(
      true,
    );
  });

  it('has no name to be skipped by at the key of a later stage', () => {
    const key = `in/a.png/chain/next/69570ee5${'ab'.repeat(16)}`;
    expect(whySkipped([all], { key })).toContain('form of a later stage of a chain (…/chain/<route>/<upload id>)');
    expect(skippedNameOf([all], `.cache/${key}`)).toBeUndefined();
  });
});

describe('a folder', () => {
  const all = route({ name: 'all' });

  it.each([
    { key: 'in/', bytes: 0 },
    { key: 'in/' },
    { key: 'in/folder', bytes: 0, mediaType: 'application/x-directory' },
  ])('is skipped as one: %j', (object) => {
    expect(whySkipped([all], object)).toBe('It is a folder, and not a file.');
  });

  it.each([
    { key: 'in/', bytes: 1 },
    { key: 'in/a', bytes: 0 },
    { key: 'in/a', mediaType: 'image/png' },
  ])('is not %j', (object) => {
    expect(whySkipped([all], object)).toBeUndefined();
  });
});
