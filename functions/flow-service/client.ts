import { messageOf } from '../base/printable.ts';
import {
  createdReader,
  type FlowPage,
  flowPageReader,
  flowReader,
  idInHeader,
  outputPageReader,
  pathOf,
  type Reader,
  shownFlowReader,
  templatePageReader,
} from './answers.ts';
import type { downloadAsset } from './asset-download.ts';
import {
  FlowServiceError,
  InDoubtError,
  MisaddressedError,
  NoAddressError,
  NotFoundError,
  NotReadyError,
  NotServedError,
  RejectedError,
  ThrottledError,
  TooSlowError,
  UnauthorisedError,
  UnavailableError,
  UnintelligibleAnswerError,
} from './errors.ts';
import { Listing, type ListingPage, missingOf } from './flow-listing.ts';
import { FIND_FLOWS_MAX, FIND_PAGES_MAX, findFlows, LISTING_DELAY_MAX_MS, ListingOrder } from './flow-search.ts';
import { leadsBelow } from './foreign-answer.ts';
import { PAGE_BYTES_MAX } from './json-answer.ts';
import { type LinkedOutput, type LinkedResults, linkedOutputsReader } from './linked-outputs.ts';
import { flowSubject, outputsSubject, type Rank } from './pacer.ts';
import { filled, flowBody, jsonBody } from './request-body.ts';
import { type Answer, type Call, isSuccess, type RequestOptions, Requests } from './requests.ts';
import {
  inputUrlSeconds,
  type LinkedOutputs,
  type PagedListing,
  type ServiceDescription,
  type StateDescription,
} from './service-description.ts';
import type {
  Asset,
  AssetOptions,
  CreateRequest,
  FlowRecord,
  FlowService,
  ListingSample,
  OfUpload,
  Output,
  OutputsOptions,
} from './types.ts';

/** How long the answer to a health check is known, in milliseconds. Otherwise each of many doubts would ask. */
const HEALTH_KNOWN_MS = 20_000;

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
  /** Largest asset that is accepted, in bytes. */
  readonly assetBytesMax: number;
  /** Fetches assets. Default: none is fetched. create-flow needs none, and its bundle is smaller without that code. */
  readonly download?: typeof downloadAsset | undefined;
  /** The setting `assetBytesPerSecondMin`. Default: one byte in half a minute. */
  readonly assetBytesPerSecondMin?: number | undefined;
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
 * Statuses that show that no flow was made, even if a gateway answers: the request is at fault. So does a declared refusal,
 * such as a spent credit. Any other status may come from a gateway after the service has made the flow.
 */
const NO_FLOW_STATUSES: readonly number[] = [400, 413, 415, 422];

interface ListingLimits {
  readonly pagesMax: number;
  readonly entriesMax: number;
  readonly rank: Rank;
  /** Longest time for all answers, in milliseconds. Default: no limit but that of each page. */
  readonly answersMs?: number | undefined;
}

/** Flows whose results are remembered by their addresses, and results of each. They have some hundred bytes. */
const FLOWS_REMEMBERED_MAX = 100;
const LINKS_REMEMBERED_MAX = 1_000;

/**
 * What stays of a result if a list of results changes its order: the address without its signature, and the place without
 * the numbers. A data URI has only its place.
 */
const addressOf = ({ address = '', pointer }: LinkedOutput): string =>
  /^https?:/i.test(address) ? `${pointer.replace(/\/\d+(?=\/|$)/g, '')} ${pathOf(address)}` : pointer;

class HttpFlowService implements FlowService {
  readonly #requests: Requests;
  readonly #options: FlowServiceOptions;
  readonly service: ServiceDescription;
  /** The candidates for the path of the outputs. Only one remains once it has succeeded. */
  #outputsPaths: readonly string[];
  /** The last answer to a health check, for those that ask soon after. */
  #health:
    | { readonly template: string | undefined; readonly until: number; readonly answer: Promise<void> }
    | undefined;
  /** By flow: the ids of the results that its answers link, by their addresses. A new process knows none. */
  readonly #idsOf = new Map<string, Map<string, string>>();

