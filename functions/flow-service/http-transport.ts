import { Agent as HttpAgent, request as httpRequest, type IncomingMessage, type RequestOptions } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { isIP } from 'node:net';
import type { Clock } from '../base/clock.ts';
import { hostOf, isWithin, lookupWithin, outOfReachError } from './addresses.ts';
import { ForbiddenAddressError } from './errors.ts';
import { TimeLimit } from './time-limit.ts';
import {
  type RequestBody,
  type Sent,
  TRANSPORT_LIMITS,
  type Transport,
  TransportError,
  type TransportLimits,
  type TransportRequest,
  type TransportResponse,
} from './transport.ts';

/**
 * The transport over node:http and node:https.
 *
 * Requests without a body share kept-alive connections. If such a connection turns out to be closed before a byte of
 * the response came, the request is sent once more on a new connection.
 *
 * A request with a body always gets a new connection. A function that was frozen meanwhile finds a kept connection dead
 * only by writing to it. Then it could not tell whether the service received a short request, and a flow would be in
 * doubt for nothing.
 */
export function httpTransport({
  clock,
  limits = TRANSPORT_LIMITS,
}: {
  clock: Clock;
  limits?: TransportLimits;
}): Transport {
  const kept = { 'http:': new HttpAgent({ keepAlive: true }), 'https:': new HttpsAgent({ keepAlive: true }) };
  const single = { 'http:': new HttpAgent(), 'https:': new HttpsAgent() };
  return async (request, signal) => {
    if (signal.aborted) throw abortedError(signal, 'nothing');
    const host = hostOf(request.url);
    // Node looks up names only, so an address in the URL is checked here.
    const isForbidden = request.reach !== undefined && isIP(host) !== 0 && !isWithin(request.reach, host);
    if (isForbidden) throw outOfReachError(host, request.reach);
    const protocol = request.url.protocol as keyof typeof kept;
    const exchange = (agent: HttpAgent | HttpsAgent) =>
      new Exchange(request, signal, { agent, clock, limits }).response;
    // A kept connection was made without a check of its address.
    const isShared = request.body === undefined && request.reach === undefined;
    if (!isShared) return exchange(single[protocol]);
    try {
      return await exchange(kept[protocol]);
    } catch (error) {
      if (!(error instanceof StaleConnectionError) || signal.aborted) throw error;
      return exchange(single[protocol]);
    }
  };
}

/** The server had closed a kept connection. */
class StaleConnectionError extends TransportError {}

/**
 * One request and its response.
 *
 *   connecting ──▶ sending ──▶ waiting ──▶ responding ──▶ over
 *        │            │  └────────────────────▲            ▲
 *        └────────────┴── failed, timed out, aborted ──────┘   (the response may come before all is sent)
 */
class Exchange {
  readonly response: Promise<TransportResponse>;
  readonly #request: TransportRequest;
  readonly #signal: AbortSignal;
  readonly #limits: TransportLimits;
  /** Limits each wait for the server. */
  readonly #waitLimit: TimeLimit;
  /** Limits the whole answer, because a response that trickles exceeds no single wait. */
  readonly #answerLimit: TimeLimit;
  readonly #client: ReturnType<typeof httpRequest>;
  readonly #resolve: (response: TransportResponse) => void;
  readonly #reject: (error: unknown) => void;
  #sent: Sent = 'nothing';
  #answer: IncomingMessage | undefined;
  /** The reason why the exchange ended early. */
  #failure: unknown;
  #isOver = false;
  /** Ends the wait for a block to be written. */
  #wake: () => void = () => {};

