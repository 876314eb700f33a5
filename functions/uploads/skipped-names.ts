import { caseless } from './route-conditions.ts';

/**
 * Names of files that no person meant: what operating systems and tools put beside the files of people, and what is not
 * complete yet. `*` stands for any characters at the beginning or at the end of a name, and a slash at the end for a
 * folder with all that is in it.
 *
 * What begins with a dot is of software, also if it ends like a file of people: AppleDouble files and `.DS_Store` of macOS,
 * `.photo.jpg.Xa1b2C` of rsync, `.trashed-…` of Android, `.thumbnails/`, `.Trash-1000/`. `Thumbs.db`, `ehthumbs.db`,
 * `desktop.ini`, `$RECYCLE.BIN/` and `System Volume Information/` are of Windows, `*:Zone.Identifier` of its Linux
 * subsystem, `@eaDir/` and `#recycle/` of Synology, `@Recycle/` of QNAP, `*.filepart` of WinSCP, `*.crdownload` of Chromium,
 * `*.opdownload` of Opera, `*.download` of Safari, `*.aria2` of aria2, `*.swp` of Vim, `*~` of editors, `~$*` of Microsoft
 * Office, `*.info` of tus, and `*_$folder$` of Hadoop.
 */
export const SKIPPED_NAMES: readonly string[] = [
  ...['.*', '.*/', '__MACOSX/', 'Thumbs.db', 'ehthumbs.db', 'desktop.ini', '$RECYCLE.BIN/'],
  ...['System Volume Information/', '*:Zone.Identifier'],
  ...['@eaDir/', '#recycle/', '@Recycle/', 'lost+found/'],
  ...['*.filepart', '*.part', '*.partial', '*.crdownload', '*.opdownload', '*.download', '*.aria2', '*.tmp', '*.temp'],
  ...['*.swp', '*~', '~$*', '*.info', '*_$folder$'],
];

/** The first of these names that fits a key. Undefined if none does. The case of letters does not matter. */
export function fittingName(names: readonly string[], key: string): string | undefined {
  const folders = caseless(key).split('/');
  const name = folders.pop() as string;
  return names.find((each) => {
    const folded = caseless(each);
    if (folded.endsWith('/')) return folders.some((folder) => fits(folded.slice(0, -1), folder));
    return fits(folded, name);
  });
}

function fits(pattern: string, name: string): boolean {
  if (name === '.' || name === '..') return false; // Places, and not names.
  if (pattern.startsWith('*')) return name.endsWith(pattern.slice(1));
  return pattern.endsWith('*') ? name.startsWith(pattern.slice(0, -1)) : name === pattern;
}

/** Says of a file why nothing is sent of it. */
export const skippedWords = (name: string): string =>
  `Its name fits "${name}" of settings.skippedNames: a file that no person meant. A route takes it if one of its prefixes or suffixes names it.`;
