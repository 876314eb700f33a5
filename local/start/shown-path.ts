import { relative } from 'node:path';

/** A path as short as one would say it in this folder: relative where it is inside, whole where it is elsewhere. */
export function shownPath(path: string, cwd = process.cwd()): string {
  const inside = relative(cwd, path);
  return inside === '' || inside.startsWith('..') ? path : `./${inside}`;
}
