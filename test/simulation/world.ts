import { createHash, type Hash } from 'node:crypto';
import type { Entry } from '../../functions/ledger/entry.ts';
import type { Settings } from '../../functions/settings/environment.ts';
import type { S3Access } from '../../local/aws/s3/call.ts';
import { EmbeddedS3 } from '../../local/aws/s3/s3.ts';
import { Queue } from '../../local/aws/sqs.ts';
import { Refusal } from '../../local/flow-service/answer.ts';
import { StandInFlowService } from '../../local/flow-service/flow-service.ts';
import { descriptionOf } from '../support/speaking.ts';
import { backfillScenarioOf } from './backfill.ts';
import { ChainWatch } from './chain-watch.ts';
import { ExpiryWatch } from './expiry-watch.ts';
import { type CallKind, type Fault, FaultPlan, focusOf } from './faults.ts';
import { HoldWatch } from './hold-watch.ts';
import { Inspector, type MultipartUpload } from './inspector.ts';
import { Invocations } from './invocations.ts';
import { JobApi } from './job-api.ts';
import { laggingReplicaScenarioOf } from './lagging-replica.ts';
import type { Lambda } from './lambda.ts';
import { limitedScenarioOf } from './limits.ts';
import { withDeclaredListing } from './long-listings.ts';
import { longRoundsScenarioOf } from './long-rounds.ts';
import {
  BASE_URL,
  DENIED_KEY,
  INBOX,
  LEDGER,
  NEXT_INBOX,
  NEXT_RESULTS,
  PIPELINE,
  RESULT_BUCKETS,
  RESULTS,
  START,
} from './names.ts';
import { Neighbours } from './neighbours.ts';
import { Notifications } from './notifications.ts';
import { Observations } from './observations.ts';
import { OrderChecker } from './order-checker.ts';
import { poisonedScenarioOf } from './poison.ts';
import { Processes } from './processes.ts';
import { Random } from './random.ts';
import { Balancer, replicasScenarioOf } from './replicas.ts';
import type { Poison, Scenario, Step } from './scenario.ts';
import { slowScenarioOf } from './slow-counterpart.ts';
import { withAliases } from './storm-aliases.ts';
import { withChains } from './storm-chains.ts';
import { withClockSteps } from './storm-clocks.ts';
import { withCopies } from './storm-copies.ts';
import { withDeletions } from './storm-deletions.ts';
import { isRejecting, withHolds } from './storm-holds.ts';
import { withJobApi } from './storm-job-api.ts';
import { withJobs } from './storm-jobs.ts';
import { withKeys } from './storm-keys.ts';
import { withLateFlows } from './storm-late-flows.ts';
import { withRetention } from './storm-retention.ts';
import { withReview } from './storm-review.ts';
import { withAddedStages, withRouteChanges, withStageChanges } from './storm-routes.ts';
import { stormScenarioOf } from './storm-scenario.ts';
import { withSettling } from './storm-settling.ts';
import { withSources } from './storm-sources.ts';
import { MINUTE, SECOND, Timeline } from './timeline.ts';
import { oddId, withTroubles } from './troubles.ts';

/** Time before the storm, in milliseconds. The first tick runs alone then. */
const BEFORE_STORM_MS = 20 * MINUTE;

/** A permission that a function's call to AWS needs. Its resource has the name that it has here. */
export type NeededPermission = Pick<S3Access, 'action' | 'resource'> &
  Partial<S3Access> & { readonly by: 'create' | 'collect' };

/** The listeners of a simulation. */
interface Listeners {
  readonly onTrace?: ((line: string) => void) | undefined;
  readonly onCall?: ((call: NeededPermission) => void) | undefined;
}

