import type * as z from 'zod/mini';
import type { Clock } from '../base/clock.ts';
import { downloadAsset } from './asset-download.ts';
import {
  FlowServiceError,
  InDoubtError,
  MisaddressedError,
  NotFoundError,
  NotReadyError,
  NotServedError,
  RejectedError,
  TooSlowError,
  UnauthorisedError,
  UnavailableError,
  UnintelligibleAnswerError,
} from './errors.ts';
import { Listing, type ListingPage } from './flow-listing.ts';
import { FIND_FLOWS_MAX, FIND_PAGES_MAX, findFlows, LISTING_DELAY_MAX_MS, ListingOrder } from './flow-search.ts';
import { PAGE_ANSWER } from './json-answer.ts';
import { flowSubject, type Rank } from './pacer.ts';
import { type FlowBody, flowBody } from './request-body.ts';
import { type Answer, type Call, type CreationRefusal, isSuccess, type RequestOptions, Requests } from './requests.ts';
import {
  createdSchema,
  type FlowPage,
  flowPageSchema,
  flowSchema,
  outputPageSchema,
  templatePageSchema,
} from './schemas.ts';
import type {
  Asset,
  AssetOptions,
  CreateRequest,
  FlowRecord,
  FlowService,
  Found,
  ListingSample,
  OfUpload,
  Output,
  Sought,
} from './types.ts';

/** Time during which a throttled page of the listing of flows is requested again, in milliseconds. */
const LIST_PATIENCE_MS = 5_000;

/** Pages and flows read of the whole listing of flows: ten times the bounds of one search. */
const LIST_PAGES_MAX = 10 * FIND_PAGES_MAX;
const LIST_FLOWS_MAX = 10 * FIND_FLOWS_MAX;

/** Pages and outputs read of one flow, and of templates. A known flow with many outputs has two hundred. */
export const OUTPUT_PAGES_MAX = 100;
export const OUTPUTS_MAX = 10_000;

/**
 * Longest sum of the waits for the pages of such a listing, in milliseconds. Further pages are
 * not requested then. The waits for our turn do not count.
 */
export const PAGES_ANSWER_MS = 60_000;

export interface FlowServiceOptions extends RequestOptions {
  /** Path of the outputs listing: `/flows/{id}/outputs`, `/{id}/outputs`, or `auto` to find out. */
  readonly outputsPath: 'auto' | 'flows' | 'root';
  /** Largest asset that is accepted, in bytes. */
  readonly assetBytesMax: number;
  /** The setting `assetBytesPerSecondMin`. Default: one byte in half a minute. */
  readonly assetBytesPerSecondMin?: number | undefined;
  /** The setting `flowListing`. Default: `any-order`. */
  readonly flowListing?: 'newest-first' | 'any-order' | 'none' | undefined;
  /** Query of the listing of flows: the setting `flowsQuery`. Default: none. */
  readonly flowsQuery?: string | undefined;
  /** Most pages that a search reads. Default: {@link FIND_PAGES_MAX} */
  readonly findPagesMax?: number | undefined;
}

/**
 * The flow service over HTTP.
 * @throws {ForbiddenAddressError} the base address is neither https nor on this machine, or holds credentials.
 */
export function createFlowService(options: FlowServiceOptions): FlowService {
  return new HttpFlowService(options);
}

/**
 * Statuses that show that no flow was made, even if a gateway answers: the request, its token or its time is at fault.
 * Any other status may come from a gateway after the service has made the flow.
 */
const NO_FLOW_STATUSES: readonly number[] = [400, 401, 402, 413, 415, 422, 429];

interface ListingLimits {
  readonly pagesMax: number;
  readonly entriesMax: number;
  /** True if a page that does not mention further pages may still have some. */
  readonly mayBeSilent: boolean;
  readonly rank: Rank;
  /** Longest time for all answers, in milliseconds. Default: no limit but that of each page. */
  readonly answersMs?: number | undefined;
}

/** The limits of the listings of outputs and templates. */
const SHORT_LISTING = {
  pagesMax: OUTPUT_PAGES_MAX,
  entriesMax: OUTPUTS_MAX,
  mayBeSilent: false,
  answersMs: PAGES_ANSWER_MS,
} as const;

