import { chmod, chown, copyFile, mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { PATIENCE } from '../support/patience.ts';
import { Home } from './npm-start.ts';

const EXAMPLES = fileURLToPath(new URL('../../examples', import.meta.url));
/** A user id without an entry in /etc/passwd. */
const NOBODY = 54_321;
const TOKEN = 'an-obviously-fake-token';

let folder: Home;
let home: string;
beforeEach(async () => {
  folder = await Home.make();
  home = folder.path;
});

/** The paths below a folder that other users could open, with their modes. */
async function openToOthers(path: string): Promise<readonly string[]> {
  const inside = await readdir(path, { recursive: true });
  const modes = await Promise.all(
    ['.', ...inside].map(async (each) => {
      const info = await stat(join(path, each)).catch(() => undefined); // Removed since.
      return { each, mode: (info?.mode ?? 0) & 0o777 };
    }),
  );
  return modes.filter(({ mode }) => (mode & 0o077) !== 0).map(({ each, mode }) => `${each} ${mode.toString(8)}`);
}

describe('npm start', () => {
  it('makes files and folders that no other user can open, and leaves the mode of a folder that was there', async () => {
    const umask = process.umask(0);
    const { child, output, ended } = folder.run('start', []);
    process.umask(umask);
    await vi.waitFor(() => expect(output().match(/ {2}done in /g)).toHaveLength(3), PATIENCE);
    for (const each of ['inbox', 'results', '.flowdrop']) {
      expect((await readdir(join(home, each))).length).toBeGreaterThan(0);
      expect(await openToOthers(join(home, each))).toEqual([]);
    }
    expect(await readdir(join(home, '.flowdrop', 'stand-in', 's3'))).toContain('catalog.sqlite');
    child.kill('SIGINT');
    await ended;

    const shared = join(home, 'shared');
    await mkdir(shared);
    await chmod(shared, 0o755);
    const text = join(EXAMPLES, 'fox.txt');
    expect(await folder.run('start', [text, '--results', shared]).ended).toMatchObject({ code: 0 });
    expect(await openToOthers(shared)).toEqual(['. 755']);
  });

  it('hands its token to none of the programs that it starts', async () => {
    const seen = join(home, 'seen');
    const bin = join(home, 'bin');
    await mkdir(bin);
    await mkdir(seen);
    await writeFile(join(bin, 'xdg-open'), `#!/bin/sh\nenv > "${seen}/browser"\n`, { mode: 0o755 });
    // Each process of Node that inherits the environment tells what it got.
    const recorder = join(home, 'recorder.cjs');
    const record = `require('fs').writeFileSync(process.env.SEEN + '/' + process.pid, JSON.stringify([process.argv, process.env]))`;
    await writeFile(recorder, record);
    const env = {
      FLOWDROP_TOKEN: TOKEN,
      SEEN: seen,
      NODE_OPTIONS: `--require ${recorder}`,
      PATH: `${bin}:${process.env.PATH}`,
    };
    const { output, child } = folder.run('start', ['--open'], { env });
    await vi.waitFor(() => expect(output().match(/ {2}done in /g)).toHaveLength(3), PATIENCE);
    await vi.waitFor(async () => expect(await readFile(join(seen, 'browser'), 'utf8')).toContain('PATH='), PATIENCE);
    const names = (await readdir(seen)).filter((name) => name !== String(child.pid));
    const told = await Promise.all(names.map((name) => readFile(join(seen, name), 'utf8')));
    expect(told.some((each) => each.includes('bundle/process.ts'))).toBe(true);
    for (const each of told) expect(each).not.toContain(TOKEN);
    const ofFunctions = await environments(child.pid);
    expect(ofFunctions.length).toBeGreaterThan(1);
    for (const each of ofFunctions) expect(each).not.toContain(TOKEN);
  });

  it.skipIf(process.getuid?.() !== 0)('works for a user id without a name and without a home folder', async () => {
    await chown(home, NOBODY, NOBODY);
    const own = { uid: NOBODY, gid: NOBODY, env: { HOME: undefined } };
    const run = folder.run('start', [], own);
    await vi.waitFor(() => expect(run.output()).toContain('Press Ctrl-C'), PATIENCE);
    await vi.waitFor(() => expect(run.output().match(/ {2}done in /g)).toHaveLength(3), PATIENCE);
    const path = join(home, 'own.txt');
    await copyFile(join(EXAMPLES, 'fox.txt'), path);
    await chown(path, NOBODY, NOBODY);
    const put = await folder.run('flowdrop', ['put', path, '--yes', '--wait'], own).ended;
    expect(put, put.output).toMatchObject({ code: 0 });
  });
});

/** The environments of the processes that a process has started. */
async function environments(parent: number | undefined): Promise<readonly string[]> {
  const read = (path: string) => readFile(path, 'latin1').catch(() => '');
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  const found = await Promise.all(
    pids.map(async (pid) => {
      const [, ppid] = /\) \S (\d+)/.exec(await read(`/proc/${pid}/stat`)) ?? [];
      return ppid === String(parent) ? [await read(`/proc/${pid}/environ`)] : [];
    }),
  );
  return found.flat();
}
