import type { S3Client } from '@aws-sdk/client-s3';
import pMap from 'p-map';
import * as z from 'zod/mini';
import { type CollectFlowPorts, type EndedFlow, FlowCollector } from './collect-flow.ts';
import { FlowServiceError, ThrottledError, UnauthorisedError, UnavailableError } from './flow-service/errors.ts';
import { type Invocation, OutOfTimeError } from './invocation.ts';
import type { RunningMarker, WaitingMarker } from './ledger/keys.ts';
import { Lease } from './ledger/lease.ts';
import { isDue } from './poll-schedule.ts';
import { type Retried, retryUploads } from './retry.ts';
import { sendAgain, type UploadQueue } from './send-again.ts';
import { continueSweep, type SweepPorts, type SweepSummary, sweep } from './sweep.ts';
import { secondsBetween } from './telemetry.ts';
import { UPLOAD_ID, type Upload } from './upload.ts';

/** Uploads sent again at a time. */
const SEND_AGAIN_CONCURRENCY = 16;
/** Uploads sent again in one round at most: about half a minute's work, so that running flows have their turn. */
const SEND_AGAIN_MAX = 4_000;

/** A tick is started every minute: rounds within one leave the next minute to the next one, unless assets are coming. */
const TICK_MS = 55_000;

/** How many requests of one round may find the service unavailable before the round gives up. */
const UNAVAILABLE_MAX = 8;

export interface CollectPorts extends CollectFlowPorts {
  readonly queue: UploadQueue;
  /** From 0 to below 1. */
  readonly random: () => number;
  /** For the lease. */
  readonly s3: S3Client;
}

/** Which share of the markers a tick looks at. */
export interface CollectorShare {
  readonly index: number;
  readonly of: number;
}

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
  const faults = parsed.error.issues.map(({ path, message }) => `${path.join('.') || 'the event'}: ${message}`);
  throw new InvalidCollectEventError(faults.join('; '), { cause: parsed.error });
}

/** Why a round stopped before it had looked at everything. */
type Halt = 'out of time' | 'unauthorised' | 'throttled' | 'unavailable';

export interface TickSummary {
  readonly result: 'completed' | 'lease taken' | Halt;
  readonly rounds: number;
  readonly sentAgain: number;
  readonly running: number;
  readonly polled: number;
  readonly succeeded: number;
  readonly failed: number;
}

/**
 * Does what the event asks for: one tick, a retry, or a sweep. The first collector's tick goes on with a sweep that did
 * not come to its end in one run.
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
  const summary = await collectOutputs(collector, ports, invocation);
  if (collector.index === 0 && summary.result === 'completed') await continueSweep(ports, invocation);
  return summary;
}

/**
 * One tick: sends again what waits and is due, looks at the running flows that are due, stores the outputs of those that
 * ended and settles them. It goes round again while assets are coming, so that a large one holds up nobody else, and
 * with a poll interval below a minute while anything is running.
 * @throws {AggregateError} what went wrong with single uploads, after all others were seen to.
 */
export async function collectOutputs(
  share: CollectorShare,
  ports: CollectPorts,
  invocation: Invocation,
): Promise<TickSummary> {
  const { clock, settings, telemetry } = ports;
  const { closing } = invocation;
  const tick = new Tick(share, ports, invocation);
  const lease = await Lease.take(ports.s3, settings.ledgerBucket, share.index, clock, closing);
  if (lease === undefined) return tick.summary('lease taken');
  try {
    let lastCompletedAt = lease.lastCompletedAt;
    for (;;) {
      const startedAt = clock.now();
      await tick.round(lastCompletedAt);
      if (tick.halt !== undefined) break;
      lastCompletedAt = startedAt;
      // What is still being stored may be cut off, and is due at once then: so the ledger is told only afterwards.
      if (!tick.isStoring) await lease.completed(startedAt, closing);
      const next = startedAt + settings.pollIntervalSeconds * 1000;
      while (clock.now() < next && tick.goesOnAt(next)) await tick.pauseUntil(next);
      if (clock.now() < next) break;
    }
    await tick.allStored();
    const isTold = lastCompletedAt === lease.lastCompletedAt;
    if (!isTold && tick.halt === undefined && lastCompletedAt !== undefined) {
      await lease.completed(lastCompletedAt, closing);
    }
  } finally {
    await lease.release(closing);
  }
  telemetry.metrics.count(tick.halt === undefined ? 'TicksCompleted' : 'TicksCutShort');
  const summary = tick.summary(tick.halt ?? 'completed');
  telemetry.log.info('Tick ended', { ...summary });
  tick.throwFailures();
  return summary;
}

