import pMap from 'p-map';
import { type FailedEntry, failedMarkerOf, retried, type WaitingEntry } from '../ledger/entry.ts';
import type { Stored } from '../ledger/store.ts';
import type { PublishPorts } from '../publish/publish.ts';
import type { Settings } from '../settings/environment.ts';
import type { GivenOverrides } from '../uploads/route-snapshot.ts';
import { routeFor } from '../uploads/routes.ts';
import { messageFor } from '../uploads/upload-event.ts';
import { type RankPorts, ranked, readTold, replaceMarked } from './operator-changes.ts';
import type { ResubmitPorts } from './resubmit.ts';

/** Uploads that are retried side by side. */
const CONCURRENCY = 16;

type RetryPorts = ResubmitPorts & PublishPorts & RankPorts & { readonly settings: Pick<Settings, 'routes'> };

/** The result for one upload that an operator asked to retry. */
export interface Retried {
  readonly upload: string;
  readonly result: 'resubmitted' | 'unknown' | 'succeeded already' | 'under way' | 'overrides not allowed';
}

/**
 * Retries failed uploads, and resubmits waiting ones at once.
 * @param given what replaces parts of the route for this retry, if the route allows it. Only a failure takes it.
 */
export async function retryUploads(
  uploadIds: readonly string[],
  ports: RetryPorts,
  signal: AbortSignal,
  given?: GivenOverrides,
): Promise<readonly Retried[]> {
  return pMap(uploadIds, (upload) => retryUpload({ upload, given }, ports, signal), {
    concurrency: CONCURRENCY,
    stopOnError: false,
  });
}

interface OneRetry {
  readonly upload: string;
  readonly given: GivenOverrides | undefined;
}

async function retryUpload({ upload, given }: OneRetry, ports: RetryPorts, signal: AbortSignal): Promise<Retried> {
  const stored = await readTold(upload, ports, signal);
  if (stored === undefined) return { upload, result: 'unknown' };
  const { entry } = stored;
  switch (entry.state) {
    case 'succeeded':
      return { upload, result: 'succeeded already' };
    case 'claimed':
    case 'running':
      return { upload, result: 'under way' };
    case 'waiting':
      // A flow of it may exist already, with the parameters that it had.
      if (given !== undefined) return { upload, result: 'under way' };
      return resubmitNow({ ...stored, entry }, undefined, ports, signal);
    case 'failed':
      if (given !== undefined && routeFor(ports.settings.routes, entry.upload)?.overrides !== true) {
        return { upload, result: 'overrides not allowed' };
      }
      return resubmitNow({ ...stored, entry: await ranked(entry, ports, signal) }, given, ports, signal);
  }
}

async function resubmitNow(
  stored: Stored<FailedEntry | WaitingEntry>,
  given: GivenOverrides | undefined,
  ports: RetryPorts,
  signal: AbortSignal,
): Promise<Retried> {
  const { ledger, queue, clock } = ports;
  const upload = stored.entry.upload.id;
  const again = retried(stored.entry, clock.now(), given);
  const written = await replaceMarked(stored, again, ports, signal);
  if (!written.won) return { upload, result: 'under way' };
  await ledger.putWaitingMarker({ uploadId: upload, notBefore: again.notBefore }, signal);
  await queue.send(messageFor(again.upload), signal);
  if (stored.entry.state === 'failed') await ledger.deleteFailedMarker(failedMarkerOf(stored.entry), signal);
  return { upload, result: 'resubmitted' };
}
