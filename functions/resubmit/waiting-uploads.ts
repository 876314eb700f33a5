import pMap from 'p-map';
import { secondsBetween } from '../base/telemetry.ts';
import type { Entry } from '../ledger/entry.ts';
import type { WaitingMarker } from '../ledger/keys.ts';
import { type ResubmitPorts, resubmit } from './resubmit.ts';

/** Uploads that are resubmitted side by side. */
const CONCURRENCY = 16;

/**
 * Maximum number of due uploads resubmitted in a round: half a minute of work, so that running flows are polled in time.
 */
const DUE_MAX = 4_000;

/** Maximum number of throttled uploads resubmitted in a round beyond the number of flows that ended. */
const PROBES_MAX = 256;

/** When throttled uploads were last resubmitted, and how many more than flows had ended. */
export type ThrottledState = { readonly sentAt: number; readonly extra: number } | undefined;

/**
 * Resubmits the waiting uploads of a collector, round by round.
 *
 * An upload that waits for a time is due at that time. Uploads that the service throttled wait in a queue, and the
 * longest waiting leaves first. As many leave it as flows have ended, since each ended flow frees a place. A few more
 * leave it to probe whether the service allows more by now: twice as many each time, until one comes back.
 */
export class WaitingUploads {
  readonly #ports: ResubmitPorts;
  readonly #isOurs: (uploadId: string) => boolean;
  readonly #dueMax: number;
  #throttled: ThrottledState;
  #endedBefore = 0;

  /** @param dueMax maximum number of uploads resubmitted in a round, without the throttled ones. */
  constructor(
    ports: ResubmitPorts,
    remembered: ThrottledState,
    isOurs: (uploadId: string) => boolean,
    dueMax: number = DUE_MAX,
  ) {
    this.#dueMax = dueMax;
    this.#ports = ports;
    this.#throttled = remembered;
    this.#isOurs = isOurs;
  }

  /** What the next tick has to know of the throttled uploads. */
  get remembered(): ThrottledState {
    return this.#throttled;
  }

  /**
   * Resubmits what is due, and the next throttled uploads.
   * @param endedCount flows that have ended in this tick so far.
   */
  async resubmitDue(endedCount: number, signal: AbortSignal): Promise<{ sent: number; failures: readonly unknown[] }> {
    const { telemetry, clock } = this.#ports;
    const due = [
      ...(await this.#dueMarkers(signal)),
      ...(await this.#nextThrottled(endedCount - this.#endedBefore, signal)),
    ];
    this.#endedBefore = endedCount;
    const sent: Entry[] = [];
    const failures: unknown[] = [];
    await pMap(
      due,
      async (marker) => {
        try {
          const entry = await resubmit(marker, this.#ports, signal);
          if (entry !== undefined) sent.push(entry);
        } catch (error) {
          telemetry.log.error('A waiting upload could not be resubmitted', {
            uploadId: marker.uploadId,
            error: error as Error,
          });
          failures.push(error);
        }
      },
      { concurrency: CONCURRENCY },
    );
    if (sent.length > 0) {
      telemetry.metrics.add('UploadsResubmitted', sent.length);
      const oldest = Math.min(...sent.map(({ arrivedAt }) => arrivedAt));
      telemetry.metrics.add('OldestWaitingSeconds', secondsBetween(oldest, clock.now()));
    }
    return { sent: sent.length, failures };
  }

  async #dueMarkers(signal: AbortSignal): Promise<readonly WaitingMarker[]> {
    const { ledger, clock } = this.#ports;
    const due: WaitingMarker[] = [];
    for await (const marker of ledger.waitingMarkersDue(clock.now(), signal)) {
      if (this.#isOurs(marker.uploadId)) due.push(marker);
      if (due.length === this.#dueMax) break; // The longest due come first. The others follow in the next round.
    }
    return due;
  }

  async #nextThrottled(endedCount: number, signal: AbortSignal): Promise<readonly WaitingMarker[]> {
    const { ledger, clock } = this.#ports;
    const now = clock.now();
    const { sentAt, extra } = this.#throttled ?? { sentAt: now, extra: 1 };
    const allowed = endedCount + extra;
    const next: WaitingMarker[] = [];
    let wasRefused = false;
    for await (const { putAt, ...marker } of ledger.throttledMarkers(signal)) {
      if (!this.#isOurs(marker.uploadId)) continue;
      // A resubmitted upload that was refused is at the head of the queue again. S3 rounds times down to seconds.
      if (putAt >= sentAt - (sentAt % 1000)) wasRefused = true;
      if (marker.notBefore > now) continue;
      next.push(marker);
      if (next.length === allowed) break;
    }
    if (next.length > 0) {
      const wasUsedUp = this.#throttled !== undefined && next.length === allowed;
      const grown = wasUsedUp ? Math.min(PROBES_MAX, 2 * extra) : extra;
      this.#throttled = { sentAt: now, extra: wasRefused ? 1 : grown };
    }
    return next;
  }
}
