import { execFileSync, spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { stripVTControlCharacters, styleText } from 'node:util';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { Operated, runFlowdrop } from '../../operations/support.ts';
import { folderWith } from '../../support/folder.ts';

vi.mock('../../../operations/wait.ts', () => import('../../operations/quick-wait.ts'));

const inColour = (colour: 'green' | 'red' | 'yellow', text: string) =>
  styleText(colour, text, { validateStream: false });

describe('on a terminal', () => {
  let operated: Operated;
  beforeAll(async () => {
    operated = await Operated.start();
    await operated.put('photos/robot.png', 'succeeded');
    await operated.putRefused('bad/first.png');
    return () => operated[Symbol.asyncDispose]();
  });
  const shown = (...words: readonly string[]) => runFlowdrop(words, { directory: operated.directory, columns: 100 });

  it.each<[line: string, coloured: readonly string[]]>([
    ['status', [inColour('red', '1')]],
    ['status photos/robot.png', [`photos/robot.png: ${inColour('green', 'succeeded')}\n`]],
    ['status bad/first.png', [`bad/first.png: ${inColour('red', 'failed')}\n`]],
    ['list', [inColour('green', 'succeeded'), inColour('red', 'failed')]],
    ['doctor', [`: ${inColour('green', 'good')}\n`]],
  ])('%s shows states and results in colours', async (line, coloured) => {
    const { output } = await shown(...line.split(' '));
    for (const text of coloured) expect(output).toContain(text);
  });

  it('doctor shows a fault in red', async () => {
    const { output } = await runFlowdrop(['doctor', '--local'], { directory: folderWith({}), columns: 100 });
    expect(output).toContain(`: ${inColour('red', 'fault')}\n`);
    expect(output).toContain(`${inColour('red', '1 fault')}, 0 warnings\n`);
  });

  it('the columns of a table stand where they stand without colours', async () => {
    const { output } = await shown('list');
    const lines = stripVTControlCharacters(output).split('\n').slice(0, 3);
    expect(new Set(lines.map((line) => line.search(/STATE|succeeded|failed/))).size).toBe(1);
    expect(new Set(lines.map((line) => line.search(/WHEN|\d\d:\d\d:\d\d/))).size).toBe(1);
  });

  it('an escape in the name of a file colours nothing', async () => {
    const { errors, output } = await shown('status', '\u001b[31mred.png');
    expect(errors + output).toContain(String.raw`\u001b[31mred.png`);
  });

  it('an error is red, and with --json nothing is', async () => {
    expect((await shown('explain', 'a.png', '--stack', 'b', '--local')).errors).toContain(
      inColour('red', '--stack, --function and --local exclude each other.'),
    );
    expect((await shown('list', '--faild')).errors).toContain(inColour('red', "error: unknown option '--faild'"));
    for (const line of ['explain absent.png', 'list --faild', 'list', 'doctor'])
      expect((await shown(...line.split(' '), '--json')).output).not.toContain('\u001b');
  });
});

const COMMAND = fileURLToPath(new URL('../../../command-line/flowdrop.ts', import.meta.url));
const LINE = `'${process.execPath}' '${COMMAND}' status --local`;

/** The process itself, whose output is a terminal or a pipe. */
function printed(where: 'terminal' | 'pipe', env: Readonly<Record<string, string>> = {}, line = LINE): string {
  const options = {
    cwd: folderWith({}),
    encoding: 'utf8',
    env: { PATH: process.env.PATH, HOME: process.env.HOME, TERM: 'xterm', ...env },
  } as const;
  if (where === 'terminal') return execFileSync('script', ['-qc', `${line}; true`, '/dev/null'], options);
  const { stdout, stderr } = spawnSync('sh', ['-c', line], options);
  return stdout + stderr;
}

/** Debian's `script` gives a program a terminal of its own. That of macOS takes other words. */
describe.runIf(process.platform === 'linux')('the command', () => {
  it.each<[name: string, hasColours: boolean, ...Parameters<typeof printed>]>([
    ['uses colours on a terminal', true, 'terminal'],
    ['uses none with NO_COLOR', false, 'terminal', { NO_COLOR: '1' }],
    ['uses none on a terminal without colours', false, 'terminal', { TERM: 'dumb' }],
    ['uses none in a pipe', false, 'pipe'],
    ['uses some in a pipe with FORCE_COLOR', true, 'pipe', { FORCE_COLOR: '1' }],
    ['uses none with --json', false, 'terminal', { FORCE_COLOR: '1' }, `${LINE} --json`],
  ])('%s', (_, hasColours, where, env, line) => {
    const output = printed(where, env, line);
    expect(output).toContain('npm start');
    expect(output.includes('\u001b[31m')).toBe(hasColours);
  });
});
