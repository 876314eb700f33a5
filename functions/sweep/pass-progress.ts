import type { Clock } from '../base/clock.ts';
import type { Invocation } from '../base/invocation.ts';
import type { SweepKind, SweepPass, SweepPosition, SweepState, SweepStateStore } from './sweep-state.ts';

/**
 * Time after which a run that submits writes its position again, in milliseconds. A page of a listing may take minutes,
 * and a pass that an operator stopped must end soon.
 */
const STEP_MS = 10_000;

/** Where a run writes its position. */
export interface Hold {
  readonly kind: SweepKind;
  readonly store: SweepStateStore;
}

/** The position of a run in its pass. A dry run has no hold, and writes nothing. */
export class PassProgress {
  #pass: SweepPass;
  readonly #hold: Hold | undefined;
  readonly #clock: Clock;
  readonly #invocation: Invocation;
  #steppedAt: number;

  constructor(pass: SweepPass, hold: Hold | undefined, clock: Clock, invocation: Invocation) {
    this.#pass = pass;
    this.#hold = hold;
    this.#clock = clock;
    this.#invocation = invocation;
    this.#steppedAt = clock.now();
  }

  get pass(): SweepPass {
    return this.#pass;
  }

  get isDryRun(): boolean {
    return this.#hold === undefined;
  }

  get kind(): SweepKind | 'dry run' {
    return this.#hold?.kind ?? 'dry run';
  }

  /** Writes the position. Returns false if the run must end: its time is over, or another run has taken the pass. */
  async stepTo(position: SweepPosition, heldUntil = this.#invocation.endsAt): Promise<boolean> {
    const { kind } = this.#hold ?? {};
    this.#steppedAt = this.#clock.now();
    this.#pass = { ...this.#pass, position };
    if (kind === undefined) return !this.#invocation.work.aborted;
    const state = await this.#change((current, pass) => ({ ...current, [kind]: { ...pass, position, heldUntil } }));
    const pass = state?.[kind];
    if (pass?.holder !== this.#pass.holder) return false;
    this.#pass = pass; // Its pace may have been changed.
    return !this.#invocation.work.aborted;
  }

  /** Writes the same position again, if the last time is long ago. Returns false if the run must end. */
  async renew(): Promise<boolean> {
    return this.#clock.now() < this.#steppedAt + STEP_MS || this.stepTo(this.#pass.position);
  }

  /** Leaves the pass to the next run, which may take it at once. */
  async release(): Promise<void> {
    await this.stepTo(this.#pass.position, 0);
  }

  /** Ends the pass, and moves the watermark to `watermark` if the pass left no gap before it. */
  async end(watermark: number): Promise<void> {
    const { kind } = this.#hold ?? {};
    await this.#change((current, { since }) => {
      // A backfill whose `since` is after the watermark leaves a gap.
      const hasNoGap = kind === 'daily' || since <= current.watermark;
      const { daily, backfill, ...rest } = current;
      return {
        ...rest,
        watermark: hasNoGap ? Math.max(watermark, current.watermark) : current.watermark,
        ...(kind === 'daily' ? { backfill } : { daily }),
      };
    });
  }

  /** Changes the stored state of the pass, as long as this run holds it. */
  async #change(change: (state: SweepState, pass: SweepPass) => SweepState): Promise<SweepState | undefined> {
    if (this.#hold === undefined) return undefined;
    const { kind, store } = this.#hold;
    const { holder } = this.#pass;
    return store.update((current) => {
      const pass = current[kind];
      return pass?.holder === holder ? change(current, pass) : current;
    }, this.#invocation.closing);
  }
}
