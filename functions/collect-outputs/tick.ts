import type { S3Client } from '@aws-sdk/client-s3';
import type { Invocation } from '../base/invocation.ts';
import type { Pacer } from '../flow-service/pacer.ts';
import { holdRoom } from '../holds/permit.ts';
import { finishAnew } from '../operator/anew.ts';
import type { OperatorPorts } from '../operator/changes.ts';
import { FlowDeletions } from '../resubmit/flow-deletion.ts';
import { WaitingUploads } from '../resubmit/waiting-uploads.ts';
import { AssetSlots } from './asset-slots.ts';
import { type CollectFlowPorts, FlowCollector } from './collect-flow.ts';
import { type CollectorShare, type CollectorState, isIn, Lease, type LeftLease, NotedUploads } from './collector.ts';
import { FailureIsolation, type Halt } from './failure-isolation.ts';
import { FlowPolls } from './flow-polls.ts';
import { EARLY_POLLS, isEarly, YOUNG_MS } from './poll-schedule.ts';
import { StoringQueue } from './storing-queue.ts';
import { EndConfirmations, type TickContext, UnclearFlows } from './tick-context.ts';

/**
 * Time from a tick's start after which it begins no further round unless assets are being stored, in milliseconds. The
 * next tick starts after a minute.
 */
const TICK_MS = 55_000;

/** Time from a round in an outage to the next round, in milliseconds. It is as long as that from one tick to the next. */
const OUTAGE_GAP_MS = 60_000;

/** Shortest wait for which a message costs less than a process that waits, in milliseconds. */
const HANDED_OVER_MIN_MS = 1_000;

export type CollectPorts = CollectFlowPorts &
  Pick<OperatorPorts, 'aliases' | 'chains' | 'inbox' | 'queue' | 'sources'> & {
    /** The pace of the requests to the service. */
    readonly pacer: Pacer;
    /** For the lease. */
    readonly s3: S3Client;
    /**
     * Sends the event of a later round, which comes after a delay. Undefined in a local run, where a process that waits
     * costs nothing.
     */
    readonly nextRound?: ((event: object, delaySeconds: number, signal: AbortSignal) => Promise<void>) | undefined;
  };

/** What the invocations after the first are given. */
interface LaterRound {
  /** When the tick's minute is over. */
  readonly until?: number | undefined;
  /** The lease, unless the invocation before has released it. */
  readonly left?: LeftLease | undefined;
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

const NOTHING_DONE = { rounds: 0, resubmitted: 0, running: 0, polled: 0, succeeded: 0, failed: 0 } as const;

/**
 * Runs one tick. It resubmits the waiting uploads that are due, polls the running flows that are due, and stores and
 * ends the flows that finished. Rounds repeat while assets are being stored or slow polls are left. While a young flow
 * is running, they repeat for {@link TICK_MS}: mostly each in an invocation of its own, because Lambda bills a process
 * that waits.
 * @throws {AggregateError} the failures of single uploads, at the end of the tick.
 */
export async function collectOutputs(
  share: CollectorShare,
  ports: CollectPorts,
  invocation: Invocation,
  { until = invocation.startedAt + TICK_MS, left }: LaterRound = {},
): Promise<TickSummary> {
  const { clock, settings, telemetry } = ports;
  const { closing } = invocation;
  const lease = await Lease.take({ s3: ports.s3, bucket: settings.ledgerBucket, clock }, share.index, closing, left);
  if (lease === undefined) return { result: 'lease taken', ...NOTHING_DONE };
  const tick = new Tick(share, lease, ports, { invocation, until });
  lease.keeps(() => tick.memory);
  const last = () => (tick.isCutShort ? {} : { tickCompletedAt: clock.now() });
  let toLeave: LeftLease | undefined;
  try {
    await tick.run();
  } finally {
    await tick.allStored();
    if (tick.handedOverUntil === undefined) await lease.release(closing, last());
    else toLeave = await lease.leave(closing, last(), until);
  }
  if (tick.isCutShort) telemetry.metrics.add('TicksCutShort');
  else {
    telemetry.metrics.add('TicksCompleted');
    // With a single collector, this metric would repeat `TicksCompleted`.
    if (share.of > 1) telemetry.metrics.add(`TicksOfCollector${share.index}`);
  }
  const { summary } = tick;
  telemetry.log.info('Tick ended', { ...summary });
  if (tick.handedOverUntil !== undefined) {
    const delaySeconds = Math.max(0, Math.ceil((tick.handedOverUntil - clock.now()) / 1000));
    try {
      await ports.nextRound?.({ collector: share, until, left: toLeave }, delaySeconds, closing);
    } catch (error) {
      await lease.release(closing, last());
      throw error;
    }
  }
  tick.throwFailures();
  return summary;
}

/**
 * One tick of a collector: rounds of polls and, beside them, the storing of the flows that ended. Each round also
 * resubmits the waiting uploads that are due.
 */
class Tick {
  readonly #ports: CollectPorts;
  readonly #lease: Lease;
  readonly #context: TickContext;
  readonly #flows: FlowCollector;
  readonly #storing: StoringQueue;
  readonly #polls: FlowPolls;
  readonly #waitingUploads: WaitingUploads;
  readonly #until: number;
  readonly #counts = { rounds: 0, resubmitted: 0 };
  /** When the next round begins, if a message has to begin it. */
  handedOverUntil: number | undefined;

