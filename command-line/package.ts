import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type BuildOptions, build, type Plugin } from 'esbuild';
import { BUILT_BUNDLES } from '../infra/bundle/built.ts';
import { bundle } from '../infra/bundle/bundle.ts';
import { thirdPartyNotices, thirdPartyNoticesIn } from '../infra/bundle/notices.ts';
import { buildPage } from '../page/build.ts';
import { writePage } from '../page/page-files.ts';
import { BUILT_APP } from '../page/server/built-app-files.ts';
import { commandOptions, orExit, UsageError } from './options.ts';
import { ownEnvironment } from './own-environment.ts';

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const COMMAND = 'npm run package';
const USAGE = `Builds the npm package for other CDK apps.

  ${COMMAND} -- [DIR]

  DIR       the folder to build it in  (default: dist)
  --help    show this

DIR then holds:
  flowdrop-<version>.tgz       the package, to be installed by its path
  flowdrop-<version>.cdx.json  its bill of materials, in CycloneDX: the packages of package-lock.json
  SHA256SUMS                   the checksums of both, for sha256sum --check
  package/                     what is in it:
    package.json, README.md, LICENSE, docs/runbook.md, docs/failures.md, docs/commands.md
    docs/schemas/                JSON schemas of flowdrop.json, of a stage, receipt.json and chain.json
    index.js, index.mjs        the construct, with the parts of zod that it needs
    functions/                 the two functions, bundled
    command/flowdrop.mjs       the command flowdrop, bundled
    command/page/              the page of flowdrop open, built
    operations/index.js, .mjs  what the command does, for scripts, bundled
    types/                     declarations
    THIRD-PARTY-NOTICES.txt    the licences of what is in index.js. The other bundles have their own.

Its only dependency is CDK, which the app brings. Prints the path of the package.
`;

const { positionals } = commandOptions({ command: COMMAND, options: {}, allowPositionals: true }, USAGE);
const dist = orExit(COMMAND, () => {
  const [dir = here('../dist'), other] = positionals;
  if (other !== undefined) throw new UsageError(`"${other}" is one argument too many`);
  return resolve(dir);
});
const outDir = join(dist, 'package');
/** In a folder of its own, because the licences of a bundle stand beside it. */
const COMMAND_FILE = 'command/flowdrop.mjs';
/** Where the modules are that others import, and from which they are made. */
const ENTRIES = { '.': 'infra', './operations': 'operations' } as const;

/**
 * The lowest versions that the nightly workflow synthesises with. An app can rarely update CDK for us, so an update of
 * our own dependencies must not raise them.
 */
const PEERS = { 'aws-cdk-lib': '^2.172.0', constructs: '^10.5.0' };

/** A bill of materials is smaller, in bytes. */
const BILL_BYTES_MAX = 64 * 1024 * 1024;

ownEnvironment(); // Neither the bundler nor npm needs a token.
rmSync(outDir, { recursive: true, force: true });
mkdirSync(join(outDir, 'docs'), { recursive: true });
bundle(join(outDir, BUILT_BUNDLES));
await bundleEntry('.', {
  external: ['aws-cdk-lib', 'constructs'],
  plugins: [inPlaceOf(/\/bundle\.ts$/, '../infra/bundle/built.ts')],
});
await bundleEntry('./operations');
await bundleCommand();
await bundlePage();
writeTypes();
const version = writeManifest();
pack();
writeBillOfMaterials();
writeChecksums();
process.stdout.write(`${join(dist, `flowdrop-${version}.tgz`)}\n`);

/**
 * A module that CommonJS and ESM can load. The ESM file only passes on what the other one exports: an app whose files are
 * of both kinds would otherwise have two classes `FlowPipeline`, and `instanceof` would tell them apart.
 */
async function bundleEntry(
  entry: keyof typeof ENTRIES,
  options: Pick<BuildOptions, 'external' | 'plugins'> = {},
): Promise<void> {
  const source = here(`../${ENTRIES[entry]}/index.ts`);
  await build({
    ...options,
    entryPoints: [source],
    outfile: join(outDir, entry, 'index.js'),
    bundle: true,
    format: 'cjs',
    platform: 'node',
    target: 'node24',
    // A CommonJS module has no `import.meta`.
    banner: { js: "const importMetaUrl = require('node:url').pathToFileURL(__filename).href;" },
    define: { 'import.meta.url': 'importMetaUrl' },
    plugins: [thirdPartyNotices, ...(options.plugins ?? [])],
  });
  const names = Object.keys(await import(source));
  writeFileSync(
    join(outDir, entry, 'index.mjs'),
    `import module from './index.js';\nexport const { ${names.join(', ')} } = module;\n`,
  );
  // Our errors take `ErrorOptions`, which an app whose `lib` is older does not have.
  const libs = ['es2021.promise', 'es2022.error'].map((lib) => `/// <reference lib="${lib}" />\n`).join('');
  const types = `${libs}export * from '${entry === '.' ? '.' : '..'}/types/${ENTRIES[entry]}/index.js';\n`;
  for (const name of ['index.d.ts', 'index.d.mts']) writeFileSync(join(outDir, entry, name), types);
}

