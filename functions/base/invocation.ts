import type { Clock } from './clock.ts';

/** Time at the end of an invocation that is reserved for saving its state, in milliseconds. */
const CLOSING_MS = 10_000;

/** Time that is reserved for the runtime, so that it gets the answer before it kills the process, in milliseconds. */
const MARGIN_MS = 1_000;

/** The invocation's time is nearly over. Work in progress was aborted. */
export class OutOfTimeError extends Error {
  override readonly name = 'OutOfTimeError';
}

/**
 * One invocation's time.
 *
 *   start ──────── work ────────▶ workEndsAt ── closing ──▶ ... endsAt: the runtime kills the process
 */
export interface Invocation {
  /** Milliseconds since the epoch, as are the next two. */
  readonly startedAt: number;
  readonly workEndsAt: number;
  /** The hard end. Nothing of this invocation runs after it. */
  readonly endsAt: number;
  /** Aborts with {@link OutOfTimeError} when work must end. */
  readonly work: AbortSignal;
  /** Aborts with {@link OutOfTimeError} shortly before the hard end. For the writes that conclude the work. */
  readonly closing: AbortSignal;
}

/** True if half of the time for work is over. What begins now may not come to its end. */
export const isHalfOver = ({ startedAt, workEndsAt }: Invocation, now: number): boolean =>
  now > (startedAt + workEndsAt) / 2;

/**
 * A promise that the abort of a signal ends: it rejects with the signal's reason, after `onAbort`. Once it is settled, no
 * listener stays behind.
 */
export function untilAborted<T>(signal: AbortSignal, onAbort = () => {}): PromiseWithResolvers<T> {
  const { promise, resolve, reject } = Promise.withResolvers<T>();
  const abort = (): void => {
    onAbort();
    reject(signal.reason);
  };
  if (signal.aborted) abort();
  else signal.addEventListener('abort', abort);
  return { promise: promise.finally(() => signal.removeEventListener('abort', abort)), resolve, reject };
}

/** Runs `body` within the remaining time, and leaves no timer behind. */
export async function withinInvocation<T>(
  remainingMs: number,
  clock: Clock,
  body: (invocation: Invocation) => Promise<T>,
): Promise<T> {
  const startedAt = clock.now();
  const endsAt = startedAt + remainingMs;
  // Divide a very short time limit, so that some of it is left for work.
  const closingAt = endsAt - Math.min(MARGIN_MS, remainingMs / 8);
  const workEndsAt = closingAt - Math.min(CLOSING_MS, remainingMs / 4);
  const work = new AbortController();
  const closing = new AbortController();
  const over = new AbortController();
  const timers = [abortAt(work, workEndsAt, clock, over.signal), abortAt(closing, closingAt, clock, over.signal)];
  try {
    return await body({ startedAt, workEndsAt, endsAt, work: work.signal, closing: closing.signal });
  } finally {
    over.abort();
    await Promise.allSettled(timers);
  }
}

async function abortAt(controller: AbortController, at: number, clock: Clock, over: AbortSignal): Promise<void> {
  await clock.sleep(at - clock.now(), over);
  controller.abort(new OutOfTimeError('The time of this invocation is nearly over'));
}
