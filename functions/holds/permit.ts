import type { Clock } from '../base/clock.ts';
import type { Telemetry } from '../base/telemetry.ts';
import type { Entry } from '../ledger/entry.ts';
import { UnreadableEntryError } from '../ledger/store.ts';
import type { Settings } from '../settings/environment.ts';
import type { Price } from '../uploads/budget.ts';
import { isCanary } from '../uploads/inbox.ts';
import type { RouteSnapshot } from '../uploads/route-snapshot.ts';
import type { Route } from '../uploads/routes.ts';
import { firstOf } from '../uploads/upload.ts';
import { prefixIn } from './costs.ts';
import type { HoldReason } from './hold-request.ts';
import type { HoldStore } from './hold-store.ts';
import {
  type Attempt,
  admit,
  CIRCUIT_AFTER,
  type Held,
  type Holds,
  holdOf,
  isCounted,
  isNews,
  isSameRequest,
  outcomeOf,
  type Rejection,
  type RouteRequest,
  rejected,
  release,
  roomOf,
  type Success,
  settle,
  succeeded,
} from './holds.ts';

/** The upload may not be sent now. Nothing was sent. */
export class HeldError extends Error {
  override readonly name = 'HeldError';
  readonly reason: HoldReason;
  constructor({ reason, message }: Held, options?: ErrorOptions) {
    super(message, options);
    this.reason = reason;
  }
}

export interface HoldPorts {
  readonly holds: HoldStore;
  readonly clock: Clock;
  readonly telemetry: Telemetry;
  readonly settings: Pick<Settings, 'routes' | 'budget' | 'inboxBucket' | 'inboxPrefix' | 'canaryKey'>;
}

/** What is sent. */
export type Subject = Pick<Entry, 'upload' | 'generation' | 'route' | 'doubt'>;

const requestOf = ({ template, input, parameters }: RouteRequest): RouteRequest => ({ template, input, parameters });

const routeOf = ({ route }: Pick<Subject, 'route'>, { routes }: Pick<HoldPorts['settings'], 'routes'>) =>
  routes.find(({ name }) => name === route.name);

/** What the present configuration says about sending an upload. */
export function attemptOf(subject: Subject, settings: HoldPorts['settings'], nonce: string): Attempt {
  const { upload, generation, route, doubt } = subject;
  const { budget } = settings;
  const present = routeOf(subject, settings);
  return {
    uploadId: upload.id,
    generation,
    routeName: route.name,
    prefix: prefixIn(firstOf(upload).key, settings.inboxPrefix),
    request: requestOf(present ?? route),
    sent: { ...requestOf(route), ...(present?.jobs !== undefined && { parameters: present.parameters }) },
    isPresent: present === undefined || isOf(present, route),
    isOfRoute: present !== undefined,
    isResent: doubt !== undefined,
    nonce,
    pipeline: budget === 'unlimited' ? undefined : budget,
    route: present?.budget,
    // A route that is gone has no price any more. What was sent with it may cost what it cost then.
    price: present === undefined ? route.price : present.price,
  };
}

/** True if a snapshot was made of this route as it is. A file or a job may replace parts of it. */
function isOf(route: Route, snapshot: RouteSnapshot): boolean {
  if (route.overrides === true) return true;
  const parameters = route.jobs === undefined ? snapshot.parameters : route.parameters;
  return isSameRequest(requestOf(route), { ...requestOf(snapshot), parameters });
}

/**
 * The permission to send one upload. It is asked for directly before each request, so that what is held is not sent, and
 * what is sent is counted.
 */
export class Permit {
  readonly #ports: HoldPorts;
  readonly #attempt: Attempt;
  #isCounted = false;

  constructor(subject: Subject, ports: HoldPorts, nonce: string) {
    this.#ports = ports;
    this.#attempt = attemptOf(subject, ports.settings, nonce);
  }

  /** What the flow costs, as it is counted. */
  get price(): Price | undefined {
    return this.#attempt.price;
  }

  /** @throws {HeldError} also if it cannot be known whether the upload is held. */
  async obtain(signal: AbortSignal): Promise<void> {
    let held: Held | undefined;
    try {
      held = await this.#hold(signal);
    } catch (cause) {
      signal.throwIfAborted();
      if (cause instanceof UnreadableEntryError) this.#ports.telemetry.metrics.add('HoldsUnreadable');
      const why = cause instanceof Error ? cause.message : String(cause);
      const message = `It cannot be known whether it may be sent: ${why}`;
      throw new HeldError({ reason: 'budget', message }, { cause });
    }
    if (held !== undefined) throw new HeldError(held);
  }