/** Bundles another module in place of one that needs the sources and a bundler. */
function inPlaceOf(filter: RegExp, path: string): Plugin {
  return {
    name: `use ${path}`,
    setup({ onResolve }) {
      onResolve({ filter }, () => ({ path: here(path) }));
    },
  };
}

/** The command, with all that it needs. The packages that are no modules call `require`. */
async function bundleCommand(): Promise<void> {
  const require = "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);";
  await build({
    entryPoints: [here('../command-line/flowdrop.ts')],
    outfile: join(outDir, COMMAND_FILE),
    bundle: true,
    format: 'esm',
    platform: 'node',
    target: 'node24',
    banner: { js: `#!/usr/bin/env node\n${require}` },
    plugins: [thirdPartyNotices, inPlaceOf(/\/app-files\.ts$/, '../page/server/built-app-files.ts')],
  });
}

/** The part of the page that runs in the browser, beside the command, which serves it. */
async function bundlePage(): Promise<void> {
  const folder = join(outDir, dirname(COMMAND_FILE), BUILT_APP);
  mkdirSync(folder);
  await writePage(await buildPage([thirdPartyNoticesIn(folder)]), folder);
}

function writeTypes(): void {
  const options = {
    noEmit: false,
    emitDeclarationOnly: true,
    declaration: true,
    // Declarations marked `@internal` refer to zod or the AWS SDK. These are bundled, so their types are not in the
    // package.
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
    files: [here('../infra/index.ts'), here('../operations/index.ts')],
  };
  writeFileSync(path, JSON.stringify(config));
  execFileSync(here('../node_modules/.bin/tsc'), ['--project', path], { stdio: 'inherit' });
  rmSync(path);
}

/** @returns the package's version. */
function writeManifest(): string {
  const { name, version, description, license, engines } = JSON.parse(readFileSync(here('../package.json'), 'utf8'));
  const manifest = {
    name,
    version,
    description,
    license,
    // Without `engines.npm`: only this repository needs that version, and an app may use any.
    engines: { node: engines.node },
    bin: { flowdrop: `./${COMMAND_FILE}` },
    // For what does not read `exports`: TypeScript with `"moduleResolution": "node"`.
    main: './index.js',
    types: './index.d.ts',
    exports: {
      ...Object.fromEntries(Object.keys(ENTRIES).map((entry) => [entry, exportsOf(entry)])),
      './schemas/*': './docs/schemas/*',
    },
    peerDependencies: PEERS,
  };
  writeFileSync(join(outDir, 'package.json'), `${JSON.stringify(manifest, undefined, 2)}\n`);
  for (const file of ['README.md', 'LICENSE', 'docs/runbook.md', 'docs/failures.md', 'docs/commands.md']) {
    if (existsSync(here(`../${file}`))) cpSync(here(`../${file}`), join(outDir, file));
  }
  cpSync(here('../docs/schemas'), join(outDir, 'docs/schemas'), { recursive: true });
  return version;
}

function exportsOf(entry: string) {
  return {
    import: { types: `${entry}/index.d.mts`, default: `${entry}/index.mjs` },
    require: { types: `${entry}/index.d.ts`, default: `${entry}/index.js` },
  };
}

/** The version is in the file's name, so that an app that installs another version sees another file. */
function pack(): void {
  execFileSync('npm', ['pack', '--silent', '--pack-destination', dist], { cwd: outDir, stdio: 'ignore' });
}

/** Also names what is needed only for the build, because much of that is bundled. */
function writeBillOfMaterials(): void {
  const args = ['sbom', '--sbom-format', 'cyclonedx', '--package-lock-only'];
  const bill = JSON.parse(execFileSync('npm', args, { cwd: here('..'), encoding: 'utf8', maxBuffer: BILL_BYTES_MAX }));
  bill.metadata.component.name = 'flowdrop'; // npm takes the name of the folder.
  writeFileSync(join(dist, `flowdrop-${version}.cdx.json`), `${JSON.stringify(bill, undefined, 2)}\n`);
}

function writeChecksums(): void {
  const lines = ['tgz', 'cdx.json'].map((extension) => {
    const file = `flowdrop-${version}.${extension}`;
    const hash = createHash('sha256').update(readFileSync(join(dist, file)));
    return `${hash.digest('hex')}  ${file}\n`;
  });
  writeFileSync(join(dist, 'SHA256SUMS'), lines.join(''));
}
