import type { S3Client } from '@aws-sdk/client-s3';
import type { Invocation } from '../base/invocation.ts';
import type { UploadQueue } from '../resubmit/resubmit.ts';
import { WaitingUploads } from '../resubmit/waiting-uploads.ts';
import { type CollectFlowPorts, FlowCollector } from './collect-flow.ts';
import { type CollectorShare, type CollectorState, isIn } from './collector.ts';
import { EndConfirmations, type TickLease } from './end-confirmations.ts';
import { FailureIsolation, type Halt } from './failure-isolation.ts';
import { FlowPolls } from './flow-polls.ts';
import { LateFlows } from './late-flows.ts';
import { EARLY_POLLS, isEarly, YOUNG_MS } from './poll-schedule.ts';
import { ServiceHealth } from './service-health.ts';
import { SlowPolls } from './slow-polls.ts';
import { StoringQueue } from './storing-queue.ts';

export interface CollectPorts extends CollectFlowPorts {
  readonly queue: UploadQueue;
  /** For the lease. */
  readonly s3: S3Client;
}

export interface TickSummary {
  readonly result: 'completed' | 'lease taken' | Halt;
  readonly rounds: number;
  readonly resubmitted: number;
  readonly running: number;
  readonly polled: number;
  readonly succeeded: number;
  readonly failed: number;
}

/**
 * One tick of a collector: rounds of polls and, beside them, the storing of the flows that ended. Each round also
 * resubmits the waiting uploads that are due.
 */
export class Tick {
  readonly #ports: CollectPorts;
  readonly #invocation: Invocation;
  readonly #health = new ServiceHealth();
  readonly #isolation: FailureIsolation;
  readonly #confirmations: EndConfirmations;
  readonly #flows: FlowCollector;
  readonly #storing: StoringQueue;
  readonly #late: LateFlows;
  readonly #polls: FlowPolls;
  readonly #waitingUploads: WaitingUploads;
  readonly #counts = { rounds: 0, resubmitted: 0 };
  #isYoungRunning = false;
  #isEarlyRunning = false;
  /** Polls of the last round. */
  #pollCount = 0;

  /** @param lease undefined if another tick holds it. A tick without a lease does nothing and reports `lease taken`. */
  constructor(share: CollectorShare, lease: TickLease | undefined, ports: CollectPorts, invocation: Invocation) {
    const remembered = lease?.state ?? {};
    const { settings, telemetry } = ports;
    this.#ports = ports;
    this.#invocation = invocation;
    const health = this.#health;
    const isolation = new FailureIsolation(invocation, health, telemetry);
    const confirmations = new EndConfirmations(lease, settings.pollIntervalSeconds * 1000);
    const late = new LateFlows(remembered.lateUploads);
    const slow = new SlowPolls(remembered.slowPolls);
    const flows = new FlowCollector(ports, { invocation, health, confirmations, late, slow });
    const storing = new StoringQueue(remembered.endedMarkers, { flows, health, isolation, late });
    const parts = { invocation, health, confirmations, flows, isolation, storing, late, slow, share };
    this.#isolation = isolation;
    this.#confirmations = confirmations;
    this.#flows = flows;
    this.#storing = storing;
    this.#late = late;
    this.#polls = new FlowPolls(remembered, ports, parts);
    this.#waitingUploads = new WaitingUploads(ports, remembered.throttled, (uploadId) => isIn(share, uploadId));
    if (remembered.pace !== undefined) ports.flows.resumePace(remembered.pace);
  }

  /** Why the tick stops. Undefined while it goes on. */
  get halt(): Halt | undefined {
    return this.#isolation.halt;
  }

