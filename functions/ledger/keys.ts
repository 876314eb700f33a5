import { iso } from '../base/clock.ts';
import { decodedId, encodedId, shortSegment } from '../base/key-segment.ts';

/**
 * This file owns every key of the ledger bucket.
 *
 *   uploads/<upload id>.json                       the entry
 *   running/<created>/<upload id>/<flow id>        marker of a running flow
 *   waiting/<not before>/<upload id>               marker of an upload that waits
 *   waiting/turn/<live or late>/<route>/<segment>/<since>/<not before>/<upload id>
 *                                                  marker of an upload in the line. It waits for its turn among those
 *                                                  of its class, its route and its segment.
 *   failed/<ended>/<upload id>                     marker of a failed upload. No function works from it: it answers
 *                                                  which uploads failed since a time.
 *   failed/<ended>/<upload id>/replaced            the same, of one that gave way to a newer file
 *   chains/<upload id of the first file>.json      how the uploads of a chain stand
 *   state/collector-<index>.json                   a collector's lease, and its state between ticks
 *   state/holds.json                               what is held, what is spent of budgets, and what that follows from
 *   state/costs/<day in UTC>.json                  what the flows of a day cost that has ended
 *   state/sweep.json                               the state of the sweep between its runs
 *   state/aliases/<whose>.json                     which success the aliases of a file show
 *   state/routes.json                              the routes, if the functions' environment does not hold them
 *
 * Times are ISO 8601 in UTC with milliseconds. S3 sorts a listing by bytes, so it is sorted by time.
 */
export const UPLOADS_PREFIX = 'uploads/';
export const RUNNING_PREFIX = 'running/';
export const WAITING_PREFIX = 'waiting/';
/** The line. `turn/` sorts after every time, so a listing of due markers ends before it. */
export const LINE_PREFIX = `${WAITING_PREFIX}turn/`;
export const FAILED_PREFIX = 'failed/';
export const CHAINS_PREFIX = 'chains/';
export const STATE_PREFIX = 'state/';
export const COLLECTORS_PREFIX = `${STATE_PREFIX}collector-`;
export const COSTS_PREFIX = `${STATE_PREFIX}costs/`;
export const ALIASES_PREFIX = `${STATE_PREFIX}aliases/`;

/** Prefixes of what may expire `settings.ledgerRetentionDays` after its last write, and of what must stay. */
export const EXPIRING_PREFIXES = [UPLOADS_PREFIX, CHAINS_PREFIX, FAILED_PREFIX] as const;
export const LASTING_PREFIXES = [RUNNING_PREFIX, WAITING_PREFIX, STATE_PREFIX] as const;

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
  /** Its place in the line. Undefined if it waits for a time only. */
  readonly turn?: Turn | undefined;
}

/** Live files have nine of ten turns. Late ones have the tenth: backfills, and retries of many. */
export const TURN_CLASSES = ['live', 'late'] as const;
export type TurnClass = (typeof TURN_CLASSES)[number];

/** A place in the line. */
export interface Turn {
  readonly class: TurnClass;
  /** The name of the route, as a {@link shortSegment}. */
  readonly route: string;
  /** The first segment of the key of the file, as a {@link shortSegment}; {@link NO_SEGMENT} for a key without a slash. */
  readonly segment: string;
  /** Since when it waits. The longest waiting upload of a segment leaves first. */
  readonly since: number;
}

/** No text is encoded like this. */
const NO_SEGMENT = '!';

/** Ends the key of the marker of an upload that gave way to a newer file. */
const REPLACED_SUFFIX = '/replaced';

/** An upload that failed. The key of its marker holds all of this. */
export interface FailedMarker {
  /** When it failed, milliseconds since the epoch. */
  readonly endedAt: number;
  readonly uploadId: string;
  /** True if it gave way to a newer file: nothing is wrong. */
  readonly isReplaced?: true | undefined;
}

export const entryKey = (uploadId: string): string => `${UPLOADS_PREFIX}${uploadId}.json`;

/** The key of a collector's state, by its index: from 0 to one less than the number of collectors. */
export const collectorKey = (index: number): string => `${COLLECTORS_PREFIX}${index}.json`;

/** The key of a chain, by the upload id of its first file. */
export const chainKey = (firstId: string): string => `${CHAINS_PREFIX}${firstId}.json`;

/** The key of the state of aliases. @param owner a hash of whose they are. */
export const aliasStateKey = (owner: string): string => `${ALIASES_PREFIX}${owner}.json`;

