import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseContext } from '../../functions/settings/context.ts';
import { deadRoutes, idleBudgets, warningsOfRoutes } from '../../functions/settings/route-checks.ts';
import type { Budget } from '../../functions/uploads/budget.ts';
import type { Route } from '../../functions/uploads/route.ts';
import type { Conditions } from '../../functions/uploads/route-conditions.ts';
import { routeFor } from '../../functions/uploads/routes.ts';
import { messagesOf } from './fixtures.ts';

const routesOf = (...conditions: readonly Conditions[]): readonly Route[] =>
  conditions.map((each, index) => ({ name: `r${index}`, input: 'file', template: 't', ...each }));
const issuesOf = (...conditions: readonly Conditions[]) => deadRoutes(routesOf(...conditions), '');

const PNG = { suffixes: ['.png'] };
const JPG = { suffixes: ['.jpg'] };

describe('a route that can never match', () => {
  it.each<[string, readonly Conditions[]]>([
    ['behind a route that takes everything', [{}, PNG]],
    ['behind the same route', [PNG, PNG]],
    ['behind the same suffix in another case', [PNG, { suffixes: ['.PNG'] }]],
    ['behind a shorter suffix', [{ suffixes: ['g'] }, PNG]],
    ['behind a shorter prefix', [{ prefixes: ['a'] }, { prefixes: ['a/b'], ...PNG }]],
    ['behind any media type', [{ mediaTypes: ['*/*'] }, PNG]],
    ['behind its kind of media type', [{ mediaTypes: ['image/*'] }, { mediaTypes: ['image/png'], prefixes: ['a'] }]],
    ['behind two routes that share its values', [PNG, JPG, { suffixes: ['.png', '.jpg'] }]],
  ])('is refused: %s', (_, conditions) => {
    const issues = issuesOf(...conditions);
    const message = expect.stringMatching(/^can never match: /);
    expect(issues).toEqual([{ index: conditions.length - 1, message }]);
  });

  it('is named with the routes that take its uploads', () => {
    expect(issuesOf(PNG, { mediaTypes: ['text/plain'] }, JPG, { suffixes: ['.png', '.jpg'] })).toEqual([
      {
        index: 3,
        message:
          'can never match: routes[0] (r0) and routes[2] (r2) before it take all that it could. ' +
          'Put r3 before them, or remove it.',
      },
    ]);
  });

  it('is refused if its prefixes lie outside of the inbox', () => {
    const routes = routesOf({ prefixes: ['pictures/'] }, { prefixes: ['IN/a', 'other/'] }, { prefixes: ['i'] });
    expect(deadRoutes(routes, 'in/')).toEqual([
      { index: 0, message: 'can never match: expected a prefix inside of inboxPrefix, in/' },
    ]);
  });

  it('is an error of the context, in the words of its path', () => {
    const context = { baseUrl: 'https://flows.example.com', routes: routesOf({}, PNG) };
    expect(messagesOf(() => parseContext(context))).toEqual([
      'flowdrop.routes[1]: can never match: routes[0] (r0) before it takes all that it could. ' +
        'Put r1 before it, or remove it.',
    ]);
  });
});

