import { createHash } from 'node:crypto';
import type { S3Client } from '@aws-sdk/client-s3';
import pMap from 'p-map';
import * as z from 'zod/mini';
import type { Clock } from './clock.ts';
import type { Settings } from './config.ts';
import {
  AssetTooLargeError,
  FlowServiceError,
  NotFoundError,
  NotReadyError,
  NotServedError,
  ThrottledError,
  UnauthorisedError,
  UnavailableError,
} from './flow-service/errors.ts';
import type { FlowService, Output } from './flow-service/types.ts';
import { type Invocation, OutOfTimeError } from './invocation.ts';
import {
  collectedSoFar,
  dueAt,
  type Ending,
  ended,
  type FailedOutput,
  type Failure,
  isTerminal,
  lookedAt,
  type RunningEntry,
  retried,
  type StoredAsset,
} from './ledger/entry.ts';
import { encodedId, type RunningMarker, type WaitingMarker } from './ledger/keys.ts';
import { Lease } from './ledger/lease.ts';
import type { Ledger, Stored } from './ledger/store.ts';
import type { Results } from './objects/results.ts';
import { assetKey } from './objects/results-keys.ts';
import { isDue } from './poll-schedule.ts';
import { type PublishPorts, publish } from './publish.ts';
import { continueSweep, type SweepPorts, type SweepSummary, sweep } from './sweep.ts';
import { messageFor, UPLOAD_ID } from './upload.ts';

/** Uploads sent again at a time. */
const SEND_AGAIN_CONCURRENCY = 16;

/** When an upload that was sent again is looked at once more, in milliseconds: its message should be through by then. */
const LOOK_AGAIN_MS = 15 * 60_000;

/** The schedule comes round once a minute at least: rounds within a tick leave the next minute to the next tick. */
const TICK_MS = 55_000;

/** How many requests of one round may find the service unavailable before the round gives up. */
const UNAVAILABLE_MAX = 8;

/** Bytes that a template's name may take in an asset's metadata: S3 allows 2 KB for all of it, and two ids are in it. */
const TEMPLATE_METADATA_BYTES_MAX = 256;

/** The queue that uploads come from, as far as a sender sees it. */
export interface UploadQueue {
  send(message: string, signal: AbortSignal): Promise<void>;
}

export interface CollectPorts extends PublishPorts {
  readonly ledger: Ledger;
  readonly results: Results;
  readonly flows: FlowService;
  readonly queue: UploadQueue;
  readonly clock: Clock;
  /** From 0 to below 1. */
  readonly random: () => number;
  readonly settings: Settings;
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
 * One tick: sends again what waits and is due, polls the running flows that are due, stores the outputs of those that
 * ended and settles them. With a poll interval below a minute it goes round again while anything is running.
 * @throws {AggregateError} what went wrong with single flows, after all others were seen to.
 */
export async function collectOutputs(
  share: CollectorShare,
  ports: CollectPorts,
  invocation: Invocation,
): Promise<TickSummary> {
  const tick = new Tick(share, ports, invocation);
  const { clock, settings, telemetry } = ports;
  const lease = await Lease.take(ports.s3, settings.ledgerBucket, share.index, clock, invocation.closing);
  if (lease === undefined) return tick.summary('lease taken');
  let halt: Halt | undefined;
  try {
    for (;;) {
      const roundStartedAt = clock.now();
      halt = await tick.round(lease.lastCompletedAt);
      if (halt !== undefined) break;
      await lease.completed(roundStartedAt, invocation.closing);
      const nextRoundAt = roundStartedAt + settings.pollIntervalSeconds * 1000;
      if (!tick.isAnythingRunning || nextRoundAt >= Math.min(invocation.startedAt + TICK_MS, invocation.workEndsAt))
        break;
      await clock.sleep(Math.max(0, nextRoundAt - clock.now()), invocation.work);
    }
  } finally {
    await lease.release(invocation.closing);
  }
  telemetry.metrics.count(halt === undefined ? 'TicksCompleted' : 'TicksCutShort');
  const summary = tick.summary(halt ?? 'completed');
  telemetry.log.info('Tick ended', { ...summary });
  tick.throwFailures();
  return summary;
}

/** What became of an upload that a person asked to have tried again. */
export interface Retried {
  readonly upload: string;
  readonly result: 'sent again' | 'unknown' | 'succeeded already' | 'under way';
}

/** Sends failed uploads, and held ones, on their way again. */
export async function retryUploads(
  uploadIds: readonly string[],
  ports: Pick<CollectPorts, 'ledger' | 'queue' | 'clock'>,
  signal: AbortSignal,
): Promise<readonly Retried[]> {
  return pMap(uploadIds, (upload) => retryUpload(upload, ports, signal), {
    concurrency: SEND_AGAIN_CONCURRENCY,
    stopOnError: false,
  });
}

async function retryUpload(
  upload: string,
  { ledger, queue, clock }: Pick<CollectPorts, 'ledger' | 'queue' | 'clock'>,
  signal: AbortSignal,
): Promise<Retried> {
  const stored = await ledger.read(upload, signal);
  if (stored === undefined) return { upload, result: 'unknown' };
  const { entry } = stored;
  if (entry.state === 'succeeded') return { upload, result: 'succeeded already' };
  if (entry.state !== 'failed' && entry.state !== 'waiting') return { upload, result: 'under way' };
  const again = retried(entry, clock.now());
  const written = await ledger.replace(stored, again, signal);
  if (!written.won) return { upload, result: 'under way' };
  await ledger.putWaitingMarker({ uploadId: upload, notBefore: again.notBefore }, signal);
  await queue.send(messageFor(again.upload), signal);
  return { upload, result: 'sent again' };
}

/** What one look at a flow told. */
type Look =
  | { readonly kind: 'running' }
  | { readonly kind: 'gone' }
  | { readonly kind: 'finished'; readonly outputs: readonly Output[]; readonly failure?: Failure | undefined };

class Tick {
  readonly #share: CollectorShare;
  readonly #ports: CollectPorts;
  readonly #invocation: Invocation;
  readonly #storing: Gate;
  readonly #failures: unknown[] = [];
  readonly #counts = { rounds: 0, sentAgain: 0, running: 0, polled: 0, succeeded: 0, failed: 0 };
  #halt: Halt | undefined;
  #unavailable = 0;

