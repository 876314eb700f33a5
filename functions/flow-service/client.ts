import type * as z from 'zod/mini';
import type { Clock } from '../base/clock.ts';
import { isLoopback, isPublicAddress } from './addresses.ts';
import { assetOf } from './asset-answer.ts';
import {
  DamagedAssetError,
  type FlowServiceError,
  ForbiddenAddressError,
  ForbiddenError,
  InDoubtError,
  NotFoundError,
  NotReadyError,
  NotServedError,
  RejectedError,
  ThrottledError,
  UnauthorisedError,
  UnavailableError,
  UnintelligibleAnswerError,
} from './errors.ts';
import { Listing, type ListingPage } from './flow-listing.ts';
import { FIND_FLOWS_MAX, FIND_PAGES_MAX, findFlow, LISTING_DELAY_MAX_MS } from './flow-search.ts';
import { isEncoded, parseJson, readAnswer } from './json-answer.ts';
import { mediaTypeOf } from './media-type.ts';
import type { LearntPace, Rank } from './pace.ts';
import { Pacer } from './pacer.ts';
import { exhaustedMs, retryAfterMs } from './rate-limit-headers.ts';
import { assetSubject } from './refused-subjects.ts';
import { type FlowBody, flowBody } from './request-body.ts';
import {
  createdSchema,
  cut,
  errorDetail,
  type FlowPage,
  flowPageSchema,
  flowSchema,
  isUsableId,
  outputPageSchema,
  templatesSchema,
} from './schemas.ts';
import {
  httpTransport,
  type RequestBody,
  type Transport,
  TransportError,
  type TransportRequest,
  type TransportResponse,
} from './transport.ts';
import type { Asset, CreateRequest, FlowRecord, FlowService, FlowTag, Found, Output, Token } from './types.ts';

/** What is read of the body of a refusal, in bytes: enough to quote from. */
const REFUSAL_BYTES_MAX = 64 * 1024;

/**
 * Longest time for a small answer to come whole, in milliseconds. One flow's answer that hangs or trickles must not hold
 * up the round of all others. Creations and assets may take longer.
 */
const JSON_ANSWER_MS = 20_000;

/** For how long a refused page of the flows' states is asked for again, in milliseconds. */
const STATES_PATIENCE_MS = 5_000;

/** A token shorter than this is not one, and striking it out of answers would mangle them. */
const TOKEN_CHARS_MIN = 8;

/** Pages and flows that are read of the whole listing of flows: ten times what one search reads. */
export const LIST_PAGES_MAX = 10 * FIND_PAGES_MAX;
export const LIST_FLOWS_MAX = 10 * FIND_FLOWS_MAX;

/** Pages and outputs that are read of one flow. A flow that is known to have many has two hundred. */
export const OUTPUT_PAGES_MAX = 100;
export const OUTPUTS_MAX = 10_000;

export interface FlowServiceOptions {
  /** `https`, or `http` on this machine. Its path is kept: operations are below it. */
  readonly baseUrl: URL;
  readonly token: Token;
  readonly clock: Clock;
  /** Where the outputs listing is: found out, or pinned to `/flows/{id}/outputs` or `/{id}/outputs`. */
  readonly outputsPath: 'auto' | 'flows' | 'root';
  /** Largest asset that is let through, in bytes. */
  readonly assetBytesMax: number;
  /** How deep the lists and objects of an answer may be nested. */
  readonly answerDepthMax: number;
  /** The operator's ceiling for each kind of request. Default: only what the service allows. */
  readonly requestsPerSecond?: number | 'unlimited' | undefined;
  /** @default over node:http and node:https, with {@link TRANSPORT_LIMITS} */
  readonly transport?: Transport | undefined;
}

/**
 * The flow service over HTTP.
 * @throws {ForbiddenAddressError} the base address is neither https nor on this machine, or holds credentials.
 */
export function createFlowService(options: FlowServiceOptions): FlowService {
  return new HttpFlowService(options);
}

type Operation = 'create' | 'get' | 'list' | 'outputs of flows' | 'outputs of root' | 'asset' | 'abort' | 'templates';

interface Call {
  readonly operation: Operation;
  readonly method: TransportRequest['method'];
  readonly url: URL;
  /** The flow or the upload that it is about. */
  readonly subject: string;
  /** Default: that of its operation. */
  readonly rank?: Rank | undefined;
  readonly startBy?: number | undefined;
  readonly patienceMs?: number | undefined;
  /** Made when its turn has come, because it may cost a read of the upload. */
  readonly body?: (() => FlowBody | Promise<FlowBody>) | undefined;
  readonly publicOnly?: boolean | undefined;
}

