import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, extname, join, relative } from 'node:path';

/** One file of the page. */
export interface PageFile {
  readonly body: Uint8Array;
  readonly contentType: string;
}

/** Files of the page by their paths in its addresses, such as `/` and `/assets/app.js`. */
export type PageFiles = ReadonlyMap<string, PageFile>;

/** Where the page's own files are, in its addresses. */
export const ASSETS_PATH = '/assets/';
/** The page itself. */
export const PAGE_PATH = '/';

const CONTENT_TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.wasm': 'application/wasm',
  // The licences of the packages in the scripts, in the package.
  '.txt': 'text/plain; charset=utf-8',
};

/** @throws if the page has no content type for files with such a name. */
export function pageFile(name: string, body: Uint8Array): PageFile {
  const contentType = CONTENT_TYPES[extname(name)];
  if (contentType === undefined) throw new Error(`The page has no content type for "${name}".`);
  return { body, contentType };
}

/** Name of the page itself in a folder with its files. */
const PAGE_NAME = 'index.html';

/** Writes the files into a folder, where {@link readPage} finds them. */
export async function writePage(files: PageFiles, folder: string): Promise<void> {
  for (const [path, { body }] of files) {
    const file = join(folder, path === PAGE_PATH ? PAGE_NAME : path);
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, body);
  }
}

/** Reads the files that {@link writePage} wrote. */
export async function readPage(folder: string): Promise<PageFiles> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const names = entries.flatMap((each) => (each.isFile() ? relative(folder, join(each.parentPath, each.name)) : []));
  const read = async (name: string): Promise<readonly [string, PageFile]> => {
    const path = name === PAGE_NAME ? PAGE_PATH : `/${name.replaceAll('\\', '/')}`;
    return [path, pageFile(name, await readFile(join(folder, name)))];
  };
  return new Map(await Promise.all(names.map(read)));
}
