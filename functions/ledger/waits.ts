/**
 * Longest backoff of an upload after an uncounted failure, in milliseconds. Spread by its id, it is 7.5 to 22.5
 * minutes.
 */
export const BACKOFF_MAX_MS = 15 * 60_000;

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
