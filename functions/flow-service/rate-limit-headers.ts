import type { TransportResponse } from './transport.ts';

/** Longest wait that we accept from a header, in milliseconds. */
const WAIT_MAX_MS = 24 * 60 * 60_000;

/** From this value on (the year 2001), a reset is a time in seconds since the epoch instead of a number of seconds. */
const EPOCH_SECONDS_MIN = 1e9;

/** From this value on, a reset is a time in milliseconds since the epoch. */
const EPOCH_MS_MIN = 1e12;

/** The service's own time, if its `Date` header tells. A reset by its clock must not be compared with ours. */
const serviceNow = ({ headers }: Pick<TransportResponse, 'headers'>, now: number): number => {
  const date = Date.parse(headers.date ?? '');
  return Number.isNaN(date) ? now : date;
};

/**
 * `Retry-After` as milliseconds from `now`: seconds or a date (RFC 9110, section 10.2.3). Undefined if it is neither. The
 * RFC has whole seconds only, but some services send fractions.
 */
export function retryAfterMs(response: Pick<TransportResponse, 'headers'>, now: number): number | undefined {
  const { headers } = response;
  const text = headers['retry-after']?.trim() ?? '';
  const isDate = /^[A-Z][a-z]+, /.test(text);
  const ms = isDate ? Date.parse(text) - serviceNow(response, now) : (numberIn(text) ?? Number.NaN) * 1000;
  return ms >= 0 ? Math.min(Math.ceil(ms), WAIT_MAX_MS) : undefined;
}

/**
 * How long the allowance of requests is used up, in milliseconds from `now`. Undefined if some are left, or if the
 * service does not say. Reads `RateLimit-Remaining` and `RateLimit-Reset`, with and without `X-`, and the combined
 * `RateLimit` of the later drafts (draft-ietf-httpapi-ratelimit-headers, 03 to 10).
 */
export function exhaustedMs(response: Pick<TransportResponse, 'headers'>, now: number): number | undefined {
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
  const seconds = numberIn(reset);
  if (seconds === undefined) return undefined;
  const epochMs = seconds >= EPOCH_MS_MIN ? seconds : seconds * 1000;
  const ms = seconds >= EPOCH_SECONDS_MIN ? epochMs - serviceNow(response, now) : seconds * 1000;
  return ms > 0 ? Math.min(ms, WAIT_MAX_MS) : undefined;
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
