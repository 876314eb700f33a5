import { messageOf } from '../base/printable.ts';
import type { CountedFlow } from '../ledger/entry-schema.ts';
import type { TurnClass } from '../ledger/keys.ts';
import { readableOr, UnreadableEntryError } from '../ledger/store.ts';
import type { HoldReason } from '../ledger/waits.ts';
import type { Price } from '../uploads/budget.ts';
import { attemptOf, costsOf, type HoldPorts, type Subject } from './attempt.ts';
import { type Attempt, admit, type Held, holdOf, isToBeCounted, roomOf, uncount } from './holds.ts';

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
  #counted: CountedFlow | undefined;
  /** True once the upload is the hourly trial of a failing route. Its further requests are part of the same trial. */
  #isTrial = false;

  /** @param isRepeated true if the request makes no second flow: it has the idempotency key of the one before. */
  constructor(subject: Subject, ports: HoldPorts, nonce: string, isRepeated: boolean) {
    this.#ports = ports;
    this.#attempt = attemptOf(subject, ports.settings, nonce, isRepeated);
  }

  /** What the flow costs, as it is counted. */
  get price(): Price | undefined {
    return this.#attempt.price;
  }

  /** What is counted for the flow. Undefined before it is counted, or if it need not be. */
  get counted(): CountedFlow | undefined {
    return this.#counted;
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
      const why = messageOf(cause);
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
    const present = await holds.read(signal);
    const now = clock.now();
    const isCountedBefore = this.#attempt.isCountedBefore || this.#counted !== undefined;
    const attempt = { ...this.#attempt, isCountedBefore, isLate: this.#attempt.isLate && !this.#isTrial };
    const isTrial = attempt.isLate && present.routes[attempt.routeName]?.failing !== undefined;
    const known = holdOf(present, attempt, now);
    if (known !== undefined || !(isTrial || isToBeCounted(attempt))) return known;
    const { held, counted } = await holds.change((draft) => admit(draft, attempt, now), signal);
    this.#counted ??= counted;
    this.#isTrial ||= held === undefined && isTrial;
    return held;
  }
}

/**
 * Uncounts flows of an upload that were certainly not made, with the next write of the holds. If this process dies before,
 * they stay counted: a budget is never exceeded.
 */
export function uncountLater(
  subject: Subject,
  counted: readonly CountedFlow[],
  { holds, settings, nonce }: Pick<HoldPorts, 'holds' | 'settings'> & { readonly nonce: () => string },
): void {
  const change = nonce();
  holds.later((draft) => uncount(draft, costsOf(subject, settings), counted, change));
}

/** How many uploads may leave the line now: of a class of a route, or of all together. 0 if the holds are damaged. */
export async function holdRoom(
  { holds, clock, settings }: HoldPorts,
  signal: AbortSignal,
): Promise<(routeName?: string, of?: TurnClass) => number> {
  const present = await readableOr(holds.read(signal), () => undefined);
  return present === undefined ? () => 0 : roomOf(present, settings, clock.now());
}
