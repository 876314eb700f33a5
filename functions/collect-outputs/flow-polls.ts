import pMap from 'p-map';
import { FlowServiceError, ThrottledError } from '../flow-service/errors.ts';
import { type RunningMarker, runningKey } from '../ledger/keys.ts';
import type { CollectFlowPorts, FailedPoll, FlowCollector } from './collect-flow.ts';
import { type CollectorState, listRunningMarkers, type UnfinishedRound } from './collector.ts';
import type { Outcome } from './failure-isolation.ts';
import { listedAsRunning } from './listed-as-running.ts';
import { isDue, isTooOld } from './poll-schedule.ts';
import type { StoringQueue } from './storing-queue.ts';
import type { TickContext } from './tick-context.ts';

/**
 * Time within which a round begins polls of slow flows, in milliseconds. A poll may end later. In the next round, the
 * slow flows that were left come before the other slow ones.
 */
const SLOW_POLLS_MS = 15_000;

/**
 * Rounds of polls. A round goes through the markers of all running flows in the order of their creation, and polls the
 * flows that are due. If a round is cut off, the next tick resumes it.
 */
export class FlowPolls {
  readonly #ports: CollectFlowPorts;
  readonly #tick: TickContext;
  readonly #flows: FlowCollector;
  readonly #storing: StoringQueue;
  #lastCompletedAt: number | undefined;
  #unfinishedRound: UnfinishedRound | undefined;
  /** Flows whose polls failed in this round, and why. At its end, those that are too old are given up. */
  readonly #overdue: FailedPoll[] = [];
  /** Flows of this collector that were running at the beginning of the last round, and polls of the whole tick. */
  readonly counts = { running: 0, polled: 0 };
  /** When the youngest running flow of this collector began to age, in ms since the epoch. 0 if none is running. */
  newestAt = 0;
  /** True if the last round had no time for some flows whose polls are slow. */
  isSlowLeft = false;

  constructor(
    remembered: CollectorState,
    ports: CollectFlowPorts,
    tick: TickContext,
    { flows, storing }: { readonly flows: FlowCollector; readonly storing: StoringQueue },
  ) {
    this.#ports = ports;
    this.#tick = tick;
    this.#flows = flows;
    this.#storing = storing;
    this.#lastCompletedAt = remembered.lastCompletedAt;
    this.#unfinishedRound = remembered.unfinishedRound;
  }

  /** Where the next tick goes on. */
  get memory(): Pick<CollectorState, 'lastCompletedAt' | 'unfinishedRound'> {
    return { lastCompletedAt: this.#lastCompletedAt, unfinishedRound: this.#unfinishedRound };
  }

  /** Polls everything that is due, or stops early if the tick halts. */
  async round(): Promise<void> {
    const { invocation, isolation, ended, lagging, slow } = this.#tick;
    const now = this.#ports.clock.now();
    const free = (await this.#markers(now)).filter((marker) => !this.#storing.has(marker));
    const running = free.filter(({ uploadId }) => !ended.has(uploadId));
    // Flows that ended are polled first. Their outputs are stored while the other flows are polled.
    const toStore = ended.among(free).map(({ marker }) => marker);
    await this.#each(
      toStore.filter(({ uploadId }) => !lagging.has(uploadId)),
      (marker) => this.#poll(marker),
    );
    const laggingOnes = lagging.among(toStore).slice(0, this.#storing.laggingRoom);
    const pollingLagging = this.#each(laggingOnes, ({ marker }) => this.#poll(marker));
    try {
      await this.#pollInOrder(
        running.filter(({ uploadId }) => !slow.has(uploadId)),
        now,
      );
      await this.#pollSlow(running, now);
    } finally {
      await pollingLagging;
    }
    // Only now is it known whether the service answers for others. An abort may take as long as a poll, so the time is
    // checked before each.
    await this.#each(this.#overdue.splice(0), async (failed) => {
      if (invocation.work.aborted) return;
      await isolation.runInOutage(failed.marker, () => this.#flows.abandon(failed));
    });
  }

