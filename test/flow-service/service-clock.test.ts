import { expect, it } from 'vitest';
import { exhaustedMs, retryAfterMs } from '../../functions/flow-service/rate-limit-headers.ts';

const NOW = Date.UTC(2026, 0, 1);
/** What the service's clock shows. It is a minute ahead. */
const THEIRS = NOW + 60_000;
const date = new Date(THEIRS).toUTCString();

it('a reset in milliseconds since the epoch is not taken for a wait of a day', () => {
  const headers = { 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': String(NOW + 5_000) };
  expect(exhaustedMs({ headers }, NOW)).toBe(5_000);
});

it('a service clock that is a minute ahead does not stretch the windows', () => {
  const headers = { date, 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': String(THEIRS / 1000 + 5) };
  expect(exhaustedMs({ headers }, NOW)).toBe(5_000);
});

it('a service clock that is a minute ahead does not stretch a wait until a date', () => {
  const headers = { date, 'retry-after': new Date(THEIRS + 5_000).toUTCString() };
  expect(retryAfterMs({ headers }, NOW)).toBe(5_000);
});

it.each(['5', '5s', '5000ms', String(THEIRS / 1000 + 5), new Date(THEIRS + 5_000).toISOString()])(
  'a reset may be a wait or a time in any form: %s',
  (reset) => {
    const headers = { date, 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': reset };
    expect(exhaustedMs({ headers }, NOW)).toBe(5_000);
  },
);

it('the first of several values of a reset counts, for a day at most', () => {
  const headers = (reset: string) => ({ 'x-ratelimit-remaining': '0, 5', 'x-ratelimit-reset': reset });
  expect(exhaustedMs({ headers: headers('7, 9') }, NOW)).toBe(7_000);
  expect(exhaustedMs({ headers: headers('99999999') }, NOW)).toBe(24 * 60 * 60_000);
});
