import type { RunningMarker } from '../ledger/keys.ts';
import type { FlowCollector } from './collect-flow.ts';
import type { NotedUploads } from './collector.ts';
import type { FailureIsolation } from './failure-isolation.ts';
import type { EndedFlow } from './flow-assets.ts';

/**
 * Ended flows that are stored side by side. If there are more, polls wait too. It bounds memory, and ended flows are
 * finished first. `AssetSlots` decides how many of their assets are fetched.
 */
const ENDED_MAX = 256;

/** Maximum number of late flows among them: as many as there are slots. So late flows never make polls wait. */
const LATE_MAX = 32;

interface StoringParts {
  readonly flows: Pick<FlowCollector, 'collect'>;
  readonly isolation: FailureIsolation;
  /** Flows that have ended, and are not stored yet. The next tick stores them first. */
  readonly ended: NotedUploads;
  /**
   * Ended flows whose asset failed, or lost its slot to another one, after its time in the slot. Until they are stored,
   * their assets come after those of all others: see `AssetSlots`. The one that has waited longest comes first.
   */
  readonly late: NotedUploads;
  readonly now: () => number;
}

/** Stores the outputs of ended flows, beside the polls of other flows. */
export class StoringQueue {
  readonly #parts: StoringParts;
  /** By upload id: flows whose outputs are being stored. */
  readonly #storing = new Map<string, Promise<void>>();
  /** Resolves when the next flow has been stored. Undefined while nothing waits for that. */
  #freed: PromiseWithResolvers<void> | undefined;

  constructor(parts: StoringParts) {
    this.#parts = parts;
  }

  get isEmpty(): boolean {
    return this.#storing.size === 0;
  }

  has({ uploadId }: RunningMarker): boolean {
    return this.#storing.has(uploadId);
  }

  /** Number of late flows for which there is room. */
  get lateRoom(): number {
    const { late } = this.#parts;
    return Math.max(0, LATE_MAX - [...this.#storing.keys()].filter((uploadId) => late.has(uploadId)).length);
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

  /** Begins to store a flow. A late flow without room is only remembered: a later round stores it. */
  add(marker: RunningMarker, flow: EndedFlow): void {
    const { flows, isolation, ended, late, now } = this.#parts;
    const { uploadId } = marker;
    ended.note(uploadId, now());
    if (late.has(uploadId) && this.lateRoom === 0) return;
    const stored = isolation
      .run(marker, () => flows.collect(flow))
      .then((outcome) => {
        this.#storing.delete(uploadId);
        this.#freed?.resolve();
        this.#freed = undefined;
        // A flow with trouble of its own, or of the service, is polled again when it is due.
        if (outcome === 'over') ended.forget(uploadId);
      });
    this.#storing.set(uploadId, stored);
  }

  async allStored(): Promise<void> {
    await Promise.all(this.#storing.values());
  }
}
