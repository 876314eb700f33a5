import { createHash, type Hash } from 'node:crypto';
import type { SecretsManagerClient } from '@aws-sdk/client-secrets-manager';
import { type Invocation, withinInvocation } from '../../functions/base/invocation.ts';
import type { Log, LogFields, MetricName } from '../../functions/base/telemetry.ts';
import { type CollectPorts, collect } from '../../functions/collect-outputs/collect-outputs.ts';
import { createFlows } from '../../functions/create-flow/batch.ts';
import { ClaimHeldError, type CreatePorts } from '../../functions/create-flow/delivery.ts';
import { createFlowService } from '../../functions/flow-service/client.ts';
import { portsOf } from '../../functions/lambda/ports.ts';
import { SecretToken } from '../../functions/lambda/token.ts';
import type { Entry } from '../../functions/ledger/entry.ts';
import type { Settings } from '../../functions/settings/environment.ts';
import type { SweepPorts } from '../../functions/sweep/sweep.ts';
import { uploadsOf } from '../../functions/uploads/upload-event.ts';
import type { S3Access } from '../../local/aws/s3/call.ts';
import { eventBridgeEvent, testEvent } from '../../local/aws/s3/events.ts';
import { EmbeddedS3, type S3EventRecord } from '../../local/aws/s3/s3.ts';
import { Queue, type ReceivedMessage } from '../../local/aws/sqs/queue.ts';
import { StandInFlowService } from '../../local/flow-service/flow-service.ts';
import { backfillScenarioOf } from './backfill.ts';
import { Violation } from './demand.ts';
import { type CallKind, type Fault, FaultPlan, focusOf, isAccounts, type ServiceCallKind } from './faults.ts';
import { Inspector } from './inspector.ts';
import { Lambda } from './lambda.ts';
import { limitedScenarioOf } from './limits.ts';
import { OrderChecker } from './order-checker.ts';
import { poisonedScenarioOf } from './poison.ts';
import { Random } from './random.ts';
import { frozenFor, type SimulatedS3, s3ClientOf } from './s3.ts';
import { type Change, CORRECTED_ROUTES, LOWERED_SETTINGS, type Scenario, scenarioOf } from './scenario.ts';
import { type SimulatedService, transportOf } from './service.ts';
import { Timeline } from './timeline.ts';
import { oddId, withTroubles } from './troubles.ts';

export const INBOX = 'inbox';
/** The bucket that may become the inbox instead. */
export const NEXT_INBOX = 'inbox-next';
export const RESULTS = 'results';
export const LEDGER = 'ledger';
export const PIPELINE = 'simulated';
/** What the pipeline may be called from some time on. */
export const NEXT_PIPELINE = 'renamed';
const BASE_URL = new URL('https://flows.example');

const SECOND = 1_000;
const MINUTE = 60 * SECOND;

/** When every simulation begins. */
const START = Date.UTC(2030, 0, 1);

/** Invocations of create-flow at a time: its event source's maximum concurrency. */
export const CREATES_MAX = 3;

/** How long anything may take to come to an end once all is well again. */
const HEALING_STEPS_MAX = 120;

/** For so long, in milliseconds, a `Retry-After` surely holds back all requests of a process and a kind. */
const HELD_BACK_MS = 2 * SECOND;

type Ports = CreatePorts & CollectPorts & SweepPorts;

/** What each call of another service than S3 is in IAM's words. */
const SIMPLE_CALLS = {
  'secret.read': { action: 'secretsmanager:GetSecretValue', resource: 'token' },
  'queue.send': { action: 'sqs:SendMessage', resource: 'uploads' },
  'event.send': { action: 'events:PutEvents', resource: 'default' },
} as const;

/** An upload as whoever put it knows it. */
export interface Put {
  readonly bucket: string;
  readonly key: string;
  readonly versionId: string | undefined;
  readonly etag: string;
  /** In whole seconds, as milliseconds. */
  readonly lastModified: number;
  readonly content: Buffer;
  /** Whether a notification of it was ever delivered to the queue. */
  isNotified: boolean;
}

export interface Logged {
  readonly level: string;
  readonly message: string;
  readonly fields: LogFields;
}

export interface Published {
  readonly detailType: string;
  readonly detail: string;
}

/** A permission that a function's call to AWS needs. What it is of has the name that it has here. */
export type NeededPermission = Pick<S3Access, 'action' | 'resource'> &
  Partial<S3Access> & { readonly by: 'create' | 'collect' };

interface Environment {
  readonly lambda: Lambda;
  readonly ports: Ports;
  readonly token: SecretToken;
  /** Which of the deployments it is of. */
  readonly generation: number;
}

/** The keys that the messages speak of, each as often as they do. */
const keysIn = (messages: readonly ReceivedMessage[]): readonly string[] =>
  messages.flatMap(({ body }) => uploadsOf(JSON.parse(body)).map(({ key }) => key));

/** The flow that a request looks at, out of its path. */
function lookedAtIn(kind: CallKind, path: string): string | undefined {
  if (kind !== 'flow.get' && kind !== 'flow.outputs') return undefined;
  const id = /^\/(?:flows\/)?([^/?]+)(?:\/outputs)?(?:\?.*)?$/.exec(path)?.[1];
  return id === undefined ? undefined : decodeURIComponent(id);
}

/** Until when an answer asks to be left alone, in milliseconds since the epoch; 0 where it does not. */
function retryAfterIn({ 'retry-after': text }: Readonly<Record<string, string>>, now: number): number {
  if (text === undefined) return 0;
  return /^\d+$/.test(text) ? now + Number(text) * SECOND : Date.parse(text);
}

/** What a seed's world is: two thirds are storms, among them all that have a focus. */
function scenarioFor(seed: number): Scenario {
  const round = Math.floor(seed / 10);
  if (seed % 10 === 3) return limitedScenarioOf(new Random(seed, 1), 2 * round);
  if (seed % 10 === 9) return limitedScenarioOf(new Random(seed, 1), 2 * round + 1);
  if (seed % 20 === 5) return backfillScenarioOf(new Random(seed, 1));
  if (seed % 10 === 7) return poisonedScenarioOf(new Random(seed, 1));
  return withTroubles(scenarioOf(new Random(seed, 1), focusOf(seed)), new Random(seed, 7));
}

