import type { Json, JsonObject } from '../base/json.ts';
import type { FlowServiceError } from './errors.ts';
import type { ServiceDescription } from './service-description.ts';

/** The member of a flow's `additional` that holds our {@link FlowTag}. Reserved: a route's own data may not use it. */
export const FLOW_TAG_NAME = 'flowdrop';

/** Identifies the upload, and its generation, that a flow belongs to. Every flow that we create carries it. */
export interface FlowTag {
  /** Name of the deployment. It keeps two deployments on one account from taking each other's flows. */
  readonly pipeline: string;
  readonly upload: string;
  readonly generation: number;
}

/** The bytes of an input. `open` may be called again for a second attempt; each call streams from the start. */
export interface InputSource {
  /** Exact number of bytes that `open` yields. A stream that yields more or fewer fails the request. */
  readonly bytes: number;
  open(signal: AbortSignal): Promise<AsyncIterable<Uint8Array>>;
}

export interface CreateRequest {
  readonly template: string;
  readonly parameters?: Json | undefined;
  /** The route's own additional data. The tag is added to it. */
  readonly additional?: JsonObject | undefined;
  readonly tag: FlowTag;
  /** Latest time to send the request, in milliseconds since the epoch. Default: no limit. */
  readonly startBy?: number | undefined;
  /** True if a person asks for it now. Then no backoff holds it up. Default false. */
  readonly isAsked?: boolean | undefined;
  /**
   * Called at most once, when the request has to wait because of a limit of the service: it was refused and will be sent
   * again, or has not been sent for three seconds.
   * @param why in the words of the service, if it has refused a creation.
   * @param until when the service asked to wait then, in milliseconds since the epoch. Undefined if it did not say.
   */
  readonly onWaiting?: ((why: string, until: number | undefined) => void) | undefined;
  /**
   * Called directly before each request. Returns its idempotency key, which is sent if the description of the service
   * names a header for it. If it throws, nothing is sent, and the creation fails with its error.
   */
  readonly beforeSending?: (() => Promise<string>) | undefined;
  readonly inputs: readonly FlowInput[];
}

export interface FlowInput {
  /** `file`: a base64 data URI of `source`, streamed. `text`: the text itself, as a JSON string. */
  readonly as: 'file' | 'text';
  readonly mediaType: string;
  readonly source: InputSource;
  readonly additional: JsonObject;
  /** An address of these bytes, valid for some seconds. Undefined if they are not exactly one version of an object. */
  readonly address?: InputAddress | undefined;
}

/** Makes an address of an input, if the input is there. Everyone who has the address can read it, so it is a secret. */
export type InputAddress = (seconds: number, signal: AbortSignal) => Promise<string>;

/** The states that we tell apart. The description of the service maps its words to them. `gone`: it knows no such flow. */
export type FlowState = 'running' | 'completed' | 'failed' | 'aborted' | 'gone';

export interface FlowRecord {
  readonly flowId: string;
  readonly state: FlowState;
  /** The service's own word for the state. Undefined if it has none. */
  readonly word?: string | undefined;
  /** False if the description does not know the word. Then the flow counts as running. */
  readonly isDeclared?: boolean | undefined;
  /** How far it is, as the service counts. */
  readonly progress?: number | undefined;
  /** Milliseconds since the epoch. Undefined if the service does not say. */
  readonly createdAt?: number | undefined;
  /** The service's own description of the error, cut to 300 characters. */
  readonly error?: string | undefined;
  readonly tag?: FlowTag | undefined;
  /** True if the flow may carry a tag that cannot be read. */
  readonly isTagUnread?: true | undefined;
}

/** What the service answers about one flow, for a person. */
export interface ShownFlow extends Pick<FlowRecord, 'word' | 'isDeclared' | 'progress'> {
  /** JSON of several lines: without the token and the queries of addresses, and with its long texts cut. */
  readonly answer: string;
}

export interface Output {
  /** Empty if the output is pending and has no id yet. */
  readonly assetId: string;
  /** `ready`: can be downloaded. `failed`: will never be ready, says the service. `pending`: not ready yet. */
  readonly status: 'ready' | 'failed' | 'pending';
  readonly error?: string | undefined;
  /** The service's own word for the status of a pending output. Undefined if it has none. */
  readonly word?: string | undefined;
  /** False if the description does not know the word. Then the output counts as pending. */
  readonly isDeclared?: boolean | undefined;
}

/** The upload that a request is about. The service gets it as the id of a trace. */
export interface OfUpload {
  readonly uploadId?: string | undefined;
  /** The flow's template. The service may need it: `needsTemplate` of `service-description.ts`. */
  readonly template?: string | undefined;
}

