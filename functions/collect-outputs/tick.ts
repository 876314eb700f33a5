import type { S3Client } from '@aws-sdk/client-s3';
import pMap from 'p-map';
import { type Invocation, OutOfTimeError } from '../base/invocation.ts';
import { Semaphore } from '../base/semaphore.ts';
import { secondsBetween } from '../base/telemetry.ts';
import { FlowServiceError } from '../flow-service/errors.ts';
import type { FlowService } from '../flow-service/types.ts';
import type { CollectorState, UnfinishedRound } from '../ledger/collector-state.ts';
import { type RunningMarker, runningKey } from '../ledger/keys.ts';
import { UnreadableEntryError } from '../ledger/store.ts';
import type { UploadQueue } from '../resubmit/resubmit.ts';
import { WaitingUploads } from '../resubmit/waiting-uploads.ts';
import { type CollectFlowPorts, type EndedFlow, FlowCollector } from './collect-flow.ts';
import { FirstLooks } from './first-looks.ts';
import { FlowStates } from './flow-states.ts';
import { EARLY_LOOKS, isDue, isEarly, YOUNG_MS } from './poll-schedule.ts';
import { type Outage, outageOf, ServiceHealth } from './service-health.ts';

/** Flows that are stored side by side. `AssetSlots` decides how many of their assets are fetched, by memory. */
const STORING_CONCURRENCY = 64;

/** Ended flows that may wait to be stored before looks wait too: it bounds memory, and finishes first what has ended. */
const ENDED_MAX = 256;

export interface CollectPorts extends CollectFlowPorts {
  readonly queue: UploadQueue;
  /** For the lease. */
  readonly s3: S3Client;
}

/** Which share of the markers a tick looks at. */
export interface CollectorShare {
  readonly index: number;
  readonly of: number;
}

/** Why a round stopped before it had looked at everything. */
type Halt = 'out of time' | Outage;

export interface TickSummary {
  readonly result: 'completed' | 'lease taken' | Halt;
  readonly rounds: number;
  readonly resubmitted: number;
  readonly running: number;
  readonly polled: number;
  readonly succeeded: number;
  readonly failed: number;
}

/** What became of a flow's turn. `none`: the tick stopped before it, or in the middle of it. */
type Turn = 'done' | 'failed' | 'outage' | 'none';

/** An upload or a flow that a failure is about. */
interface Subject {
  readonly uploadId: string;
  readonly flowId?: string;
}

/**
 * One tick of a collector.
 *
 * A round goes through the markers of all running flows in the order of their creation, and looks at those that are
 * due. A round that is cut off goes on in the next tick where it stopped. Flows that were seen to have ended are stored
 * beside the rounds; those that a tick did not get to are the first that the next one looks at.
 */
export class Tick {
  readonly #share: CollectorShare;
  readonly #ports: CollectPorts;
  readonly #invocation: Invocation;
  readonly #health = new ServiceHealth();
  readonly #firstLooks: FirstLooks;
  readonly #flows: FlowCollector;
  readonly #states: FlowStates;
  readonly #waitingUploads: WaitingUploads;
  readonly #storingPlaces = new Semaphore(STORING_CONCURRENCY);
  /** Flows whose outputs are being stored, or wait for their turn, by their uploads. */
  readonly #storing = new Map<string, Promise<void>>();
  /** Markers of flows that were seen to have ended and are not settled. */
  readonly #ended: Set<string>;
  /** Flows that are too old, and whose assets the service refused. */
  readonly #refusedOverdue: RunningMarker[] = [];
  readonly #failures: unknown[] = [];
  readonly #counts = { rounds: 0, resubmitted: 0, running: 0, polled: 0 };
  #lastCompletedAt: number | undefined;
  #unfinishedRound: UnfinishedRound | undefined;
  #halt: Halt | undefined;
  #hasYoung = false;
  #hasEarly = false;
  /** Looks of the last round. */
  #lookCount = 0;

