import type { Route } from '../../functions/uploads/route.ts';
import type { Random } from './random.ts';
import type { Scenario } from './scenario.ts';
import { MINUTE, SECOND } from './timeline.ts';

/** Share of storms in which files must be still before they are sent. */
const SHARE = 0.3;

/** A storm whose files are sent once they are still. What it draws comes from random numbers of their own. */
export function withSettling(storm: Scenario, random: Random): Scenario {
  const isDrawn = random.chance(SHARE);
  const settleSeconds = random.pick([20, 20, 60, 200]);
  if (!isDrawn) return storm;
  const settling = (routes: readonly Route[]): readonly Route[] =>
    routes.map((route) => ((route.after ?? route.jobs) === undefined ? { ...route, settleSeconds } : route));
  const routeChanges = storm.routeChanges?.map((change) => ({ ...change, routes: settling(change.routes) }));
  // Some programs write the same content again: within the time, after it, or when a tick has had the file sent.
  const latest = storm.chaosMs - MINUTE;
  const again = storm.steps.filter(({ kind, at }) => kind === 'put' && at < latest && random.chance(0.3));
  const afterMs = (): number =>
    random.chance(0.5)
      ? random.int(1, 2 * settleSeconds) * SECOND
      : settleSeconds * SECOND + random.int(MINUTE, 5 * MINUTE);
  const saved = again.map((step) => ({ ...step, at: Math.min(latest, step.at + afterMs()) }));
  const steps = [...storm.steps, ...saved].sort((one, other) => one.at - other.at);
  return { ...storm, settleSeconds, routes: settling(storm.routes), routeChanges, steps };
}
