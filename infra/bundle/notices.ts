import { readdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join, relative, resolve } from 'node:path';
import type { Metafile, PartialMessage, Plugin } from 'esbuild';

/** File beside a bundle with the licences and notices of the packages in it. */
const NOTICES_FILE = 'THIRD-PARTY-NOTICES.txt';

/** Licence texts of packages that are published without one, by scope, from the source repository of the scope. */
const KEPT_LICENCES: Readonly<Record<string, { readonly license: string; readonly file: string }>> = {
  '@middy': { license: 'MIT', file: 'middy.txt' },
  // Its other packages have this text.
  '@aws-sdk': { license: 'Apache-2.0', file: 'aws-sdk.txt' },
  '@aws-lambda-powertools': { license: 'MIT-0', file: 'powertools.txt' },
};

/**
 * Code of others that a package contains without their licences. The texts are from the source repositories. Its
 * versions are the package's: after an update, look there for what is new.
 */
const INSIDE = [
  { name: 'three/build/three.core', title: 'earcut (ISC)', file: 'earcut.txt' },
  { name: 'three/examples/jsm/libs/draco', title: 'Draco (Apache-2.0)', file: 'draco.txt' },
  { name: 'three/examples/jsm/libs/fflate', title: 'fflate (MIT)', file: 'fflate.txt' },
  { name: 'three/examples/jsm/libs/ktx-parse', title: 'ktx-parse (MIT)', file: 'ktx-parse.txt' },
  { name: 'three/examples/jsm/libs/meshopt_decoder', title: 'meshoptimizer (MIT)', file: 'meshoptimizer.txt' },
  // zstddec is a wrapper of the compiled zstd, by the author of ktx-parse, with the same text.
  { name: 'three/examples/jsm/libs/zstddec', title: 'zstddec (MIT)', file: 'ktx-parse.txt' },
  { name: 'three/examples/jsm/libs/zstddec', title: 'Zstandard (BSD-3-Clause)', file: 'zstd.txt' },
].map(({ name, ...others }) => ({ path: new RegExp(`/node_modules/${name}[./]`), ...others }));

/** All that is in such a folder is by others. */
const OTHERS_FOLDER = /\/node_modules\/three\/examples\/jsm\/libs\//;

/** Folder of a package, in a path with forward slashes. */
const PACKAGE_FOLDER = /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+(?=\/)/;
const LICENCE_FILE = /^(licen[cs]e|copying)/i;
/** Files at the root of a package that travel with its code. */
const LEGAL_FILE = /^(licen[cs]e|copying|notice|third-?party)(?!.*\.([cm]?[jt]sx?|json|map)$)/i;

const RULE = '='.repeat(80);

/** The path of an output of esbuild, and what is in it. */
type Output = readonly [path: string, Metafile['outputs'][string]];

interface Package {
  /** Name, version and licence. */
  readonly title: string;
  /** Its licence and notices. Undefined if its licence is nowhere. */
  readonly text: string | undefined;
}

/**
 * Writes {@link NOTICES_FILE} beside the bundle. The licences of most packages demand that they travel with the code,
 * and esbuild's legal comments have none of them. Packages without code in the bundle are left out. The file depends
 * only on the packages, because it is part of what CDK hashes.
 *
 * The build fails if a package has no licence.
 */
export const thirdPartyNotices: Plugin = noticesPlugin(dirname);

/** The same, in a folder of its own, for a build that writes its files elsewhere. The folder must exist. */
export const thirdPartyNoticesIn = (folder: string): Plugin => noticesPlugin(() => folder);

