import pMap from 'p-map';
import type { Route } from '../../functions/uploads/route.ts';
import type { Limits, Rate } from '../../local/flow-service/limiter.ts';
import { DeployedPipeline, TICK_INTERVAL_MS } from '../deployed.ts';
import { atMost, type Check, figure, type Report } from '../report.ts';
import type { Stage } from '../stage.ts';

const FILES = 60;
const FILE_BYTES = 20_000;
/** Files have 1, 2 or 3 assets in turn. */
const ASSETS_MAX = 3;
const PUTS_AT_A_TIME = 8;

/** Early enough not to add to the measured time, and late enough for flows to exist. In milliseconds. */
const FIRST_TICK_AFTER_MS = 5_000;

const RATIO_MAX = 1.5;

/** A case fails if it takes three times as long as the best possible. It gets at least this time, in milliseconds. */
const TIME_LIMIT_MIN_MS = 90_000;
const TIME_LIMIT_RATIO = 3;

const SECOND_MS = 1_000;
const SHORT_FLOW_MS = 3_000;

interface LimitedCase {
  readonly allows: string;
  /** Refusals are 429 with `Retry-After` in seconds. */
  readonly limits: Limits;
  readonly flowMs: number;
}

/** A token bucket that holds the tokens of one second. */
const perSecond = (requestsPerSecond: number): Rate => ({ requestsPerSecond, burst: requestsPerSecond });

const rateForAll = (requestsPerSecond: number): LimitedCase => ({
  allows: `${requestsPerSecond} a second`,
  limits: { everything: perSecond(requestsPerSecond) },
  flowMs: SHORT_FLOW_MS,
});

const CASES: readonly LimitedCase[] = [
  { allows: 'no limit', limits: {}, flowMs: SHORT_FLOW_MS },
  rateForAll(20),
  rateForAll(5),
  rateForAll(1),
  {
    allows: '60 creations and 600 others a minute',
    limits: { creations: perSecond(1), others: perSecond(10) },
    flowMs: SHORT_FLOW_MS,
  },
  { allows: '3 flows of 5 s at a time', limits: { places: 3 }, flowMs: 5_000 },
];

interface Outcome {
  readonly allows: string;
  readonly receipts: number;
  readonly succeeded: number;
  readonly assets: number;
  /** From the first file to the last receipt, in milliseconds; undefined if not all receipts came in time. */
  readonly tookMs: number | undefined;
  readonly limitMs: number;
  /** The best possible time, in milliseconds. Undefined without a limit. */
  readonly bestMs: number | undefined;
  readonly refusedCount: number;
  readonly requestsPerFile: number;
}

const assetsOf = (file: number): number => (file % ASSETS_MAX) + 1;
const ASSETS = Array.from({ length: FILES }, (_, file) => assetsOf(file)).reduce((sum, count) => sum + count, 0);

/** The suffix of a file is its number of assets. */
const ROUTES: readonly Route[] = Array.from({ length: ASSETS_MAX }, (_, index) => ({
  name: `assets-${index + 1}`,
  suffixes: [`.${index + 1}`],
  input: 'file',
  template: 'bytes_echo',
  parameters: { copies: index + 1 },
}));

/** Sends small files through the whole pipeline, with a service that limits requests or flows. */
export async function limited(stage: Stage): Promise<Report> {
  const outcomes: Outcome[] = [];
  for (const each of CASES) outcomes.push(await run(stage, each));
  return {
    checks: outcomes.flatMap(checksOf),
    tables: [
      {
        title: `${FILES} small files, 1 to ${ASSETS_MAX} assets each, with a service that has limits`,
        columns: ['service allows', 'all receipts after s', 'at best s', 'time : at best', 'requests/file', 'refused'],
        rows: outcomes.map((outcome) => {
          const { allows, tookMs, bestMs, requestsPerFile, refusedCount } = outcome;
          return [
            allows,
            tookMs === undefined ? `not done: ${progress(outcome)}` : seconds(tookMs),
            bestMs === undefined ? '-' : seconds(bestMs),
            figure(ratioOf(outcome)),
            figure(requestsPerFile),
            String(refusedCount),
          ];
        }),
        note:
          `The bundles as deployed with all defaults, and a tick every ${TICK_INTERVAL_MS / SECOND_MS} s as deployed, ` +
          `the first ${FIRST_TICK_AFTER_MS / SECOND_MS} s after the first file. Refused requests count as requests. ` +
          `At best: 3 requests for each file and one for each asset at the allowed rate, or the flows' time in the allowed places.`,
      },
    ],
  };
}

