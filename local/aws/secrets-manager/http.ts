import * as z from 'zod/mini';
import { operation, serveAwsJson } from '../aws-json.ts';
import type { AwsEndpoint, EndpointAccess } from '../endpoint.ts';
import type { SecretStore } from './secret-store.ts';

/** Serves secrets to the SDK's Secrets Manager client. */
export function serveSecrets(store: SecretStore, access: EndpointAccess): Promise<AwsEndpoint> {
  return serveAwsJson({
    version: '1.1',
    target: 'secretsmanager',
    service: 'secretsmanager',
    ...access,
    operations: {
      GetSecretValue: operation(z.object({ SecretId: z.string() }), ({ SecretId }) => {
        const { name, versionId, value, createdAt } = store.find(SecretId);
        return {
          ARN: store.arnOf(name),
          Name: name,
          CreatedDate: createdAt / 1000,
          VersionId: versionId,
          SecretString: value,
          VersionStages: ['AWSCURRENT'],
        };
      }),
    },
  });
}
