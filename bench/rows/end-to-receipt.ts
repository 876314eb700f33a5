import { setTimeout as sleep } from 'node:timers/promises';
import { DeployedPipeline, TICK_INTERVAL_MS } from '../deployed.ts';
import { atMost, type Check, figure, type Report } from '../report.ts';
import type { Stage } from '../stage.ts';
import { percentile, spread } from '../statistics.ts';

const FILES = 40;
const FILE_BYTES = 20_000;
const PUT_INTERVAL_MS = 3_000;
const FLOW_MS_MIN = 5_000;
const FLOW_MS_MAX = 60_000;

/** Half an interval: the average wait of a first file. */
const FIRST_TICK_AFTER_MS = TICK_INTERVAL_MS / 2;

/** All flows end within a minute of the last file. The run fails after ten more ticks. */
const TIME_LIMIT_MS = FLOW_MS_MAX + 10 * TICK_INTERVAL_MS;

const MEDIAN_MS_MAX = 10_000;
const HIGH_SHARE = 0.9;

/** The fractional parts of its multiples are evenly spread, for any number of them, and in no order. */
const GOLDEN_RATIO = (Math.sqrt(5) - 1) / 2;

/** The time from each flow's end to its receipt, for files put one after the other and flows of many lengths. */
export async function endToReceipt(stage: Stage): Promise<Report> {
  const { waits, requestsPerFile } = await run(stage);
  const { median, max } = spread(waits);
  const high = percentile(waits, HIGH_SHARE);
  const checks: readonly Check[] = [
    {
      what: 'receipts: all there',
      found: String(waits.length),
      wanted: `exactly ${FILES}, within ${TIME_LIMIT_MS / 1000} s of the last file`,
      holds: waits.length === FILES,
      isExact: true,
    },
    atMost('receipts: from the end of a flow to its receipt, median', median / 1000, MEDIAN_MS_MAX / 1000, ' s'),
  ];
  return {
    name: 'receipts',
    checks,
    figures: { waits, requestsPerFile },
    tables: [
      {
        title: 'From the end of a flow to its receipt, in s',
        columns: ['receipts', 'median', '90th percentile', 'longest', 'requests/file'],
        rows: [
          [
            `${waits.length} of ${FILES}`,
            ...[median, high, max].map((ms) => figure(ms / 1000)),
            figure(requestsPerFile),
          ],
        ],
        note:
          `A file every ${PUT_INTERVAL_MS / 1000} s, flows of ${FLOW_MS_MIN / 1000} to ${FLOW_MS_MAX / 1000} s, one ` +
          `asset each. The bundles as deployed with all defaults, and a tick every ${TICK_INTERVAL_MS / 1000} s.`,
      },
    ],
  };
}

async function run(stage: Stage): Promise<{ waits: readonly number[]; requestsPerFile: number }> {
  let created = 0;
  const flowMs = (): number => {
    created += 1;
    return FLOW_MS_MIN + (FLOW_MS_MAX - FLOW_MS_MIN) * ((created * GOLDEN_RATIO) % 1);
  };
  const pipeline = await DeployedPipeline.start(stage, {
    routes: [{ name: 'all', input: 'file', template: 'bytes_echo' }],
    standIn: { flowMs },
    firstTickAfterMs: FIRST_TICK_AFTER_MS,
  });
  try {
    const startedAt = Date.now();
    for (let file = 0; file < FILES; file += 1) {
      await sleep(startedAt + file * PUT_INTERVAL_MS - Date.now());
      await pipeline.put(`file-${file}.bin`, Buffer.alloc(FILE_BYTES, String(file)));
    }
    const arrivals = await pipeline.receipts(FILES, TIME_LIMIT_MS);
    const { limiter, flows } = pipeline.service;
    const endedAt = new Map(flows.map(({ id, finishedAt }) => [id, finishedAt]));
    const waits = arrivals.flatMap(({ receipt, at }) => {
      const ended = endedAt.get(receipt.flow?.id ?? '');
      return receipt.status === 'succeeded' && ended !== undefined ? [at - ended] : [];
    });
    return { waits, requestsPerFile: (limiter.acceptedCount + limiter.refusedCount) / FILES };
  } finally {
    await pipeline.close();
  }
}