async function run(stage: Stage, { allows, limits, flowMs }: LimitedCase): Promise<Outcome> {
  const bestMs = atBest(limits, flowMs);
  const limitMs = Math.max(TIME_LIMIT_MIN_MS, TIME_LIMIT_RATIO * (bestMs ?? 0));
  const pipeline = await DeployedPipeline.start(stage, {
    routes: ROUTES,
    standIn: { flowMs, limits },
    firstTickAfterMs: FIRST_TICK_AFTER_MS,
  });
  try {
    const startedAt = Date.now();
    const files = Array.from({ length: FILES }, (_, file) => `file-${file}.${assetsOf(file)}`);
    await pMap(files, (key) => pipeline.put(key, Buffer.alloc(FILE_BYTES, key)), { concurrency: PUTS_AT_A_TIME });
    const arrivals = await pipeline.receipts(FILES, startedAt + limitMs - Date.now());
    const { acceptedCount, refusedCount } = pipeline.service.limiter;
    return {
      allows,
      receipts: arrivals.length,
      succeeded: arrivals.filter(({ receipt }) => receipt.status === 'succeeded').length,
      assets: arrivals.reduce((count, { receipt }) => count + receipt.assets.length, 0),
      tookMs: arrivals.length < FILES ? undefined : Math.max(...arrivals.map(({ at }) => at)) - startedAt,
      limitMs,
      bestMs,
      refusedCount,
      requestsPerFile: (acceptedCount + refusedCount) / FILES,
    };
  } finally {
    await pipeline.close();
  }
}

/**
 * The best possible time under the limits, in milliseconds. Each file needs a creation, a poll and a listing of
 * outputs, each asset needs a download, and no request is refused. Undefined without a limit.
 */
function atBest({ everything, creations, others, places }: Limits, flowMs: number): number | undefined {
  const otherRequests = 2 * FILES + ASSETS;
  const times = [
    ...(everything ? [timeFor(FILES + otherRequests, everything)] : []),
    // The last flow that is created still has to run.
    ...(creations ? [timeFor(FILES, creations) + flowMs] : []),
    ...(others ? [timeFor(otherRequests, others)] : []),
    ...(places ? [Math.ceil(FILES / places) * flowMs] : []),
  ];
  return times.length === 0 ? undefined : Math.max(...times);
}

const timeFor = (requests: number, { requestsPerSecond, burst }: Rate): number =>
  (Math.max(0, requests - burst) / requestsPerSecond) * SECOND_MS;

function checksOf(outcome: Outcome): readonly Check[] {
  const { allows, receipts, succeeded, assets, tookMs, limitMs, bestMs } = outcome;
  const what = `limited, ${allows}`;
  const isDone = receipts === FILES && succeeded === FILES && assets === ASSETS;
  const done: Check = {
    what,
    found: tookMs === undefined ? progress(outcome) : `${succeeded} succeeded with ${assets} assets`,
    wanted: `exactly ${FILES} with ${ASSETS} assets, within ${seconds(limitMs)} s`,
    holds: isDone,
    isExact: true,
  };
  if (bestMs === undefined) return [done];
  const ratio = ratioOf(outcome);
  return [
    done,
    { ...atMost(`${what}: time : at best`, ratio, RATIO_MAX), ...(tookMs === undefined && { found: 'not done' }) },
  ];
}

const ratioOf = ({ tookMs, bestMs }: Outcome): number => (tookMs ?? Number.NaN) / (bestMs ?? Number.NaN);

const progress = ({ receipts, limitMs }: Outcome): string => `${receipts} receipts after ${seconds(limitMs)} s`;

const seconds = (ms: number): string => figure(ms / SECOND_MS);
