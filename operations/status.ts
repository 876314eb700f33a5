import { GetObjectCommand } from '@aws-sdk/client-s3';
import pMap from 'p-map';
import { agoText } from '../functions/base/duration.ts';
import { mediaTypeOf } from '../functions/base/media-type.ts';
import { shorten } from '../functions/base/printable.ts';
import { copiedEntry, copyWords } from '../functions/ledger/copies.ts';
import { type Entry, isTerminal, isWaitingJob } from '../functions/ledger/entry.ts';
import { SWEEP_KEY } from '../functions/ledger/keys.ts';
import { OtherFormatError, UnreadableEntryError } from '../functions/ledger/store.ts';
import { Receipts } from '../functions/publish/receipts.ts';
import { ifThere } from '../functions/s3/errors.ts';
import { parsedState } from '../functions/sweep/sweep-state.ts';
import { JOB_FILE } from '../functions/uploads/job-keys.ts';
import { mayMatch, routeFor, whySkipped } from '../functions/uploads/routes.ts';
import { firstOf } from '../functions/uploads/upload.ts';
import { type ChainView, chainOf } from './chains.ts';
import { uploadCommand } from './commands.ts';
import type { Deployment, QueueDepth } from './deployment.ts';
import { find } from './find.ts';
import {
  type HeldCount,
  type HoldsView,
  type HoldView,
  heldBy,
  heldCounts,
  holdsFor,
  holdsOf,
  reasonOfWait,
} from './holds.ts';
import { inputRouteOf, jobsNaming, jobsOf } from './job-files.ts';
import {
  collectorStates,
  type FoundUpload,
  failedMarkers,
  issueOf,
  READS_MAX,
  type ReadEntry,
  readEntries,
  runningMarkers,
  waitingMarkers,
} from './listing.ts';
import type { ServiceAnswer } from './service-answer.ts';
import { type UploadView, viewOf } from './upload-view.ts';

const DAY_MS = 24 * 60 * 60_000;

/** Waiting uploads whose entries are read for their reasons. The markers of more are only counted. */
const REASONS_READ_MAX = 200;

/** The same while uploads are held. */
const HELD_READ_MAX = 1_000;

/** Longest words on why a job failed, in the status of each of its inputs, in characters. */
const REASON_CHARS_MAX = 200;

/** Markers whose entries are read, to find so many uploads that wait. */
const MARKERS_READ_MAX = 2_000;

/** How a pipeline is doing. Times are in ISO 8601. */
export interface PipelineStatus {
  readonly kind: 'pipeline';
  readonly deployment: string;
  readonly pipeline: string;
  readonly holds: HoldsView;
  readonly queue: QueueDepth;
  /** Undefined if the dead-letter queue is not known. */
  readonly deadLetters: number | undefined;
  readonly waiting: {
    readonly count: number;
    readonly throttled: number;
    /** Number of uploads by reason, among the first {@link REASONS_READ_MAX}, or {@link HELD_READ_MAX}. */
    readonly reasons: Readonly<Record<string, number>>;
    /** The held ones among them. */
    readonly held: readonly HeldCount[];
    /** True if there are more than were read for their reasons. */
    readonly isSample: boolean;
    /** The number of those that were read for their reasons. */
    readonly read: number;
    /** When the upload that has been under way for longest came to the pipeline, of those that were read. */
    readonly oldestArrivedAt: string | undefined;
  };
  readonly running: { readonly count: number; readonly oldestCreatedAt: string | undefined };
  /** Without those that gave way to a newer file. */
  readonly failed: { readonly count: number; readonly since: string };
  readonly collectors: readonly CollectorStatus[];
  /** The last daily sweep that ended. Undefined if none has. */
  readonly sweep: { readonly endedAt: string; readonly missed: number } | undefined;
  /** What another version wrote into the ledger, and what to do. Undefined if nothing of it was read. */
  readonly otherFormat: string | undefined;
}

export interface CollectorStatus {
  readonly index: number;
  /** End of the last tick that was not cut short. */
  readonly tickCompletedAt: string | undefined;
  /** True while a tick is at work. */
  readonly isAtWork: boolean;
  /** The pace that the service allows. Undefined if no limit is known. */
  readonly requestsPerSecond: number | undefined;
}

/** The uploads below a prefix. */
export interface PrefixStatus {
  readonly kind: 'prefix';
  readonly prefix: string;
  /** Number of uploads by state. Files that only jobs can send are no uploads of their own, and not counted. */
  readonly counts: Readonly<Record<string, number>>;
  /** True if there are more uploads than are looked at. */
  readonly isCut: boolean;
  readonly uploads: readonly UploadStatus[];
}

