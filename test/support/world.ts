import { randomUUID } from 'node:crypto';
import {
  DeleteObjectCommand,
  GetObjectCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  type PutObjectCommandInput,
  type S3Client,
  type S3ClientConfig,
} from '@aws-sdk/client-s3';
import type { SecretsManagerClient } from '@aws-sdk/client-secrets-manager';
import { onTestFinished } from 'vitest';
import { type Clock, systemClock } from '../../functions/base/clock.ts';
import { type Invocation, withinInvocation } from '../../functions/base/invocation.ts';
import type { Json } from '../../functions/base/json.ts';
import { type LogFields, logTo, type MetricName } from '../../functions/base/telemetry.ts';
import { collect, collectOutputs, type TickSummary } from '../../functions/collect-outputs/collect-outputs.ts';
import type { CollectorShare } from '../../functions/collect-outputs/collector.ts';
import { type BatchResponse, createFlows } from '../../functions/create-flow/batch.ts';
import { downloadAsset } from '../../functions/flow-service/asset-download.ts';
import { createFlowService } from '../../functions/flow-service/client.ts';
import { httpTransport } from '../../functions/flow-service/http-transport.ts';
import { Pacer } from '../../functions/flow-service/pacer.ts';
import type { ServiceDescription } from '../../functions/flow-service/service-description.ts';
import type { Transport } from '../../functions/flow-service/transport.ts';
import type { FlowService } from '../../functions/flow-service/types.ts';
import { collectOutputsPorts } from '../../functions/lambda/ports.ts';
import { SecretToken } from '../../functions/lambda/token.ts';
import type { Entry } from '../../functions/ledger/entry.ts';
import { parseWaitingKey } from '../../functions/ledger/keys.ts';
import { retryUploads } from '../../functions/operator/retry.ts';
import { ChainNotes } from '../../functions/publish/chain-notes.ts';
import type { CompletionEvent } from '../../functions/publish/completion-event.ts';
import type { Receipt } from '../../functions/publish/report-schemas.ts';
import { s3Client } from '../../functions/s3/client.ts';
import type { Settings } from '../../functions/settings/environment.ts';
import { type PipelineSettings, SETTINGS_DEFAULT } from '../../functions/settings/settings.ts';
import { continueSweep, type SweepReport } from '../../functions/sweep/sweep.ts';
import type { SweepSummary } from '../../functions/sweep/sweep-run.ts';
import type { Route } from '../../functions/uploads/route.ts';
import type { GivenOverrides } from '../../functions/uploads/route-snapshot.ts';
import type { Versioning } from '../../local/aws/s3/catalog.ts';
import type { S3EventRecord } from '../../local/aws/s3/events.ts';
import { serveS3 } from '../../local/aws/s3/http.ts';
import { s3RequestHandler } from '../../local/aws/s3/request-handler.ts';
import { EmbeddedS3, type S3Options } from '../../local/aws/s3/s3.ts';
import { Queue } from '../../local/aws/sqs.ts';
import type { Operation } from '../../local/flow-service/call.ts';
import type { Fault } from '../../local/flow-service/fault.ts';
import { StandInFlowService, type StandInOptions } from '../../local/flow-service/flow-service.ts';
import { serveFlowService } from '../../local/flow-service/http.ts';
import { withoutIdleSteps } from './idle-steps.ts';
import { inProcessTransport } from './in-process-transport.ts';
import { descriptionOf } from './speaking.ts';
import { VirtualTime } from './virtual-time.ts';

export const INBOX = 'inbox';
export const RESULTS = 'results';
export const LEDGER = 'ledger';
export const TOKEN = 'obviously-fake-token';
export const SECOND = 1_000;
export const MINUTE = 60 * SECOND;
export const HOUR = 60 * MINUTE;
export const DAY = 24 * HOUR;
const CREDENTIALS = { region: 'us-east-1', credentials: { accessKeyId: 'fake', secretAccessKey: 'fake' } };

