import { join } from 'node:path';
import { DeleteObjectCommand, S3Client } from '@aws-sdk/client-s3';
import { systemClock } from '../functions/base/clock.ts';
import { collectorKey } from '../functions/ledger/keys.ts';
import type { Env } from '../functions/settings/environment.ts';
import type { PipelineSettings } from '../functions/settings/settings.ts';
import { Inbox } from '../functions/uploads/inbox.ts';
import type { Route } from '../functions/uploads/routes.ts';
import { messageFor } from '../functions/uploads/upload-event.ts';
import { FUNCTION_NAMES, type FunctionName } from '../infra/bundle/bundle.ts';
import { EventSource } from './aws/event-source.ts';
import { EventBus, type PublishedEvent, serveEvents } from './aws/events.ts';
import { Queue, serveQueues } from './aws/queue.ts';
import { S3Error } from './aws/s3/errors.ts';
import { serveS3 } from './aws/s3/http.ts';
import { EmbeddedS3, type S3EventRecord } from './aws/s3/s3.ts';
import { SecretStore, serveSecrets } from './aws/secrets.ts';
import { StandInFlowService, type StandInOptions } from './flow-service/flow-service.ts';
import { serveFlowService } from './flow-service/http.ts';
import { LocalFunction } from './lambda/function.ts';
import { FixedRate, Schedule } from './schedule.ts';

export const INBOX_BUCKET = 'inbox';
export const RESULTS_BUCKET = 'results';
export const LEDGER_BUCKET = 'ledger';
export const TOKEN_SECRET = 'flowdrop/token';
const EVENT_BUS = 'default';
const STAND_IN_TOKEN = 'stand-in-token';

/** As deployed by default, but for the time: nobody waits a quarter of an hour for a hung function at home. */
const MEMORY_MIB = 512;
const TIMEOUT_SECONDS = 300;
/** How long a failed message stays hidden: longer than the claim of an invocation that died, which outlives it by 60 s. */
const VISIBILITY_MARGIN_SECONDS = 120;
const MAX_RECEIVE_COUNT = 20;
const CREATE_CONCURRENCY = 2;
const TICK_INTERVAL_MS = 2_000;
/** At a fixed rate a tick can begin while the last one goes on. It finds the lease taken and ends at once. */
const FIXED_TICKS_CONCURRENCY = 2;

export interface PipelineOptions {
  /** Holds `create-flow/index.mjs` and `collect-outputs/index.mjs`, as `infra/bundle/bundle.ts` writes them. */
  readonly bundleDir: string;
  /** Keeps the buckets across restarts. Everything is in memory without it. */
  readonly stateDir?: string;
  /** Name of the deployment, part of every flow's tag. Default `local`. */
  readonly name?: string;
  readonly routes: readonly Route[];
  readonly settings?: Partial<PipelineSettings>;
  /** A flow service that is there already; else a stand-in is started. */
  readonly service?: { readonly url: string; readonly token: string };
  readonly standIn?: StandInOptions;
  /** Hard limit of an invocation of either function, in seconds. Default 300. */
  readonly timeoutSeconds?: number;
  /** From the end of a tick to the start of the next, in milliseconds. Default 2,000; a new flow makes one at once. */
  readonly tickIntervalMs?: number;
  /**
   * Starts ticks at a fixed rate instead, as the deployed schedule does: also while the last one goes on, and none when
   * a flow was created. Times are from the start of the pipeline and from one tick to the next, in milliseconds.
   */
  readonly fixedTicks?: { readonly firstAfterMs: number; readonly intervalMs: number };
  /** Invocations of create-flow at a time. Default 2; 5 are deployed by default. */
  readonly createConcurrency?: number;
  /** Told of every object created or removed in any of the buckets, after everything here has been told. */
  readonly onS3Event?: (record: S3EventRecord) => void;
  /**
   * Told of every request to AWS that a function makes, in IAM's words: what its role must allow, with what conditions
   * may ask of.
   */
  readonly onCall?: (
    name: FunctionName,
    action: string,
    resource: string,
    context: Readonly<Record<string, string>>,
  ) => void;
  /** Told of every line that a function prints. */
  readonly onLog?: (name: FunctionName, line: string) => void;
  /** Told of every invocation that failed as a whole. */
  readonly onFault?: (name: FunctionName, error: unknown) => void;
  /** Told of every message that was received too often; it holds the notification. */
  readonly onDeadLetter?: (body: string) => void;
}

