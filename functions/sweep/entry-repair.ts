import { type Entry, failedMarkerOf, isTerminal, isUntold, runningMarkerOf, waitingMarkerOf } from '../ledger/entry.ts';
import type { Ledger } from '../ledger/store.ts';
import { type PublishPorts, publish } from '../publish/publish.ts';
import type { Receipts } from '../publish/receipts.ts';

export interface RepairPorts extends PublishPorts {
  readonly ledger: Ledger;
  readonly receipts: Receipts;
}

/** What may be missing beside an entry. */
type Incomplete = { readonly entry: Entry; readonly lacks: 'all' | 'failed marker' };

/** Returns the entry of an upload if its marker or receipt may be missing. */
export async function incompleteEntry(
  uploadId: string,
  { ledger, receipts }: RepairPorts,
  signal: AbortSignal,
): Promise<Incomplete | undefined> {
  const entry = (await ledger.read(uploadId, signal))?.entry;
  if (entry === undefined) return undefined;
  if (!isTerminal(entry)) return { entry, lacks: 'all' };
  const isTold = entry.state === 'failed' && !isUntold(entry);
  // The marker of a flow stays until its receipt is out. Only an upload that ended without a flow may lack the receipt.
  if (entry.flow === undefined && !(isTold && (await receipts.isPublished(entry, signal)))) {
    return { entry, lacks: 'all' };
  }
  const hasMarker = !isTold || (await ledger.hasFailedMarker(failedMarkerOf(entry), signal));
  return hasMarker ? undefined : { entry, lacks: 'failed marker' };
}

/** Puts the markers or the receipt of an entry. If they are there already, putting them again changes nothing. */
export async function repair({ entry, lacks }: Incomplete, ports: RepairPorts, signal: AbortSignal): Promise<void> {
  const { ledger } = ports;
  const waiting = waitingMarkerOf(entry);
  if (waiting !== undefined) await ledger.putWaitingMarker(waiting, signal);
  else if (entry.state === 'running') await ledger.putRunningMarker(runningMarkerOf(entry.upload, entry.flow), signal);
  if (!isTerminal(entry)) return;
  // Publishing puts the marker of a failure that is not told yet.
  if (entry.state === 'failed' && !isUntold(entry)) await ledger.putFailedMarker(failedMarkerOf(entry), signal);
  if (lacks === 'all') await publish(entry, ports, signal);
}
