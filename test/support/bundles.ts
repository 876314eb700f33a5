import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { bundle } from '../../infra/bundle/bundle.ts';

let bundleDir: string | undefined;

/** The functions as they are deployed. They are bundled once for all tests of a file. */
export function bundles(): string {
  if (bundleDir === undefined) {
    const made = mkdtempSync(join(tmpdir(), 'flowdrop-bundles-'));
    process.once('exit', () => rmSync(made, { recursive: true, force: true }));
    bundle(made);
    bundleDir = made;
  }
  return bundleDir;
}
