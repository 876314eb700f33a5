import { execFile, execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, it, onTestFinished } from 'vitest';
import { Operated } from './support.ts';

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** The script that docs/commands.md shows, as it stands there. */
const SCRIPT = /```js\n(import .* from 'flowdrop\/operations';\n.*?)```/s.exec(
  readFileSync(here('../../docs/commands.md'), 'utf8'),
)?.[1];

/** Builds the package, and puts it where a script of a folder finds it. */
function folderWithPackage(): string {
  const folder = mkdtempSync(join(tmpdir(), 'flowdrop-script-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  execFileSync(process.execPath, [here('../../infra/package.ts'), join(folder, 'dist')], { stdio: 'pipe' });
  mkdirSync(join(folder, 'node_modules'));
  symlinkSync(join(folder, 'dist/package'), join(folder, 'node_modules/flowdrop'));
  return folder;
}

it('the script of the documentation retries what failed, with the built package', { timeout: 240_000 }, async () => {
  await using operated = await Operated.start();
  operated.refuse(422);
  await operated.put('photos/robot.png', 'failed');
  await operated.put('photos/castle.png', 'failed');
  await operated.listsFailed(2);
  operated.refuse(undefined);

  const script = join(folderWithPackage(), 'retry-rejected.mjs');
  writeFileSync(script, SCRIPT ?? 'throw new Error("There is no script in the documentation");');
  const { FLOWDROP_STACK: _, ...env } = process.env;
  // The pipeline runs in this process, so this process must not wait for the script in one piece.
  const { stdout } = await promisify(execFile)(process.execPath, [script], { cwd: operated.directory, env });

  expect(stdout.split('\n')).toEqual([
    expect.stringMatching(/^photos\/castle\.png failed: .+/),
    expect.stringMatching(/^photos\/robot\.png failed: .+/),
    'retried 2 of 2',
    '',
  ]);
  for (const key of ['photos/robot.png', 'photos/castle.png']) await operated.becomes(key, 'succeeded');
});
