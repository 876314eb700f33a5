import { randomBytes } from 'node:crypto';
import type { Clock } from '../base/clock.ts';
import { quoted } from '../base/printable.ts';
import { hasCredentials, isHttpsOrLoopback, isLoopback, meantAddress } from './addresses.ts';
import { changeReader, cut, type ErrorWords, isUsableId, type Reader, wordsOfError } from './answers.ts';
import {
  FlowServiceError,
  ForbiddenAddressError,
  InDoubtError,
  JobFailedError,
  NotFoundError,
  ThrottledError,
  UnauthorisedError,
  UnavailableError,
  UnintelligibleAnswerError,
} from './errors.ts';
import {
  type AnswerFacts,
  type Asked,
  blameOf,
  isForeign,
  isPageAnswer,
  misaddressed,
  refusedBy,
  wordsOfPage,
} from './foreign-answer.ts';
import { httpTransport } from './http-transport.ts';
import {
  ANSWER_BYTES_MAX,
  AnswerReader,
  parseJson,
  readBeginning,
  readErrorBody,
  UnfitAnswerError,
} from './json-answer.ts';
import { type PacedRequest, Pacer, type Rank } from './pacer.ts';
import { retryAfterMs } from './rate-limit-headers.ts';
import { holdsToken, redact } from './redact.ts';
import type { FlowBody } from './request-body.ts';
import {
  ANSWER_DEPTH_MAX,
  ANSWER_SECONDS,
  isAmong,
  isToldByWords,
  type Refusals,
  refusalOf,
  type ServiceDescription,
  tokenHeader,
} from './service-description.ts';
import { errorForStatus, isThrottled } from './status-errors.ts';
import { TimeLimit } from './time-limit.ts';
import { type Transport, TransportError, type TransportRequest, type TransportResponse, watched } from './transport.ts';
import type { CreateRequest, OfUpload, Token } from './types.ts';

/**
 * Longest time for a small response to arrive whole, in milliseconds. One flow's response that hangs or trickles must
 * not hold up the round of all others. Creations and assets may take longer.
 */
const JSON_ANSWER_MS = 20_000;

/**
 * Longest time from the head of the answer to a creation to its end, in milliseconds: some hundred bytes. If they take
 * longer, the creation is in doubt. How long the head may take is declared, because a service may store a large file first.
 */
const CREATION_REST_MS = 60_000;

/** Longest `Retry-After` of another address that is kept, in milliseconds: that of an asset at a store. */
const ELSEWHERE_WAIT_MS_MAX = 15 * 60_000;

/** How long the answer of the listings to a 403 is believed, in milliseconds. */
const PROBED_MS = 10_000;

/** Time during which a throttled listing is requested again for that, in milliseconds. */
const PROBE_PATIENCE_MS = 5_000;

/** How long a creation waits for its turn before its caller is told, in milliseconds. */
const WAITING_TOLD_AFTER_MS = 3_000;

export interface RequestOptions {
  /** `https`, or `http` on this machine. Its path is kept: all operations are below it. */
  readonly baseUrl: URL;
  readonly token: Token;
  readonly clock: Clock;
  readonly service: ServiceDescription;
  /** The pace of all requests. Default: one of its own without a ceiling. */
  readonly pacer?: Pacer | undefined;
  /** @default over node:http and node:https, with {@link TRANSPORT_LIMITS} */
  readonly transport?: Transport | undefined;
}

type Operation = 'create' | 'get' | 'list' | 'templates' | `outputs at ${string}` | 'asset' | 'abort' | 'delete';

