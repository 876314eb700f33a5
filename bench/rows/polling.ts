import { SETTINGS_DEFAULT } from '../../functions/settings/settings.ts';
import { atMost, type Check, exactly, figure, type Report, type Table } from '../report.ts';
import { runningFlow } from '../servers/flow-service.ts';
import type { Stage } from '../stage.ts';
import { type Counts, total } from '../statistics.ts';

/** Time that the service takes to answer a request, in milliseconds. */
const ANSWER_MS = 20;

/** Requests to S3 of a tick that finds nothing: one fewer than in `test/request-counts.test.ts`, as the holds were just read. */
const TICK_REQUESTS = 6;

const CONCURRENCY = SETTINGS_DEFAULT.pollConcurrency;

/** Maximum number of markers in one page of a listing. */
const PAGE_KEYS = 1_000;

/** How often a tick renews its lease, in milliseconds. */
const LEASE_RENEWAL_MS = 10_000;

interface PollingOptions {
  readonly flows: readonly number[];
  /** Number of entries of ended uploads. No tick should read them. */
  readonly endedEntries: number;
}

interface Tick {
  readonly flows: number;
  readonly endedEntries: number;
  readonly wallMs: number;
  readonly idealMs: number;
  readonly cpuMsPerPoll: number;
  readonly s3: Counts;
}

/** Measures one tick over flows that are all still running. */
export async function polling(stage: Stage, { flows, endedEntries }: PollingOptions): Promise<Report> {
  await stage.service.call('setAnswerMs', { answerMs: ANSWER_MS });
  const ticks: Tick[] = [];
  try {
    for (const count of flows) ticks.push(await tick(stage, count, 0));
    // The first once more, with years of history in the ledger.
    for (const count of flows.slice(0, 1)) ticks.push(await tick(stage, count, endedEntries));
  } finally {
    await stage.aws.call('clear');
    await stage.service.call('setAnswerMs', { answerMs: 0 });
  }
  return { checks: checksOf(ticks), tables: [tableOf(ticks)] };
}

function checksOf(ticks: readonly Tick[]): readonly Check[] {
  const [first, last] = [ticks[0], ticks.at(-1)];
  const [withHistory, without] = [total(last?.s3 ?? {}), total(first?.s3 ?? {})];
  return [
    ...ticks.map(requestsCheck),
    exactly(`polling: S3 requests of a tick beside ${last?.endedEntries} ended uploads`, withHistory, without),
    ...ticks.filter(({ flows }) => flows === 10_000).flatMap(speedChecks),
  ];
}

/** A tick makes its usual requests, one listing for every thousand markers, and the renewals of its lease. */
function requestsCheck({ flows, s3, wallMs }: Tick): Check {
  const wanted = TICK_REQUESTS - 1 + Math.ceil(flows / PAGE_KEYS);
  const renewalsMax = Math.floor(wallMs / LEASE_RENEWAL_MS);
  const found = total(s3);
  return {
    what: `polling: ${flows} flows, S3 requests of a tick`,
    found: String(found),
    wanted: `exactly ${wanted}${renewalsMax === 0 ? '' : `, and up to ${renewalsMax} that renew its lease`}`,
    holds: found >= wanted && found <= wanted + renewalsMax,
    isExact: true,
  };
}

const speedChecks = ({ wallMs, idealMs, cpuMsPerPoll }: Tick): readonly Check[] => [
  atMost('polling: 10000 flows, wall : ideal', wallMs / idealMs, 1.2),
  atMost('polling: 10000 flows, CPU per poll', cpuMsPerPoll, 0.3, ' ms'),
];

function tableOf(ticks: readonly Tick[]): Table {
  return {
    title: `Polling: the service answers after ${ANSWER_MS} ms, ${CONCURRENCY} polls at a time`,
    columns: ['running flows', 'ended uploads', 'wall ms', 'ideal ms', 'wall : ideal', 'cpu ms/poll', 'S3 requests'],
    rows: ticks.map(({ flows, endedEntries, wallMs, idealMs, cpuMsPerPoll, s3 }) => [
      String(flows),
      String(endedEntries),
      figure(wallMs),
      figure(idealMs),
      figure(wallMs / idealMs),
      figure(cpuMsPerPoll),
      String(total(s3)),
    ]),
  };
}

async function tick(stage: Stage, flows: number, endedEntries: number): Promise<Tick> {
  await stage.aws.call('clear');
  if (endedEntries > 0) await stage.aws.call('fill', { entries: endedEntries });
  await using subject = await stage.subject('ours', 'collect-outputs', stage.environment('plain'));
  await stage.addRunning([runningFlow(stage.next())], 'ours');
  await subject.call('invoke', { event: {} });
  // This flow is listed below, but it is not due again.
  await stage.addRunning(
    Array.from({ length: flows - 1 }, () => runningFlow(stage.next())),
    'ours',
  );
  await stage.aws.call('takeCounts');
  const { value, wallMs, cpuMs } = await subject.call('invoke', { event: {} });
  const { polled } = value as { polled: number };
  if (polled !== flows - 1) throw new Error(`${polled} flows were polled of ${flows - 1}: ${JSON.stringify(value)}`);
  const s3 = await stage.aws.call('takeCounts');
  const { GetSecretValue: _, ...counts } = s3;
  return {
    flows,
    endedEntries,
    wallMs,
    idealMs: (flows * ANSWER_MS) / CONCURRENCY,
    cpuMsPerPoll: cpuMs / flows,
    s3: counts,
  };
}