/** What happened to one call of the service, as far as the invariants ask. */
export interface ServiceIncident {
  readonly kind: CallKind;
  readonly path: string;
  readonly fault: Fault;
  /** Of the uploads that the caller was to create flows of. */
  readonly keys: ReadonlySet<string>;
}

/**
 * A seed's world: both functions with everything around them, in virtual time.
 *
 *   chaos: uploads, notifications, ticks and everything that can go wrong ──▶ healing: nothing goes wrong any more,
 *   and time passes until nothing is left to do ──▶ the invariants are looked at
 */
export class World {
  readonly scenario: Scenario;
  readonly timeline = new Timeline(START);
  readonly faultPlan: FaultPlan;
  readonly s3: EmbeddedS3;
  readonly inspector: Inspector;
  readonly service: StandInFlowService;
  readonly queue: Queue;
  readonly deadLetters: Queue;
  readonly puts: Put[] = [];
  readonly logged: Logged[] = [];
  readonly counted = new Map<MetricName, number>();
  readonly published: Published[] = [];
  /** When the end of an upload at a key was first told of, by the keys. */
  readonly toldAt = new Map<string, number>();
  readonly thrown: unknown[] = [];
  readonly tokens: string[];
  readonly incidents: ServiceIncident[] = [];
  readonly orderChecker: OrderChecker;
  /** Multipart uploads of which a process was told that they are begun, and by their ids which one. */
  readonly begun = new Map<string, Lambda>();
  /** Ids of the multipart uploads that somebody tried to abort. */
  readonly abortTried = new Set<string>();
  /** How often each asset's key was written in the results bucket. */
  readonly resultWrites = new Map<string, number>();
  /** How often the entry of an upload expired, by the upload's id. */
  readonly expired = new Map<string, number>();
  /** The upload whose entry was damaged. */
  damaged: Entry['upload'] | undefined;
  /** When the configuration was changed, and in what. */
  readonly deployedAt = new Map<Change, number>();
  /** Uploads that were retried when all was well, by their ids, with the generation that they had then. */
  readonly retriedWhenWell = new Map<string, number>();
  /** Uploads whose held doubt a person settled: where there was a flow, there are two then. */
  readonly releasedByHand = new Set<string>();
  /** What the service answered to every look at a flow, and when, by the flow's id. */
  readonly answers = new Map<string, { readonly status: number; readonly at: number }[]>();
  /** Until when the service asked to be left alone, with what is no creation. */
  leftAloneUntil = 0;
  /** When a process first learnt that a flow has ended, where the service only has limits. */
  firstEndSeenAt: number | undefined;
  /** Requests of a process that were sent although one of the same kind had just been asked to come later. */
  sentInSpite = 0;
  /** Which flows were looked at, and when last. */
  readonly lookedAt = new Map<string, number>();
  /** What became of each tick; nothing where its process was killed. */
  readonly ticks: { readonly startedAt: number; endedAt?: number; result?: string; rounds?: number }[] = [];
  /** Faults that may count as failures of a file, by the keys that the invocation was at which they happened to. */
  readonly blame = new Map<string, number>();
  /** Whether any process was frozen, so that a claim may have been taken over while its holder was still there. */
  wasAnyFrozen = false;
  /** Ids of the flows, or of flows and assets, that meet a fault for ever, encoded as in a path. */
  readonly poisoned = new Set<string>();
  /** What a steady world was measured to take, for the trace. */
  figures: unknown;
  readonly stats = { invocations: 0, kills: 0, retriesByPeople: 0 };
  readonly #random: Random;
  readonly #network: Random;
  readonly #ids: Random;
  readonly #neighbours: Random;
  readonly #changes: Random;
  /** Counts the deployments. */
  #generation = 0;
  readonly #trace: Hash = createHash('sha256');
  readonly #onTrace: ((line: string) => void) | undefined;
  readonly #onCall: ((call: NeededPermission) => void) | undefined;
  #settings: Settings;
  #secret: string;
  #isHealing = false;
  #idle: { create: Environment[]; collect: Environment[] } = { create: [], collect: [] };
  readonly #lambdas: Lambda[] = [];
  #creating = 0;
  /** What each process of create-flow is, or was last, at. */
  readonly #keys = new Map<Lambda, ReadonlySet<string>>();
  #running = 0;
  /** Notifications on their way to the queue. */
  #onTheWay = 0;
  readonly #messages: string[] = [];
  /** Until when a process is to send no request of a kind. */
  readonly #heldBackUntil = new Map<string, number>();