interface ListingLimits {
  readonly pagesMax: number;
  readonly entriesMax: number;
  /** Whether a listing that says nothing of further pages may have them all the same. */
  readonly mayBeSilent: boolean;
  readonly rank: Rank;
}

interface Answer {
  readonly operation: Operation;
  readonly response: TransportResponse;
  /** The token that it was given, or undefined where it was given none. It is struck out of whatever is quoted. */
  readonly secret: string | undefined;
}

class HttpFlowService implements FlowService {
  readonly #base: string;
  readonly #isLocal: boolean;
  readonly #token: Token;
  readonly #clock: Clock;
  readonly #assetBytesMax: number;
  readonly #answerDepthMax: number;
  readonly #transport: Transport;
  readonly #pacer: Pacer;
  /** The spellings of the outputs listing that may be the right one; one, from when it has answered. */
  #outputsSpellings: readonly ('flows' | 'root')[];
  /** What has answered in this process, so that a 404 from it is about the flow. */
  readonly #served = new Set<Operation>();
  /** When this process first heard of a flow, in milliseconds since the epoch. */
  #flowKnownAt: number | undefined;

  constructor(options: FlowServiceOptions) {
    const { baseUrl, token, clock, outputsPath, assetBytesMax, answerDepthMax, transport } = options;
    this.#isLocal = isLoopback(baseUrl);
    if (baseUrl.protocol !== 'https:' && !(baseUrl.protocol === 'http:' && this.#isLocal)) {
      throw new ForbiddenAddressError(`${baseUrl.origin}: the token goes over https alone`);
    }
    if (baseUrl.username !== '' || baseUrl.password !== '') {
      throw new ForbiddenAddressError(`${baseUrl.origin}: expected no user or password in the address`);
    }
    this.#base = `${baseUrl.origin}${baseUrl.pathname.replace(/\/+$/, '')}`;
    this.#token = token;
    this.#clock = clock;
    this.#assetBytesMax = assetBytesMax;
    this.#answerDepthMax = answerDepthMax;
    this.#transport = transport ?? httpTransport({ clock });
    this.#pacer = new Pacer(clock, options.requestsPerSecond);
    this.#outputsSpellings = outputsPath === 'auto' ? ['flows', 'root'] : [outputsPath];
  }

  get learntPace(): LearntPace | undefined {
    return this.#pacer.learnt;
  }

  get isCreationLimited(): boolean {
    return this.#pacer.isCreationLimited;
  }

  resumePace(learnt: LearntPace): void {
    this.#pacer.resume(learnt);
  }

  async create(request: CreateRequest, signal: AbortSignal): Promise<{ readonly flowId: string }> {
    const call: Call = {
      operation: 'create',
      method: 'POST',
      url: this.#url('flows'),
      subject: request.tag.upload,
      startBy: request.startBy,
      body: () => flowBody(request, signal),
    };
    const answer = await this.#ask(call, signal);
    const { status, sent = 'all' } = answer.response;
    if (isSuccess(status)) {
      try {
        return await this.#understood(answer, createdSchema, signal);
      } catch (cause) {
        throw new InDoubtError('A flow was created, and which one the answer does not say', { cause });
      }
    }
    const refusal = await this.#refusal(answer);
    // A service, or a proxy in front of it, may fail after the flow was made; `See Other` may be where it is.
    const mayHaveCreated = (status >= 500 && status !== 501) || status === 303;
    if (mayHaveCreated && sent === 'all') throw new InDoubtError(refusal.message, { cause: refusal });
    if (refusal instanceof NotReadyError && status === 425) {
      throw new UnavailableError(refusal.message, { cause: refusal, bodyStarted: true });
    }
    const isForGood =
      refusal instanceof NotFoundError ||
      refusal instanceof NotServedError ||
      refusal instanceof NotReadyError ||
      refusal instanceof UnintelligibleAnswerError;
    throw isForGood ? new RejectedError(refusal.message, { cause: refusal, status }) : refusal;
  }

  async get(flowId: string, signal: AbortSignal): Promise<FlowRecord> {
    return this.#json('get', this.#url('flows', flowId), flowId, flowSchema, signal);
  }

  async outputs(flowId: string, signal: AbortSignal): Promise<readonly Output[]> {
    const refusals: (NotFoundError | NotServedError)[] = [];
    for (const spelling of this.#outputsSpellings) {
      try {
        const outputs = await this.#allOutputs(flowId, spelling, signal);
        this.#outputsSpellings = [spelling];
        return outputs;
      } catch (error) {
        if (!(error instanceof NotFoundError || error instanceof NotServedError)) throw error;
        refusals.push(error);
      }
    }
    // Where one spelling is not served and the other says 404, it is the flow that may be unknown.
    throw refusals.find((refusal) => refusal instanceof NotFoundError) ?? refusals[0];
  }

  async asset(flowId: string, assetId: string, signal: AbortSignal): Promise<Asset> {
    const url = this.#url('flows', flowId, 'outputs', assetId);
    let answer = await this.#ask(
      { operation: 'asset', method: 'GET', url, subject: assetSubject(flowId, assetId) },
      signal,
    );
    if (isRedirect(answer.response)) {
      answer = await this.#redirected(answer, url, signal);
      if (isRedirect(answer.response)) {
        answer.response.destroy();
        throw new ForbiddenAddressError('The asset was redirected twice');
      }
    }
    const { response, secret } = answer;
    if (response.status !== 200) {
      const refusal = await this.#refusal(answer);
      // Elsewhere the token was not asked for: an address that was good for a while has expired, and a new one helps.
      const hasExpired = refusal instanceof UnauthorisedError || refusal instanceof ForbiddenError;
      if (secret !== undefined || !hasExpired) throw refusal;
      throw new UnavailableError(refusal.message, { cause: refusal, bodyStarted: false });
    }
    if (isEncoded(response)) {
      response.destroy();
      throw new DamagedAssetError('The asset is compressed, which was not asked for');
    }
    this.#served.add('asset');
    const length = response.headers['content-length'];
    return assetOf(received(response, signal), {
      mediaType: mediaTypeOf(response.headers['content-type']),
      length: length === undefined ? undefined : Number(length),
      isDelimited: length !== undefined || response.headers['transfer-encoding'] !== undefined,
      assetBytesMax: this.#assetBytesMax,
    });
  }

