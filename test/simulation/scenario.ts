import { type PipelineSettings, SETTINGS_DEFAULT } from '../../functions/settings/settings.ts';
import type { Route } from '../../functions/uploads/routes.ts';
import type { Versioning } from '../../local/aws/s3/s3.ts';
import type { Limits as ServiceLimits } from '../../local/flow-service/limiter.ts';
import type { Variation } from '../../local/flow-service/variation.ts';
import {
  ALL_FAULTS,
  type CallKind,
  type Fault,
  type FaultPlanOptions,
  type Focus,
  type ServiceCallKind,
} from './faults.ts';
import type { Random } from './random.ts';

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const MIB = 1024 * 1024;

/** Three parts; half of it, which is where a connection breaks, is more than one. */
const BIG_ASSET_BYTES = 10.25 * MIB;

/** What is done to the inbox, and when: milliseconds from the beginning. */
export type Step =
  | {
      readonly at: number;
      readonly kind: 'put';
      readonly key: string;
      readonly content: Buffer;
      readonly mediaType: string;
    }
  | { readonly at: number; readonly kind: 'delete'; readonly key: string };

/** A change of configuration: a route corrected, the pipeline renamed, another bucket as inbox, limits lowered. */
export type Change = 'route' | 'pipeline' | 'inbox' | 'limits';

/** Limits as they are after they were lowered. */
export const LOWERED_SETTINGS = { inputBytesMax: 300, textBytesMax: 200, attemptsMax: 1, pollConcurrency: 1 } as const;

/** A fault that single flows or assets meet at every call, for ever. */
export interface Poison {
  readonly fault: Fault;
  /** The calls that meet it. */
  readonly calls: readonly ServiceCallKind[];
  /** The first so many flows that are looked at, or the first so many assets that are asked for. */
  readonly of: 'flow' | 'asset';
  readonly count: number;
}

/** Everything about a seed's world but which fault each single call meets. */
export interface Scenario {
  /** A storm is everything at once, and is then over. The others have one trouble, which stays. */
  readonly kind: 'storm' | 'limits' | 'poison' | 'backfill';
  readonly versioning: Versioning | undefined;
  readonly routes: readonly Route[];
  readonly settings: PipelineSettings;
  readonly variation: Partial<Variation>;
  readonly collectors: number;
  readonly createLimitMs: number;
  readonly collectLimitMs: number;
  readonly visibilitySeconds: number;
  readonly receivesMax: number;
  readonly flowMsMin: number;
  readonly flowMsMax: number;
  /** Duration of flows of the template `text`, where it is another, in milliseconds. */
  readonly textFlowMs?: number | undefined;
  /** What the service allows. Lowered limits come some time after the first upload, in milliseconds. */
  readonly serviceLimits: ServiceLimits;
  readonly lowered?: { readonly at: number; readonly limits: ServiceLimits } | undefined;
  /** What never heals. */
  readonly poison?: Poison | undefined;
  /** Largest deviation of a process's clock, in milliseconds, and whether it is more than a claim allows for. */
  readonly skewMs: number;
  readonly isSkewWild: boolean;
  /** Notifications may be lost, and dead letters stay dead: then only the sweep finds what was missed. */
  readonly isLossy: boolean;
  readonly faultPlan: FaultPlanOptions;
  readonly steps: readonly Step[];
  /** When the token is replaced, and how long before or after that the secret says so. */
  readonly rotations: readonly { readonly at: number; readonly secretAt: number }[];
  /** Share of invocations whose process dies at some moment of its own. */
  readonly suddenDeaths: number;
  readonly chaosMs: number;
  readonly tickGapMs: { readonly min: number; readonly max: number };
  readonly sweepGapMs: { readonly min: number; readonly max: number };
  /** Whether people retry failed uploads while all this goes on. */
  readonly areRetried: boolean;
  /** Share of messages that are delivered again while they are being worked on. */
  readonly againEarly: number;
  /** What is deployed otherwise while all this goes on, and when. */
  readonly changes: readonly { readonly at: number; readonly what: Change }[];
  /** When an entry that is at its end expires, and when one is damaged. */
  readonly expiriesAt: readonly number[];
  readonly damageAt?: number | undefined;
  /** When somebody asks for a sweep from the beginning of time. */
  readonly backfillsAt: readonly number[];
  /** The pace of a backfill. */
  readonly uploadsPerSecond?: number | undefined;
  /** Whether all failures, and all that is held, are retried once all is well. */
  readonly areAllRetried: boolean;
  /** Whether others use the same account of the service, and delete what they have no use for any more. */
  readonly hasNeighbours: boolean;
  readonly doNeighboursDelete: boolean;
  /** Keys on a page of a listing of S3. */
  readonly keysMax: number;
  /** Whether ids of flows and assets need encoding. */
  readonly hasOddIds: boolean;
}