class HttpFlowService implements FlowService {
  readonly #requests: Requests;
  readonly #clock: Clock;
  readonly #assetBytesMax: number;
  readonly #assetBytesPerSecondMin: number;
  readonly #flowListing: NonNullable<FlowServiceOptions['flowListing']>;
  readonly #flowsQuery: string;
  readonly #findPagesMax: number;
  /** The candidates for the path of the outputs listing. Only one remains once it has succeeded. */
  #outputsPaths: readonly ('flows' | 'root')[];

  constructor(options: FlowServiceOptions) {
    this.#requests = new Requests(options);
    this.#clock = options.clock;
    this.#assetBytesMax = options.assetBytesMax;
    this.#assetBytesPerSecondMin = options.assetBytesPerSecondMin ?? 0;
    this.#flowListing = options.flowListing ?? 'any-order';
    this.#flowsQuery = options.flowsQuery ?? '';
    this.#findPagesMax = options.findPagesMax ?? FIND_PAGES_MAX;
    this.#outputsPaths = options.outputsPath === 'auto' ? ['flows', 'root'] : [options.outputsPath];
  }

  async create(request: CreateRequest, signal: AbortSignal): Promise<{ readonly flowId: string }> {
    const call: Call = {
      operation: 'create',
      method: 'POST',
      url: this.#requests.url('flows'),
      subject: request.tag.upload,
      uploadId: request.tag.upload,
      startBy: request.startBy,
      isAsked: request.isAsked,
      onWaiting: request.onWaiting,
      beforeSending: request.beforeSending,
      body: async () => {
        const body = await flowBody(request, signal);
        if (body.unfit !== undefined) throw body.unfit;
        return body;
      },
    };
    const answer = await this.#requests.send(call, signal);
    if (!isSuccess(answer.response.status)) throw await this.#creationError(answer, signal);
    try {
      return await this.#requests.read(answer, createdSchema, signal);
    } catch (cause) {
      if (cause instanceof MisaddressedError) throw new InDoubtError(cause.message, { cause });
      const why = cause instanceof Error ? cause.message : String(cause);
      // Its own error says that there is no flow, whatever the status says.
      const isAccepted = !(cause instanceof UnintelligibleAnswerError && cause.isOwnError);
      const what = 'A flow was most probably created, but the answer does not name it';
      throw new InDoubtError(`${what}: ${why}`, { cause, isAccepted });
    }
  }

  async get(
    flowId: string,
    signal: AbortSignal,
    { onSent, uploadId }: Pick<AssetOptions, 'onSent'> & OfUpload = {},
  ): Promise<FlowRecord> {
    const url = this.#requests.url('flows', flowId);
    const call: Call = { operation: 'get', method: 'GET', url, subject: flowSubject(flowId), uploadId, onSent };
    const answer = await this.#requests.send(call, signal);
    return this.#requests.read(answer, flowSchema, signal);
  }

  async outputs(flowId: string, signal: AbortSignal, { uploadId }: OfUpload = {}): Promise<readonly Output[]> {
    const errors: (NotFoundError | NotServedError)[] = [];
    for (const path of this.#outputsPaths) {
      try {
        const outputs = await this.#allOutputs({ flowId, uploadId }, path, signal);
        this.#outputsPaths = [path];
        return outputs;
      } catch (error) {
        if (!(error instanceof NotFoundError || error instanceof NotServedError)) throw error;
        errors.push(error);
      }
    }
    // If one path is not served and the other says 404, the flow may be unknown.
    throw errors.find((error) => error instanceof NotFoundError) ?? errors[0];
  }

