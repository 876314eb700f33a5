import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { check } from '../../functions/base/validation.ts';
import { parseStackContext, stackSchema } from '../../infra/deployment.ts';
import { CONFIGURATION_NAMES, CONFIGURATIONS } from '../infra/configurations.ts';
import { CONTEXT } from '../infra/synthesis.ts';
import { type JsonSchema, jsonSchemaOf, PUBLISHED } from './published.ts';
import { publishedValidator } from './validators.ts';

const issuesOf = publishedValidator('flowdrop');
const read = (path: string): string => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8');
const isAccepted = (value: unknown): boolean => check(stackSchema, value, '').issues.length === 0;

const ROUTE = { name: 'pictures', template: 't' };
const BASE = { baseUrl: 'https://flows.example.com', routes: [ROUTE] };
const DEPLOYMENT = { account: '123456789012', region: 'eu-central-1' };

describe('docs/schemas/flowdrop.schema.json accepts', () => {
  it.each(CONFIGURATION_NAMES)('the configuration %s, which the tests deploy', (name) => {
    const configuration = CONFIGURATIONS[name];
    expect(issuesOf('context' in configuration ? configuration.context : CONTEXT.flowdrop)).toEqual([]);
  });

  it('the configuration of README.md, of cdk.json and of a chain', () => {
    const [, readme = ''] = /cat > flowdrop\.json <<'EOF'\n([\s\S]*?)\nEOF/.exec(read('README.md')) ?? [];
    const chained = [ROUTE, { name: 'all', template: 't', after: 'pictures', inputs: 'all', allow: 'partial' }];
    const examples = [
      { ...JSON.parse(readme), baseUrl: 'https://flows.example.com' },
      JSON.parse(read('cdk.json')).context.flowdrop,
      { ...BASE, routes: chained, deployment: DEPLOYMENT },
      { $schema: './docs/schemas/flowdrop.schema.json', ...BASE, settings: { requestsPerSecond: 'unlimited' } },
    ];
    for (const example of examples) expect([issuesOf(example), isAccepted(example)]).toEqual([[], true]);
  });
});

describe('docs/schemas/flowdrop.stage.schema.json', () => {
  const issuesOfStage = publishedValidator('flowdrop.stage');

  it('accepts the stage of the recipe, and parts of any object', () => {
    const recipe = read('docs/recipes/environments.md');
    const [, stage = ''] = /`flowdrop\.production\.json`:\n\n {3}```json\n([\s\S]*?)\n {3}```/.exec(recipe) ?? [];
    const { deployment } = JSON.parse(stage);
    expect(issuesOfStage({ deployment: { ...deployment, ...DEPLOYMENT, vpc: { id: 'vpc-0' } } })).toEqual([]);
  });

  it('refuses a part of a route, because lists are replaced, and what is wrong in any configuration', () => {
    const wrong = { routes: [{ name: 'pictures' }], settings: { attemptsMax: 0 } };
    expect(issuesOfStage(wrong)).toEqual([
      "/routes/0: must have required property 'template'",
      '/settings/attemptsMax: must be >= 1',
    ]);
  });
});

describe('docs/schemas/flowdrop.schema.json refuses, as the code does,', () => {
  it.each<[what: string, value: unknown, issue: string]>([
    ['no object', [], ': must be object'],
    ['no routes', { baseUrl: BASE.baseUrl }, ": must have required property 'routes'"],
    ['an empty list of routes', { ...BASE, routes: [] }, '/routes: must NOT have fewer than 1 items'],
    ['an unknown member', { ...BASE, setings: {} }, ': must NOT have additional properties'],
    ['an unknown setting', { ...BASE, settings: { atemptsMax: 1 } }, '/settings: must NOT have additional properties'],
    [
      'a number that is not whole',
      { ...BASE, settings: { attemptsMax: 1.5 } },
      '/settings/attemptsMax: must be integer',
    ],
    [
      'fifty tags',
      { ...BASE, deployment: { tags: Object.fromEntries(Array.from({ length: 50 }, (_, at) => [`tag${at}`, 'x'])) } },
      '/deployment/tags: must NOT have more than 49 properties',
    ],
  ])('%s', (_, value, issue) => {
    expect([issuesOf(value).join(), isAccepted(value)]).toEqual([expect.stringContaining(issue), false]);
  });
});

/** Every member that has no members itself, by its path. */
function leavesOf(schema: JsonSchema, path: readonly string[] = []): readonly (readonly [string[], JsonSchema])[] {
  return Object.entries(schema.properties ?? {}).flatMap(([name, member]) => {
    const at = [...path, name];
    if (member.properties) return leavesOf(member, at);
    return member.items?.properties ? leavesOf(member.items, [...at, '[]']) : [[at, member] as const];
  });
}

