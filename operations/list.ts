import pMap from 'p-map';
import { type Entry, isTerminal } from '../functions/ledger/entry.ts';
import { FAILURES } from '../functions/ledger/failures.ts';
import { WAIT_REASONS } from '../functions/ledger/waits.ts';
import type { Deployment } from './deployment.ts';
import { type HoldsView, holdsOf, reasonOfWait } from './holds.ts';
import { LedgerWindow, type WindowLimits } from './ledger-window.ts';
import { failedMarkers, READS_MAX, readEntries, runningMarkers, waitingMarkers } from './listing.ts';
import { type UploadView, viewOf } from './upload-view.ts';

/** Entries read at once. A listing with a limit reads no further ones when it has enough. */
const READ_AT_ONCE = 200;

/** `undecided`: it waits for the operator's decision, because a flow of it may exist. */
export type ListedState = 'failed' | 'waiting' | 'undecided' | 'running';

/** The states of uploads that a hold may keep back. */
const MAY_BE_HELD: readonly ListQuery['state'][] = ['any', 'waiting'];

/** Uploads of any state are found in the newest part of the ledger: a week, and so many entries at most. */
const WINDOW: WindowLimits = { windowMs: 7 * 24 * 60 * 60_000, rowsMax: 10_000 };

export interface ListQuery {
  /** `any`: all states, succeeded uploads included. Only the newest part of the ledger is looked at. */
  readonly state: ListedState | 'any';
  /** Only uploads that failed, came to the pipeline or began to run then or later. Milliseconds since the epoch. */
  readonly since?: number | undefined;
  /** Only failures with this code, or waits for this reason. */
  readonly code?: string | undefined;
  /** Only uploads of the route of this name. */
  readonly route?: string | undefined;
  /** Maximum number of uploads. Default: all. */
  readonly limit?: number | undefined;
}

export interface Listed {
  /** Newest first. */
  readonly uploads: readonly UploadView[];
  /** True if there may be more than the limit. */
  readonly isCut: boolean;
  /** Uploads whose entries cannot be read. */
  readonly unreadable: readonly string[];
  /** Ids of failed uploads that another upload of the same key has replaced. */
  readonly replaced: readonly string[];
  /** Only of a list of every state: where the part of the ledger begins that was looked at, in ISO 8601. */
  readonly since?: string | undefined;
}

export const FAILURE_CODES: readonly string[] = Object.keys(FAILURES);

/** Words that `code` may be: the codes of failures, and the reasons of waits. */
export const CODES: readonly string[] = [...new Set([...FAILURE_CODES, ...WAIT_REASONS])];

/**
 * Lists the uploads in a state, newest first. Reads only the markers of that state and their entries. For each listed
 * failure, it also looks up the current upload at its key.
 */
export async function list(query: ListQuery, deployment: Deployment, signal: AbortSignal): Promise<Listed> {
  const listed = await listEntries(query, deployment, signal);
  const { inbox, settings } = deployment;
  const failed = listed.uploads.filter(({ state, bucket }) => state === 'failed' && bucket === settings.inboxBucket);
  const replaced = await pMap(
    failed,
    async ({ id, bucket, key }) => {
      // S3 may refuse to tell, for example without the key of the object. Then it is not known to be replaced.
      const current = await inbox.current(bucket, key, signal).catch(() => undefined);
      signal.throwIfAborted();
      return current === undefined || current.id === id ? [] : [id];
    },
    { concurrency: READS_MAX },
  );
  return { ...listed, replaced: replaced.flat() };
}

async function listEntries(
  query: ListQuery,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<Omit<Listed, 'replaced'>> {
  const { marked, since } = await markedUploads(query, deployment, signal);
  const { limit = Number.POSITIVE_INFINITY } = query;
  const holds = MAY_BE_HELD.includes(query.state) ? await holdsOf(deployment, signal) : undefined;
  const uploads: UploadView[] = [];
  const unreadable: string[] = [];
  for (let from = 0; from < marked.length; from += READ_AT_ONCE) {
    const some = marked.slice(from, from + READ_AT_ONCE);
    const entries = await readEntries(
      some.map(({ uploadId }) => uploadId),
      deployment,
      signal,
    );
    for (const [index, { entry, issue }] of entries.entries()) {
      const { uploadId, endedAt } = some[index] as Marked;
      if (issue?.kind === 'unreadable') unreadable.push(uploadId);
      if (entry === undefined || !isListed(entry, query, { endedAt, holds })) continue;
      if (uploads.length === limit) return { uploads, isCut: true, unreadable, since };
      uploads.push(viewOf(entry, deployment.settings, holds));
    }
  }
  return { uploads, isCut: false, unreadable, since };
}

interface Marked {
  readonly uploadId: string;
  /** Of a failure. A marker may be left of one that was retried. */
  readonly endedAt?: number | undefined;
}

/** The uploads that have a marker of the state, newest first. */
async function markedUploads(
  { state, since = 0 }: ListQuery,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<Pick<Listed, 'since'> & { readonly marked: readonly Marked[] }> {
  const marked = new Map<string, Marked>();
  const add = (marker: Marked) => marked.set(`${marker.uploadId} ${marker.endedAt}`, marker);
  switch (state) {
    case 'any': {
      const window = new LedgerWindow(deployment, WINDOW);
      for (const [uploadId] of await window.look(signal)) add({ uploadId });
      return { marked: [...marked.values()], since: new Date(window.since).toISOString() };
    }
    case 'failed':
      for await (const { uploadId, endedAt } of failedMarkers(deployment, since, signal)) add({ uploadId, endedAt });
      break;
    case 'running':
      for await (const { uploadId, ageFrom } of runningMarkers(deployment, signal)) {
        if (ageFrom >= since) add({ uploadId });
      }
      break;
    case 'waiting':
    case 'undecided':
      for await (const { uploadId } of waitingMarkers(deployment, signal)) add({ uploadId });
  }
  return { marked: [...marked.values()].reverse() };
}

/** Markers lag behind their entries, so the entry decides. */
function isListed(
  entry: Entry,
  { state, since = 0, code, route }: ListQuery,
  { endedAt, holds }: { readonly endedAt: number | undefined; readonly holds: HoldsView | undefined },
): boolean {
  if (route !== undefined && entry.route.name !== route) return false;
  switch (state) {
    case 'any':
      return isSince(entry, since) && (code === undefined || codeOf(entry, holds) === code);
    case 'failed':
      return (
        entry.state === 'failed' && entry.endedAt === endedAt && (code === undefined || entry.failure.code === code)
      );
    case 'running':
      return entry.state === 'running';
    case 'undecided':
      return reasonOfWait(entry) === 'undecided' && isSince(entry, since);
    case 'waiting':
      return (
        !isTerminal(entry) &&
        entry.state !== 'running' &&
        isSince(entry, since) &&
        (code === undefined || reasonOfWait(entry, holds) === code)
      );
  }
}

const codeOf = (entry: Entry, holds: HoldsView | undefined): string | undefined =>
  entry.state === 'failed' ? entry.failure.code : reasonOfWait(entry, holds);

const isSince = (entry: Entry, since: number): boolean => entry.arrivedAt >= since;
