import type * as z from 'zod/mini';
import { shortSegment } from '../base/key-segment.ts';
import { shorten } from '../base/printable.ts';
import { LISTING_DELAY_MAX_MS } from '../flow-service/flow-search.ts';
import type { FlowTag } from '../flow-service/types.ts';
import type { Price } from '../uploads/budget.ts';
import { laterRoute } from '../uploads/chain-routes.ts';
import { confusable, inputName } from '../uploads/job-keys.ts';
import type { Route } from '../uploads/route.ts';
import type { GivenOverrides, RouteSnapshot } from '../uploads/route-snapshot.ts';
import { routeByKey, routeFor } from '../uploads/routes.ts';
import { firstOf, type Upload } from '../uploads/upload.ts';
import {
  COUNTED_FLOWS_MAX,
  type CountedFlow,
  type entrySchema,
  FACT_NAMES,
  type FactName,
  LEDGER_FORMAT,
  MESSAGE_CHARS_MAX,
  OUTPUT_MESSAGE_CHARS_MAX,
  PREVIOUS_ASSETS_MAX,
  PREVIOUS_MAX,
} from './entry-schema.ts';
import type { KnownFailure } from './failures.ts';
import { type FailedMarker, type RunningMarker, segmentOf, type WaitingMarker } from './keys.ts';
import { isSuccess, isTerminalState, SUPERSEDED, type TerminalState } from './terminal-states.ts';
import { isAfterFailure, REVIEW_LOOK_MS, WAITS, type WaitReason } from './waits.ts';

/**
 * An entry: all that is known of one upload. It alone decides the upload's state.
 *
 *             claim (If-None-Match: *)        answered with a flow id
 *   (nothing) ───────────────────────▶ claimed ──────────────────────▶ running ──▶ succeeded
 *                                      ▲  │  │                            │
 *                due, resubmitted      │  │  └── rejected for good ───────┴──────▶ failed
 *                                      │  ▼                                          │
 *                                    waiting ◀────── retried by the operator ────────┘
 *
 * The operator can also cancel an upload that waits or runs, which then fails; and have the flow of an ended upload
 * collected again, which then runs.
 *
 * The functions below are the arrows. They are pure: each makes the next entry from the previous one. An invocation
 * writes it with a condition on the previous entry's ETag.
 */
export type Entry = z.infer<typeof entrySchema>;
export type ClaimedEntry = Extract<Entry, { state: 'claimed' }>;
export type WaitingEntry = Extract<Entry, { state: 'waiting' }>;
export type RunningEntry = Extract<Entry, { state: 'running' }>;
export type FailedEntry = Extract<Entry, { state: 'failed' }>;
export type TerminalEntry = Extract<Entry, { state: TerminalState }>;

export type Doubt = NonNullable<Entry['doubt']>;
/** An object that is sent, in exactly this version. */
export type Input = NonNullable<Entry['inputs']>[number];
/** The input that an upload or an asset becomes: only the members that an entry keeps. */
export const inputOf = ({ bucket, key, versionId, etag, bytes, mediaType }: Input): Input => ({
  bucket,
  key,
  versionId,
  etag,
  bytes,
  mediaType,
});
/** What a job waits for. */
export type AwaitedInputs = NonNullable<Entry['job']>;
/** A later stage that begins with assets of an upload. */
export type NextStage = NonNullable<TerminalEntry['next']>[number];
type FlowFacts = RunningEntry['flow'];
export type StoredAsset = TerminalEntry['assets'][number];
export type FailedOutput = TerminalEntry['failedOutputs'][number];
export type Failure = FailedEntry['failure'];

type Answer = NonNullable<Entry['answer']>;

/** What to do next with an upload that has an entry. */
type NextStep =
  | { readonly step: 'publish-again'; readonly entry: TerminalEntry }
  | { readonly step: 'restore-marker'; readonly entry: RunningEntry }
  | { readonly step: 'leave-to-its-claim'; readonly entry: ClaimedEntry }
  | { readonly step: 'wait-on'; readonly entry: WaitingEntry }
  | { readonly step: 'take-over'; readonly entry: ClaimedEntry | WaitingEntry };

/** @param key of the file whose message this is. If a job waits for it, the job is due. */
export function nextStep(entry: Entry, now: number, key?: string): NextStep {
  if (isTerminal(entry)) return { step: 'publish-again', entry };
  switch (entry.state) {
    case 'running':
      return { step: 'restore-marker', entry };
    case 'claimed':
      return now < entry.deadline ? { step: 'leave-to-its-claim', entry } : { step: 'take-over', entry };
    case 'waiting':
      return now < entry.notBefore && !isAwaited(entry, key)
        ? { step: 'wait-on', entry }
        : { step: 'take-over', entry };
  }
}