  constructor(share: CollectorShare, remembered: CollectorState, ports: CollectPorts, invocation: Invocation) {
    this.#share = share;
    this.#ports = ports;
    this.#invocation = invocation;
    this.#firstLooks = new FirstLooks(remembered.firstLooks ?? {}, ports.settings.pollIntervalSeconds * 1000);
    this.#flows = new FlowCollector(ports, invocation, this.#health, this.#firstLooks);
    this.#states = statesOf(ports);
    this.#waitingUploads = new WaitingUploads(ports, remembered.throttled, (uploadId) => this.#isOurs(uploadId));
    this.#ended = new Set(remembered.endedMarkers);
    this.#lastCompletedAt = remembered.lastCompletedAt;
    this.#unfinishedRound = remembered.unfinishedRound;
    if (remembered.pace !== undefined) ports.flows.resumePace(remembered.pace);
  }

  /** Why the tick goes no further. */
  get halt(): Halt | undefined {
    return this.#halt;
  }

  /** A tick that worked for all of its time did what it could. */
  get isCutShort(): boolean {
    return this.#halt !== undefined && !(this.#halt === 'out of time' && this.#health.hasAnswered);
  }

  get isStoring(): boolean {
    return this.#storing.size > 0;
  }

  /** Whether a young flow of this collector is running, so that it looks again soon. */
  get hasYoung(): boolean {
    return this.#hasYoung;
  }

