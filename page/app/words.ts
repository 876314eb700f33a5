import { printable } from '../../functions/base/printable.ts';
import { TERMINAL_STATE_NAMES, TERMINAL_STATES, type TerminalState } from '../../functions/ledger/terminal-states.ts';
import { sumText } from '../../operations/cost-texts.ts';
import { atItsTime } from '../../operations/shown-state.ts';
import type { CostRow, RowState, UploadRow } from '../api.ts';

const numbers = new Intl.NumberFormat('en');
const ago = new Intl.RelativeTimeFormat('en', { numeric: 'auto', style: 'short' });
const clock = new Intl.DateTimeFormat('en', {
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
  hourCycle: 'h23',
});
const day = new Intl.DateTimeFormat('en', { day: 'numeric', month: 'short' });
const full = new Intl.DateTimeFormat('en', { dateStyle: 'long', timeStyle: 'long' });

const SECOND_MS = 1_000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;

/** `12,034` */
export const count = (value: number): string => numbers.format(value);

/** `1 file`, `12 files` */
export const plural = (value: number, one: string, many = `${one}s`): string =>
  `${count(value)} ${value === 1 ? one : many}`;

/** `1.20 EUR + 1.00 USD`; `3 flows` if none of them has a price. */
export const money = ({ amounts, flows }: Pick<CostRow, 'amounts' | 'flows'>): string =>
  sumText(amounts) || plural(flows, 'flow');

/** `1 flow may have been paid twice`. Undefined if none may. */
export const paidTwice = ({ mayBeSecond }: Pick<CostRow, 'mayBeSecond'>): string | undefined =>
  mayBeSecond === 0 ? undefined : `${plural(mayBeSecond, 'flow')} may have been paid twice`;

/** `7.7 KB`, in powers of 1,000. */
export function size(bytes: number): string {
  const units = ['bytes', 'KB', 'MB', 'GB', 'TB'];
  let unit = 0;
  let value = bytes;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1_000;
    unit += 1;
  }
  if (unit === 0) return plural(bytes, 'byte');
  return `${value.toFixed(value < 9.95 ? 1 : 0)} ${units[unit]}`;
}

/** `now`, `12 min. ago`, `Nov 3` for what is older than a week. */
export function timeAgo(iso: string, now: number): string {
  const age = now - Date.parse(iso);
  if (age < 5 * SECOND_MS) return 'now';
  if (age < MINUTE_MS) return ago.format(-Math.floor(age / SECOND_MS), 'second');
  if (age < HOUR_MS) return ago.format(-Math.floor(age / MINUTE_MS), 'minute');
  if (age < DAY_MS) return ago.format(-Math.floor(age / HOUR_MS), 'hour');
  if (age < 7 * DAY_MS) return ago.format(-Math.floor(age / DAY_MS), 'day');
  return day.format(Date.parse(iso));
}

/** `14:03:27`, with the day if it is another one than today. */
export function clockTime(iso: string, now: number): string {
  const time = new Date(iso);
  const isToday = time.toDateString() === new Date(now).toDateString();
  return isToday ? clock.format(time) : `${day.format(time)}, ${clock.format(time)}`;
}

/** `Nov 3` */
export const dayOf = (iso: string): string => day.format(Date.parse(iso));

/** Why an upload waits, in a line that begins with the time of the next try, unless it has come. */
export const waitLine = (message: string, until: string, now: number, word = 'Next try'): string =>
  Date.parse(until) <= now ? message : `${word} ${clockTime(until, now)} · ${message}`;

/** What becomes of an upload when its wait is over, with the time after it. */
export function atItsTimeWords(reason: string): string {
  const words = atItsTime(reason);
  return words.startsWith('next') ? 'Next try' : `It ${words}`;
}

export const capitalised = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

export const ASKED_TO_WAIT = 'The service asks to wait until';

/** Day and time in full. */
export const fullTime = (iso: string): string => full.format(Date.parse(iso));

/** `less than 0.1 s`, `2.3 s`, `4 min`, `3 h` */
export function duration(ms: number): string {
  if (ms < 0.1 * SECOND_MS) return 'less than 0.1 s';
  if (ms < 10 * SECOND_MS) return `${(ms / SECOND_MS).toFixed(1)} s`;
  if (ms < 2 * MINUTE_MS) return `${Math.round(ms / SECOND_MS)} s`;
  if (ms < 2 * HOUR_MS) return `${Math.round(ms / MINUTE_MS)} min`;
  return ms < 2 * DAY_MS ? `${Math.round(ms / HOUR_MS)} h` : `${Math.round(ms / DAY_MS)} days`;
}

/** A key in two parts, as they are shown: `prompts/` and `fox.txt`. */
export function splitKey(key: string): { readonly folder: string; readonly name: string } {
  const at = key.lastIndexOf('/', key.length - 2) + 1;
  return { folder: printable(key.slice(0, at)), name: printable(key.slice(at)) };
}

/** A later stage of a chain has the name of the first file, and that of its route: `robot.png › optimised`. */
export function shownName({
  key,
  first,
  route,
}: Pick<UploadRow, 'key' | 'first' | 'route'>): ReturnType<typeof splitKey> {
  if (first === undefined) return splitKey(key);
  const { folder, name } = splitKey(first.key);
  return { folder, name: `${name} › ${printable(route)}` };
}

export const TERMINAL_WORDS = Object.fromEntries(
  TERMINAL_STATE_NAMES.map((state) => [state, TERMINAL_STATES[state].word]),
) as Readonly<Record<TerminalState, string>>;

/** The states in the order in which they are shown, each with its word. */
export const STATE_WORDS: Readonly<Record<RowState, string>> = {
  waiting: 'Waiting',
  undecided: 'Undecided',
  claimed: 'Sending',
  running: 'Running',
  ...TERMINAL_WORDS,
  replaced: 'Replaced',
};

export const STATES = Object.keys(STATE_WORDS) as readonly RowState[];