export const ROUTES: readonly Route[] = [
  { name: 'echo', prefixes: ['echo/'], input: 'file', template: 'bytes_echo', additional: { of: 'us' } },
  { name: 'two', prefixes: ['two/'], input: 'file', template: 'bytes_echo', parameters: { copies: 2 } },
  {
    name: 'odd',
    prefixes: ['odd/'],
    input: 'file',
    template: 'bytes_echo',
    parameters: { copies: 3, failed_outputs: 1 },
  },
  { name: 'fail', prefixes: ['fail/'], input: 'file', template: 'bytes_echo', parameters: { fail: true, partial: 1 } },
  {
    name: 'none',
    prefixes: ['none/'],
    input: 'file',
    template: 'bytes_echo',
    parameters: { copies: 1, failed_outputs: 1 },
  },
  { name: 'text', prefixes: ['text/'], input: 'text', template: 'text' },
  { name: 'bad', prefixes: ['bad/'], input: 'file', template: 'no_such_template' },
  { name: 'big', prefixes: ['big/'], input: 'file', template: 'bytes_echo', parameters: { bytes: BIG_ASSET_BYTES } },
];

const KEYS = [
  'echo/a.bin',
  'echo/b c+d%é?#.png',
  'echo/sub/ü\u0301.txt',
  'two/x.bin',
  'odd/x.bin',
  'fail/x.bin',
  'none/x.bin',
  'text/prompt.txt',
  'bad/x.bin',
  'elsewhere/x.bin',
];
const USUAL_KEYS = ['echo/a.bin', 'echo/b c+d%é?#.png', 'two/x.bin'];

/** What makes it unknown whether a flow was made. */
export const DOUBTFUL: readonly Fault[] = [
  'lost',
  '500 after',
  '500',
  '502',
  'hung after',
  'truncated',
  'garbled',
  'no ids',
  'endless',
  'killed after',
  'cut cleanly',
];
const THROTTLING: readonly Fault[] = ['429 without Retry-After', '429 in seconds', '429 with a date', '503 in seconds'];
const KILLING: readonly Fault[] = ['killed before', 'killed after', 'lost'];
const S3_TROUBLE: readonly Fault[] = [
  'refused',
  'lost',
  'slow',
  'half',
  'late',
  'slow down',
  'internal error',
  'internal error after',
  'conflict',
];

function faultPlanOf(random: Random): FaultPlanOptions {
  const mood = random.int(1, 20);
  const persistence = random.pick([0, 0.3, 0.8, 1]);
  const rate = random.pick([0.02, 0.05, 0.1, 0.2]);
  const strong = random.pick([0.1, 0.25, 0.5]);
  const only = (faults: readonly Fault[], share: number, calls?: readonly CallKind[]): FaultPlanOptions => ({
    rate: share,
    faults,
    calls,
    persistence,
  });
  if (mood === 1) return only([], 0);
  if (mood === 2) return only(THROTTLING, random.pick([0.3, 0.6, 0.9]));
  if (mood === 3) return only(['401', '403'], strong);
  if (mood <= 6) return only(DOUBTFUL, strong, random.chance(0.5) ? ['flow.create'] : ['flow.create', 'flows.list']);
  if (mood <= 8) return only(KILLING, random.pick([0.02, 0.05, 0.1]));
  if (mood === 9) return only(['frozen', 'slow', 'late'], random.pick([0.02, 0.05, 0.1]));
  if (mood <= 11) return only(S3_TROUBLE, random.pick([0.1, 0.25]));
  if (mood === 12) return only(['truncated', 'half', 'garbled', 'cut cleanly', 'endless', 'hung'], rate);
  if (mood === 13) return only(['lost', 'killed after', 'internal error after', 'late'], rate);
  return only(random.chance(0.3) ? random.some(ALL_FAULTS, 0.4) : ALL_FAULTS, rate);
}

