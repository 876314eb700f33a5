import { lookup } from 'node:dns';
import { Agent as HttpAgent, request as httpRequest, type IncomingMessage, type RequestOptions } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { isIP, type LookupFunction } from 'node:net';
import type { Clock } from '../base/clock.ts';
import { hostOf, isPublicAddress } from './addresses.ts';
import { ForbiddenAddressError } from './errors.ts';

/** How much of a request's body was handed to the wire. `all` is said as soon as the last byte may have left. */
export type Sent = 'nothing' | 'part' | 'all';

export interface TransportRequest {
  readonly method: 'GET' | 'POST' | 'PATCH';
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: RequestBody | undefined;
  /** Longest time until the answer has come to its end, in milliseconds. Default: no limit but the transport's own. */
  readonly answerMs?: number | undefined;
  /** Refuses to connect to any address that is not public, whatever name led to it. */
  readonly publicOnly?: boolean | undefined;
}

export interface RequestBody {
  /** Exact length: it becomes the `Content-Length`. A body that yields more or fewer bytes fails the request. */
  readonly bytes: number;
  /** Each chunk is left alone by its producer until the next but one is asked for. */
  readonly chunks: AsyncIterable<Uint8Array>;
}

export interface TransportResponse {
  readonly status: number;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string | undefined>>;
  /** How much of the request's body was sent when the answer came. Absent: all of it. */
  readonly sent?: Sent | undefined;
  /** The address that was connected to, where there was one. */
  readonly address?: string | undefined;
  /**
   * Once only; the chunks are the reader's to keep. Throws {@link TransportError} where the body is cut. Leaving the
   * loop early destroys the connection.
   */
  readonly body: AsyncIterable<Uint8Array>;
  /** Lets go of the connection. Harmless after the body was read. */
  destroy(): void;
}

/**
 * One HTTP exchange, without following, retrying or judging anything: the one thing here that touches sockets, and
 * what a simulation replaces.
 * @throws {TransportError} no answer came. Also where the signal aborted; its reason is then the cause.
 * @throws {ForbiddenAddressError} the address is not public and had to be.
 */
export type Transport = (request: TransportRequest, signal: AbortSignal) => Promise<TransportResponse>;

export class TransportError extends Error {
  override readonly name = 'TransportError';
  readonly sent: Sent;
  /** True where one of {@link TransportLimits} was passed, rather than the connection having failed. */
  readonly timedOut: boolean;
  constructor(message: string, options: ErrorOptions & { sent: Sent; timedOut?: boolean }) {
    super(message, options);
    this.sent = options.sent;
    this.timedOut = options.timedOut ?? false;
  }
}

/** How long each part of an exchange may take, in milliseconds. */
export interface TransportLimits {
  /** Name resolution, connection and TLS handshake. */
  readonly connectMs: number;
  /** From the request's last byte to the head of the answer. */
  readonly firstByteMs: number;
  /** Without a block of the body sent, or without a byte of the answer received while somebody waits for one. */
  readonly idleMs: number;
}

export const TRANSPORT_LIMITS: TransportLimits = { connectMs: 10_000, firstByteMs: 60_000, idleMs: 30_000 };

/**
 * The transport over node:http and node:https.
 *
 * Requests without a body share kept-alive connections; one that turns out to have been closed by the other side before
 * a byte of an answer came is replaced by a new one, once. A request with a body always gets a connection of its own:
 * on a kept one, which a function that was frozen meanwhile can only find dead by writing to it, nobody could tell
 * whether a short request was received, and a flow would be in doubt for nothing.
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
    if (signal.aborted) throw givenUp(signal, 'nothing');
    const host = hostOf(request.url);
    if (request.publicOnly === true && isIP(host) !== 0 && !isPublicAddress(host)) throw notPublic(host);
    const protocol = request.url.protocol as keyof typeof kept;
    // A kept connection was made without looking at its address.
    const isShared = request.body === undefined && request.publicOnly !== true;
    if (!isShared) return new Exchange(request, signal, single[protocol], clock, limits).response;
    try {
      return await new Exchange(request, signal, kept[protocol], clock, limits).response;
    } catch (error) {
      if (!(error instanceof StaleConnectionError) || signal.aborted) throw error;
      return new Exchange(request, signal, single[protocol], clock, limits).response;
    }
  };
}

/** A kept connection had been closed by the other side. */
class StaleConnectionError extends TransportError {}

/**
 * One request and its answer.
 *
 *   connecting ──▶ sending ──▶ waiting ──▶ answered ──▶ over
 *        │            │  └───────────────────▲            ▲
 *        └────────────┴── failed, timed out, aborted ─────┘   (the answer may come before all is sent)
 */
