import { setTimeout as sleep } from 'node:timers/promises';
import { DeleteObjectCommand, PutObjectCommand, S3Client } from '@aws-sdk/client-s3';
import { collectorKey } from '../../functions/ledger/keys.ts';
import type { S3EventRecord } from '../../local/aws/s3/events.ts';
import { serveS3 } from '../../local/aws/s3/http.ts';
import { EmbeddedS3 } from '../../local/aws/s3/s3.ts';
import { StandInFlowService } from '../../local/flow-service/flow-service.ts';
import { serveFlowService } from '../../local/flow-service/http.ts';
import { BUCKETS, CREDENTIALS, TOKEN } from '../names.ts';
import { type Check, exactly, type Report } from '../report.ts';
import type { Stage, Subject } from '../stage.ts';

const FILE_BYTES = 20_000;
const FLOW_MS = 60_000;
/** Longer than the first wait of a refused upload, which is 5 seconds and up to half as long again. In milliseconds. */
const FIRST_WAIT_MS = 8_000;

/** Too short for a wait within the invocation, in milliseconds. A refused upload then waits in the ledger. */
const SHORT_MS = 20_000;

/** Requests to S3 of a tick that finds nothing. The first tick of a deployment makes others. */
export const TICK_REQUESTS = 8;

export type Counts = Readonly<Record<string, number>>;
/** The requests of one step, by server. */
type RequestCounts = Readonly<Record<'s3' | 'service' | 'other', Counts>>;

/** The requests of every kind of delivery and tick. The figures for costs and scale come from here. */
interface RequestFigures {
  readonly tick: RequestCounts;
  readonly create: RequestCounts;
  readonly duplicate: RequestCounts;
  readonly poll: RequestCounts;
  readonly collect: RequestCounts;
  readonly duplicateOfEnded: RequestCounts;
  readonly refused: RequestCounts;
  readonly resubmit: RequestCounts;
  readonly retry: RequestCounts;
}

/**
 * Requests, counted by the servers that answer them: the embedded S3 with all its checks, the stand-in flow service,
 * and the benchmark's own Secrets Manager, SQS and EventBridge.
 */
export async function requests(stage: Stage): Promise<Report & { readonly figures: RequestFigures }> {
  const world = await CountedWorld.start(stage);
  try {
    const { create } = world;
    // First, let both processes read the token, and the collector its state.
    await world.upload();
    await create.call('invoke', { event: world.event() });
    world.service.passTime();
    await world.tick();
    await world.tick();
    const tick = await world.counted(() => world.tick());

    await world.upload();
    const event = world.event();
    const created = await world.counted(() => create.call('invoke', { event }));
    const duplicate = await world.counted(() => create.call('invoke', { event }));
    const poll = await world.counted(() => world.tick());
    world.service.passTime();
    const collected = await world.counted(() => world.tick());
    const duplicateOfEnded = await world.counted(() => create.call('invoke', { event }));

    await world.upload();
    world.service.standIn.intercept = (_, { operation }) =>
      operation === 'createFlow' ? { status: 429, headers: { 'retry-after': '1' } } : undefined;
    const refused = await world.counted(() => create.call('invoke', { event: world.event(), remainingMs: SHORT_MS }));
    world.service.standIn.intercept = undefined;
    await sleep(FIRST_WAIT_MS); // Real time must pass, because the key of the marker names the time.
    const resubmitted = await world.counted(() => world.tick());
    const message = await world.sentMessage();
    const again = { Records: [{ messageId: 'again', body: message }] };
    const retry = await world.counted(() => create.call('invoke', { event: again }));

    const figures: RequestFigures = {
      tick,
      create: created,
      duplicate,
      poll: minus(poll, tick),
      collect: minus(collected, tick),
      duplicateOfEnded,
      refused,
      resubmit: minus(resubmitted, tick),
      retry,
    };
    return { name: 'requests', figures, checks: checksOf(figures), tables: [tableOf(figures)] };
  } finally {
    await world.close();
  }
}

