import type { Limits, Rate } from '../../local/flow-service/limiter.ts';
import { demand } from './demand.ts';
import type { Random } from './random.ts';
import { manySteps, type Scenario, steadyScenario } from './scenario.ts';
import { CREATES_MAX, type World } from './world.ts';

/*
 * Worlds whose only trouble is that the service allows so much and no more. All that is asked of them is that the work is
 * done in about the time that the allowance takes, with about the requests that the work takes.
 */

const SECOND = 1_000;
const MINUTE = 60 * SECOND;

/** How much longer than at best it may take, and how many more requests than needed may be accepted. */
const SLACK = 1.5;

/**
 * Time that has nothing to do with the allowance: a minute until a tick finds the flow, a minute until a tick sends a
 * waiting upload on, and half a minute for two looks, 15 seconds apart, for notifications and for all calls of S3.
 */
const SCHEDULE_MS = 2.5 * MINUTE;

/** Where places are the limit: from the end of a flow until a waiting upload takes its place, in milliseconds. */
const PLACE_CHANGE_MS = MINUTE;

/** Refusals that teach a process the pace, for each process; and in all, as a share of what is accepted. */
const REFUSALS_PER_PROCESS = 15;
const REFUSALS_SHARE = 0.5;
/** Where places or a budget are the limit, nobody knows when there is room: each waiting invocation asks so often. */
const PROBE_MS = 10 * SECOND;

/**
 * Requests that may be sent although the service has just asked another one to come later, and as a share of what was
 * refused: a flow that is refused again and again while others are answered is taken to be the cause itself.
 */
const IN_SPITE_MAX = 3;
const IN_SPITE_SHARE = 0.15;

/** A running flow is looked at no more often than this, in milliseconds. */
const LOOK_GAP_MS = 15 * SECOND;

interface Kind {
  readonly limits: (random: Random) => Limits;
  readonly uploads: readonly [min: number, max: number];
  readonly flowMs?: readonly [min: number, max: number];
  readonly lowered?: (random: Random) => Scenario['lowered'];
}

const told = (random: Random): Pick<Limits, 'retryAfter' | 'headers'> => ({
  retryAfter: random.pick(['seconds', 'seconds', 'date', 'none']),
  headers: random.pick(['none', 'none', 'RateLimit', 'X-RateLimit']),
});

const rate = (requestsPerSecond: number, burst: number): Rate => ({ requestsPerSecond, burst });

/** They take turns, so that a few dozen seeds in a row go through all. */
const KINDS: readonly Kind[] = [
  // So many a second. A bucket for one request at a higher rate would refuse whatever the network bunches together.
  { uploads: [10, 14], limits: (random) => ({ everything: rate(1, random.pick([1, 5])), ...told(random) }) },
  { uploads: [20, 30], limits: (random) => ({ everything: rate(5, random.pick([2, 5, 10])), ...told(random) }) },
  { uploads: [30, 40], limits: (random) => ({ everything: rate(20, random.pick([4, 20])), ...told(random) }) },
  // Sixty a minute for all that there is.
  { uploads: [8, 12], limits: (random) => ({ everything: rate(1, 60), ...told(random) }) },
  // Creations apart from all others.
  { uploads: [20, 30], limits: (random) => ({ creations: rate(1, 1), others: rate(10, 10), ...told(random) }) },
  { uploads: [15, 20], limits: (random) => ({ creations: rate(10, 10), others: rate(1, 2), ...told(random) }) },
  // The same with 503, which leaves a creation in doubt for minutes: so only the others are refused.
  {
    uploads: [15, 20],
    limits: (random) => ({ others: rate(2, 2), status: 503, retryAfter: random.pick(['seconds', 'date']) }),
  },
  // Twenty in ten seconds.
  { uploads: [20, 30], limits: (random) => ({ window: { requests: 20, seconds: 10 }, ...told(random) }) },
  // So many flows at a time.
  {
    uploads: [6, 9],
    flowMs: [MINUTE, 2 * MINUTE],
    limits: (random) => ({ places: random.int(1, 3), retryAfter: random.pick(['seconds', 'none']) }),
  },
  // A budget that is spent for half an hour or an hour.
  {
    uploads: [6, 8],
    limits: (random) => ({
      budget: { creations: 5, seconds: random.pick([1_800, 3_600]), status: random.pick([402, 429]) },
      retryAfter: random.pick(['seconds', 'none']),
    }),
  },
  // Lowered while all are under way.
  {
    uploads: [10, 14],
    limits: () => ({ everything: rate(20, 20) }),
    lowered: (random) => ({ at: random.int(SECOND, 20 * SECOND), limits: { everything: rate(1, 1) } }),
  },
];

/** @param turn which kind of limit it is. */
export function limitedScenarioOf(random: Random, turn: number): Scenario {
  const kind = KINDS[turn % KINDS.length] as Kind;
  const steps = manySteps(random, random.int(...kind.uploads), 5 * SECOND, ['echo/', 'echo/', 'two/']);
  const [flowMsMin, flowMsMax] = kind.flowMs ?? [1, random.pick([5 * SECOND, MINUTE])];
  return {
    ...steadyScenario(random, steps),
    kind: 'limits',
    flowMsMin,
    flowMsMax,
    serviceLimits: kind.limits(random),
    lowered: kind.lowered?.(random),
  };
}

/** What the uploads of a world cost at least. */
interface Need {
  readonly creations: number;
  readonly others: number;
}

