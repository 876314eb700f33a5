import type * as z from 'zod/mini';
import { CLOCK_SKEW_MAX_MS, type Clock } from '../base/clock.ts';
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
  UnavailableError,
  UnintelligibleAnswerError,
} from './errors.ts';
import { Listing, type ListingPage, type ListingPlace } from './flow-listing.ts';
import { filteredSince, withoutFilter } from './flow-query.ts';
import { FIND_FLOWS_MAX, FIND_PAGES_MAX, findFlow, LISTING_DELAY_MAX_MS, type Query } from './flow-search.ts';
import { FILTER_MARGIN_MS } from './flow-sightings.ts';
import { PAGE_ANSWER } from './json-answer.ts';
import type { LearntPace } from './learnt-rate.ts';
import type { Rank } from './pace.ts';
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
import type { QueryKind } from './search-place.ts';
import { flowSubject } from './throttled-subjects.ts';
import type {
  Asset,
  AssetOptions,
  CreateRequest,
  FindOptions,
  FlowRecord,
  FlowService,
  FlowTag,
  Found,
  Output,
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
  /** Query of the listing of flows in a search: the setting `flowsQuery`. Default: none. */
  readonly flowsQuery?: string | undefined;
  /** Most pages that one look of a search reads. Default: {@link FIND_PAGES_MAX} */
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
  readonly from?: ListingPlace | undefined;
  /** Query of the first page. */
  readonly query?: URLSearchParams | undefined;
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
  readonly #flowsQuery: string;
  readonly #findPagesMax: number;
  /** Queries that were rejected or did not filter in this process. They are not used again. */
  readonly #unusableQueries = new Set<QueryKind>();
  /** The candidates for the path of the outputs listing. Only one remains once it has succeeded. */
  #outputsPaths: readonly ('flows' | 'root')[];

  constructor(options: FlowServiceOptions) {
    this.#requests = new Requests(options);
    this.#clock = options.clock;
    this.#assetBytesMax = options.assetBytesMax;
    this.#assetBytesPerSecondMin = options.assetBytesPerSecondMin ?? 0;
    this.#flowsQuery = options.flowsQuery ?? '';
    this.#findPagesMax = options.findPagesMax ?? FIND_PAGES_MAX;
    this.#outputsPaths = options.outputsPath === 'auto' ? ['flows', 'root'] : [options.outputsPath];
  }

  get learntPace(): LearntPace | undefined {
    return this.#requests.pacer.learnt;
  }

  get isCreationLimited(): boolean {
    return this.#requests.pacer.isCreationLimited;
  }

  resumePace(learnt: LearntPace): void {
    this.#requests.pacer.resume(learnt);
  }

  prepare(signal: AbortSignal): Promise<void> {
    return this.#requests.prepare(signal);
  }

  async create(request: CreateRequest, signal: AbortSignal): Promise<{ readonly flowId: string }> {
    const call: Call = {
      operation: 'create',
      method: 'POST',
      url: this.#requests.url('flows'),
      subject: request.tag.upload,
      startBy: request.startBy,
      body: () => flowBody(request, signal),
    };
    const answer = await this.#requests.send(call, signal);
    if (!isSuccess(answer.response.status)) throw await this.#creationError(answer, signal);
    try {
      return await this.#requests.read(answer, createdSchema, signal);
    } catch (cause) {
      if (cause instanceof MisaddressedError) throw new InDoubtError(cause.message, { cause });
      throw new InDoubtError('A flow was created, but the answer does not name it', { cause });
    }
  }

  async get(flowId: string, signal: AbortSignal, { onSent }: Pick<AssetOptions, 'onSent'> = {}): Promise<FlowRecord> {
    const url = this.#requests.url('flows', flowId);
    const call: Call = { operation: 'get', method: 'GET', url, subject: flowSubject(flowId), onSent };
    const answer = await this.#requests.send(call, signal);
    return this.#requests.read(answer, flowSchema, signal);
  }

  async outputs(flowId: string, signal: AbortSignal): Promise<readonly Output[]> {
    const errors: (NotFoundError | NotServedError)[] = [];
    for (const path of this.#outputsPaths) {
      try {
        const outputs = await this.#allOutputs(flowId, path, signal);
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

  async abort(flowId: string, signal: AbortSignal): Promise<boolean> {
    const body = () => jsonBody({ action: 'abort' });
    try {
      const url = this.#requests.url('flows', flowId);
      // A subject of its own: a flow whose polls are always throttled may still be aborted.
      const subject = `abort ${flowSubject(flowId)}`;
      const answer = await this.#requests.send({ operation: 'abort', method: 'PATCH', url, subject, body }, signal);
      if (!isSuccess(answer.response.status)) throw await this.#requests.errorFor(answer);
      answer.response.destroy();
      return true;
    } catch (error) {
      const cannotAbort =
        error instanceof NotFoundError || error instanceof NotServedError || error instanceof NotReadyError;
      if (cannotAbort) return false;
      throw error;
    }
  }

  async isServing(signal: AbortSignal): Promise<boolean> {
    const limits = { pagesMax: 1, entriesMax: LIST_FLOWS_MAX, rank: 2 } as const;
    try {
      for await (const _ of this.#flowListing(limits, signal).pages()) return true;
      return false;
    } catch (error) {
      if (error instanceof FlowServiceError || signal.aborted) return false;
      throw error;
    }
  }

  async *list(signal: AbortSignal): AsyncGenerator<readonly FlowRecord[]> {
    const listing = this.#flowListing({ pagesMax: LIST_PAGES_MAX, entriesMax: LIST_FLOWS_MAX, rank: 2 }, signal);
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

  find(tag: FlowTag, since: number, signal: AbortSignal, options: FindOptions = {}): Promise<Found> {
    const { sentBy = since, hadFlowBefore = async () => false, place, onPlace } = options;
    const listedBefore = this.#clock.now() - LISTING_DELAY_MAX_MS;
    const isKnownHere = (this.#requests.flowKnownAt ?? Number.POSITIVE_INFINITY) <= listedBefore;
    return findFlow({
      tag,
      since,
      sentBy,
      now: () => this.#clock.now(),
      isEarly: listedBefore < sentBy,
      isFlowKnown: async () => isKnownHere || hadFlowBefore(listedBefore),
      queries: this.#queriesSince(since - CLOCK_SKEW_MAX_MS - FILTER_MARGIN_MS, signal),
      flowsQuery: this.#flowsQuery,
      onUnusable: (kind) => this.#unusableQueries.add(kind),
      place,
      onPlace,
    });
  }

  /** The queries for the listing of flows that may work, the best one first. The last one has no parameters. */
  #queriesSince(time: number, signal: AbortSignal): readonly Query[] {
    const limits = { pagesMax: this.#findPagesMax, entriesMax: FIND_FLOWS_MAX, rank: 1 } as const;
    const queryOf = (kind: QueryKind, query?: URLSearchParams): Query => ({
      kind,
      filteredSince: kind === 'filtered' ? time : undefined,
      list: (from) => this.#flowListing({ ...limits, from, query }, signal),
    });
    const filtered = filteredSince(this.#flowsQuery, time);
    const sorted = withoutFilter(this.#flowsQuery);
    return [
      ...(filtered === undefined || this.#unusableQueries.has('filtered') ? [] : [queryOf('filtered', filtered)]),
      ...(sorted.size === 0 || this.#unusableQueries.has('sorted') ? [] : [queryOf('sorted', sorted)]),
      queryOf('plain'),
    ];
  }

  /** The error for a creation without success. Unlike a read, a creation may have taken effect all the same. */
  async #creationError(answer: Answer, signal: AbortSignal): Promise<FlowServiceError> {
    const { status, sent = 'all' } = answer.response;
    const refusal = await this.#requests.refusalOf(answer);
    const cause = await this.#refusalError(refusal, status, signal);
    if (sent !== 'all' || NO_FLOW_STATUSES.includes(status)) return cause;
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

  #flowListing(limits: Omit<ListingLimits, 'mayBeSilent'>, signal: AbortSignal): Listing<FlowPage> {
    // Single polls can replace the listing, so they must not wait until it is allowed.
    const patienceMs = limits.rank === 2 ? LIST_PATIENCE_MS : undefined;
    const url = this.#requests.url('flows');
    if (limits.query !== undefined) url.search = limits.query.toString();
    const call: Call = { operation: 'list', method: 'GET', url, subject: 'list', patienceMs };
    return this.#listing(call, flowPageSchema, { ...limits, mayBeSilent: true }, signal);
  }

  /**
   * @throws {UnintelligibleAnswerError} the flow has more outputs than can be read.
   * @throws {TooSlowError} the pages come too slowly.
   */
  async #allOutputs(flowId: string, path: 'flows' | 'root', signal: AbortSignal): Promise<readonly Output[]> {
    const operation = `outputs of ${path}` as const;
    const segments = path === 'flows' ? ['flows', flowId, 'outputs'] : [flowId, 'outputs'];
    const url = this.#requests.url(...segments);
    const call: Call = { operation, method: 'GET', url, subject: flowSubject(flowId) };
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
    { rank, answersMs = Number.POSITIVE_INFINITY, query: _, ...limits }: ListingLimits,
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
