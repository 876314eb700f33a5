import { fileURLToPath } from 'node:url';
import type { Metafile } from 'esbuild';
import { beforeAll, describe, expect, it } from 'vitest';
import { systemClock } from '../../../functions/base/clock.ts';
import { bundleModule } from '../../../infra/bundle/bundle.ts';
import { SecretStore, serveSecrets } from '../../../local/aws/secrets-manager.ts';
import { Queue, serveQueues } from '../../../local/aws/sqs.ts';
import { LocalFunction } from '../../../local/lambda/function.ts';
import { sharedFolder } from '../../support/folder.ts';

const CREDENTIALS = { accessKeyId: 'fake', secretAccessKey: 'fake', sessionToken: 'fake-session' };

describe('a bundle', () => {
  const bundleDir = sharedFolder();
  let metafile: Metafile;
  beforeAll(() => {
    metafile = bundleModule(fileURLToPath(new URL('fixtures/sdk-calls.ts', import.meta.url)), bundleDir);
  });

  it('calls AWS with default clients and the credentials of its environment', async () => {
    const queue = new Queue({ name: 'work', clock: systemClock });
    const queues = await serveQueues([queue], { credentials: [CREDENTIALS] });
    const store = new SecretStore({ clock: systemClock });
    store.put('token', 'fake-token');
    const secrets = await serveSecrets(store, { credentials: [CREDENTIALS] });
    const local = new LocalFunction(
      {
        name: 'sdk-calls',
        bundleDir,
        environment: {
          AWS_ENDPOINT_URL_SQS: queues.endpoint,
          AWS_ENDPOINT_URL_SECRETS_MANAGER: secrets.endpoint,
          QUEUE_URL: queues.urlOf(queue),
          AWS_ACCESS_KEY_ID: CREDENTIALS.accessKeyId,
          AWS_SECRET_ACCESS_KEY: CREDENTIALS.secretAccessKey,
          AWS_SESSION_TOKEN: CREDENTIALS.sessionToken,
        },
        timeoutSeconds: 30,
        memoryMiB: 256,
      },
      { concurrency: 1 },
    );
    try {
      expect(await local.invoke({ secretId: 'token' })).toEqual({ secretBytes: 10 });
      expect(queue.receive()).toMatchObject([{ body: 'sent from a bundle 🎁' }]);
    } finally {
      await local.close();
      await Promise.all([queues.close(), secrets.close()]);
    }
  });

  it('imports only modules of Node.js, and none that would load lazy exports', () => {
    const imported = Object.values(metafile.outputs).flatMap(({ imports }) => imports.map(({ path }) => path));
    expect(imported.filter((path) => !path.startsWith('node:'))).toEqual([]);
    for (const name of ['http', 'https', 'crypto', 'process', 'dns']) expect(imported).not.toContain(`node:${name}`);
  });
});