  constructor(
    share: CollectorShare,
    lease: Lease,
    ports: CollectPorts,
    { invocation, until }: { readonly invocation: Invocation; readonly until: number },
  ) {
    const { state } = lease;
    const lagging = new NotedUploads();
    this.#ports = ports;
    this.#lease = lease;
    this.#until = until;
    this.#context = {
      share,
      invocation,
      isolation: new FailureIsolation(invocation, ports.telemetry, ports.clock),
      confirmations: new EndConfirmations(lease, ports.settings.pollIntervalSeconds * 1000),
      unclear: new UnclearFlows(state.unclear),
      ended: new NotedUploads(state.ended),
      slots: new AssetSlots(ports.clock, ports.settings.assetConcurrency, lagging),
      lagging,
      slow: new NotedUploads(state.slow),
    };
    const flows = new FlowCollector(ports, this.#context);
    const storing = new StoringQueue(flows, this.#context, ports.clock);
    this.#flows = flows;
    this.#storing = storing;
    this.#polls = new FlowPolls(state, ports, this.#context, { flows, storing });
    this.#waitingUploads = new WaitingUploads(
      {
        ...ports,
        finishAnew: (firstId, signal) => finishAnew(firstId, ports, signal),
        deletions: new FlowDeletions(ports),
      },
      state.line,
      { isOurs: (uploadId) => isIn(share, uploadId), room: (signal) => holdRoom(ports, signal) },
    );
    if (state.pace !== undefined) ports.pacer.resume(state.pace);
  }

  /** True if the tick stopped early. If the service answered, a tick that used up its time did not. */
  get isCutShort(): boolean {
    const { halt, hasAnswered } = this.#context.isolation;
    return halt !== undefined && !(halt === 'out of time' && hasAnswered);
  }

  /** What the next tick has to know. */
  get memory(): Partial<CollectorState> {
    const { ended, slow, confirmations, unclear } = this.#context;
    return {
      ...this.#polls.memory,
      ended: ended.remembered,
      slow: slow.remembered,
      unconfirmedEnds: confirmations.remembered,
      shownAgainAt: confirmations.shownAgainAt,
      unclear: unclear.remembered,
      pace: this.#ports.pacer.learnt,
      line: this.#waitingUploads.remembered,
    };
  }

