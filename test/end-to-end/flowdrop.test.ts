import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, vi } from 'vitest';
import type { Receipt } from '../../functions/publish/report-schemas.ts';
import { PATIENCE } from '../support/patience.ts';
import { Home } from './npm-start.ts';

it('a new user finds a failed file, learns why, mends it and sees its result', { timeout: 240_000 }, async () => {
  const home = await Home.make();
  const flowdrop = (...words: readonly string[]) => home.run('flowdrop', words).ended;
  const receiptOf = (name: string): Receipt =>
    JSON.parse(readFileSync(join(home.path, 'results', name, 'receipt.json'), 'utf8'));
  expect(await flowdrop('status')).toMatchObject({ code: 2, output: expect.stringContaining('npm start') });

  const started = home.run('start');
  await vi.waitFor(() => expect(started.output()).toContain('Press Ctrl-C to stop.'), PATIENCE);
  const file = join(home.path, '.flowdrop', 'run.json');
  expect(existsSync(file)).toBe(true);

  const name = "it's no picture.png";
  writeFileSync(join(home.path, 'inbox', name), 'This is not a picture.');
  // Its marker comes after its receipt.
  const { failure, upload } = await vi.waitFor(() => receiptOf(name), PATIENCE);
  await vi.waitFor(async () => expect((await flowdrop('list', '--failed')).output).toContain(name), PATIENCE);
  const why = await flowdrop('status', name);
  expect(why).toMatchObject({ code: 1, output: expect.stringMatching(/failed: .+\n/) });

  // The command of a local receipt, as the script of package.json runs it.
  expect(failure?.retry).toBe(`npm run -s flowdrop -- retry ${upload.id} --local`);
  const retried = await flowdrop('retry', upload.id, '--local', '--yes');
  expect(retried.output).toContain(name);
  await vi.waitFor(() => expect(receiptOf(name).generation).toBe(2), PATIENCE);

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
