import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { UsageError } from '../../../command-line/options.ts';
import { FLOWS } from '../../../functions/flow-service/services.ts';
import { parseArguments, requireReach } from '../../../local/start/arguments.ts';
import { sharedFolder } from '../../support/folder.ts';

describe('the arguments of npm start', () => {
  const cwd = sharedFolder();
  for (const folder of ['shots/2026', 'shots/.git', 'empty', 'mine/results']) {
    mkdirSync(join(cwd, folder), { recursive: true });
  }
  for (const file of ['a.png', 'shots/a.png', 'shots/2026/b c.png', 'shots/.git/config', 'shots/.DS_Store']) {
    writeFileSync(join(cwd, file), '');
  }
  symlinkSync(join(cwd, 'a.png'), join(cwd, 'shots/link.png'));
  const parse = (arguments_: string[], env: NodeJS.ProcessEnv = {}) => parseArguments(arguments_, { env, cwd });

  it('default to watching ./inbox and writing to ./results', () => {
    expect(parse([])).toEqual({
      shows: undefined,
      inboxDir: join(cwd, 'inbox'),
      resultsDir: join(cwd, 'results'),
      files: undefined,
      optionWords: [],
      unreadable: [],
      service: undefined,
      showsCredentials: false,
      skipCheck: false,
      checksService: false,
      isAllowed: false,
      notifies: false,
      sendsExisting: false,
      opensPage: false,
      pagePort: 0,
    });
    expect(parse(['--open', '--port', '8321'])).toMatchObject({ opensPage: true, pagePort: 8321 });
    for (const port of ['65536', '-1', 'x', '']) expect(() => parse([`--port=${port}`])).toThrow(UsageError);
    expect(() => parse(['a.png', '--open'])).toThrow(/goes on/);
    expect(parse(['--credentials'])).toMatchObject({ showsCredentials: true });
  });

  it('name files, folders and a service, whose token is in the environment', () => {
    expect(
      parse(['a.png', '--results', '../out', '--service', 'https://flows.example.com/v1/'], { FLOWDROP_TOKEN: 'fake' }),
    ).toMatchObject({
      files: [{ path: join(cwd, 'a.png'), key: 'a.png' }],
      resultsDir: join(cwd, '..', 'out'),
      optionWords: ['--results', '../out', '--service', 'https://flows.example.com/v1/'],
      service: { url: 'https://flows.example.com/v1', token: 'fake' },
    });
  });

  it('name a service to try, with a file or without one', () => {
    const env = { FLOWDROP_TOKEN: 'fake' };
    const tried = ['--check-service', 'https://flows.example.com', '--yes'];
    const service = { url: 'https://flows.example.com', token: 'fake' };
    expect(parse(tried, env)).toMatchObject({ checksService: true, isAllowed: true, service, files: undefined });
    expect(parse([...tried, 'a.png'], env)).toMatchObject({ files: [{ key: 'a.png' }] });
    expect(() => parse([...tried, '--service', 'https://x.example'], env)).toThrow('cannot be combined');
    expect(() => parse([...tried, '--notify'], env)).toThrow('cannot be combined with --notify');
    expect(() => parse(['--yes'])).toThrow('--yes is for --check-service');
    expect(() => parse(tried)).toThrow('--check-service needs a token');
  });

  it.each([
    [['--servce', 'https://flows.example.com'], 'Did you mean --service?'],
    [['--results='], '--results needs a value'],
    [['missing.png'], 'There is no file missing.png'],
    [['a.png/b.png'], 'There is no file a.png/b.png'],
    [['https://flows.example.com'], 'Did you mean --service https://flows.example.com?'],
    [['/dev/null'], '/dev/null is neither a file nor a folder'],
    [['.'], '. contains the folder for the results'],
    [['mine', '--results', 'mine/results'], 'mine contains the folder for the results'],
    [['empty'], 'There is no file in empty'],
    [['--inbox', 'a.png'], 'is not a folder'],
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

  it.each<[string | undefined, RegExp]>([
    [undefined, /FLOWDROP_TOKEN/],
    ['', /FLOWDROP_TOKEN/],
    ['fake\ntoken', /FLOWDROP_TOKEN.*line break/],
    ['fake token', /FLOWDROP_TOKEN.*space/],
    ['fake-tökén', /FLOWDROP_TOKEN/],
  ])('need a usable token with a service, not %j, and do not show it', (token, sentence) => {
    const parsing = () => parse(['--service', 'https://flows.example.com'], { FLOWDROP_TOKEN: token });
    expect(parsing).toThrow(UsageError);
    expect(parsing).toThrow(sentence);
    expect(parsing).not.toThrow(/fake|\n/);
  });

  it('take the files of a folder, under keys that begin with its name, without hidden files, and name its links', () => {
    const { files, unreadable } = parse(['shots', 'a.png']);
    expect(unreadable).toEqual([{ name: join(cwd, 'shots/link.png'), why: 'it is a link. Name what it leads to' }]);
    expect(files).toEqual([
      { path: join(cwd, 'shots/2026/b c.png'), key: 'shots/2026/b c.png' },
      { path: join(cwd, 'shots/a.png'), key: 'shots/a.png' },
      { path: join(cwd, 'a.png'), key: 'a.png' },
    ]);
  });

  it.each<[string[], NodeJS.ProcessEnv, string]>([
    [[], { npm_config_inbox: 'in' }, 'npm start -- --inbox in'],
    [[], { npm_config_skip_check: 'true' }, 'npm start -- --skip-check'],
  ])('that npm took for its own are named, with the right command: %j %j', (arguments_, env, command) => {
    expect(() => parse(arguments_, env)).toThrow(command);
  });

  it('take no setting of npm for an option', () => {
    const env = { npm_config_prefix: '/usr', npm_config_version: '1', npm_config_json: 'true', npm_config_fund: '' };
    expect(parse(['a.png'], env).files).toHaveLength(1);
  });

  it('are not checked if help or the version is requested', () => {
    expect(parse(['--help', 'missing.png']).shows).toBe('help');
    expect(parse(['--version', 'missing.png']).shows).toBe('version');
  });
});

it('a service elsewhere is refused if it would fetch files from this machine', () => {
  const create = { ...FLOWS.create, body: { image: '{inputUrl}' } };
  const fetching = { ...FLOWS, create };
  expect(() => requireReach({ url: 'https://flows.example.com', checksService: false }, fetching)).toThrow(
    new UsageError(
      '--service: the service would fetch each file ({inputUrl}) from the S3 of this machine, which ' +
        'https://flows.example.com cannot reach. Deploy the pipeline, declare "{input}" in service.create.body, or use a ' +
        'service on this machine',
    ),
  );
  const url = 'http://127.0.0.1:8080';
  requireReach({ url, checksService: false }, fetching);
  expect(() => requireReach({ url, checksService: true }, fetching)).toThrow('--check-service has no bucket');
  requireReach({ url: 'https://flows.example.com', checksService: true }, FLOWS);
});
