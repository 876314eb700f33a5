import { mkdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { buildSync, type Metafile } from 'esbuild';
import { bundle, FUNCTION_NAMES, type FunctionName } from '../infra/bundle/bundle.ts';

/** A bundle on disk. */
export interface Bundle {
  readonly path: string;
  readonly metafile: Metafile;
}

export interface Bundles {
  /** As deployed. */
  readonly ours: Readonly<Record<FunctionName, Bundle>>;
  readonly naive: Readonly<Record<FunctionName, Bundle>>;
  /** The process under test, as JavaScript, so that stripping types is not measured. */
  readonly subject: Bundle;
}

const here = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

export function makeBundles(directory: string): Bundles {
  const ours = bundle(`${directory}/ours`);
  const each = (make: (name: FunctionName) => Bundle) =>
    Object.fromEntries(FUNCTION_NAMES.map((name) => [name, make(name)])) as Record<FunctionName, Bundle>;
  return {
    ours: each((name) => ({ path: `${directory}/ours/${name}/index.mjs`, metafile: ours[name] })),
    naive: each((name) => plain(here(`naive/${name}.ts`), `${directory}/naive/${name}`)),
    subject: plain(here('./subject.ts'), `${directory}/subject`),
  };
}

/** esbuild's usual options for an ES module on Node.js. Without `mainFields` the bundle fails at import. */
function plain(entry: string, directory: string): Bundle {
  mkdirSync(directory, { recursive: true });
  const path = `${directory}/index.mjs`;
  const { metafile } = buildSync({
    entryPoints: [entry],
    outfile: path,
    bundle: true,
    format: 'esm',
    platform: 'node',
    target: 'node24',
    minify: true,
    legalComments: 'none',
    mainFields: ['module', 'main'],
    metafile: true,
    logLevel: 'warning',
  });
  return { path, metafile };
}
