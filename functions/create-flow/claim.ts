import { LISTING_DELAY_MAX_MS } from '../flow-service/flow-search.ts';
import { keyHonouredMs } from '../flow-service/service-description.ts';
import { noteFailure } from '../holds/permit.ts';
import {
  answered,
  type ClaimedEntry,
  type Entry,
  ended,
  inDoubt,
  running,
  runningMarkerOf,
  type TerminalEntry,
  type Told,
  type Wait,
  type WaitingEntry,
  waiting,
  waitingMarkerOf,
  withNextKey,
} from '../ledger/entry.ts';
import type { KnownFailure } from '../ledger/failures.ts';
import type { Stored } from '../ledger/store.ts';
import { SUPERSEDED } from '../ledger/terminal-states.ts';
import { publish } from '../publish/publish.ts';
import { ClaimHeldError, type Delivery, type Outcome } from './delivery.ts';

/*
 * The ends of a claim. Each function replaces the claim by the next entry, and then puts its marker or its receipt.
 *
 *   claimed ──▶ running     commitFlow
 *           ──▶ failed      failUpload
 *           ──▶ waiting     keepWaiting
 */

/**
 * A claim of this invocation. Its entry may be ahead of the ledger: what happens under the claim is written when the
 * claim ends.
 */
export interface Claim<E extends ClaimedEntry | WaitingEntry = ClaimedEntry> {
  /** What is in the ledger, and is replaced. */
  readonly stored: Stored;
  readonly entry: E;
  /** True if the operator has just asked for the upload to be sent. */
  readonly isAsked?: boolean;
}

/** A flow of ours, and how we came by it. */
interface OwnFlow {
  readonly flowId: string;
  readonly outcome: 'created' | 'adopted';
}

/** Time by which clocks may differ, in milliseconds. */
const CLOCKS_DIFFER_MS = 5 * 60_000;

/**
 * True if an upload in doubt may be sent again with its key, until the end of this invocation. The service then answers
 * with the flow of the first request, if that made one.
 */
export function isKeyGood({ ports: { settings }, invocation }: Delivery, { doubt }: ClaimedEntry): boolean {
  if (doubt === undefined || doubt.isDismissed || doubt.isKeySpent) return false;
  return invocation.endsAt + CLOCKS_DIFFER_MS <= doubt.claimedAt + keyHonouredMs(settings.service);
}

/**
 * The claim whose key the next request has. If the service honours keys, the key is in the ledger before the request is
 * sent: the next invocation must send the same one if this invocation dies.
 * @param isRefused true if a request with the present key was refused.
 */
export async function withKey(delivery: Delivery, claim: Claim, isRefused: boolean): Promise<Claim> {
  const isHonoured = keyHonouredMs(delivery.ports.settings.service) > 0;
  const isNext = isRefused && claim.entry.doubt === undefined;
  const entry = isNext ? withNextKey(claim.entry, isHonoured) : claim.entry;
  if (!isHonoured || claim.stored.entry.keyNumber === entry.keyNumber) return { ...claim, entry };
  const written = await replaceClaim(delivery, claim, entry, delivery.invocation.work);
  if (!written.won) throw new ClaimHeldError(`Another invocation took over upload ${entry.upload.id}`);
  return { ...claim, stored: written.stored, entry };
}

/** Writes the flow into the entry, then puts its marker. If another invocation took the entry over, our flow yields. */
export async function commitFlow(
  delivery: Delivery,
  claim: Claim<ClaimedEntry | WaitingEntry>,
  { flowId, outcome }: OwnFlow,
): Promise<Outcome> {
  const { ledger, clock } = delivery.ports;
  const { closing } = delivery.invocation;
  delivery.identify({ flowId });
  const flow = { id: flowId, createdAt: clock.now() };
  const written = await replaceClaim(delivery, claim, running(claim.entry, flow), closing);
  if (written.won) {
    await ledger.putRunningMarker(runningMarkerOf(claim.entry.upload, flow), closing);
    delivery.log.info(`Flow ${outcome}`, { template: claim.entry.route.template });
    return outcome;
  }
  return yieldFlow(delivery, claim.entry, written.current, { flowId, outcome });
}

/** Decides about our flow after another invocation took the upload over while the flow was being made. */
async function yieldFlow(
  delivery: Delivery,
  mine: ClaimedEntry | WaitingEntry,
  current: Stored | undefined,
  own: OwnFlow,
): Promise<Outcome> {
  const { ledger } = delivery.ports;
  const { flowId } = own;
  const theirs = current?.entry;
  // They wait for a flow that may exist. This is it.
  if (current !== undefined && theirs?.state === 'waiting' && theirs.generation === mine.generation) {
    return commitFlow(delivery, { stored: current, entry: theirs }, own);
  }
  // They are at work on the upload, and will find the flow by its tag. They would lose it if we aborted it.
  if (theirs?.state === 'claimed') throw new ClaimHeldError(`Another invocation took over upload ${mine.upload.id}`);
  if (theirs?.state === 'running' && theirs.flow.id === flowId) {
    await ledger.putRunningMarker(runningMarkerOf(theirs.upload, theirs.flow), delivery.invocation.closing);
    return 'running already';
  }
  delivery.count('FlowsOrphaned');
  delivery.log.warn('Another invocation took over this upload. Our flow is orphaned. We try to abort it.');
  const of = { uploadId: mine.upload.id, template: mine.route.template };
  const error = await delivery.ports.flows.abort(flowId, delivery.invocation.closing, of);
  if (error !== undefined) delivery.log.warn('The orphaned flow could not be aborted', { error });
  return 'orphaned';
}

