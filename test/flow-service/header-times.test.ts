import { describe, expect, it } from 'vitest';
import { fileNames } from '../../functions/flow-service/asset-download.ts';
import { nextLink } from '../../functions/flow-service/link-header.ts';
import { canonicalMediaType } from '../../functions/flow-service/media-type.ts';
import { exhaustedMs, retryAfterMs } from '../../functions/flow-service/rate-limit-headers.ts';

const HEADER_BYTES = 128 * 1024;

/** Parts of headers that are repeated. */
const PARTS: readonly string[] = [
  ...' \t<>;,="\\/a%',
  ...['<a>', '<a>;', '<a>,', '<a>; rel=next,', '<a>; rel="next"', '; rel=', '; rel="', ' ;', '; ', ' ; ', ';a=b'],
  ...['; a="b"', '="', '=""', 'a/b', 'a/b;', 'a ', '\\"', '" ', '<"', '\u00a0', "'", 'filename=', 'filename="'],
];

/** What comes before and behind the repeated part. */
const FRAMES: readonly (readonly [before: string, behind: string])[] = [
  ['', ''],
  ['<a>', ''],
  ['a/b', 'c'],
  ['a/b;', '='],
  ['<a>; rel="', '"'],
  ['a/b;c="', 'd'],
  ['attachment; filename=a', 'b'],
];

/** Time of the processor for one header, in milliseconds: far more than linear time takes, and far less than quadratic. */
const PROCESSOR_MS_MAX = 500;

describe.each<[string, (header: string) => unknown]>([
  ['Link', nextLink],
  ['Content-Type', canonicalMediaType],
  ['Content-Disposition', fileNames],
  ['Retry-After', (header) => retryAfterMs({ headers: { 'retry-after': header } }, 0)],
  ['RateLimit', (header) => exhaustedMs({ headers: { ratelimit: header } }, 0)],
])('a header %s', (_, parse) => {
  it.each(FRAMES)('is parsed in linear time, whatever is repeated in %j%j', (before, behind) => {
    for (const part of PARTS) {
      const header = before + part.repeat(HEADER_BYTES / part.length) + behind;
      const from = process.cpuUsage();
      parse(header);
      const { user, system } = process.cpuUsage(from);
      expect((user + system) / 1_000, `${JSON.stringify(part)} repeated`).toBeLessThan(PROCESSOR_MS_MAX);
    }
  });
});