class Exchange {
  readonly response: Promise<TransportResponse>;
  readonly #request: TransportRequest;
  readonly #signal: AbortSignal;
  readonly #limits: TransportLimits;
  readonly #timeLimit: TimeLimit;
  /** For an answer that trickles, so that no wait for the next byte is ever too long. */
  readonly #answerLimit: TimeLimit;
  readonly #client: ReturnType<typeof httpRequest>;
  readonly #resolve: (response: TransportResponse) => void;
  readonly #reject: (error: unknown) => void;
  #sent: Sent = 'nothing';
  #answer: IncomingMessage | undefined;
  /** Why the exchange ended, once it did other than well. */
  #failure: unknown;
  #isOver = false;
  /** Ends the wait for a block to be written. */
  #wake: () => void = () => {};

  constructor(
    request: TransportRequest,
    signal: AbortSignal,
    agent: HttpAgent | HttpsAgent,
    clock: Clock,
    limits: TransportLimits,
  ) {
    const { promise, resolve, reject } = Promise.withResolvers<TransportResponse>();
    this.response = promise;
    this.#resolve = resolve;
    this.#reject = reject;
    this.#request = request;
    this.#signal = signal;
    this.#limits = limits;
    this.#timeLimit = new TimeLimit(clock, (what) =>
      this.#fail(new TransportError(what, { sent: this.#sent, timedOut: true })),
    );
    this.#answerLimit = new TimeLimit(clock, (what) =>
      this.#fail(new TransportError(what, { sent: this.#sent, timedOut: true })),
    );
    const { url, method, headers, body, publicOnly, answerMs } = request;
    if (answerMs !== undefined) this.#answerLimit.set(answerMs, `No whole answer within ${answerMs} ms`);
    const options: RequestOptions = {
      agent,
      method,
      headers: body === undefined ? headers : { ...headers, 'Content-Length': body.bytes },
      ...(publicOnly === true ? { lookup: publicLookup } : {}),
    };
    const isTls = url.protocol === 'https:';
    this.#client = isTls ? httpsRequest(url, options) : httpRequest(url, options);
    this.#client.on('response', (answer) => this.#answered(answer));
    this.#client.on('error', (error) => {
      // Once there is an answer, it says itself whether it came whole; that the rest of the request could not be
      // written no longer matters.
      if (this.#answer === undefined) this.#fail(error);
    });
    signal.addEventListener('abort', this.#aborted);
    this.#timeLimit.set(limits.connectMs, `No connection within ${limits.connectMs} ms`);
    this.#client.on('socket', (socket) => {
      if (socket.connecting) socket.once(isTls ? 'secureConnect' : 'connect', () => this.#connected());
      else this.#connected();
    });
    // A request without a body is as good as sent; one with a body is begun when there is a connection to send it on.
    if (body === undefined) this.#client.end();
  }

  #connected(): void {
    if (this.#isOver) return;
    const { body } = this.#request;
    if (body === undefined) this.#awaitAnswer();
    else void this.#send(body);
  }

  #awaitAnswer(): void {
    const { firstByteMs } = this.#limits;
    if (this.#answer === undefined) this.#timeLimit.set(firstByteMs, `No answer within ${firstByteMs} ms`);
  }

  /**
   * Writes the body block by block: while one is with the socket, the next is being made. The last one is held back
   * until the body has said that it is over, so that a request whose body is not as announced never completes.
   */
  async #send(body: RequestBody): Promise<void> {
    const { idleMs } = this.#limits;
    const isStopped = (): boolean => this.#isOver || this.#answer !== undefined;
    const progress = (): void => this.#timeLimit.set(idleMs, `Nothing could be sent for ${idleMs} ms`);
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
      await this.#write(last);
      if (!isStopped()) this.#awaitAnswer();
    } catch (error) {
      if (!isStopped()) this.#fail(new TransportError(messageOf(error), { sent: this.#sent, cause: error }));
    }
  }

  /** Settles when the socket is done with `chunk`, or when nothing matters any more. Without a chunk it ends. */
  #write(chunk: Uint8Array | undefined): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve;
      // A failure to write is told by the request's `error` event, which wakes us too.
      if (this.#sent === 'all') this.#client.end(chunk, () => resolve());
      else {
        this.#sent = 'part';
        this.#client.write(chunk, () => resolve());
      }
    });
  }

  #answered(answer: IncomingMessage): void {
    this.#answer = answer;
    this.#timeLimit.lift();
    // The loop over the body throws the error; before it begins, an error without a listener would end the process.
    answer.on('error', () => {});
    this.#resolve({
      status: answer.statusCode ?? 0,
      headers: Object.fromEntries(
        Object.entries(answer.headers).map(([name, value]) => [name, Array.isArray(value) ? value.join(', ') : value]),
      ),
      sent: this.#sent,
      address: answer.socket.remoteAddress,
      body: this.#receive(answer),
      destroy: () => this.#fail(new Error('The answer was let go of')),
    });
    this.#wake();
  }

  async *#receive(answer: IncomingMessage): AsyncGenerator<Uint8Array> {
    const { idleMs } = this.#limits;
    const wait = (): void => this.#timeLimit.set(idleMs, `Nothing was received for ${idleMs} ms`);
    try {
      wait();
      for await (const chunk of answer) {
        // Only waiting for the other side is limited, not what the reader does with a chunk.
        this.#timeLimit.lift();
        yield chunk;
        wait();
      }
      // Destroying a request discards what was received and not read yet, and ends the loop as if all were well.
      if (this.#failure !== undefined) throw this.#failure;
      if (!answer.complete) throw new Error('The connection was closed before the end of the answer');
    } catch (error) {
      throw this.#described(this.#failure ?? error);
    } finally {
      // An answer that came early leaves a half-sent request behind, and a loop left early a half-read answer.
      this.#end(answer.complete && this.#client.writableFinished);
    }
  }

  readonly #aborted = (): void => this.#fail(givenUp(this.#signal, this.#sent));

  #fail(error: unknown): void {
    if (this.#isOver) return;
    this.#failure = error;
    this.#end();
    // Of no consequence once there is an answer: then the loop over its body throws the failure.
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

  /** Leaves no timer, no listener and, unless the connection can be used again, no connection. */
  #end(isReusable = false): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#timeLimit.end();
    this.#answerLimit.end();
    this.#signal.removeEventListener('abort', this.#aborted);
    if (!isReusable) this.#client.destroy();
    this.#wake();
  }
}

