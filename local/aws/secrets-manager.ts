import { randomUUID } from 'node:crypto';
import * as z from 'zod/mini';
import type { Clock } from '../../functions/base/clock.ts';
import { AwsError, operation, serveAwsJson } from './aws-json.ts';
import type { AwsEndpoint, EndpointAccess } from './endpoint.ts';

export interface Secret {
  readonly name: string;
  readonly versionId: string;
  readonly value: string;
  /** Milliseconds since the epoch. */
  readonly createdAt: number;
}

/** Secrets Manager in memory. It keeps the current value of each secret, under the secret's name and ARN. */
export class SecretStore {
  readonly #clock: Clock;
  readonly #secrets = new Map<string, Secret>();

  constructor({ clock }: { readonly clock: Clock }) {
    this.#clock = clock;
  }

  /** Creates the secret, or gives it a new value. */
  put(name: string, value: string): void {
    this.#secrets.set(name, { name, versionId: randomUUID(), value, createdAt: this.#clock.now() });
  }

  /** Removes the secret without a trace. */
  remove(name: string): void {
    this.#secrets.delete(name);
  }

  arnOf(name: string): string {
    return `arn:aws:secretsmanager:us-east-1:000000000000:secret:${name}-AbCdEf`;
  }

  /**
   * @param id the name or the ARN.
   * @throws {AwsError} `ResourceNotFoundException`
   */
  find(id: string): Secret {
    for (const secret of this.#secrets.values()) {
      if (id === secret.name || id === this.arnOf(secret.name)) return secret;
    }
    throw new AwsError('ResourceNotFoundException', "Secrets Manager can't find the specified secret.");
  }
}

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
