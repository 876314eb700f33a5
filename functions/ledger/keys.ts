import { decodedId, encodedId } from '../base/key-segment.ts';

/**
 * This file owns every key of the ledger bucket.
 *
 *   uploads/<upload id>.json                       the entry
 *   running/<created>/<upload id>/<flow id>        marker of a running flow
 *   waiting/<not before>/<upload id>               marker of an upload that waits
 *   waiting/throttled/<since>/<not before>/<upload id>
 *                                                  marker of a throttled upload. These markers are a queue: the
 *                                                  upload that has waited longest leaves first.
 *   failed/<ended>/<upload id>                     marker of a failed upload. No function works from it: it answers
 *                                                  which uploads failed since a time.
 *   chains/<upload id of the first file>.json      how the uploads of a chain stand
 *   state/collector-<index>.json                   a collector's lease, and its state between ticks
 *   state/holds.json                               what is held, what is spent of budgets, and what that follows from
 *   state/costs/<day in UTC>.json                  what the flows of a day cost that has ended
 *   state/sweep.json                               the state of the sweep between its runs
 *
 * Times are ISO 8601 in UTC with milliseconds. S3 sorts a listing by bytes, so it is sorted by time.
 */
export const UPLOADS_PREFIX = 'uploads/';
export const RUNNING_PREFIX = 'running/';
export const WAITING_PREFIX = 'waiting/';
/** `throttled/` sorts after every time, so a listing of due markers ends before it. */
export const THROTTLED_PREFIX = `${WAITING_PREFIX}throttled/`;
export const FAILED_PREFIX = 'failed/';
export const CHAINS_PREFIX = 'chains/';
export const STATE_PREFIX = 'state/';
export const COLLECTORS_PREFIX = `${STATE_PREFIX}collector-`;
export const COSTS_PREFIX = `${STATE_PREFIX}costs/`;

/** A running flow. The key of its marker holds all of this. */
export interface RunningMarker {
  /** The time from which the age of the flow counts, in milliseconds since the epoch: see `ageFrom` in `entry.ts`. */
  readonly ageFrom: number;
  readonly uploadId: string;
  readonly flowId: string;
}

/** An upload that waits. The key of its marker holds all of this. Times in milliseconds since the epoch. */
export interface WaitingMarker {
  /** When it is due. */
  readonly notBefore: number;
  readonly uploadId: string;
  /** Since when the service's throttling keeps it waiting. Undefined if it waits for another reason. */
  readonly throttledSince?: number | undefined;
}

/** An upload that failed. The key of its marker holds all of this. */
export interface FailedMarker {
  /** When it failed, milliseconds since the epoch. */
  readonly endedAt: number;
  readonly uploadId: string;
}

export const entryKey = (uploadId: string): string => `${UPLOADS_PREFIX}${uploadId}.json`;

/** The key of a collector's state, by its index: from 0 to one less than the number of collectors. */
export const collectorKey = (index: number): string => `${COLLECTORS_PREFIX}${index}.json`;

/** The key of a chain, by the upload id of its first file. */
export const chainKey = (firstId: string): string => `${CHAINS_PREFIX}${firstId}.json`;

export const HOLDS_KEY = `${STATE_PREFIX}holds.json`;

/** The key of the costs of a day, such as `2026-11-24`. */
export const costsKey = (day: string): string => `${COSTS_PREFIX}${day}.json`;

export const SWEEP_KEY = `${STATE_PREFIX}sweep.json`;

export const runningKey = (marker: RunningMarker): string =>
  `${RUNNING_PREFIX}${time(marker.ageFrom)}/${marker.uploadId}/${encodedId(marker.flowId)}`;

export const waitingKey = ({ notBefore, uploadId, throttledSince }: WaitingMarker): string =>
  throttledSince === undefined
    ? `${WAITING_PREFIX}${time(notBefore)}/${uploadId}`
    : `${THROTTLED_PREFIX}${time(throttledSince)}/${time(notBefore)}/${uploadId}`;

export const failedKey = ({ endedAt, uploadId }: FailedMarker): string =>
  `${FAILED_PREFIX}${time(endedAt)}/${uploadId}`;

/** Sorts before every upload that failed at `since` or later, and after those that failed earlier. */
export const failedSinceKey = (since: number): string => `${FAILED_PREFIX}${time(since)}`;

/** The last key of an upload that is due at `now`, in the order of a listing. */
export const waitingDueKey = (now: number): string => `${WAITING_PREFIX}${time(now)}/~`;

/** The marker of a key. Undefined if the key is not ours. */
export function parseRunningKey(key: string): RunningMarker | undefined {
  const match = /^running\/(\d{4}-[^/]+)\/([0-9a-f]+)\/([^/]+)$/.exec(key);
  const flowId = match === null ? undefined : decodedId(match[3] as string);
  if (match === null || flowId === undefined) return undefined;
  const marker = { ageFrom: Date.parse(match[1] as string), uploadId: match[2] as string, flowId };
  return isKeyOf(key, marker.ageFrom, () => runningKey(marker)) ? marker : undefined;
}

/** The upload id in the key of an entry. Undefined for any other key. */
export const parseEntryKey = (key: string): string | undefined => /^uploads\/([0-9a-f]+)\.json$/.exec(key)?.[1];

/** The marker of a key. Undefined if the key is not ours. */
export function parseWaitingKey(key: string): WaitingMarker | undefined {
  const match = /^waiting\/(?:throttled\/(\d{4}-[^/]+)\/)?(\d{4}-[^/]+)\/([0-9a-f]+)$/.exec(key);
  if (match === null) return undefined;
  const [, since, notBefore, uploadId] = match;
  const marker = {
    notBefore: Date.parse(notBefore as string),
    uploadId: uploadId as string,
    ...(since === undefined ? {} : { throttledSince: Date.parse(since) }),
  };
  return isKeyOf(key, marker.notBefore + (marker.throttledSince ?? 0), () => waitingKey(marker)) ? marker : undefined;
}

/** The marker of a key. Undefined if the key is not ours. */
export function parseFailedKey(key: string): FailedMarker | undefined {
  const [, endedAt, uploadId = ''] = /^failed\/(\d{4}-[^/]+)\/([0-9a-f]+)$/.exec(key) ?? [];
  if (endedAt === undefined) return undefined;
  const marker = { endedAt: Date.parse(endedAt), uploadId };
  return isKeyOf(key, marker.endedAt, () => failedKey(marker)) ? marker : undefined;
}

/** Rejects non-canonical keys: we could not rebuild them in order to delete them. */
const isKeyOf = (key: string, time: number, ours: () => string): boolean => !Number.isNaN(time) && ours() === key;

const time = (ms: number): string => new Date(ms).toISOString();
