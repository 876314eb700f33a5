import type { Limits, Rate } from '../../local/flow-service/limiter.ts';
import { demand } from './demand.ts';
import { CREATES_MAX } from './names.ts';
import type { Random } from './random.ts';
import type { Scenario } from './scenario.ts';
import { runSteadily } from './steady.ts';
import { manySteps, steadyScenario } from './steady-scenario.ts';
import { MINUTE, SECOND } from './timeline.ts';
import type { World } from './world.ts';

/*
 * Worlds whose only trouble are the limits of the service. The work must take about as long as the limits make it take,
 * with about as many requests as it needs.
 */

/** How much longer than at best the work may take, and how many more requests than needed may be accepted. */
const SLACK = 1.5;

/**
 * Time that does not depend on the limits: a minute until a tick finds the flow, a minute until a tick resubmits a
 * waiting upload, and half a minute for two polls 15 seconds apart, for notifications and for all calls of S3.
 */
const SCHEDULE_MS = 2.5 * MINUTE;

/** Time from the end of a flow until a waiting upload takes its place, in milliseconds. */
const PLACE_CHANGE_MS = MINUTE;

/** Refusals that teach a process the pace: a number for each process, and a share of the accepted requests in all. */
const REFUSALS_PER_PROCESS = 15;
const REFUSALS_SHARE = 0.5;
/**
 * Time between two attempts of a waiting invocation, in milliseconds. Only an attempt shows whether a place is free.
 */
const PROBE_MS = 10 * SECOND;

/**
 * Requests that may be sent although the service has just told another one to come later: a number, and a share of the
 * refused ones. If a flow is refused again and again while others are answered, the flow is taken for the cause, and its
 * refusals hold back no others. Under a limit by windows that is chance: one of 2,500 worlds had 11 after 48 refusals.
 */
const DESPITE_REFUSAL_MAX = 5;
const DESPITE_REFUSAL_SHARE = 0.15;

/** Smallest time between two polls of a running flow, in milliseconds. */
const POLL_GAP_MS = 15 * SECOND;

interface Kind {
  readonly limits: (random: Random) => Limits;
  readonly uploads: readonly [min: number, max: number];
  readonly flowMs?: readonly [min: number, max: number];
  readonly lowered?: (random: Random) => Scenario['lowered'];
}

/** How the service tells of its limits. */
const told = (random: Random): Pick<Limits, 'retryAfter' | 'headers'> => ({
  retryAfter: random.pick(['seconds', 'seconds', 'date', 'none']),
  headers: random.pick(['none', 'none', 'RateLimit', 'X-RateLimit']),
});

const rate = (requestsPerSecond: number, burst: number): Rate => ({ requestsPerSecond, burst });

/** All kinds of limits. They take turns, so that a few dozen seeds in a row go through all. */
const KINDS: readonly Kind[] = [
  // Requests a second. At a higher rate, a burst of one would refuse requests that the network bunches together.
  { uploads: [10, 14], limits: (random) => ({ everything: rate(1, random.pick([1, 5])), ...told(random) }) },
  { uploads: [20, 30], limits: (random) => ({ everything: rate(5, random.pick([2, 5, 10])), ...told(random) }) },
  { uploads: [30, 40], limits: (random) => ({ everything: rate(20, random.pick([4, 20])), ...told(random) }) },
  // Sixty requests a minute.
  { uploads: [8, 12], limits: (random) => ({ everything: rate(1, 60), ...told(random) }) },
  // Creations and other requests apart.
  { uploads: [20, 30], limits: (random) => ({ creations: rate(1, 1), others: rate(10, 10), ...told(random) }) },
  { uploads: [15, 20], limits: (random) => ({ creations: rate(10, 10), others: rate(1, 2), ...told(random) }) },
  // The same with 503. It leaves a creation in doubt for minutes, so only other requests are refused.
  {
    uploads: [15, 20],
    limits: (random) => ({ others: rate(2, 2), status: 503, retryAfter: random.pick(['seconds', 'date']) }),
  },
  // Twenty requests in ten seconds.
  { uploads: [20, 30], limits: (random) => ({ window: { requests: 20, seconds: 10 }, ...told(random) }) },
  // Flows side by side.
  {
    uploads: [6, 9],
    flowMs: [MINUTE, 2 * MINUTE],
    limits: (random) => ({ places: random.int(1, 3), retryAfter: random.pick(['seconds', 'none']) }),
  },
  // A budget of creations for half an hour or an hour.
  {
    uploads: [6, 8],
    limits: (random) => ({
      budget: { creations: 5, seconds: random.pick([1_800, 3_600]), status: random.pick([402, 429]) },
      retryAfter: random.pick(['seconds', 'none']),
    }),
  },
  // A limit that is lowered while all uploads are under way.
  {
    uploads: [10, 14],
    limits: () => ({ everything: rate(20, 20) }),
    lowered: (random) => ({ at: random.int(SECOND, 20 * SECOND), limits: { everything: rate(1, 1) } }),
  },
];

/** @param turn the number of the kind of limit. */
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

/** Smallest number of requests that the uploads of a world take. */
interface Need {
  readonly creations: number;
  readonly others: number;
}

