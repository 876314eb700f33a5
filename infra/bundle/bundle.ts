import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Metafile } from 'esbuild';

/** Names of the two functions, of their entry points and of their folders in a bundle directory. */
export const FUNCTION_NAMES = ['create-flow', 'collect-outputs'] as const;
export type FunctionName = (typeof FUNCTION_NAMES)[number];

/** The handler of a bundle, for Lambda and the local runtime. */
export const BUNDLE_HANDLER = 'index.handler';

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** Maximum size of esbuild's metafile, in bytes. */
const METAFILE_BYTES_MAX = 64 * 1024 * 1024;

/**
 * Bundles one TypeScript module, with everything it imports, into `<outDir>/index.mjs` for Lambda's Node 24. The
 * licences of the packages in it are in `<outDir>/THIRD-PARTY-NOTICES.txt`. Synchronous, because CDK's local bundling
 * is.
 * @returns esbuild's metafile, which lists the inputs of the bundle.
 * @throws if esbuild fails, or a package has no licence. esbuild prints the reason itself.
 */
export function bundleModule(entryPath: string, outDir: string): Metafile {
  const metafile = execFileSync(process.execPath, [here('./process.ts'), entryPath, outDir], {
    maxBuffer: METAFILE_BYTES_MAX,
    stdio: ['ignore', 'pipe', 'inherit'],
    encoding: 'utf8',
  });
  return JSON.parse(metafile);
}

/** Bundles one of the two functions; see {@link bundleModule}. */
export function bundleFunction(name: FunctionName, outDir: string): Metafile {
  return bundleModule(here(`../../functions/${name}.lambda.ts`), outDir);
}

/** Bundles both functions into `<outDir>/create-flow/index.mjs` and `<outDir>/collect-outputs/index.mjs`. */
export function bundle(outDir: string): Record<FunctionName, Metafile> {
  const [createFlow, collectOutputs] = FUNCTION_NAMES;
  return {
    [createFlow]: bundleFunction(createFlow, `${outDir}/${createFlow}`),
    [collectOutputs]: bundleFunction(collectOutputs, `${outDir}/${collectOutputs}`),
  };
}
