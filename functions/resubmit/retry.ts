import pMap from 'p-map';
import { type FailedEntry, failedMarkerOf, retried, type WaitingEntry } from '../ledger/entry.ts';
import type { Stored } from '../ledger/store.ts';
import type { PublishPorts } from '../publish/publish.ts';
import { messageFor } from '../uploads/upload-event.ts';
import { readTold, replaceMarked } from './operator-changes.ts';
import type { ResubmitPorts } from './resubmit.ts';

/** Uploads that are retried side by side. */
const CONCURRENCY = 16;

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
  const stored = await readTold(upload, ports, signal);
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
  ports: RetryPorts,
  signal: AbortSignal,
): Promise<Retried> {
  const { ledger, queue, clock } = ports;
  const upload = stored.entry.upload.id;
  const again = retried(stored.entry, clock.now());
  const written = await replaceMarked(stored, again, ports, signal);
  if (!written.won) return { upload, result: 'under way' };
  await ledger.putWaitingMarker({ uploadId: upload, notBefore: again.notBefore }, signal);
  await queue.send(messageFor(again.upload), signal);
  if (stored.entry.state === 'failed') await ledger.deleteFailedMarker(failedMarkerOf(stored.entry), signal);
  return { upload, result: 'resubmitted' };
}