class Tick {
  readonly #share: CollectorShare;
  readonly #ports: CollectPorts;
  readonly #invocation: Invocation;
  readonly #flows: FlowCollector;
  readonly #gate: Gate;
  /** Flows whose outputs are being stored, or wait for their turn, by their uploads. */
  readonly #storing = new Map<string, Promise<void>>();
  readonly #failures: unknown[] = [];
  readonly #counts = { rounds: 0, sentAgain: 0, running: 0, polled: 0 };
  #halt: Halt | undefined;
  #unavailable = 0;

  constructor(share: CollectorShare, ports: CollectPorts, invocation: Invocation) {
    this.#share = share;
    this.#ports = ports;
    this.#invocation = invocation;
    this.#flows = new FlowCollector(ports, invocation);
    this.#gate = new Gate(ports.settings.assetConcurrency);
  }

  /** Why the tick goes no further. */
  get halt(): Halt | undefined {
    return this.#halt;
  }

  get isStoring(): boolean {
    return this.#storing.size > 0;
  }

  summary(result: TickSummary['result']): TickSummary {
    return { result, ...this.#counts, ...this.#flows.counts };
  }

  throwFailures(): void {
    if (this.#failures.length > 0) {
      throw new AggregateError(
        this.#failures,
        `${this.#failures.length} uploads could not be seen to; all others were`,
      );
    }
  }

  /** One look at everything that is due. Stops where `halt` says so. */
  async round(lastCompletedAt: number | undefined): Promise<void> {
    this.#counts.rounds += 1;
    this.#unavailable = 0;
    await this.#sendAgain();
    await this.#poll(lastCompletedAt);
  }

  /** Whether there is to be another round at this time. */
  goesOnAt(time: number): boolean {
    const { startedAt, work, workEndsAt } = this.#invocation;
    if (work.aborted || time >= workEndsAt) return false;
    return this.isStoring || (this.#counts.running > 0 && time < startedAt + TICK_MS);
  }

  /** Waits until then; not so long if everything was stored meanwhile, or the time is over. */
  async pauseUntil(time: number): Promise<void> {
    const { work } = this.#invocation;
    const woken = new AbortController();
    const sleep = this.#ports.clock
      .sleep(time - this.#ports.clock.now(), AbortSignal.any([work, woken.signal]))
      .catch(() => {}); // Woken, or out of time: the caller looks at the clock either way.
    await Promise.race(this.isStoring ? [sleep, this.allStored()] : [sleep]);
    woken.abort();
    await sleep;
  }

  async allStored(): Promise<void> {
    await Promise.all(this.#storing.values());
  }

  async #sendAgain(): Promise<void> {
    const { ledger, clock, telemetry } = this.#ports;
    const { closing } = this.#invocation;
    const due: WaitingMarker[] = [];
    for await (const marker of ledger.waitingMarkersDue(clock.now(), closing)) {
      if (this.#isOurs(marker.uploadId)) due.push(marker);
      if (due.length === SEND_AGAIN_MAX) break; // The longest due come first, and the others in the next round.
    }
    const sent: Upload[] = [];
    await this.#each(due, SEND_AGAIN_CONCURRENCY, async (marker) => {
      const upload = await sendAgain(marker, this.#ports, closing);
      if (upload !== undefined) sent.push(upload);
    });
    this.#counts.sentAgain += sent.length;
    if (sent.length === 0) return;
    telemetry.metrics.count('UploadsSentAgain', sent.length);
    const oldest = Math.min(...sent.map(({ lastModified }) => lastModified));
    telemetry.metrics.count('OldestWaitingSeconds', secondsBetween(oldest, clock.now()));
  }

  async #poll(lastCompletedAt: number | undefined): Promise<void> {
    const { ledger, clock, random, settings, telemetry } = this.#ports;
    const now = clock.now();
    const due: RunningMarker[] = [];
    let allCount = 0;
    let runningCount = 0;
    let oldest = now;
    for await (const marker of ledger.runningMarkers(this.#invocation.closing)) {
      allCount += 1;
      oldest = Math.min(oldest, marker.createdAt);
      if (!this.#isOurs(marker.uploadId)) continue;
      runningCount += 1;
      const isUnderWay = this.#storing.has(marker.uploadId);
      if (!isUnderWay && isDue(marker.createdAt, lastCompletedAt, now, settings.pollIntervalSeconds * 1000)) {
        due.push(marker);
      }
    }
    this.#counts.running = runningCount;
    // Of all collectors, each of which goes through all markers: the highest is right, however many they are, and tells
    // of what a missing one leaves alone.
    telemetry.metrics.count('FlowsRunning', allCount);
    telemetry.metrics.count('OldestRunningSeconds', secondsBetween(oldest, now));
    // A round that is cut off must not leave the same flows to the end every time.
    const start = Math.floor(random() * due.length);
    const rotated = [...due.slice(start), ...due.slice(0, start)];
    await this.#each(rotated, settings.pollConcurrency, async (marker) => {
      this.#counts.polled += 1;
      const flow = await this.#flows.see(marker);
      if (flow !== undefined) this.#store(marker, flow);
    });
  }

  /** Has the outputs stored when it is their turn, while polling goes on. */
  #store(marker: RunningMarker, flow: EndedFlow): void {
    const { uploadId } = marker;
    const stored = this.#gate
      .through(() => this.#guarded(marker, () => this.#flows.collect(flow)))
      .finally(() => this.#storing.delete(uploadId));
    this.#storing.set(uploadId, stored);
  }

  /** Does `one` to each, side by side, and settles only when all are settled. */
  async #each<T extends Subject>(
    all: readonly T[],
    concurrency: number,
    one: (item: T) => Promise<void>,
  ): Promise<void> {
    await pMap(all, (item) => this.#guarded(item, () => one(item)), { concurrency });
  }

  /**
   * Keeps the failure of one from the others: it is told of now, and again by the end of the tick. What concerns all of
   * them halts the tick instead.
   */
  async #guarded({ uploadId, flowId }: Subject, body: () => Promise<void>): Promise<void> {
    const { log } = this.#ports.telemetry;
    if (this.#invocation.work.aborted) this.#halt ??= 'out of time';
    if (this.#halt !== undefined) return;
    try {
      await body();
    } catch (error) {
      const halt = this.#haltFor(error);
      const fields = { uploadId, flowId, error: error as Error };
      if (halt !== undefined) {
        if (this.#halt === undefined) log.warn(`The tick goes no further: ${halt}`, fields);
        this.#halt ??= halt;
        return;
      }
      log.error('This upload could not be seen to; its next poll tries again', fields);
      if (!(error instanceof FlowServiceError)) this.#failures.push(error);
    }
  }

  /** Whether an error says something of all flows rather than of this one. */
  #haltFor(error: unknown): Halt | undefined {
    if (error instanceof OutOfTimeError || this.#invocation.work.aborted) return 'out of time';
    if (error instanceof UnauthorisedError) {
      if (this.#halt !== 'unauthorised') this.#ports.telemetry.metrics.count('TokenRejected');
      return 'unauthorised';
    }
    if (error instanceof ThrottledError) return 'throttled';
    if (error instanceof UnavailableError) {
      this.#unavailable += 1;
      return this.#unavailable >= UNAVAILABLE_MAX ? 'unavailable' : undefined;
    }
    return undefined;
  }

  #isOurs(uploadId: string): boolean {
    return Number.parseInt(uploadId.slice(0, 8), 16) % this.#share.of === this.#share.index;
  }
}

/** Whom a failure is about. */
interface Subject {
  readonly uploadId: string;
  readonly flowId?: string;
}

/** Lets so many through at a time; the others wait their turn. */
class Gate {
  #free: number;
  readonly #queue: (() => void)[] = [];

  constructor(width: number) {
    this.#free = width;
  }

  async through<T>(body: () => Promise<T>): Promise<T> {
    if (this.#free > 0) this.#free -= 1;
    else await new Promise<void>((resolve) => this.#queue.push(resolve));
    try {
      return await body();
    } finally {
      const next = this.#queue.shift();
      if (next === undefined) this.#free += 1;
      else next();
    }
  }
}
