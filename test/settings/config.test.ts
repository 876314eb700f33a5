import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  ConfigurationError,
  type Env,
  parseContext,
  parseEnv,
  SETTINGS_DEFAULT,
} from '../../functions/settings/config.ts';

const route = { name: 'pictures', mediaTypes: ['image/*'], input: 'file', template: 'model_generate_fromimage' };

const ENV: Env = {
  PIPELINE: 'flowdrop',
  FLOW_SERVICE_URL: 'https://flows.example.com/v1',
  TOKEN_SECRET_ID: 'flowdrop-token',
  INBOX_BUCKET: 'the-inbox',
  RESULTS_BUCKET: 'the-results',
  LEDGER_BUCKET: 'the-ledger',
  QUEUE_URL: 'https://sqs.eu-central-1.amazonaws.com/123456789012/uploads',
  COLLECT_FUNCTION: 'collect-outputs',
  EVENT_BUS: 'default',
  ROUTES: JSON.stringify([route]),
  SETTINGS: '{}',
};

const env = (changes: Partial<Record<keyof Env | 'LAMBDA_TASK_ROOT', string | undefined>> = {}) => ({
  ...ENV,
  ...changes,
});
const settings = (value: object) => env({ SETTINGS: JSON.stringify(value) });

function messagesOf(act: () => unknown): readonly string[] {
  try {
    act();
  } catch (error) {
    if (error instanceof ConfigurationError) return error.issues;
    throw error;
  }
  return [];
}

describe('parseEnv', () => {
  it('gives the settings with every default filled in', () => {
    expect(parseEnv(env())).toEqual({
      pipeline: 'flowdrop',
      baseUrl: new URL('https://flows.example.com/v1'),
      tokenSecretId: 'flowdrop-token',
      inboxBucket: 'the-inbox',
      resultsBucket: 'the-results',
      ledgerBucket: 'the-ledger',
      queueUrl: 'https://sqs.eu-central-1.amazonaws.com/123456789012/uploads',
      collectFunction: 'collect-outputs',
      eventBus: 'default',
      routes: [route],
      uploadConcurrency: 4,
      inputBytesMax: 5_368_709_120,
      textBytesMax: 1_048_576,
      assetBytesMax: 21_474_836_480,
      outputsMax: 1000,
      answerDepthMax: 100,
      attemptsMax: 5,
      inDoubt: 'retry',
      pollIntervalSeconds: 15,
      pollConcurrency: 64,
      assetConcurrency: 4,
      requestsPerSecond: 'unlimited',
      flowAgeMaxSeconds: 604_800,
      ledgerRetentionDays: 'forever',
      outputsPath: 'auto',
      resultsKey: '{key}/{flowId}/{assetId}{ext}',
      inboxPrefix: '',
      resultsPrefix: '',
    });
  });

  it('freezes the settings, down to the conditions of a route', () => {
    const settings = parseEnv(env());
    expect(Object.isFrozen(settings)).toBe(true);
    expect(Object.isFrozen(settings.routes)).toBe(true);
    expect(Object.isFrozen(settings.routes[0]?.mediaTypes)).toBe(true);
  });

  it('takes the settings that are given and the defaults of the others', () => {
    const parsed = parseEnv(settings({ pollIntervalSeconds: 5, inDoubt: 'hold' }));
    expect(parsed).toMatchObject({ pollIntervalSeconds: 5, inDoubt: 'hold', attemptsMax: 5 });
  });

  it('ignores the rest of the environment', () => {
    expect(parseEnv({ ...env(), AWS_REGION: 'eu-central-1' })).not.toHaveProperty('AWS_REGION');
  });

  it('names everything that is missing or wrong in one error', () => {
    const broken = env({
      PIPELINE: 'No Spaces',
      INBOX_BUCKET: undefined,
      QUEUE_URL: 'nowhere',
      ROUTES: JSON.stringify([{ ...route, suffixes: [5] }, { name: 'b' }]),
      SETTINGS: JSON.stringify({ polIntervalSeconds: 5, attemptsMax: 0 }),
    });
    expect(messagesOf(() => parseEnv(broken))).toEqual([
      expect.stringMatching(/^PIPELINE: expected a name of at most 40 .*, got "No Spaces"$/),
      'INBOX_BUCKET: expected the name of a bucket, but it is missing',
      'QUEUE_URL: expected a queue\'s URL, got "nowhere"',
      expect.stringMatching(/^ROUTES\[0\]\.suffixes\[0\]: expected a suffix of 1 to 1024 characters.*, got 5$/),
      expect.stringMatching(/^ROUTES\[1\]\.template: expected the id or name of a template .*, but it is missing$/),
      'SETTINGS.attemptsMax: expected a whole number of attempts from 1 to 100, got 0',
      expect.stringMatching(/^SETTINGS\.polIntervalSeconds: unknown, expected only uploadConcurrency, .* here$/),
    ]);
  });

  it('names a variable that is not JSON, and one that is not there', () => {
    expect(messagesOf(() => parseEnv(env({ ROUTES: '[{', SETTINGS: undefined })))).toEqual([
      expect.stringMatching(/^ROUTES: expected JSON, got "\[\{" \(.+\)$/),
      'SETTINGS: expected an object, but it is missing',
    ]);
  });

  it('cuts a long value short', () => {
    const [issue] = messagesOf(() => parseEnv(env({ PIPELINE: 'X'.repeat(10_000) })));
    expect(issue?.length).toBeLessThan(300);
    expect(issue).toMatch(/XXX\.\.\.$/);
  });

  it.each([
    ['uploadConcurrency', 0, 17],
    ['inputBytesMax', 0, 2 ** 43],
    ['textBytesMax', 0, 2 ** 25],
    ['assetBytesMax', 0, 2 ** 43],
    ['outputsMax', 0, 10_001],
    ['answerDepthMax', 49, 1001],
    ['attemptsMax', 0, 101],
    ['pollIntervalSeconds', 0, 3601],
    ['pollConcurrency', 0, 1001],
    ['assetConcurrency', 0, 17],
    ['flowAgeMaxSeconds', 59, 31_536_001],
  ])('refuses %s outside of its range, in fractions or as text', (name, low, high) => {
    for (const value of [low, high, 120.5, '120', null]) {
      const issues = messagesOf(() => parseEnv(settings({ [name]: value })));
      expect(issues[0], JSON.stringify(value)).toMatch(new RegExp(`^SETTINGS\\.${name}: expected a whole number of`));
      expect(issues[0]).toContain(`got ${JSON.stringify(value)}`);
    }
  });

  it.each([0.01, 0.5, 60, 10_000, 'unlimited'])('takes %j as the ceiling of requests a second', (requestsPerSecond) => {
    expect(parseEnv(settings({ requestsPerSecond }))).toMatchObject({ requestsPerSecond });
  });

  it.each([0, 0.009, 10_001, -1, '60', null])('refuses %j as the ceiling of requests a second', (requestsPerSecond) => {
    const [issue] = messagesOf(() => parseEnv(settings({ requestsPerSecond })));
    expect(issue).toMatch(/^SETTINGS\.requestsPerSecond: /);
    expect(issue).toContain(`got ${JSON.stringify(requestsPerSecond)}`);
  });

  it('refuses a maximum age that ends before the second poll', () => {
    expect(messagesOf(() => parseEnv(settings({ flowAgeMaxSeconds: 119, pollIntervalSeconds: 60 })))).toEqual([
      'SETTINGS.flowAgeMaxSeconds: expected at least twice pollIntervalSeconds (60), or flows would fail before they are polled, got 119',
    ]);
  });
});

