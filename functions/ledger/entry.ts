import type { FlowTag } from '../flow-service/types.ts';
import type { RouteSnapshot } from '../uploads/routes.ts';
import type { Upload } from '../uploads/upload.ts';
import type { WaitingMarker } from './keys.ts';

/**
 * An entry: everything that is known of one upload, and the one place where its state is decided.
 *
 *             claim (If-None-Match: *)        answered with a flow id
 *   (nothing) ───────────────────────▶ claimed ──────────────────────▶ running ──▶ succeeded
 *                                      ▲  │  │                            │
 *                due, sent again       │  │  └── rejected for good ───────┴──────▶ failed
 *                                      │  ▼                                          │
 *                                    waiting ◀────── retried by a person ────────────┘
 *
 * The functions below are the arrows. They are pure: each makes the next entry from the one before, and whoever holds
 * the ETag of the one before may write it.
 */
export type Entry = ClaimedEntry | WaitingEntry | RunningEntry | TerminalEntry;

/** Version of the entry's form. A deployment reads its own and the one before. */
export const ENTRY_SCHEMA = 1;

interface EntryFacts {
  readonly schema: typeof ENTRY_SCHEMA;
  readonly upload: Upload;
  readonly route: RouteSnapshot;
  /** True from a retry until a route of the configuration at that time has been written down. No POST came in between. */
  readonly reroute?: true | undefined;
  /**
   * The pipeline that first claimed this generation. It is part of the flow's tag, which a renamed pipeline must still
   * find. Absent in a retried upload that waits, and in entries from before there was this field.
   */
  readonly pipeline?: string | undefined;
  /** 1, and one more for each renewed attempt after a known end. It is part of the flow's tag. */
  readonly generation: number;
  /** Failures so far that the file could be the cause of, within this state of affairs: sending, or collecting. */
  readonly attempts: number;
  /** True once an invocation has died while it held the claim. The file may be the cause, so it is sent alone from then on. */
  readonly claimDied?: true | undefined;
  /** Waits so far in this generation: they lengthen the next one. */
  readonly waits: number;
  /** Since when the service's throttling keeps the upload waiting, milliseconds since the epoch: its place in the queue. */
  readonly throttledSince?: number | undefined;
  /** A POST of this generation of which it is not known whether it made a flow. */
  readonly doubt?: Doubt | undefined;
}

export interface Doubt {
  /** When the earliest such POST was claimed: a flow listing must reach back to here. */
  readonly claimedAt: number;
  /** When the last byte of the latest such POST had been sent, at the latest. */
  readonly sentBy: number;
  /** When there may be another attempt, should there be no flow: an outage must not use all of them up. */
  readonly nextAttemptAt?: number | undefined;
}

export interface ClaimedEntry extends EntryFacts {
  readonly state: 'claimed';
  readonly claimedAt: number;
  /** After this the claim's invocation is surely dead. */
  readonly deadline: number;
}

/** Why an upload waits. */
export type WaitReason =
  | 'throttled'
  | 'unauthorised'
  | 'forbidden'
  | 'unavailable'
  | 'out-of-time'
  | 'in-doubt'
  | 'held'
  | 'retried';

export interface WaitingEntry extends EntryFacts {
  readonly state: 'waiting';
  readonly reason: WaitReason;
  /** What happened, in a sentence. */
  readonly message: string;
  readonly notBefore: number;
}

export interface FlowFacts {
  readonly id: string;
  /** When the service had answered, by our clock. It is part of the marker's key. */
  readonly createdAt: number;
}

export interface RunningEntry extends EntryFacts {
  readonly state: 'running';
  readonly flow: FlowFacts;
  /** When an attempt to store its assets was last counted, milliseconds since the epoch. */
  readonly attemptedAt?: number | undefined;
  /** True if the service gave this flow to another upload too: then nothing of it is ever collected. */
  readonly isShared?: true | undefined;
  /** Assets that were stored before a collection was cut off or failed: the next one goes on from there. */
  readonly assets?: readonly StoredAsset[] | undefined;
}

export interface TerminalEntry extends EntryFacts {
  readonly state: 'succeeded' | 'failed';
  readonly flow?: FlowFacts | undefined;
  readonly endedAt: number;
  readonly assets: readonly StoredAsset[];
  readonly failedOutputs: readonly FailedOutput[];
  /** Set where the state is `failed`. */
  readonly failure?: Failure | undefined;
  /** True once receipt and event of a failure are out: a retry would hide that they are not. */
  readonly isTold?: true | undefined;
}

