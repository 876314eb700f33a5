import { type _Object, ListObjectsV2Command } from '@aws-sdk/client-s3';
import pMap from 'p-map';
import { type CollectorState, readState } from '../functions/collect-outputs/collector.ts';
import type { Entry } from '../functions/ledger/entry.ts';
import {
  COLLECTORS_PREFIX,
  collectorKey,
  FAILED_PREFIX,
  type FailedMarker,
  failedSinceKey,
  parseFailedKey,
  parseRunningKey,
  parseWaitingKey,
  RUNNING_PREFIX,
  type RunningMarker,
  WAITING_PREFIX,
  type WaitingMarker,
} from '../functions/ledger/keys.ts';
import { OtherFormatError, UnreadableEntryError } from '../functions/ledger/store.ts';
import type { Upload } from '../functions/uploads/upload.ts';
import type { Deployment } from './deployment.ts';

/** Objects that are read side by side. */
export const READS_MAX = 32;

/** The markers of all running flows, oldest first. */
export const runningMarkers = (deployment: Deployment, signal: AbortSignal): AsyncGenerator<RunningMarker> =>
  markers(deployment, { prefix: RUNNING_PREFIX, parse: parseRunningKey }, signal);

/**
 * The markers of all waiting uploads: those that wait for a time by that time, then those in the line.
 */
export const waitingMarkers = (deployment: Deployment, signal: AbortSignal): AsyncGenerator<WaitingMarker> =>
  markers(deployment, { prefix: WAITING_PREFIX, parse: parseWaitingKey }, signal);

/** The markers of the uploads that failed at `since` or later, oldest first. Some may be left of retried failures. */
export const failedMarkers = (
  deployment: Deployment,
  since: number,
  signal: AbortSignal,
): AsyncGenerator<FailedMarker> =>
  markers(deployment, { prefix: FAILED_PREFIX, parse: parseFailedKey, after: failedSinceKey(since) }, signal);

interface Kind<T> {
  readonly prefix: string;
  readonly parse: (key: string) => T | undefined;
  readonly after?: string;
}

async function* markers<T>(
  { s3, settings }: Deployment,
  { prefix, parse, after }: Kind<T>,
  signal: AbortSignal,
): AsyncGenerator<T> {
  for await (const { Key = '' } of objects({ s3, bucket: settings.ledgerBucket, prefix, after }, signal)) {
    const marker = parse(Key);
    if (marker !== undefined) yield marker;
  }
}

export interface ObjectsBelow {
  readonly s3: Deployment['s3'];
  readonly bucket: string;
  readonly prefix: string;
  /** Begins after this key. */
  readonly after?: string | undefined;
}

/** All objects below a prefix, in the order of their keys. */
export async function* objects(
  { s3, bucket, prefix, after }: ObjectsBelow,
  abortSignal: AbortSignal,
): AsyncGenerator<_Object> {
  let ContinuationToken: string | undefined;
  do {
    const listing = { Bucket: bucket, Prefix: prefix, StartAfter: after, ContinuationToken };
    const page = await s3.send(new ListObjectsV2Command(listing), { abortSignal });
    yield* page.Contents ?? [];
    ContinuationToken = page.NextContinuationToken;
  } while (ContinuationToken !== undefined);
}

/** An entry, or why there is none. */
export type ReadEntry =
  | { readonly entry: Entry; readonly issue?: undefined }
  | { readonly entry?: undefined; readonly issue: EntryIssue };

export interface EntryIssue {
  readonly kind: 'absent' | 'unreadable';
  /** A sentence for a person. */
  readonly message: string;
  /** True if another version wrote the entry. */
  readonly isOtherFormat?: boolean;
}

/** Why an object of the ledger is not shown. @internal */
export const issueOf = (what: string, error: UnreadableEntryError): string =>
  error instanceof OtherFormatError ? error.message : `${what} cannot be read: ${error.message.replace(/\.$/, '')}.`;

/**
 * Reads an entry. One that is gone or cannot be read is an issue, because one damaged entry must not hide all others.
 */
export async function readEntry(
  id: string,
  { ledger }: Pick<Deployment, 'ledger'>,
  signal: AbortSignal,
): Promise<ReadEntry> {
  try {
    const entry = (await ledger.read(id, signal))?.entry;
    if (entry !== undefined) return { entry };
    return { issue: { kind: 'absent', message: 'The ledger has no entry of this upload.' } };
  } catch (error) {
    if (!(error instanceof UnreadableEntryError)) throw error;
    const isOtherFormat = error instanceof OtherFormatError;
    return { issue: { kind: 'unreadable', message: issueOf('The entry', error), isOtherFormat } };
  }
}

/** Reads many entries, in the order of their ids. */
export const readEntries = (
  ids: readonly string[],
  deployment: Pick<Deployment, 'ledger'>,
  signal: AbortSignal,
): Promise<readonly ReadEntry[]> => pMap(ids, (id) => readEntry(id, deployment, signal), { concurrency: READS_MAX });

/** What a collector has written down, and when. */
export interface KnownCollector {
  readonly index: number;
  readonly state: CollectorState;
  /** Milliseconds since the epoch, by the clock of S3. */
  readonly writtenAt: number;
}

/** The states of all collectors, in their order. None if no tick has ever run. */
export async function collectorStates(
  { s3, settings, clock }: Deployment,
  signal: AbortSignal,
): Promise<readonly KnownCollector[]> {
  const bucket = settings.ledgerBucket;
  const written = new Map<string, number>();
  for await (const { Key = '', LastModified } of objects({ s3, bucket, prefix: COLLECTORS_PREFIX }, signal)) {
    written.set(Key, LastModified?.getTime() ?? 0);
  }
  const known: KnownCollector[] = [];
  for (let index = 0; ; index += 1) {
    const writtenAt = written.get(collectorKey(index));
    if (writtenAt === undefined) return known;
    const state = await readState({ s3, bucket, clock }, index, signal);
    known.push({ index, state, writtenAt });
  }
}

/** One upload, as far as it is known. */
export interface FoundUpload {
  readonly id: string;
  readonly key: string;
  /** The object in the inbox. Undefined if it is gone, or not the current version of its key. */
  readonly current?: Pick<Upload, 'bytes' | 'lastModified' | 'versionId'> & { readonly mediaType?: string | undefined };
  readonly entry?: Entry | undefined;
  /** Why there is no entry. */
  readonly issue?: EntryIssue | undefined;
}
