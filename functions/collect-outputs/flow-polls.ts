import pMap from 'p-map';
import { type Invocation, OutOfTimeError } from '../base/invocation.ts';
import { FlowServiceError, ThrottledError } from '../flow-service/errors.ts';
import type { FlowService } from '../flow-service/types.ts';
import { type RunningMarker, runningKey } from '../ledger/keys.ts';
import type { CollectFlowPorts, FlowCollector } from './collect-flow.ts';
import {
  type CollectorShare,
  type CollectorState,
  listRunningMarkers,
  type RunningMarkers,
  type UnfinishedRound,
} from './collector.ts';
import type { EndConfirmations } from './end-confirmations.ts';
import type { FailureIsolation, Turn } from './failure-isolation.ts';
import type { LateFlows } from './late-flows.ts';
import { ListedAsRunning } from './listed-as-running.ts';
import { isDue } from './poll-schedule.ts';
import type { ServiceHealth } from './service-health.ts';
import type { SlowPolls } from './slow-polls.ts';
import type { StoringQueue } from './storing-queue.ts';

/**
 * Longest time for which a round begins polls of flows that were slow, in milliseconds. Each poll may take a little
 * longer than that. Flows that are left come first in the next round.
 */
const SLOW_POLLS_MS = 15_000;

interface FlowPollsParts {
  readonly invocation: Invocation;
  readonly health: ServiceHealth;
  readonly confirmations: EndConfirmations;
  readonly flows: FlowCollector;
  readonly isolation: FailureIsolation;
  readonly storing: StoringQueue;
  readonly late: LateFlows;
  readonly slow: SlowPolls;
  readonly share: CollectorShare;
}

/** A flow that is too old, and why its poll failed. */
interface Overdue {
  readonly marker: RunningMarker;
  readonly error: FlowServiceError;
}

/**
 * Rounds of polls. A round goes through the markers of all running flows in the order of their creation, and polls the
 * flows that are due. If a round is cut off, the next tick resumes it.
 */
export class FlowPolls {
  readonly #ports: CollectFlowPorts;
  readonly #parts: FlowPollsParts;
  readonly #listed: ListedAsRunning;
  #isFirstRound = true;
  #lastCompletedAt: number | undefined;
  #unfinishedRound: UnfinishedRound | undefined;
  /** Flows of this collector that were running at the beginning of the last round, and polls of the whole tick. */
  readonly counts = { running: 0, polled: 0 };
  /** When the youngest running flow of this collector began to age, in ms since the epoch. 0 if none is running. */
  newestAt = 0;
  /** True if the last round had no time for some flows whose polls are slow. */
  isSlowLeft = false;

  constructor(remembered: CollectorState, ports: CollectFlowPorts, parts: FlowPollsParts) {
    this.#ports = ports;
    this.#parts = parts;
    this.#listed = listedOf(ports);
    this.#lastCompletedAt = remembered.lastCompletedAt;
    this.#unfinishedRound = remembered.unfinishedRound;
  }