  constructor(seed: number, onTrace?: (line: string) => void, onCall?: (call: NeededPermission) => void) {
    this.#onTrace = onTrace;
    this.#onCall = onCall;
    this.scenario = scenarioFor(seed);
    this.#random = new Random(seed, 2);
    this.#network = new Random(seed, 3);
    this.#ids = new Random(seed, 4);
    this.#neighbours = new Random(seed, 8);
    this.#changes = new Random(seed, 9);
    const { scenario, timeline } = this;
    this.faultPlan = new FaultPlan(new Random(seed, 5), scenario.faultPlan);
    this.orderChecker = new OrderChecker(() => timeline.now(), {
      takeOver: () => this.wasAnyFrozen || scenario.isSkewWild,
      loseLease: () =>
        this.wasAnyFrozen ||
        scenario.skewMs > 0 ||
        scenario.suddenDeaths > 0 ||
        Object.keys(this.faultPlan.table).some((pair) => pair.startsWith('lease.')),
    });
    this.s3 = new EmbeddedS3({
      clock: timeline,
      keysMax: scenario.keysMax,
      onEvent: (record) => this.#onS3Event(record),
      authorize: (access) => {
        // Whoever tests asks in nobody's name.
        const { accessKeyId: name } = access;
        const resource = access.resource.replace(NEXT_INBOX, INBOX);
        if (name !== undefined) onCall?.({ by: name.startsWith('create') ? 'create' : 'collect', ...access, resource });
        return true;
      },
    });
    for (const inbox of [INBOX, NEXT_INBOX]) {
      this.s3.createBucket(inbox, scenario.versioning === undefined ? {} : { versioning: scenario.versioning });
    }
    this.s3.createBucket(RESULTS);
    this.s3.createBucket(LEDGER);
    this.inspector = new Inspector(this.s3);
    this.tokens = [`fake-token-${this.#ids.hex(16)}`];
    this.#secret = this.tokens[0] as string;
    const durations = new Random(seed, 6);
    this.service = new StandInFlowService({
      clock: timeline,
      random: () => this.#ids.next(),
      ...(scenario.hasOddIds ? { newId: () => oddId(this.#ids) } : {}),
      tokens: this.tokens,
      flowMs: ({ template }) =>
        (template === 'text' ? scenario.textFlowMs : undefined) ??
        durations.int(scenario.flowMsMin, scenario.flowMsMax),
      limits: scenario.serviceLimits,
      variation: scenario.variation,
    });
    const clock = { now: () => timeline.now(), sleep: () => Promise.reject(new Error('Nobody waits at the queue')) };
    this.deadLetters = new Queue({ name: 'dead', clock });
    this.queue = new Queue({
      name: 'uploads',
      clock,
      visibilityTimeoutSeconds: scenario.visibilitySeconds,
      deadLetters: { queue: this.deadLetters, maxReceiveCount: scenario.receivesMax },
    });
    this.#settings = {
      ...scenario.settings,
      pipeline: PIPELINE,
      baseUrl: BASE_URL,
      tokenSecretId: 'token',
      inboxBucket: INBOX,
      resultsBucket: RESULTS,
      ledgerBucket: LEDGER,
      queueUrl: 'unused',
      collectFunction: 'collect',
      routes: scenario.routes,
    } as Settings;
  }

  /** Today's inbox. */
  get inbox(): string {
    return this.#settings.inboxBucket;
  }

  /** Processes that were ever started, of both functions. */
  get processCount(): number {
    return this.#lambdas.length;
  }

  get traceHash(): string {
    return this.#trace.copy().digest('hex');
  }

  trace(line: string): void {
    const stamped = `${((this.timeline.now() - START) / SECOND).toFixed(3)} ${line}`;
    this.#trace.update(`${stamped}\n`);
    this.#onTrace?.(stamped);
  }

  // ---------------------------------------------------------------- chaos

  /** Everything that happens while things go wrong. */
  async chaos(): Promise<void> {
    const { scenario, timeline } = this;
    // The first tick of a deployment marks its first day; it is not what is tested here.
    await this.#complete(this.#startCollect({}));
    this.faultPlan.isClear = false;

    for (const step of scenario.steps) {
      timeline.schedule(START + 20 * MINUTE + step.at, () => void this.#do(step));
    }
    for (const { at, secretAt } of scenario.rotations) {
      const token = `fake-token-${this.#ids.hex(16)}`;
      timeline.schedule(START + 20 * MINUTE + at, () => {
        if (this.#isHealing) return;
        this.trace('the service takes another token');
        this.service.setTokens([token]);
        this.tokens.push(token);
      });
      timeline.schedule(START + 20 * MINUTE + secretAt, () => {
        if (!this.#isHealing) this.#secret = token;
      });
    }
    await timeline.run(() => false, START + 20 * MINUTE - 1);
    const end = timeline.now() + scenario.chaosMs;
    this.#every({ min: SECOND, max: 20 * SECOND }, end, () => this.#deliver());
    for (let index = 0; index < scenario.collectors; index += 1) {
      this.#every(scenario.tickGapMs, end, () => {
        void this.#startCollect({ collector: { index, of: scenario.collectors } });
      });
    }
    if (scenario.isLossy) {
      this.#every(scenario.sweepGapMs, end, () => void this.#startCollect({ sweep: {} }));
    }
    for (const { at, what } of scenario.changes) {
      timeline.schedule(START + 20 * MINUTE + at, () => this.#deploy(what));
    }
    for (const at of scenario.expiriesAt) timeline.schedule(START + 20 * MINUTE + at, () => void this.#expireOne());
    if (scenario.damageAt !== undefined) {
      timeline.schedule(START + 20 * MINUTE + scenario.damageAt, () => void this.#damageOne());
    }
    for (const at of scenario.backfillsAt) {
      const since = new Date(START).toISOString();
      timeline.schedule(START + 20 * MINUTE + at, () => void this.#startCollect({ sweep: { since } }));
    }
    if (scenario.areRetried) this.#every({ min: 2 * MINUTE, max: 8 * MINUTE }, end, () => this.#retryOne());
    if (scenario.hasNeighbours) this.#every({ min: 30 * SECOND, max: 5 * MINUTE }, end, () => this.#neighbourCreates());
    await timeline.run(() => false, end);
  }

  #every(gap: { readonly min: number; readonly max: number }, end: number, act: () => void): void {
    const { timeline } = this;
    const again = (): void => {
      const at = timeline.now() + this.#random.int(gap.min, gap.max);
      if (at > end) return;
      timeline.schedule(at, () => {
        act();
        again();
      });
    };
    again();
  }

  async #do(step: Scenario['steps'][number]): Promise<void> {
    this.trace(`somebody: ${step.kind} ${step.key}`);
    if (step.kind === 'delete') await this.inspector.delete(this.inbox, step.key);
    else await this.inspector.put(this.inbox, step.key, step.content, step.mediaType);
  }

  #onS3Event(record: S3EventRecord): void {
    const { bucket, object } = record.s3;
    const key = decodeURIComponent(object.key.replaceAll('+', ' '));
    if (bucket.name === RESULTS && record.eventName.startsWith('ObjectCreated')) {
      this.resultWrites.set(key, (this.resultWrites.get(key) ?? 0) + 1);
    }
    if (bucket.name !== INBOX && bucket.name !== NEXT_INBOX) return;
    let put: Put | undefined;
    if (record.eventName.startsWith('ObjectCreated')) {
      const step = this.scenario.steps.find(
        (one) =>
          one.kind === 'put' && one.key === key && createHash('md5').update(one.content).digest('hex') === object.eTag,
      );
      put = {
        bucket: bucket.name,
        key,
        versionId: object.versionId === undefined || object.versionId === 'null' ? undefined : object.versionId,
        etag: object.eTag ?? '',
        lastModified: Math.floor(this.timeline.now() / SECOND) * SECOND,
        content: step?.kind === 'put' ? step.content : Buffer.alloc(0),
        isNotified: false,
      };
      this.puts.push(put);
    }
    this.#notify(record, put);
  }

  /** The news of an upload, as it may come: late, more than once, in another order, or, in a lossy world, never. */
  #notify(record: S3EventRecord, put: Put | undefined): void {
    const { scenario, timeline } = this;
    const random = this.#random;
    if (scenario.kind === 'backfill' && !put?.key.startsWith('two/')) return;
    if (scenario.kind !== 'storm') {
      this.#sendNews(record, put, random.int(10, SECOND));
      return;
    }
    if (random.chance(0.05)) this.queue.send(JSON.stringify(testEvent(this.inbox, timeline.now())));
    if (scenario.isLossy && random.chance(0.3)) {
      this.trace(`lost: the notification of ${record.s3.object.key}`);
      return;
    }
    const copies = random.chance(0.25) ? random.int(2, 3) : 1;
    for (let copy = 0; copy < copies; copy += 1) {
      this.#sendNews(record, put, random.chance(0.7) ? random.int(10, 3 * SECOND) : random.int(0, 8 * MINUTE));
    }
  }

  #sendNews(record: S3EventRecord, put: Put | undefined, delayMs: number): void {
    const { timeline } = this;
    const bridged = this.#random.chance(0.3) ? eventBridgeEvent(record) : undefined;
    this.#onTheWay += 1;
    timeline.schedule(timeline.now() + delayMs, () => {
      this.#onTheWay -= 1;
      const message = JSON.stringify(bridged ?? { Records: [record] });
      if (put !== undefined) put.isNotified = true;
      this.#messages.push(message);
      this.queue.send(message);
    });
  }

  // ---------------------------------------------------------------- steady trouble

  /**
   * Runs the two functions as they are deployed, a tick of each collector a minute and an event source that polls all the
   * time, until `isDone`. Returns after how many milliseconds since the first upload; undefined where `limitMs` passed.
   */
  async runSteadily(isDone: () => boolean, limitMs: number): Promise<number | undefined> {
    const { scenario, timeline } = this;
    await this.#complete(this.#startCollect({})); // As in `chaos`, the first tick of a deployment.
    const startedAt = timeline.now();
    const end = startedAt + limitMs;
    for (const step of scenario.steps) timeline.schedule(startedAt + step.at, () => void this.#do(step));
    const { lowered } = scenario;
    if (lowered !== undefined) {
      timeline.schedule(startedAt + lowered.at, () => this.service.limiter.change(lowered.limits));
    }
    this.#every({ min: SECOND, max: 3 * SECOND }, end, () => {
      while (this.#deliver());
    });
    for (let index = 0; index < scenario.collectors; index += 1) {
      this.#every({ min: MINUTE, max: MINUTE }, end, () => {
        void this.#startCollect({ collector: { index, of: scenario.collectors } });
      });
    }
    return (await timeline.run(isDone, end)) ? timeline.now() - startedAt : undefined;
  }

