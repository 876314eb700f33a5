/** Name of the file that makes its folder a job, below the prefix of a jobs route. */
export const JOB_FILE = 'job.json';

/** Maximum number of folders between a job file and an input. Each of them costs a request when an input arrives. */
export const JOB_DEPTH_MAX = 8;

/** The folder of a key, with a slash at its end. Empty for a key without a folder. */
export const folderOf = (key: string): string => key.slice(0, key.lastIndexOf('/') + 1);

/** Tells whether a key has the name of a job file. Its prefix decides whether it is one. */
export const isJobFile = (key: string): boolean => key.slice(folderOf(key).length) === JOB_FILE;

/** The name of a file as an input of a job. Undefined if the file is not in the folder of the job. */
export function inputName(jobKey: string, key: string): string | undefined {
  const folder = folderOf(jobKey);
  return key !== jobKey && key.startsWith(folder) ? key.slice(folder.length) : undefined;
}

/** The key of an input of a job. */
export const inputKey = (jobKey: string, name: string): string => folderOf(jobKey) + name;

/**
 * A text in the one form in which keys are compared. Programs write the same name in different ways: composed or
 * decomposed (macOS), and with other blanks than the space (U+202F in the names of screenshots).
 */
export const comparable = (text: string): string => text.normalize('NFC').replace(/\p{Zs}/gu, ' ');

/**
 * Two names with the same result are easily taken for each other: they differ in case, in `%20` for a space, or in a
 * backslash for a slash.
 */
export function confusable(name: string): string {
  let decoded = name;
  try {
    decoded = decodeURIComponent(name);
  } catch {
    // A percent sign that stands for itself.
  }
  return comparable(decoded).toLowerCase().replaceAll('\\', '/');
}

/** Files by what their names are easily taken for: see {@link confusable}. Of several, the first one. */
export const byConfusable = (files: readonly string[]): ReadonlyMap<string, string> =>
  new Map(files.toReversed().map((file) => [confusable(file), file]));

/**
 * The files that one name of a job fits: the one with exactly this key, or else all whose keys compare equal.
 * @param named the keys of all inputs that the job names. A file with one of these keys is that input.
 */
export function filesFor<F extends { readonly key: string }>(
  key: string,
  named: readonly string[],
  files: readonly F[],
): readonly F[] {
  const exact = files.filter((file) => file.key === key);
  if (exact.length > 0) return exact;
  return files.filter((file) => !named.includes(file.key) && comparable(file.key) === comparable(key));
}
