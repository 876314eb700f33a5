const SECOND_MS = 1_000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;

/** A duration in its largest unit, or two of them: `less than a second`, `45 s`, `12 min`, `3 h 20 min`, `5 d 2 h`. */
export function duration(ms: number): string {
  if (ms < SECOND_MS) return 'less than a second';
  if (ms < MINUTE_MS) return `${Math.floor(ms / SECOND_MS)} s`;
  if (ms < HOUR_MS) return `${Math.floor(ms / MINUTE_MS)} min`;
  if (ms < DAY_MS) return pair(ms, [HOUR_MS, 'h'], [MINUTE_MS, 'min']);
  return pair(ms, [DAY_MS, 'd'], [HOUR_MS, 'h']);
}

/** A time relative to now: `just now`, `12 s ago`, `in 3 min`. @param ms how long ago it was. */
export function agoText(ms: number): string {
  if (Math.abs(ms) < SECOND_MS) return 'just now';
  return ms < 0 ? `in ${duration(-ms)}` : `${duration(ms)} ago`;
}

function pair(ms: number, [large, largeName]: [number, string], [small, smallName]: [number, string]): string {
  const rest = Math.floor((ms % large) / small);
  return `${Math.floor(ms / large)} ${largeName}${rest === 0 ? '' : ` ${rest} ${smallName}`}`;
}
