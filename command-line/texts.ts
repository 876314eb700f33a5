import { isAbsolute, relative, sep } from 'node:path';
import stringWidth from 'string-width';
import { isSuccess, type TerminalState } from '../functions/ledger/terminal-states.ts';

/**
 * The text in at most so many columns. Letters of Asian scripts and emoji have two columns, and are not cut in half.
 */
export function cut(text: string, columns: number): string {
  if (stringWidth(text) <= columns) return text;
  let shown = '';
  let left = columns - 1;
  for (const { segment } of new Intl.Segmenter().segment(text)) {
    left -= stringWidth(segment);
    if (left < 0) break;
    shown += segment;
  }
  return columns > 0 ? `${shown}…` : '';
}

/** Formats a number of bytes: `0 B`, `12.3 KB`, `4 MB`. */
export function size(bytes: number): string {
  const units = ['B', 'KB', 'MB', 'GB', 'TB'];
  const power = Math.min(units.length - 1, Math.floor(Math.log10(Math.max(1, bytes)) / 3));
  const value = bytes / 1000 ** power;
  return `${power === 0 || value >= 100 ? Math.round(value) : Math.round(value * 10) / 10} ${units[power]}`;
}

/** A time for a person, in their zone, with the date unless it is today: `17:03:10 CET`. @param at as `Date` takes it. */
export function localTime(at: number | string, now = Date.now()): string {
  const time = new Date(at);
  const isToday = time.toDateString() === new Date(now).toDateString();
  const date = isToday ? {} : ({ year: 'numeric', month: '2-digit', day: '2-digit' } as const);
  const clock = { hour: '2-digit', minute: '2-digit', second: '2-digit', timeZoneName: 'short' } as const;
  // Swedes write dates as ISO 8601 does.
  return time.toLocaleString('sv-SE', { ...date, ...clock });
}

/** True for a time that has not come. @param at ISO 8601. */
export const isAhead = (at: string | undefined, now = Date.now()): at is string =>
  at !== undefined && Date.parse(at) > now;

/** A path for the screen: relative if it is inside the current folder, otherwise absolute. */
export function shownPath(path: string, cwd = process.cwd()): string {
  const inside = relative(cwd, path);
  const isInside = inside !== '' && inside !== '..' && !inside.startsWith(`..${sep}`) && !isAbsolute(inside);
  return isInside ? `./${inside}` : path;
}

/** How a chain ended, or how far it came. */
export interface ChainEnd {
  readonly state: TerminalState | 'under way' | 'replaced';
  /** Number of uploads by state, of each stage. */
  readonly stages: readonly { readonly route: string; readonly counts: Readonly<Record<string, number>> }[];
  readonly withheld: readonly { readonly route: string; readonly why?: string | undefined }[];
}

/** The end of a chain in words. It names each stage, and says of each what was not one success. */
export function chainEnd({ state, stages, withheld }: ChainEnd): string {
  const told = [
    ...stages.map(({ route, counts }) => {
      const uploads = Object.values(counts).reduce((sum, count) => sum + count, 0);
      const others = Object.entries(counts).filter(([name]) => !isSuccess(name));
      const words = [
        ...(uploads > 1 ? [`${uploads} uploads`] : []),
        ...others.map(([name, count]) => (uploads > 1 ? `${count} ${name}` : name)),
      ];
      return words.length === 0 ? route : `${route} (${words.join(', ')})`;
    }),
    ...withheld.map(({ route, why }) => `${route} did not begin: ${why}`),
  ];
  return `chain ${state === 'succeeded' ? 'done' : state}: ${told.join(', ')}`;
}
