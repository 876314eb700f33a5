import { RetentionDays } from 'aws-cdk-lib/aws-logs';
import { describe, expect, it } from 'vitest';
import { ConfigurationError } from '../../functions/base/validation.ts';
import { readConfiguration } from '../../infra/configuration.ts';
import { RETENTION_DAYS, readStackContext } from '../../infra/deployment.ts';
import { folderWith } from '../support/folder.ts';

const TRACKED = { baseUrl: 'https://flows.example.com', routes: [{ name: 'all', template: 'tracked' }] };
const OWN = { ...TRACKED, pipeline: 'models', settings: { attemptsMax: 3, inboxPrefix: 'in/' } };

const read = (files: Readonly<Record<string, object | string>>, stage?: string) =>
  readConfiguration({ dir: folderWith(files), stage, context: TRACKED });

it('knows the retention of logs that CDK knows, without CDK', () => {
  expect(RETENTION_DAYS).toEqual(Object.values(RetentionDays).filter((value) => typeof value === 'number'));
});

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

  it('of a stage has the name of the pipeline that its file gives', () => {
    expect(read({ 'flowdrop.dev.json': { pipeline: 'sandbox' } }, 'dev').value).toMatchObject({ pipeline: 'sandbox' });
    expect(read({ 'flowdrop.dev.json': {} }, 'dev').value).toMatchObject({ pipeline: 'flowdrop-dev' });
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
