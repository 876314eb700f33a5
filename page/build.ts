import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { extname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build, type Plugin } from 'esbuild';

/** One file of the page. */
export interface PageFile {
  readonly body: Uint8Array;
  readonly contentType: string;
}

/** Where the page's own files are, in its addresses. */
export const ASSETS_PATH = '/assets/';
/** The page itself. The server puts the token into its `<meta>`. */
export const PAGE_PATH = '/';

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

const CONTENT_TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.wasm': 'application/wasm',
};

/** The decoder of Draco's compression, which the viewer loads for the models that need it. */
const DRACO_FILES = ['draco_wasm_wrapper.js', 'draco_decoder.wasm'];

/**
 * Builds the part of the page that runs in the browser. Returns each file by its path in the page's addresses.
 *
 * The viewer for 3D models is a bundle of its own, which the app loads when it shows the first model. Its decoders for
 * compressed models are files of the page too: nothing is fetched from another host. KTX2 textures are not decoded,
 * because their decoder makes code from strings, which the page's content security policy forbids.
 */
export async function buildPage(): Promise<ReadonlyMap<string, PageFile>> {
  const { outputFiles } = await build({
    entryPoints: { app: here('./app/main.ts'), style: here('./app/app.css') },
    outdir: here('./built'),
    write: false,
    bundle: true,
    splitting: true,
    format: 'esm',
    platform: 'browser',
    target: ['chrome120', 'firefox121', 'safari17.5'],
    minify: true,
    legalComments: 'none',
    chunkNames: '[name]-[hash]',
    plugins: [adoptViewerStyles],
    logLevel: 'silent',
  });
  const files = new Map<string, PageFile>();
  files.set(PAGE_PATH, fileOf('index.html', await readFile(here('./app/index.html'))));
  files.set(`${ASSETS_PATH}icon.svg`, fileOf('icon.svg', await readFile(here('./app/icon.svg'))));
  for (const { path, contents } of outputFiles) {
    const name = path.slice(here('./built').length + 1).replace('style.css', 'app.css');
    files.set(`${ASSETS_PATH}${name}`, fileOf(name, contents));
  }
  const { resolve } = createRequire(import.meta.url);
  for (const name of DRACO_FILES) {
    const path = resolve(`three/examples/jsm/libs/draco/gltf/${name}`);
    files.set(`${ASSETS_PATH}decoders/${name}`, fileOf(name, await readFile(path)));
  }
  files.set(
    `${ASSETS_PATH}decoders/meshopt.js`,
    fileOf('meshopt.js', Buffer.from('// The viewer has this decoder.\n')),
  );
  return files;
}

function fileOf(name: string, body: Uint8Array): PageFile {
  const contentType = CONTENT_TYPES[extname(name)];
  if (contentType === undefined) throw new Error(`The page has no content type for "${name}".`);
  return { body, contentType };
}

/**
 * Moves the styles of `<model-viewer>` from a `<style>` element, which the page's content security policy blocks, to the
 * style sheets that Lit adopts when the element is connected.
 */
const adoptViewerStyles: Plugin = {
  name: "adopt the viewer's styles",
  setup({ onLoad }) {
    onLoad({ filter: /@google[\\/]model-viewer[\\/]lib[\\/]template\.js$/ }, async ({ path }) => {
      const source = await readFile(path, 'utf8');
      const [element = '', styles] = /<style>([^`$]*?)<\/style>/.exec(source) ?? [];
      const rendering = 'render(templateResult, shadowRoot);';
      if (styles === undefined || !source.includes(rendering)) {
        throw new Error('The template of model-viewer has changed: its styles are not where they were.');
      }
      const adopting = `shadowRoot.host.constructor.elementStyles = [styles]; ${rendering}`;
      const sheet = `const styles = new CSSStyleSheet();\nstyles.replaceSync(${JSON.stringify(styles)});`;
      return { contents: `${source.replace(element, '').replace(rendering, adopting)}\n${sheet}`, loader: 'js' };
    });
  },
};
