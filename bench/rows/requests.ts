import { setTimeout as sleep } from 'node:timers/promises';
import { DeleteObjectCommand, PutObjectCommand, S3Client } from '@aws-sdk/client-s3';
import { collectorKey } from '../../functions/ledger/keys.ts';
import { serveS3 } from '../../local/aws/s3/http.ts';
import { EmbeddedS3, type S3EventRecord } from '../../local/aws/s3/s3.ts';
import { StandInFlowService } from '../../local/flow-service/flow-service.ts';
import { serveFlowService } from '../../local/flow-service/http.ts';
import { BUCKETS, TOKEN } from '../names.ts';
import type { Check, Report } from '../report.ts';
import type { Stage, Subject } from '../stage.ts';

const FILE_BYTES = 20_000;
const FLOW_MS = 60_000;
/** The first wait of a refused upload is 5 seconds, or up to half as long again. */
const FIRST_WAIT_MS = 8_000;

/** So little time that nothing waits in place: a refused upload waits in the ledger, and comes again from there. */
const SHORT_MS = 20_000;

/** Requests to S3 of a tick that finds nothing, from the second one of a deployment on. */
export const TICK_REQUESTS = 8;

export type Counts = Readonly<Record<string, number>>;
/** What one thing costs, by where the requests go. */
export type RequestCounts = Readonly<Record<'s3' | 'service' | 'other', Counts>>;

