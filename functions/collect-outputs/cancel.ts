import pMap from 'p-map';
import { FlowServiceError } from '../flow-service/errors.ts';
import { ended, type RunningEntry, type WaitingEntry, waitingMarkerOf } from '../ledger/entry.ts';
import type { Stored } from '../ledger/store.ts';
import { publish } from '../publish/publish.ts';
import type { CollectPorts } from './tick.ts';

/** Uploads that are cancelled side by side. */
const CONCURRENCY = 16;

/** The result for one upload that an operator asked to cancel. */
export interface Cancelled {
  readonly upload: string;
  /** `being sent`: an invocation is at work on it, and its flow may begin at any moment. Ask again in a minute. */
  readonly result: 'cancelled' | 'unknown' | 'ended already' | 'being sent';
  /** True if the service has stopped the flow. False if it cannot, or if the flow has ended. Absent without a flow. */
  readonly isAborted?: boolean;
  /** True if a request may have made a flow that is not known, and therefore not stopped. */
  readonly isInDoubt?: true;
}

/** Ends uploads that wait or run as failed, with a receipt, and aborts their flows where the service can. */
export function cancelUploads(
  uploadIds: readonly string[],
  ports: CollectPorts,
  signal: AbortSignal,
): Promise<readonly Cancelled[]> {
  return pMap(uploadIds, (upload) => cancelUpload(upload, ports, signal), { concurrency: CONCURRENCY });
}

async function cancelUpload(upload: string, ports: CollectPorts, signal: AbortSignal): Promise<Cancelled> {
  const stored = await ports.ledger.read(upload, signal);
  if (stored === undefined) return { upload, result: 'unknown' };
  const { entry } = stored;
  switch (entry.state) {
    case 'succeeded':
    case 'failed':
      return { upload, result: 'ended already' };
    case 'claimed':
      return { upload, result: 'being sent' };
    case 'waiting':
    case 'running':
      return end({ ...stored, entry }, ports, signal);
  }
}

/** Writes the terminal entry, which decides the outcome. A tick can redo everything after it except the abort. */
async function end(
  stored: Stored<RunningEntry | WaitingEntry>,
  ports: CollectPorts,
  signal: AbortSignal,
): Promise<Cancelled> {
  const { ledger, clock } = ports;
  const { entry } = stored;
  const upload = entry.upload.id;
  const isInDoubt = entry.doubt !== undefined;
  const doubt = isInDoubt ? ' A request may have made a flow that is not known: look for it at the service.' : '';
  const failure = { code: 'cancelled', message: `The operator cancelled it.${doubt}` } as const;
  const assets = entry.state === 'running' ? entry.assets : undefined;
  const terminal = ended(entry, { failure, ...(assets && { assets }) }, clock.now());
  const written = await ledger.replace(stored, terminal, signal);
  if (!written.won) return { upload, result: 'being sent' };
  const isAborted = entry.state === 'running' ? await abort(entry, ports, signal) : undefined;
  await publish(terminal, ports, signal);
  const marker = waitingMarkerOf(entry);
  if (marker !== undefined) await ledger.deleteWaitingMarker(marker, signal);
  return {
    ...({ upload, result: 'cancelled' } as const),
    ...(isAborted !== undefined && { isAborted }),
    ...(isInDoubt && { isInDoubt }),
  };
}

/** A service that does not abort the flow runs it to its end. Nothing of it is collected. */
async function abort(
  { upload, flow }: RunningEntry,
  { flows, telemetry }: CollectPorts,
  signal: AbortSignal,
): Promise<boolean> {
  try {
    return await flows.abort(flow.id, signal);
  } catch (error) {
    if (!(error instanceof FlowServiceError)) throw error;
    telemetry.log.warn('The cancelled flow could not be aborted', { uploadId: upload.id, flowId: flow.id, error });
    return false;
  }
}