describe('a condition that nothing can meet', () => {
  const issuesWith = (members: object) =>
    messagesOf(() =>
      parseContext({ baseUrl: 'https://flows.example.com', routes: [{ name: 'a', template: 't', ...members }] }, ''),
    );

  it.each<[string, object, string]>([
    [
      'a kind that does not exist',
      { mediaTypes: ['images/*'] },
      'mediaTypes[0]: can never match: there is no kind "images" of media types, got "images/*". Did you mean image/*?',
    ],
    [
      'a kind that is mistyped',
      { mediaTypes: ['image/png', 'Vidoe/mp4'] },
      'mediaTypes[1]: can never match: there is no kind "vidoe" of media types, got "Vidoe/mp4". Did you mean video/mp4?',
    ],
    [
      'a kind that is like no other',
      { mediaTypes: ['picture/png'] },
      'mediaTypes[0]: can never match: there is no kind "picture" of media types, got "picture/png"',
    ],
    [
      'an extension in place of a subtype',
      { mediaTypes: ['image/jpg'] },
      'mediaTypes[0]: can never match: this type is read as image/jpeg, got "image/jpg". Did you mean image/jpeg?',
    ],
    [
      'such an extension in capitals',
      { mediaTypes: ['IMAGE/JPG'] },
      'mediaTypes[0]: can never match: this type is read as image/jpeg, got "IMAGE/JPG". Did you mean image/jpeg?',
    ],
    [
      'another name of a type',
      { mediaTypes: ['application/ply'] },
      'mediaTypes[0]: can never match: this type is read as model/ply, got "application/ply". Did you mean model/ply?',
    ],
    [
      'a form',
      { mediaTypes: ['multipart/form-data'] },
      'mediaTypes[0]: can never match: a file that is put as a form is judged by its extension, and refused, got "multipart/form-data"',
    ],
    [
      'the type of a file that is told by its extension',
      { mediaTypes: ['binary/octet-stream'] },
      'mediaTypes[0]: can never match: this type is read as application/octet-stream, got "binary/octet-stream". Did you mean application/octet-stream?',
    ],
    [
      'a part of a subtype',
      { mediaTypes: ['image/p*'] },
      'mediaTypes[0]: can never match: an asterisk stands for a whole type or subtype, as in "image/*", got "image/p*"',
    ],
    [
      'a part of a type',
      { mediaTypes: ['im*/png'] },
      'mediaTypes[0]: can never match: an asterisk stands for a whole type or subtype, as in "image/*", got "im*/png"',
    ],
    [
      'a pattern in place of a suffix',
      { suffixes: ['.jpg', '*.png'] },
      'suffixes[1]: can never match: it is compared as it stands, so an asterisk stands for nothing else, got "*.png". Did you mean .png?',
    ],
    [
      'a pattern that leads through folders',
      { suffixes: ['**/*.png'] },
      'suffixes[0]: can never match: it is compared as it stands, so an asterisk stands for nothing else, got "**/*.png". Did you mean .png?',
    ],
    [
      'an asterisk in place of no condition',
      { suffixes: ['*'] },
      'suffixes[0]: can never match: it is compared as it stands, so an asterisk stands for nothing else, got "*". Leave it out, if any will do.',
    ],
    [
      'a pattern in place of a prefix',
      { prefixes: ['photos/*'] },
      'prefixes[0]: can never match: it is compared as it stands, so an asterisk stands for nothing else, got "photos/*". Did you mean photos/?',
    ],
    [
      'a slash before the key',
      { prefixes: ['/photos'] },
      'prefixes[0]: can never match: a key begins with the name of its first folder, got "/photos". Did you mean photos?',
    ],
    [
      'the folder that one is in',
      { prefixes: ['./photos/'] },
      'prefixes[0]: can never match: a key begins with the name of its first folder, got "./photos/". Did you mean photos/?',
    ],
    [
      'an address',
      { prefixes: ['s3://inbox/photos/'] },
      'prefixes[0]: can never match: a key begins with the name of its first folder, got "s3://inbox/photos/". Did you mean photos/?',
    ],
    [
      'a slash alone',
      { prefixes: ['/'] },
      'prefixes[0]: can never match: a key begins with the name of its first folder, got "/". Leave it out, if any will do.',
    ],
    [
      'a prefix of jobs with a slash before it',
      { jobs: '/views/' },
      'jobs: can never match: a key begins with the name of its first folder, got "/views/". Did you mean views/?',
    ],
    [
      'a prefix of jobs that is a pattern',
      { jobs: 'views/*/' },
      'jobs: can never match: it is compared as it stands, so an asterisk stands for nothing else, got "views/*/". Did you mean views/?',
    ],
    [
      'a text in place of parameters',
      { parameters: '{"seed": 1}' },
      'parameters: expected an object such as {"quality": "high"}, got "{\\"seed\\": 1}"',
    ],
    [
      'a number in place of parameters',
      { parameters: 5 },
      'parameters: expected an object such as {"quality": "high"}, got 5',
    ],
    [
      'a truth in place of parameters',
      { parameters: true },
      'parameters: expected an object such as {"quality": "high"}, got true',
    ],
  ])('is an error: %s', (_, members, message) => {
    expect(issuesWith(members)).toEqual([`routes[0].${message}`]);
  });

  it('is named beside all others', () => {
    const issues = issuesWith({
      prefixes: ['/a', 'b*'],
      suffixes: ['*.png'],
      mediaTypes: ['images/*'],
      parameters: 'x',
    });
    expect(issues.map((issue) => issue.split(':')[0])).toEqual([
      'routes[0].parameters',
      'routes[0].prefixes[0]',
      'routes[0].prefixes[1]',
      'routes[0].suffixes[0]',
      'routes[0].mediaTypes[0]',
    ]);
  });

  it.each<object>([
    {
      mediaTypes: [
        'image/*',
        '*/*',
        '*/png',
        'text/x-foo',
        'x-world/x-vrml',
        'chemical/x-pdb',
        'audio/mp3',
        'image/x-icon',
        'audio/flac',
        'image/pjpeg',
        'application/x-zip-compressed',
        'model/fbx',
      ],
    },
    { suffixes: ['/data', '.tar.gz', '_thumb'], prefixes: ['a/b', '.hidden/', '..'] },
    { parameters: null },
    { parameters: [1] },
  ])('is not seen in %j', (members) => {
    expect(issuesWith(members)).toEqual([]);
  });
});

