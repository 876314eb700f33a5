import type { Clock } from './clock.ts';

/** Time that is kept at the end of an invocation for writing down how things stand, in milliseconds. */
const CLOSING_MS = 10_000;

/** Time that is kept for the runtime itself, so that it gets our answer before it kills us, in milliseconds. */
const MARGIN_MS = 1_000;

/** The invocation's time is nearly over: what is still under way was given up. */
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
  /** The hard end: nothing of this invocation runs after it. */
  readonly endsAt: number;
  /** Aborts with {@link OutOfTimeError} when nothing new may be waited for. */
  readonly work: AbortSignal;
  /** Aborts with {@link OutOfTimeError} shortly before the hard end; for the writes that close what `work` opened. */
  readonly closing: AbortSignal;
}

/** Runs `body` within the time that is left, and leaves no timer behind. */
export async function withinInvocation<T>(
  remainingMs: number,
  clock: Clock,
  body: (invocation: Invocation) => Promise<T>,
): Promise<T> {
  const startedAt = clock.now();
  const endsAt = startedAt + remainingMs;
  // A very short time limit is divided evenly rather than being all closing and no work.
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
