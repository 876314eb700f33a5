/**
 * `node process.ts <entry> <outDir>`: what `bundleModule` does, in a process of its own because it is asynchronous
 * as soon as it has a plugin. Prints esbuild's account of what went in.
 */
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { build, type Plugin } from 'esbuild';
import { withLiteralKeys } from './schemas.ts';

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

const [entryPath = '', outDir = ''] = process.argv.slice(2);

/** Lets esbuild leave out what of the SDK's clients nobody uses. */
const leanClients: Plugin = {
  name: 'lean clients',
  setup({ onLoad }) {
    onLoad(
      { filter: /[\\/]@aws-sdk[\\/]client-[^\\/]+[\\/]dist-es[\\/]schemas[\\/]schemas_0\.js$/ },
      async ({ path }) => ({
        contents: withLiteralKeys(await readFile(path, 'utf8')),
      }),
    );
    // The clients name themselves and their version to the service, and esbuild would take in the whole file.
    onLoad({ filter: /[\\/]@aws-sdk[\\/]client-[^\\/]+[\\/]package\.json$/ }, async ({ path }) => {
      const { name, version } = JSON.parse(await readFile(path, 'utf8'));
      return { contents: JSON.stringify({ name, version }), loader: 'json' };
    });
  },
};

const { metafile } = await build({
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
    // An ESM import of a module of Node initialises all of its lazy exports (nodejs/node#59686): node:http brings undici,
    // node:crypto all of Web Crypto, node:process the standard streams. That is a good part of a cold start. The
    // stand-ins fetch the same modules without that.
    ...Object.fromEntries(
      ['http', 'https', 'crypto', 'process', 'dns'].flatMap((name) =>
        [`node:${name}`, name].map((specifier) => [specifier, here(`aliases/${name}.ts`)]),
      ),
    ),
    // Lambda hands credentials over in the environment and nowhere else; the SDK's search for them elsewhere (SSO,
    // profiles, instance metadata) would be a fifth of the bundle.
    '@aws-sdk/credential-provider-node': here('aliases/credentials.ts'),
    '@smithy/core/event-streams': here('aliases/event-streams.ts'),
  },
  plugins: [leanClients],
  // A name that a stand-in above does not have must stop the build, not the function.
  logOverride: { 'import-is-undefined': 'error' },
});
process.stdout.write(JSON.stringify(metafile));
