import type { PageFiles } from '../page-files.ts';

/** Builds the app of a clone. In the package, built-app-files.ts is in place of this module. */
export async function appFiles(): Promise<PageFiles> {
  // A server without visitors needs no bundler.
  const { buildPage } = await import('../build.ts');
  return buildPage();
}
