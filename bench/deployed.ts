import { dirname } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { GetObjectCommand, ListObjectsV2Command, PutObjectCommand } from '@aws-sdk/client-s3';
import { LINE_PREFIX } from '../functions/ledger/keys.ts';
import type { Receipt } from '../functions/publish/report-schemas.ts';
import { RECEIPT_NAME } from '../functions/results/results-keys.ts';
import { SETTINGS_DEFAULT } from '../functions/settings/settings.ts';
import type { Route } from '../functions/uploads/route.ts';
import { FUNCTION_TIMEOUT } from '../infra/constructs/pipeline-function.ts';
import { MAX_CONCURRENCY_DEFAULT } from '../infra/ranges.ts';
import type { S3EventRecord } from '../local/aws/s3/events.ts';
import type { StandInFlowService, StandInOptions } from '../local/flow-service/flow-service.ts';
import { INBOX_BUCKET, LEDGER_BUCKET, type Pipeline, RESULTS_BUCKET, startPipeline } from '../local/pipeline.ts';
import type { Stage } from './stage.ts';

/** One tick a minute, as deployed. EventBridge Scheduler has no shorter interval. */
export const TICK_INTERVAL_MS = 60_000;

/** How often a wait for receipts checks for them, in milliseconds. */
const CHECK_INTERVAL_MS = 100;

interface DeployedOptions {
  readonly routes: readonly Route[];
  readonly standIn: StandInOptions;
  /** Time from the start to the first tick, in milliseconds. */
  readonly firstTickAfterMs: number;
}

/** A receipt, and when it was put into the bucket, in milliseconds since the epoch. */
interface Arrival {
  readonly receipt: Receipt;
  readonly at: number;
}

/**
 * The whole pipeline with all defaults of a deployment: the bundles, run by AWS's runtime interface client, one tick a
 * minute, and five concurrent invocations of create-flow. S3, queue and flow service are those of the local run.
 */
export class DeployedPipeline {
  readonly #pipeline: Pipeline;
  /** Times at which the receipts were put, by their keys. */
  readonly #receiptsAt: ReadonlyMap<string, number>;

  static async start(stage: Stage, { routes, standIn, firstTickAfterMs }: DeployedOptions): Promise<DeployedPipeline> {
    const receiptsAt = new Map<string, number>();
    const pipeline = await startPipeline({
      bundleDir: dirname(dirname(stage.bundles.ours['create-flow'])),
      routes,
      standIn,
      // All defaults. Those of the local run are shorter.
      settings: SETTINGS_DEFAULT,
      timeoutSeconds: FUNCTION_TIMEOUT.toSeconds(),
      createConcurrency: MAX_CONCURRENCY_DEFAULT,
      fixedTicks: { firstAfterMs: firstTickAfterMs, intervalMs: TICK_INTERVAL_MS },
      onS3Event: (record) => {
        const key = receiptKeyOf(record);
        if (key !== undefined && !receiptsAt.has(key)) receiptsAt.set(key, Date.now());
      },
    });
    return new DeployedPipeline(pipeline, receiptsAt);
  }

  private constructor(pipeline: Pipeline, receiptsAt: ReadonlyMap<string, number>) {
    this.#pipeline = pipeline;
    this.#receiptsAt = receiptsAt;
  }

  get service(): StandInFlowService {
    return this.#pipeline.standIn as StandInFlowService;
  }

  async put(key: string, body: Buffer): Promise<void> {
    await this.#pipeline.s3.send(new PutObjectCommand({ Bucket: INBOX_BUCKET, Key: key, Body: body }));
  }

  /** Waits for `count` receipts, at most for `limitMs`. Returns the receipts so far. */
  async receipts(count: number, limitMs: number): Promise<readonly Arrival[]> {
    const until = Date.now() + limitMs;
    while (this.#receiptsAt.size < count && Date.now() < until) await sleep(CHECK_INTERVAL_MS);
    const arrivals = [...this.#receiptsAt].map(async ([key, at]): Promise<Arrival> => {
      const { Body } = await this.#pipeline.s3.send(new GetObjectCommand({ Bucket: RESULTS_BUCKET, Key: key }));
      return { at, receipt: JSON.parse((await Body?.transformToString()) ?? '') as Receipt };
    });
    return Promise.all(arrivals);
  }

  /** Waits for the receipt of a file, at most for `limitMs`. Returns when it was put. */
  async receiptAt(key: string, limitMs: number): Promise<number | undefined> {
    const until = Date.now() + limitMs;
    const receiptKey = `${key}/${RECEIPT_NAME}`;
    while (!this.#receiptsAt.has(receiptKey) && Date.now() < until) await sleep(CHECK_INTERVAL_MS);
    return this.#receiptsAt.get(receiptKey);
  }

  /** The number of flows that have no receipt yet. */
  get running(): number {
    return this.service.flows.length - this.done;
  }

  /** The number of files that have a receipt. */
  get done(): number {
    return this.#receiptsAt.size;
  }

  /** The number of messages in the queue. */
  get queued(): number {
    const { visible, inFlight } = this.#pipeline.queue.counts();
    return visible + inFlight;
  }

  /** The number of uploads that wait in the line. */
  async inLine(): Promise<number> {
    let count = 0;
    let ContinuationToken: string | undefined;
    do {
      const listing = { Bucket: LEDGER_BUCKET, Prefix: LINE_PREFIX, ContinuationToken };
      const page = await this.#pipeline.s3.send(new ListObjectsV2Command(listing));
      count += page.KeyCount ?? 0;
      ContinuationToken = page.NextContinuationToken;
    } while (ContinuationToken !== undefined);
    return count;
  }

  close(): Promise<void> {
    return this.#pipeline.close();
  }
}

/** The key of a receipt that was put. Undefined for every other event. */
function receiptKeyOf({ eventName, s3 }: S3EventRecord): string | undefined {
  if (s3.bucket.name !== RESULTS_BUCKET || !eventName.startsWith('ObjectCreated:')) return undefined;
  const key = decodeURIComponent(s3.object.key.replaceAll('+', ' '));
  return key.endsWith(`/${RECEIPT_NAME}`) ? key : undefined;
}
