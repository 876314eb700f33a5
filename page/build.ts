import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { parse, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build, type Plugin } from 'esbuild';
import { ASSETS_PATH, PAGE_PATH, type PageFile, type PageFiles, pageFile } from './page-files.ts';

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** The decoder of Draco's compression, which the viewer loads for the models that need it. */
const DRACO_FILES = ['draco_wasm_wrapper.js', 'draco_decoder.wasm'];

/**
 * Builds the part of the page that runs in the browser. Returns each file by its path in the page's addresses.
 *
 * The viewer for 3D models is a bundle of its own, which the app loads when it shows the first model. Its decoders for
 * compressed models are files of the page too: nothing is fetched from another host. KTX2 textures are not decoded,
 * because their decoder makes code from strings, which the page's content security policy forbids.
 * @param plugins more plugins for esbuild.
 */
export async function buildPage(plugins: readonly Plugin[] = []): Promise<PageFiles> {
  const { resolve } = createRequire(import.meta.url);
  const decoders = DRACO_FILES.map((name) => ({
    in: resolve(`three/examples/jsm/libs/draco/gltf/${name}`),
    out: `decoders/${parse(name).name}`,
  }));
  const { outputFiles } = await build({
    entryPoints: [{ in: here('./app/main.ts'), out: 'app' }, { in: here('./app/app.css'), out: 'app' }, ...decoders],
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
    plugins: [adoptViewerStyles, copyDecoders, ...plugins],
    logLevel: 'silent',
  });
  const files = new Map<string, PageFile>();
  files.set(PAGE_PATH, pageFile('index.html', await readFile(here('./app/index.html'))));
  files.set(`${ASSETS_PATH}icon.svg`, pageFile('icon.svg', await readFile(here('./app/icon.svg'))));
  for (const { path, contents } of outputFiles) {
    const name = relative(here('./built'), path);
    files.set(`${ASSETS_PATH}${name}`, pageFile(name, contents));
  }
  const meshopt = Buffer.from('// The viewer has this decoder.\n');
  files.set(`${ASSETS_PATH}decoders/meshopt.js`, pageFile('meshopt.js', meshopt));
  return files;
}

/** Copies the decoders as they are, so that esbuild counts them among the files of the page. */
const copyDecoders: Plugin = {
  name: 'copy the decoders',
  setup({ onLoad }) {
    onLoad({ filter: /[\\/]libs[\\/]draco[\\/]/ }, async ({ path }) => ({
      contents: await readFile(path),
      loader: 'copy',
    }));
  },
};

/**
 * Moves the styles of `<model-viewer>` from a `<style>` element, which the page's content security policy blocks, to
 * the style sheets that Lit adopts when the element is connected.
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