/** A creation, a poll of the flow when it has ended, its outputs, and its assets. */
function needOf({ steps }: Scenario): Need {
  const assets = steps.map(({ key }): number => (key.startsWith('two/') ? 2 : 1));
  return { creations: steps.length, others: assets.reduce((sum, count) => sum + 2 + count, 0) };
}

/** Smallest time in which the limits let the work be done, in milliseconds: all places taken, no moment lost. */
function idealMs(scenario: Scenario, flowMs: readonly number[]): number {
  const { creations, others } = needOf(scenario);
  // The lower limit holds nearly all the time.
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

/** Time from the first end of a flow that is seen until its receipt, without the time for polls, in milliseconds. */
const FIRST_RECEIPT_MS = 3 * SECOND;

/** Largest rate and burst at which the order of requests shows, in requests a second and in requests. */
const LOW_RATE_MAX = 2;
const LOW_BURST_MAX = 5;

/** Runs the world, and checks that time and requests are about those that the limits and the work take. */
export async function liveWithinLimits(world: World): Promise<void> {
  const { scenario, observed } = world;
  const { steps } = scenario;
  // How long each flow takes is known only when all are made.
  const atMostMs = timeLimitMs(
    scenario,
    steps.map(() => scenario.flowMsMax),
  );
  const tookMs = await runSteadily(world, atMostMs);
  const figures = figuresOf(world, tookMs, atMostMs);
  observed.figures = figures;
  const isInTime = tookMs !== undefined && tookMs <= figures.limitMs;
  demand(isInTime, 'not everything was done within what the service allows', figures);
  checkFirstReceipt(scenario, figures);
  checkRequests(scenario, figures);
}

type Figures = ReturnType<typeof figuresOf>;

function figuresOf({ scenario, service, observed, processes }: World, tookMs: number | undefined, atMostMs: number) {
  const { publishedAt } = observed;
  const { steps, serviceLimits, lowered } = scenario;
  const { limiter } = service;
  const flowMs = service.flows.map(({ startedAt = 0, finishedAt = startedAt }) => finishedAt - startedAt);
  return {
    limits: serviceLimits,
    lowered,
    uploads: steps.length,
    ended: publishedAt.size,
    tookMs,
    idealMs: idealMs(scenario, flowMs),
    limitMs: tookMs === undefined ? atMostMs : timeLimitMs(scenario, flowMs),
    firstReceiptMs: Math.min(...publishedAt.values()) - (observed.firstEndSeenAt ?? 0),
    needed: needOf(scenario),
    accepted: limiter.accepted,
    refused: limiter.refused,
    acceptedCount: limiter.acceptedCount,
    refusedCount: limiter.refusedCount,
    processes: processes.count,
    sentDespiteRefusal: observed.sentDespiteRefusal,
  };
}

/** Time within which the work must be done, in milliseconds. @param flowMs the duration of each flow. */
function timeLimitMs(scenario: Scenario, flowMs: readonly number[]): number {
  const { places } = scenario.serviceLimits;
  const waves = places === undefined ? 0 : Math.ceil(scenario.steps.length / places);
  return SLACK * idealMs(scenario, flowMs) + SCHEDULE_MS + Math.max(...flowMs) + waves * PLACE_CHANGE_MS;
}

/**
 * Requests about an ended flow go before polls: the first flow is finished before all flows could be polled. A burst
 * of polls may find several ended flows, whose outputs are then asked for one after the other.
 */
function checkFirstReceipt(scenario: Scenario, figures: Figures): void {
  const { steps, lowered, serviceLimits } = scenario;
  const { requestsPerSecond = Infinity, burst = 0 } = lowestRate(lowered?.limits ?? serviceLimits) ?? {};
  const limitMs = ((SLACK * (steps.length + burst)) / requestsPerSecond) * SECOND + FIRST_RECEIPT_MS;
  const isLow = requestsPerSecond <= LOW_RATE_MAX && burst <= LOW_BURST_MAX;
  const isFirst = !isLow || figures.firstReceiptMs <= limitMs;
  demand(isFirst, 'flows were polled before the first one was finished', limitMs, figures);
}

function checkRequests({ steps, flowMsMax, serviceLimits }: Scenario, figures: Figures): void {
  const { tookMs = 0, needed, acceptedCount, refusedCount, processes, sentDespiteRefusal } = figures;
  const polls = steps.length * (1 + Math.ceil(flowMsMax / POLL_GAP_MS));
  const acceptedMax = SLACK * (needed.creations + needed.others) + polls;
  demand(acceptedCount <= acceptedMax, 'more requests were spent than the work takes', acceptedMax, figures);
  const { places, budget } = serviceLimits;
  const probesMax = places === undefined && budget === undefined ? 0 : (CREATES_MAX * tookMs) / PROBE_MS;
  const refusedMax = REFUSALS_PER_PROCESS * processes + REFUSALS_SHARE * acceptedCount + probesMax;
  const isPatient = refusedCount <= refusedMax;
  demand(isPatient, 'the service was asked far more often than it allows', refusedMax, figures);
  const despiteMax = DESPITE_REFUSAL_MAX + DESPITE_REFUSAL_SHARE * refusedCount;
  demand(sentDespiteRefusal <= despiteMax, 'requests were sent although the service asked to wait', figures);
}