describe('the address of the flow service', () => {
  const parsed = (url: string) => parseEnv(env({ FLOW_SERVICE_URL: url })).baseUrl.href;

  it.each([
    ['https://flows.example.com', 'https://flows.example.com/'],
    ['https://flows.example.com/v1/', 'https://flows.example.com/v1'],
    ['https://flows.example.com/v1//', 'https://flows.example.com/v1'],
    ['http://127.0.0.1:8080/', 'http://127.0.0.1:8080/'],
    ['http://localhost:8080/api', 'http://localhost:8080/api'],
    ['http://[::1]:8080/api', 'http://[::1]:8080/api'],
  ])('%s is taken', (given, expected) => {
    expect(parsed(given)).toBe(expected);
  });

  it.each([
    'http://flows.example.com',
    'http://127.0.0.1.example.com',
    'http://localhost.example.com',
    'ftp://flows.example.com',
    'https://flows.example.com/?key=1',
    'https://flows.example.com/#top',
    'flows.example.com',
    '',
  ])('%s is refused', (given) => {
    expect(messagesOf(() => parsed(given))).toEqual([expect.stringMatching(/^FLOW_SERVICE_URL: expected /)]);
  });

  it.each([
    'https://me:opensesame@flows.example.com/',
    'http://me:opensesame@flows.example.com/',
    'https://flows.example.com/?token=opensesame',
    'https//me:x//me:opensesame@flows',
  ])('what may be a password in %s is not quoted', (given) => {
    const issues = messagesOf(() => parsed(given));
    expect(issues).toHaveLength(1);
    expect(issues.join()).not.toContain('opensesame');
  });
});

describe('the pattern of results keys', () => {
  it.each(['{flowId}/{assetId}', '{key}/{flowId}/{assetId}{ext}', 'made/{flowId}/of/{key}/asset-{assetId}{ext}'])(
    '%s is taken',
    (resultsKey) => {
      expect(parseEnv(settings({ resultsKey })).resultsKey).toBe(resultsKey);
    },
  );

  it.each([
    ['{key}/{assetId}', '{flowId}'],
    ['{key}/{flowId}', '{assetId}'],
    ['{key}/{flowId}{assetId}', 'slash between'],
    ['{key}/{flowId}/{assetId}.{ext}', 'end in'],
    ['{assetId}/{flowId}', 'end in'],
    ['{flowId}/{flowId}/{assetId}', 'once'],
    ['{key}/{flow}/{assetId}', '{flow}'],
    ['{key}/}{flowId}/{assetId}', 'brace'],
    ['/{key}/{flowId}/{assetId}', 'slash'],
    ['{key}//{flowId}/{assetId}', 'slash'],
    [`${'x'.repeat(512)}/{flowId}/{assetId}`, '512'],
  ])('%s is refused, saying %s', (resultsKey, why) => {
    const issues = messagesOf(() => parseEnv(settings({ resultsKey })));
    expect(issues).toEqual([expect.stringMatching(/^SETTINGS\.resultsKey: expected /)]);
    expect(issues[0]).toContain(why);
  });
});

