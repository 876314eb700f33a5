import { createHash, type Hash } from 'node:crypto';
import type { SecretsManagerClient } from '@aws-sdk/client-secrets-manager';
import { createFlows } from '../../functions/batch.ts';
import { type CollectPorts, collect } from '../../functions/collect-outputs.ts';
import type { Settings } from '../../functions/config.ts';
import { ClaimHeldError, type CreatePorts } from '../../functions/create-flow.ts';
import { createFlowService } from '../../functions/flow-service/client.ts';
import { type Invocation, withinInvocation } from '../../functions/invocation.ts';
import type { Entry } from '../../functions/ledger/entry.ts';
import { portsOf } from '../../functions/ports.ts';
import type { SweepPorts } from '../../functions/sweep.ts';
import type { Log, LogFields, MetricName } from '../../functions/telemetry.ts';
import { SecretToken } from '../../functions/token.ts';
import { uploadsOf } from '../../functions/upload.ts';
import { StandInFlowService } from '../../local/flow-service/flow-service.ts';
import { Queue, type ReceivedMessage } from '../../local/queue.ts';
import type { S3Access } from '../../local/s3/call.ts';
import { eventBridgeEvent, testEvent } from '../../local/s3/events.ts';
import { EmbeddedS3, type S3EventRecord } from '../../local/s3/s3.ts';
import { type CallKind, type Fault, focusOf, Weather } from './faults.ts';
import { Inspector } from './inspector.ts';
import { Lambda } from './lambda.ts';
import { Random } from './random.ts';
import { frozenFor, type SimulatedS3, s3ClientOf } from './s3.ts';
import { type Scenario, scenarioOf } from './scenario.ts';
import { type SimulatedService, transportOf } from './service.ts';
import { Timeline } from './timeline.ts';
import { Witness } from './witness.ts';

export const INBOX = 'inbox';
export const RESULTS = 'results';
export const LEDGER = 'ledger';
export const PIPELINE = 'simulated';
const BASE_URL = new URL('https://flows.example');

const SECOND = 1_000;
const MINUTE = 60 * SECOND;

/** When every simulation begins. */
const START = Date.UTC(2030, 0, 1);

/** Invocations of create-flow at a time: its event source's maximum concurrency. */
const CREATES_MAX = 3;

/** How long anything may take to come to an end once all is well again. */
const HEALING_STEPS_MAX = 120;

type Ports = CreatePorts & CollectPorts & SweepPorts;

/** What each call of another service than S3 is in IAM's words. */
const SIMPLE_CALLS = {
  'secret.read': { action: 'secretsmanager:GetSecretValue', resource: 'token' },
  'queue.send': { action: 'sqs:SendMessage', resource: 'uploads' },
  'event.send': { action: 'events:PutEvents', resource: 'default' },
} as const;

/** An upload as whoever put it knows it. */
export interface Put {
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

/** Something that was not as it has to be. */
export class Violation extends Error {
  override readonly name = 'Violation';
}

/** A permission that a function's call to AWS needs. What it is of has the name that it has here. */
export type NeededPermission = Pick<S3Access, 'action' | 'resource'> &
  Partial<S3Access> & { readonly by: 'create' | 'collect' };

interface Environment {
  readonly lambda: Lambda;
  readonly ports: Ports;
  readonly token: SecretToken;
}

/** The keys that the messages speak of, each as often as they do. */
const keysIn = (messages: readonly ReceivedMessage[]): readonly string[] =>
  messages.flatMap(({ body }) => uploadsOf(JSON.parse(body)).map(({ key }) => key));

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
  readonly weather: Weather;
  readonly s3: EmbeddedS3;
  readonly inspector: Inspector;
  readonly service: StandInFlowService;
  readonly queue: Queue;
  readonly deadLetters: Queue;
  readonly puts: Put[] = [];
  readonly logged: Logged[] = [];
  readonly counted = new Map<MetricName, number>();
  readonly published: Published[] = [];
  readonly thrown: unknown[] = [];
  readonly tokens: string[];
  readonly incidents: ServiceIncident[] = [];
  readonly witness: Witness;
  /** Multipart uploads of which a process was told that they are begun, and by their ids which one. */
  readonly begun = new Map<string, Lambda>();
  /** Ids of the multipart uploads that somebody tried to abort. */
  readonly abortTried = new Set<string>();
  /** How often each asset's key was written in the results bucket. */
  readonly resultWrites = new Map<string, number>();
  /** Which flows were looked at, and when last. */
  readonly lookedAt = new Map<string, number>();
  /** What became of each tick; nothing where its process was killed. */
  readonly ticks: { readonly startedAt: number; endedAt?: number; result?: string; rounds?: number }[] = [];
  /** Faults that may count as failures of a file, by the keys that the invocation was at which they happened to. */
  readonly blame = new Map<string, number>();
  /** Whether any process was frozen, so that a claim may have been taken over while its holder was still there. */
  wasAnyFrozen = false;
  readonly stats = { invocations: 0, kills: 0, retriesByPeople: 0 };
  readonly #random: Random;
  readonly #network: Random;
  readonly #ids: Random;
  readonly #trace: Hash = createHash('sha256');
  readonly #onTrace: ((line: string) => void) | undefined;
  readonly #onCall: ((call: NeededPermission) => void) | undefined;
  readonly #settings: Settings;
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