/**
 * Tells whether this is a job that a message with this key makes look for its inputs: one of a file that it waits for,
 * or whose name is easily taken for that of such a file, or of a job file in its own place.
 */
export function isAwaited({ state, job, upload }: Entry, key: string | undefined): boolean {
  if (state !== 'waiting' || job === undefined || key === undefined) return false;
  const name = inputName(upload.key, key);
  return (
    key === upload.key || (name !== undefined && job.missing.some((each) => confusable(each) === confusable(name)))
  );
}

/** Tells whether this is a job that waits for its inputs. It has no flow. */
export const isWaitingJob = (entry: Entry): boolean => entry.state === 'waiting' && entry.reason === 'inputs';

/**
 * Tells whether an upload waits within the invocation that has claimed it: an attempt of this claim came to something. No
 * request for it is under way then.
 */
export const isWaitingInPlace = ({ claimedAt, answer }: ClaimedEntry): boolean =>
  answer !== undefined && answer.at >= claimedAt;

/** The present route of an upload. Undefined if the configuration has none of that name any more. */
export const presentRouteOf = ({ route }: Pick<Entry, 'route'>, routes: readonly Route[]): Route | undefined =>
  routes.find(({ name }) => name === route.name);

/** Tells whether the upload is a job. A job whose file cannot be used is none. */
export const isJob = ({ upload, job, inputs }: Entry): boolean =>
  upload.stage === undefined && (job !== undefined || inputs !== undefined);

/** Tells whether a waiting upload waits in the line, for its turn. */
export function isInLine({ reason, late }: WaitingEntry): boolean {
  const { line } = WAITS[reason];
  return line === 'all' || (line === 'late' && late === true);
}

/** What the place of a marker depends on, beside the entry. */
interface MarkerSettings {
  readonly inboxPrefix: string;
  readonly routes: readonly Route[];
}

/**
 * The marker of an upload that waits or is claimed. Undefined in any other state. An upload in the line waits for its
 * turn among those of the route that it takes if it is sent now. If no route wants it, it waits for its time only, and
 * ends then.
 */
export function waitingMarkerOf(entry: Entry, { inboxPrefix, routes }: MarkerSettings): WaitingMarker | undefined {
  const uploadId = entry.upload.id;
  switch (entry.state) {
    case 'claimed':
      return { uploadId, notBefore: entry.deadline };
    case 'waiting': {
      const { notBefore, late, upload, throttledSince: since = entry.arrivedAt } = entry;
      const route = isInLine(entry) ? presentRouteName(entry, routes) : undefined;
      if (route === undefined) return { uploadId, notBefore: lookAt(entry, entry.review?.wantedAt ?? notBefore) };
      const segment = segmentOf(firstOf(upload).key, inboxPrefix);
      const turn = { class: late ? 'late' : 'live', route: shortSegment(route), segment, since } as const;
      return { uploadId, notBefore, turn };
    }
    default:
      return undefined;
  }
}

/** When a tick looks at a waiting upload, at the latest a day after `from` if it waits to be approved. */
export const lookAt = ({ reason, notBefore }: WaitingEntry, from: number): number =>
  reason === 'review' ? Math.min(notBefore, from + REVIEW_LOOK_MS) : notBefore;

/** The name of the route that a waiting upload takes if it is sent now. Undefined if no route wants it any more. */
function presentRouteName(
  { upload, route, doubt, reroute }: WaitingEntry,
  routes: readonly Route[],
): string | undefined {
  if (doubt !== undefined) return route.name;
  if (upload.stage !== undefined) return laterRoute(routes, upload.stage.route)?.name;
  // The media type of a file that S3 did not hand out is not known.
  const byKey = reroute === undefined ? undefined : routeByKey(routes, upload.key);
  return (routeFor(routes, upload) ?? byKey)?.name;
}

/**
 * A waiting upload, with the name of the route that takes it now. What that route sends is written down before it is
 * sent. The same entry if the name is the same, or no route wants it any more.
 */
export function takenBy(entry: WaitingEntry, routes: readonly Route[]): WaitingEntry {
  const name = presentRouteName(entry, routes) ?? entry.route.name;
  return name === entry.route.name ? entry : { ...entry, route: { ...entry.route, name } };
}

/** The marker of an upload whose flow was made. */
export const runningMarkerOf = (upload: Pick<Upload, 'id'>, flow: FlowFacts): RunningMarker => ({
  ageFrom: ageFrom(flow),
  uploadId: upload.id,
  flowId: flow.id,
});