  constructor(share: CollectorShare, ports: CollectPorts, invocation: Invocation) {
    this.#share = share;
    this.#ports = ports;
    this.#invocation = invocation;
    this.#storing = new Gate(ports.settings.assetConcurrency);
  }

  get isAnythingRunning(): boolean {
    return this.#counts.running > 0;
  }

  summary(result: TickSummary['result']): TickSummary {
    return { result, ...this.#counts };
  }

  throwFailures(): void {
    if (this.#failures.length > 0) {
      throw new AggregateError(this.#failures, `${this.#failures.length} uploads could not be seen to; they stay due`);
    }
  }

  /** One look at everything that is due. Says why where it stopped before that. */
  async round(lastCompletedAt: number | undefined): Promise<Halt | undefined> {
    this.#counts.rounds += 1;
    this.#unavailable = 0;
    await this.#sendAgain();
    await this.#poll(lastCompletedAt);
    return this.#halt;
  }

  async #sendAgain(): Promise<void> {
    const { ledger, clock, telemetry } = this.#ports;
    const due: WaitingMarker[] = [];
    for await (const marker of ledger.waitingMarkersDue(clock.now(), this.#invocation.closing)) {
      if (this.#isOurs(marker.uploadId)) due.push(marker);
    }
    await this.#each(due, SEND_AGAIN_CONCURRENCY, (marker) => this.#sendOneAgain(marker));
    if (this.#counts.sentAgain > 0) telemetry.metrics.count('UploadsSentAgain', this.#counts.sentAgain);
  }

  /**
   * The marker of an upload that is sent again is not dropped but put off: should its message be lost, or its
   * invocation die, the upload is found again by the marker. It is dropped once the entry has left the wait behind.
   */
  async #sendOneAgain(marker: WaitingMarker): Promise<void> {
    const { ledger, queue, clock } = this.#ports;
    const signal = this.#invocation.closing;
    const stored = await ledger.read(marker.uploadId, signal);
    let notBefore = stored && dueAt(stored.entry);
    if (stored !== undefined && notBefore !== undefined && notBefore <= clock.now()) {
      await queue.send(messageFor(stored.entry.upload), signal);
      this.#counts.sentAgain += 1;
      notBefore = clock.now() + LOOK_AGAIN_MS;
    }
    if (notBefore !== undefined) await ledger.putWaitingMarker({ uploadId: marker.uploadId, notBefore }, signal);
    await ledger.deleteWaitingMarker(marker, signal);
  }

  async #poll(lastCompletedAt: number | undefined): Promise<void> {
    const { ledger, clock, random, settings, telemetry } = this.#ports;
    const now = clock.now();
    const due: RunningMarker[] = [];
    let runningCount = 0;
    let oldest = now;
    for await (const marker of ledger.runningMarkers(this.#invocation.closing)) {
      if (!this.#isOurs(marker.uploadId)) continue;
      runningCount += 1;
      oldest = Math.min(oldest, marker.createdAt);
      if (isDue(marker.createdAt, lastCompletedAt, now, settings.pollIntervalSeconds * 1000)) due.push(marker);
    }
    this.#counts.running = runningCount;
    telemetry.metrics.count('FlowsRunning', runningCount);
    telemetry.metrics.count('OldestRunningSeconds', Math.round((now - oldest) / 1000));
    // A round that is cut off must not leave the same flows to the end every time.
    const start = Math.floor(random() * due.length);
    const rotated = [...due.slice(start), ...due.slice(0, start)];
    await this.#each(rotated, settings.pollConcurrency, (marker) => this.#see(marker));
  }

  /**
   * Does `one` to each, side by side, and settles only when all are settled. One failure is that one's alone: it is
   * kept for the end of the tick. What concerns all of them halts the round instead.
   */
  async #each<T extends { readonly uploadId: string }>(
    all: readonly T[],
    concurrency: number,
    one: (item: T) => Promise<void>,
  ): Promise<void> {
    const { telemetry } = this.#ports;
    await pMap(
      all,
      async (item) => {
        if (this.#invocation.work.aborted) this.#halt ??= 'out of time';
        if (this.#halt !== undefined) return;
        try {
          await one(item);
        } catch (error) {
          const halt = this.#haltFor(error);
          if (halt !== undefined) {
            this.#halt ??= halt;
            return;
          }
          telemetry.log.error('This upload could not be seen to; it stays due', {
            uploadId: item.uploadId,
            error: error as Error,
          });
          if (!(error instanceof FlowServiceError)) this.#failures.push(error);
        }
      },
      { concurrency },
    );
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

  /** One running flow: looked at, and settled if it ended. */
  async #see(marker: RunningMarker): Promise<void> {
    const { clock, settings } = this.#ports;
    this.#counts.polled += 1;
    const isTooOld = clock.now() - marker.createdAt > settings.flowAgeMaxSeconds * 1000;
    let look: Look;
    try {
      look = await this.#look(marker);
    } catch (error) {
      if (!isTooOld || !isItsOwn(error)) throw error;
      return this.#timeOut(
        marker,
        `had not been seen to end after ${settings.flowAgeMaxSeconds} seconds: ${error.message}`,
      );
    }
    if (look.kind === 'running') {
      if (isTooOld) await this.#timeOut(marker, `was still running after ${settings.flowAgeMaxSeconds} seconds.`);
      return;
    }
    const stored = await this.#entryOf(marker);
    if (stored === undefined) return;
    if (look.kind === 'gone') {
      const message = 'The flow service does not know this flow any more.';
      await this.#end(stored, { assets: stored.entry.assets ?? [], failure: { code: 'flow-gone', message } });
      return;
    }
    await this.#storing.through(() => this.#collect(stored, look.outputs, look.failure));
  }

  async #timeOut(marker: RunningMarker, what: string): Promise<void> {
    const stored = await this.#entryOf(marker);
    if (stored === undefined) return;
    const failure = { code: 'timed-out', message: `The flow ${what}` };
    await this.#end(stored, { assets: stored.entry.assets ?? [], failure });
    await this.#abort(marker);
  }

  /** Asks the service for the flow, or where it does not answer that, judges by the outputs listing alone. */
  async #look(marker: RunningMarker): Promise<Look> {
    const { flows } = this.#ports;
    const { work } = this.#invocation;
    let flow: Awaited<ReturnType<FlowService['get']>>;
    try {
      flow = await flows.get(marker.flowId, work);
    } catch (error) {
      if (error instanceof NotFoundError && error.knownToBeServed) return { kind: 'gone' };
      if (error instanceof NotFoundError || error instanceof NotServedError) return this.#lookAtOutputs(marker);
      throw error;
    }
    if (flow.state === 'running') return { kind: 'running' };
    const failure = flow.state === 'completed' ? undefined : failureOf(flow.state, flow.error);
    try {
      return { kind: 'finished', outputs: await flows.outputs(marker.flowId, work), failure };
    } catch (error) {
      const isNone =
        error instanceof NotFoundError || error instanceof NotReadyError || error instanceof NotServedError;
      if (!isNone) throw error;
      // What failed may have no outputs to list; what completed has, and a listing that lags behind gets its time.
      return failure === undefined ? { kind: 'running' } : { kind: 'finished', outputs: [], failure };
    }
  }

  /**
   * Finished is when every output, and there is one at least, is at its end, and a second look at least one poll
   * interval later sees the same. The first look leaves its digest in the entry: the one poll that writes.
   */
  async #lookAtOutputs(marker: RunningMarker): Promise<Look> {
    const { flows, ledger, clock, settings } = this.#ports;
    let outputs: readonly Output[];
    try {
      outputs = await flows.outputs(marker.flowId, this.#invocation.work);
    } catch (error) {
      if (error instanceof NotFoundError) return { kind: error.knownToBeServed ? 'gone' : 'running' };
      if (error instanceof NotReadyError || error instanceof NotServedError) return { kind: 'running' };
      throw error;
    }
    if (outputs.length === 0 || outputs.some(({ status }) => status === 'pending')) return { kind: 'running' };
    const stored = await this.#entryOf(marker);
    if (stored === undefined) return { kind: 'running' };
    const digest = digestOf(outputs);
    const { look } = stored.entry;
    if (look?.digest === digest) {
      const isLater = clock.now() - look.at >= settings.pollIntervalSeconds * 1000;
      return isLater ? { kind: 'finished', outputs } : { kind: 'running' };
    }
    await ledger.replace(stored, lookedAt(stored.entry, digest, clock.now()), this.#invocation.closing);
    return { kind: 'running' };
  }

  /** The entry that a marker stands for. A marker that stands for none is dropped, after what is left to do is done. */
  async #entryOf(marker: RunningMarker): Promise<Stored<RunningEntry> | undefined> {
    const { ledger } = this.#ports;
    const { closing } = this.#invocation;
    const stored = await ledger.read(marker.uploadId, closing);
    const entry = stored?.entry;
    if (entry?.state === 'running' && entry.flow.id === marker.flowId) return stored as Stored<RunningEntry>;
    if (entry !== undefined && isTerminal(entry) && entry.flow?.id === marker.flowId) {
      await publish(entry, this.#ports, closing);
    }
    await ledger.deleteRunningMarker(marker, closing);
    return undefined;
  }

  /**
   * Stores the outputs of a flow that ended, and settles it. A run that is cut off goes on from there the next time. It
   * is counted like the failure of an asset if it had time enough and stored nothing: an answer may have no end.
   */
  async #collect(
    stored: Stored<RunningEntry>,
    outputs: readonly Output[],
    flowFailure: Failure | undefined,
  ): Promise<void> {
    const { ledger, clock, settings, telemetry } = this.#ports;
    const { startedAt, workEndsAt, work, closing } = this.#invocation;
    const { entry } = stored;
    const isLastAttempt = entry.attempts + 1 >= settings.attemptsMax;
    const isTooOld = clock.now() - entry.flow.createdAt > settings.flowAgeMaxSeconds * 1000;
    const hasTimeEnough = clock.now() <= (startedAt + workEndsAt) / 2;
    const listed = outputs.slice(0, settings.outputsMax);
    const known = new Map((entry.assets ?? []).map((asset) => [asset.id, asset]));
    const knownCount = known.size;
    const failed = new Map<string, FailedOutput>();
    const fail = (id: string, { code, message }: Failure) => failed.set(id, { id, code, message });
    let cutOff: unknown;
    let worthAnotherTry: FlowServiceError | undefined;
    // An asset that takes all the time must not take the turn of those behind it every time.
    const first = entry.attempts % Math.max(1, listed.length);
    for (const { assetId: id, status, error: said } of [...listed.slice(first), ...listed.slice(0, first)]) {
      if (known.has(id)) continue;
      if (status === 'failed') fail(id, { code: 'output-failed', message: said ?? 'The service says it failed.' });
      else if (cutOff === undefined) {
        try {
          known.set(id, await this.#store(entry, id));
        } catch (error) {
          const isInVain = isItsOwn(error)
            ? error instanceof AssetTooLargeError || isLastAttempt
            : error instanceof UnavailableError && isTooOld;
          if (isInVain) fail(id, error as FlowServiceError);
          else if (isItsOwn(error)) worthAnotherTry = error;
          else cutOff = error;
        }
      }
    }
    const isProgress = known.size > knownCount;
    const isTooSlow = cutOff !== undefined && work.aborted && hasTimeEnough && !isProgress;
    const unstored = listed.filter(({ assetId }) => !known.has(assetId) && !failed.has(assetId));
    if (isTooSlow && isLastAttempt) {
      const message = 'It did not come whole within the time of several runs.';
      for (const { assetId } of unstored) fail(assetId, { code: 'out-of-time', message });
    } else if (cutOff !== undefined || worthAnotherTry !== undefined) {
      const isCounted = worthAnotherTry !== undefined || isTooSlow;
      if (isProgress || isCounted) {
        await ledger.replace(stored, collectedSoFar(entry, [...known.values()], isCounted), closing);
      }
      throw cutOff ?? worthAnotherTry;
    }
    // In the order of the listing, in however many runs they came.
    const assets = listed.flatMap(({ assetId }) => known.get(assetId) ?? []);
    const failedOutputs = listed.flatMap(({ assetId }) => failed.get(assetId) ?? []);
    const beyond = outputs.length - settings.outputsMax;
    if (beyond > 0) {
      const message = `${beyond} outputs beyond the limit of ${settings.outputsMax} were not stored.`;
      failedOutputs.push({ id: '', code: 'too-many-outputs', message });
    }
    if (failedOutputs.length > 0) telemetry.metrics.count('AssetsFailed', failedOutputs.length);
    const nothingCameOut = assets.length === 0 && failedOutputs.length > 0;
    const failure =
      flowFailure ?? (nothingCameOut ? { code: 'outputs-failed', message: 'No output could be stored.' } : undefined);
    await this.#end(stored, { assets, failedOutputs, failure });
  }

  async #store(entry: RunningEntry, assetId: string): Promise<StoredAsset> {
    const { flows, results, settings, telemetry } = this.#ports;
    const { work } = this.#invocation;
    const flowId = entry.flow.id;
    const asset = await flows.asset(flowId, assetId, work);
    const { mediaType } = asset;
    const key = assetKey(settings, { key: entry.upload.key, flowId, assetId, mediaType });
    const template = encodedId(entry.route.template);
    const metadata = {
      'flowdrop-upload': entry.upload.id,
      'flowdrop-flow': encodedId(flowId),
      'flowdrop-asset': encodedId(assetId),
      ...(template.length <= TEMPLATE_METADATA_BYTES_MAX ? { 'flowdrop-template': template } : {}),
    };
    const { bytes, sha256 } = await results.store({ key, mediaType, metadata }, asset.chunks, work);
    telemetry.metrics.count('AssetsStored');
    telemetry.metrics.count('AssetBytes', bytes);
    return { id: assetId, key, bytes, mediaType, sha256 };
  }

  /** The terminal entry decides; everything after it can be done again from it. */
  async #end(stored: Stored<RunningEntry>, ending: Ending): Promise<void> {
    const { ledger, clock, telemetry } = this.#ports;
    const { closing } = this.#invocation;
    const terminal = ended(stored.entry, ending, clock.now());
    const written = await ledger.replace(stored, terminal, closing);
    if (!written.won) {
      // Another collector was faster. If it has ended this flow, its marker may need us; else it is under way.
      const current = written.current?.entry;
      const isEnded = current !== undefined && isTerminal(current) && current.flow?.id === stored.entry.flow.id;
      if (isEnded) await publish(current, this.#ports, closing);
      return;
    }
    const isSuccess = terminal.state === 'succeeded';
    this.#counts[isSuccess ? 'succeeded' : 'failed'] += 1;
    telemetry.metrics.count(isSuccess ? 'FlowsSucceeded' : 'FlowsFailed');
    await publish(terminal, this.#ports, closing);
  }

  /** A flow that we gave up on costs its owner as long as it runs. Whether it can be aborted changes nothing for us. */
  async #abort(marker: RunningMarker): Promise<void> {
    const { flows, telemetry } = this.#ports;
    try {
      await flows.abort(marker.flowId, this.#invocation.closing);
    } catch (error) {
      if (!(error instanceof FlowServiceError)) throw error;
      telemetry.log.warn('The flow could not be aborted', { uploadId: marker.uploadId, flowId: marker.flowId, error });
    }
  }

  #isOurs(uploadId: string): boolean {
    return Number.parseInt(uploadId.slice(0, 8), 16) % this.#share.of === this.#share.index;
  }
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

/** Whether the flow or the asset itself may be the cause, so that trying for ever would be in vain. */
function isItsOwn(error: unknown): error is FlowServiceError {
  return (
    error instanceof FlowServiceError &&
    !(error instanceof UnauthorisedError || error instanceof ThrottledError || error instanceof UnavailableError)
  );
}

function failureOf(state: 'failed' | 'aborted', error: string | undefined): Failure {
  const said = error === undefined ? '' : `: ${error}`;
  return state === 'failed'
    ? { code: 'flow-failed', message: `The flow failed${said}` }
    : { code: 'flow-aborted', message: `The flow was aborted${said}` };
}

function digestOf(outputs: readonly Output[]): string {
  const facts = outputs.map(({ assetId, status }) => [assetId, status]).sort();
  return createHash('sha256').update(JSON.stringify(facts)).digest('base64url');
}
