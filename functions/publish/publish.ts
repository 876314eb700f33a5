import type { Telemetry } from '../base/telemetry.ts';
import { isInChain } from '../chains/chain.ts';
import {
  deletionDueAt,
  type FailedEntry,
  failedMarkerOf,
  isReplaced,
  isSameEnd,
  isUntold,
  runningMarkerOf,
  type TerminalEntry,
  told,
} from '../ledger/entry.ts';
import type { Ledger } from '../ledger/store.ts';
import { isSuccess } from '../ledger/terminal-states.ts';
import type { Settings } from '../settings/environment.ts';
import { isCanary } from '../uploads/inbox.ts';
import type { Aliases } from './aliases.ts';
import type { ChainNotes } from './chain-notes.ts';
import { completionEvent } from './completion-event.ts';
import type { EventBus } from './event-bus.ts';
import { type ReceiptSettings, type Receipts, receiptOf } from './receipts.ts';
import type { Receipt } from './report-schemas.ts';
import type { Sources } from './sources.ts';

export interface PublishPorts {
  readonly ledger: Pick<Ledger, 'read' | 'replace' | 'deleteRunningMarker' | 'putFailedMarker' | 'putWaitingMarker'>;
  readonly receipts: Pick<Receipts, 'put'>;
  readonly events: EventBus;
  readonly sources: Pick<Sources, 'settle'>;
  /** Undefined in create-flow, which publishes no success. */
  readonly aliases?: Pick<Aliases, 'show' | 'showOther'>;
  readonly chainNotes: Pick<ChainNotes, 'note' | 'childrenOf'>;
  readonly settings: Pick<Settings, 'pipeline' | 'routes' | 'inboxBucket' | 'canaryKey'> & ReceiptSettings;
  readonly telemetry: Telemetry;
}

/**
 * Publishes how an upload ended: notes in its chain which uploads begin with its assets, has the aliases show it, puts
 * the receipt, sends the event, begins the later stages of its chain, does with its file what `afterSuccess` says, puts the
 * marker of a failure and that by which its flow is deleted, and at last deletes the running marker.
 *
 * Everything is made from the terminal entry. If a step fails, all are done again by the next invocation that finds the
 * marker or gets the message. Doing them twice changes nothing. The entry of a failure has `isTold`: true once receipt,
 * event and marker are out. If a retry comes earlier, it publishes the failure again before anything else.
 */
export async function publish(entry: TerminalEntry, ports: PublishPorts, signal: AbortSignal): Promise<void> {
  const { pipeline, resultsBucket, routes } = ports.settings;
  const hasChain = isInChain(entry, routes);
  const children = hasChain ? await ports.chainNotes.childrenOf(entry, signal) : undefined;
  const facts = receiptOf(entry, ports.settings, children);
  const alias = (await ports.aliases?.show(entry, signal)) ?? {};
  if (alias.aliasIssue !== undefined) ports.telemetry.log.warn(alias.aliasIssue, { uploadId: entry.upload.id });
  const receipt = { ...facts, ...alias };
  const key = await ports.receipts.put(receipt, signal);
  await ports.events.send(completionEvent(facts, pipeline, { bucket: resultsBucket, key }), signal);
  // When a chain tells of its end, the receipts of all its uploads can be read.
  if (hasChain) await ports.chainNotes.note(entry, signal);
  else await settleSource(entry, receipt, ports, signal);
  if (isUntold(entry)) {
    await ports.ledger.putFailedMarker(failedMarkerOf(entry), signal);
    await writeTold(entry, hasChain, ports.ledger, signal);
  }
  const notBefore = deletionDueAt(entry, routes);
  if (notBefore !== undefined) await ports.ledger.putWaitingMarker({ uploadId: entry.upload.id, notBefore }, signal);
  if (entry.flow !== undefined) {
    await ports.ledger.deleteRunningMarker(runningMarkerOf(entry.upload, entry.flow), signal);
  }
  if (entry.state === 'succeeded' && isCanary(entry.upload, ports.settings))
    ports.telemetry.metrics.add('CanariesSucceeded');
  ports.telemetry.log.info(`Upload ${entry.state}`, {
    uploadId: entry.upload.id,
    flowId: entry.flow?.id,
    receipt: key,
    code: receipt.failure?.code,
  });
}

async function settleSource(
  entry: TerminalEntry,
  receipt: Receipt,
  { sources, receipts }: PublishPorts,
  signal: AbortSignal,
): Promise<void> {
  const { upload, route, state, failedOutputs } = entry;
  // Nothing was sent of it, and nothing is wrong with it.
  if (isReplaced(entry)) return;
  const isWhole = isSuccess(state) && failedOutputs.length === 0;
  const sourceIssue = await sources.settle({ upload, route: route.name, isWhole }, signal);
  if (sourceIssue !== undefined) await receipts.put({ ...receipt, sourceIssue }, signal);
}

/** True once nothing of an end is left to publish. Until then a function may still write its receipt and its marker. */
export async function isPublished(
  end: TerminalEntry,
  ledger: Pick<Ledger, 'hasRunningMarker'>,
  signal: AbortSignal,
): Promise<boolean> {
  if (isUntold(end)) return false;
  return end.flow === undefined || !(await ledger.hasRunningMarker(runningMarkerOf(end.upload, end.flow), signal));
}

async function writeTold(
  entry: FailedEntry,
  hasChain: boolean,
  ledger: PublishPorts['ledger'],
  signal: AbortSignal,
): Promise<void> {
  const stored = await ledger.read(entry.upload.id, signal);
  if (stored?.entry.state !== 'failed' || !isSameEnd(stored.entry, entry)) return;
  // It does not matter whether our write wins. Another writer has published the same end, or retries it now.
  await ledger.replace(stored, told(stored.entry, hasChain), signal);
}
