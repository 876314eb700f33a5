import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { parseArguments, UsageError } from '../../../local/start/arguments.ts';

describe('the arguments of npm start', () => {
  const cwd = mkdtempSync(join(tmpdir(), 'flowdrop-arguments-'));
  writeFileSync(join(cwd, 'a.png'), '');
  afterAll(() => rmSync(cwd, { recursive: true }));
  const parse = (arguments_: string[], env: NodeJS.ProcessEnv = {}) => parseArguments(arguments_, { env, cwd });

  it('default to watching ./inbox and writing to ./results', () => {
    expect(parse([])).toEqual({
      help: false,
      inboxDir: join(cwd, 'inbox'),
      resultsDir: join(cwd, 'results'),
      files: [],
      service: undefined,
      showsCredentials: false,
    });
    expect(parse(['--credentials'])).toMatchObject({ showsCredentials: true });
  });

  it('name files, folders and a service, whose token is in the environment', () => {
    expect(
      parse(['a.png', '--results', '../out', '--service', 'https://flows.example.com/v1/'], { FLOWDROP_TOKEN: 'fake' }),
    ).toMatchObject({
      files: [join(cwd, 'a.png')],
      resultsDir: join(cwd, '..', 'out'),
      service: { url: 'https://flows.example.com/v1', token: 'fake' },
    });
  });

  it.each([
    [['--verbose'], "Unknown option '--verbose'"],
    [['--inbox'], '--inbox'],
    [['missing.png'], 'There is no file missing.png'],
    [['.'], '. is not a file'],
    [['a.png', '--inbox', 'in'], 'cannot be combined with files'],
    [['a.png', '--credentials'], 'cannot be combined with files'],
    [['--results', 'inbox/results'], 'must not contain each other'],
    [['--inbox', '.'], 'must not contain each other'],
    [['--service', 'flows.example.com'], 'expected a URL such as https://flows.example.com'],
    [['--service', 'http://flows.example.com'], 'expected https:'],
    [['--service', 'https://flows.example.com'], 'FLOWDROP_TOKEN'],
  ])('%j are refused with a message', (arguments_, sentence) => {
    expect(() => parse(arguments_)).toThrow(UsageError);
    expect(() => parse(arguments_)).toThrow(sentence);
  });

  it('are not checked if help is requested', () => {
    expect(parse(['--help', 'missing.png']).help).toBe(true);
  });
});
