import { randomUUID } from 'node:crypto';
import type { Clock } from '../../../functions/base/clock.ts';
import { AwsError } from '../aws-json.ts';

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
  #throttledCalls = 0;

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

  /** Refuses the next `calls` calls with `ThrottlingException`. */
  throttle(calls: number): void {
    this.#throttledCalls = calls;
  }

  arnOf(name: string): string {
    return `arn:aws:secretsmanager:us-east-1:000000000000:secret:${name}-AbCdEf`;
  }

  /**
   * @param id the name or the ARN.
   * @throws {AwsError} `ResourceNotFoundException`, `ThrottlingException`
   */
  find(id: string): Secret {
    if (this.#throttledCalls > 0) {
      this.#throttledCalls -= 1;
      throw new AwsError('ThrottlingException', 'Rate exceeded');
    }
    for (const secret of this.#secrets.values()) {
      if (id === secret.name || id === this.arnOf(secret.name)) return secret;
    }
    throw new AwsError('ResourceNotFoundException', "Secrets Manager can't find the specified secret.");
  }
}
