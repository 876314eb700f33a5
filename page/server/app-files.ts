/** Files of the app by their paths, such as `/` and `/assets/app.js`. */
export type AppFiles = ReadonlyMap<string, { readonly body: Uint8Array; readonly contentType: string }>;

/** No literal in the import: the bundle of the command must not hold the builder. */
const BUILDER = new URL('../build.ts', import.meta.url).href;

/** Builds the app of a clone. The package has the built files instead: see `infra/package.ts`. */
export async function appFiles(): Promise<AppFiles> {
  const { buildPage }: { readonly buildPage: () => Promise<AppFiles> } = await import(BUILDER);
  return buildPage();
}
