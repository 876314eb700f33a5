import { cpSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { FunctionName } from './bundle.ts';

/**
 * Takes the place of bundle.ts in the package, where the functions are bundled already: who installs the package needs
 * neither their sources nor a bundler.
 */
export const BUNDLE_HANDLER = 'index.handler';

/** Where {@link bundleFunction} finds the bundles, beside the package's one module. */
export const BUILT_BUNDLES = 'functions';

/** Copies one of the two functions to `<outDir>/index.mjs`. */
export function bundleFunction(name: FunctionName, outDir: string): void {
  cpSync(fileURLToPath(new URL(`${BUILT_BUNDLES}/${name}`, import.meta.url)), outDir, { recursive: true });
}
