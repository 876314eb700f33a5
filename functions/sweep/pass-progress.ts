import type { Clock } from '../base/clock.ts';
import type { Invocation } from '../base/invocation.ts';
import type { SweepCounts, SweepKind, SweepPass, SweepPosition, SweepState, SweepStateStore } from './sweep-state.ts';

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

/** The position of a run in its pass. */
export class PassProgress {
  #pass: SweepPass;
  readonly #hold: Hold;
  readonly #clock: Clock;
  readonly #invocation: Invocation;
  #steppedAt: number;

  constructor(pass: SweepPass, hold: Hold, clock: Clock, invocation: Invocation) {
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
    return this.kind === 'dryRun';
  }

  get kind(): SweepKind {
    return this.#hold.kind;
  }

  /**
   * Writes the position, with what was done up to it. Returns false if the run must end: its time is over, or another
   * run has taken the pass.
   */
  stepTo(position: SweepPosition, counts: SweepCounts): Promise<boolean> {
    return this.#write({ position, counts, heldUntil: this.#invocation.endsAt });
  }

  /**
   * Holds the pass at the same position, unless that was done within ten seconds. Returns false if the run must end.
   */
  async renew(): Promise<boolean> {
    return this.#clock.now() < this.#steppedAt + STEP_MS || (await this.#write({ heldUntil: this.#invocation.endsAt }));
  }

  /** Leaves the pass to the next run, which may take it at once. */
  async release(): Promise<void> {
    await this.#write({ heldUntil: 0 });
  }

  async #write(change: Partial<SweepPass>): Promise<boolean> {
    const { kind } = this.#hold;
    this.#steppedAt = this.#clock.now();
    const state = await this.#change((current, pass) => ({ ...current, [kind]: { ...pass, ...change } }));
    const pass = state[kind];
    if (pass?.holder !== this.#pass.holder) return false;
    this.#pass = pass; // Its pace may have been changed.
    return !this.#invocation.work.aborted;
  }

  /** Ends the pass, and moves the watermark to `watermark` if the pass left no gap before it. */
  async end(watermark: number, counts: SweepCounts): Promise<void> {
    const { kind } = this.#hold;
    const endedAt = this.#clock.now();
    await this.#change((current, { since, startedAt }) => {
      // A backfill whose `since` is after the watermark leaves a gap. A dry run has submitted nothing.
      const hasNoGap = kind === 'daily' || (kind === 'backfill' && since <= current.watermark);
      return {
        ...current,
        [kind]: undefined,
        watermark: hasNoGap ? Math.max(watermark, current.watermark) : current.watermark,
        ended: { ...current.ended, [kind]: { since, startedAt, endedAt, counts } },
      };
    });
  }

  /** Changes the stored state of the pass, as long as this run holds it. */
  #change(change: (state: SweepState, pass: SweepPass) => SweepState): Promise<SweepState> {
    const { kind, store } = this.#hold;
    const { holder } = this.#pass;
    return store.update((current) => {
      const pass = current[kind];
      return pass?.holder === holder ? change(current, pass) : current;
    }, this.#invocation.closing);
  }
}
