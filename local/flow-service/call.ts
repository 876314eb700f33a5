/** A request, over HTTP or within a simulation. */
export interface ServiceRequest {
  readonly method: string;
  /** Path and query. */
  readonly url: string;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string | undefined>>;
  readonly body: AsyncIterable<Uint8Array>;
  /** The replica of the service that a balancer leads it to. Each knows only the flows that it has made. */
  readonly replica?: number | undefined;
  /** Aborts when the client has left. */
  readonly signal?: AbortSignal | undefined;
}

export interface ServiceResponse {
  readonly status: number;
  /** Names in lower case. */
  readonly headers: Record<string, string>;
  /** Iteration rejects with `ConnectionLostError` where the connection must break. */
  readonly body: Uint8Array | AsyncIterable<Uint8Array>;
}

export type Operation =
  | 'createFlow'
  | 'listFlows'
  | 'getFlow'
  | 'changeFlow'
  | 'deleteFlow'
  | 'listOutputs'
  | 'getAsset'
  | 'listTemplates'
  | 'unknown';

/** A request with its operation and the ids in its path. */
export interface Call {
  readonly request: ServiceRequest;
  readonly path: string;
  readonly query: URLSearchParams;
  /** The path begins with `/flows`. */
  readonly isUnderFlows: boolean;
  readonly operation: Operation;
  /** Empty if the path has none. */
  readonly flowId: string;
  /** Empty if the path has none. */
  readonly assetId: string;
}

/** The operations by method and path. `*` is an id: first that of a flow, then that of an asset. */
export const OPERATIONS: readonly (readonly [method: string, path: readonly string[], operation: Operation])[] = [
  ['POST', ['flows'], 'createFlow'],
  ['GET', ['flows'], 'listFlows'],
  ['GET', ['templates'], 'listTemplates'],
  ['GET', ['flows', '*'], 'getFlow'],
  ['PATCH', ['flows', '*'], 'changeFlow'],
  ['DELETE', ['flows', '*'], 'deleteFlow'],
  ['GET', ['flows', '*', 'outputs'], 'listOutputs'],
  ['GET', ['*', 'outputs'], 'listOutputs'],
  ['GET', ['flows', '*', 'outputs', '*'], 'getAsset'],
];

/** Finds the operation of a request. */
export function callOf(request: ServiceRequest): Call {
  // Not parsed as a URL: that would take an id of `..` for a step up.
  const [path = '', query = ''] = request.url.split(/\?(.*)/s);
  const parts = path.slice(1).split('/').map(decoded);
  const [, pattern = [], operation = 'unknown'] =
    OPERATIONS.find(
      ([method, pattern]) =>
        method === request.method &&
        pattern.length === parts.length &&
        pattern.every((part, i) => part === '*' || part === parts[i]),
    ) ?? [];
  const [flowId = '', assetId = ''] = parts.filter((_, i) => pattern[i] === '*');
  const isUnderFlows = parts[0] === 'flows';
  return { request, path, query: new URLSearchParams(query), isUnderFlows, operation, flowId, assetId };
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