describe('a later stage of a chain', () => {
  const stage = (name: string, after?: string, ...prefixes: readonly string[]): Route => ({
    ...{ name, after, input: 'file', template: 't' },
    ...(prefixes.length > 0 && { prefixes }),
  });

  it.each<[string, readonly Route[]]>([
    ['behind routes of the inbox that take everything', [stage('a'), stage('b', 'a'), stage('c', 'b')]],
    ['before the stage that it comes after', [stage('b', 'a'), stage('a')]],
    ['with a narrower prefix', [stage('a', undefined, 'x/'), stage('b', 'a', 'X/y')]],
    ['with a wider prefix', [stage('a', undefined, 'x/y'), stage('b', 'a', 'x/')]],
    ['with one prefix of several', [stage('a', undefined, 'x/', 'y/'), stage('b', 'a', 'y/', 'z/')]],
  ])('is not refused: %s', (_, routes) => {
    expect(deadRoutes(routes, '')).toEqual([]);
  });

  it('takes no upload from a route of the inbox', () => {
    expect(deadRoutes([stage('first', undefined, 'x/'), stage('b', 'first'), stage('rest')], '')).toEqual([]);
  });

  it('is refused if its prefixes and those of a stage before have no key in common', () => {
    const routes = [stage('a', undefined, 'x/', 'y/'), stage('b', 'a', 'x/'), stage('c', 'b', 'y/'), stage('d', 'c')];
    expect(deadRoutes(routes, '')).toEqual([
      {
        index: 2,
        message:
          'can never match: its prefixes are compared with the key of the first file, ' +
          'and routes[0] (a) and routes[1] (b) before it leave no key for them',
      },
    ]);
  });

  it('is refused if its prefixes lie outside of the inbox', () => {
    expect(deadRoutes([stage('a'), stage('b', 'a', 'out/')], 'in/')).toEqual([
      { index: 1, message: 'can never match: expected a prefix inside of inboxPrefix, in/' },
    ]);
  });

  it('is not named if the stage before it is', () => {
    expect(deadRoutes([stage('a'), stage('b', 'a', 'out/'), stage('c', 'b')], 'in/').map(({ index }) => index)).toEqual(
      [1],
    );
  });

  it('is not looked at if a route of its chain cannot be read', () => {
    expect(deadRoutes([undefined, stage('b', 'a'), stage('c', 'b', 'x/')], '')).toEqual([]);
  });

  it('is an error of the context, in the words of its path', () => {
    const routes = [stage('a', undefined, 'x/'), stage('b', 'a', 'y/')].map(({ after, ...route }) =>
      after === undefined ? route : { ...route, after },
    );
    expect(messagesOf(() => parseContext({ baseUrl: 'https://flows.example.com', routes }))).toEqual([
      'flowdrop.routes[1]: can never match: its prefixes are compared with the key of the first file, ' +
        'and routes[0] (a) before it leaves no key for them',
    ]);
  });
});

