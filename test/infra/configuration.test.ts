import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { RetentionDays } from 'aws-cdk-lib/aws-logs';
import { describe, expect, it } from 'vitest';
import { ConfigurationError } from '../../functions/base/validation.ts';
import { readConfiguration } from '../../infra/configuration.ts';
import { parseStackContext, RETENTION_DAYS, readStackContext } from '../../infra/deployment.ts';
import { folderWith } from '../support/folder.ts';

const TRACKED = { baseUrl: 'https://flows.example.com', routes: [{ name: 'all', template: 'tracked' }] };
const OWN = { ...TRACKED, pipeline: 'models', settings: { attemptsMax: 3, inboxPrefix: 'in/' } };

const read = (files: Readonly<Record<string, object | string>>, stage?: string) =>
  readConfiguration({ dir: folderWith(files), stage, context: TRACKED });

it('knows the retention of logs that CDK knows, without CDK', () => {
  expect(RETENTION_DAYS).toEqual(Object.values(RetentionDays).filter((value) => typeof value === 'number'));
});

/** Copies of a value that each have another one in place of one of its parts, at any depth. */
function withOneReplaced(value: unknown, other: unknown): readonly unknown[] {
  if (typeof value !== 'object' || value === null) return [other];
  const inside = Object.entries(value).flatMap(([name, member]) =>
    withOneReplaced(member, other).map((each) =>
      Array.isArray(value) ? value.with(Number(name), each) : { ...value, [name]: each },
    ),
  );
  return [other, ...inside];
}

