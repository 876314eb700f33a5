import { validateHeaderName, validateHeaderValue } from 'node:http';
import { Readable } from 'node:stream';
import type { S3ClientConfig } from '@aws-sdk/client-s3';
import type { S3Response } from './call.ts';
import type { EmbeddedS3 } from './s3.ts';

/** The fields of the SDK's HttpRequest that this handler reads. */
interface SdkRequest {
  readonly method: string;
  readonly hostname: string;
  readonly path: string;
  readonly query?: Readonly<Record<string, string | readonly string[] | null>>;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: unknown;
}

interface SdkResponse {
  readonly statusCode: number;
  readonly headers: Record<string, string>;
  readonly body: Readable;
}

/** A handler for `new S3Client({ requestHandler })`. It calls the S3 in this process, without a socket. */
export function s3RequestHandler(s3: EmbeddedS3): NonNullable<S3ClientConfig['requestHandler']> {
  return {
    metadata: { handlerProtocol: 'http/1.1' },

    async handle(
      request: SdkRequest,
      { abortSignal }: { readonly abortSignal?: AbortSignal } = {},
    ): Promise<{ response: SdkResponse }> {
      const abortion = new Abortion(abortSignal);
      try {
        abortion.throwIfAborted();
        const answer = s3.handle({
          method: request.method,
          url: request.path + queryString(request.query),
          headers: wireHeaders(request),
          body: bodyOf(request.body, abortion),
        });
        const { status, headers, body } = await abortion.race(answer).catch((error: unknown) => {
          answer.then(giveUp, () => {}); // The caller already has the error. Nobody reads a late answer.
          throw error;
        });
        const stream = body instanceof Uint8Array ? Readable.from([body], { objectMode: false }) : body;
        abortion.destroyInstead(stream);
        return { response: { statusCode: status, headers: { ...headers }, body: stream } };
      } catch (error) {
        abortion.forget();
        throw error;
      }
    },

    /** The SDK calls these. There is nothing to configure. */
    updateHttpClientConfig(): void {},
    httpHandlerConfigs(): Record<string, never> {
      return {};
    },
    destroy(): void {},
  };
}

function queryString(query: SdkRequest['query'] = {}): string {
  const pairs = Object.entries(query).flatMap(([name, value]) => {
    const values = Array.isArray(value) ? value : [value];
    return values.map((one) => (one === null ? encode(name) : `${encode(name)}=${encode(one)}`));
  });
  return pairs.length === 0 ? '' : `?${pairs.join('&')}`;
}

function encode(text: string): string {
  return encodeURIComponent(text);
}

/** The headers as they would be on the wire. Refuses a header that Node would refuse to send. */
function wireHeaders({ hostname, headers }: SdkRequest): Record<string, string> {
  const wire: Record<string, string> = { host: hostname };
  for (const [name, value] of Object.entries(headers)) {
    validateHeaderName(name);
    validateHeaderValue(name, value);
    wire[name.toLowerCase()] = String(value).trim();
  }
  return wire;
}

async function* bodyOf(body: unknown, abortion: Abortion): AsyncGenerator<Uint8Array, void> {
  if (body === undefined || body === null || body === '') return;
  if (typeof body === 'string') yield Buffer.from(body);
  else if (body instanceof Uint8Array) yield body;
  else {
    const chunks = (body as AsyncIterable<Uint8Array | string>)[Symbol.asyncIterator]();
    for (;;) {
      const { done, value } = await abortion.race(chunks.next());
      if (done) break;
      yield typeof value === 'string' ? Buffer.from(value) : value;
    }
  }
}

function giveUp({ body }: S3Response): void {
  if (!(body instanceof Uint8Array)) body.destroy();
}

/** Has the SDK's name for it, which prevents a retry. */
class AbortError extends Error {
  override readonly name = 'AbortError';
}

/** Passes the signal to everything that a request waits for: its own body, its answer, and the answer's body. */
class Abortion {
  readonly #signal: AbortSignal | undefined;
  #onAbort: (error: AbortError) => void;
  readonly #listener = () => this.#onAbort(this.#error());
  readonly #aborted: Promise<never>;

  constructor(signal: AbortSignal | undefined) {
    this.#signal = signal;
    const { promise, reject } = Promise.withResolvers<never>();
    promise.catch(() => {}); // The waiters get the error. There may be none.
    this.#aborted = promise;
    this.#onAbort = reject;
    signal?.addEventListener('abort', this.#listener, { once: true });
  }

  throwIfAborted(): void {
    if (this.#signal?.aborted) throw this.#error();
  }

  race<T>(work: Promise<T>): Promise<T> {
    return this.#signal === undefined ? work : Promise.race([this.#aborted, work]);
  }

  destroyInstead(stream: Readable): void {
    this.#onAbort = (error) => stream.destroy(error);
    stream.once('close', () => this.forget());
  }

  forget(): void {
    this.#signal?.removeEventListener('abort', this.#listener);
  }

  #error(): AbortError {
    return new AbortError('Request aborted', { cause: this.#signal?.reason });
  }
}
