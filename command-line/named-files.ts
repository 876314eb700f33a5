import { accessSync, constants, readdirSync, statSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';

/** A file given as an argument, or found in a folder that was. */
export interface NamedFile {
  /** Absolute. */
  readonly path: string;
  /** Its key in the inbox bucket, with slashes. */
  readonly key: string;
}

export interface NamedFiles {
  readonly files: readonly NamedFile[];
  /** The files and folders that cannot be read, and the links in folders. */
  readonly unreadable: readonly Refused[];
}

/** A file or folder that is not sent, and why. */
export interface Refused {
  readonly name: string;
  readonly why: string;
}

/**
 * The files at these paths. The key of a file is its name. The key of a file in a folder begins with the folder's name,
 * as if the folder had been put into the inbox folder. Hidden files in a folder are left out. If several files have the
 * same key, the later ones get a number as prefix, each with its whole folder: the files of a job belong together.
 */
export function namedFiles(paths: readonly string[]): NamedFiles {
  const taken = new Set<string>();
  const files: NamedFile[] = [];
  const unreadable: Refused[] = [];
  const filesIn = (dir: string, prefix: string): readonly NamedFile[] =>
    entriesOf(dir, unreadable).flatMap((entry): readonly NamedFile[] => {
      if (entry.name.startsWith('.')) return [];
      const path = join(dir, entry.name);
      if (entry.isDirectory()) return filesIn(path, `${prefix}${entry.name}/`);
      if (entry.isSymbolicLink()) unreadable.push({ name: path, why: 'it is a link. Name what it leads to' });
      return entry.isFile() ? fileAt(path, `${prefix}${entry.name}`) : [];
    });
  const fileAt = (path: string, key: string): readonly NamedFile[] => {
    const why = whyUnreadable(path);
    if (why === undefined) return [{ path, key }];
    unreadable.push({ name: path, why });
    return [];
  };
  for (const path of paths) {
    const isFolder = statSync(path).isDirectory();
    const found = isFolder ? filesIn(path, `${basename(resolve(path))}/`) : fileAt(path, basename(path));
    let numbered = found;
    for (let n = 2; numbered.some(({ key }) => taken.has(key)); n += 1) {
      numbered = found.map((file) => ({ ...file, key: `${n}/${file.key}` }));
    }
    // One by one: as the arguments of one call, 130,000 files would not fit on the stack.
    for (const file of numbered) {
      taken.add(file.key);
      files.push(file);
    }
  }
  return { files, unreadable };
}

/** Why a file cannot be read. Undefined if it can. */
function whyUnreadable(path: string): string | undefined {
  try {
    accessSync(path, constants.R_OK);
    return undefined;
  } catch (error) {
    // Node puts this character in the place of bytes that are not UTF-8. Such a name leads to no file.
    if (path.includes('\ufffd')) return 'its name is not UTF-8. Rename it';
    return `it cannot be read (${(error as NodeJS.ErrnoException).code})`;
  }
}

/** In the order of their names, so that every run gives the same keys. */
function entriesOf(dir: string, unreadable: Refused[]) {
  try {
    return readdirSync(dir, { withFileTypes: true }).sort((a, b) => (a.name < b.name ? -1 : 1));
  } catch (error) {
    const why = `the folder cannot be read (${(error as NodeJS.ErrnoException).code})`;
    unreadable.push({ name: dir, why });
    return [];
  }
}
