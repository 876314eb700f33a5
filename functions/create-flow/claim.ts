import { CLOCK_SKEW_MAX_MS } from '../base/clock.ts';
import { keyHonouredMs } from '../flow-service/service-description.ts';
import {
  answered,
  type ClaimedEntry,
  type Entry,
  type FailedEntry,
  isUnseen,
  type Told,
  type WaitingEntry,
  withNextKey,
} from '../ledger/entry.ts';
import type { Ledger, Stored } from '../ledger/store.ts';
import { SWEEP_REACH_MS } from '../ledger/waits.ts';
import { ClaimHeldError, type Delivery } from './delivery.ts';

/** A claim of this invocation. */
export interface Claim {
  /** The entry in the ledger that the next write replaces. */
  readonly stored: Stored;
  /** The claim as this invocation knows it. Changes are written when the claim ends, or by {@link rewritten}. */
  readonly entry: ClaimedEntry;
  /** True if the operator has just asked for the upload to be sent. */
  readonly isAsked?: boolean;
}

/** A claim in the ledger, or the entry that another invocation has written meanwhile. */
type Taken = { readonly won: true; readonly stored: Stored } | { readonly won: false; readonly current: Stored };

/** Makes a tick look at an upload at `notBefore`, in case this invocation dies and no message leads to the upload. */
export const leadBackTo = (
  { writing: { ledger }, invocation }: Delivery,
  uploadId: string,
  notBefore: number,
): Promise<void> => ledger.putWaitingMarker({ uploadId, notBefore }, invocation.work);

/**
 * Writes the first entry of an upload, unless there is one already.
 * @param next the entry to write in place of the claim, if the upload ends or waits at once.
 * @throws {ClaimHeldError} the entry was created and deleted meanwhile.
 */
export async function claimFirst(
  delivery: Delivery,
  claim: ClaimedEntry,
  next?: FailedEntry | WaitingEntry,
): Promise<Taken> {
  const { id, lastModified } = claim.upload;
  // The daily sweep does not look for the entries of such old files.
  if (lastModified < claim.claimedAt - SWEEP_REACH_MS) await leadBackTo(delivery, id, claim.deadline);
  return taken(await delivery.writing.ledger.create(next ?? claim, delivery.invocation.work), claim);
}

/** Takes an upload over. @throws {ClaimHeldError} its entry is gone. */
export async function claimOver(
  { writing: { ledger }, invocation }: Delivery,
  stored: Stored,
  claim: ClaimedEntry,
): Promise<Taken> {
  return taken(await ledger.replace(stored, claim, invocation.work), claim);
}

function taken(written: Awaited<ReturnType<Ledger['replace']>>, { upload }: ClaimedEntry): Taken {
  if (written.won) return written;
  if (written.current === undefined) throw new ClaimHeldError(`The entry of upload ${upload.id} is gone`);
  return { won: false, current: written.current };
}

/**
 * True if an upload in doubt may be sent again with its key, because the service honours the key until this invocation
 * ends. The service then answers with the flow of the first request, if that made one.
 * @param leftMs how long the key must still be honoured after this invocation, in milliseconds.
 */
export function isKeyGood({ ports: { settings }, invocation }: Delivery, { doubt }: ClaimedEntry, leftMs = 0): boolean {
  if (doubt === undefined || doubt.isDismissed || doubt.isKeySpent) return false;
  return invocation.endsAt + leftMs + CLOCK_SKEW_MAX_MS <= doubt.claimedAt + keyHonouredMs(settings.service);
}

/**
 * Returns the claim with the key of the next request. If the service honours keys, the key is written before the
 * request is sent. If this invocation dies, the next one must send the same key. The claim of a file that has to settle
 * says at first that nothing was sent. That is corrected before the request too.
 * @param isRefused true if a request with the present key was refused.
 */
export async function withKey(delivery: Delivery, claim: Claim, isRefused: boolean): Promise<Claim> {
  const isHonoured = keyHonouredMs(delivery.ports.settings.service) > 0;
  const isNext = isRefused && claim.entry.doubt === undefined;
  const entry = isNext ? withNextKey(claim.entry) : claim.entry;
  const isKnown = !isHonoured || claim.stored.entry.keyNumber === entry.keyNumber;
  if (isKnown && !isUnseen(claim.stored.entry)) return { ...claim, entry };
  return rewritten(delivery, claim, entry);
}

/**
 * Writes what must be in the ledger before the next step, such as the key of a request before it is sent.
 * @throws {ClaimHeldError} another invocation has taken the upload over.
 */
export async function rewritten(delivery: Delivery, claim: Claim, entry: ClaimedEntry): Promise<Claim> {
  const written = await replaceClaim(delivery, claim, entry, delivery.invocation.work);
  if (!written.won) throw new ClaimHeldError(`Another invocation took over upload ${entry.upload.id}`);
  return { ...claim, stored: written.stored, entry };
}

/**
 * Notes in the claim why the upload waits for its turn, for the operator. Returns the claim as it stands then. If the
 * note cannot be written, the sending goes on without it.
 * @throws {ClaimHeldError} another invocation has taken the upload over.
 */
export async function tellWaiting(delivery: Delivery, claim: Claim, told: Omit<Told, 'at'>): Promise<Claim> {
  delivery.log.info('The upload waits for its turn', { why: told.message });
  const entry = answered(claim.entry, { ...told, at: delivery.ports.clock.now() });
  try {
    return await rewritten(delivery, claim, entry);
  } catch (error) {
    if (error instanceof ClaimHeldError) throw error;
    delivery.log.warn('The claim could not say why the upload waits', { error: error as Error });
    return claim;
  }
}

/** Replaces a claim. An earlier write of this invocation, whose answer was lost, may have changed it meanwhile. */
export async function replaceClaim<E extends Entry>(
  { writing: { ledger } }: Delivery,
  { stored, entry }: { readonly stored: Stored; readonly entry: Entry },
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
