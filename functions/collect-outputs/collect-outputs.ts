import * as z from 'zod/mini';
import type { Invocation } from '../base/invocation.ts';
import { Lease } from '../ledger/lease.ts';
import { type Retried, retryUploads } from '../resubmit/retry.ts';
import { continueSweep, type SweepPorts, type SweepSummary, sweep } from '../sweep/sweep.ts';
import { UPLOAD_ID } from '../uploads/upload.ts';
import { type CollectorShare, type CollectPorts, Tick, type TickSummary } from './tick.ts';

export type { CollectPorts, TickSummary } from './tick.ts';

/**
 * Time from a tick's start after which it begins no further round unless assets are coming, in milliseconds. The next
 * tick starts after a minute.
 */
const TICK_MS = 55_000;

/** Collectors that may divide the work, at most. */
export const COLLECTORS_MAX = 64;

/** Uploads that one event may ask to have tried again, at most. */
const RETRY_MAX = 1_000;

/** Missed uploads that a sweep may submit in a second, at most. */
const UPLOADS_PER_SECOND_MAX = 1_000;

const eventSchema = z.strictObject({
  collector: z._default(
    z
      .strictObject({
        index: z.int().check(z.nonnegative()),
        of: z.int().check(z.positive(), z.maximum(COLLECTORS_MAX)),
      })
      .check(z.refine(({ index, of }) => index < of, { error: 'expected an index below "of"' })),
    { index: 0, of: 1 },
  ),
  retry: z.optional(z.array(z.string().check(z.regex(UPLOAD_ID))).check(z.minLength(1), z.maxLength(RETRY_MAX))),
  sweep: z.optional(
    z.strictObject({
      /** ISO 8601. */
      since: z.optional(
        z.pipe(
          z.string().check(z.refine((text) => !Number.isNaN(Date.parse(text)), { error: 'expected a date' })),
          z.transform((text) => Date.parse(text)),
        ),
      ),
      dryRun: z.optional(z.boolean()),
      force: z.optional(z.boolean()),
      stop: z.optional(z.boolean()),
      uploadsPerSecond: z.optional(z.number().check(z.positive(), z.maximum(UPLOADS_PER_SECOND_MAX))),
    }),
  ),
});

/** What the collecting function was invoked with is not what it takes. */
export class InvalidCollectEventError extends Error {
  override readonly name = 'InvalidCollectEventError';
}

/**
 * What a schedule or a person asks for: `{}` or `{"collector": {"index": 0, "of": 2}}` for a tick,
 * `{"retry": ["<upload id>"]}`, or `{"sweep": {"since": "2026-01-01", "dryRun": true, "uploadsPerSecond": 10}}`.
 * @throws {InvalidCollectEventError}
 */
export function parseCollectEvent(event: unknown): z.infer<typeof eventSchema> {
  const parsed = z.safeParse(eventSchema, event ?? {});
  if (parsed.success) return parsed.data;
  const issues = parsed.error.issues.map(({ path, message }) => `${path.join('.') || 'the event'}: ${message}`);
  throw new InvalidCollectEventError(issues.join('; '), { cause: parsed.error });
}

/**
 * Does what the event asks for: one tick, a retry, or a sweep. The first collector's tick goes on with a sweep that did
 * not come to its end in one run, also after single uploads failed.
 * @throws {InvalidCollectEventError}
 */
export async function collect(
  event: unknown,
  ports: CollectPorts & SweepPorts,
  invocation: Invocation,
): Promise<TickSummary | SweepSummary | readonly Retried[]> {
  const { collector, retry, sweep: request } = parseCollectEvent(event);
  if (retry !== undefined) return retryUploads(retry, ports, invocation.closing);
  if (request !== undefined) return sweep(request, ports, invocation);
  const [tick] = await Promise.allSettled([collectOutputs(collector, ports, invocation)]);
  const wasOurs = tick.status === 'rejected' || tick.value.result !== 'lease taken';
  const goesOn = collector.index === 0 && wasOurs && !invocation.work.aborted;
  const [sweeping] = await Promise.allSettled([goesOn ? continueSweep(ports, invocation) : undefined]);
  const reasons = [tick, sweeping].flatMap((part) => (part.status === 'rejected' ? [part.reason] : []));
  if (reasons.length > 1) throw new AggregateError(reasons, 'Both the tick and the sweep failed');
  if (tick.status === 'rejected' || reasons.length > 0) throw reasons[0];
  return tick.value;
}

/**
 * One tick: sends on what waits and is due, looks at the running flows that are due, stores the outputs of those that
 * ended and settles them. It goes round again for as long as assets are coming, and within its minute while any young
 * flow is running.
 * @throws {AggregateError} what went wrong with single uploads, after all others were seen to.
 */
export async function collectOutputs(
  share: CollectorShare,
  ports: CollectPorts,
  invocation: Invocation,
): Promise<TickSummary> {
  const { clock, settings, telemetry } = ports;
  const { startedAt: tickStartedAt, work, workEndsAt, closing } = invocation;
  const lease = await Lease.take({ s3: ports.s3, bucket: settings.ledgerBucket, clock }, share.index, closing);
  const tick = new Tick(share, lease?.state ?? {}, ports, invocation);
  if (lease === undefined) return tick.summary('lease taken');
  lease.keeps(() => tick.memory);
  const goesOnAt = (time: number): boolean =>
    !work.aborted && time < workEndsAt && (tick.isStoring || (tick.isYoungRunning && time < tickStartedAt + TICK_MS));
  try {
    for (;;) {
      const startedAt = clock.now();
      await tick.round();
      if (tick.halt !== undefined) break;
      await lease.write(closing);
      if (lease.isLost) break;
      const next = startedAt + tick.roundMs;
      while (clock.now() < next && goesOnAt(next)) await tick.pauseUntil(next);
      if (lease.isLost || !goesOnAt(Math.max(next, clock.now()))) break;
    }
    await tick.finish();
  } finally {
    await tick.allStored();
    await lease.release(closing);
  }
  telemetry.metrics.count(tick.isCutShort ? 'TicksCutShort' : 'TicksCompleted');
  const summary = tick.summary(tick.halt ?? 'completed');
  telemetry.log.info('Tick ended', { ...summary });
  tick.throwFailures();
  return summary;
}