/** A route that takes any file. Its flows return the bytes of the file. */
export const ECHO: Route = { name: 'echo', input: 'file', template: 'bytes_echo' };

/** An answer of the service in JSON. */
export const answer = (body: unknown, status = 200): Fault => ({
  status,
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify(body),
});

export interface WorldOptions {
  readonly routes?: readonly Route[];
  readonly settings?: Partial<PipelineSettings>;
  /** What differs in the description of the service. Default: nothing but the variation of the stand-in. */
  readonly speaks?: Json;
  /** The description of the service, if it is not that of the stand-in flow service. */
  readonly describes?: ServiceDescription;
  /** Days after which assets would expire. Default: they get no tag for that. */
  readonly resultsRetentionDays?: number | undefined;
  /** Default: writes rely on the default encryption of the buckets. */
  readonly encryption?: Settings['encryption'];
  readonly versioning?: Versioning | undefined;
  readonly resultsVersioning?: Versioning | undefined;
  readonly service?: Omit<StandInOptions, 'clock' | 'tokens'>;
  readonly s3?: Pick<S3Options, 'conflict' | 'authorize' | 'keysMax'>;
  /** The base URL that the functions have, and their transport. Default: those of the stand-in service. */
  readonly baseUrl?: URL;
  readonly transport?: (direct: Transport, service: URL) => Transport;
  /**
   * Time passes at once, and only during invocations. S3 and the service are then called in this process, without
   * sockets, and a test may wait for nothing but this clock. Default false.
   */
  readonly isVirtual?: boolean;
}

/** The time of a world, which a test can move on by hand. */
interface WorldClock extends Clock {
  advance(ms: number): void;
  /** Runs an invocation. */
  during<T>(body: () => Promise<T>): Promise<T>;
}

/** The system's clock, which a test can move on. */
class MovableClock implements WorldClock {
  #offset = 0;
  now(): number {
    return Date.now() + this.#offset;
  }
  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return systemClock.sleep(ms, signal);
  }
  advance(ms: number): void {
    this.#offset += ms;
  }
  during<T>(body: () => Promise<T>): Promise<T> {
    return body();
  }
}

/** The servers of a world, and how the functions reach them. */
interface Servers {
  readonly service: StandInFlowService;
  readonly s3: S3ClientConfig;
  readonly serviceUrl: URL;
  readonly transport: Transport;
  close(): Promise<void>;
}

/** Starts the servers of a world. @param onEvent hears of every event of the embedded S3. */
async function startServers(
  options: WorldOptions,
  clock: Clock,
  onEvent: (record: S3EventRecord) => void,
): Promise<Servers> {
  const { isVirtual = false } = options;
  const embedded = new EmbeddedS3({ clock, onEvent, ...options.s3 });
  embedded.createBucket(
    INBOX,
    'versioning' in options ? { versioning: options.versioning } : { versioning: 'Enabled' },
  );
  embedded.createBucket(RESULTS, { versioning: options.resultsVersioning });
  embedded.createBucket(LEDGER);
  const service = new StandInFlowService({ flowMs: MINUTE, ...options.service, clock, tokens: [TOKEN] });
  const s3Server = isVirtual ? undefined : await serveS3(embedded, { credentials: [CREDENTIALS.credentials] });
  const flowServer = isVirtual ? undefined : await serveFlowService(service);
  const s3 = s3Server === undefined ? inThisProcess(embedded) : { endpoint: s3Server.endpoint };
  if (isVirtual) {
    loading ??= loadSdk();
    await loading;
  }
  return {
    ...{ service, s3, serviceUrl: new URL(flowServer?.url ?? 'https://flows.test') },
    transport: isVirtual ? inProcessTransport(service, clock) : httpTransport({ clock }),
    async close() {
      await flowServer?.close();
      await s3Server?.close();
      service.close();
      embedded.close();
    },
  };
}

const inThisProcess = (embedded: EmbeddedS3): S3ClientConfig => ({
  endpoint: 'http://s3.test',
  forcePathStyle: true,
  requestHandler: s3RequestHandler(embedded),
  // Nobody checks a signature there, and signing takes a tenth of the time of a test.
  signer: { sign: async (request: unknown) => request } as unknown as NonNullable<S3ClientConfig['signer']>,
});