/**
 * Replaces a claim. The ledger may hold a later writing of it, because the answer to that was lost. Then that one is
 * replaced.
 */
async function replaceClaim<E extends Entry>(
  { ports: { ledger } }: Delivery,
  { stored, entry }: Claim<ClaimedEntry | WaitingEntry>,
  next: E,
  signal: AbortSignal,
): ReturnType<typeof ledger.replace<E>> {
  const written = await ledger.replace(stored, next, signal);
  if (written.won || written.current === undefined) return written;
  return isSameClaim(written.current.entry, entry) ? ledger.replace(written.current, next, signal) : written;
}

const isSameClaim = (one: Entry, other: Entry): boolean =>
  one.state === 'claimed' &&
  other.state === 'claimed' &&
  one.claimedAt === other.claimedAt &&
  one.deadline === other.deadline;

/**
 * Notes in the claim why the upload waits in place, for the operator. Returns the claim as it stands then. If the note
 * cannot be written, the sending goes on without it.
 */
export async function tellWaiting(delivery: Delivery, claim: Claim, told: Omit<Told, 'at'>): Promise<Claim> {
  delivery.log.info('The upload waits in place', { why: told.message });
  const entry = answered(claim.entry, { ...told, at: delivery.ports.clock.now() });
  try {
    const written = await replaceClaim(delivery, claim, entry, delivery.invocation.work);
    return written.won ? { ...claim, stored: written.stored, entry } : claim;
  } catch (error) {
    delivery.log.warn('The claim could not say why the upload waits', { error: error as Error });
    return claim;
  }
}

/**
 * Ends the upload as failed, and publishes that. But what fails a request that was sent again because of its key says
 * nothing about the first one. So the flow of that is searched for before.
 */
export async function failUpload(delivery: Delivery, claim: Claim, failure: KnownFailure): Promise<Outcome> {
  const { doubt } = claim.entry;
  if (doubt !== undefined && isKeyGood(delivery, claim.entry)) {
    const entry = inDoubt(claim.entry, { ...doubt, isKeySpent: true });
    const message = `The service may have created a flow. It is searched for before the upload fails: ${failure.message}`;
    const notBefore = Math.max(delivery.ports.clock.now(), doubt.sentBy + LISTING_DELAY_MAX_MS);
    return keepWaiting(delivery, { ...claim, entry }, { reason: 'in-doubt', message, counted: false, notBefore });
  }
  const terminal = ended(claim.entry, { failure }, delivery.ports.clock.now());
  const written = await replaceClaim(delivery, claim, terminal, delivery.invocation.closing);
  if (!written.won) throw new ClaimHeldError(`Another invocation took over upload ${claim.entry.upload.id}`);
  if (failure.code === 'rejected') await noteFailure(terminal, failure, delivery.ports, delivery.invocation.closing);
  return publishFailure(delivery, terminal);
}

export async function publishFailure(delivery: Delivery, entry: TerminalEntry): Promise<Outcome> {
  // Nothing is wrong with a stage whose file was replaced, and nobody needs an alarm.
  const isSuperseded = entry.state === 'failed' && entry.failure.code === SUPERSEDED;
  delivery.count(isSuperseded ? 'UploadsSuperseded' : 'UploadsFailed');
  await publish(entry, delivery.ports, delivery.invocation.closing);
  return 'failed';
}

/** Gives the claim up. The upload is resubmitted when the wait is over. */
export async function keepWaiting(delivery: Delivery, claim: Claim, wait: Wait): Promise<Outcome> {
  const written = await replaceClaim(delivery, claim, waiting(claim.entry, wait), delivery.invocation.closing);
  if (!written.won) throw new ClaimHeldError(`Another invocation took over upload ${claim.entry.upload.id}`);
  await putWaitingMarker(delivery, written.stored.entry);
  delivery.count('UploadsWaiting');
  delivery.log.info('The upload waits', { reason: wait.reason, notBefore: new Date(wait.notBefore).toISOString() });
  return 'waiting';
}

/** Puts the marker of an upload that waits. Nothing is put in any other state. */
export async function putWaitingMarker({ ports, invocation }: Delivery, entry: Entry): Promise<void> {
  const marker = waitingMarkerOf(entry, ports.settings);
  if (marker !== undefined) await ports.ledger.putWaitingMarker(marker, invocation.closing);
}