  async abort(flowId: string, signal: AbortSignal): Promise<boolean> {
    const body = () => jsonBody({ action: 'abort' });
    try {
      const url = this.#url('flows', flowId);
      // A flow that is refused for ever may still be aborted: its looks say nothing of that.
      const subject = `abort ${encodeURIComponent(flowId)}`;
      const call: Call = { operation: 'abort', method: 'PATCH', url, subject, body };
      const answer = await this.#ask(call, signal);
      if (!isSuccess(answer.response.status)) throw await this.#refusal(answer);
      answer.response.destroy();
      return true;
    } catch (error) {
      const isInVain =
        error instanceof NotFoundError || error instanceof NotServedError || error instanceof NotReadyError;
      if (isInVain) return false;
      throw error;
    }
  }

  templates(
    signal: AbortSignal,
  ): Promise<readonly { readonly name: string; readonly description?: string | undefined }[]> {
    return this.#json('templates', this.#url('templates'), 'templates', templatesSchema, signal);
  }

  async *list(signal: AbortSignal): AsyncGenerator<readonly FlowRecord[]> {
    const listing = this.#flowListing({ pagesMax: LIST_PAGES_MAX, entriesMax: LIST_FLOWS_MAX, rank: 2 }, signal);
    for await (const { page, fresh } of listing.pages()) yield page.flows.filter(({ flowId }) => fresh.has(flowId));
  }

