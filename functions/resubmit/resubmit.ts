import {
  GetQueueAttributesCommand,
  type QueueAttributeName,
  SendMessageCommand,
  type SQSClient,
} from '@aws-sdk/client-sqs';
import type { Clock } from '../base/clock.ts';
import type { Telemetry } from '../base/telemetry.ts';
import { isInChain } from '../chains/chain.ts';
import { type Entry, isUntold, lookAt, runningMarkerOf, waitingMarkerOf } from '../ledger/entry.ts';
import { type WaitingMarker, waitingKey } from '../ledger/keys.ts';
import { type Ledger, type Stored, UnreadableEntryError } from '../ledger/store.ts';
import { DUE_AGAIN_MS } from '../ledger/waits.ts';
import type { ChainNotes } from '../publish/chain-notes.ts';
import type { Sources } from '../publish/sources.ts';
import type { Settings } from '../settings/environment.ts';
import { messageFor, type UploadQueue } from '../uploads/upload-event.ts';
import type { FlowDeletions } from './flow-deletion.ts';

/** The queue of uploads in SQS. */
export function uploadQueue(sqs: SQSClient, QueueUrl: string): UploadQueue {
  return {
    async send(MessageBody, abortSignal) {
      await sqs.send(new SendMessageCommand({ QueueUrl, MessageBody }), { abortSignal });
    },
    async waitingCount(abortSignal) {
      const AttributeNames: QueueAttributeName[] = ['ApproximateNumberOfMessages'];
      const { Attributes } = await sqs.send(new GetQueueAttributesCommand({ QueueUrl, AttributeNames }), {
        abortSignal,
      });
      return Number(Attributes?.ApproximateNumberOfMessages);
    },
  };
}

/** The queue of a tick's rounds in SQS: see `nextRound` in `tick.ts`. */
export const roundQueue =
  (sqs: SQSClient, QueueUrl: string) =>
  async (event: object, DelaySeconds: number, abortSignal: AbortSignal): Promise<void> => {
    const MessageBody = JSON.stringify(event);
    await sqs.send(new SendMessageCommand({ QueueUrl, MessageBody, DelaySeconds }), { abortSignal });
  };

export interface ResubmitPorts {
  readonly ledger: Ledger;
  readonly queue: UploadQueue;
  readonly clock: Clock;
  readonly telemetry: Telemetry;
  readonly sources: Pick<Sources, 'keep'>;
  readonly chainNotes: Pick<ChainNotes, 'note'>;
  readonly settings: Pick<Settings, 'inboxPrefix' | 'routes'>;
  /**
   * Begins uploads of stages that an operator has made anew, in the chain of this first file. If some are left, returns
   * the time until it must be called again, in milliseconds. Otherwise returns undefined.
   */
  readonly finishAnew?: (firstId: string, signal: AbortSignal) => Promise<number | undefined>;
  /** Deletes the flows of ended uploads at the service. */
  readonly deletions?: Pick<FlowDeletions, 'beginRound' | 'goOn'>;
}

/**
 * Does what is due at a waiting marker, and moves the marker on. Returns the upload's entry if a message was sent.
 *
 *   the upload                             what is done              the marker comes back
 *   is due                                 a message is sent         in an hour
 *   waits or is claimed, and is not due                              at its time, or in the line
 *   waits in the line, this marker does not                          in the line
 *   waits to be approved                                             within a day
 *   runs                                   its running marker is put
 *   is the first of a chain, and succeeded stages are made anew      while some are left
 *   ended                                  its flow is deleted       until it is deleted
 *   has an entry that cannot be read       that is logged            in an hour
 *
 * An upload is due if its wait or its claim is over. It is also due if it failed without a flow, and its receipt may be
 * missing.
 *
 * The marker comes back although a message was sent: if the message is lost, or its invocation dies, the marker leads
 * to the upload again. It is dropped once the entry no longer needs it.
 */
