import { describe, expect, it } from 'vitest';
import { parseEnv } from '../../functions/settings/environment.ts';
import { envWith, messagesOf } from './fixtures.ts';

describe('a setting', () => {
  it.each<[name: string, values: readonly unknown[]]>([
    ['requestsPerSecond', [0.01, 0.5, 60, 10_000, 'unlimited']],
    ['ledgerRetentionDays', [30, 3650, 'forever']],
    [
      'resultsKey',
      ['{flowId}/{assetId}', '{key}/{flowId}/{assetId}{ext}', 'made/{flowId}/of/{key}/asset-{assetId}{ext}'],
    ],
  ])('%s takes each of %j', (name, values) => {
    for (const value of values) expect(parseEnv(envWith({ [name]: value }))).toMatchObject({ [name]: value });
  });

  const ranges: readonly (readonly [name: string, tooLow: number, tooHigh: number])[] = [
    ['uploadConcurrency', 0, 17],
    ['inputBytesMax', 0, 2 ** 43],
    ['textBytesMax', 0, 2 ** 43],
    ['assetBytesMax', 0, 48 * 2 ** 30 + 1],
    ['assetBytesPerSecondMin', 0, 2 ** 30 + 1],
    ['outputsMax', 0, 10_001],
    ['attemptsMax', 0, 101],
    ['pollIntervalSeconds', 0, 3601],
    ['pollConcurrency', 0, 1001],
    ['assetConcurrency', 1, 33],
    ['flowAgeMaxSeconds', 59, 31_536_001],
  ];
  it.each<[name: string, values: readonly unknown[], expected: string]>([
    ...ranges.map(([name, low, high]): [string, readonly unknown[], string] => [
      name,
      [low, high, 120.5, '120', null],
      'a whole number of',
    ]),
    ['requestsPerSecond', [0, 0.009, 10_001, -1, '60', null], ''],
    ['ledgerRetentionDays', [29, 3651, 30.5, '30', null], '"forever", or a whole number of days from 30 to 3650,'],
    ['inboxPrefix', ['in', '/in/', '/', 'in//', 'in*/', 'ä/'], 'nothing, or a prefix such as'],
  ])('%s takes no other value', (name, values, expected) => {
    for (const value of values) {
      const [issue = ''] = messagesOf(() => parseEnv(envWith({ [name]: value })));
      expect(issue, JSON.stringify(value)).toContain(`SETTINGS.${name}: expected ${expected}`);
      expect(issue).toContain(`got ${JSON.stringify(value).slice(0, 50)}`);
    }
  });

  it.each([
    ['outputsPath', 'root', '"outputs": {"path": '],
    ['flowListing', 'none', '"list": null'],
    ['flowsQuery', 'page_size=9', '"list": {"query": '],
    ['answerDepthMax', 60, '"answerDepthMax": '],
    ['htmlTemplates', ['t'], '"makes": ["text/html"]'],
  ])('%s is gone, and the error says what took its place', (name, value, instead) => {
    const [issue, ...more] = messagesOf(() => parseEnv(envWith({ [name]: value })));
    expect([issue, more]).toEqual([expect.stringContaining(instead), []]);
  });

  it('inDoubt has a new word, and the error says it', () => {
    expect(messagesOf(() => parseEnv(envWith({ inDoubt: 'hold' })))).toEqual([
      'SETTINGS.inDoubt: expected "ask", as "hold" is called now, got "hold"',
    ]);
  });

  it.each([
    ['{key}/{assetId}', '{flowId}'],
    ['{key}/x', '{flowId}'],
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
  ])('resultsKey refuses %s and names the reason: %s', (resultsKey, why) => {
    const issues = messagesOf(() => parseEnv(envWith({ resultsKey })));
    expect(issues).toEqual([expect.stringMatching(/^SETTINGS\.resultsKey: expected /)]);
    expect(issues[0]).toContain(why);
  });

  it.each([
    [
      'a retention that is shorter than the life of two flows',
      { ledgerRetentionDays: 30, flowAgeMaxSeconds: 1_296_001 },
      'SETTINGS.ledgerRetentionDays: expected at least twice flowAgeMaxSeconds (1296001), or entries of running flows could expire, got 30',
    ],
    [
      'a maximum age that ends before the second poll',
      { flowAgeMaxSeconds: 119, pollIntervalSeconds: 60 },
      'SETTINGS.flowAgeMaxSeconds: expected at least twice pollIntervalSeconds (60), or flows would fail before they are polled, got 119',
    ],
  ])('is refused beside others: %s', (_, settings, issue) => {
    expect(messagesOf(() => parseEnv(envWith(settings)))).toEqual([issue]);
  });
});
