import type { Json, JsonObject } from '../base/json.ts';
import type { LearntPace } from './pace.ts';

/** Which upload, which attempt, whose deployment: it rides in `additional.flowdrop` of every flow that we create. */
export interface FlowTag {
  /** Name of the deployment, so that two of them on one account never take each other's flows. */
  readonly pipeline: string;
  readonly upload: string;
  readonly generation: number;
}

/** The bytes that a flow gets. `open` may be called again for a second attempt; each call streams from the start. */
export interface InputSource {
  /** Exact number of bytes that `open` yields. A stream that yields more or fewer fails the request. */
  readonly bytes: number;
  open(signal: AbortSignal): Promise<AsyncIterable<Uint8Array>>;
}

export interface CreateRequest {
  readonly template: string;
  readonly parameters?: Json | undefined;
  /** The route's own additional data; the tag is added beside it. */
  readonly additional?: JsonObject | undefined;
  readonly tag: FlowTag;
  /** Milliseconds since the epoch. The request waits for a turn until then, and no longer. Default: no limit. */
  readonly startBy?: number | undefined;
  readonly input: {
    /** `file`: a base64 data URI of `source`, streamed. `text`: the text itself, as a JSON string. */
    readonly as: 'file' | 'text';
    readonly mediaType: string;
    readonly source: InputSource;
    readonly additional: JsonObject;
  };
}

/** The five states that matter to us; the service's own words are mapped in `schemas.ts`. */
export type FlowState = 'running' | 'completed' | 'failed' | 'aborted';

export interface FlowRecord {
  readonly flowId: string;
  readonly state: FlowState;
  /** 0 to 1, where the service says. */
  readonly progress?: number | undefined;
  /** Milliseconds since the epoch, where the service says. */
  readonly createdAt?: number | undefined;
  readonly finishedAt?: number | undefined;
  /** The latest time at which the flow is known to have changed, its end included. */
  readonly changedAt?: number | undefined;
  /** What the service says went wrong, in its words, cut to 300 characters. */
  readonly error?: string | undefined;
  readonly tag?: FlowTag | undefined;
}

export interface Output {
  readonly assetId: string;
  /** `ready`: can be downloaded; `failed`: the service says it never will be; `pending`: not yet. */
  readonly status: 'ready' | 'failed' | 'pending';
  readonly error?: string | undefined;
}

/** An asset being downloaded. */
export interface Asset {
  readonly mediaType: string;
  /** It has no more bytes than this: the length of the answer. Undefined if the answer has none. */
  readonly bytesMax?: number | undefined;
  /**
   * The decoded bytes, each chunk valid only until the next is asked for. Iteration ends normally only when the asset
   * is complete and intact. Leaving the loop early destroys the connection.
   * @throws {DamagedAssetError} cut, overlong, or not decodable.
   * @throws {AssetTooLargeError} more than the limit.
   * @throws {UnavailableError} the connection failed.
   */
  readonly chunks: AsyncIterable<Uint8Array>;
}

/**
 * The flow service as the rest of the code sees it. Every method may throw {@link UnauthorisedError} (after the token
 * was read again and tried again once), {@link ForbiddenError}, {@link ThrottledError}, {@link UnavailableError},
 * {@link UnintelligibleAnswerError} and the signal's reason.
 */
export interface FlowService {
  /** The pace of all requests but creations; undefined if no limit is known. */
  readonly learntPace: LearntPace | undefined;
  /** Whether the service has refused creations within the last hour. */
  readonly isCreationLimited: boolean;
  /** Begins with the pace that another process has learnt. */
  resumePace(learnt: LearntPace): void;
  /**
   * `POST /flows`. Resolves with the new flow's id, and settles only when the request is settled or destroyed.
   * Whatever it throws but {@link InDoubtError}, nothing was created.
   * @throws {RejectedError} @throws {InvalidTextError}
   * @throws {InDoubtError} the body was sent to its last byte, and there is no usable answer; also where the signal
   * aborted while one was awaited.
   * @throws whatever the input's source throws.
   */
  create(request: CreateRequest, signal: AbortSignal): Promise<{ readonly flowId: string }>;
  /** `GET /flows/{id}`. @throws {NotFoundError} @throws {NotServedError} */
  get(flowId: string, signal: AbortSignal): Promise<FlowRecord>;
  /**
   * `GET /flows/{id}/outputs` or `GET /{id}/outputs`, all pages of it.
   * @throws {NotFoundError} @throws {NotReadyError}
   * @throws {UnintelligibleAnswerError} also if the listing says that it has more outputs, and they cannot be had.
   */
  outputs(flowId: string, signal: AbortSignal): Promise<readonly Output[]>;
  /**
   * `GET /flows/{id}/outputs/{asset}`, redirected once at most. Its chunks must be read, or the signal aborted, for the
   * connection to be let go of.
   * @throws {NotFoundError} @throws {NotReadyError} @throws {DamagedAssetError} @throws {ForbiddenAddressError}
   */
  asset(flowId: string, assetId: string, signal: AbortSignal): Promise<Asset>;
  /** `PATCH /flows/{id}` with `abort`. False where the service does not serve it or does not know the flow. */
  abort(flowId: string, signal: AbortSignal): Promise<boolean>;
  /** `GET /templates`. */
  templates(
    signal: AbortSignal,
  ): Promise<readonly { readonly name: string; readonly description?: string | undefined }[]>;
  /**
   * `GET /flows`: the service's flows, page by page. Each step sends one request, when the page is asked for, and gives
   * the flows that no page before it had, which may be none. Ends where the listing ends or cannot be paged further.
   * @throws {NotFoundError} @throws {NotServedError} @throws {RejectedError} the first page is refused.
   */
  list(signal: AbortSignal): AsyncGenerator<readonly FlowRecord[]>;
  /**
   * Looks for a flow that bears `tag` in the service's listing. It says `absent` only if nothing can have been
   * overlooked: see `flow-search.ts`. Anything less is `unknown`.
   * @param since when the request in doubt began, in milliseconds since the epoch.
   * @param hasFlowFrom whether the caller knows of a flow made before a time, so that an empty listing proves nothing.
   */
  find(
    tag: FlowTag,
    since: number,
    signal: AbortSignal,
    hasFlowFrom?: (before: number) => Promise<boolean>,
  ): Promise<Found>;
}

export type Found =
  | { readonly result: 'found'; readonly flow: FlowRecord }
  | { readonly result: 'absent' }
  | { readonly result: 'unknown'; readonly why: string };

/** Where the token comes from. */
export interface Token {
  /** The token as last read, at most 5 minutes old. @throws {UnauthorisedError} none could be read. */
  get(signal: AbortSignal): Promise<string>;
  /** Reads it again now, because the service refused the last one. @throws {UnauthorisedError} */
  renew(signal: AbortSignal): Promise<string>;
}
