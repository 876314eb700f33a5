import { type RunningMarker, runningKey } from '../ledger/keys.ts';
import type { EndedFlow, FlowCollector } from './collect-flow.ts';
import type { FailureIsolation, Turn } from './failure-isolation.ts';
import type { LateFlows } from './late-flows.ts';
import type { ServiceHealth } from './service-health.ts';

/**
 * Ended flows that are stored side by side. If there are more, polls wait too. It bounds memory, and ended flows are
 * finished first. `AssetSlots` decides how many of their assets are fetched.
 */
const ENDED_MAX = 256;

/** Maximum number of late flows among them: as many as there are slots. So late flows never make polls wait. */
const LATE_MAX = 32;

interface StoringParts {
  readonly flows: FlowCollector;
  readonly health: ServiceHealth;
  readonly isolation: FailureIsolation;
  readonly late: LateFlows;
}

/** Stores the outputs of ended flows, beside the polls of other flows. The next tick resumes what this one leaves. */
export class StoringQueue {
  readonly #parts: StoringParts;
  /** By upload id: flows whose outputs are being stored. */
  readonly #storing = new Map<string, Promise<void>>();
  /** Resolves when the next flow has been stored. Undefined while nothing waits for that. */
  #freed: PromiseWithResolvers<void> | undefined;
  /** Keys of the markers whose flows have ended, and are not stored yet. */
  readonly #ended: Set<string>;
  /** Flows that are too old, and whose assets the service refused. */
  readonly #refusedOverdue: RunningMarker[] = [];

  /** @param endedMarkers keys of the markers that the last tick left. */
  constructor(endedMarkers: readonly string[] | undefined, parts: StoringParts) {
    this.#ended = new Set(endedMarkers);
    this.#parts = parts;
  }

  get isEmpty(): boolean {
    return this.#storing.size === 0;
  }

  /** Keys for the next tick. */
  get endedMarkers(): readonly string[] | undefined {
    return this.#ended.size === 0 ? undefined : [...this.#ended];
  }

  has({ uploadId }: RunningMarker): boolean {
    return this.#storing.has(uploadId);
  }

  /** Returns true if a poll saw that the flow had ended. */
  hasEnded(marker: RunningMarker): boolean {
    return this.#ended.has(runningKey(marker));
  }

  /** Number of late flows for which there is room. */
  get lateRoom(): number {
    const { late } = this.#parts;
    return Math.max(0, LATE_MAX - [...this.#storing.keys()].filter((uploadId) => late.has(uploadId)).length);
  }

  /** Forgets the flows whose markers are gone. */
  retain(markers: ReadonlyMap<string, RunningMarker>): void {
    this.#parts.late.retain(new Set([...markers.values()].map(({ uploadId }) => uploadId)));
    for (const key of this.#ended) if (!markers.has(key)) this.#ended.delete(key);
  }

  /**
   * Resolves when another ended flow may wait to be stored. All callers share one promise. A `Promise.race` of the
   * stored flows would subscribe each caller to each flow: with 2,000 ended flows that was four fifths of a tick's
   * processor time.
   */
  async whenFree(): Promise<void> {
    while (this.#storing.size >= ENDED_MAX) {
      this.#freed ??= Promise.withResolvers();
      await this.#freed.promise;
    }
  }

  /** Begins to store a flow. Returns false for a late flow without room: a later round stores it. */
  add(marker: RunningMarker, flow: EndedFlow): boolean {
    const { flows, isolation, late } = this.#parts;
    const { uploadId } = marker;
    this.#ended.add(runningKey(marker));
    if (late.has(uploadId) && this.lateRoom === 0) return false;
    const stored = isolation
      .run(marker, () => flows.collect(flow))
      .then((turn) => {
        this.#storing.delete(uploadId);
        this.#freed?.resolve();
        this.#freed = undefined;
        if (turn === 'outage' && flows.isTooOld(marker)) this.#refusedOverdue.push(marker);
        this.forgetEnd(marker, turn);
      });
    this.#storing.set(uploadId, stored);
    return true;
  }

  /**
   * Forgets that a flow has ended, after its turn. A flow with trouble of its own is polled again when it is due. A
   * flow that an outage or the end of the time cut off stays remembered, so that it is stored first. So does one that
   * lost a slot to others.
   */
  forgetEnd(marker: RunningMarker, turn: Turn): void {
    const isOutage = turn === 'outage' && !this.#parts.health.hasAnsweredForAnother(marker.flowId);
    if (turn === 'none' || turn === 'overtaken' || isOutage || this.has(marker)) return;
    this.#ended.delete(runningKey(marker));
  }

  async allStored(): Promise<void> {
    await Promise.all(this.#storing.values());
  }

  /** Takes the flows that are too old and whose assets were refused, if the service has answered for others since. */
  takeRefusedOverdue(): readonly RunningMarker[] {
    const { health } = this.#parts;
    return this.#refusedOverdue.splice(0).filter(({ flowId }) => health.hasAnsweredForAnother(flowId));
  }
}