export interface OutputsOptions extends OfUpload {
  /** True if the flow has failed. Then an error beside the list of its outputs is that of the flow. Default: false. */
  readonly hasFailed?: boolean | undefined;
}

export interface AssetOptions extends OfUpload {
  /** Tells whether an asset may have a media type. Default: any type but that of a document (HTML, JSON, XML). */
  readonly accepts?: ((mediaType: string) => boolean) | undefined;
  /** Called when the request is sent, which may be later than the call: see `pacer.ts`. */
  readonly onSent?: (() => void) | undefined;
}

/** An asset that is being downloaded. */
export interface Asset {
  readonly mediaType: string;
  /** Upper bound of the asset's size: the length of the response. Undefined if the response does not state one. */
  readonly bytesMax?: number | undefined;
  /**
   * The decoded bytes. Each chunk is valid only until the next one is asked for. Iteration ends normally only if the
   * asset is complete and intact. Leaving the loop early destroys the connection.
   * @throws {DamagedAssetError} the response is cut, too long, or cannot be decoded.
   * @throws {AssetTooLargeError} the asset exceeds the limit.
   * @throws {TooSlowError} the asset comes more slowly than the minimum rate, or stops.
   * @throws {UnavailableError} the connection failed.
   */
  readonly chunks: AsyncIterable<Uint8Array>;
}

/**
 * The flow service as the rest of the code sees it. Every method may throw {@link UnauthorisedError} (after one retry
 * with the token read again), {@link ForbiddenError}, {@link ThrottledError}, {@link UnavailableError},
 * {@link UnintelligibleAnswerError}, {@link MisaddressedError} and the signal's reason.
 */
export interface FlowService {
  /** The description of the service. */
  readonly service: ServiceDescription;
  /**
   * `POST /flows`. Resolves with the new flow's id. Settles only after the request is settled or destroyed. After any
   * error but {@link InDoubtError}, no flow was created.
   * @throws {RejectedError} @throws {InvalidTextError}
   * @throws {MisaddressedError} something other than the flow service answered.
   * @throws {InDoubtError} the last byte of the body was sent, and the response does not show whether there is a flow.
   * Also if the signal aborted the wait for it.
   * @throws any error of the input's source.
   */
  create(request: CreateRequest, signal: AbortSignal): Promise<{ readonly flowId: string }>;
  /** `GET /flows/{id}`. @throws {NotFoundError} @throws {NotServedError} */
  get(flowId: string, signal: AbortSignal, options?: Pick<AssetOptions, 'onSent'> & OfUpload): Promise<FlowRecord>;
  /** The same request, for a person: what the service answers. Its word need not be there. */
  show(flowId: string, signal: AbortSignal, options?: OfUpload): Promise<ShownFlow>;
  /**
   * `GET /flows/{id}/outputs` or `GET /{id}/outputs`, all pages of it.
   * @throws {NotFoundError} @throws {NotReadyError}
   * @throws {JobFailedError} the service says so in place of the outputs.
   * @throws {NoAddressError} the declared pointers find no address, and no place for one.
   * @throws {UnintelligibleAnswerError} also if the listing has more outputs than can be read.
   */
  outputs(flowId: string, signal: AbortSignal, options?: OutputsOptions): Promise<readonly Output[]>;
  /**
   * `GET /flows/{id}/outputs/{asset}`. Follows a few redirects. The caller must read the chunks or abort the signal;
   * otherwise the connection stays open.
   * @throws {NotFoundError} @throws {NotReadyError} @throws {DamagedAssetError} @throws {ForbiddenAddressError}
   * @throws {TooSlowError} the data does not begin in time after the head of the response.
   * @throws {NotAnAssetError} something else came instead: a page, an error in JSON, a file of another type.
   */
  asset(flowId: string, assetId: string, signal: AbortSignal, options?: AssetOptions): Promise<Asset>;
  /**
   * `PATCH /flows/{id}` with `abort`. Returns why the flow could not be aborted, and undefined if it was. A success
   * counts only once its answer was read and is no page. It throws only the signal's reason: nobody can do more about a
   * flow that is not wanted any more.
   */
  abort(flowId: string, signal: AbortSignal, options?: OfUpload): Promise<FlowServiceError | undefined>;
  /**
   * `DELETE /flows/{id}`, of an ended flow. Returns and throws as {@link abort} does. With `startBy`, it is not sent later
   * than that.
   */
  delete(
    flowId: string,
    signal: AbortSignal,
    options?: OfUpload & Pick<CreateRequest, 'startBy'>,
  ): Promise<FlowServiceError | undefined>;
  /**
   * Tells whether the address serves flows at this moment, by one request for their listing. False also if the service
   * does not list flows, or cannot answer now.
   */
  isServing(signal: AbortSignal): Promise<boolean>;
  /**
   * Asks whether the service is there, with a request that costs nothing: for its flows or, if its description has no
   * listing, for a flow with this id, which nobody has made. A service that knows no such id may well answer 500. The
   * answer is known for some seconds.
   * @throws {UnavailableError} @throws {ThrottledError} It is down. No other error of the service says so.
   */
  checkHealth(unknownId: string, signal: AbortSignal, options?: OfUpload): Promise<void>;
  /**
   * `GET /flows`: the service's flows, page by page. Each step sends one request and yields the flows that no earlier
   * page had, which may be none. Ends at the end of the listing, or where it cannot be paged further.
   * @throws {NotFoundError} @throws {NotServedError} @throws {RejectedError} the service rejects the first page.
   */
  list(signal: AbortSignal): AsyncGenerator<readonly FlowRecord[]>;
  /**
   * `GET /templates`: what the service offers, on all pages. Each template is as the service writes it.
   * @throws {NotFoundError} @throws {NotServedError} the service does not list its templates.
   * @throws {UnintelligibleAnswerError} the pages cannot be read to their end.
   */
  templates(signal: AbortSignal): Promise<readonly unknown[]>;
  /**
   * Searches the service's listing for the flows that carry some tags. Returns a result for each, in their order:
   * `absent` only if the flow cannot have been overlooked (see `flow-search.ts`), and `unknown` otherwise.
   * @param known the flows that the caller knows. Default: it knows of none.
   */
  find(sought: readonly Sought[], signal: AbortSignal, known?: KnownFlows): Promise<readonly Found[]>;
  /** What the first two pages of the listing of flows show. @throws {NotFoundError} @throws {NotServedError} */
  sample(signal: AbortSignal): Promise<ListingSample>;
}