  find(
    tag: FlowTag,
    since: number,
    signal: AbortSignal,
    hasFlowFrom: (before: number) => Promise<boolean> = async () => false,
  ): Promise<Found> {
    const listedBefore = this.#clock.now() - LISTING_DELAY_MAX_MS;
    const isKnownHere = (this.#flowKnownAt ?? Number.POSITIVE_INFINITY) <= listedBefore;
    return findFlow({
      tag,
      since,
      isFlowKnown: async () => isKnownHere || hasFlowFrom(listedBefore),
      list: () => this.#flowListing({ pagesMax: FIND_PAGES_MAX, entriesMax: FIND_FLOWS_MAX, rank: 1 }, signal),
    });
  }

  #flowListing(limits: Omit<ListingLimits, 'mayBeSilent'>, signal: AbortSignal): Listing<FlowPage> {
    // Single looks can do without the listing. They must not wait until it is allowed.
    const patienceMs = limits.rank === 2 ? STATES_PATIENCE_MS : undefined;
    const call: Call = { operation: 'list', method: 'GET', url: this.#url('flows'), subject: 'list', patienceMs };
    return this.#listing(call, flowPageSchema, { ...limits, mayBeSilent: true }, signal);
  }

  /** @throws {UnintelligibleAnswerError} there are outputs that cannot be had. */
  async #allOutputs(flowId: string, spelling: 'flows' | 'root', signal: AbortSignal): Promise<readonly Output[]> {
    const operation = `outputs of ${spelling}` as const;
    const path = spelling === 'flows' ? ['flows', flowId, 'outputs'] : [flowId, 'outputs'];
    const limits: ListingLimits = { pagesMax: OUTPUT_PAGES_MAX, entriesMax: OUTPUTS_MAX, mayBeSilent: false, rank: 0 };
    const call: Call = { operation, method: 'GET', url: this.#url(...path), subject: flowId };
    const listing = this.#listing(call, outputPageSchema, limits, signal);
    const outputs: Output[] = [];
    for await (const { page, fresh } of listing.pages()) {
      outputs.push(...page.outputs.filter(({ assetId }) => fresh.has(assetId)));
    }
    if (listing.stuck === undefined) return outputs;
    throw new UnintelligibleAnswerError(`${operation}: not all outputs can be listed: ${listing.stuck}`);
  }

  #listing<S extends z.ZodMiniType<ListingPage>>(
    call: Call,
    schema: S,
    { rank, ...limits }: ListingLimits,
    signal: AbortSignal,
  ): Listing<z.infer<S>> {
    const read = async (url: URL) => {
      const answer = await this.#ask({ ...call, url, rank }, signal);
      return { page: await this.#understood(answer, schema, signal), link: answer.response.headers.link };
    };
    return new Listing({ ...limits, url: call.url, base: this.#base, read });
  }

  async #json<S extends z.ZodMiniType>(
    operation: Operation,
    url: URL,
    subject: string,
    schema: S,
    signal: AbortSignal,
  ): Promise<z.infer<S>> {
    return this.#understood(await this.#ask({ operation, method: 'GET', url, subject }, signal), schema, signal);
  }

  /** What an answer says, if it is one, and fits. */
  async #understood<S extends z.ZodMiniType>(answer: Answer, schema: S, signal: AbortSignal): Promise<z.infer<S>> {
    const { operation, response, secret } = answer;
    if (!isSuccess(response.status)) throw await this.#refusal(answer);
    let text: string;
    try {
      text = redact(await readAnswer(response), secret);
    } catch (error) {
      throw readingFailure(error, signal);
    }
    let why: unknown;
    try {
      const parsed = schema.safeParse(parseJson(text, this.#answerDepthMax));
      if (parsed.success) {
        this.#served.add(operation);
        if (operation !== 'list' && operation !== 'templates') this.#flowKnownAt ??= this.#clock.now();
        return parsed.data;
      }
      why = parsed.error;
    } catch (error) {
      why = error;
    }
    const cause = why instanceof SyntaxError ? undefined : why; // V8 quotes the text in it, at any length.
    throw new UnintelligibleAnswerError(`${operation}: the answer fits no known shape: ${cut(text)}`, { cause });
  }

  /** The error that an answer other than a success is, with what the service says in it. */
  async #refusal({ operation, response, secret }: Answer): Promise<FlowServiceError> {
    const said = errorDetail(redact(await beginningOf(response), secret), this.#answerDepthMax);
    return refusalOf(`${operation}: ${response.status}${said === '' ? '' : `: ${said}`}`, response, {
      now: this.#clock.now(),
      isServed: this.#served.has(operation),
      bodyStarted: operation === 'create' && response.sent !== 'nothing',
    });
  }

  /** Follows the redirect of an asset, if it leads to where we may go; with the token only to where that came from. */
  async #redirected({ response, secret }: Answer, from: URL, signal: AbortSignal): Promise<Answer> {
    response.destroy();
    const { location } = response.headers;
    const url = location === undefined ? null : URL.parse(location, from.href);
    if (url === null) throw new UnintelligibleAnswerError('The asset was redirected to no address');
    const isAllowed = isLoopback(url)
      ? this.#isLocal && (url.protocol === 'https:' || url.protocol === 'http:')
      : url.protocol === 'https:';
    // The rest of the address may be a signature, and is as secret as a token.
    if (!isAllowed) throw new ForbiddenAddressError(`The asset was redirected to ${redact(url.origin, secret)}`);
    const call: Call = { operation: 'asset', method: 'GET', url, subject: url.pathname };
    if (url.origin === from.origin) return this.#ask(call, signal);
    const { address } = response;
    const publicOnly = !this.#isLocal && (address === undefined || isPublicAddress(address));
    return this.#send({ ...call, publicOnly }, undefined, signal);
  }

  /** One request with the token, and, where that is refused, once more with the token read anew. */
  async #ask(call: Call, signal: AbortSignal): Promise<Answer> {
    const first = await this.#paced(call, await this.#token.get(signal), signal);
    if (first.response.status !== 401) return first;
    first.response.destroy();
    return this.#paced(call, await this.#token.renew(signal), signal);
  }

  /** One request at the pace that the service allows. */
  async #paced(call: Call, secret: string, signal: AbortSignal): Promise<Answer> {
    const { operation, subject, startBy, patienceMs, rank = operation === 'get' ? 2 : 0 } = call;
    const kind = operation === 'create' ? 'creation' : 'other';
    const request = { rank, subject, startBy, patienceMs };
    const response = await this.#pacer.send(
      kind,
      request,
      signal,
      async () => (await this.#send(call, secret, signal)).response,
    );
    return { operation, response, secret };
  }

