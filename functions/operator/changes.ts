import type { S3Client } from '@aws-sdk/client-s3';
import pMap from 'p-map';
import type { Clock } from '../base/clock.ts';
import { isInChain } from '../chains/chain.ts';
import type { ChainStore } from '../chains/chain-store.ts';
import type { FlowService } from '../flow-service/types.ts';
import type { HoldPorts } from '../holds/attempt.ts';
import {
  type Entry,
  failedMarkerOf,
  isInLine,
  isTerminal,
  type RunningEntry,
  runningMarkerOf,
  type WaitingEntry,
  waitingMarkerOf,
} from '../ledger/entry.ts';
import type { WaitingMarker } from '../ledger/keys.ts';
import type { Ledger, Stored } from '../ledger/store.ts';
import type { Aliases } from '../publish/aliases.ts';
import { isPublished, type PublishPorts, publish } from '../publish/publish.ts';
import type { Sources } from '../publish/sources.ts';
import type { Settings } from '../settings/environment.ts';
import type { Inbox } from '../uploads/inbox.ts';
import { messageFor, type UploadQueue } from '../uploads/upload-event.ts';

/*
 * What an operator changes, whatever the age of the upload:
 *
 *   retry     failed, waiting ──▶ waiting, and into the queue
 *   again     succeeded, failed ──▶ waiting, in a new generation. With a stage: all uploads of that stage of a chain
 *   cancel    waiting, running ──▶ failed
 *   approve   waiting ──▶ waiting, and into the queue
 *   collect   succeeded, failed ──▶ running, with the same flow
 *   alias     succeeded, failed: the aliases of its file show another flow. The entry stays as it is
 *   delete    succeeded, failed: the flow, at the service. The entry stays as it is
 *
 * An upload in any other state stays as it is, and the result says so. So the same request can be made again.
 */

export interface OperatorPorts extends PublishPorts, Pick<HoldPorts, 'holds'> {
  readonly ledger: Ledger;
  readonly chains: ChainStore;
  readonly aliases: Pick<Aliases, 'show' | 'showOther'>;
  readonly sources: Pick<Sources, 'settle' | 'areThere' | 'keep' | 'expire'>;
  readonly inbox: Pick<Inbox, 'current' | 'pages'>;
  readonly queue: UploadQueue;
  readonly flows: Pick<FlowService, 'abort' | 'delete' | 'get' | 'outputs' | 'sample' | 'show' | 'templates'>;
  readonly s3: S3Client;
  readonly clock: Clock;
  readonly settings: Settings;
}

/** Uploads that are changed, and assets that are looked up, side by side. */
export const CONCURRENCY = 16;

/**
 * Time after which what an operator asked for has surely ended or died, in milliseconds: the 15 minutes of a function,
 * and a minute.
 */
export const SETTLED_MS = 16 * 60_000;

/** What became of one upload that an operator named. */
export interface Changed {
  readonly upload: string;
  /**
   * The first four say that it was done, and so do `deleted`, `gone` (the service has no such flow) and `shown`. The
   * others say why not:
   * - `being sent`: an invocation is at work on it, and its flow may begin at any moment. Ask again in a minute.
   * - `shared`: it is unknown whose results they are, so they are never fetched.
   * - `flow deleted`: its route has `deleteFlow`, so the service has nothing to fetch any more.
   * - `source gone`: nothing can be sent. The file is not in the inbox any more, or an asset that the stage takes is not
   *   in the results any more.
   * - `not in its chain`: no route of that name is a later stage of the file's chain.
   * - `withheld`: a stage before failed, and the route does not allow that.
   * - `not begun yet`: one request begins only so many uploads of stages (`ANEW_AT_ONCE_MAX`). The same request begins
   *   the next ones. Without it, ticks begin them.
   */
  readonly result:
    | ('resubmitted' | 'cancelled' | 'begun' | 'approved')
    | ('deleted' | 'gone' | 'not deleted')
    | ('shown' | 'not shown' | 'without an alias' | 'no such flow')
    | ('unknown' | 'not approved' | 'under way' | 'being sent' | 'ended already' | 'succeeded already')
    | ('overrides not allowed' | 'without a flow' | 'shared' | 'flow deleted' | 'source gone')
    | ('not in its chain' | 'withheld' | 'not begun yet');
  /** True if the service has stopped the flow. False if it cannot, or if the flow has ended. Absent without a flow. */
  readonly isAborted?: boolean;
  /** True if a request may have made a flow that is not known, and therefore not stopped. */
  readonly isInDoubt?: true;
  /** Why the flow was not deleted, in the words of the service or about it; or why the alias does not show it. */
  readonly why?: string;
}