export interface StoredAsset {
  readonly id: string;
  readonly key: string;
  readonly bytes: number;
  readonly mediaType: string;
  /** Hexadecimal SHA-256 of the stored bytes. */
  readonly sha256: string;
}

export interface FailedOutput {
  readonly id: string;
  readonly code: string;
  readonly message: string;
}

export interface Failure {
  /** Stable and machine-readable. */
  readonly code: string;
  /** A sentence for a person. */
  readonly message: string;
}

/** What a delivery of an upload that already has an entry has to do. */
export type NextStep = 'publish-again' | 'restore-marker' | 'leave-to-its-claim' | 'wait-on' | 'take-over';

export function nextStep(entry: Entry, now: number): NextStep {
  switch (entry.state) {
    case 'succeeded':
    case 'failed':
      return 'publish-again';
    case 'running':
      return 'restore-marker';
    case 'claimed':
      return now < entry.deadline ? 'leave-to-its-claim' : 'take-over';
    case 'waiting':
      return now < entry.notBefore ? 'wait-on' : 'take-over';
  }
}

/** The marker that belongs to an entry whose upload waits or is claimed; undefined for any other. */
export function waitingMarkerOf(entry: Entry): WaitingMarker | undefined {
  const notBefore = dueAt(entry);
  if (notBefore === undefined) return undefined;
  const isThrottled = entry.state === 'waiting' && entry.reason === 'throttled';
  return { uploadId: entry.upload.id, notBefore, throttledSince: isThrottled ? entry.throttledSince : undefined };
}

/** Whether a claim of this upload has died, asked of an entry that no live claim holds. */
export const isSuspect = (entry: Entry): boolean => entry.state === 'claimed' || entry.claimDied === true;

/** When an upload that is neither running nor at its end is to be taken up again; undefined for any other. */
export function dueAt(entry: Entry): number | undefined {
  switch (entry.state) {
    case 'claimed':
      return entry.deadline;
    case 'waiting':
      return entry.notBefore;
    default:
      return undefined;
  }
}

export const isTerminal = (entry: Entry): entry is TerminalEntry =>
  entry.state === 'succeeded' || entry.state === 'failed';

/** @param pipeline today's name, for an entry that holds none. */
export const flowTagOf = (entry: Entry, pipeline: string): FlowTag => ({
  pipeline: entry.pipeline ?? pipeline,
  upload: entry.upload.id,
  generation: entry.generation,
});

/** An upload's first entry. */
export function firstClaim(
  upload: Upload,
  route: RouteSnapshot,
  now: number,
  deadline: number,
  pipeline: string,
): ClaimedEntry {
  return {
    schema: ENTRY_SCHEMA,
    state: 'claimed',
    upload,
    route,
    pipeline,
    generation: 1,
    attempts: 0,
    waits: 0,
    claimedAt: now,
    deadline,
  };
}

/**
 * The claim of whoever takes an upload over. A claim found past its deadline leaves a doubt behind: its invocation may
 * have sent everything, at the latest by its deadline, and died before it could write down the answer. It counts as an
 * attempt, for the file may be what it died of.
 */
export function claimAgain(
  entry: ClaimedEntry | WaitingEntry,
  now: number,
  deadline: number,
  pipeline: string,
): ClaimedEntry {
  const facts = factsOf(entry);
  const past =
    entry.state === 'claimed'
      ? ({ doubt: doubtful(entry, entry.deadline), attempts: entry.attempts + 1, claimDied: true } as const)
      : {};
  return { ...facts, pipeline: entry.pipeline ?? pipeline, ...past, state: 'claimed', claimedAt: now, deadline };
}

/** The claim of a retried upload with the route that it takes from now on. */
export function rerouted(entry: ClaimedEntry, route: RouteSnapshot): ClaimedEntry {
  return { ...entry, route, reroute: undefined };
}

/** The doubt after a POST under this claim was sent by `sentBy`, joined with one that was there before. */
export function doubtful(entry: ClaimedEntry, sentBy: number, nextAttemptAt = entry.doubt?.nextAttemptAt): Doubt {
  return {
    claimedAt: Math.min(entry.doubt?.claimedAt ?? entry.claimedAt, entry.claimedAt),
    sentBy: Math.max(entry.doubt?.sentBy ?? sentBy, sentBy),
    nextAttemptAt,
  };
}

