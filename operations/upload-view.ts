import { keptWords } from '../functions/flow-service/service-description.ts';
import {
  type ClaimedEntry,
  type Entry,
  type FailedEntry,
  isFlowShared,
  isJob,
  isWaitingInPlace,
  type RunningEntry,
  type TerminalEntry,
  type WaitingEntry,
} from '../functions/ledger/entry.ts';
import { adviceFor } from '../functions/ledger/failures.ts';
import type { TerminalState } from '../functions/ledger/terminal-states.ts';
import { isHold, REVIEW_MAX_MS, WAITS, type WaitEnding } from '../functions/ledger/waits.ts';
import { previousEnd } from '../functions/publish/receipts.ts';
import { receiptKey } from '../functions/results/results-keys.ts';
import type { Settings } from '../functions/settings/environment.ts';
import type { Price } from '../functions/uploads/budget.ts';
import type { Revision } from '../functions/uploads/route-snapshot.ts';
import type { Stage } from '../functions/uploads/upload.ts';
import { type HoldsView, type HoldView, heldBy } from './holds.ts';

export { isTerminalState, TERMINAL_STATE_NAMES } from '../functions/ledger/terminal-states.ts';
export { atItsTime, shownState } from './shown-state.ts';
export { uploadName } from './upload-name.ts';

/** All that the ledger knows of one upload, as an operator sees it. Times are in ISO 8601. */
export interface UploadView {
  readonly id: string;
  readonly bucket: string;
  readonly key: string;
  readonly versionId?: string | undefined;
  readonly bytes: number;
  readonly mediaType: string;
  readonly putAt: string;
  /** When it came to the pipeline, or was last retried. */
  readonly arrivedAt: string;
  readonly state: 'claimed' | 'waiting' | 'running' | TerminalState;
  readonly route: string;
  readonly template: string;
  readonly parameters?: unknown;
  /** What the route said when the upload was sent: a hash, and the deployment's name for it. */
  readonly revision?: Revision | undefined;
  /** What one flow costs, as the route said when the upload was sent. */
  readonly price?: Price | undefined;
  /** The ETag of the file. */
  readonly etag: string;
  readonly generation: number;
  /** How earlier generations ended that had a flow, the latest last. Their results are where they were. */
  readonly previous?: readonly PreviousGeneration[] | undefined;
  /** Failures that the file could be the cause of. */
  readonly attempts: number;
  /** Present while it waits, also within the invocation that sends it. */
  readonly wait?: Wait | undefined;
  /** Since when throttling keeps it waiting. */
  readonly throttledSince?: string | undefined;
  /** Until when an invocation is at work on it, at the latest. */
  readonly claimedUntil?: string | undefined;
  /** True if a request may have made a flow that is not known. */
  readonly isInDoubt: boolean;
  /** True if an answer was lost, and the same request was sent again with the same key. It made no second flow. */
  readonly isSentAgain?: boolean | undefined;
  readonly flow?: { readonly id: string; readonly createdAt: string } | undefined;
  /**
   * What keeps results of its flow from being stored: an error, or a word that is not declared. It is tried again by
   * itself.
   */
  readonly obstacle?: { readonly message: string; readonly since: string } | undefined;
  /** When its flow was deleted at the service, as `deleteFlow` of its route asks; or why it could not be deleted yet. */
  readonly flowDeletion?: { readonly deletedAt?: string; readonly message?: string } | undefined;
  /** True if the service gave the flow to another upload too. Nothing of it is collected then. */
  readonly isFlowShared: boolean;
  readonly endedAt?: string | undefined;
  readonly failure?:
    | {
        readonly code: string;
        readonly message: string;
        readonly advice?: string | undefined;
        /** False if a retry of the same upload cannot help. */
        readonly canRetryHelp: boolean;
      }
    | undefined;
  readonly assets: readonly { readonly key: string; readonly bytes: number; readonly sha256: string }[];
  readonly failedOutputs: readonly { readonly id: string; readonly code: string; readonly message: string }[];
  readonly results: { readonly bucket: string; readonly receipt: string };
  /** Present if it belongs to a later stage of a chain: then its input is not a file, but assets of the stage before. */
  readonly stage?: Stage | undefined;
}

/** How an earlier generation ended, as a receipt says it. */
export interface PreviousGeneration
  extends Pick<UploadView, 'generation' | 'template' | 'parameters' | 'revision' | 'price' | 'arrivedAt'> {
  readonly status: TerminalState;
  /** The id of its flow. */
  readonly flow: string;
  /** The first results. */
  readonly assets: readonly { readonly key: string; readonly bytes: number }[];
  /** Number of all results, and their size in bytes. */
  readonly assetCount: number;
  readonly bytes: number;
  readonly endedAt: string;
}

/** What an upload waits for. */
export interface Wait {
  /** A word for programs: `throttled`, `undecided` and so on. */
  readonly reason: string;
  /** Why, in a sentence: in the words of the service, if it was asked. */
  readonly message: string;
  /** Since when it waits for this. */
  readonly since: string;
  /**
   * When it is tried next, unless `ending` comes sooner. Undefined if that is every few seconds, or if it is held or has
   * to be approved without a limit. A job
   * that waits for its inputs looks for them then for the last time, and fails if they are not there.
   */
  readonly until?: string | undefined;
  /** Until when the service asks to wait. It may have come. */
  readonly askedUntil?: string | undefined;
  /** What ends the wait sooner. */
  readonly ending: WaitEnding;
  /** What came before: the last answer to an attempt, or what it waited for before a hold. */
  readonly before: readonly string[];
}

