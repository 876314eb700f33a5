import { GetSecretValueCommand, type SecretsManagerClient } from '@aws-sdk/client-secrets-manager';
import type { Clock } from '../base/clock.ts';
import { untilAborted } from '../base/invocation.ts';
import { jsonIn } from '../base/json.ts';
import { UnauthorisedError } from '../flow-service/errors.ts';
import type { Token } from '../flow-service/types.ts';

/** Maximum age of a token before it is read again, in milliseconds. A rotated token is found within this time. */
const TOKEN_AGE_MAX_MS = 5 * 60_000;

/**
 * The service's token, from Secrets Manager, in the memory of this process and nowhere else. It is read at first use,
 * again when it is five minutes old, and at once after the service refused it.
 */
export class SecretToken implements Token {
  readonly #secrets: SecretsManagerClient;
  readonly #secretId: string;
  readonly #clock: Clock;
  #last: { readonly token: string; readonly readAt: number } | undefined;
  /** A read in progress. Callers that need the token meanwhile share it. */
  #reading: Promise<string> | undefined;

  constructor(secrets: SecretsManagerClient, secretId: string, clock: Clock) {
    this.#secrets = secrets;
    this.#secretId = secretId;
    this.#clock = clock;
  }

  async get(signal: AbortSignal): Promise<string> {
    const last = this.#last;
    if (last !== undefined && this.#clock.now() - last.readAt < TOKEN_AGE_MAX_MS) return last.token;
    return this.renew(signal);
  }

  async renew(signal: AbortSignal): Promise<string> {
    this.#reading ??= this.#read(signal).finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  async #read(signal: AbortSignal): Promise<string> {
    const command = new GetSecretValueCommand({ SecretId: this.#secretId });
    let secret: string | undefined;
    try {
      // The race is needed because the SDK does not abort its wait between two attempts.
      const answer = await unlessAborted(this.#secrets.send(command, { abortSignal: signal }), signal);
      secret = answer.SecretString;
    } catch (cause) {
      signal.throwIfAborted(); // The time ran out. That says nothing about the token.
      throw new UnauthorisedError(`The secret ${this.#secretId} could not be read`, { cause });
    }
    const token = tokenIn(secret);
    if (token === undefined) {
      // Do not quote the secret's value: it must not reach the logs, whatever it is.
      throw new UnauthorisedError(
        `The secret ${this.#secretId} holds no token: expected the token itself, or JSON with a member "token"`,
      );
    }
    this.#last = { token, readAt: this.#clock.now() };
    return token;
  }
}

/**
 * The token in a secret's text: the text itself, or the member `token` of a JSON object. Undefined if there is none.
 */
export function tokenIn(secret: string | undefined): string | undefined {
  // `echo` and editors leave a line break at the end, or a byte order mark before the text, which JSON cannot have. Other
  // characters that a header cannot carry are an error.
  const text = secret?.trim();
  const value = text?.startsWith('{') ? (jsonIn(text) as { token?: unknown } | undefined)?.token : text;
  const token = typeof value === 'string' ? value.trim() : '';
  return /^[\x21-\x7e]+$/.test(token) ? token : undefined;
}

/** Settles with `promise`, or rejects with the signal's reason, whichever comes first. */
async function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  // Raced also if the signal has aborted: a failure of `promise` that nothing awaits would end the process.
  const aborted = untilAborted<T>(signal);
  try {
    return await Promise.race([promise, aborted.promise]);
  } finally {
    aborted.resolve(promise); // Drops the listener.
  }
}