/** What a right member of a configuration, or of a list in it, has around the one that is replaced. */
const AROUND: Readonly<Record<string, object>> = {
  routes: ROUTE,
  vpc: { id: 'vpc-0', subnetIds: ['subnet-0'] },
  proxy: { url: 'http://proxy.example.com:3128' },
  price: { amount: 0.4, currency: 'EUR' },
  budget: { flows: 1, per: 'day' },
};

/** A configuration that is right, apart from one member. */
function configurationWith([name = '', ...rest]: readonly string[], value: unknown, around: object = BASE): unknown {
  const within = name === '[]' ? around : (AROUND[name] ?? {});
  const inner = rest.length === 0 ? value : configurationWith(rest, value, within);
  return name === '[]' ? [inner] : { ...around, [name]: inner };
}

describe('docs/schemas/flowdrop.schema.json and the code', () => {
  const NUMBERS = [-1, 0, 0.5, 1, 2, 16, 17, 29, 30, 49, 50, 60, 64, 65, 100, 101, 300, 301, 1000, 1001, 3600, 3650];
  const TEXTS = [
    '',
    ' ',
    'a',
    'A',
    'a/',
    '/a/',
    'a-',
    'none',
    'unlimited',
    'forever',
    'flowdrop',
    '\n',
    'x'.repeat(513),
  ];
  const arn = (rest: string) => `arn:aws:${rest.replace('*', '123456789012')}`;
  const RIGHT = [
    ...['https://flows.example.com', 'a-bucket', '123456789012', 'eu-central-1', 'vpc-0', 'ops@example.com'],
    ...[
      'models/{key}',
      '{flowId}/{assetId}',
      arn('kms:eu-central-1:*:key/k'),
      arn('sns:eu-central-1:*:t'),
      arn('iam::*:policy/p'),
    ],
    ...[
      'partial',
      'all',
      'text',
      'tag',
      'ask',
      'root',
      'newest-first',
      'destroy',
      'aws:kms',
      arn('events:eu-central-1:*:event-bus/b'),
    ],
    ...[['Flow Failed'], arn('sqs:eu-central-1:*:orders'), arn('secretsmanager:eu-central-1:*:secret:hook-AbCdEf')],
    ...['EUR', 'month', 'UTC', { after: 20 }, false, 'flows', { from: 'flows' }],
    ...[['subnet-0'], ['sg-0'], [arn('iam::*:role/Viewer')], 'sort_by=-created_at'],
  ];
  const OTHERS = [null, true, [], {}, ['a'], [''], [1], ['text/plain'], { a: 'b' }, { 'aws:a': 'b' }, { flowdrop: 1 }];
  const leaves = leavesOf(jsonSchemaOf(PUBLISHED.flowdrop));
  const LIMITS = leaves.flatMap(([, { minimum, maximum }]) =>
    minimum === undefined || maximum === undefined ? [] : [minimum - 1, minimum, maximum, maximum + 1],
  );
  const VALUES = [...new Set<unknown>([...NUMBERS, ...LIMITS]), ...TEXTS, ...OTHERS, ...RIGHT];
  /** Only the code can take these apart. */
  const PARSED = [
    ...['baseUrl', 'settings.resultsKey', 'routes.[].alias', 'routes.[].budget.timezone'],
    'deployment.notify.[].url',
  ];
  /** What the code says of a member because of others. */
  const AMONG_OTHERS =
    /as well|either url or queueArn|only with|only beside|name of another route|currency of amount|amount of that|flows, or amount|currency of the budget|at least twice|can never match|only the listing of flows/;

  it.each(leaves.map(([path]) => [path.join('.'), path] as const))('say the same of %s', (name, path) => {
    const verdicts = VALUES.map((value) => {
      const configuration = configurationWith(path, value);
      const issues = check(stackSchema, configuration, '').issues.filter((issue) => !AMONG_OTHERS.test(issue));
      return { value, issues, isRight: issues.length === 0, isValid: issuesOf(configuration).length === 0 };
    });
    const differing = verdicts.filter(({ isRight, isValid }) => isRight !== isValid);
    expect(differing.filter(({ isValid }) => !(isValid && PARSED.includes(name)))).toEqual([]);
    // Otherwise the values would show nothing.
    expect(verdicts.some(({ isValid }) => isValid)).toBe(true);
    expect(verdicts.some(({ isValid }) => !isValid)).toBe(true);
  });
});

it('$schema changes nothing of what is parsed', () => {
  expect(parseStackContext({ $schema: './docs/schemas/flowdrop.schema.json', ...BASE })).toEqual(
    parseStackContext(BASE),
  );
});
