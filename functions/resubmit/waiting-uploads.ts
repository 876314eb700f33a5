import pMap from 'p-map';
import { secondsBetween } from '../base/telemetry.ts';
import type { CollectorState } from '../ledger/collector-state.ts';
import type { WaitingMarker } from '../ledger/keys.ts';
import type { Upload } from '../uploads/upload.ts';
import { type ResubmitPorts, resubmit } from './resubmit.ts';

/** Uploads sent on at a time. */
const CONCURRENCY = 16;

/** Uploads sent on in one round at most: about half a minute's work, so that running flows have their turn. */
const SENT_MAX = 4_000;

/** Throttled uploads sent on beyond those for which a flow ended, at most. */
const EXTRA_MAX = 256;

type ThrottledState = CollectorState['throttled'];

/**
 * Sends waiting uploads on.
 *
 * An upload that waits for a time is due at that time. An upload that the service throttled waits in a queue: as many
 * leave it as flows have ended, since an ended flow frees a place, and longest waiting first. A few more are sent to
 * find out whether the service allows more by now; twice as many each time, until one comes back.
 */
export class WaitingUploads {
  readonly #ports: ResubmitPorts;
  readonly #isOurs: (uploadId: string) => boolean;
  readonly #sentMax: number;
  #throttled: ThrottledState;
  #endedBefore = 0;

  /** @param sentMax uploads sent on in one round at most, but for those that were throttled. */
  constructor(
    ports: ResubmitPorts,
    remembered: ThrottledState,
    isOurs: (uploadId: string) => boolean,
    sentMax: number = SENT_MAX,
  ) {
    this.#sentMax = sentMax;
    this.#ports = ports;
    this.#throttled = remembered;
    this.#isOurs = isOurs;
  }

  /** When throttled uploads were last sent on, for the next tick. */
  get remembered(): ThrottledState {
    return this.#throttled;
  }

  /** @param endedCount flows that have ended in this tick so far. */
  async round(endedCount: number, signal: AbortSignal): Promise<{ sent: number; failures: readonly unknown[] }> {
    const { telemetry, clock } = this.#ports;
    const due = [...(await this.#due(signal)), ...(await this.#nextThrottled(endedCount - this.#endedBefore, signal))];
    this.#endedBefore = endedCount;
    const sent: Upload[] = [];
    const failures: unknown[] = [];
    await pMap(
      due,
      async (marker) => {
        try {
          const upload = await resubmit(marker, this.#ports, signal);
          if (upload !== undefined) sent.push(upload);
        } catch (error) {
          telemetry.log.error('A waiting upload could not be sent on', {
            uploadId: marker.uploadId,
            error: error as Error,
          });
          failures.push(error);
        }
      },
      { concurrency: CONCURRENCY },
    );
    if (sent.length > 0) {
      telemetry.metrics.count('UploadsResubmitted', sent.length);
      const oldest = Math.min(...sent.map(({ lastModified }) => lastModified));
      telemetry.metrics.count('OldestWaitingSeconds', secondsBetween(oldest, clock.now()));
    }
    return { sent: sent.length, failures };
  }

  async #due(signal: AbortSignal): Promise<readonly WaitingMarker[]> {
    const { ledger, clock } = this.#ports;
    const due: WaitingMarker[] = [];
    for await (const marker of ledger.waitingMarkersDue(clock.now(), signal)) {
      if (this.#isOurs(marker.uploadId)) due.push(marker);
      if (due.length === this.#sentMax) break; // The longest due come first, and the others in the next round.
    }
    return due;
  }

  async #nextThrottled(endedCount: number, signal: AbortSignal): Promise<readonly WaitingMarker[]> {
    const { ledger, clock } = this.#ports;
    const now = clock.now();
    const { sentAt, extra } = this.#throttled ?? { sentAt: now, extra: 1 };
    const allowed = endedCount + extra;
    const next: WaitingMarker[] = [];
    let hasComeBack = false;
    for await (const { putAt, ...marker } of ledger.throttledMarkers(signal)) {
      if (!this.#isOurs(marker.uploadId)) continue;
      // What was sent is the first of the queue again if it was refused. S3 tells the time in whole seconds.
      if (putAt >= sentAt - (sentAt % 1000)) hasComeBack = true;
      if (marker.notBefore > now) continue;
      next.push(marker);
      if (next.length === allowed) break;
    }
    if (next.length > 0) {
      const wasUsed = this.#throttled !== undefined && next.length === allowed;
      const grown = wasUsed ? Math.min(EXTRA_MAX, 2 * extra) : extra;
      this.#throttled = { sentAt: now, extra: hasComeBack ? 1 : grown };
    }
    return next;
  }
}