export interface Call
  extends OfUpload,
    Pick<CreateRequest, 'onWaiting' | 'beforeSending'>,
    Pick<PacedRequest, 'subject' | 'startBy' | 'patienceMs' | 'isAsked'> {
  readonly operation: Operation;
  readonly method: TransportRequest['method'];
  readonly url: URL;
  /** Default: 2 for `get`, 0 for all others. */
  readonly rank?: Rank | undefined;
  /** Called when the request's turn has come, because it may have to read the upload. */
  readonly body?: (() => FlowBody | Promise<FlowBody>) | undefined;
  readonly reach?: TransportRequest['reach'];
  /** Called when the request's turn has come. */
  readonly onSent?: (() => void) | undefined;
}

/** A response, with the facts needed to interpret it. */
export interface Answer extends Asked {
  readonly operation: Operation;
  /** False if the request went elsewhere, without the token. */
  readonly hadToken: boolean;
  /** True if the token is refused, and was just read again. */
  readonly isTokenRefused?: boolean;
}

/**
 * Matches a path that a server may change before it looks at it. `URL` resolves `..`, backslashes and encoded dots of
 * its own. It leaves an encoded slash, backslash, percent sign or control character, an empty segment, and `..;` of
 * Java.
 */
const LEADS_ELSEWHERE = /%(?:2e|2f|5c|25|[01][0-9a-f]|7f)|\/\/|^\/|\\|(?:^|\/)\.{1,2}(?:;|\/|$)/i;

/** True for a 403 to which the description gives no meaning. */
const isForbidden = ({ status, refusal }: TransportResponse): boolean => status === 403 && refusal === undefined;

export const isSuccess = (status: number): boolean => status >= 200 && status < 300;

