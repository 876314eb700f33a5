import type { TurnClass } from '../ledger/keys.ts';
import { UnreadableEntryError } from '../ledger/store.ts';
import type { Price } from '../uploads/budget.ts';
import { attemptOf, type HoldPorts, type Subject } from './attempt.ts';
import type { HoldReason } from './hold-request.ts';
import {
  type Attempt,
  admit,
  type Held,
  type Holds,
  holdOf,
  isCounted,
  outcomeOf,
  release,
  roomOf,
  settle,
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
