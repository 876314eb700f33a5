import { cpSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { FunctionName } from './bundle.ts';

/**
 * Replaces bundle.ts in the package. The package contains the functions as bundles, so its users need neither the
 * sources nor a bundler.
 */
export const BUNDLE_HANDLER = 'index.handler';

/** Folder of the bundles, beside the package's one module. */
export const BUILT_BUNDLES = 'functions';

/** Copies one of the two functions to `<outDir>/index.mjs`, and its notices beside it. */
export function bundleFunction(name: FunctionName, outDir: string): void {
  cpSync(fileURLToPath(new URL(`${BUILT_BUNDLES}/${name}`, import.meta.url)), outDir, { recursive: true });
}
