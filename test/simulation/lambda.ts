import type { Clock } from '../../functions/base/clock.ts';
import type { Scheduled, Timeline } from './timeline.ts';

type Kind = 'timer' | 'answer';

/**
 * One process of a function as Lambda runs it. It has a clock of its own, which may be wrong; it can be frozen, so that
 * nothing reaches it until it is thawed, and killed, so that nothing ever reaches it again: whatever its code waits for
 * at that moment it waits for forever.
 */
export class Lambda {
  readonly name: string;
  readonly function: 'create' | 'collect';
  readonly clock: Clock;
  /** Number of its invocations, which come one after another. */
  invocation = 0;
  /** Keys of the uploads that its latest invocation works on. */
  keys: ReadonlySet<string> = new Set();
  /** Whether it was ever frozen: then its time limit no longer holds. */
  wasFrozen = false;
  #state: 'alive' | 'frozen' | 'stalled' | 'dead' = 'alive';
  readonly #timeline: Timeline;
  #held: { readonly kind: Kind; readonly run: () => void }[] = [];
  readonly #onDeath = new Set<() => void>();

  /** @param number tells the processes of one function apart. */
  constructor(which: 'create' | 'collect', number: number, timeline: Timeline, skewMs: number) {
    this.name = `${which}-${number}`;
    this.function = which;
    this.#timeline = timeline;
    this.clock = { now: () => timeline.now() + skewMs, sleep: (ms, signal) => this.#sleep(ms, signal) };
  }

  /** Of the invocation that it is at. */
  get invocationName(): string {
    return `${this.name}#${this.invocation}`;
  }

  get isDead(): boolean {
    return this.#state === 'dead';
  }

  kill(): void {
    if (this.#state === 'dead') return;
    this.#state = 'dead';
    this.#held = [];
    for (const told of this.#onDeath) told();
    this.#onDeath.clear();
  }

  /** Tells the other ends of its connections. Returns how to stop listening. */
  onDeath(told: () => void): () => void {
    if (this.#state === 'dead') told();
    else this.#onDeath.add(told);
    return () => this.#onDeath.delete(told);
  }

  /**
   * Calls `told` when the signal aborts, unless the process is dead by then. Returns how to stop listening. Node keeps a
   * signal of `AbortSignal.any` for as long as somebody listens to it, and with it a dead process and all its world.
   */
  whenAborted(signal: AbortSignal | undefined, told: () => void): () => void {
    if (signal === undefined || this.#state === 'dead') return () => {};
    signal.addEventListener('abort', told, { once: true });
    const forget = this.onDeath(() => signal.removeEventListener('abort', told));
    return () => {
      forget();
      signal.removeEventListener('abort', told);
    };
  }

  freeze(ms: number): void {
    if (this.#state !== 'alive') return;
    this.#state = 'frozen';
    this.wasFrozen = true;
    this.#timeline.schedule(this.#timeline.now() + ms, () => this.#thaw());
  }

  /** Nothing reaches it any more, and it does not die of that: its time limit will be the end of it. */
  stall(): void {
    if (this.#state === 'alive' && !this.wasFrozen) this.#state = 'stalled';
  }

  /** Lets something reach the process after `ms`, if it can be reached by then. */
  after(ms: number, kind: Kind, run: () => void): Scheduled {
    return this.#timeline.schedule(this.#timeline.now() + ms, () => this.#reach(kind, run));
  }

  #reach(kind: Kind, run: () => void): void {
    if (this.#state === 'alive') run();
    else if (this.#state === 'frozen') this.#held.push({ kind, run });
  }

  /** As in Node's event loop, timers that are overdue come before answers that have arrived. */
  #thaw(): void {
    if (this.#state !== 'frozen') return;
    this.#state = 'alive';
    const held = this.#held;
    this.#held = [];
    for (const kind of ['timer', 'answer'] as const) {
      for (const one of held) if (one.kind === kind) this.after(0, kind, one.run);
    }
  }

  #sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) {
        reject(signal.reason);
        return;
      }
      const forget = this.whenAborted(signal, () => {
        forget();
        timer.cancel();
        reject(signal?.reason);
      });
      const timer = this.after(Math.max(0, ms), 'timer', () => {
        forget();
        resolve();
      });
    });
  }
}