/** Why a wait for a deadline ends early. One for all: an error made for each costs more than the timer. */
const LIFTED = new Error('The limit was lifted');

/**
 * A deadline that can be moved, costing a timer only when it comes nearer: a stream moves it for every chunk.
 */
class TimeLimit {
  readonly #clock: Clock;
  readonly #onPassed: (what: string) => void;
  #deadline = Number.POSITIVE_INFINITY;
  #what = '';
  #wakesAt = Number.POSITIVE_INFINITY;
  #isOver = false;
  #sleep: AbortController | undefined;

  constructor(clock: Clock, onPassed: (what: string) => void) {
    this.#clock = clock;
    this.#onPassed = onPassed;
  }

  set(ms: number, what: string): void {
    this.#deadline = this.#clock.now() + ms;
    this.#what = what;
    if (this.#deadline < this.#wakesAt && !this.#isOver) void this.#watch();
  }

  /** Lifts the limit for now. The timer stays, for the next one will most likely be later than it. */
  lift(): void {
    this.#deadline = Number.POSITIVE_INFINITY;
  }

  /** Lifts the limit for good and ends its timer. */
  end(): void {
    this.lift();
    this.#isOver = true;
    this.#sleep?.abort(LIFTED);
  }

  async #watch(): Promise<void> {
    this.#sleep?.abort(LIFTED);
    const sleep = new AbortController();
    this.#sleep = sleep;
    while (this.#deadline < Number.POSITIVE_INFINITY) {
      const leftMs = this.#deadline - this.#clock.now();
      if (leftMs <= 0) {
        this.#onPassed(this.#what);
        return;
      }
      this.#wakesAt = this.#deadline;
      try {
        await this.#clock.sleep(leftMs, sleep.signal);
      } catch {
        return; // A nearer deadline was set, or the limit has ended: `sleep` was aborted, there is nothing to tell.
      }
    }
    this.#wakesAt = Number.POSITIVE_INFINITY;
  }
}

/** What writing to, or waiting on, a connection gives that the other side has closed meanwhile. */
const STALE_CODES: readonly unknown[] = ['ECONNRESET', 'EPIPE'];

const codeOf = (error: unknown): unknown =>
  typeof error === 'object' && error !== null && 'code' in error ? error.code : undefined;

/** Of a name with several addresses, each with its own error, Node's message is empty. */
function messageOf(error: unknown): string {
  if (error instanceof AggregateError) return error.errors.map(messageOf).join('; ');
  return error instanceof Error ? error.message : String(error);
}

/** An error without what Node hangs onto it: packets and certificates are not for logs. */
const plain = (error: unknown): Error => Object.assign(new Error(messageOf(error)), { code: codeOf(error) });

const givenUp = (signal: AbortSignal, sent: Sent): TransportError =>
  new TransportError('The request was given up', { sent, cause: signal.reason });

const notPublic = (host: string): ForbiddenAddressError =>
  new ForbiddenAddressError(`${host} is not, or has not, a public address`);

/** Resolves a name to its public addresses alone, so that what was checked is what is connected to. */
const publicLookup: LookupFunction = (hostname, options, callback) => {
  lookup(hostname, { ...options, all: true }, (error, addresses) => {
    if (error !== null) return callback(error, []);
    const allowed = addresses.filter(({ address }) => isPublicAddress(address));
    const [first] = allowed;
    if (first === undefined) return callback(notPublic(hostname), []);
    return options.all === true ? callback(null, allowed) : callback(null, first.address, first.family);
  });
};
