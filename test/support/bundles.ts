import { existsSync, mkdtempSync, renameSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inject } from 'vitest';
import type { TestProject } from 'vitest/node';
import { bundle } from '../../infra/bundle/bundle.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** Where the bundles are, once a test wants them. */
    readonly bundleFolder: string;
  }
}

/** Vitest calls it before all tests. Vitest may end a test's own process without its event `exit`. */
export default function setup(project: TestProject): () => void {
  const bundleFolder = mkdtempSync(join(tmpdir(), 'flowdrop-bundles-'));
  const clear = () => rmSync(join(bundleFolder, 'made'), { recursive: true, force: true });
  project.provide('bundleFolder', bundleFolder);
  // Tests run again because a file has changed, which may be one of the functions.
  project.onTestsRerun(async () => clear());
  return () => rmSync(bundleFolder, { recursive: true, force: true, maxRetries: 5 });
}

/** The functions as they are deployed. They are bundled once for all tests. */
export function bundles(): string {
  const folder = inject('bundleFolder');
  const made = join(folder, 'made');
  if (existsSync(made)) return made;
  const own = mkdtempSync(join(folder, 'making-'));
  bundle(own);
  try {
    renameSync(own, made);
  } catch (error) {
    // Another process was sooner.
    if (!existsSync(made)) throw error;
  }
  return made;
}