/** One upload. */
export interface UploadStatus {
  readonly kind: 'upload';
  readonly id: string;
  readonly key: string;
  /** `unknown` if the ledger has no entry of it, and `unreadable` if this version cannot read it. */
  readonly state: UploadView['state'] | 'unknown' | 'unreadable';
  readonly upload?: UploadView | undefined;
  /** Why the upload or its chain is not shown. */
  readonly issue?: string | undefined;
  /** False if another version of the file is current at its key, or none is. For a later stage: of the first file. */
  readonly isCurrent: boolean;
  /** Keys of the job files that name it, if only jobs can send it. Undefined if it is an upload of its own. */
  readonly inputOf?: readonly string[] | undefined;
  /** The chain that it belongs to. Undefined if it is part of none, and below a prefix. */
  readonly chain?: ChainView | undefined;
  /** What holds it. Undefined if it is not held, or not any more. */
  readonly hold?: HoldView | undefined;
  /** What the service says of its flow. Only `flowdrop status` asks, and only while the flow runs. */
  readonly service?: ServiceAnswer | undefined;
}

/** The state of the whole pipeline; or of what a key, an upload id or a prefix names. */
export async function status(
  what: string | undefined,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<PipelineStatus | PrefixStatus | UploadStatus> {
  if (what === undefined) return pipelineStatus(deployment, signal);
  const found = await find(what, deployment, signal);
  if (found.kind === 'upload') {
    const input = await inputStatus(found.upload, deployment, jobsOf(deployment, signal));
    if (input !== undefined) return input;
    const holds = await holdsFor([found.upload.entry], deployment, signal);
    return withChain(statusOf(found.upload, deployment, holds), deployment, signal);
  }
  const entries = found.uploads.map(({ entry }) => entry);
  const holds = await holdsFor(entries, deployment, signal);
  const jobAt = jobsOf(deployment, signal);
  const uploads = await pMap(
    found.uploads,
    async (upload) => (await inputStatus(upload, deployment, jobAt)) ?? statusOf(upload, deployment, holds),
    { concurrency: READS_MAX },
  );
  const counts: Record<string, number> = {};
  for (const { state, inputOf } of uploads) if (inputOf === undefined) counts[state] = (counts[state] ?? 0) + 1;
  return { kind: 'prefix', prefix: found.prefix, counts, isCut: found.isCut, uploads };
}

/** The status of a file that only jobs can send. Undefined if it is an upload of its own. */
async function inputStatus(
  upload: FoundUpload,
  deployment: Deployment,
  jobAt: ReturnType<typeof jobsOf>,
): Promise<UploadStatus | undefined> {
  const { key, entry, current, issue } = upload;
  const route = inputRouteOf(key, deployment.settings);
  const isUnbegun = entry === undefined && current !== undefined;
  if (!isUnbegun || route === undefined || issue?.kind === 'unreadable') return undefined;
  const { naming, unreadable } = await jobsNaming(key, route, jobAt);
  const [first] = naming;
  const said = [
    ...naming.map((job) => `It is an input of ${job.key}, which ${stateOfJob(job.entry)}.`),
    ...(first === undefined ? [`No ${JOB_FILE} in its folder or above names it, so nothing is sent.`] : []),
    ...unreadable.map((jobKey) => `${jobKey} cannot be used: see its status.`),
    ...(first === undefined ? [] : [`To see more: ${uploadCommand('status', first, deployment)}`]),
  ];
  return { ...statusOf(upload, deployment), issue: said.join(' '), inputOf: naming.map((job) => job.key) };
}

function stateOfJob(entry: Entry | undefined): string {
  if (entry === undefined) return 'has not begun';
  if (isWaitingJob(entry)) return 'waits for its inputs';
  if (entry.state === 'failed')
    return `has failed: ${shorten(entry.failure.message, REASON_CHARS_MAX).replace(/\.$/, '')}`;
  return isTerminal(entry) ? `has ${entry.state}: only a new ${JOB_FILE} begins a new flow` : `is ${entry.state}`;
}

/** The status of an upload without an entry. If it is a copy of the one before it at its key, nothing comes of it. */
async function withCopy(one: UploadStatus, deployment: Deployment, signal: AbortSignal): Promise<UploadStatus> {
  const { inbox, ledger, s3, settings, areRoutesKnown } = deployment;
  if (!one.isCurrent || !areRoutesKnown || !mayMatch(settings.routes, one.key)) return one;
  try {
    const current = await inbox.current(settings.inboxBucket, one.key, signal);
    if (current?.id !== one.id) return one;
    const ports = { inbox, ledger, settings, receipts: new Receipts(s3, settings) };
    const before = await copiedEntry(current, ports, signal);
    return before === undefined ? one : { ...one, issue: copyWords(before) };
  } catch (error) {
    if (!(error instanceof UnreadableEntryError)) throw error;
    return one;
  }
}

/** The status of one upload with its chain. An upload of a later stage is current as long as its first file is. */
async function withChain(one: UploadStatus, deployment: Deployment, signal: AbortSignal): Promise<UploadStatus> {
  if (one.upload === undefined) return one.state === 'unknown' ? withCopy(one, deployment, signal) : one;
  const first = firstOf(one.upload);
  const { inbox, settings } = deployment;
  const current = one.isCurrent ? undefined : await inbox.current(settings.inboxBucket, first.key, signal);
  const seen = { ...one, isCurrent: one.isCurrent || current?.id === first.id };
  try {
    return { ...seen, chain: await chainOf(one.upload, deployment, signal) };
  } catch (error) {
    if (!(error instanceof UnreadableEntryError)) throw error;
    return { ...seen, issue: issueOf('Its chain', error) };
  }
}

/** @internal */
export function statusOf(upload: FoundUpload, deployment: Deployment, holds?: HoldsView): UploadStatus {
  const { id, key, entry, issue, current } = upload;
  const facts = { kind: 'upload', id, key, isCurrent: current !== undefined } as const;
  if (entry !== undefined) {
    const hold = heldBy(entry, holds);
    const view = viewOf(entry, deployment.settings, holds);
    return { ...facts, state: entry.state, upload: view, ...(hold && { hold }) };
  }
  if (issue?.kind === 'unreadable') return { ...facts, state: 'unreadable', issue: issue.message };
  return { ...facts, state: 'unknown', issue: whyUnknown(upload, deployment) };
}

/** Why an upload has no entry. */
function whyUnknown({ key, current }: FoundUpload, { settings, areRoutesKnown, clock, command }: Deployment): string {
  if (current === undefined) return 'The object is gone from the inbox, and the ledger has no entry of it.';
  const { routes } = settings;
  const skipped = whySkipped(routes, { ...current, key });
  if (skipped !== undefined) return skipped;
  const mediaType = current.mediaType ?? mediaTypeOf(undefined, key);
  const isWanted = mayMatch(routes, key) && routeFor(routes, { key, mediaType }) !== undefined;
  if (areRoutesKnown && !isWanted) return `No route wants it. To see why: ${command} explain`;
  const age = clock.now() - current.lastModified;
  if (age < 15 * 60_000) return 'It has just been put, and waits in the queue.';
  return `It was put ${agoText(age)} and has no entry. It waits in the queue, or no notification came. Then the daily sweep submits it. To submit it now: ${command} sweep`;
}

/** The state of the whole pipeline. */
export async function pipelineStatus(deployment: Deployment, signal: AbortSignal): Promise<PipelineStatus> {
  const holds = await holdsOf(deployment, signal);
  const readMax = holds.holds.length > 0 ? HELD_READ_MAX : REASONS_READ_MAX;
  const [queue, deadLetters, waits, running, failed, collectors, swept] = await Promise.all([
    deployment.queueDepth(signal),
    deployment.deadLetterCount(signal),
    lookAtWaiting(deployment, signal, { readMax, holds }),
    runningStatus(deployment, signal),
    failedStatus(deployment, signal),
    collectorsStatus(deployment, signal),
    lookAtSweep(deployment, signal),
  ]);
  const { name, settings } = deployment;
  const facts = { kind: 'pipeline', deployment: name, pipeline: settings.pipeline } as const;
  const { waiting } = waits;
  const { sweep } = swept;
  const otherFormat = waits.otherFormat ?? swept.otherFormat;
  return { ...facts, holds, queue, deadLetters, waiting, running, failed, collectors, sweep, otherFormat };
}

export const waitingStatus = async (...args: Parameters<typeof lookAtWaiting>): Promise<PipelineStatus['waiting']> =>
  (await lookAtWaiting(...args)).waiting;

/**
 * @param readMax waiting uploads whose entries are read.
 * @param holds what is held now.
 */
async function lookAtWaiting(
  deployment: Deployment,
  signal: AbortSignal,
  { readMax, holds }: { readonly readMax: number; readonly holds: HoldsView },
): Promise<Pick<PipelineStatus, 'waiting' | 'otherFormat'>> {
  /** The uploads with a marker: whether they wait in the line. A resubmitted upload may have two for a moment. */
  const marked = new Map<string, boolean>();
  for await (const { uploadId, turn } of waitingMarkers(deployment, signal)) {
    if (!marked.has(uploadId)) marked.set(uploadId, turn !== undefined);
  }
  const unread = [...marked.keys()];
  const reasons: Record<string, number> = {};
  let oldest: number | undefined;
  let waitingRead = 0;
  const read: ReadEntry[] = [];
  // A marker of what has ended stays until it is due. So after a batch, there may be many of them.
  while (unread.length > 0 && waitingRead < readMax && read.length < MARKERS_READ_MAX) {
    const some = unread.splice(0, readMax - waitingRead);
    const entries = await readEntries(some, deployment, signal);
    read.push(...entries);
    for (const [index, { entry, issue }] of entries.entries()) {
      const reason = reasonOf(entry, holds) ?? (issue?.kind === 'unreadable' ? 'unreadable' : undefined);
      if (reason === undefined) {
        marked.delete(some[index] as string);
        continue;
      }
      waitingRead += 1;
      reasons[reason] = (reasons[reason] ?? 0) + 1;
      if (entry !== undefined) oldest = Math.min(oldest ?? entry.arrivedAt, entry.arrivedAt);
    }
  }
  const waiting = {
    count: marked.size,
    throttled: [...marked.values()].filter((isInLine) => isInLine).length,
    reasons,
    held: heldCounts(
      read.flatMap(({ entry }) => entry ?? []),
      holds,
    ),
    isSample: unread.length > 0,
    read: waitingRead,
    oldestArrivedAt: isoOf(oldest),
  };
  return { waiting, otherFormat: otherFormatIn(read) };
}

/** What the first entry says that another version wrote. @internal */
export const otherFormatIn = (read: readonly ReadEntry[]): string | undefined =>
  read.find(({ issue }) => issue?.isOtherFormat === true)?.issue?.message;

/** Undefined for an entry that is not on its way to a flow. */
function reasonOf(entry: Entry | undefined, holds: HoldsView): string | undefined {
  if (entry === undefined) return undefined;
  return entry.state === 'claimed' ? 'being sent' : reasonOfWait(entry, holds);
}

async function runningStatus(deployment: Deployment, signal: AbortSignal): Promise<PipelineStatus['running']> {
  let count = 0;
  let oldest: number | undefined;
  for await (const { ageFrom } of runningMarkers(deployment, signal)) {
    oldest ??= ageFrom;
    count += 1;
  }
  return { count, oldestCreatedAt: isoOf(oldest) };
}

async function failedStatus(deployment: Deployment, signal: AbortSignal): Promise<PipelineStatus['failed']> {
  const since = deployment.clock.now() - DAY_MS;
  const ids = new Set<string>();
  for await (const { uploadId, isReplaced } of failedMarkers(deployment, since, signal)) {
    if (isReplaced !== true) ids.add(uploadId);
  }
  return { count: ids.size, since: new Date(since).toISOString() };
}

async function collectorsStatus(deployment: Deployment, signal: AbortSignal): Promise<readonly CollectorStatus[]> {
  const collectors = await collectorStates(deployment, signal);
  return collectors.map(({ index, state }) => ({
    index,
    tickCompletedAt: isoOf(state.tickCompletedAt),
    isAtWork: (state.heldUntil ?? 0) > deployment.clock.now(),
    requestsPerSecond: state.pace?.requestsPerSecond,
  }));
}

/** Nothing if the state is damaged: it is only shown. */
async function lookAtSweep(
  { s3, settings, clock }: Deployment,
  abortSignal: AbortSignal,
): Promise<Partial<Pick<PipelineStatus, 'sweep' | 'otherFormat'>>> {
  const get = new GetObjectCommand({ Bucket: settings.ledgerBucket, Key: SWEEP_KEY });
  const answer = await ifThere(s3.send(get, { abortSignal }));
  if (answer === undefined) return {};
  try {
    const { state } = parsedState((await answer.Body?.transformToString()) ?? '', clock.now());
    const daily = state.ended?.daily;
    if (daily === undefined) return {};
    return { sweep: { endedAt: new Date(daily.endedAt).toISOString(), missed: daily.counts?.missed ?? 0 } };
  } catch (error) {
    if (error instanceof OtherFormatError) return { otherFormat: error.message };
    throw error;
  }
}

const isoOf = (ms: number | undefined): string | undefined =>
  ms === undefined ? undefined : new Date(ms).toISOString();
