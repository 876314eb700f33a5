import {
  DescribeSecretCommand,
  GetSecretValueCommand,
  PutSecretValueCommand,
  SecretsManagerClient,
} from '@aws-sdk/client-secrets-manager';
import { afterAll, describe, expect, it } from 'vitest';
import { systemClock } from '../../../functions/base/clock.ts';
import { SecretStore, serveSecrets } from '../../../local/aws/secrets.ts';

describe('secrets over the SDK', async () => {
  const store = new SecretStore({ clock: systemClock });
  const served = await serveSecrets(store);
  const credentials = { accessKeyId: 'fake', secretAccessKey: 'fake' };
  const options = { endpoint: served.endpoint, region: 'us-east-1', credentials };
  const client = new SecretsManagerClient({ ...options, maxAttempts: 1 });
  afterAll(async () => {
    client.destroy();
    await served.close();
  });
  const read = async (SecretId: string) => (await client.send(new GetSecretValueCommand({ SecretId }))).SecretString;

  it('gives the current value by name and by ARN', async () => {
    store.put('token', 'fake-1');
    expect(await read('token')).toBe('fake-1');
    store.put('token', 'fake-2');
    expect(await read(store.arnOf('token'))).toBe('fake-2');
  });

  it('takes a new value over the API, under a new version', async () => {
    store.put('token', 'fake-1');
    const before = await client.send(new DescribeSecretCommand({ SecretId: 'token' }));
    const put = await client.send(new PutSecretValueCommand({ SecretId: 'token', SecretString: 'fake-3' }));
    expect(await read('token')).toBe('fake-3');
    expect(put.VersionId).not.toBe(Object.keys(before.VersionIdsToStages ?? {})[0]);
    expect(before.CreatedDate).toBeInstanceOf(Date);
  });

  it('does not know a secret that was never put or was removed', async () => {
    store.put('gone', 'fake');
    store.remove('gone');
    for (const id of ['gone', 'never']) {
      await expect(read(id)).rejects.toMatchObject({ name: 'ResourceNotFoundException' });
    }
  });

  it('throttles as many calls as it was told to, which the SDK sees as throttling', async () => {
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
