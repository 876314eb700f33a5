import { setTimeout as sleep } from 'node:timers/promises';
import pMap from 'p-map';
import type { Route } from '../../functions/uploads/route.ts';
import { DeployedPipeline, TICK_INTERVAL_MS } from '../deployed.ts';
import { atLeast, atMost, figure, type Report } from '../report.ts';
import type { Stage } from '../stage.ts';
import { spread } from '../statistics.ts';

/** Files that wait when the first single file comes. More are put, because some have flows by then. */
const WAITING = 2_000;
const PUT = 2_600;
const FILE_BYTES = 20_000;
const REQUESTS_PER_SECOND = 5;
const FLOW_MS = 3_000;

/** A creation, a poll, a listing of outputs and an asset. */
const REQUESTS_PER_FILE = 4;

/** How much longer than at best the many files may take: the aim of the part `limited`. */
const SLOWER_MAX = 1.5;

const PUTS_AT_A_TIME = 8;

/** Files of the other prefix. They come at different times of a minute, because a tick comes once a minute. */
const SINGLES = 5;
const SINGLES_EVERY_MS = TICK_INTERVAL_MS + TICK_INTERVAL_MS / SINGLES;

/**
 * The service takes creations only, until their messages are a minute old. Then it takes minutes to collect these flows.
 * The single files come after that, when as many flows run as the service lets us poll.
 */
const RUNNING_MAX = 60;
const WAIT_MAX_MS = 10 * 60_000;
const CHECK_INTERVAL_MS = 1_000;

const RECEIPT_TIME_MAX_MS = 10 * 60_000;
const RATIO_MAX = 2;
const SECOND_MS = 1_000;

const ROUTES: readonly Route[] = [{ name: 'all', input: 'file', template: 'bytes_echo' }];

/** Times from the put of a file to its receipt, in milliseconds. */
interface Single {
  readonly alone: number;
  readonly beside: number;
}

/**
 * Puts single files into two pipelines at the same time: one that has nothing else to do, and one in which many files of
 * another prefix wait for the same limited service.
 */
export async function turns(stage: Stage): Promise<Report> {
  const [alone, beside] = await Promise.all([start(stage), start(stage)]);
  try {
    await pMap(
      Array.from({ length: PUT }, (_, n) => `many/${n}`),
      (key) => put(beside, key),
      { concurrency: PUTS_AT_A_TIME },
    );
    await waitUntil(() => beside.queued === 0);
    const inLine = await beside.inLine();
    const first = await timed(beside, 'one/first');
    await waitUntil(() => beside.running <= RUNNING_MAX);
    const [startedAt, doneBefore] = [Date.now(), beside.done];
    const singles: Single[] = [];
    for (let n = 0; n < SINGLES; n += 1) {
      const next = sleep(SINGLES_EVERY_MS);
      const [one, other] = await Promise.all([timed(alone, `one/${n}`), timed(beside, `one/${n}`)]);
      singles.push({ alone: one, beside: other });
      await next;
    }
    const perSecond = ((beside.done - doneBefore) * SECOND_MS) / (Date.now() - startedAt);
    const medians = [singles.map((each) => each.alone), singles.map((each) => each.beside)].map(
      (times) => spread(times).median,
    ) as [number, number];
    return {
      checks: [
        atLeast('turns: files in the line at first', inLine, WAITING),
        atLeast('turns: files done beside, a second', perSecond, REQUESTS_PER_SECOND / REQUESTS_PER_FILE / SLOWER_MAX),
        atMost('turns: one file beside many : alone, median', medians[1] / medians[0], RATIO_MAX),
      ],
      tables: [
        {
          title: `One file, alone and beside ${WAITING} waiting files of another prefix, at ${REQUESTS_PER_SECOND} requests a second`,
          columns: ['file', 'alone s', 'beside many s', 'ratio'],
          rows: [
            ...singles.map((each, n) => [String(n + 1), ...cells(each)]),
            ['median', ...cells({ alone: medians[0], beside: medians[1] })],
          ],
          note:
            `The bundles as deployed with all defaults, both pipelines at the same time. The files come at different times between two ticks. ` +
            `${inLine} files waited in the line at first, and ${figure(perSecond)} a second were done, at best ${figure(REQUESTS_PER_SECOND / REQUESTS_PER_FILE)}. A file that came while the flows of the first minute were collected took ${figure(first / SECOND_MS)} s.`,
        },
      ],
    };
  } finally {
    await Promise.all([alone.close(), beside.close()]);
  }
}

const start = (stage: Stage): Promise<DeployedPipeline> =>
  DeployedPipeline.start(stage, {
    routes: ROUTES,
    standIn: {
      flowMs: FLOW_MS,
      limits: { everything: { requestsPerSecond: REQUESTS_PER_SECOND, burst: REQUESTS_PER_SECOND } },
    },
    firstTickAfterMs: TICK_INTERVAL_MS,
  });

const put = (pipeline: DeployedPipeline, key: string): Promise<void> =>
  pipeline.put(key, Buffer.alloc(FILE_BYTES, key));

async function waitUntil(condition: () => boolean): Promise<void> {
  const until = Date.now() + WAIT_MAX_MS;
  while (!condition() && Date.now() < until) await sleep(CHECK_INTERVAL_MS);
}

async function timed(pipeline: DeployedPipeline, key: string): Promise<number> {
  const startedAt = Date.now();
  await put(pipeline, key);
  return ((await pipeline.receiptAt(key, RECEIPT_TIME_MAX_MS)) ?? Number.POSITIVE_INFINITY) - startedAt;
}

const cells = ({ alone, beside }: Single): readonly string[] => [
  figure(alone / SECOND_MS),
  figure(beside / SECOND_MS),
  figure(beside / alone),
];
