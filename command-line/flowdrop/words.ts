import { InvalidArgumentError } from 'commander';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const UNITS: Readonly<Record<string, number>> = { m: MINUTE_MS, h: HOUR_MS, d: DAY_MS };

/**
 * A time that an operator writes: a duration before now (`30m`, `2h`, `7d`), a time of today (`12:00`), or a date
 * in ISO 8601. Returns milliseconds since the epoch.
 * @throws {InvalidArgumentError}
 */
export function sinceOf(text: string, now = Date.now()): number {
  const [, amount, unit = ''] = /^(\d{1,6})([mhd])$/.exec(text) ?? [];
  if (amount !== undefined) return now - Number(amount) * (UNITS[unit] ?? 0);
  const [, hours, minutes] = /^([01]?\d|2[0-3]):([0-5]\d)$/.exec(text) ?? [];
  if (hours !== undefined) return new Date(now).setHours(Number(hours), Number(minutes), 0, 0);
  const time = /^\d{4}-\d{2}-\d{2}/.test(text) ? Date.parse(text) : Number.NaN;
  if (!Number.isNaN(time)) return time;
  throw new InvalidArgumentError('Expected 30m, 2h, 7d, 12:00 (today), or a date such as 2026-01-31.');
}

/** A time relative to now: `12 s ago`, `in 3 min`. @param iso ISO 8601. */
export const relative = (iso: string, now = Date.now()): string => {
  const ms = now - Date.parse(iso);
  return ms < 0 ? `in ${duration(-ms)}` : `${duration(ms)} ago`;
};

/** A duration in its largest unit, or two of them: `45 s`, `12 min`, `3 h 20 min`, `5 d 2 h`. */
export function duration(ms: number): string {
  const seconds = Math.floor(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  if (ms < HOUR_MS) return `${Math.floor(ms / MINUTE_MS)} min`;
  if (ms < DAY_MS) return pair(ms, [HOUR_MS, 'h'], [MINUTE_MS, 'min']);
  return pair(ms, [DAY_MS, 'd'], [HOUR_MS, 'h']);
}

function pair(ms: number, [large, largeName]: [number, string], [small, smallName]: [number, string]): string {
  const rest = Math.floor((ms % large) / small);
  return `${Math.floor(ms / large)} ${largeName}${rest === 0 ? '' : ` ${rest} ${smallName}`}`;
}