  /** Lists this collector's markers. Ends the uploads that share a flow, and forgets what is not running any more. */
  async #markers(now: number): Promise<readonly RunningMarker[]> {
    const { invocation, confirmations, isolation, ended, lagging, slow, unclear, share } = this.#tick;
    const { ours, shared } = await listRunningMarkers(this.#ports, share, now, invocation.closing);
    confirmations.retainSince(ours);
    const uploadIds = new Set(ours.map(({ uploadId }) => uploadId));
    for (const noted of [ended, lagging, slow, unclear]) noted.retain(uploadIds);
    this.counts.running = ours.length;
    this.newestAt = ours.reduce((latest, { ageFrom }) => Math.max(latest, ageFrom), 0);
    for (const markers of shared) {
      const [first] = markers;
      if (first !== undefined) await isolation.run(first, () => this.#flows.endShared(markers));
    }
    return ours;
  }

  /**
   * Polls the flows that are due, from where the last round was cut off. If nothing is left of that round, a new one
   * begins.
   */
  async #pollInOrder(running: readonly RunningMarker[], now: number): Promise<void> {
    const { isolation } = this.#tick;
    const from = (after: string): readonly RunningMarker[] =>
      running.filter((marker) => runningKey(marker) > after && this.#isDue(marker, this.#lastCompletedAt, now));
    let round = this.#unfinishedRound ?? { startedAt: now, after: '' };
    let due = from(round.after);
    if (due.length === 0 && this.#unfinishedRound !== undefined && isolation.halt === undefined) {
      this.#lastCompletedAt = round.startedAt;
      round = { startedAt: now, after: '' };
      due = from('');
    }
    if (!(await this.#pollRound(due, round))) return;
    this.#unfinishedRound = undefined;
    // Without any answer of the service in the tick, the round does not count as completed, so its flows stay due.
    if (isolation.hasAnswered || isolation.outageOfRound === undefined) this.#lastCompletedAt = round.startedAt;
  }

  /** Polls these flows. Remembers up to which flow all were polled. Returns true if that is the last one. */
  async #pollRound(due: readonly RunningMarker[], round: UnfinishedRound): Promise<boolean> {
    const running = await listedAsRunning(due, round.startedAt, this.#ports, this.#tick.invocation.work);
    const isDone: boolean[] = [];
    let doneCount = 0;
    await this.#each(due, async (marker, index) => {
      const isKnown = running.has(marker.flowId) && !isTooOld(marker.ageFrom, this.#ports);
      if (isKnown) this.#tick.confirmations.forget(marker.uploadId);
      else if ((await this.#poll(marker)) === 'cut off') return;
      isDone[index] = true;
      while (isDone[doneCount]) doneCount += 1;
      const last = due[doneCount - 1];
      if (last !== undefined) this.#unfinishedRound = { ...round, after: runningKey(last) };
    });
    return doneCount === due.length;
  }

  /** Polls flows whose last poll was slow, until {@link SLOW_POLLS_MS} are over. */
  async #pollSlow(running: readonly RunningMarker[], now: number): Promise<void> {
    const { clock } = this.#ports;
    const due = this.#tick.slow.among(running).filter(({ marker, at }) => this.#isDue(marker, at, now));
    const endsAt = clock.now() + SLOW_POLLS_MS;
    this.isSlowLeft = false;
    await this.#each(due, async ({ marker }) => {
      if (clock.now() < endsAt) await this.#poll(marker);
      else this.isSlowLeft = true;
    });
  }

  #isDue({ ageFrom }: RunningMarker, polledAt: number | undefined, now: number): boolean {
    return isDue(ageFrom, polledAt, now, this.#ports.settings.pollIntervalSeconds * 1000);
  }

  /** Works on `settings.pollConcurrency` items at a time. */
  async #each<T>(items: readonly T[], work: (item: T, index: number) => Promise<unknown>): Promise<void> {
    await pMap(items, work, { concurrency: this.#ports.settings.pollConcurrency });
  }

  /** Polls one flow. If it has ended, its outputs are stored while the polls go on. */
  async #poll(marker: RunningMarker): Promise<Outcome> {
    const { isolation, ended } = this.#tick;
    await this.#storing.whenFree();
    let wasTurnedAway = false;
    let hasEnded = false;
    const outcome = await isolation.run(marker, async () => {
      this.counts.polled += 1;
      try {
        const flow = await this.#flows.poll(marker);
        isolation.pollAnswered(marker.flowId);
        hasEnded = flow !== undefined;
        if (flow !== undefined) this.#storing.add(marker, flow);
      } catch (error) {
        wasTurnedAway = error instanceof ThrottledError && error.isOthersTrouble;
        if (error instanceof FlowServiceError) {
          isolation.pollFailed(marker.flowId, error);
          this.#overdue.push({ marker, error, at: this.#ports.clock.now() });
        }
        throw error;
      }
    });
    if (outcome === 'over' && !hasEnded) ended.forget(marker.uploadId);
    // If a poll was refused only because of other flows, the next tick begins with it. If the tick began anew, the
    // throttled flows before this one would delay it each time.
    return wasTurnedAway ? 'cut off' : outcome;
  }
}