export async function resubmit(
  marker: WaitingMarker,
  ports: ResubmitPorts,
  signal: AbortSignal,
): Promise<Entry | undefined> {
  const { ledger, queue, clock, settings, sources, chainNotes } = ports;
  const { uploadId } = marker;
  let stored: Stored | undefined;
  try {
    stored = await ledger.read(uploadId, signal);
  } catch (error) {
    if (!(error instanceof UnreadableEntryError)) throw error;
    await postpone(marker, error, ports, signal);
    return undefined;
  }
  const entry = stored?.entry;
  if (entry?.state === 'waiting') {
    // The invocation that wrote the wait may have died before it told the chain of a retry, or before it kept the
    // inputs. So both are done again.
    if (entry.generation > 1 && isInChain(entry, settings.routes)) await chainNotes.note(entry, signal);
    await sources.keep(entry.inputs ?? [], signal);
  }
  const now = clock.now();
  let next = entry && markerAfter(entry, marker, settings, now);
  // An upload in the line is resubmitted only from its marker in the line. If this is another marker of it, the marker
  // in the line is put again.
  const isItsMarker = next?.turn === undefined || marker.turn !== undefined;
  const isSent = entry !== undefined && next !== undefined && next.notBefore <= now && isItsMarker;
  if (isSent) {
    await queue.send(messageFor(entry.upload), signal);
    next = { uploadId, notBefore: now + DUE_AGAIN_MS };
  }
  // If an operator makes a stage anew, the marker of the chain's first file is put.
  const isFirst = entry?.state === 'succeeded' && entry.upload.stage === undefined;
  const mayBeMadeAnew = isFirst && isInChain(entry, settings.routes);
  const goOnMs = mayBeMadeAnew ? await ports.finishAnew?.(uploadId, signal) : undefined;
  const deletionAt = stored && next === undefined ? await ports.deletions?.goOn(stored, signal) : undefined;
  const goOnAt = Math.min(deletionAt ?? Number.POSITIVE_INFINITY, clock.now() + (goOnMs ?? Number.POSITIVE_INFINITY));
  if (goOnAt < Number.POSITIVE_INFINITY) next = { uploadId, notBefore: goOnAt };
  const sent = isSent ? entry : undefined;
  if (next !== undefined) {
    if (waitingKey(next) === waitingKey(marker)) return sent; // It was due by another clock, and is not by ours. The marker stays.
    await ledger.putWaitingMarker(next, signal);
  }
  if (entry?.state === 'running') {
    // The invocation that created the flow may have died before it put the running marker. Then only this one is left.
    await ledger.putRunningMarker(runningMarkerOf(entry.upload, entry.flow), signal);
  }
  await ledger.deleteWaitingMarker(marker, signal);
  return sent;
}

/** The marker that an entry needs from now on. Undefined if it needs none. */
function markerAfter(
  entry: Entry,
  marker: WaitingMarker,
  settings: ResubmitPorts['settings'],
  now: number,
): WaitingMarker | undefined {
  if (needsTelling(entry)) return marker;
  const next = waitingMarkerOf(entry, settings);
  if (entry.state !== 'waiting' || next === undefined || next.notBefore > now || entry.notBefore <= now) return next;
  // It only waits to be approved, and a tick looks at it once a day.
  return { ...next, notBefore: lookAt(entry, now) };
}

/** True if a failure may lack its receipt, and only a waiting marker leads to it. After a flow, a running marker does. */
const needsTelling = (entry: Entry): boolean => isUntold(entry) && entry.flow === undefined;

/** Makes the marker of an unreadable entry due later. At the head of the list it would keep others from being resubmitted. */
async function postpone(
  marker: WaitingMarker,
  error: UnreadableEntryError,
  { ledger, clock, telemetry }: ResubmitPorts,
  signal: AbortSignal,
): Promise<void> {
  const { uploadId } = marker;
  telemetry.log.error('This upload cannot be resubmitted: its entry cannot be read', { uploadId, error });
  telemetry.metrics.add('EntriesUnreadable');
  await ledger.putWaitingMarker({ uploadId, notBefore: clock.now() + DUE_AGAIN_MS }, signal);
  await ledger.deleteWaitingMarker(marker, signal);
}