/** What every kind of delivery and tick asks of others. The figures for costs and scale come from here. */
export interface RequestFigures {
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
 * Requests, counted by those who answer them: the embedded S3 with all its checks, the stand-in flow service, and the
 * benchmark's own Secrets Manager, SQS and EventBridge.
 */
export async function requests(stage: Stage): Promise<Report & { readonly figures: RequestFigures }> {
  const world = await CountedWorld.start(stage);
  try {
    const { create } = world;
    // Both processes have read their token, and the collector its state.
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
    await sleep(FIRST_WAIT_MS); // What S3 has of the wait is its key, so time has to pass for real.
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
    refused: 'a file that the service refuses for now',
    resubmit: 'sending it again when it is due',
    retry: 'the file that comes again',
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
    note: 'All but the tick are beyond what a tick costs by itself. The secret is read once in five minutes.',
  };
}

/** Exact: a request more for every file is money, and a request less may be a promise that is not kept. */
function checksOf({ create, collect, poll, duplicate, duplicateOfEnded, tick }: RequestFigures): readonly Check[] {
  const exactly = (what: string, found: number, wanted: number): Check => ({
    what: `requests: ${what}`,
    found: String(found),
    wanted: `exactly ${wanted}`,
    holds: found === wanted,
    isExact: true,
  });
  return [
    exactly('S3, a small file with one asset from event to receipt', total(create.s3) + total(collect.s3), 9),
    exactly('service, a small file with one asset', total(create.service) + total(collect.service), 4),
    exactly(
      'Secrets Manager, SQS and events, a small file with one asset',
      total(create.other) + total(collect.other),
      1,
    ),
    exactly('S3, a poll that finds nothing', total(poll.s3), 0),
    exactly('service, a poll that finds nothing', total(poll.service), 1),
    exactly('service, a duplicate delivery', total(duplicate.service) + total(duplicateOfEnded.service), 0),
    exactly('S3, a duplicate delivery while the flow runs', total(duplicate.s3), 4),
    exactly('S3, a tick by itself', total(tick.s3), TICK_REQUESTS),
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

class CountedWorld {
  readonly create: Subject;
  readonly collect: Subject;
  readonly service: MovableService;
  readonly #stage: Stage;
  readonly #s3: S3Client;
  readonly #counts: Record<string, number>;
  readonly #records: S3EventRecord[];
  readonly #closing: (() => unknown)[];

  static async start(stage: Stage): Promise<CountedWorld> {
    const closing: (() => unknown)[] = [];
    const records: S3EventRecord[] = [];
    const counts: Record<string, number> = {};
    const embedded = new EmbeddedS3({
      onEvent(record) {
        if (record.s3.bucket.name === BUCKETS.inbox) records.push(record);
      },
    });
    embedded.createBucket(BUCKETS.inbox, { versioning: 'Enabled' });
    embedded.createBucket(BUCKETS.results);
    embedded.createBucket(BUCKETS.ledger);
    const own = await serveS3(embedded);
    const handle: EmbeddedS3['handle'] = (request) => {
      const operation = s3Operation(request.method, request.url);
      counts[operation] = (counts[operation] ?? 0) + 1;
      return embedded.handle(request);
    };
    const counted = await serveS3({ handle } as EmbeddedS3);
    const service = new MovableService();
    const served = await serveFlowService(service.standIn);
    const s3 = new S3Client({
      endpoint: own.endpoint,
      region: 'us-east-1',
      credentials: { accessKeyId: 'fake', secretAccessKey: 'fake' },
    });
    closing.push(
      () => own.close(),
      () => counted.close(),
      () => embedded.close(),
      () => served.close(),
      () => service.standIn.close(),
      () => s3.destroy(),
    );
    const environment = {
      ...stage.environment('plain'),
      FLOW_SERVICE_URL: served.url,
      AWS_ENDPOINT_URL_S3: counted.endpoint,
    };
    const [create, collect] = await Promise.all([
      stage.subject('ours', 'create-flow', environment),
      stage.subject('ours', 'collect-outputs', environment),
    ]);
    closing.push(
      () => create.subject.end(),
      () => collect.subject.end(),
    );
    return new CountedWorld(stage, s3, service, create.subject, collect.subject, counts, records, closing);
  }

  private constructor(
    stage: Stage,
    s3: S3Client,
    service: MovableService,
    create: Subject,
    collect: Subject,
    counts: Record<string, number>,
    records: S3EventRecord[],
    closing: (() => unknown)[],
  ) {
    this.#stage = stage;
    this.#s3 = s3;
    this.service = service;
    this.create = create;
    this.collect = collect;
    this.#counts = counts;
    this.#records = records;
    this.#closing = closing;
  }

  async upload(): Promise<void> {
    const Body = Buffer.alloc(FILE_BYTES, 'flowdrop');
    await this.#s3.send(new PutObjectCommand({ Bucket: BUCKETS.inbox, Key: `${this.#stage.next()}.bin`, Body }));
  }

  /** The notification of the last upload, as the queue delivers it. */
  event(): object {
    return { Records: [{ messageId: 'message', body: JSON.stringify({ Records: [this.#records.at(-1)] }) }] };
  }

  /** One tick that looks at everything: when the last one was is forgotten before. */
  async tick(): Promise<void> {
    await this.#s3.send(new DeleteObjectCommand({ Bucket: BUCKETS.ledger, Key: collectorKey(0) }));
    await this.collect.call('invoke', { event: {} });
  }

  /** What the function put into the queue last. */
  async sentMessage(): Promise<string> {
    return (await this.#stage.aws.call('lastMessage')) ?? '';
  }

  async counted(body: () => Promise<unknown>): Promise<RequestCounts> {
    await this.#stage.aws.call('takeCounts');
    const before = { ...this.service.standIn.counts };
    for (const name of Object.keys(this.#counts)) delete this.#counts[name];
    await body();
    const after = this.service.standIn.counts;
    const service = Object.entries(after).flatMap(([name, count]) => {
      const more = count - before[name as keyof typeof before];
      return more > 0 ? [[name, more] as const] : [];
    });
    const s3 = { ...this.#counts };
    return { s3, service: Object.fromEntries(service), other: await this.#stage.aws.call('takeCounts') };
  }

  async close(): Promise<void> {
    for (const step of this.#closing.reverse()) await step();
  }
}

/** The stand-in with a clock of its own, so that flows end when we say. */
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

/** The operation that a request to S3 is. */
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