  // ---------------------------------------------------------------- invocations

  #environment(which: 'create' | 'collect'): Environment {
    const idle = this.#idle[which];
    // Lambda may use a process again, or start another.
    while (idle.length > 0 && this.#random.chance(0.8)) {
      const environment = idle.pop() as Environment;
      if (!environment.lambda.isDead && environment.generation === this.#generation) return environment;
    }
    const { scenario, timeline } = this;
    const skewMs = this.#random.int(-scenario.skewMs, scenario.skewMs);
    const lambda = new Lambda(`${which}-${this.#lambdas.length + 1}`, timeline, skewMs);
    this.#lambdas.push(lambda);
    const s3World: SimulatedS3 = {
      s3: this.s3,
      timeline,
      random: this.#network,
      faultPlan: this.faultPlan,
      trace: (line) => this.trace(line),
      onFault: (fault) => this.#note(lambda, fault),
      onEffect: (invocation, call) => this.orderChecker.sees(invocation, call),
      begun: this.begun,
      abortTried: this.abortTried,
      buckets: { inboxes: [INBOX, NEXT_INBOX], results: RESULTS, ledger: LEDGER },
    };
    const serviceWorld: SimulatedService = {
      service: this.service,
      timeline,
      random: this.#network,
      faultPlan: this.faultPlan,
      trace: (line) => this.trace(line),
      poison: (kind, path) => this.#poisonOf(kind, path),
      onCall: ({ kind, path: encodedPath, fault }) => {
        const path = decodeURIComponent(encodedPath);
        if (fault !== undefined) {
          this.incidents.push({ kind, path, fault, keys: this.#keysOf(lambda) });
          this.#note(lambda, fault);
        }
        this.#seesRequest(lambda, kind);
        const flowId = lookedAtIn(kind, encodedPath);
        if (flowId !== undefined) this.lookedAt.set(flowId, timeline.now());
        if (kind === 'flow.abort' && lambda.name.startsWith('create')) this.#seesAbort(lambda, path);
        if (kind === 'flows.list' && scenario.doNeighboursDelete) this.#neighbourDeletes();
      },
      onAnswer: (kind, path, { status, headers }) => {
        this.#heedRefusal(lambda, kind, status, headers);
        if (kind === 'flow.get' && status === 200) this.#seesEnd(lookedAtIn(kind, path));
        const retryAfter = headers['retry-after'];
        if (retryAfter !== undefined && kind !== 'flow.create') {
          const until = /^\d+$/.test(retryAfter)
            ? timeline.now() + Number(retryAfter) * SECOND
            : Date.parse(retryAfter);
          this.leftAloneUntil = Math.max(this.leftAloneUntil, until);
        }
        const flowId = lookedAtIn(kind, path);
        if (flowId === undefined) return;
        this.answers.set(flowId, [...(this.answers.get(flowId) ?? []), { status, at: timeline.now() }]);
      },
    };
    const secrets = {
      send: (_: unknown, options?: { abortSignal?: AbortSignal }) =>
        this.#simple(lambda, 'secret.read', options?.abortSignal, () => ({ SecretString: this.#secret })),
    } as unknown as SecretsManagerClient;
    const token = new SecretToken(secrets, 'token', lambda.clock);
    const ports = portsOf({
      settings: this.#settings,
      s3: s3ClientOf(s3World, lambda),
      flows: createFlowService({
        baseUrl: BASE_URL,
        outputsPath: this.#settings.outputsPath,
        assetBytesMax: this.#settings.assetBytesMax,
        answerDepthMax: this.#settings.answerDepthMax,
        requestsPerSecond: this.#settings.requestsPerSecond,
        clock: lambda.clock,
        token,
        transport: transportOf(serviceWorld, lambda),
      }),
      queue: {
        send: (message, signal) =>
          this.#simple(lambda, 'queue.send', signal, () => {
            this.#messages.push(message);
            this.queue.send(message);
          }),
      },
      events: {
        send: (event, signal) =>
          this.#simple(lambda, 'event.send', signal, () => {
            this.orderChecker.seesEvent(event.detail);
            this.published.push(event);
            const { key } = (JSON.parse(event.detail) as { upload: { key: string } }).upload;
            if (!this.toldAt.has(key)) this.toldAt.set(key, timeline.now());
          }),
      },
      clock: lambda.clock,
      nonce: () => this.#ids.hex(16),
      telemetry: {
        log: this.#log({}, lambda),
        metrics: {
          count: (metric, value = 1) => this.counted.set(metric, (this.counted.get(metric) ?? 0) + value),
        },
      },
    });
    return { lambda, ports, token, generation: this.#generation };
  }

  /** A call with neither body nor stream: of Secrets Manager, SQS, EventBridge. The SDK tries it three times. */
  async #simple<T>(
    lambda: Lambda,
    kind: 'secret.read' | 'queue.send' | 'event.send',
    signal: AbortSignal | undefined,
    effect: () => T,
  ): Promise<T> {
    this.#onCall?.({ by: lambda.name.startsWith('create') ? 'create' : 'collect', ...SIMPLE_CALLS[kind] });
    let fault: Fault | undefined;
    for (let attempt = 1; ; attempt += 1) {
      if (fault === undefined || !this.faultPlan.stays()) fault = this.faultPlan.draw(kind);
      try {
        return await this.#attempt(lambda, kind, fault, signal, effect);
      } catch (error) {
        if (attempt === 3 || signal?.aborted) throw error;
      }
      await lambda.clock.sleep(this.#network.int(20, SECOND));
    }
  }

  #attempt<T>(
    lambda: Lambda,
    kind: CallKind,
    fault: Fault | undefined,
    signal: AbortSignal | undefined,
    effect: () => T,
  ): Promise<T> {
    const { timeline } = this;
    const random = this.#network;
    return new Promise((resolve, reject) => {
      if (lambda.isDead) return;
      this.trace(`${lambda.name} ${kind}${fault === undefined ? '' : ` × ${fault}`}`);
      if (fault !== undefined) this.#note(lambda, fault);
      if (fault === 'killed before') return this.#kill(lambda);
      if (fault === 'frozen') lambda.freeze(frozenFor(random));
      const fail = (why: string) => reject(Object.assign(new Error(`Simulated: ${why}`), { name: why }));
      const onAbort = (): void => fail('AbortError');
      if (signal?.aborted) return onAbort();
      const forget = lambda.whenAborted(signal, onAbort);
      const answer = (how: () => void): void => {
        lambda.after(random.int(1, 30), 'answer', () => {
          forget();
          how();
        });
      };
      const travelMs = fault === 'slow' ? random.int(5_000, 50_000) : random.int(1, 40);
      const isLate = fault === 'late';
      if (isLate) lambda.after(MINUTE, 'timer', () => fail('TimeoutError'));
      timeline.schedule(timeline.now() + travelMs + (isLate ? random.int(MINUTE, 4 * MINUTE) : 0), () => {
        if (fault === 'refused' || fault === 'throttled') return answer(() => fail(fault));
        const result = effect();
        if (fault === 'killed after') return this.#kill(lambda);
        answer(() => (fault === 'lost' ? fail('ECONNRESET') : resolve(result)));
      });
    });
  }

  /** Where the service only has limits, what it asks of one request holds for all of the same kind. */
  #heedRefusal(lambda: Lambda, kind: CallKind, status: number, headers: Readonly<Record<string, string>>): void {
    if (this.scenario.kind !== 'limits' || (status !== 429 && status !== 503)) return;
    const now = this.timeline.now();
    const until = Math.min(retryAfterIn(headers, now), now + HELD_BACK_MS);
    const name = `${lambda.name} ${kind === 'flow.create' ? 'creation' : 'other'}`;
    this.#heldBackUntil.set(name, Math.max(this.#heldBackUntil.get(name) ?? 0, until));
  }

  #seesEnd(flowId: string | undefined): void {
    if (this.scenario.kind !== 'limits' || this.firstEndSeenAt !== undefined) return;
    const flow = this.service.flows.find(({ id }) => id === flowId);
    if (flow?.finishedAt !== undefined) this.firstEndSeenAt = this.timeline.now();
  }

  #seesRequest(lambda: Lambda, kind: CallKind): void {
    const name = `${lambda.name} ${kind === 'flow.create' ? 'creation' : 'other'}`;
    const until = this.#heldBackUntil.get(name) ?? 0;
    if (this.timeline.now() < until) this.sentInSpite += 1;
  }

  #seesAbort(lambda: Lambda, path: string): void {
    const flow = this.service.flows.find(({ id }) => path === `/flows/${id}`);
    const tag = (flow?.additional as { flowdrop?: { upload: string; generation: number } } | undefined)?.flowdrop;
    if (tag !== undefined) this.orderChecker.seesAbort(lambda.invocationName, tag.upload, tag.generation);
  }

  /** Whether a call is about a flow or an asset that never answers as it should. */
  #poisonOf(kind: ServiceCallKind, path: string): Fault | undefined {
    const { poison } = this.scenario;
    if (poison?.calls.includes(kind) !== true) return undefined;
    const [, , flowId = '', , assetId = ''] = path.startsWith('/flows/')
      ? path.split('/')
      : ['', '', ...path.split('/').slice(1)];
    const id = poison.of === 'flow' ? flowId : `${flowId}/${assetId}`;
    if (this.poisoned.size < poison.count) this.poisoned.add(id);
    return this.poisoned.has(id) ? poison.fault : undefined;
  }

  #note(lambda: Lambda, fault: Fault): void {
    if (fault === 'frozen') this.wasAnyFrozen = true;
    if (!isAccounts(fault)) this.#blame(lambda);
  }

  #blame(lambda: Lambda): void {
    for (const key of this.#keysOf(lambda)) this.blame.set(key, (this.blame.get(key) ?? 0) + 1);
  }

  #keysOf(lambda: Lambda): ReadonlySet<string> {
    return this.#keys.get(lambda) ?? new Set();
  }

  #kill(lambda: Lambda): void {
    this.trace(`${lambda.name} is killed`);
    lambda.kill();
  }

  /** One invocation of a function. Resolves as Lambda would answer its invoker; never, where the process is killed. */
  #invoke<T>(
    which: 'create' | 'collect',
    limitMs: number,
    body: (ports: Ports, invocation: Invocation) => Promise<T>,
    keys: readonly string[] = [],
  ): { readonly answer: Promise<T>; readonly isOver: () => boolean } {
    const { timeline } = this;
    const environment = this.#environment(which);
    const { lambda, ports } = environment;
    this.stats.invocations += 1;
    this.trace(`${lambda.name} begins`);
    this.#running += 1;
    lambda.invocation += 1;
    const name = lambda.invocationName;
    this.#keys.set(lambda, new Set(keys));
    this.orderChecker.begins(name, lambda.clock.now() + limitMs, keys);
    let isOver = false;
    const over = (): void => {
      if (isOver) return;
      isOver = true;
      this.orderChecker.ends(name);
      this.#running -= 1;
    };
    const { stallsAfterMs, diesAfterMs } = this.#fateOf(limitMs);
    const stall = timeline.schedule(timeline.now() + stallsAfterMs, () => lambda.stall());
    const hardEnd = timeline.schedule(timeline.now() + diesAfterMs, () => {
      if (lambda.wasFrozen) return;
      this.#blame(lambda);
      this.#kill(lambda);
    });
    const fate = {
      cancel(): void {
        stall.cancel();
        hardEnd.cancel();
      },
    };
    const forget = lambda.onDeath(() => {
      this.stats.kills += 1;
      fate.cancel();
      over();
    });
    const answer = withinInvocation(limitMs, lambda.clock, (invocation) => body(ports, invocation)).finally(() => {
      this.trace(`${lambda.name} ends`);
      forget();
      fate.cancel();
      over();
      this.#idle[which].push(environment);
    });
    answer.catch((error: unknown) => this.thrown.push(error));
    return { answer, isOver: () => isOver };
  }

  /**
   * Not only calls end a process: memory does at any moment, and so does the time limit where its code cannot see to it.
   * A healthy one ends before its limit, by itself.
   */
  #fateOf(limitMs: number): { readonly stallsAfterMs: number; readonly diesAfterMs: number } {
    const random = this.#random;
    if (this.faultPlan.isClear || !random.chance(this.scenario.suddenDeaths)) {
      return { stallsAfterMs: limitMs, diesAfterMs: limitMs };
    }
    const afterMs = random.int(1, random.pick([2 * SECOND, 20 * SECOND, limitMs]));
    return { stallsAfterMs: afterMs, diesAfterMs: random.chance(0.5) ? afterMs : limitMs };
  }

  #deliver(): boolean {
    if (this.#creating >= CREATES_MAX) return false;
    const messages = this.queue.receive({ max: this.#random.int(1, 10) });
    if (messages.length === 0) return false;
    this.#creating += 1;
    const event = { Records: messages.map(({ messageId, body }) => ({ messageId, body, eventSource: 'aws:sqs' })) };
    if (!this.faultPlan.isClear) this.#deliverAgainEarly(messages);
    const since = this.timeline.now();
    const { answer, isOver } = this.#invoke(
      'create',
      this.scenario.createLimitMs,
      (ports, invocation) => createFlows(event, ports, invocation),
      keysIn(messages),
    );
    void answer.then(
      ({ batchItemFailures }) => {
        const failed = new Set(batchItemFailures.map(({ itemIdentifier }) => itemIdentifier));
        for (const { messageId, receiptHandle, body } of messages) {
          if (failed.has(messageId)) continue;
          for (const upload of uploadsOf(JSON.parse(body))) this.orderChecker.seesDeletion(upload, since);
          this.queue.delete(receiptHandle);
        }
      },
      () => {},
    );
    const wait = (): void => {
      if (isOver()) this.#creating -= 1;
      else this.timeline.schedule(this.timeline.now() + SECOND, wait);
    };
    wait();
    return true;
  }

  /** SQS promises to deliver at least once, and now and then does it again although the message is hidden. */
  #deliverAgainEarly(messages: readonly ReceivedMessage[]): void {
    for (const { receiptHandle } of messages) {
      if (this.#random.chance(this.scenario.againEarly))
        this.queue.changeVisibility(receiptHandle, this.#random.int(0, 60));
    }
  }

  #startCollect(event: { collector?: { index: number; of: number }; sweep?: object; retry?: string[] }): Promise<void> {
    const { timeline } = this;
    const tick: World['ticks'][number] = { startedAt: timeline.now() };
    if (event.sweep === undefined && event.retry === undefined) this.ticks.push(tick);
    const { answer } = this.#invoke('collect', this.scenario.collectLimitMs, (ports, invocation) =>
      collect(event, ports, invocation),
    );
    return answer.then(
      (summary) => {
        if ('result' in summary) {
          Object.assign(tick, { endedAt: timeline.now(), result: summary.result, rounds: summary.rounds });
        }
      },
      () => {},
    );
  }

  /** From now on processes are started with another configuration. Those at work end with the one that they have. */
  #deploy(what: Change): void {
    this.trace(`somebody: deploy ${what}`);
    this.deployedAt.set(what, this.timeline.now());
    const change: Record<Change, Partial<Settings>> = {
      route: { routes: CORRECTED_ROUTES },
      pipeline: { pipeline: NEXT_PIPELINE },
      inbox: { inboxBucket: NEXT_INBOX },
      limits: LOWERED_SETTINGS,
    };
    this.#settings = { ...this.#settings, ...change[what] };
    for (const { lambda } of [...this.#idle.create, ...this.#idle.collect]) lambda.kill();
    this.#generation += 1;
  }

  /** The ledger's lifecycle removes an entry that has been at its end for so long that all about it was told. */
  async #expireOne(): Promise<void> {
    const told = new Set(this.published.map(({ detail }) => (JSON.parse(detail) as { id: string }).id));
    const markers = [
      ...(await this.inspector.list(LEDGER, 'running/')),
      ...(await this.inspector.list(LEDGER, 'waiting/')),
    ];
    const expired = (await this.entries()).filter(
      (entry) =>
        (entry.state === 'succeeded' || entry.state === 'failed') &&
        [...told].some((id) => id.startsWith(`${entry.upload.id}-${entry.generation}`)) &&
        !markers.some(({ key }) => key.includes(entry.upload.id)),
    );
    if (expired.length === 0) return;
    const { upload } = this.#changes.pick(expired);
    this.trace(`an entry expires: ${upload.key}`);
    this.expired.set(upload.id, (this.expired.get(upload.id) ?? 0) + 1);
    await this.inspector.delete(LEDGER, `uploads/${upload.id}.json`);
  }

  /** An entry that is on its way can be read no more. */
  async #damageOne(): Promise<void> {
    const underWay = (await this.entries()).filter(({ state }) => state === 'waiting' || state === 'running');
    if (underWay.length === 0) return;
    const { upload } = this.#changes.pick(underWay);
    this.trace(`an entry is damaged: ${upload.key}`);
    this.damaged = upload;
    await this.inspector.put(LEDGER, `uploads/${upload.id}.json`, Buffer.from('{"schema":1,"st'), 'application/json');
  }

  /** A person has a failed upload tried again. */
  #retryOne(): void {
    void this.entries().then((entries) => {
      const failed = entries.filter(({ state }) => state === 'failed');
      if (failed.length === 0) return;
      this.stats.retriesByPeople += 1;
      const { upload } = this.#random.pick(failed);
      this.trace(`somebody: retry ${upload.key}`);
      void this.#startCollect({ retry: [upload.id] });
    });
  }

  /** Somebody else's flow on the same account, which may look much like ours. */
  #neighbourCreates(): void {
    const random = this.#random;
    void this.entries().then((entries) => {
      const like = entries.length > 0 && random.chance(0.5) ? random.pick(entries) : undefined;
      const tag = like && { pipeline: 'another', upload: like.upload.id, generation: like.generation };
      const body = Buffer.from(
        JSON.stringify({
          template: 'bytes_echo',
          additional: tag === undefined ? undefined : { flowdrop: tag },
          inputs: [{ data: 'data:text/plain;base64,AAAA', additional: {} }],
        }),
      );
      void this.#asNeighbour('POST', '/flows', body);
    });
  }

  /** A neighbour's flow that has ended is deleted while we read the listing, so that what follows moves up. */
  #neighbourDeletes(): void {
    if (!this.#neighbours.chance(0.5)) return;
    const ended = this.service.flows.filter(
      ({ deleted, finishedAt, additional }) =>
        !deleted &&
        finishedAt !== undefined &&
        (additional as { flowdrop?: { pipeline?: string } } | undefined)?.flowdrop?.pipeline !== PIPELINE,
    );
    if (ended.length === 0) return;
    const { id } = this.#neighbours.pick(ended);
    this.timeline.schedule(this.timeline.now() + this.#neighbours.int(1, 500), () => {
      void this.#asNeighbour('DELETE', `/flows/${encodeURIComponent(id)}`, Buffer.alloc(0));
    });
  }

  #asNeighbour(method: string, url: string, body: Buffer): Promise<unknown> {
    return this.service.handle({
      method,
      url,
      headers: { authorization: `Bearer ${this.tokens.at(-1)}`, 'content-length': String(body.byteLength) },
      body: (async function* () {
        yield body;
      })(),
    });
  }

  // ---------------------------------------------------------------- healing

  /** From here on nothing goes wrong, and everybody has the right token. What is frozen still has to thaw. */
  heal(): void {
    this.faultPlan.isClear = true;
    this.#isHealing = true;
    this.#secret = this.tokens.at(-1) as string;
    this.trace('all is well');
    if (!this.scenario.isLossy) this.redrive();
  }

  /** What an operator does with dead letters, once the cause is gone. */
  redrive(): void {
    for (;;) {
      const [letter] = this.deadLetters.receive();
      if (letter === undefined) return;
      this.deadLetters.delete(letter.receiptHandle);
      // A message about a damaged entry comes back for ever: the operator leaves it out.
      if (this.damaged !== undefined && keysIn([letter]).includes(this.damaged.key)) continue;
      this.queue.send(letter.body);
    }
  }

  /** Time passes, with deliveries and ticks, until nothing is left to do. */
  async settle(): Promise<void> {
    const { timeline, scenario } = this;
    let stepMs = 20 * SECOND;
    for (let step = 0; step < HEALING_STEPS_MAX; step += 1) {
      await this.#deliverAll();
      await this.tick();
      if (!scenario.isLossy) this.redrive();
      if (await this.#isQuiet()) return;
      await timeline.run(() => false, timeline.now() + stepMs);
      stepMs = Math.min(3 * stepMs, 16 * MINUTE);
    }
    const left = [...(await this.inspector.list(LEDGER)).map(({ key }) => key), JSON.stringify(this.queue.counts())];
    throw new Violation(`nothing comes to an end: ${left.join(', ')}`);
  }

  async tick(): Promise<void> {
    const of = this.scenario.collectors;
    await Promise.all(
      Array.from({ length: of }, (_, index) => this.#complete(this.#startCollect({ collector: { index, of } }))),
    );
  }

  /** Somebody asks for a sweep, or the schedule does, while all else goes on. */
  startSweep(request: { readonly since?: string; readonly uploadsPerSecond?: number }): Promise<void> {
    return this.#startCollect({ sweep: request });
  }

  /** Up to so many milliseconds. */
  pickDelay(msMax: number): number {
    return this.#random.int(0, msMax);
  }

  async sweep(): Promise<void> {
    await this.#complete(this.#startCollect({ sweep: {} }));
  }

  /** A person asks for what has succeeded already. */
  async retrySucceeded(): Promise<void> {
    const succeeded = (await this.entries()).filter(({ state }) => state === 'succeeded');
    if (succeeded.length === 0) return;
    await this.#complete(this.#startCollect({ retry: succeeded.map(({ upload }) => upload.id) }));
  }

  /** A person has everything that failed or is held tried again, once all is well. */
  async retryFailures(): Promise<void> {
    const entries = await this.entries();
    const failed = entries.filter((entry) => entry.state === 'failed' || entry.state === 'waiting');
    if (failed.length === 0) return;
    for (const { state, upload, generation } of failed) {
      this.retriedWhenWell.set(upload.id, generation);
      if (state === 'waiting') this.releasedByHand.add(upload.id);
    }
    await this.#complete(this.#startCollect({ retry: failed.map(({ upload }) => upload.id) }));
  }

  /** Lets time pass. */
  async pass(ms: number): Promise<void> {
    await this.timeline.run(() => false, this.timeline.now() + ms);
  }

  /** Everything that ever came through the queue is delivered once more. Dead letters did not come through. */
  redeliver(): void {
    const dead = new Set<string>();
    for (let letters = this.deadLetters.receive({ max: 10 }); letters.length > 0; ) {
      for (const { body } of letters) dead.add(body);
      letters = this.deadLetters.receive({ max: 10 });
    }
    for (const message of [...this.#messages]) if (!dead.has(message)) this.queue.send(message);
  }

  async #deliverAll(): Promise<void> {
    const { timeline } = this;
    for (;;) {
      const isDelivered = this.#deliver();
      const isDone = await timeline.run(() => this.#creating < CREATES_MAX, timeline.now() + 40 * MINUTE);
      if (!isDone) throw new Violation('an invocation does not end');
      if (!isDelivered && this.#creating === 0) return;
      if (!isDelivered) await timeline.run(() => this.#creating === 0, timeline.now() + 40 * MINUTE);
    }
  }

  async #complete(answer: Promise<void>): Promise<void> {
    let isDone = false;
    void answer.then(() => {
      isDone = true;
    });
    const { timeline } = this;
    if (!(await timeline.run(() => isDone, timeline.now() + 40 * MINUTE))) throw new Violation('a tick does not end');
  }

  async #isQuiet(): Promise<boolean> {
    const { visible, inFlight, delayed } = this.queue.counts();
    if (visible + inFlight + delayed + this.#onTheWay + this.#running > 0) return false;
    const running = await this.inspector.list(LEDGER, 'running/');
    if (running.some(({ key }) => !this.#isDamaged(key))) return false;
    const waiting = await this.inspector.list(LEDGER, 'waiting/');
    for (const { key } of waiting.filter(({ key }) => !this.#isDamaged(key))) {
      const entry = await this.inspector.json<Entry>(LEDGER, `uploads/${key.split('/').at(-1)}.json`);
      if (entry.state !== 'waiting' || entry.reason !== 'held') return false;
    }
    return true;
  }

  async entries(): Promise<Entry[]> {
    const keys = await this.inspector.list(LEDGER, 'uploads/');
    const readable = keys.filter(({ key }) => !this.#isDamaged(key));
    return Promise.all(readable.map(({ key }) => this.inspector.json<Entry>(LEDGER, key)));
  }

  #isDamaged(key: string): boolean {
    return this.damaged !== undefined && key.includes(this.damaged.id);
  }

  async isAnyHeld(): Promise<boolean> {
    return (await this.entries()).some((entry) => entry.state === 'waiting');
  }

  close(): void {
    for (const lambda of this.#lambdas) lambda.kill(); // Nothing may go on to hold on to this world.
    this.service.close();
    this.s3.close();
  }

  #log(bound: LogFields, lambda: Lambda): Log {
    const line =
      (level: string) =>
      (message: string, fields: LogFields = {}): void => {
        this.logged.push({ level, message, fields: { ...bound, ...fields } });
        if (fields.error instanceof ClaimHeldError) {
          const { uploadId, key } = { ...bound, ...fields };
          this.orderChecker.seesTurnedAway(lambda.invocationName, String(uploadId), String(key));
        }
        if (this.#onTrace !== undefined) {
          const { error, ...rest } = fields;
          this.#onTrace(`    ${level}: ${message} ${JSON.stringify({ ...bound, ...rest })} ${error ?? ''}`);
        }
      };
    return {
      debug: line('debug'),
      info: line('info'),
      warn: line('warn'),
      error: line('error'),
      with: (fields) => this.#log({ ...bound, ...fields }, lambda),
    };
  }
}