/** The time in milliseconds from which the age of a flow counts: its creation, or the last request to collect it. */
export const ageFrom = ({ createdAt, collectedAgainAt = createdAt }: FlowFacts): number => collectedAgainAt;

/** The marker of an upload that failed. */
export const failedMarkerOf = (entry: FailedEntry): FailedMarker => ({
  endedAt: entry.endedAt,
  uploadId: entry.upload.id,
  ...(isReplaced(entry) && { isReplaced: true }),
});

/** True if an upload failed because a newer file took its place. */
export const isReplaced = (entry: Entry): boolean => entry.state === 'failed' && entry.failure.code === SUPERSEDED;

/** True if an upload failed because it was not at its key any more. */
export const hasGivenWay = (entry: FailedEntry): boolean => isReplaced(entry) || entry.failure.code === 'upload-gone';

/**
 * True if a claim of this upload has died, or its last attempt ran out of time. Such an upload is sent alone. Ask it
 * only of an entry that no live claim holds.
 */
export const isSuspect = (entry: Entry): boolean =>
  entry.state === 'claimed' ||
  entry.claimDied === true ||
  (entry.state === 'waiting' && entry.reason === 'out-of-time');

export const isTerminal = (entry: Entry): entry is TerminalEntry => isTerminalState(entry.state);

/** @param pipeline the present name, for an entry that holds none. */
export const flowTagOf = (entry: Entry, pipeline: string): FlowTag => ({
  pipeline: entry.pipeline ?? pipeline,
  upload: entry.upload.id,
  generation: entry.generation,
});

/** The number of attempts after one more. An attempt counts only if the file could be the cause of its failure. */
export const attemptsAfter = ({ attempts }: Pick<Entry, 'attempts'>, isCounted: boolean): number =>
  attempts + (isCounted ? 1 : 0);

/** What an invocation writes into its claim. Times in milliseconds since the epoch. */
export interface ClaimTerms {
  readonly claimedAt: number;
  /** The invocation is surely dead after this. */
  readonly deadline: number;
  readonly pipeline: string;
  /** When the upload came into the queue. Default: the time of the claim. */
  readonly arrivedAt?: number | undefined;
  /** True if live files go first. Only the first claim of an upload takes it. */
  readonly late?: true | undefined;
  /** What tells this pipeline from others in idempotency keys: 8 hexadecimal digits. */
  readonly keyScope: string;
}

/**
 * An upload's first entry.
 * @param job present if the upload is a job.
 */
export function firstClaim(upload: Upload, route: RouteSnapshot, terms: ClaimTerms, job?: AwaitedInputs): ClaimedEntry {
  const { claimedAt, deadline, pipeline, arrivedAt = claimedAt, late, keyScope } = terms;
  return {
    schema: LEDGER_FORMAT,
    ...(job && { job }),
    state: 'claimed',
    upload,
    route,
    pipeline,
    arrivedAt,
    generation: 1,
    late,
    attempts: 0,
    waits: 0,
    keyScope,
    claimedAt,
    deadline,
  };
}

/**
 * The first entry of an upload of a later stage. It waits for its turn like any other upload, and begins at once.
 * @param now when the stage before has ended.
 */
export function begun(upload: Upload, route: RouteSnapshot, inputs: readonly Input[], now: number): WaitingEntry {
  return {
    schema: LEDGER_FORMAT,
    upload,
    route,
    inputs,
    arrivedAt: now,
    generation: 1,
    attempts: 0,
    waits: 0,
    state: 'waiting',
    reason: 'stage',
    message: 'The stage before has ended.',
    notBefore: now,
  };
}

/**
 * That entry with what is planned after its stage. Without a plan if nothing comes after a first file. A later stage
 * keeps even an empty plan: a route that comes after it later begins nothing.
 */
export const planned = <E extends Entry>(entry: E, plan: Entry['plan']): E =>
  plan === undefined || (plan.length === 0 && entry.upload.stage === undefined) ? entry : { ...entry, plan };

/**
 * The claim of an invocation that takes an upload over. A claim that is past its deadline leaves a doubt behind: its
 * invocation may have sent all bytes, by its deadline at the latest, and died before it could write the answer down.
 * Such a claim counts as an attempt, because the file may have killed the invocation.
 */
export function claimAgain(entry: ClaimedEntry | WaitingEntry, terms: ClaimTerms): ClaimedEntry {
  const { claimedAt, deadline, pipeline } = terms;
  const facts = { ...factsOf(entry), pipeline: entry.pipeline ?? pipeline, keyScope: entry.keyScope ?? terms.keyScope };
  const past =
    entry.state === 'claimed'
      ? ({ doubt: doubtOfDead(entry), attempts: attemptsAfter(entry, true), claimDied: true } as const)
      : entry.doubt === undefined && { ...nextKeyOf(entry), keyScope: terms.keyScope };
  return { ...facts, ...past, state: 'claimed', claimedAt, deadline };
}