  async #send(call: Call, secret: string | undefined, signal: AbortSignal): Promise<Answer> {
    const { operation, method, url, body, publicOnly } = call;
    // It is not quoted: whatever it is, it is secret.
    if (secret !== undefined && !/^[\x21-\x7e]+$/.test(secret)) {
      throw new UnauthorisedError('The token holds characters that no header can carry');
    }
    const headers = {
      Accept: operation === 'asset' ? '*/*' : 'application/json',
      // Else a few bytes might become gigabytes, and lengths would not be those of the asset.
      'Accept-Encoding': 'identity',
      'User-Agent': 'flowdrop',
      // The specification wants the content type with every request. Elsewhere it could break a signed address.
      ...(secret === undefined ? {} : { 'Content-Type': 'application/json', Authorization: `Bearer ${secret}` }),
    };
    const sending = new Sending(await body?.(), signal);
    try {
      const answerMs = operation === 'create' || operation === 'asset' ? undefined : JSON_ANSWER_MS;
      const request = { method, url, headers, body: sending.body, publicOnly, answerMs };
      const response = await this.#transport(request, signal);
      return { operation, response, secret };
    } catch (error) {
      throw sendingFailure(error, operation, sending, signal);
    } finally {
      sending.end();
    }
  }

  /** @throws {NotFoundError} an id that no flow or asset can have. */
  #url(...segments: readonly string[]): URL {
    for (const segment of segments) {
      if (isUsableId(segment)) continue;
      throw new NotFoundError(`Nothing can have the id ${JSON.stringify(cut(segment))}`, { knownToBeServed: true });
    }
    return new URL([this.#base, ...segments.map(encodeURIComponent)].join('/'));
  }
}

/** A body while it is being sent: what goes wrong with it is kept apart from what goes wrong with the connection. */
class Sending {
  readonly body: RequestBody | undefined;
  failure: { readonly error: unknown } | undefined;
  readonly #over = new AbortController();

