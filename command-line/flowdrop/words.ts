import { InvalidArgumentError, Option } from 'commander';
import { didYouMean } from '../../functions/base/did-you-mean.ts';
import { agoText } from '../../functions/base/duration.ts';
import type { Run } from './run.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const UNITS: Readonly<Record<string, number>> = { m: MINUTE_MS, h: HOUR_MS, d: DAY_MS };

/**
 * A time that an operator writes: a duration before now (`30m`, `2h`, `7d`), a time of today (`12:00`), or a date
 * in ISO 8601. Returns milliseconds since the epoch.
 * @throws {InvalidArgumentError}
 */
export function timeOf(text: string, now = Date.now()): number {
  const [, amount, unit = ''] = /^(\d{1,6})([mhd])$/.exec(text) ?? [];
  if (amount !== undefined) return now - Number(amount) * (UNITS[unit] ?? 0);
  const [, hours, minutes] = /^([01]?\d|2[0-3]):([0-5]\d)$/.exec(text) ?? [];
  if (hours !== undefined) return new Date(now).setHours(Number(hours), Number(minutes), 0, 0);
  const time = /^\d{4}-\d{2}-\d{2}/.test(text) ? Date.parse(text) : Number.NaN;
  if (!Number.isNaN(time)) return time;
  throw new InvalidArgumentError('Expected 30m, 2h, 7d, 12:00 (today), or a date such as 2026-01-31.');
}

/**
 * The same for `--since`. Nothing has happened since a time that is ahead, which would look as if all were well: at half
 * past midnight, `23:00` most likely means yesterday.
 * @throws {InvalidArgumentError}
 */
export function sinceOf(text: string, now = Date.now()): number {
  const time = timeOf(text, now);
  // A date begins in UTC. East of it, today has not begun there in the morning.
  const past = [time, Date.parse(`${text}T00:00`)].find((each) => each <= now);
  if (past !== undefined) return past;
  throw new InvalidArgumentError(
    `That is ${new Date(time).toISOString()}, which has not come yet. For an earlier day, name the day too.`,
  );
}

/** A time relative to now: `just now`, `12 s ago`, `in 3 min`. @param iso ISO 8601. */
export const relative = (iso: string, now = Date.now()): string => agoText(now - Date.parse(iso));

/** The option `--code`, which takes one of these codes. */
export const codeOption = (description: string, codes: readonly string[]): Option =>
  new Option('--code <code>', description).choices(codes).argParser((text) => {
    if (codes.includes(text)) return text;
    const meant = didYouMean(text, codes);
    throw new InvalidArgumentError(
      meant === undefined ? `There is no such code. The codes: ${codes.join(', ')}.` : `Did you mean ${meant}?`,
    );
  });

export const unknownRoute = (route: string | undefined, { settings }: Run['deployment']): string =>
  `There is no route ${route}. The routes are ${settings.routes.map(({ name }) => name).join(', ')}.`;

/** Says so if a filter names no route. It may be an earlier one, whose files are still there. */
export function noteRoute(
  { console, deployment }: Pick<Run, 'console' | 'deployment'>,
  route: string | undefined,
): void {
  const { settings, areRoutesKnown } = deployment;
  if (route === undefined || !areRoutesKnown || settings.routes.some(({ name }) => name === route)) return;
  console.note(unknownRoute(route, deployment));
}