export interface Wait {
  readonly reason: WaitReason;
  readonly message: string;
  readonly notBefore: number;
  /** Whether the file could be the cause. */
  readonly counted: boolean;
  readonly doubt?: Doubt | undefined;
}

export function waiting(entry: ClaimedEntry, wait: Wait): WaitingEntry {
  return {
    ...factsOf(entry),
    attempts: entry.attempts + (wait.counted ? 1 : 0),
    waits: entry.waits + 1,
    doubt: wait.doubt ?? entry.doubt,
    throttledSince: wait.reason === 'throttled' ? (entry.throttledSince ?? entry.claimedAt) : entry.throttledSince,
    state: 'waiting',
    reason: wait.reason,
    message: wait.message,
    notBefore: wait.notBefore,
  };
}

/** The claim once its doubt is settled: no flow was made, or a person or the setting accepts that one may have been. */
export function withoutDoubt(entry: ClaimedEntry): ClaimedEntry {
  const { doubt: _, ...rest } = entry;
  return rest;
}

export function running(entry: ClaimedEntry | WaitingEntry, flow: FlowFacts): RunningEntry {
  return {
    ...factsOf(entry),
    ...SENT,
    attempts: 0,
    doubt: undefined,
    throttledSince: undefined,
    state: 'running',
    flow,
  };
}

/**
 * A running flow whose collection was cut off, or failed by an asset, after these assets.
 * @param countedAt set if it counts as an attempt.
 */
export function collectedSoFar(
  entry: RunningEntry,
  assets: readonly StoredAsset[],
  countedAt: number | undefined,
): RunningEntry {
  if (countedAt === undefined) return { ...entry, assets };
  return { ...entry, assets, attempts: entry.attempts + 1, attemptedAt: countedAt };
}

/** A running flow that the service gave to another upload as well. */
export function shared(entry: RunningEntry): RunningEntry {
  return { ...entry, isShared: true };
}

export interface Ending {
  readonly assets?: readonly StoredAsset[];
  readonly failedOutputs?: readonly FailedOutput[];
  /** Present where the upload failed. */
  readonly failure?: Failure | undefined;
}

export function ended(entry: ClaimedEntry | RunningEntry, ending: Ending, now: number): TerminalEntry {
  return {
    ...factsOf(entry),
    ...SENT,
    state: ending.failure === undefined ? 'succeeded' : 'failed',
    flow: entry.state === 'running' ? entry.flow : undefined,
    endedAt: now,
    assets: ending.assets ?? [],
    failedOutputs: ending.failedOutputs ?? [],
    failure: ending.failure,
  };
}

/** A failure whose receipt and event are out. */
export function told(entry: TerminalEntry): TerminalEntry {
  return { ...entry, isTold: true };
}

/** Whether two terminal entries tell of the same end. */
export const isSameEnd = (one: TerminalEntry, other: TerminalEntry): boolean =>
  one.generation === other.generation && one.endedAt === other.endedAt;

/**
 * A failed upload, or one that waits, as an operator retries it. A known end begins a new generation, so that the flow
 * that failed is never taken for the next one's; its route and pipeline are those of the day. A wait keeps all three.
 */
export function retried(entry: TerminalEntry | WaitingEntry, now: number): WaitingEntry {
  const anew = { generation: entry.generation + 1, reroute: true, pipeline: undefined } as const;
  return {
    ...factsOf(entry),
    ...(entry.state === 'waiting' ? {} : anew),
    attempts: 0,
    waits: 0,
    throttledSince: undefined,
    // An upload is held because of its doubt: a person's word settles that. Any other doubt is still looked into.
    doubt: entry.state === 'waiting' && entry.reason !== 'held' ? atOnce(entry.doubt) : undefined,
    state: 'waiting',
    reason: 'retried',
    message: 'Sent on its way again by hand.',
    notBefore: now,
  };
}

/** The same doubt, after which nothing more is waited for. */
const atOnce = (doubt: Doubt | undefined): Doubt | undefined => doubt && { ...doubt, nextAttemptAt: undefined };

/** Fields that matter only until the upload is sent. */
const SENT = { reroute: undefined, claimDied: undefined } as const;

function factsOf(entry: Entry): EntryFacts {
  const { schema, upload, route, reroute, pipeline, generation, attempts } = entry;
  const { claimDied, waits, throttledSince, doubt } = entry;
  return { schema, upload, route, reroute, pipeline, generation, attempts, claimDied, waits, throttledSince, doubt };
}