/**
 * The idempotency key of the next request. All requests with one key make one flow at most, while the service honours it.
 * So it is the same for as long as the upload is in doubt. A service may repeat a refusal to the same key, so it is another
 * after each answer that shows that no flow was made.
 *
 * Two pipelines may watch one inbox, and their uploads have the same ids. So the key names the ledger too, whose bucket no
 * other pipeline has. It is kept short, because some services accept 40 characters (Worldline) or 45 (Square):
 *
 *   6955b900700a59d8a822991e-3f1b90aa-1-2
 */
export const keyOf = ({
  upload,
  generation,
  keyNumber = 1,
  keyScope,
}: Pick<ClaimedEntry, 'generation' | 'keyNumber' | 'keyScope'> & { readonly upload: Pick<Upload, 'id'> }): string =>
  `${upload.id.slice(0, KEY_ID_DIGITS)}-${keyScope}-${generation}-${keyNumber}`;

/** Digits of an upload's id in its idempotency key: 96 bits. */
const KEY_ID_DIGITS = 24;

/** The entry with the next key. No request with the present one has made a flow. */
export const withNextKey = (entry: ClaimedEntry): ClaimedEntry => ({ ...entry, ...nextKeyOf(entry) });

const nextKeyOf = ({ keyNumber = 1 }: Entry) => ({ keyNumber: keyNumber + 1 });

/** The claim of an upload in doubt that is sent again with the same key. */
export const sentAgain = (entry: ClaimedEntry): ClaimedEntry => ({ ...entry, isSentAgain: true });

/** A claim under which nothing was sent. Before anything is, the route is chosen again. */
export const unsent = (entry: ClaimedEntry): ClaimedEntry => ({ ...entry, reroute: true });

/**
 * Nothing is sent before the route of a retry, the inputs of a job, and that a file was seen to be still are written down.
 */
const doubtOfDead = (entry: ClaimedEntry): Doubt | undefined =>
  entry.job === undefined && entry.reroute === undefined && !isUnseen(entry)
    ? doubtAfter(entry, entry.deadline)
    : entry.doubt;

/**
 * The claim of an upload that was opened, with its route of the present configuration.
 * @param upload may know more than the entry: S3 may have refused to hand it out before.
 * @param job present if the upload is a job. The inputs that it has taken stay.
 */
export function rerouted(entry: ClaimedEntry, upload: Upload, route: RouteSnapshot, job?: AwaitedInputs): ClaimedEntry {
  // These two rank its receipt, and stay: a retry may have found a later time than the event has.
  const { currentAt, sequencer } = entry.upload;
  const next: ClaimedEntry = { ...entry, upload: { ...upload, currentAt, sequencer }, route, reroute: undefined };
  if (upload.stage !== undefined) return next;
  if (job === undefined) return { ...next, inputs: undefined, job: undefined };
  if (entry.inputs !== undefined) return next;
  return lacking(next, { ...job, missing: entry.job?.missing ?? job.missing });
}

/**
 * Tells whether two claims of an upload send the same request, apart from its price, and wait for the same. Then the
 * ledger need not know the later one before the request is sent.
 */
export function isDispatchedAlike(before: ClaimedEntry, next: ClaimedEntry): boolean {
  if (before.reroute !== undefined) return false;
  const facts = ({ upload, route, inputs, job, given }: ClaimedEntry) =>
    JSON.stringify([upload.mediaType, { ...route, price: undefined }, inputs, job, given]);
  return facts(before) === facts(next);
}

/** The claim of a job whose inputs are all there. From now on, these are sent, and no others. */
export function gathered({ job: _, ...entry }: ClaimedEntry, inputs: readonly Input[]): ClaimedEntry {
  return { ...entry, inputs };
}

/** The claim of a job that looks for its inputs, or lacks some. */
export function lacking(entry: ClaimedEntry, job: AwaitedInputs): ClaimedEntry {
  return { ...entry, job };
}

/**
 * The doubt after a POST under this claim, whose last byte was sent by `sentBy`. An earlier doubt is joined with it.
 * @param next what to do if no flow is found.
 */