/** The world of a seed: both functions and everything around them, in virtual time. */
export class World {
  readonly scenario: Scenario;
  readonly randoms: Randoms;
  readonly timeline: Timeline;
  readonly observed = new Observations();
  readonly faultPlan: FaultPlan;
  readonly orderChecker: OrderChecker;
  readonly chainWatch: ChainWatch;
  /** Present in a storm in which uploads are held. */
  readonly holdWatch: HoldWatch | undefined;
  /** Present in a storm whose assets expire, and stay in one bucket. */
  readonly expiryWatch: ExpiryWatch | undefined;
  readonly s3: EmbeddedS3;
  /** Reads and writes S3 on behalf of the test. */
  readonly inspector: Inspector;
  readonly service: StandInFlowService;
  /** What stands in front of the service in some storms. */
  readonly jobApi: JobApi | undefined;
  readonly queue: Queue;
  readonly deadLetters: Queue;
  /** The multipart uploads of the inbox, by the steps that complete them. */
  readonly multipartUploads = new Map<Step, MultipartUpload & { readonly begunAt: number }>();
  /** When the multipart uploads began that are being completed now, by their keys. */
  readonly completing = new Map<string, number>();
  /** The keys whose objects are being copied onto themselves now. */
  readonly copying = new Set<string>();
  readonly notifications = new Notifications(this);
  readonly neighbours = new Neighbours(this);
  readonly processes = new Processes(this);
  readonly invocations = new Invocations(this);
  readonly balancer = new Balancer(this);
  readonly onTrace: Listeners['onTrace'];
  readonly onCall: Listeners['onCall'];
  /** The settings of the latest deployment. */
  settings: Settings;
  /** The token in Secrets Manager. */
  secret: string;
  /** When the storm begins. */
  readonly stormStart: number;
  /** True if the storm is over. */
  isHealing = false;
  readonly #traceHash: Hash = createHash('sha256');

  constructor(seed: number, { onTrace, onCall }: Listeners = {}) {
    this.onTrace = onTrace;
    this.onCall = onCall;
    this.scenario = scenarioFor(seed);
    this.randoms = randomsOf(seed);
    const start = this.scenario.holds?.startsAt ?? START;
    this.timeline = new Timeline(start);
    this.stormStart = start + BEFORE_STORM_MS;
    this.faultPlan = new FaultPlan(this.randoms.faults, this.scenario.faultPlan);
    this.orderChecker = orderCheckerOf(this);
    this.chainWatch = new ChainWatch(this.orderChecker, () => this.timeline.now());
    this.holdWatch = this.scenario.holds && new HoldWatch(this.timeline);
    this.expiryWatch = expiryWatchOf(this);
    this.s3 = s3Of(this);
    this.inspector = new Inspector(this.s3);
    this.secret = `fake-token-${this.randoms.ids.hex(16)}`;
    this.observed.tokens.push(this.secret);
    this.service = serviceOf(this);
    this.jobApi = this.scenario.isJobApi ? new JobApi(this, this.randoms.jobApi) : undefined;
    // Nobody waits for a message of these queues.
    const clock = { now: () => this.timeline.now(), sleep: () => Promise.reject(new Error('No reader waits')) };
    this.deadLetters = new Queue({ name: 'dead', clock });
    this.queue = new Queue({
      name: 'uploads',
      clock,
      visibilityTimeoutSeconds: this.scenario.visibilitySeconds,
      deadLetters: { queue: this.deadLetters, maxReceiveCount: this.scenario.receivesMax },
    });
    this.settings = settingsOf(this.scenario);
    this.observed.routings.push(this.settings.routes);
  }

  /** Today's inbox. */
  get inbox(): string {
    return this.settings.inboxBucket;
  }

  get traceHash(): string {
    return this.#traceHash.copy().digest('hex');
  }

  trace(line: string): void {
    const stamped = `${((this.timeline.now() - START) / SECOND).toFixed(3)} ${line}`;
    this.#traceHash.update(`${stamped}\n`);
    this.onTrace?.(stamped);
  }

  /** A process makes a call, which may meet a fault. */
  noteCall(lambda: Lambda, what: string, fault: Fault | undefined): void {
    this.trace(`${lambda.name} ${what}${fault === undefined ? '' : ` × ${fault}`}`);
    if (fault !== undefined) this.observed.noteFault(lambda, what, fault);
    if (fault === 'frozen') lambda.freeze(this.randoms.network, this.scenario.clockSteps?.areAsleep);
  }

