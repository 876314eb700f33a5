import { SecretsManagerClient } from '@aws-sdk/client-secrets-manager';
import { describe, expect, it, onTestFinished } from 'vitest';
import { UnauthorisedError } from '../../functions/flow-service/errors.ts';
import { SecretToken, tokenIn } from '../../functions/lambda/token.ts';
import { SecretStore, serveSecrets } from '../../local/aws/secrets.ts';

const MINUTE = 60_000;
const signal = new AbortController().signal;

async function start(value: string) {
  let now = 0;
  const clock = { now: () => now, sleep: () => Promise.reject(new Error('not needed')) };
  const store = new SecretStore({ clock });
  store.put('flowdrop/token', value);
  const server = await serveSecrets(store);
  const client = new SecretsManagerClient({
    endpoint: server.endpoint,
    region: 'us-east-1',
    credentials: { accessKeyId: 'fake', secretAccessKey: 'fake' },
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
  return { store, token, advance };
}

describe('the token', () => {
  it('is kept for five minutes, and read again after them', async () => {
    const { store, token, advance } = await start('first');
    expect(await token.get(signal)).toBe('first');
    store.put('flowdrop/token', 'second');
    advance(4 * MINUTE);
    expect(await token.get(signal)).toBe('first');
    advance(2 * MINUTE);
    expect(await token.get(signal)).toBe('second');
  });

  it('is read again at once when that is asked for', async () => {
    const { store, token } = await start('first');
    await token.get(signal);
    store.put('flowdrop/token', 'second');
    expect(await token.renew(signal)).toBe('second');
    expect(await token.get(signal)).toBe('second');
  });

  it('that was read already is taken as it was offered, while it is fresh', async () => {
    const { token } = await start('in the store');
    token.offer(Promise.resolve('offered'));
    expect(await token.get(signal)).toBe('offered');
    const late = await start('in-the-store');
    late.token.offer(Promise.resolve('offered'));
    late.advance(6 * MINUTE);
    expect(await late.token.get(signal)).toBe('in-the-store');
  });

  it.each<[string, () => Promise<unknown>]>([
    ['could not be read', () => Promise.reject(new Error('throttled'))],
    ['holds none', () => Promise.resolve('{"no":"token"}')],
  ])('that was offered and %s is read anew, however often the same is offered', async (_, offer) => {
    const { token } = await start('mended');
    for (let i = 0; i < 3; i += 1) token.offer(offer());
    expect(await token.get(signal)).toBe('mended');
    token.offer(offer());
    expect(await token.get(signal)).toBe('mended');
  });

  it('that is not there is no authorisation, and its secret is named', async () => {
    const { store, token } = await start('x');
    store.remove('flowdrop/token');
    await expect(token.get(signal)).rejects.toThrow(UnauthorisedError);
    await expect(token.get(signal)).rejects.toThrow('flowdrop/token');
  });

  it('that took too long is a matter of time, not of authorisation', async () => {
    const { token } = await start('x');
    const controller = new AbortController();
    token.offer(new Promise(() => {}));
    const reading = token.get(controller.signal);
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
    [{ token: 'abc' }, 'abc'],
    ['', undefined],
    ['   ', undefined],
    ['{"token":""}', undefined],
    ['{"token":5}', undefined],
    ['{"tokens":"abc"}', undefined],
    ['{"token":', undefined],
    ['[]', '[]'],
    ['two words', undefined],
    ['two\nlines', undefined],
    ['naïve', undefined],
    [undefined, undefined],
    [null, undefined],
    [5, undefined],
  ])('%j holds the token %j', (secret, expected) => {
    expect(tokenIn(secret)).toBe(expected);
  });
});
