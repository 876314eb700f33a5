import type { RunningMarker } from '../ledger/keys.ts';
import { isDue } from './poll-schedule.ts';

/** A poll is slow if it takes this time or longer from its sending, in milliseconds. Most take less than a second. */
const SLOW_POLL_MS = 5_000;

/** Flows whose last poll was slow. They are polled after all others. The collector remembers them from tick to tick. */
export class SlowPolls {
  /** By upload id: when the last poll began. The one that has waited longest comes first. */
  readonly #polledAt: Map<string, number>;

  constructor(remembered: Readonly<Record<string, number>> = {}) {
    this.#polledAt = new Map(Object.entries(remembered));
  }

  has({ uploadId }: RunningMarker): boolean {
    return this.#polledAt.has(uploadId);
  }

  /** Notes when a poll was sent, and when it ended. */
  note({ uploadId }: RunningMarker, sentAt: number, endedAt: number): void {
    this.#polledAt.delete(uploadId);
    if (endedAt - sentAt >= SLOW_POLL_MS) this.#polledAt.set(uploadId, sentAt);
  }

  /** Returns the flows that are due, the one that has waited longest first. */
  due(markers: readonly RunningMarker[], now: number, intervalMs: number): readonly RunningMarker[] {
    const byUpload = new Map(markers.map((marker) => [marker.uploadId, marker]));
    return [...this.#polledAt].flatMap(([uploadId, polledAt]) => {
      const marker = byUpload.get(uploadId);
      return marker !== undefined && isDue(marker.ageFrom, polledAt, now, intervalMs) ? [marker] : [];
    });
  }

  /** Forgets the flows that run no more. */
  retain(markers: Iterable<RunningMarker>): void {
    const kept = new Set([...markers].map(({ uploadId }) => uploadId));
    for (const id of this.#polledAt.keys()) if (!kept.has(id)) this.#polledAt.delete(id);
  }

  /** When each was polled, by upload id. Undefined if there is none. */
  get remembered(): Readonly<Record<string, number>> | undefined {
    return this.#polledAt.size === 0 ? undefined : Object.fromEntries(this.#polledAt);
  }
}