  get summary(): TickSummary {
    const result = this.#context.isolation.halt ?? 'completed';
    return { result, ...this.#counts, ...this.#polls.counts, ...this.#flows.counts };
  }

  /** @throws {AggregateError} if the tick failed for any upload. */
  throwFailures(): void {
    this.#context.isolation.throwFailures();
  }

  async allStored(): Promise<void> {
    await this.#storing.allStored();
  }

  /**
   * Does rounds until nothing is left for this invocation, or it halts or loses its lease. After a round in an outage, it
   * goes on only while assets are being stored: they keep the lease, so no other tick can poll.
   */
  async run(): Promise<void> {
    const { clock } = this.#ports;
    for (;;) {
      const startedAt = clock.now();
      const polledBefore = this.#polls.counts.polled;
      await this.#round();
      if (this.#context.isolation.halt === 'out of time') return;
      const next = startedAt + this.#roundMs(startedAt, this.#polls.counts.polled - polledBefore);
      for (;;) {
        if (!this.#mayRoundBeginAt(Math.max(next, clock.now()), startedAt) || this.#isHandedOver(next)) return;
        if (clock.now() >= next) break;
        await this.#pauseUntil(next);
      }
      // The state is written only after the pause. If all assets are stored by then, the tick ends above, and its
      // release writes the state.
      await this.#lease.write(this.#context.invocation.closing);
    }
  }

  /** Polls the flows that are due and resubmits the waiting uploads that are due. Stops early if the tick halts. */
  async #round(): Promise<void> {
    this.#counts.rounds += 1;
    this.#context.isolation.beginRound();
    // Both parts end before anything is thrown: nothing may be under way when an invocation ends.
    for (const part of await Promise.allSettled([this.#pollDue(), this.#resubmitWaiting()])) {
      if (part.status === 'rejected') throw part.reason;
    }
    this.#context.isolation.endRound();
    if (this.#context.isolation.halt === 'unauthorised') this.#ports.telemetry.metrics.add('TokenRejected');
  }

  /**
   * Polls the flows that are due, and notes whether a limit makes that take longer than the poll interval: then fewer
   * uploads leave the line.
   */
  async #pollDue(): Promise<void> {
    const { clock, pacer, settings } = this.#ports;
    const startedAt = clock.now();
    await this.#polls.round();
    const tookMs = pacer.learnt === undefined ? 0 : clock.now() - startedAt;
    this.#waitingUploads.notePolls(Math.min(1, (settings.pollIntervalSeconds * 1000) / tookMs));
  }

  async #resubmitWaiting(): Promise<void> {
    const { succeeded, failed } = this.#flows.counts;
    const { closing } = this.#context.invocation;
    const { sent, failures } = await this.#waitingUploads.resubmitDue(succeeded + failed, closing);
    this.#context.isolation.add(...failures);
    this.#counts.resubmitted += sent;
  }

  #mayRoundBeginAt(time: number, lastStartedAt: number): boolean {
    const { work, workEndsAt } = this.#context.invocation;
    if (this.#lease.isLost || work.aborted || time >= workEndsAt) return false;
    if (!this.#storing.isEmpty) return true;
    if (this.#context.isolation.halt !== undefined) return false;
    const isYoungRunning = lastStartedAt - this.#polls.newestAt < YOUNG_MS;
    return this.#polls.isSlowLeft || (isYoungRunning && time < this.#until);
  }

  /**
   * Leaves the next round to a message if this invocation would only wait for it. It keeps the round while it stores
   * assets or has slow polls left. It also keeps it while uploads are in the line or requests are limited: only this
   * process knows the pace of the line and the pacer's backoffs.
   */
  #isHandedOver(next: number): boolean {
    const { nextRound, clock, pacer } = this.#ports;
    const isAtWork = !this.#storing.isEmpty || this.#polls.isSlowLeft || this.#waitingUploads.isLine;
    if (nextRound === undefined || isAtWork || pacer.learnt !== undefined) return false;
    if (next - clock.now() < HANDED_OVER_MIN_MS) return false;
    this.handedOverUntil = next;
    return true;
  }

  /**
   * Time from the beginning of one round to that of the next, in milliseconds. It is shorter while a flow has only just
   * begun. Then polls take at most a third of the requests that the service allows: creations and assets need the rest.
   */
  #roundMs(startedAt: number, pollCount: number): number {
    if (this.#context.isolation.halt !== undefined) return OUTAGE_GAP_MS;
    const intervalMs = this.#ports.settings.pollIntervalSeconds * 1000;
    if (!isEarly(this.#polls.newestAt, startedAt, intervalMs)) return intervalMs;
    const { requestsPerSecond } = this.#ports.pacer.learnt ?? { requestsPerSecond: Number.POSITIVE_INFINITY };
    return Math.min(intervalMs, Math.max(intervalMs / EARLY_POLLS, (3_000 * pollCount) / requestsPerSecond));
  }

  /** Waits until `time`. Returns early if everything has been stored meanwhile, or the time of the tick is over. */
  async #pauseUntil(time: number): Promise<void> {
    const { clock } = this.#ports;
    const woken = new AbortController();
    const sleep = clock
      .sleep(time - clock.now(), AbortSignal.any([this.#context.invocation.work, woken.signal]))
      .catch(() => {}); // Woken, or out of time: in both cases the caller looks at the clock.
    await Promise.race(this.#storing.isEmpty ? [sleep] : [sleep, this.allStored()]);
    woken.abort();
    await sleep;
  }
}