  /**
   * Time from the beginning of one round to that of the next, in milliseconds. It is shorter while a flow has only just
   * begun, but looks must not use up an allowance that creations and assets need: they take a third of the time.
   */
  get roundMs(): number {
    const intervalMs = this.#ports.settings.pollIntervalSeconds * 1000;
    if (!this.#hasEarly) return intervalMs;
    const { requestsPerSecond } = this.#ports.flows.learntPace ?? { requestsPerSecond: Number.POSITIVE_INFINITY };
    return Math.min(intervalMs, Math.max(intervalMs / EARLY_LOOKS, (3_000 * this.#lookCount) / requestsPerSecond));
  }

  /** What the next tick has to know. */
  get memory(): Partial<CollectorState> {
    return {
      lastCompletedAt: this.#lastCompletedAt,
      unfinishedRound: this.#unfinishedRound,
      endedMarkers: this.#ended.size === 0 ? undefined : [...this.#ended],
      firstLooks: this.#firstLooks.remembered,
      pace: this.#ports.flows.learntPace,
      throttled: this.#waitingUploads.remembered,
    };
  }

  summary(result: TickSummary['result']): TickSummary {
    return { result, ...this.#counts, ...this.#flows.counts };
  }

  throwFailures(): void {
    if (this.#failures.length > 0) {
      throw new AggregateError(
        this.#failures,
        `${this.#failures.length} uploads could not be seen to; all others were`,
      );
    }
  }

  /** Looks at everything that is due, and sends on what waits. Stops where `halt` says so. */
  async round(): Promise<void> {
    this.#counts.rounds += 1;
    const polledBefore = this.#counts.polled;
    // Both come to their end before anything is thrown: nothing may be under way when an invocation ends.
    for (const part of await Promise.allSettled([this.#look(), this.#resubmitWaiting()])) {
      if (part.status === 'rejected') throw part.reason;
    }
    this.#lookCount = this.#counts.polled - polledBefore;
    this.#halt ??= this.#health.outageOfRound;
    if (this.#halt === 'unauthorised') this.#ports.telemetry.metrics.count('TokenRejected');
  }

  /** Waits until then; not so long if everything was stored meanwhile, or the time is over. */
  async pauseUntil(time: number): Promise<void> {
    const { work } = this.#invocation;
    const woken = new AbortController();
    const sleep = this.#ports.clock
      .sleep(time - this.#ports.clock.now(), AbortSignal.any([work, woken.signal]))
      .catch(() => {}); // Woken, or out of time: the caller looks at the clock either way.
    await Promise.race(this.isStoring ? [sleep, this.allStored()] : [sleep]);
    woken.abort();
    await sleep;
  }

  async allStored(): Promise<void> {
    await Promise.all(this.#storing.values());
  }

  /**
   * Waits until everything is stored. A flow that is too old, and whose assets were refused before it was known that the
   * service answers for others, is tried once more: now such an asset is given up.
   */
  async finish(): Promise<void> {
    await this.allStored();
    const late = this.#refusedOverdue.splice(0);
    const own = late.filter(({ flowId }) => this.#health.hasAnsweredForAnother(flowId));
    await pMap(own, (marker) => this.#see(marker, []), { concurrency: this.#ports.settings.pollConcurrency });
    await this.allStored();
  }

  async #resubmitWaiting(): Promise<void> {
    const endedCount = this.#flows.counts.succeeded + this.#flows.counts.failed;
    const { sent, failures } = await this.#waitingUploads.round(endedCount, this.#invocation.closing);
    this.#failures.push(...failures);
    this.#counts.resubmitted += sent;
  }

  async #look(): Promise<void> {
    const { clock, settings } = this.#ports;
    const now = clock.now();
    const { ours, shared } = await this.#markers(now);
    if (this.#counts.rounds === 1) {
      for (const marker of shared) await this.#guarded(marker, () => this.#seeShared(marker));
    }
    const wasSeenToEnd = (marker: RunningMarker): boolean => this.#ended.has(runningKey(marker));
    for (const key of this.#ended) if (!ours.has(key)) this.#ended.delete(key);
    const free = [...ours.values()].filter(({ uploadId }) => !this.#storing.has(uploadId));
    // What was seen to have ended is stored before anything else is looked at.
    const overdue: Overdue[] = [];
    const concurrency = settings.pollConcurrency;
    await pMap(free.filter(wasSeenToEnd), (marker) => this.#see(marker, overdue), { concurrency });

    const isResumed = this.#unfinishedRound !== undefined;
    const wasLookedAt = await this.#lookFrom(this.#unfinishedRound ?? { startedAt: now, after: '' }, free, overdue);
    // The round before had nothing left to look at: this one begins anew.
    if (isResumed && !wasLookedAt && this.#halt === undefined) {
      await this.#lookFrom({ startedAt: now, after: '' }, free, overdue);
    }
    // Only now is it known whether the service answers for others. Aborting each may take as long as looking at it.
    await pMap(overdue, ({ marker, error }) => this.#giveUp(marker, error), { concurrency });
  }

  /** Ends a flow that is too old, also while the service answers for nobody. */
  async #giveUp(marker: RunningMarker, why: FlowServiceError): Promise<void> {
    if (this.#invocation.work.aborted) return;
    try {
      await this.#flows.giveUp(marker, why);
    } catch (error) {
      const { uploadId, flowId } = marker;
      this.#ports.telemetry.log.error('This flow is too old and could not be ended', {
        uploadId,
        flowId,
        error: error as Error,
      });
      this.#failures.push(error);
    }
  }

  /** A round, or the rest of it. Returns whether any flow was due. */
  async #lookFrom(round: UnfinishedRound, free: readonly RunningMarker[], overdue: Overdue[]): Promise<boolean> {
    const { clock, settings } = this.#ports;
    const now = clock.now();
    const intervalMs = settings.pollIntervalSeconds * 1000;
    const due = free.filter(
      (marker) =>
        !this.#ended.has(runningKey(marker)) &&
        runningKey(marker) > round.after &&
        isDue(marker.createdAt, this.#lastCompletedAt, now, intervalMs),
    );
    const isWhole = await this.#lookAtDue(due, round, overdue);
    if (isWhole && !this.#health.isInVain) {
      // After a round in which nobody was answered everything is due as before.
      if (round.isInVain !== true) this.#lastCompletedAt = round.startedAt;
      this.#unfinishedRound = undefined;
    } else if (this.#unfinishedRound !== undefined && this.#health.isInVain) {
      this.#unfinishedRound = { ...this.#unfinishedRound, isInVain: true };
    }
    return due.length > 0;
  }

  /** All running markers that are this collector's, by their keys in the order of creation; and those that share a flow. */
  async #markers(
    now: number,
  ): Promise<{ readonly ours: Map<string, RunningMarker>; readonly shared: readonly RunningMarker[] }> {
    const { ledger, telemetry } = this.#ports;
    const ours = new Map<string, RunningMarker>();
    const uploadOf = new Map<string, string>();
    const sharedFlowIds = new Set<string>();
    let count = 0;
    let oldest = now;
    for await (const marker of ledger.runningMarkers(this.#invocation.closing)) {
      const { flowId, uploadId, createdAt } = marker;
      count += 1;
      oldest = Math.min(oldest, createdAt);
      if ((uploadOf.get(flowId) ?? uploadId) !== uploadId) sharedFlowIds.add(flowId);
      uploadOf.set(flowId, uploadId);
      if (this.#isOurs(uploadId)) ours.set(runningKey(marker), marker);
    }
    const uploadIds = new Set([...ours.values()].map(({ uploadId }) => uploadId));
    this.#firstLooks.retain(uploadIds);
    this.#states.retain(new Set(uploadOf.keys()));
    const shared = [...ours.values()].filter(({ flowId }) => sharedFlowIds.has(flowId));
    for (const marker of shared) ours.delete(runningKey(marker));
    this.#counts.running = ours.size + shared.length;
    const newest = [...ours.values()].reduce((latest, { createdAt }) => Math.max(latest, createdAt), 0);
    this.#hasYoung = now - newest < YOUNG_MS;
    this.#hasEarly = isEarly(newest, now, this.#ports.settings.pollIntervalSeconds * 1000);
    // Each collector goes through all markers, so the highest count is right however many collectors there are. It also
    // tells of flows that a missing collector leaves alone.
    telemetry.metrics.count('FlowsRunning', count);
    telemetry.metrics.count('OldestRunningSeconds', secondsBetween(oldest, now));
    return { ours, shared };
  }

  /** The service gave one flow to two uploads. Neither is collected, and both end when they are too old. */
  async #seeShared(marker: RunningMarker): Promise<void> {
    const { telemetry } = this.#ports;
    const { uploadId, flowId } = marker;
    telemetry.metrics.count('FlowsShared');
    telemetry.log.error('The service gave this flow to another upload too: nothing of it is collected', {
      uploadId,
      flowId,
    });
    if (this.#flows.isTooOld(marker)) await this.#flows.endShared(marker);
    else await this.#flows.noteShared(marker);
  }

  /** Looks at the flows of a round, as many at a time as the settings say. Returns whether all had their turn. */
  async #lookAtDue(due: readonly RunningMarker[], round: UnfinishedRound, overdue: Overdue[]): Promise<boolean> {
    const running = await this.#guardedStates(due);
    const isDone: boolean[] = [];
    let doneCount = 0;
    const done = (index: number): void => {
      isDone[index] = true;
      while (isDone[doneCount]) doneCount += 1;
      const last = due[doneCount - 1];
      if (last !== undefined) this.#unfinishedRound = { ...round, after: runningKey(last) };
    };
    await pMap(
      due,
      async (marker, index) => {
        const isKnown = running.has(marker.flowId) && !this.#flows.isTooOld(marker);
        if (isKnown) this.#firstLooks.forget(marker.uploadId);
        if (isKnown || (await this.#see(marker, overdue)) !== 'none') done(index);
      },
      { concurrency: this.#ports.settings.pollConcurrency },
    );
    return doneCount === due.length;
  }

  async #guardedStates(due: readonly RunningMarker[]): Promise<ReadonlySet<string>> {
    try {
      return await this.#states.running(due, this.#invocation.work);
    } catch (error) {
      if (!(error instanceof OutOfTimeError)) throw error;
      return new Set(); // The looks will find the time over.
    }
  }

  /** One look at one flow. */
  async #see(marker: RunningMarker, overdue: Overdue[]): Promise<Turn> {
    // Looks wait for what has ended: it is finished first, and its outputs' listings take memory.
    while (this.#storing.size >= ENDED_MAX) await Promise.race(this.#storing.values());
    const turn = await this.#guarded(marker, async () => {
      this.#counts.polled += 1;
      try {
        const flow = await this.#flows.see(marker);
        this.#health.answered(marker.flowId);
        if (flow !== undefined) this.#store(marker, flow);
      } catch (error) {
        if (error instanceof FlowServiceError && this.#flows.isTooOld(marker)) overdue.push({ marker, error });
        throw error;
      }
    });
    this.#forgetEnd(marker, turn);
    return turn;
  }

  /** A flow with trouble of its own comes round when it is due. What an outage or the time cut off goes on first. */
  #forgetEnd(marker: RunningMarker, turn: Turn): void {
    const isOutage = turn === 'outage' && !this.#health.hasAnsweredForAnother(marker.flowId);
    if (turn === 'none' || isOutage || this.#storing.has(marker.uploadId)) return;
    this.#ended.delete(runningKey(marker));
  }

  /** Has the outputs stored when it is their turn, while looks go on. */
  #store(marker: RunningMarker, flow: EndedFlow): void {
    const { uploadId } = marker;
    this.#ended.add(runningKey(marker));
    const stored = this.#storingPlaces
      .through(() => this.#guarded(marker, () => this.#flows.collect(flow)))
      .then((turn) => {
        this.#storing.delete(uploadId);
        if (turn === 'outage' && this.#flows.isTooOld(marker)) this.#refusedOverdue.push(marker);
        this.#forgetEnd(marker, turn);
      });
    this.#storing.set(uploadId, stored);
  }

  /**
   * Keeps the failure of one from the others: it is told of now, and again by the end of the tick. What concerns all of
   * them halts the tick instead.
   */
  async #guarded(subject: Subject, body: () => Promise<void>): Promise<Turn> {
    const { uploadId, flowId } = subject;
    const { telemetry } = this.#ports;
    const { log } = telemetry;
    if (this.#invocation.work.aborted) this.#halt ??= 'out of time';
    // An answer that is still on its way may end what looks like an outage.
    if (this.#halt !== undefined || this.#health.outage !== undefined) return 'none';
    try {
      await body();
      return 'done';
    } catch (error) {
      const fields = { uploadId, flowId, error: error as Error };
      if (error instanceof OutOfTimeError || this.#invocation.work.aborted) {
        if (this.#halt === undefined) log.warn('The tick goes no further: its time is over', fields);
        this.#halt ??= 'out of time';
        return 'none';
      }
      log.error('This upload could not be seen to; its next look tries again', fields);
      if (error instanceof UnreadableEntryError) telemetry.metrics.count('EntriesUnreadable');
      if (!(error instanceof FlowServiceError)) this.#failures.push(error);
      else if (flowId !== undefined) this.#health.failed(flowId, error);
      return outageOf(error) === undefined ? 'failed' : 'outage';
    }
  }

  #isOurs(uploadId: string): boolean {
    return Number.parseInt(uploadId.slice(0, 8), 16) % this.#share.of === this.#share.index;
  }
}

/** A flow that is too old, and why it could not be looked at. */
interface Overdue {
  readonly marker: RunningMarker;
  readonly error: FlowServiceError;
}

/** What a process knows of the listing outlives its ticks. */
const states = new WeakMap<FlowService, FlowStates>();

function statesOf(ports: CollectPorts): FlowStates {
  const known = states.get(ports.flows) ?? new FlowStates(ports);
  states.set(ports.flows, known);
  return known;
}
