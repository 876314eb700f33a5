import { decodedId, encodedId } from '../base/key-segment.ts';

/**
 * The one owner of every key in the ledger bucket.
 *
 *   uploads/<upload id>.json                       the entry
 *   running/<created>/<upload id>/<flow id>        marker of a running flow
 *   waiting/<not before>/<upload id>               marker of an upload that waits
 *   waiting/throttled/<since>/<not before>/<upload id>
 *                                                  marker of an upload that waits because the service is throttling:
 *                                                  a queue, which those that wait longest leave first
 *   state/collector-<index>.json                   a collector's lease and the time of its last completed round
 *   state/sweep.json                               what the sweep remembers between its runs
 *
 * Times are ISO 8601 in UTC with milliseconds, so that a listing, which S3 sorts by bytes, is sorted by time.
 */
export const UPLOADS_PREFIX = 'uploads/';
export const RUNNING_PREFIX = 'running/';
export const WAITING_PREFIX = 'waiting/';
/** In the order of a listing, this comes after all times. */
export const THROTTLED_PREFIX = `${WAITING_PREFIX}throttled/`;
export const STATE_PREFIX = 'state/';

/** A running flow, told by the key of its marker alone. */
export interface RunningMarker {
  /** When the flow was created, milliseconds since the epoch. */
  readonly createdAt: number;
  readonly uploadId: string;
  readonly flowId: string;
}

/** An upload that waits, told by the key of its marker alone. Times in milliseconds since the epoch. */
export interface WaitingMarker {
  /** When it is due. */
  readonly notBefore: number;
  readonly uploadId: string;
  /** Since when the service's throttling keeps it waiting. Undefined if it waits for another reason. */
  readonly throttledSince?: number | undefined;
}

export const entryKey = (uploadId: string): string => `${UPLOADS_PREFIX}${uploadId}.json`;

export const collectorKey = (index: number): string => `${STATE_PREFIX}collector-${index}.json`;

export const SWEEP_KEY = `${STATE_PREFIX}sweep.json`;

export const runningKey = (marker: RunningMarker): string =>
  `${RUNNING_PREFIX}${time(marker.createdAt)}/${marker.uploadId}/${encodedId(marker.flowId)}`;

export const waitingKey = ({ notBefore, uploadId, throttledSince }: WaitingMarker): string =>
  throttledSince === undefined
    ? `${WAITING_PREFIX}${time(notBefore)}/${uploadId}`
    : `${THROTTLED_PREFIX}${time(throttledSince)}/${time(notBefore)}/${uploadId}`;

/** The last key, in the order of a listing, of an upload that is due at `now`. */
export const waitingDueKey = (now: number): string => `${WAITING_PREFIX}${time(now)}/~`;

/** The marker that a key tells of; undefined for a key that is none, which somebody else must have put there. */
export function parseRunningKey(key: string): RunningMarker | undefined {
  const match = /^running\/(\d{4}-[^/]+)\/([0-9a-f]+)\/([^/]+)$/.exec(key);
  const flowId = match === null ? undefined : decodedId(match[3] as string);
  if (match === null || flowId === undefined) return undefined;
  const marker = { createdAt: Date.parse(match[1] as string), uploadId: match[2] as string, flowId };
  return isKeyOf(key, marker.createdAt, () => runningKey(marker)) ? marker : undefined;
}

/** The upload whose entry a key is. */
export const parseEntryKey = (key: string): string | undefined => /^uploads\/([0-9a-f]+)\.json$/.exec(key)?.[1];

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

/** A key that says the same in other words is none of ours: it could not be found again to be deleted. */
const isKeyOf = (key: string, time: number, ours: () => string): boolean => !Number.isNaN(time) && ours() === key;

const time = (ms: number): string => new Date(ms).toISOString();
