import * as z from 'zod/mini';
import { type AwsAccess, sendToAws } from './aws-requests.ts';

/** A function threw. The message is the function's. */
export class FunctionFailedError extends Error {
  override readonly name = 'FunctionFailedError';
  /** The name of the error in the function, such as `PassUnderWayError`. */
  readonly errorType: string;
  constructor(errorType: string, message: string) {
    super(message);
    this.errorType = errorType;
  }
}

const configurationSchema = z.object({
  /** Such as `2026-11-28T01:57:30.000+0000`. */
  LastModified: z.optional(z.string()),
  Environment: z.object({ Variables: z.record(z.string(), z.string()) }),
});

const failureSchema = z.object({
  errorType: z._default(z.string(), 'Error'),
  errorMessage: z._default(z.string(), 'The function failed without a message'),
});

/** The collecting function of a pipeline. All that an operator changes, it changes. */
export class CollectingFunction {
  readonly name: string;
  readonly #access: AwsAccess;

  constructor(name: string, access: AwsAccess) {
    this.name = name;
    this.#access = access;
  }

  /** How the function is configured. */
  async configuration(signal: AbortSignal): Promise<{
    /** The settings of the pipeline. There is no secret in them. */
    readonly environment: Readonly<Record<string, string>>;
    /** When its code or its configuration was last changed, in milliseconds since the epoch. Undefined if unknown. */
    readonly modifiedAt: number | undefined;
  }> {
    const request = { service: 'lambda', method: 'GET', path: `${pathOf(this.name)}/configuration` } as const;
    const { text } = await sendToAws(request, this.#access, signal);
    const { Environment, LastModified = '' } = configurationSchema.parse(JSON.parse(text));
    const modifiedAt = Date.parse(LastModified);
    return { environment: Environment.Variables, modifiedAt: Number.isNaN(modifiedAt) ? undefined : modifiedAt };
  }

  /**
   * Runs the function once with an event, and waits for its answer.
   * @throws {FunctionFailedError} the function threw.
   */
  async invoke(event: object, signal: AbortSignal): Promise<unknown> {
    const { headers, text } = await sendToAws(
      {
        ...({ service: 'lambda', method: 'POST', path: `${pathOf(this.name)}/invocations` } as const),
        headers: { 'content-type': 'application/json', 'x-amz-invocation-type': 'RequestResponse' },
        body: JSON.stringify(event),
      },
      this.#access,
      signal,
    );
    const answer: unknown = text === '' ? undefined : JSON.parse(text);
    if (!headers.has('x-amz-function-error')) return answer;
    const { errorType, errorMessage } = failureSchema.parse(answer);
    throw new FunctionFailedError(errorType, errorMessage);
  }
}

const pathOf = (name: string): string => `/2015-03-31/functions/${encodeURIComponent(name)}`;
