import { describe, expect, it } from 'vitest';
import { parseEnv } from '../../functions/settings/environment.ts';
import { envWith, messagesOf } from './fixtures.ts';

describe('a setting', () => {
  it.each([
    ['uploadConcurrency', 0, 17],
    ['inputBytesMax', 0, 2 ** 43],
    ['textBytesMax', 0, 2 ** 43],
    ['assetBytesMax', 0, 48 * 2 ** 30 + 1],
    ['assetBytesPerSecondMin', 0, 2 ** 30 + 1],
    ['outputsMax', 0, 10_001],
    ['answerDepthMax', 49, 1001],
    ['attemptsMax', 0, 101],
    ['pollIntervalSeconds', 0, 3601],
    ['pollConcurrency', 0, 1001],
    ['assetConcurrency', 0, 17],
    ['flowAgeMaxSeconds', 59, 31_536_001],
  ])('refuses %s outside of its range, in fractions or as text', (name, low, high) => {
    for (const value of [low, high, 120.5, '120', null]) {
      const issues = messagesOf(() => parseEnv(envWith({ [name]: value })));
      expect(issues[0], JSON.stringify(value)).toMatch(new RegExp(`^SETTINGS\\.${name}: expected a whole number of`));
      expect(issues[0]).toContain(`got ${JSON.stringify(value)}`);
    }
  });

  it.each([0.01, 0.5, 60, 10_000, 'unlimited'])('takes %j as the ceiling of requests a second', (requestsPerSecond) => {
    expect(parseEnv(envWith({ requestsPerSecond }))).toMatchObject({ requestsPerSecond });
  });

  it.each([0, 0.009, 10_001, -1, '60', null])('refuses %j as the ceiling of requests a second', (requestsPerSecond) => {
    const [issue] = messagesOf(() => parseEnv(envWith({ requestsPerSecond })));
    expect(issue).toMatch(/^SETTINGS\.requestsPerSecond: /);
    expect(issue).toContain(`got ${JSON.stringify(requestsPerSecond)}`);
  });

  it.each([30, 3650, 'forever'])('takes %j as the retention of the ledger', (ledgerRetentionDays) => {
    expect(parseEnv(envWith({ ledgerRetentionDays }))).toMatchObject({ ledgerRetentionDays });
  });

  it.each([29, 3651, 30.5, '30', null])('refuses %j as the retention of the ledger', (ledgerRetentionDays) => {
    expect(messagesOf(() => parseEnv(envWith({ ledgerRetentionDays })))).toEqual([
      `SETTINGS.ledgerRetentionDays: expected "forever", or a whole number of days from 30 to 3650, got ${JSON.stringify(ledgerRetentionDays)}`,
    ]);
  });

  it('refuses a retention that is shorter than the life of two flows', () => {
    expect(messagesOf(() => parseEnv(envWith({ ledgerRetentionDays: 30, flowAgeMaxSeconds: 1_296_001 })))).toEqual([
      'SETTINGS.ledgerRetentionDays: expected at least twice flowAgeMaxSeconds (1296001), or entries of running flows could expire, got 30',
    ]);
  });

  it('refuses a maximum age that ends before the second poll', () => {
    expect(messagesOf(() => parseEnv(envWith({ flowAgeMaxSeconds: 119, pollIntervalSeconds: 60 })))).toEqual([
      'SETTINGS.flowAgeMaxSeconds: expected at least twice pollIntervalSeconds (60), or flows would fail before they are polled, got 119',
    ]);
  });

  it.each(['in', '/in/', '/', 'in//', 'in*/', 'ä/'])('refuses %j as a prefix', (inboxPrefix) => {
    expect(messagesOf(() => parseEnv(envWith({ inboxPrefix })))).toEqual([
      expect.stringMatching(/^SETTINGS\.inboxPrefix: expected nothing, or a prefix such as/),
    ]);
  });
});

describe('the pattern for the keys of results', () => {
  it.each(['{flowId}/{assetId}', '{key}/{flowId}/{assetId}{ext}', 'made/{flowId}/of/{key}/asset-{assetId}{ext}'])(
    'accepts %s',
    (resultsKey) => {
      expect(parseEnv(envWith({ resultsKey })).resultsKey).toBe(resultsKey);
    },
  );

  it.each([
    ['{key}/{assetId}', '{flowId}'],
    ['{key}/{flowId}', '{assetId}'],
    ['{key}/{flowId}{assetId}', 'slash between'],
    ['{key}/{flowId}/{assetId}.{ext}', 'end in'],
    ['{assetId}/{flowId}', 'end in'],
    ['{flowId}/{flowId}/{assetId}', 'once'],
    ['{key}/{flow}/{assetId}', '{flow}'],
    ['{key}/}{flowId}/{assetId}', 'brace'],
    ['/{key}/{flowId}/{assetId}', 'slash'],
    ['{key}//{flowId}/{assetId}', 'slash'],
    [`${'x'.repeat(512)}/{flowId}/{assetId}`, '512'],
  ])('refuses %s and names the reason: %s', (resultsKey, why) => {
    const issues = messagesOf(() => parseEnv(envWith({ resultsKey })));
    expect(issues).toEqual([expect.stringMatching(/^SETTINGS\.resultsKey: expected /)]);
    expect(issues[0]).toContain(why);
  });
});

describe('the query of the listing of flows', () => {
  it.each(['', 'sort_by=-created_at&limit=200', "order=(created_at,'desc')~1"])('accepts %j', (flowsQuery) => {
    expect(parseEnv(envWith({ flowsQuery })).flowsQuery).toBe(flowsQuery);
  });

  it.each([
    ['created_after={iso}'],
    ['?sort=x'],
    ['sort=x#top'],
    ['sort=created at'],
    ['sort=ü'],
    [`sort=${'x'.repeat(500)}`],
  ])('refuses %j', (flowsQuery) => {
    const issues = messagesOf(() => parseEnv(envWith({ flowsQuery })));
    expect(issues).toEqual([expect.stringMatching(/^SETTINGS\.flowsQuery: expected nothing, or a query/)]);
  });
});