/** The flows that the caller of a search knows, and that the listing must show. Times are in milliseconds since the epoch. */
export interface KnownFlows {
  /** True if a flow was made before a time. Then a listing without any flow of Flowdrop proves nothing. */
  hadFlowBefore(before: number, signal: AbortSignal): Promise<boolean>;
  /** The ids of flows that were made between two times. A listing that lacks one of them proves nothing. */
  flowsMade(
    between: { readonly since: number; readonly before: number },
    signal: AbortSignal,
  ): Promise<readonly string[]>;
}

/** What the first pages of the listing of flows show. */
export interface ListingSample {
  readonly flows: number;
  /** True if the listing seems to have further pages. */
  readonly hasMore: boolean;
  /** True if no flow is newer than the one above it. */
  readonly isNewestFirst: boolean;
  /** True if a flow shows its `additional`, which holds the tag. */
  readonly showsAdditional: boolean;
  /** True if a flow has ended. */
  readonly showsEnded: boolean;
  /** Number of pages that were read. */
  readonly pages: number;
  /** Number of entries in which no usable id is found. Undefined if there are none. */
  readonly unnamed?: number | undefined;
  /** The service's words for the states of the flows, each with the number of flows. */
  readonly words: readonly (Pick<FlowRecord, 'word' | 'state' | 'isDeclared'> & { readonly flows: number })[];
  /** Why further pages cannot be read. Undefined if none are needed. */
  readonly unreadMore?: string | undefined;
}

/** A flow that an earlier request may have made. */
export interface Sought {
  readonly tag: FlowTag;
  /** When the request began, in milliseconds since the epoch. */
  readonly since: number;
  /** True if the service must list the flow by now, so that its absence can be proved. */
  readonly mayBeAbsent: boolean;
}

export type Found =
  | { readonly result: 'found'; readonly flow: FlowRecord }
  | { readonly result: 'absent' }
  /** `mayPass`: another search may find the flow, or prove its absence. */
  | { readonly result: 'unknown'; readonly why: string; readonly mayPass?: true };

/** The source of the service's token. */
export interface Token {
  /** The token as last read, at most 5 minutes old. @throws {UnauthorisedError} the token cannot be read. */
  get(signal: AbortSignal): Promise<string>;
  /** Reads the token again, because the service rejected the last one. @throws {UnauthorisedError} */
  renew(signal: AbortSignal): Promise<string>;
}

/** The proxies between us and the service. */
export interface Proxies {
  /** For https addresses. It may hold a user and a password. */
  readonly https?: URL | undefined;
  /** For http addresses, which are of this machine. */
  readonly http?: URL | undefined;
  /** What goes past them, as in `NO_PROXY`: hosts, with or without a port, domains, ranges of addresses, or `*`. */
  readonly except?: readonly string[] | undefined;
}
