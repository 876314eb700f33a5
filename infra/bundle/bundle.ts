import { execFileSync } from 'node:child_process';
import { basename, dirname } from 'node:path';
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
 * Bundles TypeScript modules, each with everything it imports, into `<outDir>/<name>/index.mjs` for Lambda's Node 24. The
 * licences of the packages in it are in `THIRD-PARTY-NOTICES.txt` beside it. Synchronous, because CDK's local bundling
 * is. Modules that are bundled together are read once.
 * @param entries paths by name.
 * @returns esbuild's metafile, which lists the inputs of the bundles.
 * @throws if esbuild fails, or a package has no licence. esbuild prints the reason itself.
 */
function bundleModules(outDir: string, entries: Readonly<Record<string, string>>): Metafile {
  const pairs = Object.entries(entries).map(([name, path]) => `${name}=${path}`);
  const metafile = execFileSync(process.execPath, [here('./process.ts'), outDir, ...pairs], {
    maxBuffer: METAFILE_BYTES_MAX,
    stdio: ['ignore', 'pipe', 'inherit'],
    encoding: 'utf8',
  });
  return JSON.parse(metafile);
}

/** Bundles one module into `<outDir>/index.mjs`; see {@link bundleModules}. */
export function bundleModule(entryPath: string, outDir: string): Metafile {
  return bundleModules(dirname(outDir), { [basename(outDir)]: entryPath });
}

const entryOf = (name: FunctionName): string => here(`../../functions/${name}.lambda.ts`);

/** Bundles one of the two functions; see {@link bundleModule}. */
export function bundleFunction(name: FunctionName, outDir: string): Metafile {
  return bundleModule(entryOf(name), outDir);
}

/** Bundles both functions into `<outDir>/create-flow/index.mjs` and `<outDir>/collect-outputs/index.mjs`. */
export function bundle(outDir: string): Record<FunctionName, Metafile> {
  const entries = FUNCTION_NAMES.map((name) => [name, entryOf(name)]);
  const { inputs, outputs } = bundleModules(outDir, Object.fromEntries(entries));
  const partOf = (name: FunctionName): Metafile => {
    const own = Object.entries(outputs).filter(([path]) => path.endsWith(`/${name}/index.mjs`));
    return { inputs, outputs: Object.fromEntries(own) };
  };
  return { 'create-flow': partOf('create-flow'), 'collect-outputs': partOf('collect-outputs') };
}
