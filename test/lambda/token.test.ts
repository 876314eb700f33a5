import { SecretsManagerClient } from '@aws-sdk/client-secrets-manager';
import { describe, expect, it, onTestFinished } from 'vitest';
import { UnauthorisedError } from '../../functions/flow-service/errors.ts';
import { SecretToken, tokenIn } from '../../functions/lambda/token.ts';
import { SecretStore, serveSecrets } from '../../local/aws/secrets-manager.ts';

const MINUTE = 60_000;
const CREDENTIALS = { accessKeyId: 'fake', secretAccessKey: 'fake' };
const signal = new AbortController().signal;

async function start(value: string) {
  let now = 0;
  const clock = { now: () => now, sleep: () => Promise.reject(new Error('not needed')) };
  const store = new SecretStore({ clock });
  store.put('flowdrop/token', value);
  const calls: unknown[] = [];
  const server = await serveSecrets(store, {
    credentials: [CREDENTIALS],
    onCall: (call) => calls.push(call),
  });
  const client = new SecretsManagerClient({
    endpoint: server.endpoint,
    region: 'us-east-1',
    credentials: CREDENTIALS,
    maxAttempts: 1,
  });
  onTestFinished(async () => {
    client.destroy();
    await server.close();
  });
  const token = new SecretToken(client, 'flowdrop/token', clock);
  const advance = (ms: number): void => {
    now += ms;
  };
  return { store, calls, token, advance };
}

describe('the token', () => {
  it('is kept for five minutes, and then read again', async () => {
    const { store, token, advance } = await start('first');
    expect(await token.get(signal)).toBe('first');
    store.put('flowdrop/token', 'second');
    advance(4 * MINUTE);
    expect(await token.get(signal)).toBe('first');
    advance(2 * MINUTE);
    expect(await token.get(signal)).toBe('second');
  });

  it('is read again at once if the caller renews it', async () => {
    const { store, token } = await start('first');
    await token.get(signal);
    store.put('flowdrop/token', 'second');
    expect(await token.renew(signal)).toBe('second');
    expect(await token.get(signal)).toBe('second');
  });

  it('is read once for callers that need it at the same time, and at first use', async () => {
    const { calls, token } = await start('first');
    expect(calls).toEqual([]);
    expect(await Promise.all([token.get(signal), token.get(signal), token.renew(signal)])).toEqual(
      Array(3).fill('first'),
    );
    expect(calls).toHaveLength(1);
  });

  it('is read again by the next caller if a read failed', async () => {
    const { store, token } = await start('{"no":"token"}');
    await expect(token.get(signal)).rejects.toThrow('holds no token');
    store.put('flowdrop/token', 'corrected');
    expect(await token.get(signal)).toBe('corrected');
  });

  it('is reported as unauthorised with the name of its secret if the secret does not exist', async () => {
    const { store, token } = await start('x');
    store.remove('flowdrop/token');
    await expect(token.get(signal)).rejects.toThrow(UnauthorisedError);
    await expect(token.get(signal)).rejects.toThrow('flowdrop/token');
  });

  it('does not wait for the SDK once the time is over', async () => {
    const deaf = { send: () => new Promise(() => {}) } as unknown as SecretsManagerClient;
    const clock = { now: () => 0, sleep: () => Promise.reject(new Error('not needed')) };
    const controller = new AbortController();
    const reading = new SecretToken(deaf, 'flowdrop/token', clock).get(controller.signal);
    controller.abort(new RangeError('over'));
    await expect(reading).rejects.toThrow(RangeError);
  });
});

describe('a secret', () => {
  it.each([
    ['abc', 'abc'],
    ['abc\n', 'abc'],
    ['  abc  ', 'abc'],
    ['{"token":"abc"}', 'abc'],
    [' {"token":"abc\\n"} ', 'abc'],
    ['\ufeffabc', 'abc'],
    ['\ufeff{"token":"abc"}', 'abc'],
    ['{"user":"a","token":"abc","url":"https://flows.example.com"}', 'abc'],
    ['{"token":"another","token":"abc"}', 'abc'],
    ['', undefined],
    ['   ', undefined],
    ['{"token":""}', undefined],
    ['{"token":5}', undefined],
    ['{"tokens":"abc"}', undefined],
    ['{"token":', undefined],
    ['{"token":"abc"} {}', undefined],
    [`${'{"token":'.repeat(50_000)}1${'}'.repeat(50_000)}`, undefined],
    ['[]', '[]'],
    ['two words', undefined],
    ['two\nlines', undefined],
    ['naïve', undefined],
    [undefined, undefined],
  ])('%j has the token %j', (secret, expected) => {
    expect(tokenIn(secret)).toBe(expected);
  });
});