function variationOf(random: Random, { areRedirected }: Wishes): Partial<Variation> {
  const getFlow = random.chance(0.7) ? 'served' : random.pick([404, 405, 501] as const);
  const served = random.pick([404, 405, 501] as const);
  const isJson = random.chance(0.5);
  return {
    outputsPath: random.pick(['flows', 'root', 'both']),
    getFlow,
    listFlows: random.chance(0.75) ? 'served' : served,
    changeFlow: random.chance(0.8) ? 'served' : served,
    createStatus: random.pick([201, 200, 202]),
    wrongTokenStatus: 401,
    flowIdName: random.pick(['flow_id', 'id']),
    assetIdName: random.pick(['asset_id', 'id']),
    outputsShape: random.pick(['object', 'bare']),
    listShape: random.pick(['object', 'bare']),
    // Where a flow cannot be asked for, a 404 of its outputs is the only word for its being gone.
    earlyOutputs: random.pick(
      getFlow === 'served' ? ['conflict', 'not-found', 'empty', 'pending'] : ['conflict', 'empty', 'pending'],
    ),
    paging: random.pick(['page', 'next', 'next_cursor', 'next_url', 'link', 'none', 'first-only']),
    pageSize: random.pick([1, 2, 5, 50]),
    order: random.pick(['descending', 'ascending']),
    listingDelayMs: random.pick([0, 0, 20 * SECOND, MINUTE, 4 * MINUTE]),
    assetForm: isJson ? 'json' : 'raw',
    assetLength: random.pick(['content-length', 'chunked']),
    assetRedirect:
      (areRedirected ?? random.chance(0.15))
        ? (flowId, assetId) =>
            `https://cdn.example/downloads/${encodeURIComponent(flowId)}/${encodeURIComponent(assetId)}`
        : undefined,
    jsonMembersBefore: random.chance(0.3),
    jsonMembersAfter: random.chance(0.3),
    jsonWhiteSpace: random.chance(0.3),
    jsonEscapedSlashes: random.chance(0.3),
    jsonLineBreaks: random.chance(0.3),
    jsonUnpadded: random.chance(0.3),
  };
}

/** What gives an asset of several parts. Making and hashing it takes long, so it comes alone. */
function bigStep(random: Random, spanMs: number): Step {
  const mediaType = 'application/octet-stream';
  return { at: random.int(0, spanMs), kind: 'put', key: 'big/x.bin', content: Buffer.from('big'), mediaType };
}

const BIG_CALLS = [
  'asset.begin',
  'asset.put-part',
  'asset.complete',
  'asset.abort',
  'asset.get',
  'flow.asset',
  'flow.download',
] as const;

function bigFaultPlan(random: Random): FaultPlanOptions {
  return { rate: 0.12, faults: ALL_FAULTS, calls: BIG_CALLS, persistence: random.pick([0, 1]) };
}

/** What a scenario must have for a call to be made, and not only once, where it is not made in nearly every one. */
interface Wishes {
  readonly isBig?: boolean;
  readonly areOverwritten?: boolean;
  readonly areRedirected?: boolean;
  /** Flows that end soon, with assets. */
  readonly areQuick?: boolean;
  readonly areTimedOut?: boolean;
  readonly areSwept?: boolean;
  /** What leads to the call. */
  readonly faultPlan?: FaultPlanOptions;
}

const WISHES: Partial<Record<CallKind, Wishes>> = {
  'inbox.head': { areOverwritten: true },
  'inbox.list': { areSwept: true },
  'entries.list': { areSwept: true },
  'sweep.get': { areSwept: true },
  'sweep.put': { areSwept: true },
  'asset.put': { areQuick: true },
  'asset.begin': { isBig: true, areQuick: true },
  'asset.put-part': { isBig: true, areQuick: true },
  'asset.complete': { isBig: true, areQuick: true },
  'asset.abort': {
    isBig: true,
    areQuick: true,
    faultPlan: { rate: 0.6, faults: ['half'], calls: ['flow.asset', 'flow.download'], persistence: 0 },
  },
  'asset.get': {
    areQuick: true,
    faultPlan: { rate: 0.6, faults: ['lost', 'internal error after'], calls: ['asset.put'], persistence: 0 },
  },
  'receipt.head': { areOverwritten: true },
  'flow.outputs': { areQuick: true },
  'flow.asset': { areQuick: true },
  'flow.download': { areQuick: true, areRedirected: true },
  'flow.abort': { areTimedOut: true },
  'flows.list': { faultPlan: { rate: 0.7, faults: DOUBTFUL, calls: ['flow.create'], persistence: 0 } },
  'queue.send': { faultPlan: { rate: 0.7, faults: THROTTLING, calls: ['flow.create'], persistence: 0 } },
};

