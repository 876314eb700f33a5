/**
 * `node process.ts <outDir> <name>=<entry>...` bundles each entry into `<outDir>/<name>/index.mjs`, writes the notices of
 * the packages in it beside it, and prints esbuild's metafile. `bundleModule` is synchronous, and esbuild with a plugin is
 * not, so this runs in a process of its own.
 */
import { readFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build, type Plugin } from 'esbuild';
import otherTypes from 'mime/types/other.js';
import standardTypes from 'mime/types/standard.js';
import { leanMime } from './media-types.ts';
import { thirdPartyNotices } from './notices.ts';
import { withLiteralKeys } from './schemas.ts';

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

const [outDir = '', ...entries] = process.argv.slice(2);

/** Lets esbuild leave out the unused parts of the SDK's clients. */
const leanClients: Plugin = {
  name: 'lean clients',
  setup({ onLoad }) {
    onLoad(
      { filter: /[\\/]@aws-sdk[\\/]client-[^\\/]+[\\/]dist-es[\\/]schemas[\\/]schemas_0\.js$/ },
      async ({ path }) => ({
        contents: withLiteralKeys(await readFile(path, 'utf8')),
      }),
    );
    // A client reads its name and version for the User-Agent header. esbuild would include the whole file.
    onLoad({ filter: /[\\/]@aws-sdk[\\/]client-[^\\/]+[\\/]package\.json$/ }, async ({ path }) => {
      const { name, version } = JSON.parse(await readFile(path, 'utf8'));
      return { contents: JSON.stringify({ name, version }), loader: 'json' };
    });
  },
};

/** Bundles what the functions need of `mime`. */
const leanMediaTypes: Plugin = {
  name: 'lean media types',
  setup({ onLoad }) {
    onLoad({ filter: /[\\/]mime[\\/]dist[\\/]src[\\/]index\.js$/ }, () => ({
      contents: leanMime({ ...standardTypes, ...otherTypes }),
    }));
  },
};

/** Leaves out the SDK's hashes in JavaScript. It takes them only if Node.js has none, and Node 24 has these. */
const nativeHashes: Plugin = {
  name: 'native hashes',
  setup({ onLoad }) {
    onLoad({ filter: /[\\/](Md5|Sha256|Sha1|Crc32)Js\.js$/ }, ({ path }) => ({
      contents: `export class ${basename(path, '.js')} {
        constructor() { throw new Error('This bundle has only the hashes of Node.js') }
      }`,
    }));
  },
};

/**
 * Leaves out the SDK's handling of a browser's streams: its HTTP client has those of Node.js only. It asks of each body
 * whether it is another, and Node.js would load all of those for the question.
 */
const nativeStreams: Plugin = {
  name: 'native streams',
  setup({ initialOptions, onLoad }) {
    initialOptions.define = { ReadableStream: 'undefined' };
    onLoad({ filter: /[\\/]sdk-stream-mixin\.browser\.js$/ }, () => ({
      contents: `export const sdkStreamMixin = () => { throw new Error('This bundle has only the streams of Node.js') };`,
    }));
  },
};

/**
 * Leaves out what the SDK does for nothing in a function. It looks for each option of each client in files that Lambda does
 * not have, prepares a line of its log for each request although it has no log, looks for a signer for several regions at
 * a time, which is in a package that the functions do not have, has a pace for the retry mode `adaptive`, which no
 * function sets, and asks the metadata of an EC2 instance for the region, which Lambda names in the environment.
 */
const leanRequests: Plugin = {
  name: 'lean requests',
  setup({ onLoad }) {
    onLoad({ filter: /[\\/]signature-v4-multi-region[\\/].*[\\/]SignatureV4MultiRegion\.js$/ }, () => ({
      contents: `import { SignatureV4SignWithCredentials } from './SignatureV4SignWithCredentials';
        export class SignatureV4MultiRegion extends SignatureV4SignWithCredentials {
          static sigv4aDependency() { return 'none'; }
        }`,
    }));
    onLoad({ filter: /[\\/]node-config-provider[\\/]configLoader\.js$/ }, () => ({
      contents: `import { memoize } from '../property-provider/memoize';
        export const loadConfig = ({ environmentVariableSelector, default: otherwise }, { signingName, logger } = {}) =>
          memoize(async () => {
            let value;
            try { value = environmentVariableSelector(process.env, { signingName, logger }) } catch {}
            return value !== undefined ? value : typeof otherwise === 'function' ? otherwise() : otherwise;
          });`,
    }));
    onLoad({ filter: /[\\/]regionConfig[\\/]getInstanceMetadataRegion\.js$/ }, () => ({
      contents: 'export const getInstanceMetadataRegion = async () => undefined;',
    }));
    onLoad({ filter: /[\\/]util-retry[\\/]DefaultRateLimiter\.js$/ }, () => ({
      contents: `export class DefaultRateLimiter {
        constructor() { throw new Error('This bundle has only the standard mode of retries') }
      }`,
    }));
    onLoad({ filter: /[\\/]middleware-logger[\\/]loggerMiddleware\.js$/ }, () => ({
      contents: `export const loggerMiddleware = () => (next) => next;
        export const loggerMiddlewareOptions = {};
        export const getLoggerPlugin = () => ({ applyToStack() {} });`,
    }));
  },
};

/**
 * Stand-ins for modules of Node.js. An ESM import of one initialises all of its lazy exports (nodejs/node#59686): node:http
 * loads undici, node:crypto loads Web Crypto, node:process opens the standard streams, node:util loads a parser of
 * arguments. That is a good part of a cold start. The stand-ins return the same modules without loading any of that.
 */
const leanNode: Plugin = {
  name: 'lean Node.js',
  setup({ onResolve }) {
    onResolve({ filter: /^(?:node:)?(?:http|https|crypto|process|dns|util|fs)$/ }, ({ path }) => ({
      path: here(`aliases/${path.replace('node:', '')}.ts`),
    }));
  },
};

const { metafile } = await build({
  entryPoints: entries.map((entry) => {
    const [name = '', ...path] = entry.split('=');
    return { in: path.join('='), out: `${name}/index` };
  }),
  outdir: outDir,
  outExtension: { '.js': '.mjs' },
  bundle: true,
  format: 'esm',
  platform: 'node',
  target: 'node24',
  minify: true,
  // The file of notices has more.
  legalComments: 'none',
  metafile: true,
  logLevel: 'warning',
  // Take the ES modules of a package if it has any. CommonJS modules fail in an ESM bundle with "Dynamic require of
  // "node:..." is not supported".
  mainFields: ['module', 'main'],
  alias: {
    // Lambda passes credentials in the environment only. The SDK's search in other places (SSO, profiles, instance
    // metadata) would be a fifth of the bundle.
    '@aws-sdk/credential-provider-node': here('aliases/credentials.ts'),
    '@smithy/core/event-streams': here('aliases/event-streams.ts'),
  },
  plugins: [leanNode, leanClients, leanMediaTypes, leanRequests, nativeHashes, nativeStreams, thirdPartyNotices],
  // If code imports a name that a stand-in above lacks, the build must fail, not the function.
  logOverride: { 'import-is-undefined': 'error' },
});
process.stdout.write(JSON.stringify(metafile));