  /**
   * The fault of a call about something that is poisoned. It comes before the fault plan.
   * @param about what the call is about, by {@link Poison.of}.
   */
  poisonOf(kind: CallKind, about: Partial<Record<Poison['of'], string | undefined>>): Fault | undefined {
    const { poison } = this.scenario;
    const { poisoned } = this.observed;
    const id = poison && { ...about, all: kind }[poison.of];
    if (this.isHealing || poison?.calls.includes(kind) !== true || id === undefined) return undefined;
    if (poisoned.size < poison.count) poisoned.add(id);
    const at = this.timeline.now() - START;
    const isMet = poison.spans?.some(([from, to]) => from <= at && at < to) ?? true;
    return poisoned.has(id) && isMet ? poison.fault : undefined;
  }

  kill(lambda: Lambda): void {
    this.trace(`${lambda.name} is killed`);
    lambda.kill();
  }

  /** Lets time pass. */
  async pass(ms: number): Promise<void> {
    await this.timeline.run(() => false, this.timeline.now() + ms);
  }

  /** Does something again and again until `end`, with random gaps. */
  repeat(gapMs: { readonly min: number; readonly max: number }, end: number, act: () => void): void {
    const { timeline, randoms } = this;
    const again = (): void => {
      const at = timeline.now() + randoms.main.int(gapMs.min, gapMs.max);
      if (at > end) return;
      timeline.schedule(at, () => {
        act();
        again();
      });
    };
    again();
  }

  /** All readable entries of the ledger. */
  async entries(): Promise<Entry[]> {
    const keys = await this.inspector.list(LEDGER, 'uploads/');
    const readable = keys.filter(({ key }) => !this.isDamaged(key));
    return Promise.all(readable.map(({ key }) => this.inspector.json<Entry>(LEDGER, key)));
  }

  /** True if a key of the ledger is of the upload whose entry was damaged. */
  isDamaged(key: string): boolean {
    const { damaged } = this.observed;
    return damaged !== undefined && key.includes(damaged.id);
  }

  /** True if a marker stays until an operator mends the damaged entry: its own, or a request to make its stage anew. */
  isStuck(marker: string): boolean {
    const first = this.observed.damaged?.stage?.first.id;
    return this.isDamaged(marker) || (first !== undefined && marker.endsWith(first));
  }

  close(): void {
    this.processes.close();
    this.service.close();
    this.s3.close();
  }
}

/** Random numbers of their own for each purpose, so that more draws for one do not change the others. */
type Randoms = ReturnType<typeof randomsOf>;

function randomsOf(seed: number) {
  return {
    main: new Random(seed, 2),
    network: new Random(seed, 3),
    ids: new Random(seed, 4),
    faults: new Random(seed, 5),
    durations: new Random(seed, 6),
    neighbours: new Random(seed, 8),
    changes: new Random(seed, 9),
    jobApi: new Random(seed, 19),
    reviews: new Random(seed, 25),
    clocks: new Random(seed, 31),
    lateFlows: new Random(seed, 32),
    replicas: new Random(seed, 33),
  };
}

/** The scenario of a seed. More than half are storms, among them all that have a focus. */
function scenarioFor(seed: number): Scenario {
  const round = Math.floor(seed / 10);
  if (seed % 10 === 3) return limitedScenarioOf(new Random(seed, 1), 2 * round);
  if (seed % 10 === 9) return limitedScenarioOf(new Random(seed, 1), 2 * round + 1);
  if (seed % 40 === 25 || seed % 40 === 37) return slowScenarioOf(new Random(seed, 1));
  if (seed % 20 === 5) return backfillScenarioOf(new Random(seed, 1));
  if (seed % 40 === 15) return longRoundsScenarioOf(new Random(seed, 1));
  if (seed % 80 === 75) return replicasScenarioOf(new Random(seed, 1));
  if (seed % 40 === 35) return laggingReplicaScenarioOf(new Random(seed, 1));
  if (seed % 10 === 7) return poisonedScenarioOf(new Random(seed, 1));
  const storm = withTroubles(stormScenarioOf(new Random(seed, 1), focusOf(seed)), new Random(seed, 7));
  const chained = withChains(withDeclaredListing(storm, new Random(seed, 10)), new Random(seed, 11));
  const held = withHolds(withJobs(chained, new Random(seed, 12)), new Random(seed, 13), BEFORE_STORM_MS);
  const changed = withRouteChanges(withCopies(held, new Random(seed, 14)), new Random(seed, 15));
  const withHonouredKeys = withKeys(withStageChanges(changed, new Random(seed, 16)), new Random(seed, 17));
  const withEnds = withSources(withJobApi(withHonouredKeys, new Random(seed, 18)), new Random(seed, 20));
  const withStill = withAliases(withSettling(withEnds, new Random(seed, 23)), new Random(seed, 21));
  const withAnew = withAddedStages(withReview(withStill, new Random(seed, 24)), new Random(seed, 26));
  const expiring = withRetention(withDeletions(withAnew, new Random(seed, 27)), new Random(seed, 28));
  return withLateFlows(withClockSteps(expiring, new Random(seed, 29)), new Random(seed, 30));
}

