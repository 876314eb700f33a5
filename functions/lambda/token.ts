import { GetSecretValueCommand, type SecretsManagerClient } from '@aws-sdk/client-secrets-manager';
import type { Clock } from '../base/clock.ts';
import { UnauthorisedError } from '../flow-service/errors.ts';
import type { Token } from '../flow-service/types.ts';

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
  #readAt: number | undefined;
  #offered: Promise<unknown> | undefined;
  #offeredAt: number | undefined;
  /** A reading under way: whoever needs the token meanwhile shares it. */
  #reading: Promise<string> | undefined;

  constructor(secrets: SecretsManagerClient, secretId: string, clock: Clock) {
    this.#secrets = secrets;
    this.#secretId = secretId;
    this.#clock = clock;
  }

  /** Hands in a secret that is being read already. */
  offer(secret: Promise<unknown>): void {
    // Whether it fails matters only to whoever asks for the token; until then it must not end the process.
    secret.catch(() => {});
    // The middleware offers what it once read for as long as the process lives; only the first time is it news.
    if (this.#offeredAt !== undefined) return;
    this.#offered = secret;
    this.#offeredAt = this.#clock.now();
  }

  async get(signal: AbortSignal): Promise<string> {
    if (this.#token !== undefined && this.#isFresh(this.#readAt)) return this.#token;
    const offered = this.#offered;
    this.#offered = undefined;
    if (offered !== undefined && this.#isFresh(this.#offeredAt)) {
      try {
        return await this.#read(offered, signal);
      } catch (error) {
        if (!(error instanceof UnauthorisedError)) throw error; // It may have been mended since: it is read again.
      }
    }
    return this.renew(signal);
  }

  #isFresh(readAt: number | undefined): boolean {
    return readAt !== undefined && this.#clock.now() - readAt < TOKEN_AGE_MAX_MS;
  }

  async renew(signal: AbortSignal): Promise<string> {
    this.#reading ??= this.#read(
      this.#secrets
        .send(new GetSecretValueCommand({ SecretId: this.#secretId }), { abortSignal: signal })
        .then(({ SecretString }) => SecretString),
      signal,
    ).finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  async #read(secret: Promise<unknown>, signal: AbortSignal): Promise<string> {
    let value: unknown;
    try {
      value = await unlessAborted(secret, signal);
    } catch (cause) {
      signal.throwIfAborted(); // Then it is the time that ran out, and nothing is said of the token.
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

/** What `promise` settles with, or the signal's reason, whichever comes first. */
async function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  const aborted = Promise.withResolvers<never>();
  const abort = (): void => aborted.reject(signal.reason);
  // Not thrown at once: `promise` must be waited for, or its failure would be nobody's and end the process.
  if (signal.aborted) abort();
  else signal.addEventListener('abort', abort);
  try {
    return await Promise.race([promise, aborted.promise]);
  } finally {
    signal.removeEventListener('abort', abort);
  }
}