  async #hold(signal: AbortSignal): Promise<Held | undefined> {
    const { holds, clock } = this.#ports;
    const now = await holds.read(signal);
    const isProbe = now.routes[this.#attempt.routeName]?.circuit !== undefined;
    const held = holdOf(now, this.#attempt);
    const isNew = isCounted(this.#attempt) && !this.#isCounted;
    if (held !== undefined || !(isProbe || isNew)) return held;
    const refused = await holds.change((draft) => admit(draft, this.#attempt, clock.now()), signal);
    this.#isCounted ||= refused === undefined && isNew;
    return refused;
  }

  /** No request of this permit has made a flow. */
  release(): void {
    const which = this.#attempt.isResent ? 'latest' : 'all';
    this.#end((draft) => release(draft, outcomeOf(this.#attempt), this.#attempt.nonce, which), true);
  }

  /** The upload has a flow. */
  settle(): void {
    this.#end((draft) => settle(draft, outcomeOf(this.#attempt), this.#attempt.nonce), false);
  }

  #end(change: (draft: Holds) => void, isUrgent: boolean): void {
    if (this.#isCounted) this.#ports.holds.later(change, isUrgent);
    this.#isCounted = false;
  }
}

/** False if the route was removed. Nothing is kept of its outcomes. */
const isOfRoute = (subject: Subject, { settings }: HoldPorts): boolean => routeOf(subject, settings) !== undefined;

/**
 * False for the canary, which is the same file every hour: it says nothing of the others. As the probe of a held route
 * it counts.
 */
const isHeeded = ({ upload }: Subject, attempt: Attempt, { routes }: Holds, { settings }: HoldPorts): boolean =>
  !isCanary({ bucket: upload.bucket, key: firstOf(upload).key }, settings) ||
  routes[attempt.routeName]?.circuit?.probe === outcomeOf(attempt);

/** Notes that a route works: the service took a request of it, or a flow of it succeeded. */
export function noteSuccess(subject: Subject, success: Success, ports: HoldPorts, signal: AbortSignal): Promise<void> {
  return noted(subject, ports, async () => {
    const attempt = attemptOf(subject, ports.settings, '');
    // A file that began with another configuration says nothing about the present one.
    if (!isOfRoute(subject, ports) || !attempt.isPresent) return;
    const holds = await ports.holds.read(signal);
    if (!isHeeded(subject, attempt, holds, ports) || !isNews(holds, attempt, success)) return;
    await ports.holds.change((draft) => succeeded(draft, attempt, success, ports.clock.now()), signal);
  });
}

/** Notes that the service rejected an upload, or failed its flow. That may hold the route. */
export function noteRejection(
  subject: Subject,
  rejection: Rejection,
  ports: HoldPorts,
  signal: AbortSignal,
): Promise<void> {
  return noted(subject, ports, async () => {
    const attempt = attemptOf(subject, ports.settings, '');
    const { circuit } = routeOf(subject, ports.settings) ?? {};
    if (circuit === false || !isOfRoute(subject, ports) || !attempt.isPresent) return;
    if (!isHeeded(subject, attempt, await ports.holds.read(signal), ports)) return;
    const terms = { after: circuit?.after ?? CIRCUIT_AFTER, now: ports.clock.now() };
    if (!(await ports.holds.change((draft) => rejected(draft, attempt, rejection, terms), signal))) return;
    ports.telemetry.log.error('This route is held: the service rejects its files', {
      uploadId: subject.upload.id,
      route: attempt.routeName,
      rejection: rejection.message,
    });
  });
}

/**
 * If a note is lost, a route is held one file later, or opened by a later tick. That must keep no upload from its end.
 */
async function noted({ upload }: Subject, { telemetry }: HoldPorts, note: () => Promise<void>): Promise<void> {
  try {
    await note();
  } catch (error) {
    telemetry.log.warn('An outcome could not be noted at its route', {
      uploadId: upload.id,
      error: error as Error,
    });
  }
}

/** How many uploads may leave the line now: of a route, or of all together. None if that cannot be known. */
export async function holdRoom(
  { holds, clock, settings }: HoldPorts,
  signal: AbortSignal,
): Promise<(routeName?: string) => number> {
  try {
    return roomOf(await holds.read(signal), settings, clock.now());
  } catch (error) {
    if (error instanceof UnreadableEntryError) return () => 0;
    throw error;
  }
}
