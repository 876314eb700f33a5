import type { Telemetry } from '../base/telemetry.ts';
import { isSameEnd, isTerminal, type TerminalEntry, told } from '../ledger/entry.ts';
import type { Ledger } from '../ledger/store.ts';
import type { Settings } from '../settings/config.ts';
import { type CompletionEvent, completionEvent } from './completion-event.ts';
import { type Receipts, receiptOf } from './receipts.ts';

/** The event bus, as far as a sender sees it. */
export interface EventBus {
  send(event: CompletionEvent, signal: AbortSignal): Promise<void>;
}

export interface PublishPorts {
  readonly ledger: Pick<Ledger, 'read' | 'replace' | 'deleteRunningMarker'>;
  readonly receipts: Pick<Receipts, 'put'>;
  readonly events: EventBus;
  readonly settings: Pick<Settings, 'collectFunction' | 'pipeline' | 'resultsBucket'>;
  readonly telemetry: Telemetry;
}

/**
 * Makes known how an upload ended: its receipt, its event and, as the last step, no marker any more. Everything is
 * made from the terminal entry. So after a failure at any step it is done again by whoever finds the marker or gets the
 * message again, and doing it twice changes nothing. The entry of a failure says when all is sent: a retry that
 * comes earlier first sends what is missing.
 */
export async function publish(entry: TerminalEntry, ports: PublishPorts, signal: AbortSignal): Promise<void> {
  const { collectFunction, pipeline, resultsBucket } = ports.settings;
  const receipt = receiptOf(entry, collectFunction);
  const key = await ports.receipts.put(receipt, signal);
  await ports.events.send(completionEvent(receipt, pipeline, { bucket: resultsBucket, key }), signal);
  if (entry.state === 'failed' && entry.isTold !== true) await writeTold(entry, ports.ledger, signal);
  if (entry.flow !== undefined) {
    const { id: flowId, createdAt } = entry.flow;
    await ports.ledger.deleteRunningMarker({ createdAt, uploadId: entry.upload.id, flowId }, signal);
  }
  ports.telemetry.log.info(`Upload ${entry.state}`, {
    uploadId: entry.upload.id,
    flowId: entry.flow?.id,
    receipt: key,
    code: entry.failure?.code,
  });
}

async function writeTold(entry: TerminalEntry, ledger: PublishPorts['ledger'], signal: AbortSignal): Promise<void> {
  const stored = await ledger.read(entry.upload.id, signal);
  const current = stored?.entry;
  if (stored === undefined || current === undefined || !isTerminal(current) || !isSameEnd(current, entry)) return;
  // It does not matter who wins: another writer has told of the same end, or retries it now.
  await ledger.replace(stored, told(current), signal);
}
