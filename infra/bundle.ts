import { fileURLToPath } from 'node:url';
import { buildSync, type Metafile } from 'esbuild';

/** The two functions, by the names of their entries and of their folders in a bundle directory. */
export const FUNCTION_NAMES = ['create-flow', 'collect-outputs'] as const;
export type FunctionName = (typeof FUNCTION_NAMES)[number];

/** What Lambda, and the local runtime, are told to call in a bundle. */
export const BUNDLE_HANDLER = 'index.handler';

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/**
 * Bundles one TypeScript module, with everything it imports, into `<outDir>/index.mjs` for Lambda's Node 24.
 * Returns esbuild's account of what went in. Synchronous, because CDK's local bundling is.
 * @throws esbuild's `BuildFailure`, which names file and line.
 */
export function bundleModule(entryPath: string, outDir: string): Metafile {
  return buildSync({
    entryPoints: [entryPath],
    outfile: `${outDir}/index.mjs`,
    bundle: true,
    format: 'esm',
    platform: 'node',
    target: 'node24',
    minify: true,
    legalComments: 'none',
    metafile: true,
    logLevel: 'warning',
    // Packages that offer ES modules are taken as such: their CommonJS twins die in an ESM bundle with "Dynamic
    // require of "node:..." is not supported".
    mainFields: ['module', 'main'],
    alias: {
      // An ESM import of node:http initialises all of its lazy exports, undici among them (nodejs/node#59686), which
      // is a good part of a cold start. The stand-ins fetch the same modules without that.
      'node:http': here('bundle-aliases/http.ts'),
      http: here('bundle-aliases/http.ts'),
      'node:https': here('bundle-aliases/https.ts'),
      https: here('bundle-aliases/https.ts'),
      // Lambda hands credentials over in the environment and nowhere else; the SDK's search for them elsewhere (SSO,
      // profiles, instance metadata) would be a fifth of the bundle.
      '@aws-sdk/credential-provider-node': here('bundle-aliases/credentials.ts'),
    },
    // A name that a stand-in above does not have must stop the build, not the function.
    logOverride: { 'import-is-undefined': 'error' },
  }).metafile;
}

/** Bundles one of the two functions into `<outDir>/index.mjs`; see {@link bundleModule}. */
export function bundleFunction(name: FunctionName, outDir: string): Metafile {
  return bundleModule(here(`../functions/${name}.lambda.ts`), outDir);
}

/** Bundles both functions into `<outDir>/create-flow/index.mjs` and `<outDir>/collect-outputs/index.mjs`. */
export function bundle(outDir: string): Record<FunctionName, Metafile> {
  const [createFlow, collectOutputs] = FUNCTION_NAMES;
  return {
    [createFlow]: bundleFunction(createFlow, `${outDir}/${createFlow}`),
    [collectOutputs]: bundleFunction(collectOutputs, `${outDir}/${collectOutputs}`),
  };
}