/** @param folderOf says where the notices of an output belong. */
function noticesPlugin(folderOf: (path: string) => string): Plugin {
  return {
    name: 'third-party notices',
    setup({ initialOptions, onEnd }) {
      const { absWorkingDir = process.cwd() } = initialOptions;
      initialOptions.metafile = true;
      onEnd(async ({ metafile }) => {
        // There is no metafile if the build failed.
        const outputs = Object.entries(metafile?.outputs ?? {});
        const byFolder = Map.groupBy(outputs, ([path]) => folderOf(resolve(absWorkingDir, path)));
        const written = Array.from(byFolder, async ([folder, inFolder]) => {
          const paths = bundledPaths(inFolder, absWorkingDir);
          const packages = await Promise.all([...packageFolders(paths).map(packageIn), ...partsInside(paths)]);
          const errors = [
            ...packages.flatMap(({ title, text }) => (text === undefined ? withoutLicence(title) : [])),
            ...paths.filter(isByUnknown).map((path) => withoutLicence(relative(absWorkingDir, path))),
          ];
          if (errors.length === 0) await writeFile(join(folder, NOTICES_FILE), noticesOf(packages));
          return errors;
        });
        return { errors: (await Promise.all(written)).flat() };
      });
    },
  };
}

/** Files with code in the bundle. The paths of a metafile are relative to esbuild's working directory. */
function bundledPaths(outputs: readonly Output[], workingDir: string): readonly string[] {
  const inputs = outputs.flatMap(([, output]) => Object.entries(output.inputs));
  const paths = inputs.flatMap(([path, { bytesInOutput }]) => (bytesInOutput > 0 ? resolve(workingDir, path) : []));
  return [...new Set(paths)];
}

/** Folders of the packages of these files. */
const packageFolders = (paths: readonly string[]): readonly string[] => [
  ...new Set(paths.flatMap((path) => PACKAGE_FOLDER.exec(path)?.[0] ?? [])),
];

const partsInside = (paths: readonly string[]): readonly Promise<Package>[] =>
  INSIDE.filter((part) => paths.some((path) => part.path.test(path))).map(async ({ title, file }) => ({
    title,
    text: await textOf(keptLicence(file)),
  }));

const isByUnknown = (path: string): boolean => OTHERS_FOLDER.test(path) && !INSIDE.some((part) => part.path.test(path));

async function packageIn(folder: string): Promise<Package> {
  const { name, version, license } = JSON.parse(await readFile(join(folder, 'package.json'), 'utf8'));
  const title = `${name} ${version} (${license})`;
  const entries = await readdir(folder, { withFileTypes: true });
  const files = entries.flatMap((entry) => (entry.isFile() && LEGAL_FILE.test(entry.name) ? entry.name : [])).sort();
  const paths = files.map((file) => join(folder, file));
  if (!files.some((file) => LICENCE_FILE.test(file))) {
    const kept = KEPT_LICENCES[name.split('/')[0]];
    // A package that has changed its licence needs another text.
    if (kept === undefined || kept.license !== license) return { title, text: undefined };
    paths.unshift(keptLicence(kept.file));
  }
  return { title, text: (await Promise.all(paths.map(textOf))).join('\n\n') };
}

const keptLicence = (file: string): string => join(import.meta.dirname, 'licences', file);

const textOf = async (path: string): Promise<string> => (await readFile(path, 'utf8')).replaceAll('\r\n', '\n').trim();

function withoutLicence(title: string): PartialMessage {
  return {
    text: `The bundle contains code of ${title}, which has no licence file. Look for the licence in its source repository. If the licence allows this use, keep its text in infra/bundle/licences/ and name it in infra/bundle/notices.ts.`,
  };
}

/** Packages with the same text share it: most of the SDK's have one licence of 11 KB. */
function noticesOf(packages: readonly Package[]): string {
  const byText = Map.groupBy(
    packages.toSorted((a, b) => (a.title < b.title ? -1 : 1)),
    ({ text }) => text,
  );
  const parts = Array.from(
    byText,
    ([text, sharers]) => `${RULE}\n${[...new Set(sharers.map(({ title }) => title))].join('\n')}\n\n${text}\n`,
  );
  return [
    'This bundle contains code of the packages below, each with its version, its licence and its notices.',
    'It is not the original code: unused parts were removed, and names may be shorter.\n',
    ...parts,
  ].join('\n');
}