/**
 * Changes uploads side by side. A failure keeps none of the others from being changed.
 * @throws the only failure, or {AggregateError}.
 */
export async function each<T>(
  uploads: readonly T[],
  change: (upload: T) => Promise<Changed>,
): Promise<readonly Changed[]> {
  try {
    return await pMap(uploads, change, { concurrency: CONCURRENCY, stopOnError: false });
  } catch (error) {
    const { errors } = error as AggregateError;
    if (errors.length === 1) throw errors[0];
    throw new AggregateError(errors, `${errors.length} of ${uploads.length} uploads failed: ${errors[0]}`);
  }
}

/**
 * Reads the entry of an upload. If its end may not be published, that is done first: the invocation that ended it may
 * have died, and after the change no entry would tell of that end.
 */
export async function readPublished(
  uploadId: string,
  ports: OperatorPorts,
  signal: AbortSignal,
): Promise<Stored | undefined> {
  const stored = await ports.ledger.read(uploadId, signal);
  if (stored === undefined || !isTerminal(stored.entry)) return stored;
  if (await isPublished(stored.entry, ports.ledger, signal)) return stored;
  await publish(stored.entry, ports, signal);
  return ports.ledger.read(uploadId, signal);
}

/**
 * Puts a marker that leads to an upload if this invocation dies while it changes the upload. The daily sweep does not look
 * for an old one. If the upload waits, this marker takes the place of its own, which may be due in weeks only. If nothing
 * is changed, this one leads back to it.
 */
export async function putWayBack(
  entry: Entry,
  { ledger, clock, settings }: Pick<OperatorPorts, 'ledger' | 'clock' | 'settings'>,
  signal: AbortSignal,
): Promise<WaitingMarker> {
  const way = { uploadId: entry.upload.id, notBefore: clock.now() + SETTLED_MS };
  await ledger.putWaitingMarker(way, signal);
  const own = waitingMarkerOf(entry, settings);
  if (own !== undefined) await ledger.deleteWaitingMarker(own, signal);
  return way;
}

/**
 * Replaces the entry of an upload by one that waits or runs.
 * @returns false if another invocation has changed the upload.
 */
export async function beginAgain(
  previous: Stored,
  entry: WaitingEntry | RunningEntry,
  ports: OperatorPorts,
  signal: AbortSignal,
): Promise<boolean> {
  const { ledger, settings, chainNotes } = ports;
  const { entry: before } = previous;
  const { upload } = entry;
  await putWayBack(before, ports, signal);
  const written = await ledger.replace(previous, entry, signal);
  if (!written.won) return false;
  if (entry.state === 'running') await ledger.putRunningMarker(runningMarkerOf(upload, entry.flow), signal);
  else {
    // Otherwise the chain could end while this upload is under way.
    if (isInChain(before, settings.routes)) await chainNotes.note(entry, signal);
    await putAndSend(entry, ports, signal);
  }
  if (before.state === 'failed') await ledger.deleteFailedMarker(failedMarkerOf(before), signal);
  return true;
}

/**
 * Puts the marker of an upload that waits. If it does not wait in the line, its message is sent at once. Its chain knows
 * that it is under way.
 */
export async function putAndSend(
  entry: WaitingEntry,
  { ledger, queue, settings, sources }: OperatorPorts,
  signal: AbortSignal,
): Promise<void> {
  // If this invocation dies before, the next one that looks at the upload does it.
  await sources.keep(entry.inputs ?? [], signal);
  await ledger.putWaitingMarker(waitingMarkerOf(entry, settings) as WaitingMarker, signal);
  if (!isInLine(entry)) await queue.send(messageFor(entry.upload), signal);
}
