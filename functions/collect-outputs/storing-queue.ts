import type { Clock } from '../base/clock.ts';
import type { RunningMarker } from '../ledger/keys.ts';
import type { FlowCollector } from './collect-flow.ts';
import type { EndedFlow } from './flow-assets.ts';
import type { TickContext } from './tick-context.ts';

/**
 * Maximum number of ended flows that are stored at the same time. At this number, polls wait too: that bounds memory,
 * and finishes ended flows first. `AssetSlots` decides how many of their assets are fetched.
 */
const ENDED_MAX = 256;

/** Maximum number of lagging flows among them. So lagging flows never make polls wait. */
const LAGGING_MAX = 32;

type StoringContext = Pick<TickContext, 'isolation' | 'ended' | 'lagging'>;

/** Stores the outputs of ended flows, beside the polls of other flows. */
export class StoringQueue {
  readonly #flows: Pick<FlowCollector, 'collect'>;
  readonly #tick: StoringContext;
  readonly #clock: Clock;
  /** By upload id: flows whose outputs are being stored. */
  readonly #storing = new Map<string, Promise<void>>();
  /** Resolves when the next flow has been stored. Undefined while nothing waits for that. */
  #freed: PromiseWithResolvers<void> | undefined;

  constructor(flows: Pick<FlowCollector, 'collect'>, tick: StoringContext, clock: Clock) {
    this.#flows = flows;
    this.#tick = tick;
    this.#clock = clock;
  }

  get isEmpty(): boolean {
    return this.#storing.size === 0;
  }

  has({ uploadId }: RunningMarker): boolean {
    return this.#storing.has(uploadId);
  }

  /** Number of lagging flows for which there is room. */
  get laggingRoom(): number {
    const { lagging } = this.#tick;
    return Math.max(0, LAGGING_MAX - [...this.#storing.keys()].filter((uploadId) => lagging.has(uploadId)).length);
  }

  /**
   * Resolves when there is room for another ended flow. All callers share one promise. A `Promise.race` of the stored
   * flows would subscribe each caller to each flow: with 2,000 ended flows that was four fifths of a tick's processor
   * time.
   */
  async whenFree(): Promise<void> {
    while (this.#storing.size >= ENDED_MAX) {
      this.#freed ??= Promise.withResolvers();
      await this.#freed.promise;
    }
  }

  /** Begins to store a flow. A lagging flow without room is only remembered: a later round stores it. */
  add(marker: RunningMarker, flow: EndedFlow): void {
    const { isolation, ended, lagging } = this.#tick;
    const { uploadId } = marker;
    if (!ended.has(uploadId)) ended.note(uploadId, this.#clock.now());
    if (lagging.has(uploadId) && this.laggingRoom === 0) return;
    const stored = isolation
      .run(marker, () => this.#flows.collect(flow))
      .then((outcome) => {
        this.#storing.delete(uploadId);
        this.#freed?.resolve();
        this.#freed = undefined;
        // Also forgotten if storing it failed: such a flow is polled again when it is due.
        if (outcome === 'over') ended.forget(uploadId);
      });
    this.#storing.set(uploadId, stored);
  }

  async allStored(): Promise<void> {
    await Promise.all(this.#storing.values());
  }
}