function tableOf(figures: RequestFigures) {
  const names: Readonly<Record<keyof RequestFigures, string>> = {
    create: 'a small file in',
    collect: 'its one asset out, with receipt and event',
    poll: 'a poll that finds nothing',
    duplicate: 'a duplicate delivery, flow running',
    duplicateOfEnded: 'a duplicate delivery, flow ended',
    refused: 'a file that the service throttles',
    resubmit: 'resubmitting it when it is due',
    retry: 'the resubmitted file',
    tick: 'a tick by itself',
  };
  return {
    title: 'Requests, counted by the servers',
    columns: ['what', 'S3', 'flow service', 'others', 'which'],
    rows: (Object.keys(names) as (keyof RequestFigures)[]).map((key) => {
      const { s3, service, other } = figures[key];
      return [
        names[key],
        ...[s3, service, other].map((counts) => String(total(counts))),
        listed({ ...s3, ...service, ...other }),
      ];
    }),
    note: 'All rows but the last exclude the requests of the tick itself. The secret is read once in five minutes.',
  };
}

/** Exact counts. One more request for every file costs money, and one fewer may break a promise. */
function checksOf({ create, collect, poll, duplicate, duplicateOfEnded, tick }: RequestFigures): readonly Check[] {
  return [
    exactly('requests: S3, a small file with one asset from event to receipt', total(create.s3) + total(collect.s3), 9),
    exactly('requests: service, a small file with one asset', total(create.service) + total(collect.service), 4),
    exactly(
      'requests: Secrets Manager, SQS and events, a small file with one asset',
      total(create.other) + total(collect.other),
      1,
    ),
    exactly('requests: S3, a poll that finds nothing', total(poll.s3), 0),
    exactly('requests: service, a poll that finds nothing', total(poll.service), 1),
    exactly('requests: service, a duplicate delivery', total(duplicate.service) + total(duplicateOfEnded.service), 0),
    exactly('requests: S3, a duplicate delivery while the flow runs', total(duplicate.s3), 4),
    exactly('requests: S3, a tick by itself', total(tick.s3), TICK_REQUESTS),
  ];
}

export const total = (counts: Counts): number => Object.values(counts).reduce((sum, count) => sum + count, 0);

const listed = (counts: Counts): string =>
  Object.entries(counts)
    .map(([name, count]) => (count === 1 ? name : `${count} ${name}`))
    .join(', ');

function minus(a: RequestCounts, b: RequestCounts): RequestCounts {
  const less = (from: Counts, what: Counts): Counts =>
    Object.fromEntries(
      Object.entries(from).flatMap(([name, count]) =>
        count > (what[name] ?? 0) ? [[name, count - (what[name] ?? 0)]] : [],
      ),
    );
  return { s3: less(a.s3, b.s3), service: less(a.service, b.service), other: less(a.other, b.other) };
}

interface CountedWorldParts {
  readonly stage: Stage;
  readonly create: Subject;
  readonly collect: Subject;
  readonly service: MovableService;
  readonly s3: S3Client;
  /** Requests of the functions to S3, by operation. */
  readonly counts: Record<string, number>;
  /** The inbox's notifications so far. */
  readonly records: readonly S3EventRecord[];
  readonly closing: readonly (() => unknown)[];
}

/** Both functions with servers that count their requests. */
class CountedWorld {
  readonly #parts: CountedWorldParts;

  static async start(stage: Stage): Promise<CountedWorld> {
    const { embedded, records } = emptyBuckets();
    const own = await serveS3(embedded, { credentials: [CREDENTIALS] });
    const counts: Record<string, number> = {};
    const handle: EmbeddedS3['handle'] = (request) => {
      const operation = s3Operation(request.method, request.url);
      counts[operation] = (counts[operation] ?? 0) + 1;
      return embedded.handle(request);
    };
    const counted = await serveS3({ handle } as EmbeddedS3, { credentials: [CREDENTIALS] });
    const service = new MovableService();
    const served = await serveFlowService(service.standIn);
    const s3 = new S3Client({
      endpoint: own.endpoint,
      region: 'us-east-1',
      credentials: CREDENTIALS,
    });
    const environment = {
      ...stage.environment('plain'),
      FLOW_SERVICE_URL: served.url,
      AWS_ENDPOINT_URL_S3: counted.endpoint,
    };
    const [create, collect] = await Promise.all([
      stage.subject('ours', 'create-flow', environment),
      stage.subject('ours', 'collect-outputs', environment),
    ]);
    const closing = [
      () => collect[Symbol.asyncDispose](),
      () => create[Symbol.asyncDispose](),
      () => s3.destroy(),
      () => service.standIn.close(),
      () => served.close(),
      () => embedded.close(),
      () => counted.close(),
      () => own.close(),
    ];
    return new CountedWorld({ stage, create, collect, service, s3, counts, records, closing });
  }

