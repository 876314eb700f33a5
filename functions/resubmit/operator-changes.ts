import { CLOCK_SKEW_MAX_MS, type Clock } from '../base/clock.ts';
import { type Entry, isUntold, seenCurrent, type TerminalEntry } from '../ledger/entry.ts';
import type { Ledger, Stored } from '../ledger/store.ts';
import { type PublishPorts, publish } from '../publish/publish.ts';
import { type Inbox, type InboxPlace, isInside } from '../uploads/inbox.ts';

/* The steps that `retry` and `collect` share. An operator may ask for either, however old the upload is. */

/**
 * Time after which what an operator asked for has surely ended or died, in milliseconds: the 15 minutes of a function,
 * and a minute.
 */
const SETTLED_MS = 16 * 60_000;

/**
 * Reads the entry of an upload that is to be changed. If it is a failure that may not be told, that is published first:
 * the invocation may have died before it sent the event, and after the change no entry would tell of the failure.
 */
export async function readTold(
  uploadId: string,
  ports: PublishPorts,
  signal: AbortSignal,
): Promise<Stored | undefined> {
  const stored = await ports.ledger.read(uploadId, signal);
  if (stored === undefined || !isUntold(stored.entry)) return stored;
  await publish(stored.entry, ports, signal);
  return ports.ledger.read(uploadId, signal);
}

/**
 * Replaces an entry. The daily sweep does not look for an old upload: if this invocation dies, a marker leads to it.
 */
export async function replaceMarked(
  previous: Stored,
  entry: Entry,
  { ledger, clock }: { readonly ledger: Ledger; readonly clock: Clock },
  signal: AbortSignal,
): ReturnType<Ledger['replace']> {
  const marker = { uploadId: entry.upload.id, notBefore: clock.now() + SETTLED_MS };
  await ledger.putWaitingMarker(marker, signal);
  return ledger.replace(previous, entry, signal);
}

export interface RankPorts {
  readonly inbox: Pick<Inbox, 'current'>;
  readonly settings: InboxPlace;
  readonly clock: Clock;
}

/**
 * Returns the entry of an ended upload. If the upload is current, the entry says so. The operator may have deleted a
 * newer upload of the key. Then the next receipt of this upload must replace that of the newer one.
 */
export async function ranked<T extends TerminalEntry>(
  entry: T,
  { inbox, settings, clock }: RankPorts,
  signal: AbortSignal,
): Promise<T> {
  const { id, bucket, key } = entry.upload;
  if (!isInside(settings, entry.upload)) return entry;
  const current = await inbox.current(bucket, key, signal);
  // Our clock may be fast. A later upload must not rank below this one.
  return current?.id === id ? seenCurrent(entry, clock.now() - CLOCK_SKEW_MAX_MS) : entry;
}