describe('loops', () => {
  const oneBucket = (prefixes: object) => env({ RESULTS_BUCKET: 'the-inbox', SETTINGS: JSON.stringify(prefixes) });

  it.each([
    {},
    { inboxPrefix: 'in/' },
    { resultsPrefix: 'out/' },
    { inboxPrefix: 'in/', resultsPrefix: 'in/out/' },
    { inboxPrefix: 'in/out/', resultsPrefix: 'in/' },
    { inboxPrefix: 'in/', resultsPrefix: 'in/' },
  ])('one bucket for inbox and results is refused with %j, naming bucket and prefixes', (prefixes) => {
    const [issue, ...others] = messagesOf(() => parseEnv(oneBucket(prefixes)));
    expect(others).toEqual([]);
    expect(issue).toContain('inbox and results are one bucket, the-inbox,');
    expect(issue).toContain('inboxPrefix and resultsPrefix');
  });

  it('one bucket is taken where the prefixes are disjoint', () => {
    expect(parseEnv(oneBucket({ inboxPrefix: 'in/', resultsPrefix: 'out/' }))).toMatchObject({
      inboxPrefix: 'in/',
      resultsPrefix: 'out/',
    });
  });

  it('a ledger in one of the other buckets is refused', () => {
    expect(messagesOf(() => parseEnv(env({ LEDGER_BUCKET: 'the-results' })))).toEqual([
      'results and ledger are one bucket, the-results: the ledger needs its own',
    ]);
  });

  it.each(['in', '/in/', '/', 'in//', 'in*/', 'ä/'])('%s is no prefix', (inboxPrefix) => {
    expect(messagesOf(() => parseEnv(settings({ inboxPrefix })))).toEqual([
      expect.stringMatching(/^SETTINGS\.inboxPrefix: expected nothing, or a prefix such as/),
    ]);
  });
});

describe('routes in a file beside the bundle', () => {
  let directory: string;
  beforeAll(() => {
    directory = mkdtempSync(join(tmpdir(), 'flowdrop-'));
  });
  afterAll(() => rmSync(directory, { recursive: true }));

  it('are read from where Lambda unpacked the bundle, and from nowhere else', () => {
    writeFileSync(join(directory, 'routes.json'), JSON.stringify([route]));
    const beside = { ROUTES: 'file:routes.json', LAMBDA_TASK_ROOT: directory };
    expect(parseEnv(env(beside)).routes).toEqual([route]);
    expect(parseEnv(env({ ...beside, ROUTES: 'file:../../routes.json' })).routes).toEqual([route]);
  });

  it('that cannot be read are a issue that names the file', () => {
    expect(messagesOf(() => parseEnv(env({ ROUTES: 'file:absent.json', LAMBDA_TASK_ROOT: directory })))).toEqual([
      expect.stringMatching(/^ROUTES: expected .*absent\.json/),
    ]);
  });
});

describe('parseContext', () => {
  const context = { baseUrl: 'https://flows.example.com', routes: [route] };

  it('fills in the name and the settings', () => {
    expect(parseContext(context)).toEqual({
      pipeline: 'flowdrop',
      baseUrl: new URL('https://flows.example.com'),
      routes: [route],
      settings: SETTINGS_DEFAULT,
      deployment: undefined,
    });
  });

  it('names the path and the value of every issue', () => {
    const broken = {
      baseUrl: 'http://flows.example.com',
      routes: [route, { ...route, name: 'b', suffixes: [5] }],
      settings: { attemptsMax: 1.5 },
      route: [],
    };
    expect(messagesOf(() => parseContext(broken))).toEqual([
      'flowdrop.baseUrl: expected https:, or http: on a loopback host, got http://flows.example.com',
      expect.stringMatching(/^flowdrop\.routes\[1\]\.suffixes\[0\]: expected a suffix .*, got 5$/),
      'flowdrop.settings.attemptsMax: expected a whole number of attempts from 1 to 100, got 1.5',
      'flowdrop.route: unknown, expected only pipeline, baseUrl, routes, settings, deployment here',
    ]);
  });

  it('says so where there is no context at all', () => {
    expect(messagesOf(() => parseContext(undefined))).toEqual([
      'flowdrop: expected an object with baseUrl and routes, such as {"baseUrl": "https://flows.example.com", ' +
        '"routes": [{"name": "all", "template": "the name of a template"}]}, but it is missing',
    ]);
  });
});