export const HOLDS_KEY = `${STATE_PREFIX}holds.json`;

/** The key of the costs of a day, such as `2026-11-24`. */
export const costsKey = (day: string): string => `${COSTS_PREFIX}${day}.json`;

export const SWEEP_KEY = `${STATE_PREFIX}sweep.json`;

/** The routes of the functions, for operators. It exists only if they are too long for the environment. */
export const ROUTES_KEY = `${STATE_PREFIX}routes.json`;

export const runningKey = (marker: RunningMarker): string =>
  `${RUNNING_PREFIX}${iso(marker.ageFrom)}/${marker.uploadId}/${encodedId(marker.flowId)}`;

export function waitingKey({ notBefore, uploadId, turn }: WaitingMarker): string {
  const due = `${iso(notBefore)}/${uploadId}`;
  return turn === undefined ? `${WAITING_PREFIX}${due}` : `${segmentPrefix(turn)}${iso(turn.since)}/${due}`;
}

/** The prefix of a class in the line, of a route in it, and of a segment in that. */
export const classPrefix = (of: TurnClass): string => `${LINE_PREFIX}${of}/`;
export const routePrefix = (turn: Pick<Turn, 'class' | 'route'>): string => `${classPrefix(turn.class)}${turn.route}/`;
export const segmentPrefix = (turn: Omit<Turn, 'since'>): string => `${routePrefix(turn)}${turn.segment}/`;

/** The segment in the line of a file with this key. */
export function segmentOf(key: string, inboxPrefix: string): string {
  const below = key.startsWith(inboxPrefix) ? key.slice(inboxPrefix.length) : key;
  const [first = '', ...rest] = below.replace(/^\/+/, '').split('/');
  return rest.length === 0 ? NO_SEGMENT : shortSegment(first);
}

export const failedKey = ({ endedAt, uploadId, isReplaced }: FailedMarker): string =>
  `${FAILED_PREFIX}${iso(endedAt)}/${uploadId}${isReplaced === true ? REPLACED_SUFFIX : ''}`;

/** Sorts before every upload that failed at `since` or later, and after those that failed earlier. */
export const failedSinceKey = (since: number): string => `${FAILED_PREFIX}${iso(since)}`;

/** The last key of an upload that is due at `now`, in the order of a listing. */
export const waitingDueKey = (now: number): string => `${WAITING_PREFIX}${iso(now)}/~`;

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

/** The upload id in the key of a chain. Undefined for any other key. */
export const parseChainKey = (key: string): string | undefined => /^chains\/([0-9a-f]+)\.json$/.exec(key)?.[1];

const WAITING_KEY = new RegExp(
  [
    '^waiting/',
    `(?:turn/(?<of>${TURN_CLASSES.join('|')})/(?<route>[^/]+)/(?<segment>[^/]+)/(?<since>\\d{4}-[^/]+)/)?`,
    '(?<notBefore>\\d{4}-[^/]+)/(?<uploadId>[0-9a-f]+)$',
  ].join(''),
);

/** The marker of a key. Undefined if the key is not ours. */
export function parseWaitingKey(key: string): WaitingMarker | undefined {
  const match = WAITING_KEY.exec(key)?.groups;
  if (match === undefined) return undefined;
  const { of, route = '', segment = '', since = '', notBefore = '', uploadId = '' } = match;
  const marker: WaitingMarker = {
    notBefore: Date.parse(notBefore),
    uploadId,
    ...(of === undefined ? {} : { turn: { class: of as TurnClass, route, segment, since: Date.parse(since) } }),
  };
  const times = marker.notBefore + (marker.turn?.since ?? 0);
  return isKeyOf(key, times, () => waitingKey(marker)) ? marker : undefined;
}

/** The marker of a key. Undefined if the key is not ours. */
export function parseFailedKey(key: string): FailedMarker | undefined {
  const [, endedAt, uploadId = '', suffix] = /^failed\/(\d{4}-[^/]+)\/([0-9a-f]+)(\/replaced)?$/.exec(key) ?? [];
  if (endedAt === undefined) return undefined;
  const isReplaced = suffix === undefined ? {} : ({ isReplaced: true } as const);
  const marker = { endedAt: Date.parse(endedAt), uploadId, ...isReplaced };
  return isKeyOf(key, marker.endedAt, () => failedKey(marker)) ? marker : undefined;
}

/** Rejects non-canonical keys: we could not rebuild them in order to delete them. */
const isKeyOf = (key: string, time: number, ours: () => string): boolean => !Number.isNaN(time) && ours() === key;
