import { chown, mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { PATIENCE } from '../support/patience.ts';
import { Home, openToOthers } from './npm-start.ts';

/** A user id without an entry in /etc/passwd. */
const NOBODY = 54_321;
const TOKEN = 'an-obviously-fake-token';

let folder: Home;
let home: string;
beforeEach(async () => {
  folder = await Home.make();
  home = folder.path;
});

describe('npm start', () => {
  it('opens its files and folders to no other user, and hands its token to no program that it starts', async () => {
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
    const umask = process.umask(0);
    const { output, child } = folder.run('start', ['--open'], { env });
    process.umask(umask);
    await vi.waitFor(() => expect(output().match(/ {2}done in /g)).toHaveLength(5), PATIENCE);
    for (const each of ['inbox', 'results', '.flowdrop']) {
      expect((await readdir(join(home, each))).length).toBeGreaterThan(0);
      expect(await openToOthers(join(home, each))).toEqual([]);
    }
    expect(await readdir(join(home, '.flowdrop', 'stand-in', 's3'))).toContain('catalog.sqlite');

    await vi.waitFor(async () => expect(await readFile(join(seen, 'browser'), 'utf8')).toContain('PATH='), PATIENCE);
    const names = (await readdir(seen)).filter((name) => name !== String(child.pid));
    const told = await Promise.all(names.map((name) => readFile(join(seen, name), 'utf8')));
    expect(told.some((each) => each.includes('bundle/process.ts'))).toBe(true);
    for (const each of told) expect(each).not.toContain(TOKEN);
    const ofFunctions = await environments(child.pid);
    expect(ofFunctions.length).toBeGreaterThan(1);
    for (const each of ofFunctions) expect(each).not.toContain(TOKEN);
  });

  it.skipIf(process.getuid?.() !== 0)(
    'works for a user id without a name and without a home folder, and tells a folder that it cannot read',
    async () => {
      await mkdir(join(home, 'inbox', 'secret'), { recursive: true, mode: 0o700 }); // Of root.
      await writeFile(join(home, 'inbox', 'secret', 'a.txt'), 'a fox');
      const path = join(home, 'inbox', 'b.txt');
      await writeFile(path, 'a fox');
      for (const each of [home, join(home, 'inbox'), path]) await chown(each, NOBODY, NOBODY);
      const own = { uid: NOBODY, gid: NOBODY, env: { HOME: undefined } };
      const run = folder.run('start', [], own);
      await vi.waitFor(() => expect(run.output()).toContain('b.txt  done'), PATIENCE);
      await vi.waitFor(() => expect(run.output()).toContain('Press Ctrl-C'), PATIENCE);
      const put = await folder.run('flowdrop', ['put', path, '--yes', '--wait'], own).ended;
      expect(put, put.output).toMatchObject({ code: 0 });
      run.child.kill('SIGINT');
      const { code, output } = await run.ended;
      expect(output.match(/The folder \.\/inbox\/secret cannot be read \(EACCES\)/g)).toHaveLength(1);
      expect(output).not.toContain('a.txt');
      expect(code).toBe(0);

      const once = await folder.run('start', ['inbox'], own).ended;
      expect(once.output).toMatch(/inbox\/secret {2}skipped: the folder cannot be read \(EACCES\)/);
      expect(once.output).toContain('b.txt  done');
      expect(once.code).toBe(1);
    },
  );
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
