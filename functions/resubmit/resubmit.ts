import type { Clock } from '../base/clock.ts';
import type { Telemetry } from '../base/telemetry.ts';
import { waitingMarkerOf } from '../ledger/entry.ts';
import { type WaitingMarker, waitingKey } from '../ledger/keys.ts';
import { type Ledger, type Stored, UnreadableEntryError } from '../ledger/store.ts';
import { messageFor, type Upload } from '../uploads/upload.ts';

/**
 * When an upload that was sent again is looked at once more, in milliseconds. Its message should be through by then; a
 * queue that is full for longer gets it once more an hour, which is harmless.
 */
const LOOK_AGAIN_MS = 60 * 60_000;

/** The queue that uploads come from, as far as a sender sees it. */
export interface UploadQueue {
  send(message: string, signal: AbortSignal): Promise<void>;
}

export interface ResubmitPorts {
  readonly ledger: Ledger;
  readonly queue: UploadQueue;
  readonly clock: Clock;
  readonly telemetry: Telemetry;
}

/**
 * Sends an upload on its way again whose wait is over. Returns the upload, if it was sent.
 *
 * Its marker is not dropped but put off: should the message be lost, or its invocation die, the upload is found again
 * by the marker. It is dropped once the entry has left the wait behind.
 */
export async function resubmit(
  marker: WaitingMarker,
  ports: ResubmitPorts,
  signal: AbortSignal,
): Promise<Upload | undefined> {
  const { ledger, queue, clock } = ports;
  let stored: Stored | undefined;
  try {
    stored = await ledger.read(marker.uploadId, signal);
  } catch (error) {
    if (!(error instanceof UnreadableEntryError)) throw error;
    await putOff(marker, error, ports, signal);
    return undefined;
  }
  const now = clock.now();
  let next = stored && waitingMarkerOf(stored.entry);
  let sent: Upload | undefined;
  // A throttled upload leaves by the head of its queue. Any other marker of it only leads there.
  const isInTurn = next?.throttledSince === undefined || marker.throttledSince !== undefined;
  if (stored !== undefined && next !== undefined && next.notBefore <= now && isInTurn) {
    await queue.send(messageFor(stored.entry.upload), signal);
    sent = stored.entry.upload;
    next = { uploadId: marker.uploadId, notBefore: now + LOOK_AGAIN_MS };
  }
  if (next !== undefined) {
    if (waitingKey(next) === waitingKey(marker)) return sent; // Due by another's clock and not by ours: it stays.
    await ledger.putWaitingMarker(next, signal);
  }
  if (stored?.entry.state === 'running') {
    // Whoever wrote the flow down may have died before its marker was put, and this one is then all that tells of it.
    const { id: flowId, createdAt } = stored.entry.flow;
    await ledger.putRunningMarker({ createdAt, uploadId: marker.uploadId, flowId }, signal);
  }
  await ledger.deleteWaitingMarker(marker, signal);
  return sent;
}

/** The marker of an unreadable entry is due again later: at the head of the list it would take the turn of others. */
async function putOff(
  marker: WaitingMarker,
  error: UnreadableEntryError,
  { ledger, clock, telemetry }: ResubmitPorts,
  signal: AbortSignal,
): Promise<void> {
  const { uploadId } = marker;
  telemetry.log.error('This upload cannot be sent again: its entry cannot be read', { uploadId, error });
  telemetry.metrics.count('EntriesUnreadable');
  await ledger.putWaitingMarker({ uploadId, notBefore: clock.now() + LOOK_AGAIN_MS }, signal);
  await ledger.deleteWaitingMarker(marker, signal);
}