export function doubtAfter(
  entry: ClaimedEntry,
  sentBy: number,
  next: Pick<Doubt, 'nextAttemptAt' | 'rejection' | 'isAccepted' | 'isUncounted'> = {
    nextAttemptAt: entry.doubt?.nextAttemptAt,
  },
): Doubt {
  const isAccepted = next.isAccepted || (entry.doubt?.isAccepted && !entry.doubt.isDismissed);
  return {
    claimedAt: Math.min(entry.doubt?.claimedAt ?? entry.claimedAt, entry.claimedAt),
    sentBy: Math.max(entry.doubt?.sentBy ?? sentBy, sentBy),
    ...next,
    ...(next.rejection !== undefined && { rejection: shorten(next.rejection, MESSAGE_CHARS_MAX) }),
    ...(isAccepted ? { isAccepted: true } : { isAccepted: undefined }),
    ...(entry.doubt?.isKeySpent && { isKeySpent: true }),
  };
}

/**
 * The claim of an upload that is sent again although its flow may exist. Each such request may be paid for, so its attempt
 * counts now, whatever the answer was.
 * @param waitMs longest wait since the answer, for the number of attempts.
 */
export function chargedForDoubt(entry: ClaimedEntry, waitMs: (entry: ClaimedEntry) => number): ClaimedEntry {
  const { doubt } = entry;
  if (doubt?.isUncounted === undefined) return entry;
  const nextAttemptAt = Math.max(doubt.nextAttemptAt ?? 0, doubt.sentBy + waitMs(entry));
  const { isUncounted: _, ...counted } = doubt;
  return { ...entry, attempts: entry.attempts + 1, doubt: { ...counted, nextAttemptAt } };
}

/** The claim of an upload in doubt. */
export const inDoubt = (entry: ClaimedEntry, doubt: Doubt): ClaimedEntry => ({ ...entry, doubt });

/** The claim of an attempt whose flow would cost this. The price of the route may have changed since the entry began. */
export function priced(entry: ClaimedEntry, price: Price | undefined): ClaimedEntry {
  return { ...entry, route: { ...entry.route, price } };
}

/** The claim after its doubt was settled: no flow was made. */
export function withoutDoubt(entry: ClaimedEntry): ClaimedEntry {
  const { doubt: _, countedFlows: __, ...rest } = entry;
  return rest;
}

/** The claim of an upload that is sent only once it is still. */
export const unsettled = (entry: ClaimedEntry): ClaimedEntry => ({ ...entry, settles: true });

/** True if a file must be still before it is sent, and was never seen to be. So it was never sent. */
export const isUnseen = ({ settles, stillAt }: Pick<Entry, 'settles' | 'stillAt'>): boolean =>
  settles !== undefined && stillAt === undefined;

/**
 * The claim of an upload that was seen to be still, if its route asks for that. Each attempt looks again: while a hold or
 * the service kept it waiting, a newer file may have come.
 */
export const settled = (entry: ClaimedEntry, now: number): ClaimedEntry =>
  entry.settles === undefined ? entry : { ...entry, stillAt: now };

/** The claim of an upload whose inputs somebody has to look at. The time of an earlier question stays. */
export const toBeReviewed = (entry: ClaimedEntry, now: number): ClaimedEntry => ({
  ...entry,
  review: entry.review ?? { wantedAt: now },
});

/** The entry of an upload that the operator approves. @param late true if it is one of many. */
export const approved = (entry: WaitingEntry, now: number, late: true | undefined): WaitingEntry => ({
  ...entry,
  review: { wantedAt: now, ...entry.review, approvedAt: now },
  arrivedAt: now,
  late,
  reason: 'stage',
  message: 'The operator approved it.',
  notBefore: now,
});

/** The claim after a request that was counted, and that may have made a flow. */
export function counting(entry: ClaimedEntry, counted: CountedFlow | undefined): ClaimedEntry {
  const before = entry.countedFlows ?? [];
  if (counted === undefined || before.includes(counted)) return entry;
  return { ...entry, countedFlows: [...before, counted].slice(-COUNTED_FLOWS_MAX) };
}

/** The claim after an attempt to send the upload came to this, in the words of the service or of the network. */
export const answered = (entry: ClaimedEntry, told: Told): ClaimedEntry => ({
  ...entry,
  answer: answerAfter(entry.answer, told),
});

/** What an attempt came to. */
export interface Told {
  readonly message: string;
  /** Milliseconds since the epoch. */
  readonly at: number;
  /** Until when the service asks to wait, likewise. */
  readonly until?: number | undefined;
}

function answerAfter(before: Answer | undefined, { message: words, at, until }: Told): Answer {
  const message = shorten(words, MESSAGE_CHARS_MAX);
  const since = before?.message === message ? before.since : at;
  return { message, since, at, ...(until !== undefined && { until }) };
}