/**
 * @param settings the place of the results.
 * @param holds what is held now. Without it, an upload waits for what it began to wait for.
 * @internal
 */
export function viewOf(
  entry: Entry,
  settings: Pick<Settings, 'resultsBucket' | 'resultsPrefix' | 'service'>,
  holds?: HoldsView,
): UploadView {
  const { upload, route, generation, attempts } = entry;
  return {
    id: upload.id,
    bucket: upload.bucket,
    key: upload.key,
    versionId: upload.versionId,
    bytes: upload.bytes,
    mediaType: upload.mediaType,
    putAt: iso(upload.lastModified),
    arrivedAt: iso(entry.arrivedAt),
    state: entry.state,
    route: route.name,
    template: route.template,
    parameters: route.parameters,
    ...(route.revision && { revision: route.revision }),
    ...(route.price && { price: route.price }),
    etag: upload.etag,
    generation,
    ...(entry.previous && { previous: entry.previous.map(previousEnd) }),
    attempts,
    throttledSince: entry.throttledSince === undefined ? undefined : iso(entry.throttledSince),
    isInDoubt: entry.doubt !== undefined,
    ...(entry.isSentAgain && { isSentAgain: true }),
    isFlowShared: isFlowShared(entry),
    ...stateOf(entry, holds, settings),
    assets: 'assets' in entry ? (entry.assets ?? []).map(({ key, bytes, sha256 }) => ({ key, bytes, sha256 })) : [],
    failedOutputs: 'failedOutputs' in entry ? entry.failedOutputs : [],
    results: { bucket: settings.resultsBucket, receipt: receiptKey(settings.resultsPrefix, upload.key) },
    stage: upload.stage,
  };
}

/** What only some states have. */
function stateOf(
  entry: Entry,
  holds: HoldsView | undefined,
  { service }: Pick<Settings, 'service'>,
): Pick<UploadView, 'wait' | 'claimedUntil' | 'flow' | 'obstacle' | 'endedAt' | 'flowDeletion' | 'failure'> {
  switch (entry.state) {
    case 'waiting':
      return { wait: heldWait(waitOf(entry), heldBy(entry, holds)) };
    case 'claimed':
      return { claimedUntil: iso(entry.deadline), wait: waitInPlaceOf(entry) };
    case 'running':
      return { flow: flowOf(entry.flow), obstacle: obstacleOf(entry) };
    default:
      return {
        flow: flowOf(entry.flow),
        endedAt: iso(entry.endedAt),
        flowDeletion: deletionOf(entry),
        failure: 'failure' in entry ? advised(entry, keptWords(service)) : undefined,
      };
  }
}

const deletionOf = ({ flowDeletion }: TerminalEntry): UploadView['flowDeletion'] => {
  const { deletedAt, message } = flowDeletion ?? {};
  if (deletedAt !== undefined) return { deletedAt: iso(deletedAt) };
  return message === undefined ? undefined : { message };
};

/** @internal */
export const obstacleOf = ({ obstacle }: RunningEntry): UploadView['obstacle'] =>
  obstacle && { message: obstacle.message, since: iso(obstacle.since) };

/** @internal */
export function waitOf(entry: WaitingEntry): Wait {
  const { reason, message, notBefore, answer, throttledSince, arrivedAt, review } = entry;
  const isEndless = reason === 'review' && notBefore - (review?.wantedAt ?? 0) >= REVIEW_MAX_MS;
  // A request that was not sent keeps the answer of the one before. The search for a flow says more than that.
  const isUnsent = reason === 'throttled' || reason === 'out-of-time';
  const isAnswer = answer !== undefined && (isUnsent || message.includes(answer.message));
  return {
    reason,
    message: isAnswer && isUnsent ? answer.message : message,
    since: iso(isAnswer ? answer.since : ((reason === 'review' ? review?.wantedAt : throttledSince) ?? arrivedAt)),
    until: isHold(reason) || isEndless ? undefined : iso(notBefore),
    ...(isAnswer && askedOf(answer)),
    ending: WAITS[reason].ending,
    before: answer === undefined || isAnswer ? [] : [answer.message],
  };
}

/** The wait of an upload that is held by now for another reason than it began to wait for. */
function heldWait(wait: Wait, hold: HoldView | undefined): Wait {
  if (hold === undefined || hold.reason === wait.reason) return wait;
  const { reason, message, since = wait.since } = hold;
  return {
    ...{ reason, message, since: since > wait.since ? since : wait.since, ending: 'hold' },
    before: [wait.message, ...wait.before],
  };
}

/** The wait of an upload within the invocation that sends it. Undefined if it does not wait there. @internal */
export function waitInPlaceOf(entry: ClaimedEntry): Wait | undefined {
  const { answer } = entry;
  if (answer === undefined || !isWaitingInPlace(entry)) return undefined;
  const { message, since } = answer;
  return { reason: 'throttled', message, since: iso(since), ...askedOf(answer), ending: 'nothing', before: [] };
}

const askedOf = ({ until }: NonNullable<Entry['answer']>): Pick<Wait, 'askedUntil'> =>
  until === undefined ? {} : { askedUntil: iso(until) };

function advised(entry: FailedEntry, kept: string): UploadView['failure'] {
  const { code, message } = entry.failure;
  const advice = adviceFor(code, isJob(entry), kept);
  return {
    code,
    message,
    advice: advice?.action,
    canRetryHelp: advice?.retry !== 'cannot-help',
  };
}

const flowOf = (flow: { readonly id: string; readonly createdAt: number } | undefined): UploadView['flow'] =>
  flow && { id: flow.id, createdAt: iso(flow.createdAt) };

const iso = (ms: number): string => new Date(ms).toISOString();
