import { timeOfIso } from '../base/clock.ts';
import type { TransportResponse } from './transport.ts';

type Headers = Pick<TransportResponse, 'headers'>;

/** Longest wait that we accept from a header, in milliseconds. */
const WAIT_MAX_MS = 24 * 60 * 60_000;

/** From this value on (the year 2001), a reset is a time in seconds since the epoch instead of a number of seconds. */
const EPOCH_SECONDS_MIN = 1e9;

/** From this value on, a reset is a time in milliseconds since the epoch. */
const EPOCH_MS_MIN = 1e12;

/** The service's own time, if its `Date` header tells. A reset by its clock must not be compared with ours. */
const serviceNow = ({ headers }: Headers, now: number): number => {
  const date = Date.parse(headers.date ?? '');
  return Number.isNaN(date) ? now : date;
};

/** `Retry-After` in milliseconds, as Azure and OpenAI send it beside the other one or alone. */
const MS_HEADERS: readonly string[] = ['retry-after-ms', 'x-ms-retry-after-ms'];

/** Tells whether an answer says when to try again. */
export const hasRetryAfter = ({ headers }: Headers): boolean =>
  ['retry-after', ...MS_HEADERS].some((name) => headers[name] !== undefined);

/**
 * `Retry-After` as milliseconds from `now`. Undefined if there is none, or if it is no wait. RFC 9110 (section 10.2.3) has
 * whole seconds and dates of HTTP only, but services send the other forms of {@link waitIn} too.
 */
export function retryAfterMs(response: Headers, now: number): number | undefined {
  const { headers } = response;
  const inMs = MS_HEADERS.map((name) => numberIn(headers[name])).find((ms) => ms !== undefined);
  const ms = inMs ?? waitIn(headers['retry-after'], serviceNow(response, now));
  return ms !== undefined && ms >= 0 ? Math.min(Math.ceil(ms), WAIT_MAX_MS) : undefined;
}

/**
 * How long the allowance of requests is used up, in milliseconds from `now`. Undefined if some are left, or if the
 * service does not say. Reads `RateLimit-Remaining` and `RateLimit-Reset`, with and without `X-`, and the combined
 * `RateLimit` of the later drafts (draft-ietf-httpapi-ratelimit-headers, 03 to 10).
 */
export function exhaustedMs(response: Headers, now: number): number | undefined {
  const { headers } = response;
  const combined = headers.ratelimit;
  const [remaining, reset] =
    combined === undefined
      ? [
          headers['ratelimit-remaining'] ?? headers['x-ratelimit-remaining'],
          headers['ratelimit-reset'] ?? headers['x-ratelimit-reset'],
        ]
      : [memberOf(combined, 'remaining', 'r'), memberOf(combined, 'reset', 't')];
  if (numberIn(remaining) !== 0) return undefined;
  const ms = waitIn(reset, serviceNow(response, now));
  return ms !== undefined && ms > 0 ? Math.min(Math.ceil(ms), WAIT_MAX_MS) : undefined;
}

/** The beginning of a date of HTTP. */
const HTTP_DATE = /^[A-Z][a-z]+, /;

/** A duration with units, such as `1.5s`, `250ms` or `6m0s`. */
const DURATION = /^(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?$/;

/**
 * A wait as milliseconds from `now`, which may be over already: a number of seconds, a duration with units, a date, or a
 * time in seconds or milliseconds since the epoch. Undefined if the value is none.
 */
function waitIn(value: string | undefined, now: number): number | undefined {
  const text = value?.trim() ?? '';
  const time = HTTP_DATE.test(text) ? Date.parse(text) : timeOfIso(text);
  if (time !== undefined) return Number.isNaN(time) ? undefined : time - now;
  const seconds = numberIn(text);
  if (seconds !== undefined) {
    if (seconds < EPOCH_SECONDS_MIN) return seconds * 1000;
    return (seconds < EPOCH_MS_MIN ? seconds * 1000 : seconds) - now;
  }
  const parts = text === '' ? null : DURATION.exec(text);
  if (parts === null) return undefined;
  const [h = 0, m = 0, s = 0, ms = 0] = parts.slice(1).map((part) => Number(part ?? 0));
  return ((h * 60 + m) * 60 + s) * 1000 + ms;
}

/** A number such as `12` or `12.5`. Several values of one header are joined by commas, and the first one counts. */
function numberIn(value: string | undefined): number | undefined {
  const text = value?.split(',', 1)[0]?.trim() ?? '';
  return /^\d+(\.\d+)?$/.test(text) ? Number(text) : undefined;
}

const memberOf = (header: string, ...names: readonly string[]): string | undefined =>
  header
    .split(/[,;]/)
    .map((member) => member.trim().split('='))
    .find(([name = '']) => names.includes(name.trim().toLowerCase()))?.[1]
    ?.trim();
