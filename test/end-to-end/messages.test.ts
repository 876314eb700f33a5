import { mkdir, readdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { Home } from './npm-start.ts';

// All scripts but npm start share the code that answers this. The gate runs the faults and the benchmark with options.
it.each([
  ['start', '--servce', '--service'],
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

it.each(['start', 'bench'])('npm run %s shows its usage', async (script) => {
  const { code, output } = await (await Home.make()).run(script, ['--help']).ended;
  expect(output).toMatch(script === 'start' ? /npm start --/ : /npm run bench --/);
  expect(output).toContain('--help');
  expect(code).toBe(0);
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
  const cases: [string[], RegExp][] = [
    [['--inbox', 'taken/inbox'], /Nothing can be written to .*taken\/inbox: a part of the path is a file.*--inbox/],
    [['--results', 'taken'], /Nothing can be written to .*taken: there is a file in its place.*--results/],
  ];
  for (const [arguments_, sentence] of cases) {
    const { code, output } = await folder.run('start', arguments_).ended;
    expect(output).toMatch(sentence);
    expect(output.trim().split('\n')).toHaveLength(1);
    expect(code).toBe(2);
  }
  expect(await readdir(folder.path)).not.toContain('.flowdrop');
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