  private constructor(parts: CountedWorldParts) {
    this.#parts = parts;
  }

  get create(): Subject {
    return this.#parts.create;
  }

  get service(): MovableService {
    return this.#parts.service;
  }

  async upload(): Promise<void> {
    const Body = Buffer.alloc(FILE_BYTES, 'flowdrop');
    await this.#parts.s3.send(
      new PutObjectCommand({ Bucket: BUCKETS.inbox, Key: `${this.#parts.stage.next()}.bin`, Body }),
    );
  }

  /** The notification of the latest upload, as the queue delivers it. */
  event(): object {
    return { Records: [{ messageId: 'message', body: JSON.stringify({ Records: [this.#parts.records.at(-1)] }) }] };
  }

  /** One tick that polls every flow, because the time of the last round is deleted first. */
  async tick(): Promise<void> {
    await this.#parts.s3.send(new DeleteObjectCommand({ Bucket: BUCKETS.ledger, Key: collectorKey(0) }));
    await this.#parts.collect.call('invoke', { event: {} });
  }

  /** The latest message that the function sent to the queue. */
  async sentMessage(): Promise<string> {
    return (await this.#parts.stage.aws.call('lastMessage')) ?? '';
  }

  async counted(body: () => Promise<unknown>): Promise<RequestCounts> {
    await this.#parts.stage.aws.call('takeCounts');
    const before = { ...this.service.standIn.counts };
    const { counts } = this.#parts;
    for (const name of Object.keys(counts)) delete counts[name];
    await body();
    const after = this.service.standIn.counts;
    const service = Object.entries(after).flatMap(([name, count]) => {
      const more = count - before[name as keyof typeof before];
      return more > 0 ? [[name, more] as const] : [];
    });
    return {
      s3: { ...counts },
      service: Object.fromEntries(service),
      other: await this.#parts.stage.aws.call('takeCounts'),
    };
  }

  async close(): Promise<void> {
    for (const step of this.#parts.closing) await step();
  }
}

/** The embedded S3 with the three buckets, and the notifications of its inbox. */
function emptyBuckets(): { embedded: EmbeddedS3; records: readonly S3EventRecord[] } {
  const records: S3EventRecord[] = [];
  const embedded = new EmbeddedS3({
    onEvent(record) {
      if (record.s3.bucket.name === BUCKETS.inbox) records.push(record);
    },
  });
  embedded.createBucket(BUCKETS.inbox, { versioning: 'Enabled' });
  embedded.createBucket(BUCKETS.results);
  embedded.createBucket(BUCKETS.ledger);
  return { embedded, records };
}

/** The stand-in flow service with a clock that the benchmark moves. */
class MovableService {
  #offsetMs = 0;
  readonly standIn = new StandInFlowService({
    tokens: [TOKEN],
    flowMs: FLOW_MS,
    clock: { now: () => Date.now() + this.#offsetMs },
  });

  passTime(): void {
    this.#offsetMs += 2 * FLOW_MS;
  }
}

/** The S3 operation of a request. */
function s3Operation(method: string, target: string): string {
  const { searchParams } = new URL(target, 'http://s3');
  if (searchParams.has('list-type')) return 'ListObjectsV2';
  if (searchParams.has('versions')) return 'ListObjectVersions';
  if (searchParams.has('partNumber')) return 'UploadPart';
  if (searchParams.has('uploads')) return 'CreateMultipartUpload';
  if (searchParams.has('uploadId')) return method === 'POST' ? 'CompleteMultipartUpload' : 'AbortMultipartUpload';
  const verbs: Readonly<Record<string, string>> = { GET: 'Get', HEAD: 'Head', PUT: 'Put', DELETE: 'Delete' };
  return `${verbs[method] ?? method}Object`;
}
