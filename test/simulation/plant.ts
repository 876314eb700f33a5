import { globSync, readFileSync } from 'node:fs';
import type { Change, Mutation } from './mutations.ts';
import { Source } from './places.ts';

/** The folder that the files of mutations are in. */
export const FUNCTIONS = new URL('../../functions/', import.meta.url);

/**
 * The code that a mutation changes is not at its place, or is there more than once. The message says where else it is.
 */
export class PlaceError extends Error {
  override readonly name = 'PlaceError';
}

/**
 * The text of a file with all changes of a mutation that are in this file.
 * @throws {PlaceError} if the code of a change is not exactly once at its place.
 */
export function planted(mutation: Mutation, file: string, text: string): string {
  return mutation.changes
    .filter((change) => change.file === file)
    .reduce((source, change) => {
      const found = source.find(change.in, change.replace);
      const [range] = found;
      if (range === undefined || found.length > 1) throw new PlaceError(messageOf(mutation, change, found.length));
      return new Source(source.replaced(range, change.with));
    }, new Source(text)).text;
}

/** The text of a file of `functions/`. @throws {PlaceError} if there is no such file. */
export function textOf(mutation: Mutation, file: string): string {
  try {
    return readFileSync(new URL(file, FUNCTIONS), 'utf8');
  } catch (cause) {
    const change = mutation.changes.find((one) => one.file === file) as Change;
    throw new PlaceError(messageOf(mutation, change, 0), { cause });
  }
}

function messageOf({ name }: Mutation, change: Change, count: number): string {
  const { file, in: place, replace } = change;
  const sources = allSources();
  const member = `.${place.split('.').at(-1)}`;
  const places = sources.flatMap(({ path, source }) =>
    source.placeNames.filter((other) => `.${other}`.endsWith(member)).map((other) => `${other} of ${path}`),
  );
  const codes = sources.flatMap(({ path, source }) => source.placesOf(replace).map((other) => `${other} of ${path}`));
  return [
    `The mutation "${name}" must find this code once in ${place} of ${file}, and finds it ${count} times:`,
    replace,
    `Places of that name: ${places.join(', ') || 'none'}.`,
    `The same code is in: ${codes.join(', ') || 'no place'}.`,
    'Change `file`, `in` and `replace` of the mutation in test/simulation/mutations.ts.',
  ].join('\n');
}

let parsed: readonly { readonly path: string; readonly source: Source }[] | undefined;

/** All files of the functions, parsed once. */
function allSources(): NonNullable<typeof parsed> {
  parsed ??= globSync('**/*.ts', { cwd: FUNCTIONS })
    .sort()
    .map((path) => ({ path, source: new Source(readFileSync(new URL(path, FUNCTIONS), 'utf8')) }));
  return parsed;
}
