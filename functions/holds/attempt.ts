import type { Clock } from '../base/clock.ts';
import type { Telemetry } from '../base/telemetry.ts';
import { type Entry, presentRouteOf } from '../ledger/entry.ts';
import type { Settings } from '../settings/environment.ts';
import { firstOf } from '../uploads/upload.ts';
import { prefixIn } from './costs.ts';
import type { HoldStore } from './hold-store.ts';
import type { Attempt } from './holds.ts';

export interface HoldPorts {
  readonly holds: HoldStore;
  readonly clock: Clock;
  readonly telemetry: Telemetry;
  readonly settings: Pick<Settings, 'routes' | 'budget' | 'inboxBucket' | 'inboxPrefix' | 'canaryKey'>;
}

/** The upload that is to be sent. */
export type Subject = Pick<Entry, 'upload' | 'generation' | 'route' | 'doubt' | 'countedFlows' | 'late'>;

/** The route and the prefix for which the flows of an upload are counted. */
export const costsOf = ({ upload, route }: Pick<Subject, 'upload' | 'route'>, settings: HoldPorts['settings']) => ({
  routeName: route.name,
  prefix: prefixIn(firstOf(upload).key, settings.inboxPrefix),
});

/**
 * An attempt to send an upload, with the caps and the price of the present configuration.
 * @param isRepeated true if it makes no second flow: it has the idempotency key of the request before.
 */
export function attemptOf(
  subject: Subject,
  settings: HoldPorts['settings'],
  nonce: string,
  isRepeated: boolean,
): Attempt {
  const { route, doubt, countedFlows, late = false } = subject;
  const { budget } = settings;
  const present = presentRouteOf(subject, settings.routes);
  return {
    ...costsOf(subject, settings),
    isOfRoute: present !== undefined,
    isLate: late,
    isResent: doubt !== undefined,
    // If the invocation of the earlier request died, `countedFlows` may be missing. Then this request is counted.
    isCountedBefore: isRepeated && countedFlows !== undefined,
    nonce,
    pipeline: budget === 'unlimited' ? undefined : budget,
    route: present?.budget,
    // If the route was removed, its last known price counts.
    price: present === undefined ? route.price : present.price,
  };
}
