import { type Entry, isTerminal, runningMarkerOf, waitingMarkerOf } from '../ledger/entry.ts';
import type { Ledger } from '../ledger/store.ts';
import { type PublishPorts, publish } from '../publish/publish.ts';
import { type Receipts, receiptOf } from '../publish/receipts.ts';

export interface RepairPorts extends PublishPorts {
  readonly ledger: Ledger;
  readonly receipts: Receipts;
}

/** Returns the entry of an upload if its marker or receipt may be missing. */
export async function incompleteEntry(
  uploadId: string,
  { ledger, receipts, settings }: RepairPorts,
  signal: AbortSignal,
): Promise<Entry | undefined> {
  const entry = (await ledger.read(uploadId, signal))?.entry;
  if (entry === undefined || !isTerminal(entry)) return entry;
  // The marker of a flow stays until its receipt is out. Only an upload that ended without a flow may lack the receipt.
  if (entry.flow !== undefined) return undefined;
  const isTold =
    entry.state === 'failed' &&
    entry.isTold === true &&
    (await receipts.isPublished(receiptOf(entry, settings), signal));
  return isTold ? undefined : entry;
}

/** Puts the marker or the receipt of an entry. If it is there already, putting it again changes nothing. */
export async function repair(entry: Entry, ports: RepairPorts, signal: AbortSignal): Promise<void> {
  const { ledger } = ports;
  const waiting = waitingMarkerOf(entry);
  if (waiting !== undefined) await ledger.putWaitingMarker(waiting, signal);
  else if (isTerminal(entry)) await publish(entry, ports, signal);
  else if (entry.state === 'running') await ledger.putRunningMarker(runningMarkerOf(entry.upload, entry.flow), signal);
}
