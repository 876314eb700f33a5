/**
 * What ends a wait sooner than its time. `retry`: the operator's retry sends the upload at once. `decide`: the operator
 * looks for a flow of it, and retries or cancels it. `token`: the service gets a token that it takes. `address`: the
 * service answers at its address. `inputs`: the missing inputs of the job come. `look`: the
 * operator looks at its inputs, and approves or cancels it. `hold`: what holds its route, or the
 * pipeline, is over. `nothing`: it is sent within a minute.
 */
export type WaitEnding = 'retry' | 'decide' | 'token' | 'address' | 'inputs' | 'look' | 'hold' | 'nothing';

/**
 * Why an upload waits. Whatever lists, counts, shows or ends waits reads this table. `line` says which of these uploads
 * wait for their turn in the line: all, or those that were submitted in bulk. Any other goes as soon as its time comes.
 */
export const WAITS = {
  throttled: { ending: 'retry', line: 'all' },
  unauthorised: { ending: 'token', line: 'none' },
  forbidden: { ending: 'retry', line: 'none' },
  unavailable: { ending: 'retry', line: 'none' },
  misaddressed: { ending: 'address', line: 'none' },
  'out-of-time': { ending: 'retry', line: 'none' },
  'in-doubt': { ending: 'retry', line: 'none' },
  undecided: { ending: 'decide', line: 'none' },
  retried: { ending: 'nothing', line: 'late' },
  stage: { ending: 'nothing', line: 'late' },
  settling: { ending: 'retry', line: 'none' },
  review: { ending: 'look', line: 'none' },
  inputs: { ending: 'inputs', line: 'none' },
  paused: { ending: 'hold', line: 'all' },
  budget: { ending: 'hold', line: 'all' },
  failing: { ending: 'hold', line: 'all' },
} as const satisfies Readonly<Record<string, { readonly ending: WaitEnding; readonly line: 'all' | 'late' | 'none' }>>;

export type WaitReason = keyof typeof WAITS;

export const WAIT_REASONS = Object.keys(WAITS) as readonly WaitReason[];

/** A hold of an upload's route, or of the pipeline. */
export type HoldReason = { [R in WaitReason]: (typeof WAITS)[R]['ending'] extends 'hold' ? R : never }[WaitReason];

export const isHold = (reason: WaitReason): reason is HoldReason => WAITS[reason].ending === 'hold';

/** True if a wait follows a failure, so that the backoff after the next one is longer. */
export const isAfterFailure = (reason: WaitReason): boolean =>
  !isHold(reason) && !['inputs', 'settling', 'review'].includes(reason);

/**
 * Longest backoff of an upload after an uncounted failure, in milliseconds. Spread by its id, it is 7.5 to 22.5
 * minutes.
 */
export const BACKOFF_MAX_MS = 15 * 60_000;

/** How long an upload waits to be approved if its route does not say, in milliseconds: a century. An entry needs a time. */
export const REVIEW_MAX_MS = 100 * 365 * 24 * 60 * 60_000;

/**
 * Longest time until a tick looks at an upload that waits to be approved, in milliseconds. A tick that read the entry before
 * an approval may put the marker back after it, and a marker that is left so must go within a day, not within a century.
 */
export const REVIEW_LOOK_MS = 24 * 60 * 60_000;

/** Time between two searches for the flow of an upload whose doubt waits for the operator, in milliseconds. */
export const HELD_WAIT_MS = 60 * 60_000;

/**
 * How long an upload that most probably has a flow waits for the operator's decision, in milliseconds. Then it fails. A
 * week outlasts a holiday.
 */
export const UNDECIDED_MAX_MS = 7 * 24 * 60 * 60_000;

/**
 * Time after which a resubmitted upload is due again, in milliseconds. By then its message has left the queue, as a
 * rule. If the queue is full for longer, it gets one more message an hour, which is harmless.
 */
export const DUE_AGAIN_MS = 60 * 60_000;

/**
 * How far a daily sweep looks back before the last one, in milliseconds. A multipart upload bears the date of its
 * beginning and appears only at its end. (Amazon S3 API Reference, "CreateMultipartUpload".) An upload that is older
 * when it is claimed, as in a backfill, gets a waiting marker before its entry.
 */
export const SWEEP_REACH_MS = 48 * 60 * 60_000;

/** Age up to which an upload or entry may still be on its ordinary way, in milliseconds. */
export const SETTLING_MS = 15 * 60_000;

const DAY_MS = 24 * 60 * 60_000;

/** Returns the time from which entries have not expired. An upload without its entry would be paid for again. */
export const keptFrom = (settings: { readonly ledgerRetentionDays: number | 'forever' }, now: number): number =>
  settings.ledgerRetentionDays === 'forever' ? 0 : now - settings.ledgerRetentionDays * DAY_MS + SETTLING_MS;
