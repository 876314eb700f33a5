import { describe, expect, it } from 'vitest';
import { parseEnv } from '../../functions/settings/environment.ts';
import { env, messagesOf } from './fixtures.ts';

describe('buckets', () => {
  const oneBucket = (prefixes: object) => env({ RESULTS_BUCKET: 'the-inbox', SETTINGS: JSON.stringify(prefixes) });

  it.each([
    {},
    { inboxPrefix: 'in/' },
    { resultsPrefix: 'out/' },
    { inboxPrefix: 'in/', resultsPrefix: 'in/out/' },
    { inboxPrefix: 'in/out/', resultsPrefix: 'in/' },
    { inboxPrefix: 'in/', resultsPrefix: 'in/' },
  ])('are refused if inbox and results are one bucket with %j; the message names bucket and prefixes', (prefixes) => {
    const [issue, ...others] = messagesOf(() => parseEnv(oneBucket(prefixes)));
    expect(others).toEqual([]);
    expect(issue).toContain('inbox and results are one bucket, the-inbox,');
    expect(issue).toContain('inboxPrefix and resultsPrefix');
  });

  it('may be one for inbox and results if neither prefix starts with the other', () => {
    expect(parseEnv(oneBucket({ inboxPrefix: 'in/', resultsPrefix: 'out/' }))).toMatchObject({
      inboxPrefix: 'in/',
      resultsPrefix: 'out/',
    });
  });

  it('are refused if the ledger shares one of the others', () => {
    expect(messagesOf(() => parseEnv(env({ LEDGER_BUCKET: 'the-results' })))).toEqual([
      'results and ledger are one bucket, the-results: the ledger needs its own',
    ]);
  });
});