function stepsOf(random: Random, spanMs: number, focus: Focus | undefined, wishes: Wishes): readonly Step[] {
  const keys = Array.from({ length: wishes.areOverwritten ? 1 : random.int(1, 3) }, () =>
    random.pick(wishes.areQuick || wishes.areTimedOut || random.chance(0.6) ? USUAL_KEYS : KEYS),
  );
  if (wishes.isBig) return [bigStep(random, spanMs), bigStep(random, spanMs)].sort((a, b) => a.at - b.at);
  if (random.chance(0.03)) return [bigStep(random, spanMs)];
  const contents = new Map<string, Buffer>();
  const contentFor = (key: string): Buffer => {
    const kind = random.int(1, 40);
    if (kind === 1) return Buffer.alloc(0);
    if (kind === 2 && key.startsWith('text/')) return Buffer.from([0x66, 0xff, 0xfe]);
    const size = kind === 3 ? random.int(200_000, 400_000) : random.int(1, 600);
    const content = Buffer.alloc(size);
    for (let at = 0; at < size; at += 1)
      content[at] = key.startsWith('text/') ? random.int(0x20, 0x7e) : random.int(0, 255);
    return content;
  };
  const steps: Step[] = [];
  const count = random.int(focus === undefined ? 1 : 3, 7);
  for (let n = 0; n < count; n += 1) {
    const key = random.pick(keys);
    const at = random.int(0, spanMs);
    const before = contents.get(key);
    if (before !== undefined && random.chance(0.15)) {
      steps.push({ at, kind: 'delete', key });
      continue;
    }
    const content = before !== undefined && random.chance(0.3) ? before : contentFor(key);
    contents.set(key, content);
    const mediaType = key.startsWith('text/') ? 'text/plain' : random.pick(['application/octet-stream', 'image/png']);
    steps.push({ at, kind: 'put', key, content, mediaType });
  }
  return steps.sort((a, b) => a.at - b.at);
}

/** The same routes after the one with a template that does not exist was corrected. */
export const CORRECTED_ROUTES: readonly Route[] = ROUTES.map((route) =>
  route.name === 'bad' ? { ...route, template: 'bytes_echo' } : route,
);

/** What no scenario has unless a kind of trouble adds it. */
const NOTHING_SPECIAL = {
  againEarly: 0.2,
  changes: [],
  expiriesAt: [],
  backfillsAt: [],
  areAllRetried: false,
  doNeighboursDelete: false,
  keysMax: 1_000,
  hasOddIds: false,
} as const satisfies Partial<Scenario>;

