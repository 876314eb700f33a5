import { isAbsolute, relative, sep } from 'node:path';

/** A path for the screen: relative if it is inside the current folder, otherwise absolute. */
export function shownPath(path: string, cwd = process.cwd()): string {
  const inside = relative(cwd, path);
  const isInside = inside !== '' && inside !== '..' && !inside.startsWith(`..${sep}`) && !isAbsolute(inside);
  return isInside ? `./${inside}` : path;
}
