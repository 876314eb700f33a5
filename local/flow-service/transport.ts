// What the service and whatever carries its calls (HTTP, a simulation) say to each other.

export interface ServiceRequest {
  readonly method: string;
  /** Path and query. */
  readonly url: string;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string | undefined>>;
  readonly body: AsyncIterable<Uint8Array>;
  /** Aborts when the client has gone away. */
  readonly signal?: AbortSignal | undefined;
}

export interface ServiceResponse {
  readonly status: number;
  /** Names in lower case. */
  readonly headers: Record<string, string>;
  /** Iterating rejects with `ConnectionLostError` where the connection is to break. */
  readonly body: Uint8Array | AsyncIterable<Uint8Array>;
}