/** A creation, a look at the flow when it has ended, its outputs, and its assets. */
function needOf({ steps }: Scenario): Need {
  const assets = steps.map(({ key }): number => (key.startsWith('two/') ? 2 : 1));
  return { creations: steps.length, others: assets.reduce((sum, count) => sum + 2 + count, 0) };
}

/** How long the requests that are needed take at best, with places always taken and not a moment lost. */
export function idealMs(scenario: Scenario, flowMs: readonly number[]): number {
  const { creations, others } = needOf(scenario);
  // After it is lowered the lower limit holds nearly all the time.
  const { lowered } = scenario;
  const limits = lowered?.limits ?? scenario.serviceLimits;
  const { everything, creations: forCreations, others: forOthers, window, places, budget } = limits;
  const timeAt = (count: number, allowed: Rate | undefined): number =>
    allowed === undefined ? 0 : (Math.max(0, count - allowed.burst) / allowed.requestsPerSecond) * SECOND;
  return Math.max(
    (lowered?.at ?? 0) + timeAt(creations + others, everything),
    timeAt(creations, forCreations),
    timeAt(others, forOthers),
    window === undefined ? 0 : (Math.ceil((creations + others) / window.requests) - 1) * window.seconds * SECOND,
    places === undefined ? 0 : flowMs.reduce((sum, ms) => sum + ms, 0) / places,
    budget === undefined ? 0 : Math.floor((creations - 1) / budget.creations) * budget.seconds * SECOND,
  );
}

/** The lower of the rates for requests that are no creations. */
function lowestRate({ everything, others }: Limits): Rate | undefined {
  const rates = [everything, others].flatMap((one) => one ?? []);
  return rates.sort((a, b) => a.requestsPerSecond - b.requestsPerSecond)[0];
}

/** From the end of the first flow that was seen until its receipt, beside the time for looks, in milliseconds. */
const FIRST_RECEIPT_MS = 3 * SECOND;

/** Rates and bursts up to these are low enough that the order of requests shows, in requests a second and requests. */
const LOW_RATE_MAX = 2;
const LOW_BURST_MAX = 5;

/** Everything is done within the time and the requests that the work takes, and a little more. */
export async function liveWithinLimits(world: World): Promise<void> {
  const { scenario, service, toldAt } = world;
  const { steps, serviceLimits, lowered } = scenario;
  const { limiter } = service;
  const limitMsFor = (flowMs: readonly number[]): number => {
    const waves = serviceLimits.places === undefined ? 0 : Math.ceil(steps.length / serviceLimits.places);
    return SLACK * idealMs(scenario, flowMs) + SCHEDULE_MS + Math.max(...flowMs) + waves * PLACE_CHANGE_MS;
  };
  // How long each flow takes is known only when all are made.
  const atMostMs = limitMsFor(steps.map(() => scenario.flowMsMax));
  const tookMs = await world.runSteadily(() => toldAt.size >= steps.length, atMostMs);
  const flowMs = service.flows.map(({ startedAt = 0, finishedAt = startedAt }) => finishedAt - startedAt);
  const limitMs = tookMs === undefined ? atMostMs : limitMsFor(flowMs);
  const firstReceiptMs = Math.min(...toldAt.values()) - (world.firstEndSeenAt ?? 0);
  const figures = {
    limits: serviceLimits,
    lowered,
    uploads: steps.length,
    ended: toldAt.size,
    tookMs,
    idealMs: idealMs(scenario, flowMs),
    limitMs,
    firstReceiptMs,
    needed: needOf(scenario),
    accepted: limiter.accepted,
    refused: limiter.refused,
    sentInSpite: world.sentInSpite,
  };
  world.figures = figures;
  const isInTime = tookMs !== undefined && tookMs <= limitMs;
  demand(isInTime, 'not everything was done within what the service allows', figures);

  // What belongs to a flow that has ended goes before looks: the first is finished before all could be looked at.
  // A burst of looks may find several flows at once, whose outputs are then asked for one after the other.
  const { requestsPerSecond = Infinity, burst = 0 } = lowestRate(lowered?.limits ?? serviceLimits) ?? {};
  const firstReceiptBy = ((SLACK * (steps.length + burst)) / requestsPerSecond) * SECOND + FIRST_RECEIPT_MS;
  const isLow = requestsPerSecond <= LOW_RATE_MAX && burst <= LOW_BURST_MAX;
  const isFirst = !isLow || firstReceiptMs <= firstReceiptBy;
  demand(isFirst, 'flows were looked at before the first one was finished', firstReceiptBy, figures);

  const looks = steps.length * (1 + Math.ceil(scenario.flowMsMax / LOOK_GAP_MS));
  const { creations, others } = needOf(scenario);
  const acceptedMax = SLACK * (creations + others) + looks;
  demand(limiter.acceptedCount <= acceptedMax, 'more requests were spent than the work takes', acceptedMax, figures);
  const { places, budget } = serviceLimits;
  const probesMax = places === undefined && budget === undefined ? 0 : (CREATES_MAX * (tookMs ?? 0)) / PROBE_MS;
  const refusedMax = REFUSALS_PER_PROCESS * world.processCount + REFUSALS_SHARE * limiter.acceptedCount + probesMax;
  demand(
    limiter.refusedCount <= refusedMax,
    'the service was asked far more often than it allows',
    refusedMax,
    figures,
  );
  const inSpiteMax = IN_SPITE_MAX + IN_SPITE_SHARE * limiter.refusedCount;
  demand(world.sentInSpite <= inSpiteMax, 'requests were sent although the service asked to wait', figures);
}
