import { describe, expect, it } from 'vitest';
import { LEDGER, RESULTS, TOKEN } from '../support/world.ts';
import { hostileWorld, MINUTE, settledReceipt } from './support.ts';

const USELESS: readonly (readonly [what: string, secret: string | Error])[] = [
  ['a line break and a header', 'obviously-fake\r\nX-Evil: b'],
  ['cut JSON', '{"token":"obviously-fake'],
  ['JSON with text after it', '{"token":"obviously-fake"} {}'],
  ['objects in objects, 50,000 deep', `${'{"token":'.repeat(50_000)}1${'}'.repeat(50_000)}`],
  ['unreadable', new Error('AccessDeniedException: no identity-based policy allows it')],
];

describe('a secret that is', () => {
  it.each(USELESS)('%s makes uploads wait and ticks end, and fails no upload', async (_, secret) => {
    const world = await hostileWorld({ settings: { attemptsMax: 2 } });
    await world.send('a');
    world.token = secret;
    world.clock.advance(10 * MINUTE);
    expect((await world.send('b'))?.batchItemFailures).toEqual([]);
    for (let i = 0; i < 3; i += 1) {
      expect(await world.tickAfter(20 * MINUTE)).toMatchObject({ result: 'unauthorised', failed: 0 });
      await world.deliver();
    }
    expect(world.count('TokenRejected')).toBeGreaterThan(1);
    expect(await world.keys(RESULTS)).toEqual([]);
    expect((await world.keys(LEDGER, 'waiting/')).length).toBeGreaterThan(0);
    expect(await world.keys(LEDGER, 'running/')).toHaveLength(1);
    // The secret must not be in a log, even if it is not a token.
    const said = JSON.stringify(world.logged.map(({ message, fields }) => [message, fields, String(fields.error)]));
    expect(said).not.toContain('obviously');
    if (typeof secret === 'string') expect(said).toContain('holds no token');

    world.token = TOKEN;
    world.clock.advance(10 * MINUTE);
    await world.settle();
    expect((await world.receipt('a')).status).toBe('succeeded');
    expect((await world.receipt('b')).status).toBe('succeeded');
  });

  const useful: readonly (readonly [what: string, secret: string])[] = [
    ['the token behind a byte order mark', `\ufeff${TOKEN}`],
    ['JSON with more in it', JSON.stringify({ user: 'a', token: TOKEN, url: 'https://flows.example.com' })],
    ['JSON with two tokens. The last one counts', `{"token":"obviously-another","token":"${TOKEN}"}`],
  ];
  it.each(useful)('%s is understood', async (_, secret) => {
    const world = await hostileWorld();
    world.token = secret;
    await world.upload('a', 'x');
    expect((await settledReceipt(world)).status).toBe('succeeded');
  });
});
