import { existsSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inject } from 'vitest';
import type { TestProject } from 'vitest/node';
import { bundle, FUNCTION_NAMES } from '../../infra/bundle/bundle.ts';

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

/** The functions as they are deployed, but for {@link shareCompiled}. They are bundled once for all tests. */
export function bundles(): string {
  const folder = inject('bundleFolder');
  const made = join(folder, 'made');
  if (existsSync(made)) return made;
  const own = mkdtempSync(join(folder, 'making-'));
  bundle(own);
  for (const name of FUNCTION_NAMES) shareCompiled(join(own, name), join(folder, 'compiled'));
  try {
    renameSync(own, made);
  } catch (error) {
    // Another process was sooner.
    if (!existsSync(made)) throw error;
  }
  return made;
}

/**
 * Has all processes of a function take what the first one has compiled. Tests start nearly two hundred of them, and to
 * compile is a quarter of the processor time of a start.
 */
function shareCompiled(bundled: string, compiled: string): void {
  const index = join(bundled, 'index.mjs');
  renameSync(index, join(bundled, 'function.mjs'));
  const lines = [
    "import { enableCompileCache, flushCompileCache } from 'node:module';",
    `enableCompileCache(${JSON.stringify(compiled)});`,
    "export const { handler } = await import('./function.mjs');",
    'flushCompileCache(); // The process will be killed.',
  ];
  writeFileSync(index, lines.join('\n'));
}