  /** Where the next tick goes on. */
  get memory(): Pick<CollectorState, 'lastCompletedAt' | 'unfinishedRound' | 'slowPolls'> {
    const { remembered: slowPolls } = this.#parts.slow;
    return { lastCompletedAt: this.#lastCompletedAt, unfinishedRound: this.#unfinishedRound, slowPolls };
  }

  /** Polls everything that is due, or stops early if the tick halts. */
  async round(): Promise<void> {
    const { clock, settings } = this.#ports;
    const { isolation, storing, slow } = this.#parts;
    const now = clock.now();
    const { ours, shared } = await this.#markers(now);
    if (this.#isFirstRound) {
      for (const marker of shared) await isolation.run(marker, () => this.#endShared(marker));
    }
    this.#isFirstRound = false;
    storing.retain(ours);
    slow.retain(ours.values());
    const free = [...ours.values()].filter((marker) => !storing.has(marker));
    const ended = this.#inTurn(free.filter((marker) => storing.hasEnded(marker)));
    const running = free.filter((marker) => !storing.hasEnded(marker));
    const others = running.filter((marker) => !slow.has(marker));
    const slowOnes = slow.due(running, now, settings.pollIntervalSeconds * 1000);
    const overdue: Overdue[] = [];
    const concurrency = settings.pollConcurrency;
    // Flows that ended are polled first. Their outputs are stored while the other flows are polled.
    await pMap(ended.others, (marker) => this.#poll(marker, overdue), { concurrency });
    const pollingLate = pMap(ended.late, (marker) => this.#poll(marker, overdue), { concurrency });
    try {
      const isResumed = this.#unfinishedRound !== undefined;
      const wasAnyDue = await this.#pollFrom(this.#unfinishedRound ?? { startedAt: now, after: '' }, others, overdue);
      // If the unfinished round had nothing left to poll, a new one begins.
      if (isResumed && !wasAnyDue && isolation.halt === undefined) {
        await this.#pollFrom({ startedAt: now, after: '' }, others, overdue);
      }
      await this.#pollSlow(slowOnes, overdue);
    } finally {
      await pollingLate;
    }
    // Only now is it known whether the service answers for others. Each abort may take as long as a poll.
    await pMap(overdue, ({ marker, error }) => this.#abandon(marker, error), { concurrency });
  }

  /** Polls flows once more whose assets were refused. By now the service has answered for others. */
  async pollAgain(markers: readonly RunningMarker[]): Promise<void> {
    await pMap(markers, (marker) => this.#poll(marker, []), { concurrency: this.#ports.settings.pollConcurrency });
  }

  /**
   * Divides the flows that have ended. Of the late ones it takes as many as there is room for: first those that must
   * end in any case, then those that have waited longest.
   */
  #inTurn(ended: readonly RunningMarker[]): Record<'late' | 'others', readonly RunningMarker[]> {
    const { flows, late, storing } = this.#parts;
    const byUpload = new Map(ended.map((marker) => [marker.uploadId, marker]));
    const lateOnes = (late.remembered ?? []).flatMap((uploadId) => byUpload.get(uploadId) ?? []);
    const last = lateOnes.filter((marker) => flows.isTwiceTooOld(marker));
    const others = lateOnes.filter((marker) => !flows.isTwiceTooOld(marker));
    return {
      others: ended.filter(({ uploadId }) => !late.has(uploadId)),
      late: [...last, ...others].slice(0, storing.lateRoom),
    };
  }

  async #markers(now: number): Promise<RunningMarkers> {
    const { invocation, confirmations, share } = this.#parts;
    const markers = await listRunningMarkers(this.#ports, share, now, invocation.closing);
    const ours = [...markers.ours.values()];
    const running = [...ours, ...markers.shared];
    confirmations.retain(running);
    this.counts.running = running.length;
    this.newestAt = ours.reduce((latest, { ageFrom }) => Math.max(latest, ageFrom), 0);
    return markers;
  }

  /** Ends an upload whose flow belongs to two uploads, if it is too old. Neither upload is collected. */
  async #endShared(marker: RunningMarker): Promise<void> {
    const { telemetry } = this.#ports;
    const { flows } = this.#parts;
    const { uploadId, flowId } = marker;
    telemetry.metrics.add('FlowsShared');
    telemetry.log.error('The service gave this flow to another upload too: nothing of it is collected', {
      uploadId,
      flowId,
    });
    if (flows.isTooOld(marker)) await flows.endShared(marker);
    else await flows.noteShared(marker);
  }

  /** Polls a round, or the rest of it. Returns true if any flow was due. */
  async #pollFrom(round: UnfinishedRound, free: readonly RunningMarker[], overdue: Overdue[]): Promise<boolean> {
    const { clock, settings } = this.#ports;
    const { health, storing } = this.#parts;
    const now = clock.now();
    const intervalMs = settings.pollIntervalSeconds * 1000;
    const due = free.filter(
      (marker) =>
        !storing.hasEnded(marker) &&
        runningKey(marker) > round.after &&
        isDue(marker.ageFrom, this.#lastCompletedAt, now, intervalMs),
    );
    const isWhole = await this.#pollAll(due, round, overdue);
    if (isWhole && !health.isUnanswered) {
      // After a round in which the service answered no flow, all flows are due as before.
      if (round.isUnanswered !== true) this.#lastCompletedAt = round.startedAt;
      this.#unfinishedRound = undefined;
    } else if (this.#unfinishedRound !== undefined && health.isUnanswered) {
      this.#unfinishedRound = { ...this.#unfinishedRound, isUnanswered: true };
    }
    return due.length > 0;
  }

  /** Polls these flows, `settings.pollConcurrency` at a time. Returns true if all had their turn. */
  async #pollAll(due: readonly RunningMarker[], round: UnfinishedRound, overdue: Overdue[]): Promise<boolean> {
    const { flows, confirmations } = this.#parts;
    const running = await this.#listedAsRunning(due, round.startedAt);
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
        const isKnown = running.has(marker.flowId) && !flows.isTooOld(marker);
        if (isKnown) confirmations.forget(marker.uploadId);
        if (isKnown || (await this.#poll(marker, overdue)) !== 'none') done(index);
      },
      { concurrency: this.#ports.settings.pollConcurrency },
    );
    return doneCount === due.length;
  }

  /** Polls flows whose last poll was slow, until {@link SLOW_POLLS_MS} are over. */
  async #pollSlow(due: readonly RunningMarker[], overdue: Overdue[]): Promise<void> {
    const { clock, settings } = this.#ports;
    const endsAt = clock.now() + SLOW_POLLS_MS;
    let begun = 0;
    const poll = async (marker: RunningMarker) => {
      if (clock.now() >= endsAt) return;
      begun += 1;
      await this.#poll(marker, overdue);
    };
    await pMap(due, poll, { concurrency: settings.pollConcurrency });
    this.isSlowLeft = begun < due.length;
  }

  async #listedAsRunning(due: readonly RunningMarker[], roundAt: number): Promise<ReadonlySet<string>> {
    try {
      return await this.#listed.running(due, roundAt, this.#parts.invocation.work);
    } catch (error) {
      if (!(error instanceof OutOfTimeError)) throw error;
      return new Set(); // The polls will find that the time is over.
    }
  }

  /** Polls one flow. If it has ended, its outputs are stored while the polls go on. */
  async #poll(marker: RunningMarker, overdue: Overdue[]): Promise<Turn> {
    const { health, flows, isolation, storing } = this.#parts;
    await storing.whenFree();
    let wasTurnedAway = false;
    let isPutOff = false;
    const turn = await isolation.run(marker, async () => {
      this.counts.polled += 1;
      try {
        const flow = await flows.poll(marker);
        health.answered(marker.flowId);
        if (flow !== undefined) isPutOff = !storing.add(marker, flow);
      } catch (error) {
        wasTurnedAway = error instanceof ThrottledError && error.isOthersTrouble;
        if (error instanceof FlowServiceError && flows.isTooOld(marker)) overdue.push({ marker, error });
        throw error;
      }
    });
    if (!isPutOff) storing.forgetEnd(marker, turn);
    // With 'none', the next tick begins at this flow. Otherwise throttled flows before it would take its turn each
    // time.
    return wasTurnedAway ? 'none' : turn;
  }

  /** Ends a flow that is too old, even if the tick halts for an outage. */
  async #abandon(marker: RunningMarker, reason: FlowServiceError): Promise<void> {
    const { invocation, flows, isolation } = this.#parts;
    if (invocation.work.aborted) return;
    try {
      await flows.abandon(marker, reason);
    } catch (error) {
      const { uploadId, flowId } = marker;
      this.#ports.telemetry.log.error('This flow is too old and could not be ended', {
        uploadId,
        flowId,
        error: error as Error,
      });
      isolation.add(error);
    }
  }
}

/** What a process knows of the service's listing outlives its ticks. */
const listedByService = new WeakMap<FlowService, ListedAsRunning>();

function listedOf(ports: CollectFlowPorts): ListedAsRunning {
  const known = listedByService.get(ports.flows) ?? new ListedAsRunning(ports);
  listedByService.set(ports.flows, known);
  return known;
}
