import { fileURLToPath } from 'node:url';
import { buildSync } from 'esbuild';
import { bundle, FUNCTION_NAMES, type FunctionName } from '../infra/bundle/bundle.ts';

/** Paths of the bundles on disk. */
export interface Bundles {
  /** As deployed. */
  readonly ours: Readonly<Record<FunctionName, string>>;
  readonly naive: Readonly<Record<FunctionName, string>>;
  /** The process under test, as JavaScript, so that stripping types is not measured. */
  readonly subject: string;
}

const here = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

export function makeBundles(directory: string): Bundles {
  bundle(`${directory}/ours`);
  const each = (make: (name: FunctionName) => string) =>
    Object.fromEntries(FUNCTION_NAMES.map((name) => [name, make(name)])) as Record<FunctionName, string>;
  return {
    ours: each((name) => `${directory}/ours/${name}/index.mjs`),
    naive: each((name) => plain(here(`naive/${name}.ts`), `${directory}/naive/${name}.mjs`)),
    subject: plain(here('./subject.ts'), `${directory}/subject.mjs`),
  };
}

/** esbuild's usual options for an ES module on Node.js. Without `mainFields` the bundle fails at import. */
function plain(entry: string, outfile: string): string {
  buildSync({
    entryPoints: [entry],
    outfile,
    bundle: true,
    format: 'esm',
    platform: 'node',
    target: 'node24',
    minify: true,
    legalComments: 'none',
    mainFields: ['module', 'main'],
    logLevel: 'warning',
  });
  return outfile;
}
