import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, vi } from 'vitest';
import { PATIENCE } from '../support/patience.ts';
import { Home } from './npm-start.ts';

it('a new user finds a failed file, learns why, mends it and sees its result', { timeout: 240_000 }, async () => {
  const home = await Home.make();
  const flowdrop = (...words: readonly string[]) => home.run('flowdrop', words).ended;
  expect(await flowdrop('status')).toMatchObject({ code: 2, output: expect.stringContaining('npm start') });

  const started = home.run('start');
  await vi.waitFor(() => expect(started.output()).toContain('Press Ctrl-C to stop.'), PATIENCE);
  const file = join(home.path, '.flowdrop', 'run.json');
  expect(existsSync(file)).toBe(true);

  writeFileSync(join(home.path, 'inbox', 'mine.txt'), '');
  await vi.waitFor(async () => expect((await flowdrop('list', '--failed')).output).toContain('mine.txt'), PATIENCE);
  const why = await flowdrop('status', 'mine.txt');
  expect(why).toMatchObject({ code: 1, output: expect.stringContaining('The file is empty.') });
  expect(why.output).toContain('Put the file into the inbox again, with its content.');

  writeFileSync(join(home.path, 'mine.txt'), 'a red fox');
  const put = await flowdrop('put', 'mine.txt', '--wait', '--yes');
  expect(put).toMatchObject({ code: 0, output: expect.stringMatching(/mine\.txt {2}succeeded, with 1 result/) });
  const got = await flowdrop('get', 'mine.txt', '--to', 'fetched');
  expect(got.output).toMatch(/^mine\.txt: succeeded, receipt in .*fetched/);
  expect(existsSync(join(home.path, 'fetched', 'mine.txt', 'receipt.json'))).toBe(true);

  started.child.kill('SIGTERM');
  await started.ended;
  expect(existsSync(file)).toBe(false);
  expect(await flowdrop('status', '--local')).toMatchObject({ code: 1, output: expect.stringContaining('npm start') });
});