/** Everything that AWS does around the two functions, running in this process. */
export interface Pipeline {
  readonly s3Endpoint: string;
  /** For the three buckets; closed with the pipeline. */
  readonly s3: S3Client;
  readonly queue: Queue;
  readonly deadLetters: Queue;
  readonly secrets: SecretStore;
  /** Absent where a service was given. */
  readonly standIn: StandInFlowService | undefined;
  readonly functions: Readonly<Record<FunctionName, LocalFunction>>;
  /**
   * Takes up a state directory that was used before. The notification of every object in the inbox is played once
   * more, since what the queue held is lost; uploads that were dealt with are recognised as such.
   */
  resume(): Promise<void>;
  /** Ends everything at once, running invocations included. What is in the state directory stays. */
  close(): Promise<void>;
}

/**
 * Starts the pipeline: bucket, queue, functions, schedule and, where none is given, a flow service, connected as the
 * stack connects them. The functions are the bundles that are deployed; only the SDK's endpoint variables differ.
 */
export async function startPipeline(options: PipelineOptions): Promise<Pipeline> {
  const { timeoutSeconds = TIMEOUT_SECONDS, createConcurrency = CREATE_CONCURRENCY, fixedTicks } = options;
  const { onLog, onFault = () => {} } = options;
  const closing: (() => unknown)[] = [];
  const close = async () => {
    for (const step of closing.splice(0).reverse()) await step();
  };
  try {
    const clock = systemClock;
    const deadLetters = new Queue({ name: 'uploads-dead', clock });
    const queue = new Queue({
      name: 'uploads',
      clock,
      visibilityTimeoutSeconds: timeoutSeconds + VISIBILITY_MARGIN_SECONDS,
      deadLetters: { queue: deadLetters, maxReceiveCount: MAX_RECEIVE_COUNT },
    });

    let schedule: Schedule | undefined;
    const note = (accessKeyId: string | undefined, action: string, resource: string, context = {}): true => {
      const name = FUNCTION_NAMES.find((each) => accessKeyId === accessKeyOf(each));
      if (name !== undefined) options.onCall?.(name, action, resource, context);
      return true;
    };
    const embedded = new EmbeddedS3({
      authorize: ({ accessKeyId, action, resource, context }) => note(accessKeyId, action, resource, context),
      ...(options.stateDir !== undefined && { dir: join(options.stateDir, 's3') }),
      onEvent(record) {
        const bucket = record.s3.bucket.name;
        const created = record.eventName.startsWith('ObjectCreated:');
        if (created && bucket === INBOX_BUCKET) queue.send(JSON.stringify({ Records: [record] }));
        // A flow was created, and somebody watches: it does not wait for the next tick.
        if (created && bucket === LEDGER_BUCKET && record.s3.object.key.startsWith('running/')) schedule?.wake();
        options.onS3Event?.(record);
      },
    });
    closing.push(() => embedded.close());
    ensureBucket(embedded, INBOX_BUCKET, { versioning: 'Enabled' });
    ensureBucket(embedded, RESULTS_BUCKET);
    ensureBucket(embedded, LEDGER_BUCKET);
    const s3Server = await serveS3(embedded);
    closing.push(() => s3Server.close());
    const s3 = new S3Client({
      endpoint: s3Server.endpoint,
      region: 'us-east-1',
      credentials: { accessKeyId: 'local-access-key', secretAccessKey: 'local-secret-key' },
      // The embedded S3 is in this process: there is no wire on which a byte could change.
      responseChecksumValidation: 'WHEN_REQUIRED',
    });
    closing.push(() => s3.destroy());

    const queues = await serveQueues([queue, deadLetters], ({ accessKeyId, action }) =>
      note(accessKeyId, action, queue.name),
    );
    closing.push(() => queues.close());

    let service = options.service;
    let standIn: StandInFlowService | undefined;
    if (!service) {
      const started = new StandInFlowService({ tokens: [STAND_IN_TOKEN], ...options.standIn });
      closing.push(() => started.close());
      const server = await serveFlowService(started);
      closing.push(() => server.close());
      standIn = started;
      service = { url: `${server.url}${options.standIn?.basePath ?? ''}`, token: STAND_IN_TOKEN };
    }
    const secrets = new SecretStore({ clock });
    secrets.put(TOKEN_SECRET, service.token);
    const secretsServer = await serveSecrets(secrets, ({ accessKeyId, action }) =>
      note(accessKeyId, action, TOKEN_SECRET),
    );
    closing.push(() => secretsServer.close());
    const events = new EventBus();
    const eventsServer = await serveEvents(events, ({ accessKeyId, action, input }) => {
      for (const { Source } of (input as { Entries: PublishedEvent[] }).Entries) {
        note(accessKeyId, action, EVENT_BUS, { 'events:source': Source });
      }
    });
    closing.push(() => eventsServer.close());

    const env: Env = {
      PIPELINE: options.name ?? 'local',
      FLOW_SERVICE_URL: service.url,
      TOKEN_SECRET_ID: TOKEN_SECRET,
      INBOX_BUCKET,
      RESULTS_BUCKET,
      LEDGER_BUCKET,
      QUEUE_URL: queues.urlOf(queue),
      COLLECT_FUNCTION: 'collect-outputs',
      EVENT_BUS,
      ROUTES: JSON.stringify(options.routes),
      SETTINGS: JSON.stringify({ pollIntervalSeconds: 1, ...options.settings }),
    };
    const environment = {
      ...env,
      AWS_ENDPOINT_URL_S3: s3Server.endpoint,
      AWS_ENDPOINT_URL_SQS: queues.endpoint,
      AWS_ENDPOINT_URL_SECRETS_MANAGER: secretsServer.endpoint,
      AWS_ENDPOINT_URL_EVENTBRIDGE: eventsServer.endpoint,
    };
    const localFunction = (name: FunctionName, concurrency: number) =>
      new LocalFunction(
        {
          name,
          bundleDir: join(options.bundleDir, name),
          environment: { ...environment, AWS_ACCESS_KEY_ID: accessKeyOf(name) },
          timeoutSeconds,
          memoryMiB: MEMORY_MIB,
          onLog: (line) => onLog?.(name, line),
        },
        { concurrency },
      );
    const functions = {
      'create-flow': localFunction('create-flow', createConcurrency),
      'collect-outputs': localFunction('collect-outputs', fixedTicks === undefined ? 1 : FIXED_TICKS_CONCURRENCY),
    };

    let isClosing = false;
    const faultOf = (name: FunctionName) => (error: unknown) => {
      if (!isClosing) onFault(name, error);
    };
    const source = new EventSource({
      queue,
      clock,
      concurrency: createConcurrency,
      invoke: (event) => functions['create-flow'].invoke(event),
      onFault: faultOf('create-flow'),
    });
    const { onDeadLetter } = options;
    const dead =
      onDeadLetter &&
      new EventSource({
        queue: deadLetters,
        clock,
        concurrency: 1,
        invoke: async ({ Records }) => {
          for (const { body } of Records) onDeadLetter(body);
        },
        onFault: faultOf('create-flow'),
      });
    const ticks = { clock, invoke: () => functions['collect-outputs'].invoke({}), onFault: faultOf('collect-outputs') };
    if (fixedTicks === undefined) {
      schedule = new Schedule({ ...ticks, intervalMs: options.tickIntervalMs ?? TICK_INTERVAL_MS });
    }
    const fixedRate = fixedTicks && new FixedRate({ ...ticks, ...fixedTicks });
    closing.push(async () => {
      isClosing = true;
      const loops = [source.close(), dead?.close(), schedule?.close(), fixedRate?.close()];
      await Promise.all(Object.values(functions).map((each) => each.close()));
      await Promise.all(loops);
    });

    return {
      s3Endpoint: s3Server.endpoint,
      s3,
      queue,
      deadLetters,
      secrets,
      standIn,
      functions,
      resume: () => resume(s3, queue),
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Each function signs with a key of its own, so that the services can tell who asks. */
const accessKeyOf = (name: FunctionName): string => `local-${name}`;

function ensureBucket(s3: EmbeddedS3, name: string, options: { readonly versioning?: 'Enabled' } = {}): void {
  try {
    s3.createBucket(name, options);
  } catch (error) {
    if (!(error instanceof S3Error && error.code === 'BucketAlreadyOwnedByYou')) throw error;
  }
}

/** Nobody else uses these buckets: what is current in the inbox is told of again, and a lease in the ledger is nobody's. */
async function resume(s3: S3Client, queue: Queue): Promise<void> {
  await s3.send(new DeleteObjectCommand({ Bucket: LEDGER_BUCKET, Key: collectorKey(0) }));
  const pages = new Inbox(s3, systemClock).pages(INBOX_BUCKET, '', undefined, new AbortController().signal);
  for await (const { uploads } of pages) {
    for (const upload of uploads) if (upload.isCurrent) queue.send(messageFor(upload));
  }
}