export function scenarioOf(random: Random, focus: Focus | undefined): Scenario {
  const wishes = (focus && WISHES[focus.call]) ?? {};
  const variation = variationOf(random, wishes);
  const isSkewWild = random.chance(0.1) && (variation.listingDelayMs ?? 0) <= MINUTE;
  const createLimitMs = random.pick([90 * SECOND, 5 * MINUTE, 15 * MINUTE]);
  const span = random.pick([MINUTE, 4 * MINUTE, 10 * MINUTE]);
  const chaosMs = span + random.int(wishes.areTimedOut ? 8 : 2, 10) * MINUTE;
  const steps = stepsOf(random, span, focus, wishes);
  const isBig = steps.some(({ key }) => key.startsWith('big/'));
  const areTimedOut = wishes.areTimedOut ?? (!wishes.areQuick && random.chance(0.12));
  return {
    kind: 'storm',
    versioning: random.pick(['Enabled', 'Enabled', 'Enabled', 'Suspended', undefined]),
    routes: ROUTES,
    settings: {
      ...SETTINGS_DEFAULT,
      uploadConcurrency: random.int(1, 4),
      assetBytesMax: isBig ? BIG_ASSET_BYTES : 2 * MIB,
      attemptsMax: random.pick([1, 2, 3, 5]),
      inDoubt: random.chance(0.7) ? 'retry' : 'hold',
      pollIntervalSeconds: random.pick([20, 60, 60, 120]),
      pollConcurrency: random.pick([1, 4, 64]),
      assetConcurrency: random.pick([1, 4]),
      flowAgeMaxSeconds: areTimedOut ? random.int(60, 240) : SETTINGS_DEFAULT.flowAgeMaxSeconds,
      resultsPrefix: random.chance(0.2) ? 'out/' : '',
    },
    variation,
    collectors: random.pick([1, 1, 1, 2, 3]),
    createLimitMs,
    collectLimitMs: random.pick([60 * SECOND, 5 * MINUTE, 15 * MINUTE]),
    visibilitySeconds: createLimitMs / SECOND + 120,
    receivesMax: random.pick([3, 20]),
    flowMsMin: 1,
    serviceLimits: {},
    flowMsMax: areTimedOut
      ? 60 * MINUTE
      : wishes.areQuick
        ? 20 * SECOND
        : random.pick([20 * SECOND, 3 * MINUTE, 20 * MINUTE]),
    skewMs: isSkewWild ? 140 * SECOND : random.pick([0, 0, 25 * SECOND]),
    isSkewWild,
    isLossy: wishes.areSwept ?? random.chance(0.3),
    faultPlan: { ...(wishes.faultPlan ?? (isBig ? bigFaultPlan(random) : faultPlanOf(random))), focus },
    steps,
    rotations: Array.from({ length: random.pick([0, 0, 1, 2]) }, () => {
      const at = random.int(0, chaosMs);
      return { at, secretAt: at + random.int(-2 * MINUTE, 10 * MINUTE) };
    }),
    suddenDeaths: random.pick([0, 0, 0.05, 0.2]),
    chaosMs,
    tickGapMs: random.pick([
      { min: 20 * SECOND, max: 150 * SECOND },
      { min: MINUTE, max: 5 * MINUTE },
    ]),
    sweepGapMs: wishes.areSwept ? { min: MINUTE, max: 4 * MINUTE } : { min: 5 * MINUTE, max: 20 * MINUTE },
    areRetried: random.chance(0.2),
    hasNeighbours: random.chance(0.5),
    ...NOTHING_SPECIAL,
  };
}

/** A world in which nothing goes wrong, but for what is added to it. */
export function steadyScenario(random: Random, steps: readonly Step[]): Scenario {
  return {
    kind: 'limits',
    versioning: 'Enabled',
    routes: ROUTES,
    settings: { ...SETTINGS_DEFAULT, assetBytesMax: 2 * MIB },
    variation: {
      outputsPath: random.pick(['flows', 'root']),
      paging: random.pick(['page', 'next', 'link']),
      assetForm: random.pick(['raw', 'json']),
    },
    collectors: 1,
    createLimitMs: 5 * MINUTE,
    collectLimitMs: 5 * MINUTE,
    visibilitySeconds: 7 * 60,
    receivesMax: 20,
    flowMsMin: 1,
    flowMsMax: MINUTE,
    serviceLimits: {},
    skewMs: 0,
    isSkewWild: false,
    isLossy: false,
    faultPlan: { rate: 0, faults: [], persistence: 0 },
    steps,
    rotations: [],
    suddenDeaths: 0,
    chaosMs: 0,
    tickGapMs: { min: MINUTE, max: MINUTE },
    sweepGapMs: { min: MINUTE, max: MINUTE },
    areRetried: false,
    hasNeighbours: false,
    ...NOTHING_SPECIAL,
  };
}

/** So many uploads that come within `spanMs`, each at a key of its own. */
export function manySteps(random: Random, count: number, spanMs: number, prefixes: readonly string[]): readonly Step[] {
  const steps = Array.from({ length: count }, (_, index): Step => {
    const content = Buffer.from(`upload ${index} ${random.hex(random.int(1, 200))}`);
    const key = `${random.pick(prefixes)}${index}.bin`;
    return { at: random.int(0, spanMs), kind: 'put', key, content, mediaType: 'application/octet-stream' };
  });
  return steps.sort((a, b) => a.at - b.at);
}
