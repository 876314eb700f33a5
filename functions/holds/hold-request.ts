/** Why uploads are held. */
export type HoldReason = 'paused' | 'budget' | 'circuit';

/** What an operator wants of the holds. */
export interface HoldRequest {
  readonly action: 'pause' | 'resume' | 'probe';
  /** Name of the route. Default: the pipeline. */
  readonly route?: string | undefined;
  /** The operator's own words about a pause. */
  readonly why?: string | undefined;
}

/**
 * What became of it. `not held`: there is no pause to end, or the route is not held for its rejections. `unknown route`:
 * no route of the configuration has this name.
 */
export type HoldResult = 'paused' | 'resumed' | 'probe allowed' | 'not held' | 'unknown route';