  constructor(options: FlowServiceOptions) {
    const { service } = options;
    this.#requests = new Requests(options);
    this.#options = options;
    this.service = service;
    this.#outputsPaths = [service.outputs.path ?? service.state.path].flat();
  }

  async create(request: CreateRequest, signal: AbortSignal): Promise<{ readonly flowId: string }> {
    const { method = 'POST', path, body } = this.service.create;
    const call: Call = {
      operation: 'create',
      method,
      url: this.#creationUrl(path, request.template),
      subject: request.tag.upload,
      uploadId: request.tag.upload,
      startBy: request.startBy,
      isAsked: request.isAsked,
      onWaiting: request.onWaiting,
      beforeSending: request.beforeSending,
      body: async () => {
        const filled = await flowBody(body, { ...request, inputUrl: await this.#inputUrl(request, signal) }, signal);
        if (filled.unfit !== undefined) throw filled.unfit;
        return filled;
      },
    };
    const answer = await this.#requests.send(call, signal);
    if (!isSuccess(answer.response.status)) throw await this.#creationError(answer, signal);
    try {
      const { id } = this.service.create;
      if (typeof id === 'string' || !('header' in id))
        return await this.#requests.read(answer, createdReader(id, this.service), signal);
      const flowId = idInHeader(answer, id.header, this.service.state);
      await this.#requests.acknowledge(answer, signal, flowId !== undefined);
      if (flowId !== undefined) return { flowId };
      const correct = 'correct "create.id", or "state.path", which an address there must fit';
      throw new UnintelligibleAnswerError(`no usable id in the header ${id.header}: ${correct}`);
    } catch (cause) {
      if (cause instanceof MisaddressedError) throw new InDoubtError(cause.message, { cause });
      // In the words that the description declares, the service says that there is none.
      if ([ThrottledError, UnauthorisedError, RejectedError].some((each) => cause instanceof each)) throw cause;
      // Its own error says that there is no flow, whatever the status says.
      const isAccepted = !(cause instanceof UnintelligibleAnswerError && cause.isOwnError);
      const what = 'A flow may have been created, but the answer does not name it for certain';
      throw new InDoubtError(`${what}: ${messageOf(cause)}`, { cause, isAccepted });
    }
  }

  async #inputUrl({ inputs }: CreateRequest, signal: AbortSignal): Promise<string | undefined> {
    const seconds = inputUrlSeconds(this.service);
    if (seconds === undefined) return undefined;
    const address = inputs[0]?.address;
    // An upload without one is not sent: see `admission.ts`.
    if (address === undefined) throw new TypeError('The input has no address that the service could fetch it from');
    return address(seconds, signal);
  }

  /** @throws {RejectedError} no path can hold the template. A retry would not help. */
  #creationUrl(path: string, template: string): URL {
    try {
      return this.#requests.url(path, { template });
    } catch (cause) {
      if (!(cause instanceof NotFoundError)) throw cause;
      throw new RejectedError(cause.message, { cause, status: 404 });
    }
  }

  readonly get: FlowService['get'] = (flowId, signal, options = {}) =>
    this.#state(flowId, flowReader(flowId, this.service.state), signal, options);

  readonly show: FlowService['show'] = (flowId, signal, of) =>
    this.#state(flowId, shownFlowReader(this.service.state), signal, { ...of, patienceMs: LIST_PATIENCE_MS });