describe('a route that can match', () => {
  it.each<[string, readonly Conditions[]]>([
    ['before a route that takes everything', [PNG, {}]],
    ['by one of its values', [PNG, { suffixes: ['.png', '.jpg'] }]],
    ['by the key, if the media type is another', [{ mediaTypes: ['image/png'] }, PNG]],
    ['by the media type, if the key is another', [PNG, { mediaTypes: ['image/png'] }]],
    ['with a longer suffix before it', [{ suffixes: ['.tar.gz'] }, { suffixes: ['.gz'] }]],
    ['outside of the prefix before it', [{ prefixes: ['a/'], ...PNG }, PNG]],
    ['behind a prefix that looks like a media type', [{ prefixes: ['*/*'] }, PNG]],
    ['of one kind behind a subtype', [{ mediaTypes: ['image/png'] }, { mediaTypes: ['image/*'] }]],
  ])('is not refused: %s', (_, conditions) => {
    expect(issuesOf(...conditions)).toEqual([]);
  });

  const values = (...from: string[]) => fc.option(fc.subarray(from, { minLength: 1 }), { nil: undefined });
  const conditions = fc.record({
    prefixes: values('a', 'A/', 'a/b', 'in/', 'in/a', 'ß', 'SS', '*/*'),
    suffixes: values('g', '.png', '.PNG', '.jpg', 'x.png', 'ς'),
    mediaTypes: values('image/png', 'image/*', '*/*', '*/png', 'text/plain'),
  });
  const upload = fc.record({
    key: fc
      .tuple(
        fc.constantFrom('', 'in/'),
        fc.constantFrom('', 'a', 'A/', 'a/B', 'ss', 'ß', '*/*'),
        fc.constantFrom('', 'x', 'σ'),
        fc.constantFrom('g', '.png', '.JPG', 'x.png', 'σ', ''),
      )
      .map((parts) => parts.join('')),
    mediaType: fc.constantFrom('image/png', 'image/jpeg', 'text/plain', 'application/png'),
  });

  it('is never refused, whatever the routes and the upload', () => {
    const all = fc.array(conditions, { minLength: 1, maxLength: 4 });
    fc.assert(
      fc.property(all, fc.array(upload, { minLength: 20 }), fc.constantFrom('', 'in/'), (some, uploads, prefix) => {
        const routes = routesOf(...some);
        const refused = deadRoutes(routes, prefix).map(({ index }) => index);
        const matched = uploads
          .filter(({ key }) => key.startsWith(prefix))
          .map((each) => routes.indexOf(routeFor(routes, each) as Route));
        expect(refused.filter((index) => matched.includes(Number(index)))).toEqual([]);
      }),
      // Each run of the tests has other cases, and a few seconds are enough for one.
      { numRuns: 150 },
    );
  });

  it('is found among many values in little time', () => {
    const many = (of: string) => Array.from({ length: 200 }, (_, index) => `${of}${index}`);
    const wide = { prefixes: many('p'), suffixes: many('s'), mediaTypes: many('image/x') };
    expect(issuesOf(...Array.from({ length: 20 }, (_, index) => ({ ...wide, prefixes: many(`${index}q`) })))).toEqual(
      [],
    );
    expect(issuesOf(wide, wide)).toHaveLength(1);
  });
});

describe('what is most likely a mistake in a route', () => {
  it.each<[Conditions, string]>([
    [{ suffixes: ['.jpg', 'png'] }, 'routes[0].suffixes[1]: png also fits the end of a name such as mypng. Say .png.'],
    [
      { suffixes: ['.png,.jpg', '.(png|jpg)$'] },
      'routes[0].suffixes[0]: .png,.jpg is compared as it stands, and is no pattern and no list.',
    ],
    [
      { prefixes: ['photos\\'] },
      'routes[0].prefixes[0]: photos\\ is compared as it stands, and is no pattern and no list.',
    ],
    [
      { mediaTypes: ['video/matroska'] },
      'routes[0].mediaTypes[0]: no extension of a file name stands for video/matroska, so only an upload with this Content-Type fits.',
    ],
    [
      { mediaTypes: ['text/x-foo'] },
      'routes[0].mediaTypes[0]: no extension of a file name stands for text/x-foo, so only an upload with this Content-Type fits.',
    ],
  ])('is named: %j', (conditions, warning) => {
    expect(warningsOfRoutes(routesOf(conditions), 'routes')[0]).toBe(warning);
  });

  it('is named in a later stage, which takes assets', () => {
    const routes = [
      ...routesOf({}),
      ...routesOf({ mediaTypes: ['text/x-foo'] }).map((each) => ({ ...each, after: 'r0' })),
    ];
    expect(warningsOfRoutes(routes, 'routes')).toEqual([
      'routes[1].mediaTypes[0]: no extension of a file name stands for text/x-foo, so only an asset that the service gives this type fits.',
    ]);
  });

  it.each<Conditions>([
    { suffixes: ['.png', '-final.png', 'README', '/data', '_thumb'] },
    { mediaTypes: ['image/jpeg', 'image/*', '*/*', 'IMAGE/PNG', 'model/gltf-binary'] },
  ])('is not seen in %j', (conditions) => {
    expect(warningsOfRoutes(routesOf(conditions), 'routes')).toEqual([]);
  });
});