function orderCheckerOf({ timeline, observed, scenario, faultPlan }: World): OrderChecker {
  return new OrderChecker(() => timeline.now(), {
    takeOver: () => observed.wasAnyFrozen || scenario.isSkewWild,
    loseLease: () =>
      observed.wasAnyFrozen ||
      scenario.skewMs > 0 ||
      scenario.suddenDeaths > 0 ||
      Object.keys(faultPlan.table).some((pair) => pair.startsWith('lease.')),
  });
}

function s3Of({ timeline, scenario, notifications, onCall }: World): EmbeddedS3 {
  const s3 = new EmbeddedS3({
    clock: timeline,
    keysMax: scenario.keysMax,
    onEvent: (record) => notifications.onS3Event(record),
    authorize: (access) => {
      // The requests of the test itself have no name.
      const { accessKeyId: name } = access;
      const resource = access.resource.replace(NEXT_INBOX, INBOX).replace(NEXT_RESULTS, RESULTS);
      if (name !== undefined) onCall?.({ by: name.startsWith('create') ? 'create' : 'collect', ...access, resource });
      return name === undefined || resource !== `arn:aws:s3:::${INBOX}/${DENIED_KEY}`;
    },
  });
  for (const inbox of [INBOX, NEXT_INBOX]) {
    s3.createBucket(inbox, scenario.versioning === undefined ? {} : { versioning: scenario.versioning });
  }
  for (const results of RESULT_BUCKETS) s3.createBucket(results);
  s3.createBucket(LEDGER);
  return s3;
}

function serviceOf(world: World): StandInFlowService {
  const { timeline, scenario, observed, randoms } = world;
  return new StandInFlowService({
    clock: timeline,
    newId: () => {
      // No flow is made then.
      if (isRejecting(world)) throw new Refusal(422, 'Nothing goes today');
      if (!scenario.hasOddIds) return randoms.ids.hex(24);
      // The place of an address becomes an id, in which no slash stands.
      return scenario.isJobApi ? oddId(randoms.ids).replaceAll('/', '-') : oddId(randoms.ids);
    },
    tokens: observed.tokens,
    flowMs: ({ template }) =>
      (template === 'text' ? scenario.textFlowMs : undefined) ??
      randoms.durations.int(scenario.flowMsMin, scenario.flowMsMax),
    limits: scenario.serviceLimits,
    variation: scenario.variation,
  });
}

function expiryWatchOf({ scenario, orderChecker, chainWatch, timeline }: World): ExpiryWatch | undefined {
  const { resultsRetentionDays, routeChanges = [] } = scenario;
  // The functions may not read a bucket that had the results before, so assets in it keep the tags that they have.
  const areMoved = routeChanges.some(({ areResultsMoved }) => areResultsMoved);
  if (resultsRetentionDays === undefined || areMoved) return undefined;
  return new ExpiryWatch(orderChecker, chainWatch, timeline);
}

function settingsOf({ settings, routes, variation, speaks, resultsRetentionDays }: Scenario): Settings {
  return {
    ...settings,
    resultsRetentionDays,
    service: descriptionOf(variation, speaks),
    pipeline: PIPELINE,
    baseUrl: BASE_URL,
    tokenSecretId: 'token',
    inboxBucket: INBOX,
    resultsBucket: RESULTS,
    ledgerBucket: LEDGER,
    queueUrl: 'unused',
    collectFunction: 'collect',
    routes,
  } as Settings;
}