export interface Wait {
  readonly reason: WaitReason;
  /** What happened, in a sentence. */
  readonly message: string;
  readonly notBefore: number;
  /** True if the file could be the cause. Default: false. */
  readonly counted?: boolean;
  /** True if the service is down, so that an attempt was not counted. Default: false. */
  readonly isDown?: boolean;
}

export function waiting(entry: ClaimedEntry, wait: Wait): WaitingEntry {
  const { reason, message, notBefore, counted = false, isDown = false } = wait;
  return {
    ...factsOf(entry),
    attempts: attemptsAfter(entry, counted),
    // A job may wait for one input after the other, and an upload for one hold after the other. That lengthens no backoff.
    waits: entry.waits + (isAfterFailure(reason) ? 1 : 0),
    throttledSince: WAITS[reason].line === 'all' ? (entry.throttledSince ?? entry.claimedAt) : entry.throttledSince,
    downSince: isDown ? (entry.downSince ?? entry.claimedAt) : undefined,
    misaddressedSince: misaddressedSinceAfter(entry, reason),
    state: 'waiting',
    reason,
    message: shorten(message, MESSAGE_CHARS_MAX),
    notBefore,
  };
}

/**
 * A search for a flow says nothing about the address for POSTs. Any other wait shows that the service answers there.
 */
function misaddressedSinceAfter(entry: ClaimedEntry, reason: WaitReason): number | undefined {
  if (reason === 'misaddressed') return entry.misaddressedSince ?? entry.claimedAt;
  return reason === 'in-doubt' ? entry.misaddressedSince : undefined;
}

