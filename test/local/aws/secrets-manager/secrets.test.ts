import { GetSecretValueCommand, SecretsManagerClient } from '@aws-sdk/client-secrets-manager';
import { afterAll, describe, expect, it } from 'vitest';
import { systemClock } from '../../../../functions/base/clock.ts';
import { serveSecrets } from '../../../../local/aws/secrets-manager/http.ts';
import { SecretStore } from '../../../../local/aws/secrets-manager/secret-store.ts';

describe('secrets over the SDK', async () => {
  const store = new SecretStore({ clock: systemClock });
  const credentials = { accessKeyId: 'fake', secretAccessKey: 'fake' };
  const served = await serveSecrets(store, { credentials: [credentials] });
  const options = { endpoint: served.endpoint, region: 'us-east-1', credentials };
  const client = new SecretsManagerClient({ ...options, maxAttempts: 1 });
  afterAll(async () => {
    client.destroy();
    await served.close();
  });
  const read = async (SecretId: string) => (await client.send(new GetSecretValueCommand({ SecretId }))).SecretString;

  it.each([
    ['UnrecognizedClientException', { accessKeyId: 'another-fake' }],
    ['UnrecognizedClientException', { sessionToken: 'another-fake' }],
    ['InvalidSignatureException', { secretAccessKey: 'another-fake' }],
  ])('answers %s for %j', async (name, wrong) => {
    store.put('token', 'fake-1');
    const other = new SecretsManagerClient({ ...options, credentials: { ...credentials, ...wrong }, maxAttempts: 1 });
    const call = other.send(new GetSecretValueCommand({ SecretId: 'token' }));
    await expect(call).rejects.toMatchObject({ name, $metadata: { httpStatusCode: 400 } });
    other.destroy();
  });

  it('answers the current value by name and by ARN', async () => {
    store.put('token', 'fake-1');
    expect(await read('token')).toBe('fake-1');
    store.put('token', 'fake-2');
    expect(await read(store.arnOf('token'))).toBe('fake-2');
  });

  it('gives every value a version of its own', async () => {
    const versionId = async () => (await client.send(new GetSecretValueCommand({ SecretId: 'token' }))).VersionId;
    store.put('token', 'fake-1');
    const before = await versionId();
    store.put('token', 'fake-2');
    expect(await versionId()).not.toBe(before);
  });

  it('answers ResourceNotFoundException if the secret was never put or was removed', async () => {
    store.put('gone', 'fake');
    store.remove('gone');
    for (const id of ['gone', 'never']) {
      await expect(read(id)).rejects.toMatchObject({ name: 'ResourceNotFoundException' });
    }
  });

  it('throttles the given number of calls, and the SDK retries them as throttled', async () => {
    store.put('token', 'fake-1');
    store.throttle(1);
    await expect(read('token')).rejects.toMatchObject({ name: 'ThrottlingException', $retryable: undefined });
    expect(await read('token')).toBe('fake-1');

    store.throttle(2);
    const patient = new SecretsManagerClient({ ...options, maxAttempts: 3 });
    const answer = await patient.send(new GetSecretValueCommand({ SecretId: 'token' }));
    patient.destroy();
    expect(answer.$metadata.attempts).toBe(3);
  });
});