let loading: Promise<void> | undefined;

/** The SDK loads parts of itself at its first calls, and virtual time would not wait for that. */
async function loadSdk(): Promise<void> {
  const embedded = new EmbeddedS3({ clock: systemClock });
  embedded.createBucket(LEDGER);
  const s3 = s3Client({ ...CREDENTIALS, ...inThisProcess(embedded) });
  const where = { Bucket: LEDGER, Key: 'first' };
  await s3.send(new PutObjectCommand({ ...where, Body: Buffer.from('x') }));
  const { Body } = await s3.send(new GetObjectCommand(where));
  await Body?.transformToString();
  await s3.send(new DeleteObjectCommand(where));
  s3.destroy();
  embedded.close();
}

function settingsOf(options: WorldOptions, baseUrl: URL): Settings {
  const { settings, routes, service, speaks, describes, resultsRetentionDays } = options;
  return {
    resultsRetentionDays,
    ...SETTINGS_DEFAULT,
    // A tick makes one round only, so the test decides how much time passes.
    pollIntervalSeconds: 60,
    ...settings,
    pipeline: 'test',
    baseUrl,
    tokenSecretId: 'token',
    inboxBucket: INBOX,
    resultsBucket: RESULTS,
    ledgerBucket: LEDGER,
    queueUrl: 'unused',
    collectFunction: 'test-collect-outputs',
    command: 'flowdrop',
    eventBus: 'default',
    monitoring: 'full',
    service: describes ?? descriptionOf(service?.variation, speaks),
    proxies: {},
    routes: routes ?? [ECHO],
  };
}

/** What most calls of S3 have, as far as tests look at it. */
interface S3Input {
  readonly Bucket?: string;
  readonly Key?: string;
  readonly Body?: string;
  readonly Prefix?: string;
}

/** A request for a pass of the sweep, as an operator writes it. */
interface SweepEvent {
  readonly since?: string;
  readonly dryRun?: boolean;
  readonly force?: boolean;
  readonly stop?: boolean;
  readonly status?: boolean;
  readonly uploadsPerSecond?: number;
}

/** Starts a world that closes when its test ends. */
export async function openWorld(options?: WorldOptions): Promise<World> {
  const world = await World.start(options);
  onTestFinished(() => world.close());
  return world;
}

/** The world of the present test: the one that {@link start} opened last. */
export let world: World;

/** Opens the {@link world} of a test. Time is virtual, unless the options say otherwise. */
export async function start(options?: WorldOptions): Promise<void> {
  world = await openWorld({ isVirtual: true, ...options });
}

/**
 * Makes calls of a method of a port fail, as if the invocation died there.
 * @param from the number of the first call that fails. Default 1.
 * @returns lets calls through again.
 */
export function dyingAt<T extends object>(port: T, method: keyof T & string, from = 1): () => void {
  const original = port[method];
  let calls = 0;
  port[method] = ((...args: readonly unknown[]) => {
    calls += 1;
    if (calls >= from) return Promise.reject(new Error('killed'));
    return Reflect.apply(original as (...args: readonly unknown[]) => unknown, port, args);
  }) as typeof original;
  return () => {
    port[method] = original;
  };
}

/**
 * Both functions in this process, with the embedded S3 and the stand-in service over HTTP on loopback. The test plays the
 * event source of the queue and the schedule, one step at a time.
 */
export class World {
  readonly clock: WorldClock;
  readonly s3: S3Client;
  readonly service: StandInFlowService;
  readonly queue: Queue;
  readonly deadLetters: Queue;
  ports: ReturnType<typeof collectOutputsPorts>;
  readonly #deploy: (settings: Settings) => ReturnType<typeof collectOutputsPorts>;
  readonly logged: { readonly level: string; readonly message: string; readonly fields: LogFields }[] = [];
  readonly counted = new Map<MetricName, number>();
  readonly events: CompletionEvent[] = [];
  /** The secret in Secrets Manager, or the error that reading it throws. */
  token: string | Error = TOKEN;
  /** Time limit of each invocation, in milliseconds. The default is so short that no failed upload waits in place. */
  remainingMs = 20_000;
  readonly #servers: Servers;