  constructor(body: FlowBody | undefined, signal: AbortSignal) {
    if (body === undefined) return;
    const chunks = body.chunks(AbortSignal.any([signal, this.#over.signal]));
    this.body = { bytes: body.bytes, chunks: this.#watched(chunks) };
  }

  /** Lets go of the input: an answer or a failure may come while it is still being read. */
  end(): void {
    if (this.body !== undefined) this.#over.abort();
  }

  async *#watched(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    try {
      yield* chunks;
    } catch (error) {
      this.failure = { error };
      throw error;
    }
  }
}

/** What it means that a request got no answer. */
function sendingFailure(error: unknown, operation: Operation, { failure }: Sending, signal: AbortSignal): unknown {
  if (!(error instanceof TransportError)) return error;
  const message = `${operation}: ${error.message}`;
  // Whether by our own giving up or by the connection's failing: what was sent to its end may have been done.
  if (operation === 'create' && error.sent === 'all') return new InDoubtError(message, { cause: error });
  if (signal.aborted) return signal.reason;
  if (failure !== undefined) return failure.error;
  return new UnavailableError(message, { cause: error, bodyStarted: error.sent !== 'nothing' });
}

/** What it means that an answer could not be read to its end. */
function readingFailure(error: unknown, signal: AbortSignal): unknown {
  if (signal.aborted) return signal.reason;
  if (!(error instanceof TransportError)) return error;
  return new UnavailableError(`The answer broke off: ${error.message}`, { cause: error, bodyStarted: false });
}

/** The bytes of an asset's answer. A connection that ends early has cut it; one that stalls may do better next time. */
async function* received({ body }: TransportResponse, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  try {
    yield* body;
  } catch (error) {
    if (error instanceof TransportError && !error.timedOut && !signal.aborted) {
      throw new DamagedAssetError(`The answer was cut: ${error.message}`, { cause: error });
    }
    throw readingFailure(error, signal);
  }
}

/** The beginning of a refusal's body; nothing where there is none to be had, for the status says what matters. */
async function beginningOf(response: TransportResponse): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  try {
    if (!isEncoded(response)) {
      for await (const chunk of response.body) {
        chunks.push(chunk);
        bytes += chunk.byteLength;
        if (bytes > REFUSAL_BYTES_MAX) break;
      }
    }
  } catch (error) {
    if (!(error instanceof TransportError)) throw error;
  }
  response.destroy();
  return Buffer.concat(chunks).toString('utf8', 0, REFUSAL_BYTES_MAX);
}

/** The error for a status that is no success. `POST /flows` has a few of its own: see {@link HttpFlowService.create}. */
function refusalOf(
  message: string,
  { status, headers }: TransportResponse,
  { now, isServed, bodyStarted }: { now: number; isServed: boolean; bodyStarted: boolean },
): FlowServiceError {
  const throttled = (): ThrottledError =>
    new ThrottledError(message, { retryAfterMs: retryAfterMs({ headers }, now) ?? exhaustedMs({ headers }, now) });
  switch (status) {
    case 401:
      return new UnauthorisedError(message);
    case 403:
      return new ForbiddenError(message);
    case 404:
      return new NotFoundError(message, { knownToBeServed: isServed });
    case 405:
    case 501:
      return new NotServedError(message);
    case 408: // The request did not come whole in time (RFC 9110, section 15.5.9), and so was not acted upon.
      return new UnavailableError(message, { bodyStarted });
    case 409:
    case 425:
      return new NotReadyError(message);
    case 410: // It was here: the service says so.
      return new NotFoundError(message, { knownToBeServed: true });
    case 402: // A spent account is filled up by somebody; no file is at fault, and none should have to be sent again by hand.
    case 429:
      return throttled();
  }
  if (status === 503 && headers['retry-after'] !== undefined) return throttled();
  if (status >= 500) return new UnavailableError(message, { bodyStarted });
  if (status >= 400) return new RejectedError(message, { status });
  return new UnintelligibleAnswerError(message);
}

/** Text without the token, should the service have quoted it back. */
function redact(text: string, secret: string | undefined): string {
  if (secret === undefined || secret.length < TOKEN_CHARS_MIN) return text;
  if (latestSpellings?.secret !== secret) latestSpellings = { secret, pattern: spellingsOf(secret) };
  return text.replace(latestSpellings.pattern, '[token]');
}

/** Those of the token in use: made anew for every answer they would be an eighth of what a poll costs. */
let latestSpellings: { readonly secret: string; readonly pattern: RegExp } | undefined;

/** Every way in which JSON or a URL can spell a secret. */
function spellingsOf(secret: string): RegExp {
  const spellings = Array.from(secret, (character) => {
    const digits = character.charCodeAt(0).toString(16).padStart(2, '0');
    const hex = digits.replace(/[a-f]/g, (digit) => `[${digit}${digit.toUpperCase()}]`);
    return `(?:${RegExp.escape(character)}|\\\\${RegExp.escape(character)}|\\\\u00${hex}|%${hex})`;
  });
  return new RegExp(spellings.join(''), 'g');
}

function jsonBody(value: object): FlowBody {
  const bytes = Buffer.from(JSON.stringify(value));
  return {
    bytes: bytes.byteLength,
    async *chunks() {
      yield bytes;
    },
  };
}

const isSuccess = (status: number): boolean => status >= 200 && status < 300;

const isRedirect = ({ status }: TransportResponse): boolean => [301, 302, 303, 307, 308].includes(status);
