import { iso } from '../base/clock.ts';
import type { MetricName } from '../base/telemetry.ts';
import { listedWithinMs } from '../flow-service/flow-search.ts';
import { noteFailure, noteSuccess } from '../holds/outcomes.ts';
import {
  type ClaimedEntry,
  type Entry,
  ended,
  inDoubt,
  isReplaced,
  isTerminal,
  running,
  runningMarkerOf,
  type TerminalEntry,
  type Wait,
  waiting,
  waitingMarkerOf,
} from '../ledger/entry.ts';
import type { KnownFailure } from '../ledger/failures.ts';
import type { Stored } from '../ledger/store.ts';
import { publish } from '../publish/publish.ts';
import { reviewEvent } from '../publish/review-event.ts';
import { type Claim, isKeyGood, replaceClaim } from './claim.ts';
import { ClaimHeldError, type Delivery, type Outcome } from './delivery.ts';

/**
 * How a delivery ends. Each step of `create-flow/` decides and returns one of these, and only {@link conclude} writes
 * what follows. For a claimed upload, it writes the next entry, and then what belongs to the new state:
 *
 *   flow     running    the marker of the flow
 *   wait     waiting    the marker of the wait
 *   failed   failed     the receipt, the event, and the marker of the failure
 */
export type Ending =
  | { readonly kind: 'flow'; readonly claim: Claim; readonly flowId: string; readonly how: 'created' | 'adopted' }
  | { readonly kind: 'wait'; readonly claim: Claim; readonly wait: Wait }
  | { readonly kind: 'failed'; readonly claim: Claim; readonly failure: KnownFailure }
  /** The upload ended with its first entry, which is written already. */
  | { readonly kind: 'ended'; readonly entry: TerminalEntry }
  /** An entry that asks for nothing now. What belongs to its state is written again, because it may be missing. */
  | { readonly kind: 'known'; readonly entry: Unclaimed }
  /** Nothing of the upload is written. */
  | { readonly kind: 'leave'; readonly outcome: Outcome; readonly metric?: MetricName; readonly message: string };

type Unclaimed = Exclude<Entry, ClaimedEntry>;

/**
 * The end of an upload that fails. If it is in doubt, and was waiting to repeat its request with the same key, the
 * failure says nothing about the earlier request. Then the upload first waits for a search for the flow of that
 * request.
 */
export function failing(delivery: Delivery, claim: Claim, failure: KnownFailure): Ending {
  const { doubt } = claim.entry;
  if (doubt === undefined || !isKeyGood(delivery, claim.entry)) return { kind: 'failed', claim, failure };
  const entry = inDoubt(claim.entry, { ...doubt, isKeySpent: true });
  const message = `The service may have created a flow. It is searched for before the upload fails: ${failure.message}`;
  const notBefore = Math.max(delivery.ports.clock.now(), doubt.sentBy + listedWithinMs(delivery.ports.flows.service));
  const wait = { reason: 'in-doubt', message, notBefore } as const;
  return { kind: 'wait', claim: { ...claim, entry }, wait };
}

/**
 * Writes what a delivery came to. It is safe to run again: an entry is written on the condition that nobody has changed it.
 * @throws {ClaimHeldError} another invocation has taken the upload over.
 */
export async function conclude(delivery: Delivery, ending: Ending): Promise<Outcome> {
  const { clock } = delivery.ports;
  switch (ending.kind) {
    case 'flow':
      return concludeFlow(delivery, ending);
    case 'wait': {
      const entry = await writeEnd(delivery, ending.claim, waiting(ending.claim.entry, ending.wait));
      await writeRest(delivery, entry, ending.claim.stored.entry.review === undefined);
      delivery.count('UploadsWaiting');
      const { reason, notBefore } = ending.wait;
      delivery.log.info('The upload waits', { reason, notBefore: iso(notBefore) });
      return 'waiting';
    }
    case 'failed': {
      const { claim, failure } = ending;
      const entry = await writeEnd(delivery, claim, ended(claim.entry, { failure }, clock.now()));
      if (failure.code === 'rejected') await noteFailure(entry, failure, delivery.ports, delivery.invocation.closing);
      return concludeFailure(delivery, entry);
    }
    case 'ended':
      return concludeFailure(delivery, ending.entry);
    case 'known':
      await writeRest(delivery, ending.entry);
      return outcomeOf(ending.entry);
    case 'leave':
      if (ending.metric !== undefined) delivery.count(ending.metric);
      delivery.log.info(ending.message);
      return ending.outcome;
  }
}

