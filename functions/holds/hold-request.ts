import type { HoldPorts } from './attempt.ts';
import { type Holds, pause, resume } from './holds.ts';

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

/** What became of a {@link HoldRequest}, and all holds. */
export interface HoldAnswer {
  readonly result: HoldResult;
  readonly holds: Holds;
}

/** Pauses the pipeline or a route, or has it go on. */
export async function changeHold(
  { action, route, why }: HoldRequest,
  { holds, clock, settings }: HoldPorts,
  signal: AbortSignal,
): Promise<HoldAnswer> {
  return holds.change((draft): HoldAnswer => {
    const held = route === undefined ? draft.pipeline : draft.routes[route];
    // A route that was removed may still be paused.
    const isKnown = held !== undefined || settings.routes.some(({ name }) => name === route);
    if (!isKnown) return { result: 'unknown route', holds: draft };
    if (action === 'pause') {
      pause(draft, route, why, clock.now());
      return { result: 'paused', holds: draft };
    }
    return { result: resume(draft, route) ? 'resumed' : 'not held', holds: draft };
  }, signal);
}
