import type { Clock } from '../../functions/base/clock.ts';
import {
  type Sent,
  TRANSPORT_LIMITS,
  type Transport,
  TransportError,
  type TransportRequest,
} from '../../functions/flow-service/transport.ts';
import type { ServiceRequest } from '../../local/flow-service/call.ts';
import type { Service } from '../../local/flow-service/http.ts';

/** Time that a request takes to reach the service, in milliseconds. Without it, a loop of requests would never end. */
const LATENCY_MS = 1;

/** A stand-in without a socket, for tests in virtual time. It keeps the time limits of the real transport. */
export function inProcessTransport(service: Service, clock: Clock): Transport {
  return async (request, signal) => {
    const { body, answerMs } = request;
    /** Aborts when the client has gone away. */
    const gone = new AbortController();
    const failure = Promise.withResolvers<never>();
    failure.promise.catch(() => {}); // Every wait below races it; there may be none at the time.
    let sent = 'nothing' as Sent;
    const fail = (message: string, options: { cause?: unknown; timedOut?: boolean } = {}): void => {
      failure.reject(new TransportError(message, { sent, ...options }));
      end();
    };
    const aborted = (): void => fail('The request was given up', { cause: signal.reason });
    const end = (): void => {
      signal.removeEventListener('abort', aborted);
      gone.abort();
    };
    const limit = (ms: number, what: string, until: AbortSignal): void =>
      void clock.sleep(ms, until).then(
        () => fail(`${what} within ${ms} ms`, { timedOut: true }),
        () => {}, // The limit was met: nothing to do.
      );
    const within = async <T>(ms: number, what: string, work: Promise<T>): Promise<T> => {
      const met = new AbortController();
      limit(ms, what, met.signal);
      try {
        return await Promise.race([failure.promise, work]);
      } finally {
        // Without a reason, each would make an error with a stack.
        met.abort('met');
      }
    };
    const limitAnswer = (): void => {
      if (answerMs !== undefined) limit(answerMs, 'No whole answer', gone.signal);
    };
    async function* toService(): AsyncGenerator<Uint8Array> {
      if (body === undefined) return;
      let left = body.bytes;
      for await (const chunk of body.chunks) {
        left -= chunk.byteLength;
        sent = left === 0 ? 'all' : 'part';
        if (sent === 'all') limitAnswer();
        yield Buffer.from(chunk); // Its producer uses the memory again.
      }
      if (left !== 0) fail(`The body was not of the ${body.bytes} bytes announced`);
    }
    async function* fromService(chunks: AsyncIterator<Uint8Array>): AsyncGenerator<Uint8Array> {
      try {
        for (;;) {
          const { done, value } = await within(TRANSPORT_LIMITS.idleMs, 'Nothing was received', chunks.next());
          if (done) return;
          yield Buffer.from(value);
        }
      } catch (error) {
        if (error instanceof TransportError) throw error;
        throw new TransportError((error as Error).message, { sent, cause: error });
      } finally {
        end();
      }
    }
    if (signal.aborted) aborted();
    else signal.addEventListener('abort', aborted);
    if (body === undefined) limitAnswer();
    const answering = async () => {
      await clock.sleep(LATENCY_MS);
      return service.handle(serviceRequestOf(request, toService(), gone.signal));
    };
    try {
      const answer = await within(TRANSPORT_LIMITS.firstByteMs, 'No answer', answering());
      if (body !== undefined && sent !== 'all') limitAnswer();
      const chunks = answer.body instanceof Uint8Array ? inOneChunk(answer.body) : answer.body;
      return {
        status: answer.status,
        headers: answer.headers,
        sent,
        body: fromService(chunks[Symbol.asyncIterator]()),
        destroy: () => fail('The answer was let go of'),
      };
    } catch (error) {
      end();
      if (error instanceof TransportError) throw error;
      throw new TransportError('read ECONNRESET', { sent, cause: error });
    }
  };
}

/** A request as the service gets it. @param chunks its body, as it arrives. */
export const serviceRequestOf = (
  { method, url, headers, body }: TransportRequest,
  chunks: AsyncIterable<Uint8Array>,
  signal: AbortSignal,
): ServiceRequest => ({
  method,
  url: url.pathname + url.search,
  headers: {
    ...Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value])),
    ...(body === undefined ? {} : { 'content-length': String(body.bytes) }),
  },
  body: chunks,
  signal,
});

/** The bytes in one chunk, or in none if there are no bytes. */
export async function* inOneChunk(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  if (bytes.byteLength > 0) yield bytes;
}
