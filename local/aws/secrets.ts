import { randomUUID } from 'node:crypto';
import * as z from 'zod/mini';
import type { Clock } from '../../functions/base/clock.ts';
import { type AwsCall, AwsError, operation, type Served, serveAwsJson } from './aws-json.ts';

interface Secret {
  readonly versionId: string;
  readonly value: string;
  readonly createdAt: number;
}

/** Secrets Manager in memory: secrets by name or ARN, each with its current value only. */
export class SecretStore {
  readonly #clock: Clock;
  readonly #secrets = new Map<string, Secret>();
  #throttledCalls = 0;

  constructor({ clock }: { readonly clock: Clock }) {
    this.#clock = clock;
  }

  /** Creates the secret, or gives it a new value. */
  put(name: string, value: string): void {
    this.#secrets.set(name, { versionId: randomUUID(), value, createdAt: this.#clock.now() });
  }

  /** Removes the secret, as if it had never been there. */
  remove(name: string): void {
    this.#secrets.delete(name);
  }

  /** The next so many calls are refused with `ThrottlingException`. */
  throttle(calls: number): void {
    this.#throttledCalls = calls;
  }

  arnOf(name: string): string {
    return `arn:aws:secretsmanager:us-east-1:000000000000:secret:${name}-AbCdEf`;
  }

  /** @throws {AwsError} `ResourceNotFoundException`, `ThrottlingException` */
  find(id: string): Secret & { readonly name: string } {
    if (this.#throttledCalls > 0) {
      this.#throttledCalls -= 1;
      throw new AwsError('ThrottlingException', 'Rate exceeded');
    }
    for (const [name, secret] of this.#secrets) {
      if (id === name || id === this.arnOf(name)) return { name, ...secret };
    }
    throw new AwsError('ResourceNotFoundException', "Secrets Manager can't find the specified secret.");
  }
}

/** Serves secrets to the SDK's Secrets Manager client. */
export function serveSecrets(store: SecretStore, onCall?: (call: AwsCall) => void): Promise<Served> {
  const describe = (id: string) => {
    const { name, versionId, value, createdAt } = store.find(id);
    return { facts: { ARN: store.arnOf(name), Name: name, CreatedDate: createdAt / 1000 }, versionId, value };
  };
  return serveAwsJson({
    version: '1.1',
    target: 'secretsmanager',
    service: 'secretsmanager',
    onCall,
    operations: {
      GetSecretValue: operation(z.object({ SecretId: z.string() }), ({ SecretId }) => {
        const { facts, versionId, value } = describe(SecretId);
        return { ...facts, VersionId: versionId, SecretString: value, VersionStages: ['AWSCURRENT'] };
      }),
      PutSecretValue: operation(z.object({ SecretId: z.string(), SecretString: z.string() }), (input) => {
        store.put(store.find(input.SecretId).name, input.SecretString);
        const { facts, versionId } = describe(input.SecretId);
        return { ARN: facts.ARN, Name: facts.Name, VersionId: versionId, VersionStages: ['AWSCURRENT'] };
      }),
      DescribeSecret: operation(z.object({ SecretId: z.string() }), ({ SecretId }) => {
        const { facts, versionId } = describe(SecretId);
        return { ...facts, VersionIdsToStages: { [versionId]: ['AWSCURRENT'] } };
      }),
    },
  });
}