  async #state<T>(
    flowId: string,
    reader: Reader<T>,
    signal: AbortSignal,
    { template, ...options }: Pick<Call, 'onSent' | 'patienceMs'> & OfUpload,
  ): Promise<T> {
    const request = this.#about(flowId, this.service.state, template);
    const call: Call = { operation: 'get', ...request, subject: flowSubject(flowId), ...options };
    const { outputs } = this.service;
    const failed = 'addresses' in outputs && !outputs.path ? outputs.failed : undefined;
    return this.#requests.read(await this.#requests.send(call, signal), reader, signal, { failed });
  }

  async outputs(flowId: string, signal: AbortSignal, options: OutputsOptions = {}): Promise<readonly Output[]> {
    const { hasFailed, ...of } = options;
    const { outputs: described } = this.service;
    if ('addresses' in described) {
      const { links, nothing, page, answer, isRunning } = await this.#links(flowId, described, signal, of);
      // Another replica may be behind the one that said that the flow has ended.
      if (isRunning && hasFailed !== true) throw new NotReadyError('outputs: the flow is shown as running');
      if (nothing !== undefined) throw new NoAddressError(`outputs: ${nothing}`);
      // Beside addresses, "pages" can only say that there are none.
      const missing = described.pages === undefined ? missingOf(page, answer.response) : undefined;
      if (missing !== undefined) throw notAll(answer.operation, 'outputs', missing);
      return links.map(({ assetId, error, word }) => {
        if (error !== undefined) return { assetId, status: 'failed', error };
        return word === undefined
          ? { assetId, status: 'ready' }
          : { assetId, status: 'pending', word, isDeclared: true };
      });
    }
    const errors: (NotFoundError | NotServedError)[] = [];
    for (const path of this.#outputsPaths) {
      try {
        const listing = { reader: outputPageReader(described, this.service, hasFailed), pages: described.pages };
        const outputs = await this.#all('outputs', this.#outputsCall(flowId, path, of), listing, signal);
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

  async asset(flowId: string, assetId: string, signal: AbortSignal, options: AssetOptions = {}): Promise<Asset> {
    const { outputs } = this.service;
    const { download, assetBytesMax, assetBytesPerSecondMin: bytesPerSecondMin = 0, clock } = this.#options;
    if (download === undefined) throw new TypeError('This client fetches no assets');
    const isBare = outputs.base64;
    const request = { flowId, assetId, assetBytesMax, bytesPerSecondMin, clock, isBare, ...options };
    if (!('addresses' in outputs)) {
      const url = this.#requests.url(outputs.asset, { id: flowId, asset: assetId, template: options.template });
      return download(this.#requests, { ...request, from: { url, method: 'GET' }, data: outputs.data }, signal);
    }
    // Asked for anew at each attempt, because addresses expire.
    const { links, answer, isRunning } = await this.#links(flowId, outputs, signal, options);
    const link = links.find((each) => each.assetId === assetId);
    if (link?.word !== undefined) throw new NotReadyError(`asset: the service shows it as "${link.word}"`);
    if (link?.address === undefined) {
      if (isRunning) throw new NotReadyError('asset: the flow is shown as running');
      throw new NotFoundError(`The flow has no address of ${assetId} any more`, { knownToBeServed: true });
    }
    if (!/^data:/i.test(link.address)) {
      return download(this.#requests, { ...request, from: { answer, address: link.address } }, signal);
    }
    const { method, url, body } = this.#outputsCall(flowId, outputs.path, options);
    return download(
      this.#requests,
      { ...request, from: { method, url, body }, data: link.pointer, isEnvelope: true },
      signal,
    );
  }

  readonly abort: FlowService['abort'] = (flowId, signal, of) => this.#change('abort', flowId, signal, of);

  readonly delete: FlowService['delete'] = (flowId, signal, of) => this.#change('delete', flowId, signal, of);

  /** Returns why it failed. Throws only the signal's reason. */
  async #change(
    operation: 'abort' | 'delete',
    flowId: string,
    signal: AbortSignal,
    { uploadId, template, startBy }: OfUpload & Pick<CreateRequest, 'startBy'> = {},
  ): Promise<FlowServiceError | undefined> {
    const change = this.service[operation];
    if (change === undefined) {
      return new NotServedError(`The description of the service has no way to ${operation} a flow`);
    }
    try {
      const call = { ...this.#about(flowId, change, template), method: change.method };
      // A subject of its own: a flow whose polls are always throttled may still be aborted.
      const subject = `${operation} ${flowSubject(flowId)}`;
      const answer = await this.#requests.send({ ...call, operation, subject, uploadId, startBy }, signal);
      await this.#requests.acknowledge(answer, signal);
      return undefined;
    } catch (error) {
      if (error instanceof FlowServiceError) return error;
      throw error;
    }
  }

  /** The addresses in the answer about a flow. */
  async #links(
    flowId: string,
    linked: LinkedOutputs,
    signal: AbortSignal,
    of: OfUpload,
  ): Promise<LinkedResults & { readonly answer: Answer }> {
    const call = this.#outputsCall(flowId, linked.path, of);
    const answer = await this.#requests.send(call, signal);
    const reader = linkedOutputsReader(linked, this.service);
    const { failed } = linked;
    const results = await this.#requests.read(answer, reader, signal, { bytesMax: PAGE_BYTES_MAX, failed });
    return { ...results, links: this.#withKnownIds(flowId, results.links), answer };
  }

  /**
   * A service may list the same results in another order each time. So an address keeps the id with which it came first,
   * and new ones take the ids that are left. If all are new, each has the id of its place.
   */
  #withKnownIds(flowId: string, links: readonly LinkedOutput[]): readonly LinkedOutput[] {
    const known = this.#idsOf.get(flowId);
    const addresses = links.map(addressOf);
    if (links.length > LINKS_REMEMBERED_MAX || new Set(addresses).size < links.length) return links;
    const kept = new Set(addresses.flatMap((address) => known?.get(address) ?? []));
    const ids = links.map(
      ({ assetId }, index) => known?.get(addresses[index] as string) ?? (kept.has(assetId) ? undefined : assetId),
    );
    const left = [...new Set(links.map(({ assetId }) => assetId)).difference(new Set(ids))];
    const named = links.map((link, index) => ({ ...link, assetId: ids[index] ?? left.shift() ?? link.assetId }));
    this.#idsOf.delete(flowId); // The flow becomes the newest one.
    this.#idsOf.set(flowId, new Map(named.map(({ assetId }, index) => [addresses[index] as string, assetId])));
    const [oldest] = this.#idsOf.keys();
    if (this.#idsOf.size > FLOWS_REMEMBERED_MAX) this.#idsOf.delete(oldest as string);
    return named;
  }

  async checkHealth(unknownId: string, signal: AbortSignal, options: OfUpload = {}): Promise<void> {
    const now = this.#options.clock.now();
    const { template } = options;
    if (this.#health === undefined || this.#health.template !== template || now >= this.#health.until) {
      const answer = this.#askForHealth(unknownId, signal, options);
      this.#health = { template, until: now + HEALTH_KNOWN_MS, answer };
    }
    try {
      await this.#health.answer;
    } catch (error) {
      // This caller's time was over, which says nothing to the next one.
      if (!(error instanceof FlowServiceError)) this.#health = undefined;
      throw error;
    }
  }

  async #askForHealth(unknownId: string, signal: AbortSignal, options: OfUpload): Promise<void> {
    const isListed = this.service.list !== undefined;
    try {
      await (isListed ? this.list(signal).next() : this.show(unknownId, signal, options));
    } catch (error) {
      if (!(error instanceof FlowServiceError) || error instanceof ThrottledError) throw error;
      if (error instanceof UnavailableError && (isListed || error.status !== 500)) throw error;
    }
  }

  async isServing(signal: AbortSignal): Promise<boolean> {
    try {
      for await (const _ of this.list(signal)) return true;
      return false;
    } catch (error) {
      if (error instanceof FlowServiceError || signal.aborted) return false;
      throw error;
    }
  }

  async *list(signal: AbortSignal): AsyncGenerator<readonly FlowRecord[]> {
    const listing = this.#listFlows({ pagesMax: LIST_PAGES_MAX, entriesMax: LIST_FLOWS_MAX, rank: 2 }, signal);
    for await (const { freshItems } of listing.pages()) yield freshItems;
  }

  async templates(signal: AbortSignal): Promise<readonly unknown[]> {
    const { templates: described } = this.service;
    if (described === undefined) throw new NotServedError('The description of the service has no listing of templates');
    const listing = { reader: templatePageReader(described, this.service), pages: described.pages };
    return this.#all('templates', this.#listingCall('templates', described.path, 2), listing, signal);
  }

  readonly find: FlowService['find'] = async (sought, signal, known) => {
    const { list } = this.service;
    if (list === undefined) {
      return sought.map(() => ({ result: 'unknown', why: 'the description of the service has no listing of flows' }));
    }
    const listedBefore = this.#options.clock.now() - LISTING_DELAY_MAX_MS;
    const isKnownHere = (this.#requests.flowKnownAt ?? Number.POSITIVE_INFINITY) <= listedBefore;
    const isFlowKnown = async () => isKnownHere || (await known?.hadFlowBefore(listedBefore, signal)) === true;
    let isKnown: Promise<boolean> | undefined;
    const { findPagesMax: pagesMax = FIND_PAGES_MAX } = this.#options;
    return findFlows({
      sought,
      isNewestFirst: list.order === 'newest-first',
      list: () => this.#listFlows({ pagesMax, entriesMax: FIND_FLOWS_MAX, rank: 1 }, signal),
      isFlowKnown: () => {
        isKnown ??= isFlowKnown();
        return isKnown;
      },
      madeSince: async (since) => (await known?.flowsMade({ since, before: listedBefore }, signal)) ?? [],
    });
  };

  async sample(signal: AbortSignal): Promise<ListingSample> {
    const flows: FlowRecord[] = [];
    let [showsAdditional, unnamed] = [false, 0];
    const listing = this.#listFlows({ pagesMax: 2, entriesMax: FIND_FLOWS_MAX, rank: 2 }, signal);
    const order = new ListingOrder();
    for await (const read of listing.pages()) {
      const { page } = read;
      flows.push(...order.read(read));
      showsAdditional ||= page.showsAdditional;
      unnamed += page.entries - page.items.length;
    }
    return {
      flows: flows.length,
      hasMore: listing.stopReason !== undefined,
      isNewestFirst: order.isFalling && flows.every(({ createdAt }) => createdAt !== undefined),
      showsAdditional,
      showsEnded: flows.some(({ state }) => state !== 'running'),
      pages: listing.pagesRead,
      ...(unnamed > 0 && { unnamed }),
      words: [...Map.groupBy(flows, ({ word }) => word).values()].flatMap(([first, ...others]) =>
        first === undefined
          ? []
          : [{ word: first.word, state: first.state, isDeclared: first.isDeclared, flows: others.length + 1 }],
      ),
      ...(listing.stopReason !== undefined && !listing.isCut && { unreadMore: listing.stopReason }),
    };
  }

  /** The error for a creation without success. Unlike a read, a creation may have taken effect all the same. */
  async #creationError(answer: Answer, signal: AbortSignal): Promise<FlowServiceError> {
    const { status, refusal: meaning, sent = 'all' } = answer.response;
    const { error, isOwn } = await this.#requests.creationErrorFor(answer, () => this.isServing(signal));
    const cause = withoutFlow(error, status);
    const isNone = NO_FLOW_STATUSES.includes(status) || (meaning ?? 'notReady') !== 'notReady';
    if (sent !== 'all' || isNone || cause instanceof UnauthorisedError) return cause;
    // A 5xx of the service itself says that something broke, a 408 that it took too long: perhaps after the flow was made.
    const isOwnRefusal = isOwn && status >= 400 && status < 500 && status !== 408;
    // A redirect to below the path leads to what was made.
    return new InDoubtError(cause.message, { cause, isOwnRefusal, isAccepted: leadsBelow(answer, answer.url) });
  }

  /** @throws {NotServedError} the description has no listing of flows. */
  #listFlows({ rank, ...limits }: ListingLimits, signal: AbortSignal): Listing<FlowPage> {
    const { list } = this.service;
    if (list === undefined) throw new NotServedError('The description of the service has no listing of flows');
    const call = this.#listingCall('list', list.path, rank);
    const own = call.url.search;
    if (list.query !== undefined) call.url.search = own === '' ? list.query : `${own}&${list.query}`;
    return this.#listing(call, flowPageReader(list, this.service), { ...limits, pages: list.pages }, signal);
  }

  #listingCall(operation: 'list' | 'templates', path: string, rank: Rank): Call {
    // Single polls can replace the listing of flows, so they must not wait until it is allowed.
    const patienceMs = rank === 2 ? LIST_PATIENCE_MS : undefined;
    return { operation, method: 'GET', url: this.#requests.url(path), subject: operation, rank, patienceMs };
  }

  /** The request for what the flow has made. */
  #outputsCall(flowId: string, described: string | undefined, { uploadId, template }: OfUpload): Call {
    const { state } = this.service;
    const path = described ?? state.path;
    const request = this.#about(flowId, path === state.path ? state : { path }, template);
    return { operation: `outputs at ${path}`, ...request, subject: outputsSubject(flowId), uploadId };
  }

  /** A request about a flow. With a body, it is a `POST`. */
  #about(
    flowId: string,
    { path, body }: Pick<StateDescription, 'path' | 'body'>,
    template: string | undefined,
  ): Pick<Call, 'method' | 'url' | 'body'> {
    return {
      method: body === undefined ? 'GET' : 'POST',
      url: this.#requests.url(path, { id: flowId, template }),
      body: body && (() => jsonBody(filled(body, { '{id}': flowId, '{template}': template }))),
    };
  }

  /**
   * All that a short listing has.
   * @throws {UnintelligibleAnswerError} it has more than can be read.
   * @throws {TooSlowError} the pages come too slowly.
   */
  async #all<T>(
    what: string,
    call: Call,
    { reader, pages }: { readonly reader: Reader<ListingPage<T>> } & Pick<PagedListing, 'pages'>,
    signal: AbortSignal,
  ): Promise<readonly T[]> {
    const limits = { pagesMax: OUTPUT_PAGES_MAX, entriesMax: OUTPUTS_MAX, answersMs: PAGES_ANSWER_MS };
    const listing = this.#listing(call, reader, { ...limits, pages }, signal);
    const items = (await Array.fromAsync(listing.pages(), ({ freshItems }) => freshItems)).flat();
    if (listing.stopReason === undefined) return items;
    throw notAll(call.operation, what, listing.stopReason);
  }

  #listing<P extends ListingPage<unknown>>(
    call: Call,
    reader: Reader<P>,
    { answersMs = Number.POSITIVE_INFINITY, ...options }: Omit<ListingLimits, 'rank'> & Pick<PagedListing, 'pages'>,
    signal: AbortSignal,
  ): Listing<P> {
    const { clock } = this.#options;
    let secret: string | undefined;
    let leftMs = answersMs;
    const read = async (url: URL) => {
      if (leftMs <= 0) throw new TooSlowError(`${call.operation}: no whole listing came in ${answersMs} ms`);
      let sentAt = clock.now();
      const onSent = (): void => {
        sentAt = clock.now();
      };
      const answer = await this.#requests.send({ ...call, url, onSent }, signal);
      secret = answer.secret;
      const page = await this.#requests.read(answer, reader, signal, { bytesMax: PAGE_BYTES_MAX });
      leftMs -= clock.now() - sentAt;
      return { page, response: answer.response };
    };
    const isForToken = (target: URL): boolean => this.#requests.isForToken(target, secret);
    return new Listing({ ...options, url: call.url, isForToken, read });
  }
}

/** What the error of a creation means if no flow was made. */
function withoutFlow(error: FlowServiceError, status: number): FlowServiceError {
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

const notAll = (operation: string, what: string, why: string): UnintelligibleAnswerError =>
  new UnintelligibleAnswerError(`${operation}: not all ${what} can be listed: ${why}`);