function outcomeOf(entry: Unclaimed): Outcome {
  if (isTerminal(entry)) return 'ended already';
  return entry.state === 'running' ? 'running already' : 'waiting';
}

/**
 * Writes what belongs to the state of an entry, because it may be missing.
 * @param isUntold true if the event that asks for its approval may not have been sent yet.
 */
async function writeRest({ writing: ports, invocation }: Delivery, entry: Unclaimed, isUntold = true): Promise<void> {
  const { closing } = invocation;
  switch (entry.state) {
    case 'waiting': {
      const marker = waitingMarkerOf(entry, ports.settings);
      if (marker !== undefined) await ports.ledger.putWaitingMarker(marker, closing);
      if (entry.reason === 'review' && isUntold) await ports.events.send(reviewEvent(entry, ports.settings), closing);
      return;
    }
    case 'running':
      return ports.ledger.putRunningMarker(runningMarkerOf(entry.upload, entry.flow), closing);
    case 'succeeded':
      // Only a tick publishes a success, because that may copy results and delete the file.
      if (entry.flow !== undefined)
        await ports.ledger.putRunningMarker(runningMarkerOf(entry.upload, entry.flow), closing);
      return;
    default:
      await publish(entry, ports, closing);
  }
}

async function writeEnd<E extends Entry>(delivery: Delivery, claim: Claim, next: E): Promise<E> {
  const written = await replaceClaim(delivery, claim, next, delivery.invocation.closing);
  if (written.won) return written.stored.entry;
  throw new ClaimHeldError(`Another invocation took over upload ${next.upload.id}`);
}

async function concludeFailure(delivery: Delivery, entry: TerminalEntry): Promise<Outcome> {
  const isFault = entry.state === 'failed' && entry.failure.code !== 'cancelled';
  // A stage whose file was replaced is no fault, and needs no alarm.
  if (isFault) delivery.count(isReplaced(entry) ? 'UploadsSuperseded' : 'UploadsFailed');
  await writeRest(delivery, entry);
  return 'failed';
}

type FlowEnding = Extract<Ending, { kind: 'flow' }>;

/** If another invocation took the entry over while the flow was being made, see {@link yieldFlow}. */
async function concludeFlow(delivery: Delivery, ending: FlowEnding): Promise<Outcome> {
  const { claim, flowId, how } = ending;
  delivery.identify({ flowId });
  const outcome = await writeFlow(delivery, ending, claim.stored);
  if (how === 'created') await noteSuccess(claim.entry, 'created', delivery.ports, delivery.invocation.closing);
  return outcome;
}

/** @param stored the entry that becomes `running`. */
async function writeFlow(delivery: Delivery, ending: FlowEnding, stored: Stored): Promise<Outcome> {
  const { claim, flowId, how } = ending;
  const entry = running(claim.entry, { id: flowId, createdAt: delivery.ports.clock.now() });
  const written = await replaceClaim(delivery, { ...claim, stored }, entry, delivery.invocation.closing);
  if (!written.won) return yieldFlow(delivery, ending, written.current);
  await writeRest(delivery, entry);
  delivery.log.info(`Flow ${how}`, { template: entry.route.template });
  return how;
}

/**
 * If the upload has no flow yet, ours becomes its flow. Otherwise ours is aborted.
 * @param current the entry that another invocation has written.
 */
async function yieldFlow(delivery: Delivery, ending: FlowEnding, current: Stored | undefined): Promise<Outcome> {
  const { flowId } = ending;
  const mine = ending.claim.entry;
  const { ports, invocation } = delivery;
  const theirs = current?.entry;
  // The other invocation looks for a flow, or lets the upload wait. If it makes a second flow, that flow is aborted.
  const isOpen = theirs?.state === 'waiting' || theirs?.state === 'claimed';
  if (current !== undefined && isOpen && theirs.generation === mine.generation)
    return writeFlow(delivery, ending, current);
  // It has found our flow, or S3's answer to our own write was lost.
  if (theirs !== undefined && 'flow' in theirs && theirs.flow?.id === flowId)
    return conclude(delivery, { kind: 'known', entry: theirs });
  // Its generation has ended with our flow, and a later one has begun.
  if (theirs?.previous?.some(({ flow }) => flow === flowId) === true) return 'ended already';
  delivery.count('FlowsOrphaned');
  delivery.log.warn('Another invocation took over this upload. Our flow is orphaned. We try to abort it.');
  const of = { uploadId: mine.upload.id, template: mine.route.template };
  const error = await ports.flows.abort(flowId, invocation.closing, of);
  if (error !== undefined) delivery.log.warn('The orphaned flow could not be aborted', { error });
  return 'orphaned';
}
