import { COLLECTORS_MAX } from '../functions/operator/collect-event.ts';

/** Whole numbers from `min` to `max`, both included. */
export interface Range {
  readonly min: number;
  readonly max: number;
}

/**
 * Maximum concurrency of the event source.
 * @see https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-scaling.html
 */
export const MAX_CONCURRENCY: Range = { min: 2, max: 1_000 };
export const MAX_CONCURRENCY_DEFAULT = 5;

/**
 * Batching window of the event source.
 * @see https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html
 */
export const BATCH_WINDOW_SECONDS: Range = { min: 0, max: 300 };

export const COLLECTORS: Range = { min: 1, max: COLLECTORS_MAX };

/** CloudWatch takes 1,024 characters as the description of an alarm, which has about 500 beside the address. */
export const RUNBOOK_URL_MAX = 500;

/** Days after which assets expire. Ten years at most. */
export const RESULTS_RETENTION_DAYS: Range = { min: 1, max: 3_650 };

/** Days for which replaced and deleted objects are kept. Ten years at most. */
export const VERSION_RETENTION_DAYS: Range = { min: 1, max: 3_650 };
