import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { isIP } from 'node:net';
import type { Clock } from '../base/clock.ts';
import { messageOf } from '../base/printable.ts';
import { hostOf, isLoopback, isWithin, lookupWithin, outOfReachError, type Reach } from './addresses.ts';
import { ForbiddenAddressError } from './errors.ts';
import { proxyFor, shownProxy, type TunnelOptions, tunnelThrough } from './proxy.ts';
import { TimeLimit } from './time-limit.ts';
import {
  codeOf,
  plain,
  type RequestBody,
  type Sent,
  TRANSPORT_LIMITS,
  type Transport,
  TransportError,
  type TransportLimits,
  type TransportRequest,
  type TransportResponse,
} from './transport.ts';
import type { Proxies } from './types.ts';

/**
 * Largest head of an answer, in bytes. Node's limit of 16 KiB is below what gateways may send: policies, cookies and a
 * signed address together.
 */
const HEAD_BYTES_MAX = 64 * 1024;

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
  proxies = {},
}: {
  clock: Clock;
  limits?: TransportLimits;
  /** @default none */
  proxies?: Proxies | undefined;
}): Transport {
  const agents = new Map<string, HttpAgent>();
  const agentFor = ({ protocol }: URL, proxy: URL | undefined, keepAlive: boolean): HttpAgent => {
    const name = `${protocol} ${proxy?.href} ${keepAlive}`;
    const known = agents.get(name);
    if (known !== undefined) return known;
    const agent = protocol === 'https:' ? new HttpsAgent({ keepAlive }) : new HttpAgent({ keepAlive });
    if (proxy !== undefined) tunnelThrough(proxy, agent);
    agents.set(name, agent);
    return agent;
  };
  return async (request, signal) => {
    if (signal.aborted) throw abortedError(signal, 'nothing');
    const { url, reach, body } = request;
    const host = hostOf(url);
    const proxy = proxyFor(url, proxies);
    // Node looks up names only, so an address in the URL is checked here. A proxy looks up a name by itself.
    const isInReach = (within: Reach): boolean => {
      if (isIP(host) !== 0) return isWithin(within, host);
      return proxy === undefined || (within === 'machine') === isLoopback(url);
    };
    if (reach !== undefined && !isInReach(reach)) throw outOfReachError(host, reach);
    const exchange = (keepAlive: boolean) =>
      new Exchange(request, signal, { agent: agentFor(url, proxy, keepAlive), proxy, clock, limits }).response;
    // A kept connection was made without a check of its address.
    const isShared = body === undefined && reach === undefined;
    if (!isShared) return exchange(false);
    try {
      return await exchange(true);
    } catch (error) {
      if (!(error instanceof StaleConnectionError) || signal.aborted) throw error;
      return exchange(false);
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
  readonly #outcome = Promise.withResolvers<TransportResponse>();
  readonly response = this.#outcome.promise;
  readonly #request: TransportRequest;
  readonly #signal: AbortSignal;
  readonly #limits: TransportLimits;
  readonly #proxy: URL | undefined;
  /** Limits each wait for the server. */
  readonly #waitLimit: TimeLimit;
  /** Limits the whole answer, because a response that trickles exceeds no single wait. */
  readonly #answerLimit: TimeLimit;
  readonly #client: ReturnType<typeof httpRequest>;
  #sent: Sent = 'nothing';
  #answer: IncomingMessage | undefined;
  #goesOn = false;
  /** The reason why the exchange ended early. */
  #failure: unknown;
  #isOver = false;
  readonly #tunnel = new AbortController();
  /** Ends the wait for a block to be written. */
  #wake: () => void = () => {};

  constructor(
    request: TransportRequest,
    signal: AbortSignal,
    {
      agent,
      proxy,
      clock,
      limits,
    }: { agent: HttpAgent; proxy: URL | undefined; clock: Clock; limits: TransportLimits },
  ) {
    this.#request = request;
    this.#signal = signal;
    this.#limits = limits;
    this.#proxy = proxy;
    const onExceeded = (what: string): void =>
      this.#fail(new TransportError(`${what}${this.#throughProxy}`, { sent: this.#sent, timedOut: true }));
    this.#waitLimit = new TimeLimit(clock, onExceeded);
    this.#answerLimit = new TimeLimit(clock, onExceeded);
    const { url, method, headers, body, reach } = request;
    if (body === undefined) this.#limitAnswer();
    const options: TunnelOptions = {
      agent,
      tunnelSignal: this.#tunnel.signal,
      method,
      maxHeaderSize: HEAD_BYTES_MAX,
      // Node gives up all addresses but the last after 250 ms. From far away, a handshake takes longer.
      autoSelectFamilyAttemptTimeout: Math.ceil(limits.connectMs / 10),
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
      else this.#goesOn ||= this.#answer.complete && /^HPE_/.test(String(codeOf(error)));
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
    this.#outcome.resolve({
      status: answer.statusCode ?? 0,
      headers: Object.fromEntries(
        Object.entries(answer.headers).map(([name, value]) => {
          const text = Array.isArray(value) ? value.join(', ') : value;
          return [name, ADDRESS_HEADER.test(name) ? text?.replace(/[\x80-\xff]/g, encodedByte) : text];
        }),
      ),
      sent: this.#sent,
      address: this.#addressOf(answer),
      body: this.#receiveBody(answer),
      goesOn: () => this.#goesOn,
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
    this.#outcome.reject(this.#described(error));
  }

  #described(error: unknown): unknown {
    if (error instanceof TransportError || error instanceof ForbiddenAddressError) return error;
    const options = { sent: this.#sent, cause: plain(error) };
    const isStale = this.#answer === undefined && this.#client.reusedSocket && STALE_CODES.includes(codeOf(error));
    const message = `${messageOf(error)}${this.#throughProxy}`;
    return isStale ? new StaleConnectionError(message, options) : new TransportError(message, options);
  }

  get #throughProxy(): string {
    return this.#proxy === undefined ? '' : `, through ${shownProxy(this.#proxy)}`;
  }

  /** The address of the server. Behind a proxy, it is known only if the URL holds it. */
  #addressOf(answer: IncomingMessage): string | undefined {
    if (this.#proxy === undefined) return answer.socket.remoteAddress;
    const host = hostOf(this.#request.url);
    return isIP(host) === 0 ? undefined : host;
  }

  /** Leaves no timer and no listener behind, and no connection unless it can be reused. */
  #end(isReusable = false): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#waitLimit.end();
    this.#answerLimit.end();
    this.#signal.removeEventListener('abort', this.#onAbort);
    if (!isReusable) {
      this.#client.destroy();
      this.#tunnel.abort();
    }
    this.#wake();
  }
}

/** The headers that name an address. Servers write bytes there as they are, which Node reads as Latin-1. */
const ADDRESS_HEADER = /location$|^link$/;

const encodedByte = (byte: string): string => `%${byte.charCodeAt(0).toString(16).toUpperCase()}`;

/** Error codes of a write to, or a wait on, a connection that the server has closed. */
const STALE_CODES: readonly unknown[] = ['ECONNRESET', 'EPIPE'];

const abortedError = (signal: AbortSignal, sent: Sent): TransportError =>
  new TransportError('The request was aborted', { sent, cause: signal.reason });
