import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { FLOWS } from '../../functions/flow-service/services.ts';
import { parseEnv } from '../../functions/settings/environment.ts';
import { SETTINGS_DEFAULT } from '../../functions/settings/settings.ts';
import { sharedFolder } from '../support/folder.ts';
import { env, envWith, messagesOf, route } from './fixtures.ts';

describe('parseEnv', () => {
  it('returns the settings with every default filled in', () => {
    expect(parseEnv(env())).toEqual({
      pipeline: 'flowdrop',
      baseUrl: new URL('https://flows.example.com/v1'),
      tokenSecretId: 'flowdrop-token',
      inboxBucket: 'the-inbox',
      resultsBucket: 'the-results',
      ledgerBucket: 'the-ledger',
      queueUrl: 'https://sqs.eu-central-1.amazonaws.com/123456789012/uploads',
      collectFunction: 'collect-outputs',
      command: 'flowdrop',
      eventBus: 'default',
      monitoring: 'full',
      service: FLOWS,
      proxies: {},
      routes: [route],
      ...SETTINGS_DEFAULT,
    });
  });

  it('freezes the settings and everything in them', () => {
    const settings = parseEnv(env());
    expect(Object.isFrozen(settings)).toBe(true);
    expect(Object.isFrozen(settings.routes)).toBe(true);
    expect(Object.isFrozen(settings.routes[0]?.mediaTypes)).toBe(true);
  });

  it('takes the given settings, and the defaults of all others', () => {
    const parsed = parseEnv(envWith({ pollIntervalSeconds: 5, inDoubt: 'ask' }));
    expect(parsed).toMatchObject({ pollIntervalSeconds: 5, inDoubt: 'ask', attemptsMax: 5 });
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
      expect.stringMatching(
        /^SETTINGS\.polIntervalSeconds: unknown, expected only uploadConcurrency, .* here. Did you mean pollIntervalSeconds\?$/,
      ),
    ]);
  });

  it('names a variable that is not JSON, and a missing one', () => {
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
});

describe('routes in a file beside the bundle', () => {
  const directory = sharedFolder();

  it('are read from the folder where Lambda unpacked the bundle, and from no other', () => {
    writeFileSync(join(directory, 'routes.json'), JSON.stringify([route]));
    const beside = { ROUTES: 'file:routes.json', LAMBDA_TASK_ROOT: directory };
    expect(parseEnv(env(beside))).toMatchObject({ routes: [route], areRoutesBeside: true });
    expect(parseEnv(env())).not.toHaveProperty('areRoutesBeside');
    expect(parseEnv(env({ ...beside, ROUTES: 'file:../../routes.json' })).routes).toEqual([route]);
  });

  it('lead to an issue that names the file if it cannot be read', () => {
    expect(messagesOf(() => parseEnv(env({ ROUTES: 'file:absent.json', LAMBDA_TASK_ROOT: directory })))).toEqual([
      expect.stringMatching(/^ROUTES: expected .*absent\.json/),
    ]);
  });
});

describe('values of the routes that are known only since the deployment', () => {
  const ROUTES = JSON.stringify([
    { ...route, template: '{TEXT_1}', parameters: { '{TEXT_1}': ['{NUMBER_2}', 'a {TEXT_1}'] } },
  ]);

  it('are read from variables of their own, as they are', () => {
    const odd = 'say "hi" \\n {TEXT_1}';
    expect(parseEnv(env({ ROUTES, TEXT_1: odd, NUMBER_2: '-1.5' })).routes).toEqual([
      { ...route, template: odd, parameters: { '{TEXT_1}': [-1.5, 'a {TEXT_1}'] } },
    ]);
  });

  it.each([
    ['TEXT_1', { NUMBER_2: '7' }, /^ROUTES: expected .*\(TEXT_1 is undefined\)$/],
    ['NUMBER_2', { TEXT_1: 'a', NUMBER_2: 'seven' }, /^ROUTES: expected .*\(NUMBER_2 is "seven"\)$/],
    ['NUMBER_2', { TEXT_1: 'a', NUMBER_2: ' ' }, /^ROUTES: expected .*\(NUMBER_2 is " "\)$/],
    [
      'TEXT_1',
      { TEXT_1: 'a'.repeat(257), NUMBER_2: '7' },
      /^ROUTES\[0\]\.template: expected the id or name of a template/,
    ],
  ])('lead to an issue if %s is missing or wrong', (_, variables, issue) => {
    expect(messagesOf(() => parseEnv(env({ ROUTES, ...variables })))).toEqual([expect.stringMatching(issue)]);
  });
});
