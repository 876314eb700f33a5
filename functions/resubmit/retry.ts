import pMap from 'p-map';
import { type FailedEntry, failedMarkerOf, retried, type WaitingEntry } from '../ledger/entry.ts';
import type { Stored } from '../ledger/store.ts';
import { type PublishPorts, publish } from '../publish/publish.ts';
import { messageFor } from '../uploads/upload-event.ts';
import type { ResubmitPorts } from './resubmit.ts';

/** Uploads that are retried side by side. */
const CONCURRENCY = 16;

/**
 * Time after which what an operator asked for has surely ended or died, in milliseconds: the 15 minutes of a function,
 * and a minute.
 */
export const RETRY_SETTLED_MS = 16 * 60_000;

type RetryPorts = ResubmitPorts & PublishPorts;

/** The result for one upload that an operator asked to retry. */
export interface Retried {
  readonly upload: string;
  readonly result: 'resubmitted' | 'unknown' | 'succeeded already' | 'under way';
}

/** Retries failed uploads, and resubmits waiting ones at once. */
export async function retryUploads(
  uploadIds: readonly string[],
  ports: RetryPorts,
  signal: AbortSignal,
): Promise<readonly Retried[]> {
  return pMap(uploadIds, (upload) => retryUpload(upload, ports, signal), {
    concurrency: CONCURRENCY,
    stopOnError: false,
  });
}

async function retryUpload(upload: string, ports: RetryPorts, signal: AbortSignal): Promise<Retried> {
  const { ledger } = ports;
  let stored = await ledger.read(upload, signal);
  if (stored?.entry.state === 'failed' && stored.entry.isTold !== true) {
    // The invocation may have died before it sent the event. After the retry, no entry would tell of this failure.
    await publish(stored.entry, ports, signal);
    stored = await ledger.read(upload, signal);
  }
  if (stored === undefined) return { upload, result: 'unknown' };
  const { entry } = stored;
  switch (entry.state) {
    case 'succeeded':
      return { upload, result: 'succeeded already' };
    case 'claimed':
    case 'running':
      return { upload, result: 'under way' };
    case 'failed':
    case 'waiting':
      return resubmitNow({ ...stored, entry }, ports, signal);
  }
}

async function resubmitNow(
  stored: Stored<FailedEntry | WaitingEntry>,
  { ledger, queue, clock }: RetryPorts,
  signal: AbortSignal,
): Promise<Retried> {
  const upload = stored.entry.upload.id;
  const now = clock.now();
  const again = retried(stored.entry, now);
  // The daily sweep does not look for an old upload. If this invocation dies, this marker leads to it.
  await ledger.putWaitingMarker({ uploadId: upload, notBefore: now + RETRY_SETTLED_MS }, signal);
  const written = await ledger.replace(stored, again, signal);
  if (!written.won) return { upload, result: 'under way' };
  await ledger.putWaitingMarker({ uploadId: upload, notBefore: again.notBefore }, signal);
  await queue.send(messageFor(again.upload), signal);
  if (stored.entry.state === 'failed') await ledger.deleteFailedMarker(failedMarkerOf(stored.entry), signal);
  return { upload, result: 'resubmitted' };
}