  static async start(options: WorldOptions = {}): Promise<World> {
    let world: World | undefined;
    const clock = options.isVirtual === true ? new VirtualTime() : new MovableClock();
    const servers = await startServers(options, clock, (record) => {
      if (record.s3.bucket.name === INBOX) world?.queue.send(JSON.stringify({ Records: [record] }));
    });
    world = new World(options, clock, servers);
    return world;
  }

  private constructor(options: WorldOptions, clock: WorldClock, servers: Servers) {
    const { service, s3, serviceUrl, transport } = servers;
    this.#servers = servers;
    this.clock = clock;
    this.service = service;
    this.deadLetters = new Queue({ name: 'dead', clock });
    this.queue = new Queue({
      name: 'uploads',
      clock,
      visibilityTimeoutSeconds: 120,
      deadLetters: { queue: this.deadLetters, maxReceiveCount: 5 },
    });
    const client = s3Client({ ...s3, ...CREDENTIALS }, options.encryption);
    this.s3 = options.isVirtual === true ? withoutIdleSteps(client) : client;
    const settings = settingsOf(options, options.baseUrl ?? serviceUrl);
    const throughTest = options.transport?.(transport, serviceUrl) ?? transport;
    const pacer = new Pacer(this.clock, settings.requestsPerSecond);
    const flows = this.#flowService(settings, throughTest, pacer);
    this.#deploy = (changed) => this.#portsWith(changed, flows, pacer);
    this.ports = this.#deploy(settings);
  }

