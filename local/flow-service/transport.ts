// The interface between the service and its transport: HTTP, or a simulation.

export interface ServiceRequest {
  readonly method: string;
  /** Path and query. */
  readonly url: string;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string | undefined>>;
  readonly body: AsyncIterable<Uint8Array>;
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
