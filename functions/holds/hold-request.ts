/** What an operator wants of the holds. */
export interface HoldRequest {
  readonly action: 'pause' | 'resume';
  /** Name of the route. Default: the pipeline. */
  readonly route?: string | undefined;
  /** The operator's own words about a pause. */
  readonly why?: string | undefined;
}

/**
 * What became of the request. `not held`: there was no pause to end, and no route that fails. `unknown route`: no route
 * of the configuration has this name.
 */
export type HoldResult = 'paused' | 'resumed' | 'not held' | 'unknown route';