  asset(flowId: string, assetId: string, signal: AbortSignal, options: AssetOptions = {}): Promise<Asset> {
    const limits = { assetBytesMax: this.#assetBytesMax, bytesPerSecondMin: this.#assetBytesPerSecondMin };
    return downloadAsset(this.#requests, { flowId, assetId, ...limits, ...options, clock: this.#clock }, signal);
  }

  async abort(flowId: string, signal: AbortSignal, { uploadId }: OfUpload = {}): Promise<FlowServiceError | undefined> {
    const body = () => jsonBody({ action: 'abort' });
    try {
      const url = this.#requests.url('flows', flowId);
      // A subject of its own: a flow whose polls are always throttled may still be aborted.
      const subject = `abort ${flowSubject(flowId)}`;
      const call: Call = { operation: 'abort', method: 'PATCH', url, subject, uploadId, body };
      const answer = await this.#requests.send(call, signal);
      if (!isSuccess(answer.response.status)) throw await this.#requests.errorFor(answer);
      answer.response.destroy();
      return undefined;
    } catch (error) {
      if (error instanceof FlowServiceError) return error;
      throw error;
    }
  }

  async isServing(signal: AbortSignal): Promise<boolean> {
    const limits = { pagesMax: 1, entriesMax: LIST_FLOWS_MAX, rank: 2 } as const;
    try {
      for await (const _ of this.#listFlows(limits, signal).pages()) return true;
      return false;
    } catch (error) {
      if (error instanceof FlowServiceError || signal.aborted) return false;
      throw error;
    }
  }

  async *list(signal: AbortSignal): AsyncGenerator<readonly FlowRecord[]> {
    const listing = this.#listFlows({ pagesMax: LIST_PAGES_MAX, entriesMax: LIST_FLOWS_MAX, rank: 2 }, signal);
    for await (const { page, fresh } of listing.pages()) yield page.flows.filter(({ flowId }) => fresh.has(flowId));
  }

  async templates(signal: AbortSignal): Promise<readonly unknown[]> {
    const url = this.#requests.url('templates');
    const call: Call = {
      operation: 'templates',
      method: 'GET',
      url,
      subject: 'templates',
      patienceMs: LIST_PATIENCE_MS,
    };
    const listing = this.#listing(call, templatePageSchema, { ...SHORT_LISTING, rank: 2 }, signal);
    const templates: unknown[] = [];
    for await (const { page, fresh } of listing.pages()) {
      templates.push(...page.templates.filter((_, index) => fresh.has(page.ids[index] ?? '')));
    }
    if (listing.stopReason === undefined) return templates;
    throw new UnintelligibleAnswerError(`templates: not all templates can be listed: ${listing.stopReason}`);
  }

  async find(
    sought: readonly Sought[],
    signal: AbortSignal,
    hadFlowBefore = async (_before: number): Promise<boolean> => false,
  ): Promise<readonly Found[]> {
    if (this.#flowListing === 'none') {
      return sought.map(() => ({ result: 'unknown', why: 'settings.flowListing says that there is no listing' }));
    }
    const listedBefore = this.#clock.now() - LISTING_DELAY_MAX_MS;
    const isKnownHere = (this.#requests.flowKnownAt ?? Number.POSITIVE_INFINITY) <= listedBefore;
    const limits = { pagesMax: this.#findPagesMax, entriesMax: FIND_FLOWS_MAX, rank: 1 } as const;
    return findFlows({
      sought,
      isNewestFirst: this.#flowListing === 'newest-first',
      list: () => this.#listFlows(limits, signal),
      isFlowKnown: async () => isKnownHere || hadFlowBefore(listedBefore),
    });
  }

  async sample(signal: AbortSignal): Promise<ListingSample> {
    const flows: FlowRecord[] = [];
    let showsAdditional = false;
    const limits = { pagesMax: 2, entriesMax: FIND_FLOWS_MAX, rank: 2 } as const;
    const listing = this.#listFlows(limits, signal);
    const order = new ListingOrder();
    for await (const { page, fresh } of listing.pages()) {
      flows.push(...order.read(page, fresh).map(({ flow }) => flow));
      showsAdditional ||= page.showsAdditional;
    }
    return {
      flows: flows.length,
      hasMore: listing.stopReason !== undefined,
      isNewestFirst: order.isFalling && flows.every(({ createdAt }) => createdAt !== undefined),
      showsAdditional,
      showsEnded: flows.some(({ state }) => state !== 'running'),
    };
  }

  /** The error for a creation without success. Unlike a read, a creation may have taken effect all the same. */
  async #creationError(answer: Answer, signal: AbortSignal): Promise<FlowServiceError> {
    const { status, sent = 'all' } = answer.response;
    const refusal = await this.#requests.refusalOf(answer);
    const cause = await this.#refusalError(refusal, status, signal);
    if (sent !== 'all' || NO_FLOW_STATUSES.includes(status) || cause instanceof UnauthorisedError) return cause;
    // A 5xx of the service itself says that something broke, perhaps after the flow was made.
    return new InDoubtError(cause.message, { cause, isOwnRefusal: refusal.isOwn && status >= 400 && status < 500 });
  }

  /** What the answer to a creation means if no flow was made. */
  async #refusalError(
    { error, blame, misaddressed }: CreationRefusal,
    status: number,
    signal: AbortSignal,
  ): Promise<FlowServiceError> {
    if (blame === 'address' || (blame === 'unclear' && !(await this.isServing(signal)))) return misaddressed;
    if (error instanceof NotReadyError && status === 425) {
      return new UnavailableError(error.message, { cause: error, bodyStarted: true });
    }
    const isForGood =
      error instanceof NotFoundError ||
      error instanceof NotServedError ||
      error instanceof NotReadyError ||
      error instanceof UnintelligibleAnswerError;
    return isForGood ? new RejectedError(error.message, { cause: error, status }) : error;
  }

  #listFlows(limits: Omit<ListingLimits, 'mayBeSilent'>, signal: AbortSignal): Listing<FlowPage> {
    // Single polls can replace the listing, so they must not wait until it is allowed.
    const patienceMs = limits.rank === 2 ? LIST_PATIENCE_MS : undefined;
    const url = this.#requests.url('flows');
    url.search = this.#flowsQuery;
    const call: Call = { operation: 'list', method: 'GET', url, subject: 'list', patienceMs };
    return this.#listing(call, flowPageSchema, { ...limits, mayBeSilent: true }, signal);
  }

  /**
   * @throws {UnintelligibleAnswerError} the flow has more outputs than can be read.
   * @throws {TooSlowError} the pages come too slowly.
   */
  async #allOutputs(
    { flowId, uploadId }: OfUpload & { readonly flowId: string },
    path: 'flows' | 'root',
    signal: AbortSignal,
  ): Promise<readonly Output[]> {
    const operation = `outputs of ${path}` as const;
    const segments = path === 'flows' ? ['flows', flowId, 'outputs'] : [flowId, 'outputs'];
    const url = this.#requests.url(...segments);
    const call: Call = { operation, method: 'GET', url, subject: flowSubject(flowId), uploadId };
    const listing = this.#listing(call, outputPageSchema, { ...SHORT_LISTING, rank: 0 }, signal);
    const outputs: Output[] = [];
    for await (const { page, fresh } of listing.pages()) {
      // Not `push(...)`: a page may have more outputs than a call can have arguments.
      for (const output of page.outputs) if (fresh.has(output.assetId)) outputs.push(output);
    }
    if (listing.stopReason === undefined) return outputs;
    throw new UnintelligibleAnswerError(`${operation}: not all outputs can be listed: ${listing.stopReason}`);
  }

  #listing<S extends z.ZodMiniType<ListingPage>>(
    call: Call,
    schema: S,
    { rank, answersMs = Number.POSITIVE_INFINITY, ...limits }: ListingLimits,
    signal: AbortSignal,
  ): Listing<z.infer<S>> {
    let secret: string | undefined;
    let leftMs = answersMs;
    const read = async (url: URL) => {
      if (leftMs <= 0) throw new TooSlowError(`${call.operation}: no whole listing came in ${answersMs} ms`);
      let sentAt = this.#clock.now();
      const onSent = (): void => {
        sentAt = this.#clock.now();
      };
      const answer = await this.#requests.send({ ...call, url, rank, onSent }, signal);
      secret = answer.secret;
      const page = await this.#requests.read(answer, schema, signal, PAGE_ANSWER);
      leftMs -= this.#clock.now() - sentAt;
      return { page, link: answer.response.headers.link };
    };
    const isForToken = (target: URL): boolean => this.#requests.isForToken(target, secret);
    return new Listing({ ...limits, url: call.url, isForToken, read });
  }
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