describe('an unknown name', () => {
  const base = { baseUrl: 'https://flows.example.com', routes: [{ name: 'a', template: 't' }] };
  it.each<[object, string, string]>([
    [{ baseURL: 'x' }, 'flowdrop.baseURL', 'baseUrl'],
    [{ setings: {} }, 'flowdrop.setings', 'settings'],
    [{ settings: { attemptMax: 5 } }, 'flowdrop.settings.attemptMax', 'attemptsMax'],
    [{ settings: { polIntervalSecond: 5 } }, 'flowdrop.settings.polIntervalSecond', 'pollIntervalSeconds'],
    [{ routes: [{ name: 'a', tempalte: 't', template: 't' }] }, 'flowdrop.routes[0].tempalte', 'template'],
    [{ routes: [{ name: 'a', template: 't', suffix: ['.a'] }] }, 'flowdrop.routes[0].suffix', 'suffixes'],
    [{ routes: [{ name: 'a', template: 't', mediaType: ['a/b'] }] }, 'flowdrop.routes[0].mediaType', 'mediaTypes'],
  ])('that is like a known one leads to it: %j', (more, path, meant) => {
    const [message = ''] = messagesOf(() => parseContext({ ...base, ...more }));
    expect(message).toMatch(
      new RegExp(`^${path.replaceAll(/[[\].]/g, '\\$&')}: unknown, .* Did you mean ${meant}\\?$`),
    );
  });

  it('that is like none gets no hint', () => {
    expect(messagesOf(() => parseContext({ ...base, colour: 1 })).join()).not.toContain('Did you mean');
  });
});

describe('a cap that can never matter', () => {
  const day = { per: 'day', timezone: 'UTC' } as const;
  const eur = { currency: 'EUR' } as const;
  const route = (amount: number | undefined, budget?: Budget): Route => ({
    ...{ name: 'a', input: 'file', template: 't' },
    ...(amount !== undefined && { price: { amount, ...eur } }),
    ...(budget && { budget }),
  });

  it.each<[string, readonly Route[], Budget | 'unlimited', string | undefined]>([
    ['the amount that all flows stay below', [route(0.4)], { ...day, ...eur, flows: 2, amount: 0.8 }, 'amount'],
    [
      'the amount that no number of allowed flows reaches',
      [route(0.4)],
      { ...day, ...eur, flows: 2, amount: 0.9 },
      'amount',
    ],
    ['the flows that are too dear', [route(0.4)], { ...day, ...eur, flows: 3, amount: 1 }, 'flows'],
    ['neither', [route(0.1), route(0.4)], { ...day, ...eur, flows: 3, amount: 1 }, undefined],
    ['the amount without a price', [route(0)], { ...day, ...eur, amount: 1 }, 'amount'],
    ['a higher cap of the route', [route(undefined, { ...day, flows: 5 })], { ...day, flows: 5 }, 'flows'],
    ['that in the month', [route(undefined, { ...day, flows: 5 })], { ...day, per: 'month', flows: 5 }, 'flows'],
    [
      'not that of a longer period',
      [route(undefined, { ...day, per: 'month', flows: 5 })],
      { ...day, flows: 5 },
      undefined,
    ],
    ['a lower cap of the route', [route(undefined, { ...day, flows: 4 })], { ...day, flows: 5 }, undefined],
    ['without a cap of the pipeline', [route(undefined, { ...day, flows: 4 })], 'unlimited', undefined],
  ])('is named: %s', (_, routes, budget, member) => {
    const found = idleBudgets(routes, budget);
    expect(found).toHaveLength(member === undefined ? 0 : 1);
    if (member !== undefined) expect(found[0]).toContain(`: ${member} can never matter, because `);
  });

  it('is told from an amount that pays for no flow at all', () => {
    const budget = { ...day, ...eur, amount: 0.3 };
    const why = 'every file waits for ever, because amount is less than the price of a flow, 0.40 EUR.';
    expect(idleBudgets([route(0.4)], budget)).toEqual([`the budget of the pipeline: ${why}`]);
    expect(idleBudgets([route(0.4, budget)], 'unlimited')).toEqual([`the budget of the route a: ${why}`]);
    expect(idleBudgets([route(0.4), route(0.3)], budget)).toEqual([]);
  });
});
