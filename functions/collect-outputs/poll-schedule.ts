import type { Clock } from '../base/clock.ts';
import type { Settings } from '../settings/environment.ts';

/** A flow is polled again after this share of its age: a flow of one hour is polled every six minutes. */
const SHARE_OF_AGE = 0.1;

/** Age up to which a flow is polled more often, in poll intervals: many flows take only seconds. */
const EARLY_INTERVALS = 2;

/** Polls in a poll interval up to that age. */
export const EARLY_POLLS = 3;

/** Age up to which a flow is young, in milliseconds: its uploader may be waiting for the result. */
export const YOUNG_MS = 10 * 60_000;

/** Longest time between two polls of a flow, in milliseconds. */
const POLL_GAP_MAX_MS = 15 * 60_000;

/**
 * Returns true if a running flow is due. Its marker and the last completed round decide, so a poll writes nothing.
 *
 * Each flow has its own grid of polling times: every third of `pollIntervalMs` at first, every `pollIntervalMs` while
 * it is young (ten minutes, or ten intervals), then every tenth of its age, and at last every 15 minutes (or every
 * `pollIntervalMs`, if that is longer). It is due if a point of its grid lies after the start of the last completed
 * round. A round that was cut off is not completed: the flows that it did not reach are due at once.
 *
 * All times are in milliseconds since the epoch. `lastCompletedAt` is undefined if no round has been completed yet.
 */
export function isDue(
  ageFrom: number,
  lastCompletedAt: number | undefined,
  now: number,
  pollIntervalMs: number,
): boolean {
  if (lastCompletedAt === undefined || lastCompletedAt < ageFrom) return true;
  return gridIndex(now - ageFrom, pollIntervalMs) > gridIndex(lastCompletedAt - ageFrom, pollIntervalMs);
}

/** Returns how many points of its grid a flow of this age has passed. */
export function gridIndex(ageMs: number, pollIntervalMs: number): number {
  const denseMs = Math.max(YOUNG_MS, pollIntervalMs / SHARE_OF_AGE);
  const gapMaxMs = Math.max(POLL_GAP_MAX_MS, pollIntervalMs);
  const sparseMs = Math.max(denseMs, gapMaxMs / SHARE_OF_AGE);
  // Adds up the points of each stretch of a flow's life. The sum grows without jumps.
  const early = (Math.min(ageMs, EARLY_INTERVALS * pollIntervalMs) / pollIntervalMs) * (EARLY_POLLS - 1);
  const dense = early + Math.min(ageMs, denseMs) / pollIntervalMs;
  const growing = Math.log(Math.max(1, Math.min(ageMs, sparseMs) / denseMs)) / Math.log1p(SHARE_OF_AGE);
  const sparse = Math.max(0, ageMs - sparseMs) / gapMaxMs;
  return Math.floor(dense + growing + sparse);
}

/** Returns true if a flow is so young that it is polled more often than every poll interval. */
export const isEarly = (ageFrom: number, now: number, pollIntervalMs: number): boolean =>
  now - ageFrom < EARLY_INTERVALS * pollIntervalMs;

/** When a flow reaches the maximum age of a running flow, or twice that, in milliseconds since the epoch. */
export const tooOldAfter = (
  ageFrom: number,
  { flowAgeMaxSeconds }: Pick<Settings, 'flowAgeMaxSeconds'>,
  times: 1 | 2 = 1,
): number => ageFrom + times * flowAgeMaxSeconds * 1000;

/** Returns true if a flow is older than `times` the maximum age of a running flow. At twice that age, it must end. */
export const isTooOld = (
  ageFrom: number,
  { clock, settings }: { readonly clock: Clock; readonly settings: Pick<Settings, 'flowAgeMaxSeconds'> },
  times: 1 | 2 = 1,
): boolean => clock.now() > tooOldAfter(ageFrom, settings, times);