/** Sends requests to the service, with the token and at its pace, and turns responses into values or errors. */
export class Requests {
  /** The base address, without a slash at its end. */
  readonly #base: string;
  readonly isLocal: boolean;
  readonly #pacer: Pacer;
  readonly #token: Token;
  readonly #clock: Clock;
  readonly #service: ServiceDescription;
  readonly #answerDepthMax: number;
  readonly #transport: Transport;
  readonly #answers = new AnswerReader();
  /** The operations that have succeeded in this process. A 404 from one of them is about the flow. */
  readonly #served = new Set<Operation>();
  /** By subject: until when a request that was throttled elsewhere is not repeated, in milliseconds since the epoch. */
  readonly #throttledElsewhere = new Map<string, number>();
  /** When this process first learnt of a flow, in milliseconds since the epoch. */
  flowKnownAt: number | undefined;
  /** The last question whether the listings are refused with this token. */
  #probed: { readonly secret: string; readonly until: number; readonly isRefused: Promise<boolean> } | undefined;
  /**
   * Why creations wait: how the service last refused one because of a limit, and until when it asked to wait, in
   * milliseconds since the epoch.
   */
  #creationsWait: { readonly why: string; readonly until?: number | undefined } = {
    why: 'It waits for its turn at the pace that the service allows.',
  };

  /** @throws {ForbiddenAddressError} the base address is neither https nor on this machine, or holds credentials. */
  constructor({ baseUrl, token, clock, service, transport, pacer }: RequestOptions) {
    if (!isHttpsOrLoopback(baseUrl)) {
      throw new ForbiddenAddressError(`${baseUrl.origin}: expected https, because the token is sent there`);
    }
    if (hasCredentials(baseUrl)) {
      throw new ForbiddenAddressError(`${baseUrl.origin}: expected no user or password in the address`);
    }
    this.#base = `${baseUrl.origin}${baseUrl.pathname.replace(/\/+$/, '')}`;
    this.isLocal = isLoopback(baseUrl);
    this.#pacer = pacer ?? new Pacer(clock);
    this.#token = token;
    this.#clock = clock;
    this.#service = service;
    this.#answerDepthMax = service.answerDepthMax ?? ANSWER_DEPTH_MAX;
    this.#transport = transport ?? httpTransport({ clock });
  }

  /**
   * The address of a path of the description, with its placeholders replaced. A template may have slashes.
   * @throws {NotFoundError} an id is one that no flow or asset can have.
   */
  url(path: string, values: { readonly [name: string]: string | undefined } = {}): URL {
    const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => {
      const value = values[name] ?? '';
      const parts = name === 'template' ? value.split('/') : [value];
      for (const part of parts) {
        if (isUsableId(part)) continue;
        throw new NotFoundError(`Nothing can have the ${name} ${quoted(value)}`, { knownToBeServed: true });
      }
      return parts.map(encodeURIComponent).join('/');
    });
    return new URL(this.#base + filled);
  }

  /** An address that the service has named, with the scheme that it means. */
  meant(url: URL): URL {
    return meantAddress(url, new URL(this.#base));
  }

  /**
   * Tells whether the token may be sent to an address that the service has named: below the base address only. Other
   * paths of its origin may belong to others. A path that some server could read as leading upwards does not count, nor
   * does an address that holds the token itself: the ledger may keep it.
   */
  isForToken(url: URL, secret: string | undefined): boolean {
    if (!url.href.startsWith(`${this.#base}/`) || holdsToken(url.href, secret)) return false;
    const below = url.pathname.slice(new URL(this.#base).pathname.replace(/\/$/, '').length + 1);
    return !LEADS_ELSEWHERE.test(below);
  }

  /** Sends a request with the token. If the token is refused, reads it again and sends once more. */
  async send(call: Call, signal: AbortSignal): Promise<Answer> {
    const first = await this.#sendPaced(call, await this.#token.get(signal), signal);
    if (!(await this.#isTokenRefused(first, signal))) return first;
    first.response.destroy();
    const second = await this.#sendPaced(call, await this.#token.renew(signal), signal);
    return { ...second, isTokenRefused: await this.#isTokenRefused(second, signal) };
  }

  /**
   * Tells whether an answer is about the token. A 401 is. A gateway may answer 403 to a revoked key, in JSON or with a
   * page, but a 403 may also be about the one request. So the two listings are asked: if one of them is refused too, and
   * none is served, no request with this token is.
   */
  async #isTokenRefused({ operation, response, secret }: Answer, signal: AbortSignal): Promise<boolean> {
    if (response.refusal === 'tokenRefused') return true;
    if (!isForbidden(response)) return false;
    const now = this.#clock.now();
    // Many requests may be refused at the same time.
    if (this.#probed?.secret !== secret || now >= this.#probed.until) {
      this.#probed = { secret, until: now + PROBED_MS, isRefused: this.#areListingsRefused(secret, signal) };
    }
    const probed = this.#probed;
    try {
      return await probed.isRefused;
    } catch (error) {
      if (this.#probed === probed) this.#probed = undefined;
      // It cannot be known now. A creation may have made a flow, so only its own answer decides what becomes of it.
      if (error instanceof FlowServiceError || operation === 'create') return false;
      throw error;
    }
  }

  async #areListingsRefused(secret: string, signal: AbortSignal): Promise<boolean> {
    let isRefused = false;
    let isServed = false;
    for (const operation of ['list', 'templates'] as const) {
      const listing = this.#service[operation];
      if (listing === undefined) continue;
      const call: Call = {
        ...{ operation, method: 'GET', url: this.url(listing.path), subject: operation, rank: 1 },
        patienceMs: PROBE_PATIENCE_MS,
      };
      const { response } = await this.#sendPaced(call, secret, signal);
      response.destroy();
      isRefused ||= response.refusal === 'tokenRefused' || isForbidden(response);
      isServed ||= isSuccess(response.status);
    }
    return isRefused && !isServed;
  }

  /**
   * Sends a request to an address that is not below the base: without the token, and outside of the service's pace.
   * @throws {ThrottledError} it was throttled there, and its `Retry-After` is not over.
   */
  async sendElsewhere(
    call: Call & Pick<Required<TransportRequest>, 'reach'>,
    secret: string,
    signal: AbortSignal,
  ): Promise<Answer> {
    const now = this.#clock.now();
    for (const [subject, until] of this.#throttledElsewhere) if (until <= now) this.#throttledElsewhere.delete(subject);
    if (this.#throttledElsewhere.has(call.subject))
      throw new ThrottledError(`${call.operation}: the Retry-After of its address is not over`, { wasSent: false });
    const sent = await this.#sendOnce(call, { secret, hadToken: false }, signal);
    const response: TransportResponse = sent.status === 429 ? { ...sent, refusal: 'throttled' } : sent;
    const waitMs = isThrottled(response) ? retryAfterMs(response, now) : undefined;
    if (waitMs !== undefined) this.#throttledElsewhere.set(call.subject, now + Math.min(waitMs, ELSEWHERE_WAIT_MS_MAX));
    return { operation: call.operation, url: call.url, response, secret, hadToken: false };
  }

  /**
   * Reads a response as JSON that fits the description of the service.
   * @param options.bytesMax of the response. Default: {@link ANSWER_BYTES_MAX}.
   * @param options.failed what says in its place that the flow has failed.
   * @throws the error for the status if it is no success.
   * @throws {UnintelligibleAnswerError} it does not fit, or is beyond a limit.
   */
  read<T>(
    answer: Answer,
    reader: Reader<T>,
    signal: AbortSignal,
    { bytesMax = ANSWER_BYTES_MAX, failed }: { bytesMax?: number; failed?: Refusals | undefined } = {},
  ): Promise<T> {
    const parsed = (text: string): T => this.#parsed(answer, redact(text, answer.secret), reader);
    return this.#read(answer, signal, () => this.#answers.read(answer.response, bytesMax, parsed), failed);
  }

  /**
   * Reads the answer to a change. It is a success of the service whatever it says, but a page or that it failed.
   * @param isFit true if its head names what was made. Then the words of a refusal count only beside an error.
   * @throws the error for the status or the words if it is no success.
   * @throws {MisaddressedError} it is a page. @throws {UnintelligibleAnswerError} it does not end, or says that it failed.
   */
  acknowledge(answer: Answer, signal: AbortSignal, isFit = false): Promise<void> {
    return this.#read(answer, signal, async () => {
      const text = redact(await readBeginning(answer.response, ANSWER_BYTES_MAX), answer.secret);
      this.#checkPage(answer, text, /^\s*</);
      if (!isFit) this.#checkWords(answer, text);
      try {
        changeReader(this.#service, answer.operation === 'delete')(parseJson(text, this.#answerDepthMax));
      } catch (error) {
        if (!(error instanceof UnfitAnswerError && error.isOwnError)) return; // `OK`, for example.
        this.#checkWords(answer, text);
        const words = this.#wordsOf(answer.response, text).detail || cut(text);
        throw new UnintelligibleAnswerError(`${answer.operation}: ${error.message}: ${words}`, { isOwnError: true });
      }
    });
  }

  async #read<T>(answer: Answer, signal: AbortSignal, use: () => Promise<T>, failed?: Refusals): Promise<T> {
    const { status, refusal } = answer.response;
    if (!isSuccess(status) || refusal !== undefined) throw await this.errorFor(answer, failed);
    try {
      return await use();
    } catch (error) {
      throw readingFailure(error, signal);
    }
  }

  #parsed<T>(answer: Answer, text: string, reader: Reader<T>): T {
    const { operation, response } = answer;
    try {
      const parsed = reader(parseJson(text, this.#answerDepthMax));
      this.#served.add(operation);
      if (operation !== 'list' && operation !== 'templates') this.flowKnownAt ??= this.#clock.now();
      return parsed;
    } catch (error) {
      this.#checkPage(answer, text, /\S/);
      this.#checkWords(answer, text);
      const unfit = 'the answer does not fit the description of the service';
      const message = error instanceof UnfitAnswerError ? error.message : unfit;
      const cause = error instanceof SyntaxError ? undefined : error; // V8 quotes text of any length in a SyntaxError.
      const isSaid = error instanceof UnfitAnswerError ? error.isOwnError : undefined;
      const isOwnError = isSaid ?? this.#wordsOf(response, text).isOwn;
      const what = text.trim() === '' ? emptyWords(response) : `${message}: ${cut(text)}`;
      throw new UnintelligibleAnswerError(`${operation}: ${what}`, { cause, isOwnError });
    }
  }

  #wordsOf({ headers }: TransportResponse, text: string): ErrorWords {
    return wordsOfError(headers['content-type'], text, this.#service.errors, this.#answerDepthMax);
  }

  /** @throws {MisaddressedError} a success is a page. */
  #checkPage(answer: Answer, text: string, page: RegExp): void {
    // Some frameworks call an empty answer HTML too.
    if (isForeign({ response: answer.response, text }) && page.test(text))
      throw misaddressed(answer, { detail: text.trim(), isOwn: false }, this.#base);
  }

  /** @throws the error for a success that says in words that it is none. */
  #checkWords(answer: Answer, text: string): void {
    const { response } = answer;
    const refusal = refusalOf(this.#service.errors, response.status, text);
    if (refusal !== undefined) {
      throw this.#errorForStatus({ ...answer, response: { ...response, refusal } }, this.#wordsOf(response, text));
    }
  }

  /**
   * The error for a response other than a success. It quotes the service's explanation.
   * @param failed what says that the flow has failed. Default: nothing does.
   */
  async errorFor(answer: Answer, failed: Refusals = []): Promise<FlowServiceError> {
    const facts = await this.#factsOf(answer);
    if (isAmong(failed, answer.response.status, facts.text)) return new JobFailedError(facts.detail);
    const error = this.#errorForStatus(answer, facts);
    // An asset may be kept anywhere, and another server's page about it is about the asset.
    const isForJson = answer.operation !== 'asset';
    const isElsewhere = isForJson && answer.isTokenRefused !== true && isForeign(facts);
    return isElsewhere ? misaddressed(answer, facts, this.#base, error) : error;
  }

  /**
   * The error for an answer to a creation. `isOwn` is true if it has the form of the service's own errors.
   * @param isServing tells whether the address serves flows. Called only if the answer does not tell who is to blame.
   */
  async creationErrorFor(
    answer: Answer,
    isServing: () => Promise<boolean>,
  ): Promise<{ readonly error: FlowServiceError; readonly isOwn: boolean }> {
    const facts = await this.#factsOf(answer);
    const error = this.#errorForStatus(answer, facts);
    const { isOwn } = facts;
    const blame = answer.isTokenRefused ? 'request' : blameOf(facts);
    const isElsewhere = blame === 'address' || (blame === 'unclear' && !(await isServing()));
    return { error: isElsewhere ? misaddressed(answer, facts, this.#base, error) : error, isOwn };
  }

  async #factsOf({ response, secret }: Answer): Promise<AnswerFacts> {
    const text = redact(await readErrorBody(response), secret);
    const page = isPageAnswer({ response, text }) && { detail: wordsOfPage(text) };
    return { response, text, ...this.#wordsOf(response, text), ...page };
  }

  #errorForStatus({ operation, response, isTokenRefused }: Answer, { detail }: ErrorWords): FlowServiceError {
    const message = `${operation}: ${response.status}${detail === '' ? '' : `: ${detail}`}`;
    if (isTokenRefused) {
      return new UnauthorisedError(response.status === 403 ? `${message}. ${refusedBy(this.#base)}` : message);
    }
    const error = errorForStatus(response, {
      message,
      now: this.#clock.now(),
      isServed: this.#served.has(operation),
      bodyStarted: operation === 'create' && response.sent !== 'nothing',
    });
    if (operation === 'create' && error instanceof ThrottledError) {
      this.#creationsWait = { why: error.message, until: error.askedUntil(this.#clock.now()) };
    }
    return error;
  }

  /** The longest times for an answer, in milliseconds. */
  #limitsOf(operation: Operation): Pick<TransportRequest, 'answerMs' | 'headMs'> {
    if (operation === 'asset') return {}; // It may have any size. The time without a byte is limited.
    if (operation !== 'create') return { answerMs: JSON_ANSWER_MS };
    const headMs = (this.#service.create.answerSeconds ?? ANSWER_SECONDS) * 1000;
    return { headMs, answerMs: headMs + CREATION_REST_MS };
  }

  /** Adds what a refusal means. Where only its words tell, its body is read first. */
  async #understood(response: TransportResponse, operation: Operation): Promise<TransportResponse> {
    const { status } = response;
    const { errors } = this.#service;
    if (isSuccess(status)) {
      // An asset or a listing may be answered with 202 until it is there. Any other success is read first.
      const isOfResults = operation === 'asset' || operation.startsWith('outputs at ');
      return isOfResults ? { ...response, refusal: refusalOf(errors, status) } : response;
    }
    if (!isToldByWords(errors, status)) return { ...response, refusal: refusalOf(errors, status) };
    const text = await readErrorBody(response);
    const body = (async function* () {
      yield Buffer.from(text);
    })();
    return { ...response, body, refusal: refusalOf(errors, status, text) };
  }

  /** Sends a request at the pace that the service allows. */
  async #sendPaced(call: Call, secret: string, signal: AbortSignal): Promise<Answer> {
    const { operation, subject, startBy, patienceMs, isAsked, rank = operation === 'get' ? 2 : 0 } = call;
    const kind = operation === 'create' ? 'creation' : 'other';
    let { onWaiting } = call;
    const tellWaiting = (): void => {
      onWaiting?.(this.#creationsWait.why, this.#creationsWait.until);
      onWaiting = undefined;
    };
    const toldAfter = new TimeLimit(this.#clock, tellWaiting);
    if (onWaiting !== undefined) toldAfter.set(WAITING_TOLD_AFTER_MS, 'its turn');
    const answer = { operation, url: call.url, secret, hadToken: true };
    const onRefused = async (response: TransportResponse): Promise<void> => {
      await this.errorFor({ ...answer, response });
      tellWaiting();
    };
    const paced = { rank, subject, startBy, patienceMs, isAsked, onRefused: onWaiting && onRefused };
    try {
      const response = await this.#pacer.send(kind, paced, signal, async () => {
        toldAfter.end();
        const key = await call.beforeSending?.();
        return this.#understood(await this.#sendOnce(call, { secret, hadToken: true, key }, signal), operation);
      });
      return { ...answer, response };
    } finally {
      toldAfter.end();
    }
  }

  async #sendOnce(
    call: Call,
    { secret, hadToken, key }: Pick<Answer, 'secret' | 'hadToken'> & { readonly key?: string | undefined },
    signal: AbortSignal,
  ): Promise<TransportResponse> {
    const { operation, method, url, body, reach, onSent } = call;
    if (!/^[\x21-\x7e]+$/.test(secret)) {
      // Not quoted: even a malformed token is a secret.
      throw new UnauthorisedError('The token holds characters that no header can carry');
    }
    const headers = headersOf(call, hadToken ? this.#service : undefined, { secret, key });
    const source = await body?.();
    const over = new AbortController();
    let sourceFailure: { readonly error: unknown } | undefined;
    const sending = source && {
      bytes: source.bytes,
      chunks: watched(source.chunks(AbortSignal.any([signal, over.signal])), (error) => (sourceFailure = { error })),
    };
    try {
      const request = { method, url, headers, body: sending, reach, ...this.#limitsOf(operation) };
      onSent?.();
      return redactedHead(await this.#transport(request, signal), secret);
    } catch (error) {
      if (!(error instanceof TransportError)) throw error;
      // A certificate may be for names that hold the token.
      const message = redact(`${operation}: ${error.message}`, secret);
      const cause = holdsToken(message) ? undefined : error;
      // If the last byte was sent, the service may have acted, whether we gave up or the connection failed.
      if (operation === 'create' && error.sent === 'all') throw new InDoubtError(message, { cause });
      if (signal.aborted) throw signal.reason;
      if (sourceFailure !== undefined) throw sourceFailure.error;
      throw new UnavailableError(message, { cause, bodyStarted: error.sent !== 'nothing' });
    } finally {
      // A response or a failure may come while the input is still being read.
      if (source !== undefined) over.abort();
    }
  }
}

/** Headers that are checked for the token before they are used or told: addresses and the media type. */
const CHECKED_HEADER = /location$|^link$|^content-type$/;

/** The response without the token in its headers: messages tell their names, and what is in some of them. */
function redactedHead(response: TransportResponse, secret: string): TransportResponse {
  const headers = Object.entries(response.headers);
  if (!holdsToken(headers.join(), secret)) return response;
  const shown = headers
    .filter(([name]) => !holdsToken(name, secret))
    .map(([name, value = '']) => [name, CHECKED_HEADER.test(name) ? value : redact(value, secret)]);
  return { ...response, headers: Object.fromEntries(shown) };
}

/** Says that an answer is empty. Azure and Adobe name what a creation has made in `Operation-Location` or `Location`. */
function emptyWords({ status, headers }: TransportResponse): string {
  const name = Object.keys(headers).find((each) => each.endsWith('location'));
  const where =
    name === undefined ? '' : `. If its header ${name} names the flow, declare "create": {"id": {"header": "${name}"}}`;
  return `the answer is empty (status ${status})${where}`;
}

/**
 * The headers of a request.
 * @param service Undefined if the request goes elsewhere: then neither the token nor anything else of ours goes with it.
 * @param key the idempotency key.
 */
export function headersOf(
  { operation, method, uploadId, body }: Pick<Call, 'operation' | 'uploadId'> & Partial<Call>,
  service: ServiceDescription | undefined,
  { secret, key }: Pick<Answer, 'secret'> & { readonly key?: string | undefined },
): Readonly<Record<string, string>> {
  const { idempotency } = service?.create ?? {};
  const isEmpty = method !== undefined && method !== 'GET' && body === undefined;
  return {
    Accept: operation === 'asset' ? '*/*' : 'application/json',
    // With compression, a few bytes might become gigabytes, and the length would not be the asset's.
    'Accept-Encoding': 'identity',
    'User-Agent': 'flowdrop',
    ...service?.headers,
    // The specification wants the content type with every request. Elsewhere it could break a signed address. Some
    // services parse the body of any request that has one, and refuse a deletion without a body.
    ...(service && !isEmpty && { 'Content-Type': 'application/json' }),
    ...(service && tokenHeader(service, secret)),
    ...(service && method === 'GET' && operation !== 'asset' && { 'Cache-Control': 'no-cache' }),
    ...(service && uploadId !== undefined && traceOf(uploadId)),
    ...(key !== undefined && idempotency && { [idempotency.header]: key }),
  };
}

/**
 * The trace of an upload, in which each request is a span. So the service's traces are found by the upload id.
 * @see https://www.w3.org/TR/trace-context/#traceparent-header
 */
function traceOf(uploadId: string): { readonly traceparent?: string } {
  const traceId = uploadId.slice(0, 32);
  if (!/^(?!0+$)[0-9a-f]{32}$/.test(traceId)) return {};
  return { traceparent: `00-${traceId}-${randomBytes(8).toString('hex')}-01` };
}

/** The error for a response that could not be read to its end. */
export function readingFailure(error: unknown, signal: AbortSignal): unknown {
  if (signal.aborted) return signal.reason;
  if (!(error instanceof TransportError)) return error;
  return new UnavailableError(`The answer broke off: ${error.message}`, { cause: error, bodyStarted: false });
}