  constructor(seed: number, onTrace?: (line: string) => void, onCall?: (call: NeededPermission) => void) {
    this.#onTrace = onTrace;
    this.#onCall = onCall;
    this.scenario = scenarioOf(new Random(seed, 1), focusOf(seed));
    this.#random = new Random(seed, 2);
    this.#network = new Random(seed, 3);
    this.#ids = new Random(seed, 4);
    const { scenario, timeline } = this;
    this.weather = new Weather(new Random(seed, 5), scenario.weather);
    this.witness = new Witness(
      () => timeline.now(),
      () => this.wasAnyFrozen || scenario.isSkewWild,
    );
    this.s3 = new EmbeddedS3({
      clock: timeline,
      onEvent: (record) => this.#onS3Event(record),
      authorize: (access) => {
        // Whoever tests asks in nobody's name.
        const { accessKeyId: name } = access;
        if (name !== undefined) onCall?.({ by: name.startsWith('create') ? 'create' : 'collect', ...access });
        return true;
      },
    });
    this.s3.createBucket(INBOX, scenario.versioning === undefined ? {} : { versioning: scenario.versioning });
    this.s3.createBucket(RESULTS);
    this.s3.createBucket(LEDGER);
    this.inspector = new Inspector(this.s3);
    this.tokens = [`fake-token-${this.#ids.hex(16)}`];
    this.#secret = this.tokens[0] as string;
    const durations = new Random(seed, 6);
    this.service = new StandInFlowService({
      clock: timeline,
      random: () => this.#ids.next(),
      tokens: this.tokens,
      flowMs: () => durations.int(1, scenario.flowMsMax),
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
      ...scenario.limits,
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
    this.weather.isClear = false;

    for (const deed of scenario.deeds) {
      timeline.schedule(START + 20 * MINUTE + deed.at, () => void this.#do(deed));
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

  async #do(deed: Scenario['deeds'][number]): Promise<void> {
    this.trace(`somebody: ${deed.kind} ${deed.key}`);
    if (deed.kind === 'delete') await this.inspector.delete(INBOX, deed.key);
    else await this.inspector.put(INBOX, deed.key, deed.content, deed.mediaType);
  }

  #onS3Event(record: S3EventRecord): void {
    const { bucket, object } = record.s3;
    const key = decodeURIComponent(object.key.replaceAll('+', ' '));
    if (bucket.name === RESULTS && record.eventName.startsWith('ObjectCreated')) {
      this.resultWrites.set(key, (this.resultWrites.get(key) ?? 0) + 1);
    }
    if (bucket.name !== INBOX) return;
    let put: Put | undefined;
    if (record.eventName.startsWith('ObjectCreated')) {
      const deed = this.scenario.deeds.find(
        (one) =>
          one.kind === 'put' && one.key === key && createHash('md5').update(one.content).digest('hex') === object.eTag,
      );
      put = {
        key,
        versionId: object.versionId === undefined || object.versionId === 'null' ? undefined : object.versionId,
        etag: object.eTag ?? '',
        lastModified: Math.floor(this.timeline.now() / SECOND) * SECOND,
        content: deed?.kind === 'put' ? deed.content : Buffer.alloc(0),
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
    if (random.chance(0.05)) this.queue.send(JSON.stringify(testEvent(INBOX, timeline.now())));
    if (scenario.isLossy && random.chance(0.3)) {
      this.trace(`lost: the notification of ${record.s3.object.key}`);
      return;
    }
    const copies = random.chance(0.25) ? random.int(2, 3) : 1;
    for (let copy = 0; copy < copies; copy += 1) {
      const delayMs = random.chance(0.7) ? random.int(10, 3 * SECOND) : random.int(0, 8 * MINUTE);
      const bridged = random.chance(0.3) ? eventBridgeEvent(record) : undefined;
      this.#onTheWay += 1;
      timeline.schedule(timeline.now() + delayMs, () => {
        this.#onTheWay -= 1;
        const message = JSON.stringify(bridged ?? { Records: [record] });
        if (put !== undefined) put.isNotified = true;
        this.#messages.push(message);
        this.queue.send(message);
      });
    }
  }

  // ---------------------------------------------------------------- invocations

  #environment(which: 'create' | 'collect'): Environment {
    const idle = this.#idle[which];
    // Lambda may use a process again, or start another.
    while (idle.length > 0 && this.#random.chance(0.8)) {
      const environment = idle.pop() as Environment;
      if (!environment.lambda.isDead) return environment;
    }
    const { scenario, timeline } = this;
    const skewMs = this.#random.int(-scenario.skewMs, scenario.skewMs);
    const lambda = new Lambda(`${which}-${this.#lambdas.length + 1}`, timeline, skewMs);
    this.#lambdas.push(lambda);
    const s3World: SimulatedS3 = {
      s3: this.s3,
      timeline,
      random: this.#network,
      weather: this.weather,
      trace: (line) => this.trace(line),
      onFault: (fault) => this.#note(lambda, fault),
      onEffect: (invocation, call) => this.witness.sees(invocation, call),
      begun: this.begun,
      abortTried: this.abortTried,
      buckets: { inbox: INBOX, results: RESULTS, ledger: LEDGER },
    };
    const serviceWorld: SimulatedService = {
      service: this.service,
      timeline,
      random: this.#network,
      weather: this.weather,
      trace: (line) => this.trace(line),
      onCall: ({ kind, path, fault }) => {
        if (fault !== undefined) {
          this.incidents.push({ kind, path, fault, keys: this.#keysOf(lambda) });
          this.#note(lambda, fault);
        }
        const flowId = /^\/(?:flows\/)?([^/]+)(?:\/outputs)?$/.exec(path)?.[1];
        if (flowId !== undefined && (kind === 'flow.get' || kind === 'flow.outputs')) {
          this.lookedAt.set(flowId, timeline.now());
        }
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
            this.witness.seesEvent(event.detail);
            this.published.push(event);
          }),
      },
      clock: lambda.clock,
      nonce: () => this.#ids.hex(16),
      random: () => this.#random.next(),
      telemetry: {
        log: this.#log({}, lambda),
        metrics: {
          count: (metric, value = 1) => this.counted.set(metric, (this.counted.get(metric) ?? 0) + value),
        },
      },
    });
    return { lambda, ports, token };
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
      if (fault === undefined || !this.weather.stays()) fault = this.weather.draw(kind);
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

  #note(lambda: Lambda, fault: Fault): void {
    if (fault === 'frozen') this.wasAnyFrozen = true;
    const isNobodys = fault.startsWith('429') || fault === '503 in seconds' || fault === '401';
    if (!isNobodys) this.#blame(lambda);
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
    const { lambda, ports, token } = environment;
    this.stats.invocations += 1;
    this.trace(`${lambda.name} begins`);
    this.#running += 1;
    lambda.invocation += 1;
    const name = lambda.invocationName;
    this.#keys.set(lambda, new Set(keys));
    this.witness.begins(name, lambda.clock.now() + limitMs, keys);
    let isOver = false;
    const over = (): void => {
      if (isOver) return;
      isOver = true;
      this.witness.ends(name);
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
    const offered = ports.clock.sleep(0).then(() => token.get(new AbortController().signal));
    if (this.#random.chance(0.5)) token.offer(offered.catch((error: unknown) => error));
    else offered.catch(() => {});
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
    if (this.weather.isClear || !random.chance(this.scenario.suddenDeaths)) {
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
    if (!this.weather.isClear) this.#deliverAgainEarly(messages);
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
          for (const upload of uploadsOf(JSON.parse(body))) this.witness.seesDeletion(upload, since);
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
      if (this.#random.chance(0.2)) this.queue.changeVisibility(receiptHandle, this.#random.int(0, 60));
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
      const mark = like && { pipeline: 'another', upload: like.upload.id, generation: like.generation };
      const body = Buffer.from(
        JSON.stringify({
          template: 'bytes_echo',
          additional: mark === undefined ? undefined : { flowdrop: mark },
          inputs: [{ data: 'data:text/plain;base64,AAAA', additional: {} }],
        }),
      );
      void this.service.handle({
        method: 'POST',
        url: '/flows',
        headers: { authorization: `Bearer ${this.tokens.at(-1)}`, 'content-length': String(body.byteLength) },
        body: (async function* () {
          yield body;
        })(),
      });
    });
  }

  // ---------------------------------------------------------------- healing

  /** From here on nothing goes wrong, and everybody has the right token. What is frozen still has to thaw. */
  heal(): void {
    this.weather.isClear = true;
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

  async sweep(): Promise<void> {
    await this.#complete(this.#startCollect({ sweep: {} }));
  }

  /** A person asks for what has succeeded already. */
  async retrySucceeded(): Promise<void> {
    const succeeded = (await this.entries()).filter(({ state }) => state === 'succeeded');
    if (succeeded.length === 0) return;
    await this.#complete(this.#startCollect({ retry: succeeded.map(({ upload }) => upload.id) }));
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
    if ((await this.inspector.list(LEDGER, 'running/')).length > 0) return false;
    const waiting = await this.inspector.list(LEDGER, 'waiting/');
    for (const { key } of waiting) {
      const entry = await this.inspector.json<Entry>(LEDGER, `uploads/${key.split('/').at(-1)}.json`);
      if (entry.state !== 'waiting' || entry.reason !== 'held') return false;
    }
    return true;
  }

  async entries(): Promise<Entry[]> {
    const keys = await this.inspector.list(LEDGER, 'uploads/');
    return Promise.all(keys.map(({ key }) => this.inspector.json<Entry>(LEDGER, key)));
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
          this.witness.seesTurnedAway(lambda.invocationName, String(uploadId), String(key));
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
