import { chmod, mkdir, readdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it, vi } from 'vitest';
import { PATIENCE } from '../support/patience.ts';
import { Home, type Run } from './npm-start.ts';

/** A user that is not root: nothing is forbidden to root. */
const NOBODY = { uid: 65_534, gid: 65_534 };
const isRoot = process.getuid?.() === 0;

async function interrupt({ child, ended }: Run): Promise<{ code: number | null; output: string }> {
  child.kill('SIGINT');
  return ended;
}

it.each([
  ['start', '--servce', '--service'],
  ['test:faults', '--seed', '--seeds'],
  ['bench', '--qick', '--quick'],
  ['package', '--hlp', '--help'],
  ['test:s3', '--buckt', '--bucket'],
])('npm run %s names the option that was meant', async (script, mistyped, meant) => {
  const folder = await Home.make();
  const command = script === 'start' ? 'npm start' : `npm run ${script}`;
  expect(await folder.run(script, [mistyped]).ended).toEqual({
    code: 2,
    output: `There is no option ${mistyped}. Did you mean ${meant}? (${command} -- --help shows the usage)\n`,
  });
  expect(await readdir(folder.path)).toEqual([]);
});

// All scripts but npm start share the code that answers this.
it.each(['start', 'bench'])('npm run %s shows its usage', async (script) => {
  const { code, output } = await (await Home.make()).run(script, ['--help']).ended;
  expect(output).toMatch(script === 'start' ? /npm start --/ : /npm run bench --/);
  expect(output).toContain('--help');
  expect(code).toBe(0);
});

it('an option that npm swallowed is found in the environment', async () => {
  const env = { npm_config_service: 'true' };
  const { code, output } = await (await Home.make()).run('start', ['https://flows.invalid'], { env }).ended;
  expect(output).toContain('npm start -- --service https://flows.invalid');
  expect(code).toBe(2);
});

it('--version is one line', async () => {
  const { code, output } = await (await Home.make()).run('start', ['--version']).ended;
  expect(output).toMatch(/^flowdrop \d+\.\d+\.\d+ \(Node \d+\.\d+\.\d+\)\n$/);
  expect(code).toBe(0);
});

it('an old Node ends with one sentence, before it meets TypeScript', async () => {
  const folder = await Home.make();
  // Loaded before the check, as an old Node would be.
  const old = join(folder.path, 'old.cjs');
  await writeFile(old, "Object.defineProperty(process.versions, 'node', { value: '20.19.0' });");
  const { code, output } = await folder.run('start', [], { env: { NODE_OPTIONS: `--require ${old}` } }).ended;
  expect(output).toMatch(/^Flowdrop needs Node 24 or later, and this is Node 20\.19\.0: .*npm ci.*\n$/);
  expect(code).toBe(1);
});

it('an inbox and results that cannot be written are told at the start', async () => {
  const folder = await Home.make();
  await writeFile(join(folder.path, 'taken'), 'a file');
  await writeFile(join(folder.path, 'fox.txt'), 'a fox');
  const cases: [string[], RegExp][] = [
    [['--inbox', 'taken/inbox'], /Nothing can be written to .*taken\/inbox: a part of the path is a file.*--inbox/],
    [['--results', 'taken'], /Nothing can be written to .*taken: there is a file in its place.*--results/],
    [['fox.txt', '--results', 'taken/results'], /Nothing can be written to .*: a part of the path is a file/],
  ];
  for (const [arguments_, sentence] of cases) {
    const { code, output } = await folder.run('start', arguments_).ended;
    expect(output).toMatch(sentence);
    expect(output.trim().split('\n')).toHaveLength(1);
    expect(code).toBe(2);
  }
  expect(await readdir(folder.path)).not.toContain('.flowdrop');
});

it.runIf(isRoot)('an unreadable subfolder is told once, and the others go on', async () => {
  const folder = await Home.make();
  await mkdir(join(folder.path, 'inbox', 'secret'), { recursive: true });
  await mkdir(join(folder.path, 'inbox', 'open'));
  await writeFile(join(folder.path, 'inbox', 'secret', 'a.txt'), 'a fox');
  await writeFile(join(folder.path, 'inbox', 'open', 'b.txt'), 'a fox');
  await chmod(join(folder.path, 'inbox', 'secret'), 0o700); // Of root.
  await chmod(folder.path, 0o777);
  const run = folder.run('start', [], NOBODY);
  await vi.waitFor(() => expect(run.output()).toContain('open/b.txt  done'), PATIENCE);
  const { code, output } = await interrupt(run);
  expect(output.match(/The folder \.\/inbox\/secret cannot be read \(EACCES\)/g)).toHaveLength(1);
  expect(output).not.toContain('a.txt');
  expect(code).toBe(0);

  const once = await folder.run('start', ['inbox'], NOBODY).ended;
  expect(once.output).toMatch(/inbox\/secret {2}skipped: the folder cannot be read \(EACCES\)/);
  expect(once.output).toContain('open/b.txt  done');
  expect(once.code).toBe(1);
});

it('an unexpected error is one sentence, and its details are in a log file', async () => {
  const folder = await Home.make();
  await mkdir(join(folder.path, '.flowdrop', 'log'), { recursive: true });
  // A link to nowhere where the state belongs is an error that nobody has foreseen.
  await symlink(join(folder.path, 'none', 'none'), join(folder.path, '.flowdrop', 'stand-in'));
  await symlink('/proc/none', join(folder.path, '.flowdrop', 'watch.lock'));
  const { code, output } = await folder.run('start').ended;
  expect(output).toMatch(/^An unexpected error ended this run: .+ \(details: \.\/\.flowdrop\/log\/start\.log\)\n$/);
  expect(output).not.toMatch(/^ +at /m);
  expect(await readFile(join(folder.path, '.flowdrop', 'log', 'start.log'), 'utf8')).toMatch(/^ +at /m);
  expect(code).toBe(1);
});

it('ends when nobody reads its output any more', async () => {
  const folder = await Home.make();
  const { child, ended, output } = folder.run('start');
  await vi.waitFor(() => expect(output()).toContain('Press Ctrl-C'), PATIENCE);
  child.stdout?.destroy();
  const { output: all } = await ended;
  expect(all).not.toMatch(/EPIPE| at /);
});
