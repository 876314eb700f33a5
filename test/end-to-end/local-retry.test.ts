import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it, onTestFinished, vi } from 'vitest';
import type { Receipt } from '../../functions/publish/receipts.ts';

const START = fileURLToPath(new URL('../../local/start.ts', import.meta.url));
/** Long enough for a machine that is busy with all other tests. Normally each wait takes seconds. */
const PATIENCE = { timeout: 60_000, interval: 100 };

it('the command in a local receipt uploads the file again', { timeout: 180_000 }, async () => {
  const home = await mkdtemp(join(tmpdir(), 'flowdrop-retry-'));
  await mkdir(join(home, 'inbox'));
  const env = { ...process.env, INIT_CWD: home };
  const child = spawn(process.execPath, [START], { cwd: home, env, stdio: 'ignore' });
  onTestFinished(async () => {
    child.kill('SIGKILL');
    await once(child, 'exit');
    await rm(home, { recursive: true, force: true, maxRetries: 5 });
  });
  const path = join(home, 'results', "it's no picture.png", 'receipt.json');
  const receiptWhen = (holds: (receipt: Receipt) => boolean): Promise<Receipt> =>
    vi.waitFor(async () => {
      expect(existsSync(path)).toBe(true);
      const receipt = JSON.parse(await readFile(path, 'utf8')) as Receipt;
      expect(holds(receipt)).toBe(true);
      return receipt;
    }, PATIENCE);

  await writeFile(join(home, 'inbox', "it's no picture.png"), 'This is not a picture.');
  const first = await receiptWhen(() => true);
  expect(first.failure).toMatchObject({
    code: expect.any(String),
    advice: expect.stringContaining('A retry sends the same file again'),
  });
  const command = first.failure?.retry ?? '';
  expect(command).not.toContain('aws');
  execFileSync('sh', ['-c', command]);
  await receiptWhen(({ upload }) => upload.id !== first.upload.id);
});
