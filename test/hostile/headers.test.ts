import { describe, expect, it } from 'vitest';
import { linksIn } from '../../functions/flow-service/link-header.ts';
import { canonicalMediaType } from '../../functions/flow-service/media-type.ts';
import { exhaustedMs, retryAfterMs } from '../../functions/flow-service/rate-limit-headers.ts';

const KIB = 1024;

/** Parts of headers that are repeated. */
const PARTS: readonly string[] = [
  ...' \t<>;,="\\/a%',
  ...['<a>', '<a>;', '<a>,', '<a>; rel=next,', '<a>; rel="next"', '; rel=', '; rel="', ' ;', '; ', ' ; ', ';a=b'],
  ...['; a="b"', '="', '=""', 'a/b', 'a/b;', 'a ', '\\"', '" ', '<"', '\u00a0'],
];

/** What comes before and behind the repeated part. */
const FRAMES: readonly (readonly [before: string, behind: string])[] = [
  ['', ''],
  ['<a>', ''],
  ['a/b', 'c'],
  ['a/b;', '='],
  ['<a>; rel="', '"'],
  ['a/b;c="', 'd'],
];

/** The shortest of some times that `parse` takes, in milliseconds. A pause of the process makes single times longer. */
const leastMs = (parse: () => unknown): number =>
  Math.min(
    ...[1, 2, 3, 4, 5].map(() => {
      const before = performance.now();
      parse();
      return performance.now() - before;
    }),
  );

/** Shorter times are taken for this one: below it, chance decides. */
const SHORT_MS = 0.05;

/** How much longer 64 KiB take than 1 KiB. That is about 64 times if the time is linear, and 4,096 if it is quadratic. */
function growth(parse: (header: string) => unknown, headerOf: (bytes: number) => string): number {
  const [short, long] = [headerOf(KIB), headerOf(64 * KIB)];
  return (
    leastMs(() => parse(long)) /
    Math.max(
      SHORT_MS,
      leastMs(() => parse(short)),
    )
  );
}

describe.each<[string, (header: string) => unknown]>([
  ['Link', linksIn],
  ['Content-Type', canonicalMediaType],
  ['Retry-After', (header) => retryAfterMs({ headers: { 'retry-after': header } }, 0)],
  ['RateLimit', (header) => exhaustedMs({ headers: { ratelimit: header } }, 0)],
])('a header %s', (_, parse) => {
  it.each(FRAMES)('is parsed in linear time, whatever is repeated in %j%j', (before, behind) => {
    for (const part of PARTS) {
      const ratio = growth(parse, (bytes) => before + part.repeat(bytes / part.length) + behind);
      expect(ratio, `${JSON.stringify(part)} repeated`).toBeLessThan(1_000);
    }
  });
});
