import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it, vi } from 'vitest';
import type { Receipt } from '../../functions/publish/receipts.ts';
import { PATIENCE } from '../support/patience.ts';
import { Home } from './npm-start.ts';

it('the command in a local receipt uploads the file again', { timeout: 180_000 }, async () => {
  const folder = await Home.make();
  const home = folder.path;
  await mkdir(join(home, 'inbox'));
  folder.run('start');
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