/** A claim whose POST was answered, by its last byte, by something other than the flow service. */
export function misaddressed(entry: ClaimedEntry): ClaimedEntry {
  return { ...entry, misaddressedSince: misaddressedSinceAfter(entry, 'misaddressed') };
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
 * A running flow whose collection was cut off, or failed at an asset. These assets had been stored by then.
 * @param countedAt the present time, if the collection counts as an attempt.
 * @param told what kept assets from being stored. Undefined if only the time did.
 */
export function collectedSoFar(
  entry: RunningEntry,
  assets: readonly StoredAsset[],
  countedAt: number | undefined,
  told?: Told,
): RunningEntry {
  const soFar = { ...hindered(entry, told), assets };
  if (countedAt === undefined) return soFar;
  return { ...soFar, attempts: attemptsAfter(entry, true), attemptedAt: countedAt };
}

/** A running flow with what keeps it from its end, in words. @param told undefined if nothing does. */
export const hindered = (entry: RunningEntry, told: Told | undefined): RunningEntry => ({
  ...entry,
  obstacle: told && answerAfter(entry.obstacle, told),
});

/** A running flow that the service gave to another upload as well. */
export function shared(entry: RunningEntry): RunningEntry {
  return { ...entry, isShared: true };
}

/** What failed, with a message of at most so many characters. */
const shortened = <T extends { readonly message: string }>(what: T, charsMax: number): T => ({
  ...what,
  message: shorten(what.message, charsMax),
});

export interface Ending {
  readonly assets?: readonly StoredAsset[];
  readonly failedOutputs?: readonly FailedOutput[];
  /** Present if the upload failed. */
  readonly failure?: KnownFailure | undefined;
  /** The later stages that begin with the assets. */
  readonly next?: readonly NextStage[] | undefined;
  /** All later stages that are planned. Default: as before. */
  readonly plan?: Entry['plan'];
  /** When its flow was created, if its receipt has told this before. Default: as in the entry. */
  readonly flow?: Pick<FlowFacts, 'createdAt'> | undefined;
}

/** What the failure of an upload in doubt says as well. */
const UNKNOWN_FLOW = ' A request may have made a flow that is not known: look for it at the service before you retry.';

export function ended(
  entry: ClaimedEntry | WaitingEntry | RunningEntry,
  ending: Ending & { readonly failure: KnownFailure },
  now: number,
): FailedEntry;
export function ended(entry: ClaimedEntry | RunningEntry, ending: Ending, now: number): TerminalEntry;
export function ended(entry: ClaimedEntry | WaitingEntry | RunningEntry, ending: Ending, now: number): TerminalEntry {
  const { assets = [], failure, next, plan = entry.plan } = ending;
  const failedOutputs = (ending.failedOutputs ?? []).map((each) => shortened(each, OUTPUT_MESSAGE_CHARS_MAX));
  const { flow: known, isShared } = entry.state === 'running' ? entry : {};
  // A later end never has an earlier time, although clocks differ.
  const endedAt = Math.max(now, known?.collectedAgainAt ?? 0);
  // If a receipt told this end before, its time of creation stays. `collectedAgainAt` keeps the key of the marker.
  const flow = known && ending.flow ? { ...known, ...ending.flow, collectedAgainAt: ageFrom(known) } : known;
  const facts = { ...factsOf(entry), ...SENT, flow, isShared, endedAt, assets, failedOutputs };
  if (failure !== undefined) {
    if (entry.doubt === undefined || failure.code === 'undecided')
      return { ...facts, state: 'failed', failure: shortened(failure, MESSAGE_CHARS_MAX) };
    const { message } = shortened(failure, MESSAGE_CHARS_MAX - UNKNOWN_FLOW.length - 1);
    const sentence = message.replace(/[^.!?…]$/, '$&.');
    return { ...facts, state: 'failed', failure: { ...failure, message: sentence + UNKNOWN_FLOW } };
  }
  return {
    ...facts,
    ...(plan && { plan }),
    state: 'succeeded',
    ...(next !== undefined && next.length > 0 && { next }),
  };
}

/**
 * The entry of an ended upload whose flow is collected again. It gets a new marker, because an invocation that still
 * publishes the end deletes the old one.
 * @param assets those that are still in the results bucket. They are not fetched again.
 */
export function collectedAgain(
  entry: TerminalEntry,
  before: FlowFacts,
  assets: readonly StoredAsset[],
  now: number,
): RunningEntry {
  // Clocks of two processes differ. Equal times would make the same marker.
  const flow = { ...before, collectedAgainAt: Math.max(now, ageFrom(before) + 1, entry.endedAt + 1) };
  const next = entry.state === 'succeeded' ? (entry.next ?? []) : undefined;
  return { ...factsOf(entry), attempts: 0, state: 'running', flow, assets, ...(next && { next }) };
}

/** True if it is unknown whose results those of the flow are: the service gave it to another upload too. */
export const isFlowShared = (entry: Entry): boolean =>
  ('isShared' in entry && entry.isShared === true) ||
  (entry.state === 'failed' && entry.failure.code === 'flow-shared');

/**
 * The flows that are deleted at the service once nothing is left to publish: that of a success, and those of successes
 * before it. None if the route does not ask for it, or it is done.
 */
export function flowsToDelete(entry: TerminalEntry, routes: readonly Route[]): readonly string[] {
  const { state, flow, previous = [], flowDeletion } = entry;
  const isAsked = presentRouteOf(entry, routes)?.deleteFlow === true;
  if (!isAsked || isFlowShared(entry) || flowDeletion?.deletedAt !== undefined) return [];
  const own = flow !== undefined && isSuccess(state) ? [flow.id] : [];
  return [...new Set([...previous.filter((end) => isSuccess(end.state)).map((end) => end.flow), ...own])];
}

/** Attempts to delete a flow at the service: those of about a week. */
const DELETIONS_MAX = 15;

const DELETION_WAIT_MAX_MS = 24 * 3_600_000;

/**
 * When the flow of an ended upload is to be deleted: as long after the end as the service may take to list a new flow, and
 * after a failure twice as long each time, up to a day. Undefined if it is not, or no more.
 */
export function deletionDueAt(entry: TerminalEntry, routes: readonly Route[]): number | undefined {
  const { endedAt, flowDeletion: { attempts, at } = { attempts: 0, at: endedAt } } = entry;
  if (attempts >= DELETIONS_MAX || flowsToDelete(entry, routes).length === 0) return undefined;
  return at + Math.min(DELETION_WAIT_MAX_MS, LISTING_DELAY_MAX_MS * 2 ** Math.max(0, attempts - 1));
}

/** The entry of an upload whose flow is about to be deleted. From then on, nobody collects from it. */
export const deletionBegun = (entry: TerminalEntry, now: number): TerminalEntry => ({
  ...entry,
  flowDeletion: { attempts: (entry.flowDeletion?.attempts ?? 0) + 1, at: now },
});

/** The same after the attempt. @param message why it failed. */
export function deletionEnded(entry: TerminalEntry, now: number, message?: string): TerminalEntry {
  const { attempts = 1, at = now } = entry.flowDeletion ?? {};
  const end = message === undefined ? { deletedAt: now } : { message: shorten(message, MESSAGE_CHARS_MAX) };
  return { ...entry, flowDeletion: { attempts, at, ...end } };
}

/** True if the flow of an ended upload was deleted at the service, or is just being deleted. */
export const isFlowDeleted = ({ flowDeletion }: TerminalEntry): boolean =>
  flowDeletion !== undefined && flowDeletion.message === undefined;

/** True for a failure whose receipt, event or marker may not be out. */
export const isUntold = (entry: Entry): entry is FailedEntry & { readonly isTold?: undefined } =>
  entry.state === 'failed' && entry.isTold !== true;

/**
 * A failure whose receipt, event and marker are out.
 * @param isInChain true if its chain has heard of it. Default false.
 */
export function told(entry: FailedEntry, isInChain = false): FailedEntry {
  return { ...entry, isTold: true, ...(isInChain && { isInChain }) };
}

/** The entry of an ended upload that was seen to be current at its key at a time, by S3's clock. */
export function seenCurrent<T extends TerminalEntry>(entry: T, at: number): T {
  const { lastModified, currentAt = lastModified } = entry.upload;
  return { ...entry, upload: { ...entry.upload, currentAt: Math.max(currentAt, at) } };
}

/** True if two terminal entries of an upload record the same end. */
export const isSameEnd = (one: TerminalEntry, other: TerminalEntry): boolean =>
  one.generation === other.generation && one.endedAt === other.endedAt;

/**
 * The entry of an upload that the operator retries. After its end it begins a new generation. The failed flow is then
 * never taken for the next one, and the upload takes the present pipeline. A retried wait keeps its generation and
 * pipeline.
 * @param given what replaces parts of the route, for a failure.
 * @param late true if it is one of many.
 */
export function retried(
  entry: TerminalEntry | WaitingEntry,
  now: number,
  { given, late }: { readonly given?: GivenOverrides | undefined; readonly late?: true | undefined } = {},
): WaitingEntry {
  const anew = {
    generation: entry.generation + 1,
    reroute: true,
    given,
    pipeline: undefined,
    keyNumber: undefined,
    isSentAgain: undefined,
  } as const;
  return {
    ...factsOf(entry),
    ...(entry.state === 'waiting' ? {} : { ...anew, previous: previousOf(entry) }),
    // A file that succeeds again is planned again.
    ...(entry.upload.stage === undefined && entry.plan && { plan: undefined }),
    // A job looks for its inputs again.
    ...(entry.state !== 'waiting' && isJob(entry) && { inputs: undefined, job: undefined }),
    arrivedAt: now,
    late,
    attempts: 0,
    waits: 0,
    throttledSince: undefined,
    downSince: undefined,
    misaddressedSince: undefined,
    settles: undefined,
    ...(entry.review?.approvedAt === undefined && { review: undefined }),
    doubt: entry.state === 'waiting' ? doubtOfRetried(entry) : undefined,
    state: 'waiting',
    reason: 'retried',
    message: 'Retried by the operator.',
    notBefore: now,
  };
}

/** What a request with this route says of the flow. */
export const sentBy = ({ template, parameters, revision }: RouteSnapshot) => ({ template, parameters, revision });

/** What an ended upload that begins anew keeps of its ends. One without a flow made nothing to compare. */
export function previousOf({
  previous,
  generation,
  state,
  route,
  flow,
  arrivedAt,
  endedAt,
  assets,
}: TerminalEntry): Entry['previous'] {
  if (flow === undefined) return previous;
  const { price } = route;
  const bytes = assets.reduce((sum, asset) => sum + asset.bytes, 0);
  const made = { flow: flow.id, assets: assets.slice(0, PREVIOUS_ASSETS_MAX), assetCount: assets.length, bytes };
  const end = { generation, state, ...sentBy(route), price, arrivedAt, endedAt, ...made };
  return [...(previous ?? []), end].slice(-PREVIOUS_MAX);
}

/**
 * The doubt of a wait that is retried. An undecided upload waits for the operator's decision about it, and this is the
 * decision. Any other doubt gets one more search, and once it is settled, the next attempt is made at once.
 */
function doubtOfRetried({ doubt, reason }: WaitingEntry): Doubt | undefined {
  if (doubt === undefined) return undefined;
  return { ...doubt, nextAttemptAt: undefined, ...(reason === 'undecided' && { isDismissed: true }) };
}

/** Without the facts that matter only until the upload is sent. */
const SENT = {
  reroute: undefined,
  settles: undefined,
  given: undefined,
  claimDied: undefined,
  downSince: undefined,
  misaddressedSince: undefined,
  answer: undefined,
  countedFlows: undefined,
  keyNumber: undefined,
  keyScope: undefined,
} as const;

type Facts = Pick<WaitingEntry, FactName>;

/** What an entry says in every state: the facts of the schema, so that none can be forgotten here. */
function factsOf(entry: Entry): Facts {
  const present = FACT_NAMES.filter((name) => entry[name] !== undefined).map((name) => [name, entry[name]]);
  const hasBegunChain = 'next' in entry && entry.next !== undefined && entry.next.length > 0;
  return { ...(Object.fromEntries(present) as Facts), ...(hasBegunChain && { isInChain: true }) };
}
