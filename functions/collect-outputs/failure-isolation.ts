import { type Invocation, OutOfTimeError } from '../base/invocation.ts';
import type { Telemetry } from '../base/telemetry.ts';
import { FlowServiceError, MisaddressedError } from '../flow-service/errors.ts';
import type { RunningMarker } from '../ledger/keys.ts';
import { UnreadableEntryError } from '../ledger/store.ts';
import { OvertakenError } from '../results/asset-slots.ts';
import { type Outage, outageOf, type ServiceHealth } from './service-health.ts';

/** Why a tick stops before it has polled every flow that is due. */
export type Halt = 'out of time' | Outage;

/** How a flow's turn ended. `none`: the tick halted before it, or during it. `overtaken`: an asset lost its slot. */
export type Turn = 'done' | 'failed' | 'outage' | 'overtaken' | 'none';

/** Keeps the failure of one flow away from all others. A failure that concerns all flows halts the tick instead. */
export class FailureIsolation {
  readonly #invocation: Invocation;
  readonly #health: ServiceHealth;
  readonly #telemetry: Telemetry;
  readonly #failures: unknown[] = [];
  #halt: Halt | undefined;

  constructor(invocation: Invocation, health: ServiceHealth, telemetry: Telemetry) {
    this.#invocation = invocation;
    this.#health = health;
    this.#telemetry = telemetry;
  }

  /** Why the tick stops. Undefined while it goes on. */
  get halt(): Halt | undefined {
    return this.#halt;
  }

  /** Halts the tick at the end of a round in which the service answered no flow. */
  endRound(): void {
    this.#halt ??= this.#health.outageOfRound;
  }

  /** Adds failures that are logged already. {@link throwFailures} throws them. */
  add(...failures: readonly unknown[]): void {
    this.#failures.push(...failures);
  }

  /** @throws {AggregateError} if the tick failed for any upload. */
  throwFailures(): void {
    const { length } = this.#failures;
    if (length === 0) return;
    throw new AggregateError(this.#failures, `${length} uploads could not be processed`);
  }

  /** Runs one flow's turn, unless the tick has halted. A failure is logged now and thrown at the end of the tick. */
  async run({ uploadId, flowId }: RunningMarker, body: () => Promise<void>): Promise<Turn> {
    const { log, metrics } = this.#telemetry;
    if (this.#invocation.work.aborted) this.#halt ??= 'out of time';
    // An answer that is still on its way may end what looks like an outage.
    if (this.#halt !== undefined || this.#health.outage !== undefined) return 'none';
    try {
      await body();
      return 'done';
    } catch (error) {
      const fields = { uploadId, flowId, error: error as Error };
      if (error instanceof OutOfTimeError || this.#invocation.work.aborted) {
        if (this.#halt === undefined) log.warn('The tick stops: its time is over', fields);
        this.#halt ??= 'out of time';
        return 'none';
      }
      if (error instanceof OvertakenError) {
        log.info('The assets of this flow come slowly, so they wait for those of others', fields);
        return 'overtaken';
      }
      log.error('This upload could not be processed; the next poll of its flow tries again', fields);
      if (error instanceof MisaddressedError) metrics.add('ServiceMisaddressed');
      if (error instanceof UnreadableEntryError) metrics.add('EntriesUnreadable');
      if (error instanceof FlowServiceError) this.#health.failed(flowId, error);
      else this.#failures.push(error);
      return outageOf(error) === undefined ? 'failed' : 'outage';
    }
  }
}