  #flowService(settings: Settings, transport: Transport, pacer: Pacer): FlowService {
    const { clock } = this;
    const secrets = {
      send: async () => {
        if (this.token instanceof Error) throw this.token;
        return { SecretString: this.token };
      },
    } as unknown as SecretsManagerClient;
    const token = new SecretToken(secrets, 'token', clock);
    return createFlowService({ download: downloadAsset, ...settings, clock, token, transport, pacer });
  }

  #portsWith(settings: Settings, flows: FlowService, pacer: Pacer): ReturnType<typeof collectOutputsPorts> {
    return collectOutputsPorts({
      settings,
      s3: this.s3,
      flows,
      pacer,
      queue: {
        send: async (message: string) => void this.queue.send(message),
        waitingCount: async () => this.queue.counts().visible,
      },
      events: { send: async (event: CompletionEvent) => void this.events.push(event) },
      clock: this.clock,
      nonce: randomUUID,
      telemetry: {
        log: logTo((level, message, fields) => this.logged.push({ level, message, fields })),
        metrics: {
          add: (metric: MetricName, value = 1) => this.counted.set(metric, this.count(metric) + value),
        },
      },
    });
  }

  /** Deploys the functions with other settings while uploads are under way. */
  redeploy(change: Partial<Settings>): void {
    this.ports = this.#deploy({ ...this.ports.settings, ...change });
  }

  async close(): Promise<void> {
    this.s3.destroy();
    await this.#servers.close();
  }

  async upload(key: string, body: Uint8Array | string = 'x', more: Partial<PutObjectCommandInput> = {}): Promise<void> {
    await this.s3.send(new PutObjectCommand({ Bucket: INBOX, Key: key, Body: Buffer.from(body), ...more }));
  }

  async put(bucket: string, key: string, body: string, metadata: Record<string, string> = {}): Promise<void> {
    await this.s3.send(new PutObjectCommand({ Bucket: bucket, Key: key, Body: Buffer.from(body), Metadata: metadata }));
  }

  async remove(key: string, bucket = INBOX): Promise<void> {
    await this.s3.send(new DeleteObjectCommand({ Bucket: bucket, Key: key }));
  }

  /** Takes the visible messages out of the queue, ten at most, so that nothing delivers them. Returns their bodies. */
  takeMessages(): string[] {
    return this.queue.receive({ max: 10 }).map(({ receiptHandle, body }) => {
      this.queue.delete(receiptHandle);
      return body;
    });
  }

  /**
   * Answers the calls of an operation with a fault: all of them, or the first ones. Replaces any fault before it.
   * @param fault a function makes one for each call, because a body that streams can be sent once.
   */
  fault(operation: Operation, fault: Fault | (() => Fault), callsMax = Number.POSITIVE_INFINITY): void {
    this.service.intercept = (_, call) => {
      if (call.operation !== operation || call.n > callsMax) return undefined;
      return typeof fault === 'function' ? fault() : fault;
    };
  }

  /** Acts before each call of S3, such as `GetObject`. If it throws, the call fails with that error. */
  beforeS3(act: (call: string, input: S3Input) => unknown): void {
    this.s3.middlewareStack.add(
      (next, { commandName = '' }) =>
        async (args) => {
          await act(commandName.replace('Command', ''), args.input as S3Input);
          return next(args);
        },
      { step: 'initialize' },
    );
  }

  /** Gives create-flow one batch of messages, as its event source does. Returns undefined if no message is visible. */
  async deliver(): Promise<BatchResponse | undefined> {
    const messages = this.queue.receive({ max: 10 });
    if (messages.length === 0) return undefined;
    const event = { Records: messages.map(({ messageId, body }) => ({ messageId, body, eventSource: 'aws:sqs' })) };
    // create-flow may not send to the queue. What it begins is sent by the next tick.
    const ports = { ...this.ports, chainNotes: new ChainNotes({ ...this.ports, queue: undefined }) };
    const response = await this.invoke((invocation) => createFlows(event, ports, invocation));
    const failed = new Set(response.batchItemFailures.map(({ itemIdentifier }) => itemIdentifier));
    for (const { messageId, receiptHandle } of messages) if (!failed.has(messageId)) this.queue.delete(receiptHandle);
    return response;
  }

  async deliverAll(): Promise<void> {
    while ((await this.deliver()) !== undefined);
  }

  /** Uploads a file and delivers its message. */
  async send(...upload: Parameters<World['upload']>): Promise<BatchResponse | undefined> {
    await this.upload(...upload);
    return this.deliver();
  }

  /** Delivers and ticks for five hours. In that time, a doubt that nothing settles runs out. */
  async waitOutDoubt(): Promise<void> {
    await this.deliverAndTick(5, 61 * MINUTE);
    await this.deliver();
  }

  /** Delivers and ticks so many times, and lets time pass before each tick. */
  async deliverAndTick(times: number, ms: number): Promise<void> {
    for (let i = 0; i < times; i += 1) {
      await this.deliverAll();
      await this.tickAfter(ms);
    }
  }

  tick(share = { index: 0, of: 1 }): Promise<TickSummary> {
    return this.invoke((invocation) => collectOutputs(share, this.ports, invocation));
  }

  /** Lets time pass at once. Then one tick runs. */
  tickAfter(ms: number, share?: CollectorShare): Promise<TickSummary> {
    this.clock.advance(ms);
    return this.tick(share);
  }

  /** Invokes the collecting function. The default event is that of the schedule. */
  collect(event: object = {}): ReturnType<typeof collect> {
    return this.invoke((invocation) => collect(event, this.ports, invocation));
  }

  /** Retries the only upload of the ledger. Returns what became of the request. */
  async retry(given?: GivenOverrides): Promise<string | undefined> {
    const { id } = (await this.entry()).upload;
    const [retried] = await retryUploads([id], this.ports, new AbortController().signal, { given });
    return retried?.result;
  }

  /**
   * Requests a pass of the sweep, and runs it without a tick beside it, after any pass that goes before it.
   * @returns what the run did. Undefined if another run is at work.
   */
  async sweep(request: SweepEvent = {}): Promise<SweepSummary | undefined> {
    const kind = request.dryRun ? 'dryRun' : request.since === undefined ? 'daily' : 'backfill';
    await this.requestSweep(request);
    for (;;) {
      const run = await this.continueSweep();
      if (run === undefined || run.kind === kind || !run.complete) return run;
    }
  }

  /** The sweep's part of a tick. */
  continueSweep(): Promise<SweepSummary | undefined> {
    return this.invoke((invocation) => continueSweep(this.ports, invocation));
  }

  requestSweep(sweep: SweepEvent = {}): Promise<SweepReport> {
    return this.collect({ sweep }) as Promise<SweepReport>;
  }

  invoke<T>(body: (invocation: Invocation) => Promise<T>): Promise<T> {
    return this.clock.during(() => withinInvocation(this.remainingMs, this.clock, body));
  }

  /** Delivers and ticks, with time in between, until no upload runs, waits or is queued. */
  async settle(stepsMax = 40): Promise<void> {
    for (let step = 0; step < stepsMax; step += 1) {
      await this.deliverAll();
      await this.tick();
      const queued = Object.values(this.queue.counts()).some((count) => count > 0);
      const running = await this.keys(LEDGER, 'running/');
      const waiting = (await this.keys(LEDGER, 'waiting/')).map((key) => parseWaitingKey(key)?.notBefore ?? 0);
      if (!queued && running.length + waiting.length === 0) return;
      // If uploads only wait, nothing happens before the first of them is due.
      const dueInMs = queued || running.length > 0 ? 0 : Math.min(...waiting) - this.clock.now();
      this.clock.advance(Math.max(5 * MINUTE, dueInMs));
    }
    throw new Error(`Not settled after ${stepsMax} steps: ${(await this.keys(LEDGER)).join(', ')}`);
  }

  /** The receipt of a file, once the world has settled. */
  async settled(key: string): Promise<Receipt> {
    await this.settle();
    return this.receipt(key);
  }

  async keys(bucket: string, prefix = ''): Promise<string[]> {
    const all: string[] = [];
    let token: string | undefined;
    do {
      const page = await this.s3.send(
        new ListObjectsV2Command({ Bucket: bucket, Prefix: prefix, ContinuationToken: token }),
      );
      all.push(...(page.Contents ?? []).map(({ Key = '' }) => Key));
      token = page.NextContinuationToken;
    } while (token !== undefined);
    return all;
  }

  async object(bucket: string, key: string): Promise<{ bytes: Buffer; mediaType?: string; metadata: object }> {
    const { Body, ContentType, Metadata } = await this.s3.send(new GetObjectCommand({ Bucket: bucket, Key: key }));
    return {
      bytes: Buffer.from((await Body?.transformToByteArray()) ?? []),
      ...(ContentType === undefined ? {} : { mediaType: ContentType }),
      metadata: Metadata ?? {},
    };
  }

  async json<T>(bucket: string, key: string): Promise<T> {
    return JSON.parse((await this.object(bucket, key)).bytes.toString()) as T;
  }

  receipt(key: string): Promise<Receipt> {
    return this.json<Receipt>(RESULTS, `${key}/receipt.json`);
  }

  /** All entries of the ledger, those of the oldest uploads first. */
  async entries(): Promise<Entry[]> {
    const keys = await this.keys(LEDGER, 'uploads/');
    return Promise.all(keys.map((key) => this.json<Entry>(LEDGER, key)));
  }

  /** The only entry of the ledger. @throws {Error} if there is none, or several. */
  async entry(): Promise<Entry> {
    const [entry, ...others] = await this.entries();
    if (entry === undefined || others.length > 0) throw new Error(`Not one entry: ${JSON.stringify([entry, others])}`);
    return entry;
  }

  /** The keys of the files that flows were made of, in the order of the flows. */
  get sentKeys(): string[] {
    return this.service.flows.map(({ inputs }) => Object(inputs[0]?.additional).key as string);
  }

  count(metric: MetricName): number {
    return this.counted.get(metric) ?? 0;
  }
}
