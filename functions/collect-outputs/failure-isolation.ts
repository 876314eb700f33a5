import type { Clock } from '../base/clock.ts';
import { type Invocation, OutOfTimeError } from '../base/invocation.ts';
import type { Telemetry } from '../base/telemetry.ts';
import {
  FlowServiceError,
  MisaddressedError,
  ThrottledError,
  UnauthorisedError,
  UnavailableError,
} from '../flow-service/errors.ts';
import type { RunningMarker } from '../ledger/keys.ts';
import { UnreadableEntryError } from '../ledger/store.ts';
import { OvertakenError } from './asset-slots.ts';

/** Different flows whose polls must fail in a row before the service is taken to have an outage. */
const OUTAGE_FLOWS = 10;

/**
 * How long an answer proves that the service is there, in milliseconds. It is twice the longest wait of a throttled
 * poll. It is shorter than a tick that stores assets, because the service may go down meanwhile.
 */
const ANSWER_MS = 2 * 60_000;

/** Why the service answers for no flow. */
export type Outage = 'unauthorised' | 'throttled' | 'unavailable' | 'misaddressed';

/** Why a tick stops before it has polled every flow that is due. */
export type Halt = 'out of time' | Outage;

/**
 * The outcome of a poll, or of a run that stores a flow. `over`: it did its work, or failed by itself. `cut off`: the
 * tick halted before it or during it, or an asset lost its slot. The flow comes first next time.
 */
export type Outcome = 'over' | 'cut off';

/** Returns the outage that an error may belong to. Undefined if the error is an answer about the flow itself. */
export function outageOf(error: unknown): Outage | undefined {
  if (error instanceof UnauthorisedError) return 'unauthorised';
  if (error instanceof ThrottledError) return 'throttled';
  if (error instanceof MisaddressedError) return 'misaddressed';
  return error instanceof UnavailableError ? 'unavailable' : undefined;
}

/**
 * Keeps the failure of one flow away from all others. A failure that concerns all flows halts the tick instead.
 *
 * One flow alone may get a refused token, a throttle or a failure again and again. It is an outage of the service only
 * if the polls of several different flows fail and none is answered in between. Assets do not count: many flows may
 * have assets that never come, and these fail in a row while polls are answered.
 */
export class FailureIsolation {
  readonly #invocation: Invocation;
  readonly #telemetry: Telemetry;
  readonly #failures: unknown[] = [];
  /** By flow id: the flows whose polls failed in a row, and how. */
  readonly #failing = new Map<string, Outage>();
  /**
   * The two flows whose polls were answered last, with the times of the answers. Two are enough to tell whether a flow
   * other than a given one was answered.
   */
  readonly #answered = new Map<string, number>();
  readonly #clock: Clock;
  #halt: Halt | undefined;

  constructor(invocation: Invocation, telemetry: Telemetry, clock: Clock) {
    this.#clock = clock;
    this.#invocation = invocation;
    this.#telemetry = telemetry;
  }

  /** Takes in the answer to a flow's poll. */
  pollAnswered(flowId: string): void {
    this.#failing.clear();
    this.#answered.delete(flowId);
    this.#answered.set(flowId, this.#clock.now());
    const [first] = this.#answered.keys();
    if (first !== undefined && this.#answered.size > 2) this.#answered.delete(first);
  }

  /** Takes in the answer with an asset, which may come from another host. */
  assetAnswered(): void {
    this.#failing.clear();
  }

  /** Takes in the error of a flow's poll. An error that is no outage counts as an answer. */
  pollFailed(flowId: string, error: unknown): void {
    const outage = outageOf(error);
    if (outage === undefined) this.pollAnswered(flowId);
    else this.#failing.set(flowId, outage);
  }

  /** True if the poll of any flow was answered in this tick. */
  get hasAnswered(): boolean {
    return this.#answered.size > 0;
  }

  /**
   * Returns true if another flow's poll was answered in this tick, at most {@link ANSWER_MS} before `failedAt`. Then a
   * poll that failed at `failedAt` failed because of its own flow.
   */
  hasAnsweredForAnother(flowId: string, failedAt: number): boolean {
    return [...this.#answered].some(([id, at]) => id !== flowId && at >= failedAt - ANSWER_MS);
  }

  /** The outage, once enough flows have failed in a row. Until then the tick goes on. */
  get outage(): Outage | undefined {
    return this.#failing.size >= OUTAGE_FLOWS ? [...this.#failing.values()].at(-1) : undefined;
  }

  /** The outage at the end of a round: few failing flows are enough if none was answered in this tick. */
  get outageOfRound(): Outage | undefined {
    return this.hasAnswered ? this.outage : [...this.#failing.values()].at(-1);
  }

  /** Why the tick stops. Undefined while it goes on. */
  get halt(): Halt | undefined {
    return this.#halt;
  }

  /** Forgets an outage, and what was answered before it, as a new tick would. */
  beginRound(): void {
    if (this.#halt === undefined || this.#halt === 'out of time') return;
    this.#halt = undefined;
    this.#failing.clear();
    this.#answered.clear();
  }

  /** Halts the tick at the end of a round in an outage. */
  endRound(): void {
    this.#halt ??= this.outageOfRound;
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

  /** Does a piece of work for one flow, unless the tick has halted. */
  async run(marker: RunningMarker, body: () => Promise<void>): Promise<Outcome> {
    if (this.#invocation.work.aborted) this.#halt ??= 'out of time';
    // During what looks like an outage, nothing begins. An answer that is still on its way may end it.
    if (this.#halt !== undefined || this.outage !== undefined) return 'cut off';
    return this.runInOutage(marker, body);
  }

  /**
   * Like {@link run}, but also during an outage of the service. Each failure is logged now. If it is no error of
   * the service, it is also thrown at the end of the tick.
   */
  async runInOutage({ uploadId, flowId }: RunningMarker, body: () => Promise<void>): Promise<Outcome> {
    const { log, metrics } = this.#telemetry;
    try {
      await body();
      return 'over';
    } catch (error) {
      const fields = { uploadId, flowId, error: error as Error };
      if (error instanceof OutOfTimeError || this.#invocation.work.aborted) {
        if (this.#halt === undefined) log.warn('The tick stops: its time is over', fields);
        this.#halt ??= 'out of time';
        return 'cut off';
      }
      if (error instanceof OvertakenError) {
        log.info('The assets of this flow come slowly, so they wait for those of others', fields);
        return 'cut off';
      }
      log.error('This upload could not be processed; the next poll of its flow tries again', fields);
      if (error instanceof MisaddressedError) metrics.add('ServiceMisaddressed');
      if (error instanceof UnreadableEntryError) metrics.add('EntriesUnreadable');
      if (!(error instanceof FlowServiceError)) this.#failures.push(error);
      return 'over';
    }
  }
}
