import { Semaphore } from '../base/semaphore.ts';
import { type RunningMarker, runningKey } from '../ledger/keys.ts';
import type { EndedFlow, FlowCollector } from './collect-flow.ts';
import type { FailureIsolation, Turn } from './failure-isolation.ts';
import type { ServiceHealth } from './service-health.ts';

/** Flows that are stored side by side. `AssetSlots` decides by memory how many of their assets are fetched. */
const STORING_CONCURRENCY = 64;

/**
 * Ended flows that may wait to be stored before polls wait too. It bounds memory, and ended flows are finished first.
 */
const ENDED_MAX = 256;

interface StoringParts {
  readonly flows: FlowCollector;
  readonly health: ServiceHealth;
  readonly isolation: FailureIsolation;
}

/** Stores the outputs of ended flows, beside the polls of other flows. The next tick resumes what this one leaves. */
export class StoringQueue {
  readonly #parts: StoringParts;
  readonly #places = new Semaphore(STORING_CONCURRENCY);
  /** By upload id: flows whose outputs are being stored, or wait for their turn. */
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

  /** Forgets the flows whose markers are gone. */
  retain(markers: ReadonlyMap<string, RunningMarker>): void {
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

  add(marker: RunningMarker, flow: EndedFlow): void {
    const { flows, isolation } = this.#parts;
    const { uploadId } = marker;
    this.#ended.add(runningKey(marker));
    const stored = this.#places
      .through(() => isolation.run(marker, () => flows.collect(flow)))
      .then((turn) => {
        this.#storing.delete(uploadId);
        this.#freed?.resolve();
        this.#freed = undefined;
        if (turn === 'outage' && flows.isTooOld(marker)) this.#refusedOverdue.push(marker);
        this.forgetEnd(marker, turn);
      });
    this.#storing.set(uploadId, stored);
  }

  /**
   * Forgets that a flow has ended, after its turn. A flow with trouble of its own is polled again when it is due. A
   * flow that an outage or the end of the time cut off stays remembered, so that it is stored first.
   */
  forgetEnd(marker: RunningMarker, turn: Turn): void {
    const isOutage = turn === 'outage' && !this.#parts.health.hasAnsweredForAnother(marker.flowId);
    if (turn === 'none' || isOutage || this.has(marker)) return;
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
