import { mkdtempSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll } from 'vitest';
import { bundle } from '../../infra/bundle/bundle.ts';

let bundleDir: string | undefined;
// Vitest may end a process without its event `exit`, so that is too late to remove the folder.
afterAll(async () => {
  if (bundleDir !== undefined) await rm(bundleDir, { recursive: true, force: true, maxRetries: 5 });
  bundleDir = undefined;
});

/** The functions as they are deployed. They are bundled once for all tests of a file. */
export function bundles(): string {
  if (bundleDir === undefined) {
    bundleDir = mkdtempSync(join(tmpdir(), 'flowdrop-bundles-'));
    bundle(bundleDir);
  }
  return bundleDir;
}
