import { caseless } from './route-conditions.ts';

/**
 * Names of files that no person meant: what operating systems and tools put beside the files of people, and what is not
 * complete yet. `*` stands for any characters at the beginning or at the end of a name, and a slash at the end for a
 * folder with all that is in it.
 *
 * AppleDouble files and `.DS_Store` are of macOS, `Thumbs.db` and `desktop.ini` of Windows, `*.filepart` of WinSCP,
 * `*.crdownload` of Chromium, `*.download` of Safari, `*.swp` of Vim, `*~` of editors, `~$*` of Microsoft Office, `*.info`
 * of tus, and `*_$folder$` of Hadoop.
 */
export const SKIPPED_NAMES: readonly string[] = [
  ...['._*', '__MACOSX/', '.DS_Store', 'Thumbs.db', 'desktop.ini'],
  ...['*.filepart', '*.part', '*.partial', '*.crdownload', '*.download', '*.tmp', '*.temp'],
  ...['*.swp', '*~', '~$*', '*.info', '*_$folder$'],
];

/** The first of these names that fits a key. Undefined if none does. The case of letters does not matter. */
export function fittingName(names: readonly string[], key: string): string | undefined {
  const folders = caseless(key).split('/');
  const name = folders.pop() as string;
  return names.find((each) => {
    const folded = caseless(each);
    if (folded.endsWith('/')) return folders.includes(folded.slice(0, -1));
    if (folded.startsWith('*')) return name.endsWith(folded.slice(1));
    return folded.endsWith('*') ? name.startsWith(folded.slice(0, -1)) : name === folded;
  });
}

/** Says of a file why nothing is sent of it. */
export const skippedWords = (name: string): string =>
  `Its name fits "${name}" of settings.skippedNames: a file that no person meant. A route takes it if one of its suffixes names it.`;
