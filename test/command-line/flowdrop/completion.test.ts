import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { runFlowdrop } from '../../operations/support.ts';
import { folderWith } from '../../support/folder.ts';
import { issuesOf } from '../../support/json-schema.ts';
import { PATIENCE } from '../../support/patience.ts';

const FILES = { 'robot.png': '', 'my robot.png': '', 'rooms/one.png': '' };

const printed = async (...words: readonly string[]): Promise<string> => {
  const { code, output, errors } = await runFlowdrop(words, { directory: '.' });
  expect([code, errors]).toEqual([0, '']);
  return output;
};

/** What bash offers for the last word. It has split the words as it does while a person types. */
async function offered(...words: readonly string[]): Promise<readonly string[]> {
  const complete = `${await printed('completion', 'bash')}
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _flowdrop; printf '%s\\n' "\${COMPREPLY[@]}"`;
  const args = ['--norc', '-c', complete, 'bash', 'flowdrop', ...words];
  const output = execFileSync('bash', args, { cwd: folderWith(FILES), encoding: 'utf8' });
  return output.split('\n').filter((line) => line !== '');
}

describe('flowdrop completion bash', () => {
  it('offers each command and each option that the help shows', async () => {
    const help = await printed('--help');
    const [, list = ''] = help.split('\nCommands:\n');
    const names = Array.from(list.split('\n\n')[0]?.matchAll(/^ {2}(\w+) /gm) ?? [], ([, name = '']) => name);
    expect(names).toContain('doctor');
    expect(await offered('')).toEqual(names);
    for (const name of names.filter((each) => each !== 'help')) {
      const [options = ''] = (await printed(name, '--help')).split('\nExamples:');
      const shown = Array.from(options.matchAll(/^ {2}(?:-h, )?(--[\w-]+)/gm), ([, option = '']) => option);
      expect(shown).toContain('--json');
      expect((await offered(name, '--')).toSorted(), name).toEqual(shown.toSorted());
    }
  });

  it.each<[words: readonly string[], offered: readonly string[]]>([
    [['sta'], ['status']],
    [['status', '--w'], ['--watch']],
    [['--stack', 'status', 'pau'], ['pause']],
    [['--stack', '=', 'prod', 'list', '--fa'], ['--failed']],
    [
      ['--json', 'costs', '--by', ''],
      ['route', 'prefix', 'day'],
    ],
    [['costs', '--by', '=', 'p'], ['prefix']],
    [
      ['costs', '--by', '='],
      ['route', 'prefix', 'day'],
    ],
    [['list', '--code', 'flow-a'], ['flow-aborted']],
    [['retry', '--code', 'throt'], []],
    [
      ['completion', ''],
      ['bash', 'zsh', 'fish'],
    ],
    [['help', 'compl'], ['completion']],
    [
      ['explain', 'ro'],
      ['robot.png', 'rooms'],
    ],
    [['put', 'robot.png', 'my'], ['my robot.png']],
    [['doctor', '--canary', 'rob'], ['robot.png']],
    [['status', 'ro'], []],
    [['list', '--since', ''], []],
    [['--region', ''], []],
    [['list', '--failed', '--stack', ''], []],
  ])('offers for %j: %j', async (words, expected) => {
    expect((await offered(...words)).toSorted()).toEqual(expected.toSorted());
  });
});

/** Types a line into an interactive shell. In place of the command is a function that prints the words it got. */
const ZSH = String.raw`
  zmodload zsh/zpty
  zpty shell zsh -f -i
  zpty -w shell "source $1; flowdrop() { print -r -- \"got <\$*>\" }; print rea''dy"
  zpty -r -m shell out "*ready*"
  zpty -w -n shell "$2"$'\n'
  zpty -r -m shell out "*got <*>*"
  print -r -- "$out"
`;

const lacks = (shell: string): boolean => !['/usr/bin', '/bin'].some((folder) => existsSync(`${folder}/${shell}`));

describe.skipIf(lacks('zsh'))('flowdrop completion zsh', () => {
  it.each([
    ['flowdrop compl\tzs\t', 'got <completion zsh>'],
    ['flowdrop --stack prod costs --b\tpre\t', 'got <--stack prod costs --by=prefix>'],
    ['flowdrop costs --by pre\t', 'got <costs --by prefix>'],
    ['flowdrop --loc\tlist --und\t', 'got <--local list --undecided>'],
    ['flowdrop explain --jso\trobo\t', 'got <explain --json robot.png>'],
    ['flowdrop status robo\t', 'got <status robo>'],
  ])('makes of %j: %s', async (typed, expected) => {
    const folder = folderWith({ ...FILES, 'completion.zsh': await printed('completion', 'zsh') });
    const output = execFileSync('zsh', ['-f', '-c', ZSH, 'zsh', 'completion.zsh', typed], {
      cwd: folder,
      encoding: 'utf8',
      timeout: PATIENCE.timeout,
    });
    expect(output.replaceAll('\r', '')).toContain(expected);
  });
});

describe.skipIf(lacks('fish'))('flowdrop completion fish', () => {
  it.each([
    ['flowdrop sta', ['status']],
    ['flowdrop --stack status pau', ['pause']],
    ['flowdrop list --und', ['--undecided']],
    ['flowdrop costs --by ', ['day', 'prefix', 'route']],
    ['flowdrop completion ', ['bash', 'fish', 'zsh']],
    ['flowdrop explain robo', ['robot.png']],
    ['flowdrop status robo', []],
    ['flowdrop list --since ', []],
  ])('offers for "%s": %j', async (line, expected) => {
    const folder = folderWith({ ...FILES, 'completion.fish': await printed('completion', 'fish') });
    const command = 'source completion.fish; complete -C $argv[1]';
    const env = { ...process.env, HOME: folder };
    const output = execFileSync('fish', ['--no-config', '-c', command, line], { cwd: folder, env, encoding: 'utf8' });
    expect(Array.from(output.matchAll(/^[^\t\n]+/gm), ([word]) => word)).toEqual(expected);
  });
});

it('a shell without a script is refused with the shells that have one', async () => {
  const { code, errors } = await runFlowdrop(['completion', 'tcsh'], { directory: '.' });
  expect(code).toBe(2);
  expect(errors).toContain('bash, zsh, fish');
});

it('with --json the script is a member of the answer', async () => {
  const answer = JSON.parse(await printed('completion', 'bash', '--json'));
  expect(issuesOf('completion', answer)).toBe('');
  expect(answer.script).toBe(await printed('completion', 'bash'));
});
