import { GetSecretValueCommand, type SecretsManagerClient } from '@aws-sdk/client-secrets-manager';
import type { Clock } from './clock.ts';
import { UnauthorisedError } from './flow-service/errors.ts';
import type { Token } from './flow-service/types.ts';

/** How long a token is used before it is read again, in milliseconds: a rotated one is found within this time. */
const TOKEN_AGE_MAX_MS = 5 * 60_000;

/**
 * The service's token, out of Secrets Manager, in the memory of this process and nowhere else.
 *
 * The first reading of a process is the middleware's, which begins before the handler does; it is handed in by
 * {@link SecretToken.offer}. Later ones are made here: when the token is five minutes old, and at once when the service
 * refused it.
 */
export class SecretToken implements Token {
  readonly #secrets: SecretsManagerClient;
  readonly #secretId: string;
  readonly #clock: Clock;
  #token: string | undefined;
  #readAt = Number.NEGATIVE_INFINITY;
  #offered: Promise<unknown> | undefined;
  /** A reading under way: whoever needs the token meanwhile shares it. */
  #reading: Promise<string> | undefined;

  constructor(secrets: SecretsManagerClient, secretId: string, clock: Clock) {
    this.#secrets = secrets;
    this.#secretId = secretId;
    this.#clock = clock;
  }

  /** Hands in a secret that is being read already. */
  offer(secret: Promise<unknown>): void {
    if (this.#token !== undefined) return;
    // Whether it fails matters only to whoever asks for the token; until then it must not end the process.
    secret.catch(() => {});
    this.#offered = secret;
  }

  async get(signal: AbortSignal): Promise<string> {
    if (this.#token !== undefined && this.#clock.now() - this.#readAt < TOKEN_AGE_MAX_MS) return this.#token;
    const offered = this.#offered;
    this.#offered = undefined;
    return offered === undefined ? this.renew(signal) : this.#read(offered);
  }

  async renew(signal: AbortSignal): Promise<string> {
    this.#reading ??= this.#read(
      this.#secrets
        .send(new GetSecretValueCommand({ SecretId: this.#secretId }), { abortSignal: signal })
        .then(({ SecretString }) => SecretString),
    ).finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  async #read(secret: Promise<unknown>): Promise<string> {
    let value: unknown;
    try {
      value = await secret;
    } catch (cause) {
      throw new UnauthorisedError(`The secret ${this.#secretId} could not be read`, { cause });
    }
    const token = tokenIn(value);
    if (token === undefined) {
      // The secret's value is not quoted: whatever is in it, it is not for logs.
      throw new UnauthorisedError(
        `The secret ${this.#secretId} holds no token: expected the token itself, or JSON with a member "token"`,
      );
    }
    this.#token = token;
    this.#readAt = this.#clock.now();
    return token;
  }
}

/** The token in a secret: a plain string, or a JSON object (as text, or parsed already) with a member `token`. */
export function tokenIn(secret: unknown): string | undefined {
  let value = secret;
  if (typeof secret === 'string' && secret.trimStart().startsWith('{')) {
    try {
      value = JSON.parse(secret);
    } catch {
      return undefined;
    }
  }
  if (typeof value === 'object' && value !== null) value = 'token' in value ? value.token : undefined;
  // A line break at the end is what `echo` and editors leave behind. Anything else that a header cannot carry is wrong.
  const token = typeof value === 'string' ? value.trim() : '';
  return /^[\x21-\x7e]+$/.test(token) ? token : undefined;
}