describe('the configuration', () => {
  it('is the context of cdk.json as long as there is no file of your own', () => {
    expect(read({})).toEqual({ value: TRACKED, source: 'cdk.json', where: 'context.flowdrop' });
  });

  it('is the file of your own, and then nothing of cdk.json', () => {
    expect(read({ 'flowdrop.json': { baseUrl: 'https://own.example.com' } })).toEqual({
      value: { baseUrl: 'https://own.example.com' },
      source: 'flowdrop.json',
      where: '',
    });
  });

  it('of a stage has the members of its file, and its name in that of the pipeline', () => {
    const production = { settings: { attemptsMax: 9 }, routes: [], deployment: { terminationProtection: true } };
    const { value, source } = read({ 'flowdrop.json': OWN, 'flowdrop.production.json': production }, 'production');
    expect(value).toEqual({
      ...OWN,
      pipeline: 'models-production',
      settings: { attemptsMax: 9, inboxPrefix: 'in/' },
      routes: [],
      deployment: { terminationProtection: true },
    });
    expect(source).toBe('flowdrop.json, flowdrop.production.json');
  });

  it('is refused in words if it is nested very deeply, in one file or in two that are merged', () => {
    const text = `{"deep":${'{"a":'.repeat(100_000)}1${'}'.repeat(100_000)}}`;
    const routes = JSON.stringify(TRACKED.routes);
    for (const member of ['settings', 'deployment']) {
      const own = `{"baseUrl":"https://own.example.com","routes":${routes},"${member}":${text}}`;
      const files = { 'flowdrop.json': own, 'flowdrop.production.json': `{"${member}":${text}}` };
      for (const stage of [undefined, 'production']) {
        expect(() => readStackContext({ dir: folderWith(files), stage, context: TRACKED })).toThrow(
          /^flowdrop\.json(, flowdrop\.production\.json)?: (settings|deployment)\.deep: unknown, expected only/,
        );
      }
    }
    const deepRoute = `{"baseUrl":"https://own.example.com","routes":[{"name":"r","template":"t","parameters":${text}}]}`;
    expect(() => readStackContext({ dir: folderWith({ 'flowdrop.json': deepRoute }), context: TRACKED })).toThrow(
      /^flowdrop\.json: routes\[0\]\.parameters: expected something that JSON can say, nested at most 32 deep/,
    );
  });

  it('of a stage has the name of the pipeline that its file gives', () => {
    expect(read({ 'flowdrop.dev.json': { pipeline: 'sandbox' } }, 'dev').value).toMatchObject({ pipeline: 'sandbox' });
    expect(read({ 'flowdrop.dev.json': {} }, 'dev').value).toMatchObject({ pipeline: 'flowdrop-dev' });
  });

  it.each([
    ['ledgerBucket', 'ledger', {}],
    ['inboxBucket', 'inbox', { inboxPrefix: 'test/' }],
    ['resultsBucket', 'results', { resultsPrefix: 'test/' }],
  ])('of a stage takes no %s from the configuration of all stages', (bucket, what, settings) => {
    const common = { deployment: { [bucket]: 'common' } };
    const files = { 'flowdrop.json': { ...OWN, ...common }, 'flowdrop.test.json': {} };
    expect(read(files).value).toMatchObject(common);
    expect(() => read(files, 'test')).toThrow(
      new RegExp(
        `^flowdrop.json: deployment.${bucket}: expected it in flowdrop.test.json, .*because stages that share the ${what} .*, got "common"`,
      ),
    );
    const own = { deployment: { [bucket]: 'of-test' } };
    expect(read({ ...files, 'flowdrop.test.json': own }, 'test').value).toMatchObject(own);
    if (Object.keys(settings).length === 0) return;
    const ofTest = { ...files, 'flowdrop.test.json': { settings } };
    expect(read(ofTest, 'test').value).toMatchObject({ ...common, settings });
  });

  it('is checked with the paths in its file, which is named once, and so are its warnings', () => {
    const routes = [{ name: 'all', template: 't', suffixes: ['png', 5] }];
    const issuesOf = (files: Readonly<Record<string, object | string>>) => {
      try {
        return readStackContext({ dir: folderWith(files), context: { ...TRACKED, routes } }).warnings;
      } catch (error) {
        return (error as Error).message.split(' expected ')[0];
      }
    };
    expect(issuesOf({})).toBe('cdk.json: context.flowdrop.routes[0].suffixes[1]:');
    expect(issuesOf({ 'flowdrop.json': { ...OWN, routes } })).toBe('flowdrop.json: routes[0].suffixes[1]:');
    expect(issuesOf({ 'flowdrop.json': '{' })).toMatch(/^flowdrop\.json: (?!cdk|flowdrop)/);
    expect(issuesOf({ 'flowdrop.json': [] })).toBe('flowdrop.json:');
    const likely = [{ name: 'all', template: 't', suffixes: ['png'] }];
    expect(issuesOf({ 'flowdrop.json': { ...TRACKED, routes: likely } })).toEqual([
      'flowdrop.json: routes[0].suffixes[0]: png also fits the end of a name such as mypng. Say .png.',
    ]);
  });

  it.each<[string, string, string]>([
    [
      'a mark of the byte order',
      `\uFEFF${JSON.stringify(OWN)}`,
      'expected JSON in UTF-8, got a byte order mark before it. Save the file as UTF-8 without one.',
    ],
    ['nothing', '', 'expected JSON, got an empty file'],
    ['blanks', ' \n', 'expected JSON, got an empty file'],
  ])('is refused in words if a file has %s', (_, text, message) => {
    expect(() => read({ 'flowdrop.json': text })).toThrow(
      new ConfigurationError([message], { source: 'flowdrop.json' }),
    );
    const ofStage = () => read({ 'flowdrop.prod.json': text }, 'prod');
    expect(ofStage).toThrow(new ConfigurationError([message], { source: 'flowdrop.prod.json' }));
  });

  it.each<[string, Buffer]>([
    ['UTF-16', Buffer.from(`\uFEFF${JSON.stringify(OWN)}`, 'utf16le')],
    ['UTF-16 in the other order', Buffer.from(`\uFEFF${JSON.stringify(OWN)}`, 'utf16le').swap16()],
    ['UTF-16 without a mark', Buffer.from(JSON.stringify(OWN), 'utf16le')],
    ['Latin-1', Buffer.from(JSON.stringify({ ...OWN, pipeline: 'für' }), 'latin1')],
  ])('is refused in words if a file is %s', (_, bytes) => {
    const dir = folderWith({});
    writeFileSync(join(dir, 'flowdrop.json'), bytes);
    const message = 'expected JSON in UTF-8, got another encoding. Save the file as UTF-8.';
    expect(() => readConfiguration({ dir, context: TRACKED })).toThrow(
      new ConfigurationError([message], { source: 'flowdrop.json' }),
    );
  });

  it('is refused in words if a file cannot be read', () => {
    const dir = folderWith({ 'flowdrop.json/file': '' });
    expect(() => readConfiguration({ dir, context: TRACKED })).toThrow(ConfigurationError);
    expect(() => readConfiguration({ dir, context: TRACKED })).toThrow('flowdrop.json: EISDIR');
  });

  it('is a mistake in words, whatever stands in any place', () => {
    const whole = {
      ...OWN,
      routes: [
        {
          ...{
            name: 'a',
            template: 't',
            prefixes: ['in/a/'],
            suffixes: ['.a'],
            mediaTypes: ['image/*'],
            parameters: {},
          },
          ...{ additional: {}, overrides: true, input: 'file', price: { amount: 1, currency: 'EUR' } },
          budget: { flows: 1, per: 'day' },
        },
        { name: 'b', template: 't', after: 'a', inputs: 'all', allow: 'partial' },
        { name: 'c', template: 't', jobs: 'in/c/', deadlineSeconds: 5 },
      ],
      settings: { ...OWN.settings, budget: { flows: 2, per: 'day' } },
      deployment: {
        tags: { a: 'b' },
        vpc: { id: 'vpc-0', subnetIds: ['subnet-0'] },
        operatorRoleArns: [],
        account: '123456789012',
      },
    };
    expect(readStackContext({ dir: folderWith({ 'flowdrop.json': whole }), context: undefined }).warnings).toEqual([]);
    for (const wrong of [null, true, 5, 'x', [], [null], [[]], {}, { a: 1 }, { length: 2 }]) {
      for (const each of withOneReplaced(whole, wrong)) {
        try {
          parseStackContext(each);
        } catch (error) {
          expect(error, JSON.stringify(each)).toBeInstanceOf(ConfigurationError);
        }
      }
    }
  });

  it.each<[string, Readonly<Record<string, string>>, string, string]>([
    [
      'the file of the stage is missing',
      {},
      'prod',
      'stage prod: expected the file flowdrop.prod.json beside cdk.json',
    ],
    ['the name of the stage is a path', {}, '../x', 'stage: expected at most 32 letters, digits and hyphens, got ../x'],
    ['a file is not JSON', { 'flowdrop.prod.json': '{' }, 'prod', 'flowdrop.prod.json: '],
  ])('is refused if %s', (_, files, stage, message) => {
    expect(() => read(files, stage)).toThrow(ConfigurationError);
    expect(() => read(files, stage)).toThrow(message);
  });
});
