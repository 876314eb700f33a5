import { CLOCK_SKEW_MAX_MS } from '../base/clock.ts';
import { isTerminal, retried, seenCurrent, type TerminalEntry } from '../ledger/entry.ts';
import { isInside } from '../uploads/inbox.ts';
import type { GivenOverrides } from '../uploads/route-snapshot.ts';
import { routeFor } from '../uploads/routes.ts';
import { beginAgain, type Changed, each, type OperatorPorts, readPublished } from './changes.ts';

/** Uploads of one retry that go into the queue at once. More of them wait in the line, and live files go first. */
export const RETRIED_AT_ONCE_MAX = 20;

/** True if so many uploads begin at once that live files go first. */
export const isLate = ({ length }: readonly string[]): true | undefined => length > RETRIED_AT_ONCE_MAX || undefined;

/** How uploads begin again. */
export interface Again {
  /** What replaces parts of the route, if the route allows it. Only an upload that has ended takes it. */
  readonly given?: GivenOverrides | undefined;
  /** True if live files go first. Default: if there are many. */
  readonly late?: true | undefined;
}

interface RetryOptions extends Again {
  /** True if an upload is made anew, however it ended. One that has not ended stays as it is. Default false. */
  readonly isAnew?: boolean;
}

/**
 * Retries failed uploads, and resubmits waiting ones at once. If there are many, they wait in the line, so that they do
 * not fill the queue before live files.
 */
export function retryUploads(
  uploadIds: readonly string[],
  ports: OperatorPorts,
  signal: AbortSignal,
  { given, isAnew = false, late = isLate(uploadIds) }: RetryOptions = {},
): Promise<readonly Changed[]> {
  return each(uploadIds, async (upload) => {
    const stored = await readPublished(upload, ports, signal);
    if (stored === undefined) return { upload, result: 'unknown' };
    const { entry } = stored;
    if (entry.state === 'succeeded' && !isAnew) return { upload, result: 'succeeded already' };
    if (entry.state === 'claimed' || entry.state === 'running') return { upload, result: 'under way' };
    // No retry takes the place of an approval.
    if (entry.state === 'waiting' && entry.reason === 'review') return { upload, result: 'not approved' };
    // A flow of a waiting upload may exist already, with the parameters that it had.
    if (entry.state === 'waiting' && (isAnew || given !== undefined)) return { upload, result: 'under way' };
    // The address of a later stage may look like a key of the inbox.
    const { stage } = entry.upload;
    const route = stage === undefined ? routeFor(ports.settings.routes, entry.upload) : undefined;
    if (given !== undefined && route?.overrides !== true) return { upload, result: 'overrides not allowed' };
    if (isTerminal(entry) && !(await hasSource(entry, ports, signal))) return { upload, result: 'source gone' };
    const before = isTerminal(entry) ? await ranked(entry, ports, signal) : entry;
    const isBegun = await beginAgain(stored, retried(before, ports.clock.now(), { given, late }), ports, signal);
    return { upload, result: isBegun ? 'resubmitted' : 'under way' };
  });
}

/**
 * Returns the entry of an ended upload. If the upload is current, the entry says so. The operator may have deleted a
 * newer upload of the key. Then the next receipt of this upload must replace that of the newer one.
 */
export async function ranked<T extends TerminalEntry>(
  entry: T,
  { inbox, settings, clock }: OperatorPorts,
  signal: AbortSignal,
): Promise<T> {
  const { id, bucket, key, stage } = entry.upload;
  // Nothing replaces an upload of a later stage at its address.
  if (stage !== undefined || !isInside(settings, entry.upload)) return entry;
  const current = await inbox.current(bucket, key, signal);
  // Our clock may be fast. A later upload must not rank below this one.
  return current?.id === id ? seenCurrent(entry, clock.now() - CLOCK_SKEW_MAX_MS) : entry;
}

/**
 * False if what would be sent is gone: the version of a file from the inbox, because `afterSuccess` or its owner deleted it;
 * or an input of a later stage from the results, because it has expired.
 */
async function hasSource(
  { upload: { id, bucket, key, stage }, inputs = [] }: TerminalEntry,
  { inbox, sources, settings }: OperatorPorts,
  signal: AbortSignal,
): Promise<boolean> {
  if (stage !== undefined) return sources.areThere(inputs, signal);
  // An earlier inbox may be closed to the function.
  if (!isInside(settings, { bucket, key })) return true;
  if ((await inbox.current(bucket, key, signal))?.id === id) return true;
  for await (const { uploads } of inbox.pages(bucket, key, undefined, signal)) {
    if (uploads.some((upload) => upload.id === id)) return true;
    if (uploads.some((upload) => upload.key > key)) return false;
  }
  return false;
}
