/**
 * Builds the npm package for other CDK apps, into `dist/package` or the directory given as the first argument:
 *
 *   package.json, README.md, LICENSE, docs/runbook.md
 *   index.js         the construct, with the parts of zod that it needs
 *   functions/       the two functions, bundled
 *   types/           declarations
 *
 * Its only dependency is CDK, which the app brings.
 */
import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { BUILT_BUNDLES } from './bundle/built.ts';
import { bundle } from './bundle/bundle.ts';

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const outDir = process.argv[2] ?? here('../dist/package');

rmSync(outDir, { recursive: true, force: true });
mkdirSync(join(outDir, 'docs'), { recursive: true });
bundle(join(outDir, BUILT_BUNDLES));
await bundleConstruct();
writeTypes();
writeManifest();

async function bundleConstruct(): Promise<void> {
  await build({
    entryPoints: [here('./index.ts')],
    outfile: join(outDir, 'index.js'),
    bundle: true,
    format: 'esm',
    platform: 'node',
    target: 'node24',
    external: ['aws-cdk-lib', 'constructs'],
    plugins: [
      {
        name: 'use the bundled functions',
        setup({ onResolve }) {
          onResolve({ filter: /\/bundle\.ts$/ }, () => ({ path: here('./bundle/built.ts') }));
        },
      },
    ],
  });
}

function writeTypes(): void {
  const options = {
    noEmit: false,
    emitDeclarationOnly: true,
    declaration: true,
    // Declarations marked `@internal` refer to zod. zod is bundled, so its types are not in the package.
    stripInternal: true,
    rootDir: here('..'),
    outDir: join(outDir, 'types'),
    typeRoots: [here('../node_modules/@types')],
  };
  const path = join(outDir, 'tsconfig.json');
  const config = {
    extends: here('../tsconfig.json'),
    compilerOptions: options,
    include: [],
    files: [here('./index.ts')],
  };
  writeFileSync(path, JSON.stringify(config));
  execFileSync(here('../node_modules/.bin/tsc'), ['--project', path], { stdio: 'inherit' });
  rmSync(path);
}

function writeManifest(): void {
  const { name, version, description, license, engines, dependencies } = JSON.parse(
    readFileSync(here('../package.json'), 'utf8'),
  );
  const manifest = {
    name,
    version,
    description,
    license,
    type: 'module',
    // Without `engines.npm`: only this repository needs that version, and an app may use any.
    engines: { node: engines.node },
    exports: { '.': { types: './types/infra/index.d.ts', default: './index.js' } },
    peerDependencies: { 'aws-cdk-lib': `^${dependencies['aws-cdk-lib']}`, constructs: `^${dependencies.constructs}` },
  };
  writeFileSync(join(outDir, 'package.json'), `${JSON.stringify(manifest, undefined, 2)}\n`);
  for (const file of ['README.md', 'LICENSE', 'docs/runbook.md']) {
    if (existsSync(here(`../${file}`))) cpSync(here(`../${file}`), join(outDir, file));
  }
}
