import type { Clock } from '../../functions/base/clock.ts';
import type { Random } from './random.ts';
import { MINUTE, type Scheduled, SECOND, type Timeline } from './timeline.ts';

type Kind = 'timer' | 'answer';

/**
 * One process of a function as Lambda runs it. Its clock may be wrong, and may step. While it is frozen, nothing reaches
 * it. Once it is killed, nothing ever reaches it again: its code waits for ever.
 */
export class Lambda {
  readonly name: string;
  readonly function: 'create' | 'collect';
  readonly clock: Clock;
  /** Number of its invocations, which come one after another. */
  invocation = 0;
  /** Keys of the uploads that its latest invocation works on. */
  keys: ReadonlySet<string> = new Set();
  /** True if it was ever frozen. If so, its time limit no longer holds. */
  wasFrozen = false;
  #state: 'alive' | 'frozen' | 'stalled' | 'dead' = 'alive';
  readonly #timeline: Timeline;
  #skewMs: number;
  /** Time for which its machine has slept, in milliseconds. The clock went on, and the timers stood still. */
  #sleptMs = 0;
  #held: { readonly kind: Kind; readonly run: () => void }[] = [];
  readonly #onDeath = new Set<() => void>();

  /** @param number tells the processes of one function apart. */
  constructor(which: 'create' | 'collect', number: number, timeline: Timeline, skewMs: number) {
    this.name = `${which}-${number}`;
    this.function = which;
    this.#timeline = timeline;
    this.#skewMs = skewMs;
    this.clock = { now: () => timeline.now() + this.#skewMs, sleep: (ms, signal) => this.#sleep(ms, signal) };
  }

  /** The name of its latest invocation. */
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

  /** Calls `told` when the process dies. Returns a function that stops listening. */
  onDeath(told: () => void): () => void {
    if (this.#state === 'dead') told();
    else this.#onDeath.add(told);
    return () => this.#onDeath.delete(told);
  }

  /**
   * Calls `told` when the signal aborts, unless the process is dead by then. Returns a function that stops
   * listening. Node keeps a signal of `AbortSignal.any` while it has a listener, and with it a dead process's world.
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

  /**
   * Freezes the process for long enough that another may take over, or for a shorter time.
   * @param isAsleep true if its machine sleeps: the clock goes on, and all timers are late by that time.
   */
  freeze(random: Random, isAsleep = false): void {
    const ms = random.chance(0.5) ? random.int(10 * SECOND, 2 * MINUTE) : random.int(5, 30) * MINUTE;
    if (this.#state !== 'alive') return;
    this.#state = 'frozen';
    this.wasFrozen = true;
    this.#timeline.schedule(this.#timeline.now() + ms, () => {
      if (isAsleep) this.#sleptMs += ms;
      this.#thaw();
    });
  }

  /** Its wall clock steps. Its timers do not notice. */
  stepClock(skewMs: number): void {
    this.#skewMs = skewMs;
  }

  /** Keeps everything from the process until its time limit kills it. */
  stall(): void {
    if (this.#state === 'alive' && !this.wasFrozen) this.#state = 'stalled';
  }

  /** Calls `run` in the process after `ms`, unless it is dead or stalled by then. */
  after(ms: number, kind: Kind, run: () => void): Scheduled {
    const timeline = this.#timeline;
    const sleptMs = this.#sleptMs;
    const at = timeline.now() + ms;
    let next: Scheduled;
    const reach = (): void => {
      const dueAt = kind === 'timer' ? at + this.#sleptMs - sleptMs : at;
      if (dueAt > timeline.now()) next = timeline.schedule(dueAt, reach);
      else if (this.#state === 'alive') run();
      else if (this.#state === 'frozen') this.#held.push({ kind, run: reach });
    };
    next = timeline.schedule(at, reach);
    return { cancel: () => next.cancel() };
  }

  /** As in Node's event loop, overdue timers come before answers that have arrived. */
  #thaw(): void {
    if (this.#state !== 'frozen') return;
    this.#state = 'alive';
    const held = this.#held;
    this.#held = [];
    for (const kind of ['timer', 'answer'] as const) {
      for (const one of held) if (one.kind === kind) this.#timeline.schedule(this.#timeline.now(), one.run);
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