  /** Returns false for a tick that worked for all of its time: it did what it could. */
  get isCutShort(): boolean {
    return this.halt !== undefined && !(this.halt === 'out of time' && this.#health.hasAnswered);
  }

  get isStoring(): boolean {
    return !this.#storing.isEmpty;
  }

  /** True if flows whose polls are slow are due, so that the tick goes on with them. */
  get isSlowLeft(): boolean {
    return this.#polls.isSlowLeft;
  }

  /** True while a young flow of this collector is running, so that the tick polls again soon. */
  get isYoungRunning(): boolean {
    return this.#isYoungRunning;
  }

  /**
   * Time from the beginning of one round to that of the next, in milliseconds. It is shorter while a flow has only just
   * begun. Then polls take at most a third of the requests that the service allows: creations and assets need the rest.
   */
  get roundMs(): number {
    const intervalMs = this.#ports.settings.pollIntervalSeconds * 1000;
    if (!this.#isEarlyRunning) return intervalMs;
    const { requestsPerSecond } = this.#ports.flows.learntPace ?? { requestsPerSecond: Number.POSITIVE_INFINITY };
    return Math.min(intervalMs, Math.max(intervalMs / EARLY_POLLS, (3_000 * this.#pollCount) / requestsPerSecond));
  }

  /** What the next tick has to know. */
  get memory(): Partial<CollectorState> {
    return {
      ...this.#polls.memory,
      endedMarkers: this.#storing.endedMarkers,
      lateUploads: this.#late.remembered,
      unconfirmedEnds: this.#confirmations.remembered,
      pace: this.#ports.flows.learntPace,
      throttled: this.#waitingUploads.remembered,
    };
  }

  summary(result: TickSummary['result']): TickSummary {
    return { result, ...this.#counts, ...this.#polls.counts, ...this.#flows.counts };
  }

  /** @throws {AggregateError} if the tick failed for any upload. */
  throwFailures(): void {
    this.#isolation.throwFailures();
  }

  /** Polls the flows that are due and resubmits the waiting uploads that are due. Stops early if the tick halts. */
  async round(): Promise<void> {
    this.#counts.rounds += 1;
    const polledBefore = this.#polls.counts.polled;
    // Both parts end before anything is thrown: nothing may be under way when an invocation ends.
    for (const part of await Promise.allSettled([this.#poll(), this.#resubmitWaiting()])) {
      if (part.status === 'rejected') throw part.reason;
    }
    this.#pollCount = this.#polls.counts.polled - polledBefore;
    this.#isolation.endRound();
    if (this.halt === 'unauthorised') this.#ports.telemetry.metrics.add('TokenRejected');
  }

  /** Waits until `time`. Returns early if everything has been stored meanwhile, or the time of the tick is over. */
  async pauseUntil(time: number): Promise<void> {
    const { work } = this.#invocation;
    const woken = new AbortController();
    const sleep = this.#ports.clock
      .sleep(time - this.#ports.clock.now(), AbortSignal.any([work, woken.signal]))
      .catch(() => {}); // Woken, or out of time: in both cases the caller looks at the clock.
    await Promise.race(this.isStoring ? [sleep, this.allStored()] : [sleep]);
    woken.abort();
    await sleep;
  }

  async allStored(): Promise<void> {
    await this.#storing.allStored();
  }

  /**
   * Waits until everything is stored. A flow that is too old may have had assets refused before the service answered
   * for another flow. It is polled once more: now the asset is abandoned.
   */
  async finish(): Promise<void> {
    await this.allStored();
    await this.#polls.pollAgain(this.#storing.takeRefusedOverdue());
    await this.allStored();
  }

  async #poll(): Promise<void> {
    const { clock, settings } = this.#ports;
    const now = clock.now();
    await this.#polls.round();
    const { newestAt } = this.#polls;
    this.#isYoungRunning = now - newestAt < YOUNG_MS;
    this.#isEarlyRunning = isEarly(newestAt, now, settings.pollIntervalSeconds * 1000);
  }

  async #resubmitWaiting(): Promise<void> {
    const { endedCount } = this.#flows;
    const { sent, failures } = await this.#waitingUploads.resubmitDue(endedCount, this.#invocation.closing);
    this.#isolation.add(...failures);
    this.#counts.resubmitted += sent;
  }
}
