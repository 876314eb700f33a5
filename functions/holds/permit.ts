import { createHash } from 'node:crypto';
import type { Clock } from '../base/clock.ts';
import type { Telemetry } from '../base/telemetry.ts';
import type { Entry } from '../ledger/entry.ts';
import type { TurnClass } from '../ledger/keys.ts';
import { UnreadableEntryError } from '../ledger/store.ts';
import type { Settings } from '../settings/environment.ts';
import type { Price } from '../uploads/budget.ts';
import { isCanary } from '../uploads/inbox.ts';
import type { Route } from '../uploads/route.ts';
import type { RouteSnapshot } from '../uploads/route-snapshot.ts';
import { firstOf } from '../uploads/upload.ts';
import { prefixIn } from './costs.ts';
import type { HoldReason } from './hold-request.ts';
import type { HoldStore } from './hold-store.ts';
import {
  type AlikeEnd,
  type Attempt,
  admit,
  failed,
  type Held,
  type Holds,
  holdOf,
  isCounted,
  isNews,
  isSameRequest,
  outcomeOf,
  type RouteRequest,
  release,
  roomOf,
  type Success,
  settle,
  succeeded,
  type Verdict,
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

/** S3 did not say whether the upload may be sent. Nothing was sent. */
export class HoldsUnavailableError extends Error {
  override readonly name = 'HoldsUnavailableError';
}

export interface HoldPorts {
  readonly holds: HoldStore;
  readonly clock: Clock;
  readonly telemetry: Telemetry;
  readonly settings: Pick<Settings, 'routes' | 'budget' | 'inboxBucket' | 'inboxPrefix' | 'canaryKey'>;
}

/** The upload that is to be sent. */
export type Subject = Pick<Entry, 'upload' | 'generation' | 'route' | 'doubt' | 'late'>;

const requestOf = ({ template, input, parameters }: RouteRequest): RouteRequest => ({ template, input, parameters });

const routeOf = ({ route }: Pick<Subject, 'route'>, { routes }: Pick<HoldPorts['settings'], 'routes'>) =>
  routes.find(({ name }) => name === route.name);

/** An attempt to send an upload, with the caps and the price of the present configuration. */
export function attemptOf(
  subject: Subject,
  settings: HoldPorts['settings'],
  nonce: string,
  isRepeated = false,
): Attempt {
  const { upload, generation, route, doubt, late = false } = subject;
  const { budget } = settings;
  const present = routeOf(subject, settings);
  return {
    uploadId: upload.id,
    generation,
    routeName: route.name,
    prefix: prefixIn(firstOf(upload).key, settings.inboxPrefix),
    isOfRoute: present !== undefined,
    isLate: late,
    isResent: doubt !== undefined,
    isRepeated,
    nonce,
    pipeline: budget === 'unlimited' ? undefined : budget,
    route: present?.budget,
    // If the route was removed, its last known price counts.
    price: present === undefined ? route.price : present.price,
  };
}

/**
 * The request of an upload's route, if the upload's outcome says anything about it. Undefined if the route was removed
 * or changed since the upload began. Undefined also for the canary, which is the same file every hour.
 */
function requestToHeed(subject: Subject, settings: HoldPorts['settings']): RouteRequest | undefined {
  const { upload } = subject;
  if (isCanary({ bucket: upload.bucket, key: firstOf(upload).key }, settings)) return undefined;
  const present = routeOf(subject, settings);
  return present !== undefined && isOf(present, subject.route) ? requestOf(present) : undefined;
}

/**
 * True if a route has not changed since a snapshot of it. A route with `overrides` always counts as unchanged, because
 * the file may have replaced parts of the snapshot. A job may have replaced the parameters, so they are not compared.
 */
function isOf(route: Route, snapshot: RouteSnapshot): boolean {
  if (route.overrides === true) return true;
  const parameters = route.jobs === undefined ? snapshot.parameters : route.parameters;
  return isSameRequest(requestOf(route), { ...requestOf(snapshot), parameters });
}

/**
 * The permission to send one upload. `create-flow` obtains it directly before each `POST /flows`, when the pace has let
 * the request go. So no held upload is sent, and each flow is counted.
 */
export class Permit {
  readonly #ports: HoldPorts;
  readonly #attempt: Attempt;
  #isCounted = false;
  /** True once the upload is the hourly trial of a failing route. Its further requests are part of the same trial. */
  #isTrial = false;

  /** @param isRepeated true if the request makes no second flow: it has the idempotency key of the one before. */
  constructor(subject: Subject, ports: HoldPorts, nonce: string, isRepeated = false) {
    this.#ports = ports;
    this.#attempt = attemptOf(subject, ports.settings, nonce, isRepeated);
  }

  /** What the flow costs, as it is counted. */
  get price(): Price | undefined {
    return this.#attempt.price;
  }

  /**
   * @throws {HeldError} also if the holds are damaged, or of a newer version.
   * @throws {HoldsUnavailableError}
   */
  async obtain(signal: AbortSignal): Promise<void> {
    let held: Held | undefined;
    try {
      held = await this.#hold(signal);
    } catch (cause) {
      signal.throwIfAborted();
      const why = cause instanceof Error ? cause.message : String(cause);
      if (!(cause instanceof UnreadableEntryError)) {
        const message = `S3 does not hand out the holds, so it cannot be known whether the file may be sent: ${why}`;
        throw new HoldsUnavailableError(message, { cause });
      }
      this.#ports.telemetry.metrics.add('HoldsUnreadable');
      const message = `It cannot be known whether it may be sent: ${why}`;
      throw new HeldError({ reason: 'budget', message }, { cause });
    }
    if (held !== undefined) throw new HeldError(held);
  }

  async #hold(signal: AbortSignal): Promise<Held | undefined> {
    const { holds, clock } = this.#ports;
    const now = await holds.read(signal);
    const attempt = this.#isTrial ? { ...this.#attempt, isLate: false } : this.#attempt;
    const isTrial = attempt.isLate && now.routes[attempt.routeName]?.failing !== undefined;
    const held = holdOf(now, attempt, clock.now());
    const isNew = isCounted(this.#attempt) && !this.#isCounted;
    if (held !== undefined || !(isTrial || isNew)) return held;
    const refused = await holds.change((draft) => admit(draft, attempt, clock.now()), signal);
    this.#isCounted ||= refused === undefined && isNew;
    this.#isTrial ||= refused === undefined && isTrial;
    return refused;
  }

  /** Uncounts the flow: no request of this permit has made one. */
  release(): void {
    const which = this.#attempt.isResent ? 'latest' : 'all';
    this.#end((draft) => release(draft, outcomeOf(this.#attempt), this.#attempt.nonce, which), true);
  }

  /** The upload has a flow, which stays counted. */
  settle(): void {
    this.#end((draft) => settle(draft, outcomeOf(this.#attempt), this.#attempt.nonce), false);
  }

  #end(change: (draft: Holds) => void, isUrgent: boolean): void {
    if (this.#isCounted) this.#ports.holds.later(change, isUrgent);
    this.#isCounted = false;
  }
}

/** Notes that a route works: the service took a request of it, or a flow of it succeeded. */
export function noteSuccess(
  subject: Subject,
  what: Success['what'],
  ports: HoldPorts,
  signal: AbortSignal,
): Promise<void> {
  return noted(subject, ports, async () => {
    const request = requestToHeed(subject, ports.settings);
    if (request === undefined) return;
    const { name } = subject.route;
    const success = { what, request };
    if (!isNews(await ports.holds.read(signal), name, success)) return;
    await ports.holds.change((draft) => succeeded(draft, name, success, ports.clock.now()), signal);
  });
}

/** Notes that the service rejected an upload, or failed its flow. The route may be failing then. */
export function noteFailure(subject: Subject, verdict: Verdict, ports: HoldPorts, signal: AbortSignal): Promise<void> {
  return noted(subject, ports, async () => {
    if (requestToHeed(subject, ports.settings) === undefined) return;
    const { name } = subject.route;
    // The route is failing already, and no further failure changes that.
    if ((await ports.holds.read(signal)).routes[name]?.failing !== undefined) return;
    const end = { ...verdict, end: endOf(subject, ports.settings) };
    if (!(await ports.holds.change((draft) => failed(draft, name, end, ports.clock.now()), signal))) return;
    ports.telemetry.log.error('The last files of this route failed alike', {
      uploadId: subject.upload.id,
      route: name,
      why: verdict.message,
    });
  });
}

/** Length of the hash of a file's key, in hexadecimal digits. It need only tell twenty keys apart. */
const FILE_DIGITS = 16;

function endOf({ upload, generation }: Subject, { inboxPrefix }: HoldPorts['settings']): AlikeEnd {
  const { key } = firstOf(upload);
  const file = createHash('sha256').update(key).digest('hex').slice(0, FILE_DIGITS);
  return { outcome: outcomeOf({ uploadId: upload.id, generation }), file, customer: prefixIn(key, inboxPrefix) };
}

/**
 * Makes a note. If that fails, the failure is only logged: the upload must end all the same, and the next file that
 * ends makes the same note.
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

/** How many uploads may leave the line now: of a class of a route, or of all together. 0 if the holds are damaged. */
export async function holdRoom(
  { holds, clock, settings }: HoldPorts,
  signal: AbortSignal,
): Promise<(routeName?: string, of?: TurnClass) => number> {
  try {
    return roomOf(await holds.read(signal), settings, clock.now());
  } catch (error) {
    if (error instanceof UnreadableEntryError) return () => 0;
    throw error;
  }
}