  constructor(
    request: TransportRequest,
    signal: AbortSignal,
    { agent, clock, limits }: { agent: HttpAgent | HttpsAgent; clock: Clock; limits: TransportLimits },
  ) {
    const { promise, resolve, reject } = Promise.withResolvers<TransportResponse>();
    this.response = promise;
    this.#resolve = resolve;
    this.#reject = reject;
    this.#request = request;
    this.#signal = signal;
    this.#limits = limits;
    const onExceeded = (what: string): void =>
      this.#fail(new TransportError(what, { sent: this.#sent, timedOut: true }));
    this.#waitLimit = new TimeLimit(clock, onExceeded);
    this.#answerLimit = new TimeLimit(clock, onExceeded);
    const { url, method, headers, body, reach } = request;
    if (body === undefined) this.#limitAnswer();
    const options: RequestOptions = {
      agent,
      method,
      headers: body === undefined ? headers : { ...headers, 'Content-Length': body.bytes },
      ...(reach === undefined ? {} : { lookup: lookupWithin(reach) }),
    };
    const isTls = url.protocol === 'https:';
    this.#client = isTls ? httpsRequest(url, options) : httpRequest(url, options);
    this.#client.on('response', (answer) => this.#receiveHead(answer));
    this.#client.on('error', (error) => {
      // Once the response has begun, it tells by itself whether it is complete. A failure to write the rest of the
      // request no longer matters.
      if (this.#answer === undefined) this.#fail(error);
    });
    signal.addEventListener('abort', this.#onAbort);
    this.#waitLimit.set(limits.connectMs, `No connection within ${limits.connectMs} ms`);
    this.#client.on('socket', (socket) => {
      if (socket.connecting) socket.once(isTls ? 'secureConnect' : 'connect', () => this.#onConnected());
      else this.#onConnected();
    });
    // A request with a body starts only once it has a connection.
    if (body === undefined) this.#client.end();
  }

  #onConnected(): void {
    if (this.#isOver) return;
    const { body } = this.#request;
    if (body === undefined) this.#awaitHead();
    else void this.#send(body);
  }

  #limitAnswer(): void {
    const { answerMs } = this.#request;
    if (answerMs !== undefined) this.#answerLimit.set(answerMs, `No whole answer within ${answerMs} ms`);
  }

  #awaitHead(): void {
    const firstByteMs = this.#request.headMs ?? this.#limits.firstByteMs;
    if (this.#answer === undefined) this.#waitLimit.set(firstByteMs, `No answer within ${firstByteMs} ms`);
  }

  /**
   * Writes the body block by block. While the socket has one block, the producer makes the next. The last block is held
   * back until the body has ended, so that a request with a body of the wrong length never completes.
   */
  async #send(body: RequestBody): Promise<void> {
    const { idleMs } = this.#limits;
    const isStopped = (): boolean => this.#isOver || this.#answer !== undefined;
    const progress = (): void => this.#waitLimit.set(idleMs, `Nothing could be sent for ${idleMs} ms`);
    let left = body.bytes;
    let last: Uint8Array | undefined;
    let writing: Promise<void> = Promise.resolve();
    try {
      progress();
      for await (const chunk of body.chunks) {
        if (isStopped()) return;
        if (chunk.byteLength === 0) continue;
        left -= chunk.byteLength;
        if (left < 0) throw new Error(`The body is longer than the ${body.bytes} bytes announced`);
        await writing;
        if (isStopped()) return;
        progress();
        if (left === 0) last = chunk;
        else writing = this.#write(chunk);
      }
      if (left > 0) throw new Error(`The body ended ${left} bytes short of the ${body.bytes} announced`);
      if (isStopped()) return;
      this.#sent = 'all';
      this.#limitAnswer();
      await this.#write(last);
      if (!isStopped()) this.#awaitHead();
    } catch (error) {
      if (!isStopped()) this.#fail(new TransportError(messageOf(error), { sent: this.#sent, cause: error }));
    }
  }

  /** Settles when the socket is done with `chunk`, or when the exchange is over. The last chunk ends the request. */
  #write(chunk: Uint8Array | undefined): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve;
      // The request's `error` event reports a failure to write, and wakes us too.
      if (this.#sent === 'all') this.#client.end(chunk, () => resolve());
      else {
        this.#sent = 'part';
        this.#client.write(chunk, () => resolve());
      }
    });
  }

  #receiveHead(answer: IncomingMessage): void {
    this.#answer = answer;
    this.#waitLimit.lift();
    if (this.#request.body !== undefined && this.#sent !== 'all') this.#limitAnswer();
    // The loop over the body throws the error. Before the loop begins, an unhandled error event would end the process.
    answer.on('error', () => {});
    this.#resolve({
      status: answer.statusCode ?? 0,
      headers: Object.fromEntries(
        Object.entries(answer.headers).map(([name, value]) => [name, Array.isArray(value) ? value.join(', ') : value]),
      ),
      sent: this.#sent,
      address: answer.socket.remoteAddress,
      body: this.#receiveBody(answer),
      destroy: () => this.#fail(new Error('The answer was discarded')),
    });
    this.#wake();
  }

  async *#receiveBody(answer: IncomingMessage): AsyncGenerator<Uint8Array> {
    const { idleMs } = this.#limits;
    const wait = (): void => this.#waitLimit.set(idleMs, `Nothing was received for ${idleMs} ms`);
    try {
      wait();
      for await (const chunk of answer) {
        // The limit covers the wait for the server, not the reader's work on a chunk.
        this.#waitLimit.lift();
        yield chunk;
        wait();
      }
      // Destroying a request discards received bytes that were not read, and ends the loop without an error.
      if (this.#failure !== undefined) throw this.#failure;
      if (!answer.complete) throw new Error('The connection was closed before the end of the answer');
    } catch (error) {
      throw this.#described(this.#failure ?? error);
    } finally {
      // An early response leaves a half-sent request behind; a loop left early leaves a half-read response.
      this.#end(answer.complete && this.#client.writableFinished);
    }
  }

  readonly #onAbort = (): void => this.#fail(abortedError(this.#signal, this.#sent));

  #fail(error: unknown): void {
    if (this.#isOver) return;
    this.#failure = error;
    this.#end();
    // Has no effect once the response has begun. Then the loop over its body throws the failure.
    this.#reject(this.#described(error));
  }

  #described(error: unknown): unknown {
    if (error instanceof TransportError || error instanceof ForbiddenAddressError) return error;
    const options = { sent: this.#sent, cause: plain(error) };
    const isStale = this.#answer === undefined && this.#client.reusedSocket && STALE_CODES.includes(codeOf(error));
    return isStale
      ? new StaleConnectionError(messageOf(error), options)
      : new TransportError(messageOf(error), options);
  }

  /** Leaves no timer and no listener behind, and no connection unless it can be reused. */
  #end(isReusable = false): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#waitLimit.end();
    this.#answerLimit.end();
    this.#signal.removeEventListener('abort', this.#onAbort);
    if (!isReusable) this.#client.destroy();
    this.#wake();
  }
}

/** Error codes of a write to, or a wait on, a connection that the server has closed. */
const STALE_CODES: readonly unknown[] = ['ECONNRESET', 'EPIPE'];

const codeOf = (error: unknown): unknown =>
  typeof error === 'object' && error !== null && 'code' in error ? error.code : undefined;

/** The message of an error. Node leaves it empty for a name with several addresses, each with its own error. */
function messageOf(error: unknown): string {
  if (error instanceof AggregateError) return error.errors.map(messageOf).join('; ');
  return error instanceof Error ? error.message : String(error);
}

/** A copy without the properties that Node adds. Packets and certificates do not belong in logs. */
const plain = (error: unknown): Error => Object.assign(new Error(messageOf(error)), { code: codeOf(error) });

const abortedError = (signal: AbortSignal, sent: Sent): TransportError =>
  new TransportError('The request was aborted', { sent, cause: signal.reason });
