import { SETTINGS_DEFAULT } from '../../functions/settings/settings.ts';
import { PRICES, PRICES_DATE, S3_PRICES } from '../prices.ts';
import { type Report, size, type Table } from '../report.ts';
import { asset } from '../servers/bytes.ts';
import { runningFlow } from '../servers/flow-service.ts';
import type { Stage, Subject } from '../stage.ts';
import type { Counts } from '../statistics.ts';
import type { Cost } from '../subject.ts';
import { monthsOf } from './bill.ts';

/** Memory of a function. Lambda gives processor time in proportion: one processor with 1,769 MB. */
const MEMORY_MB = 512;
const PROCESSOR_SHARE = MEMORY_MB / 1769;

const GB = 1e9;
/** Maximum number of messages in a batch of the deployed event source. */
const BATCH = SETTINGS_DEFAULT.uploadConcurrency;
const WARM_UP_BYTES = 100_000;
/** Polls that find a flow running before one finds it ended, for a flow of a minute or two. */
const POLLS_BEFORE_END = 1;
const POLLED_FLOWS = 1_000;
const ROUNDS = 20;

/** `files` files of one size: sent in batches, and collected by one tick that finds all their flows ended. */
interface SizeCase {
  readonly bytes: number;
  readonly files: number;
  readonly batch: number;
}

const SIZES: readonly SizeCase[] = [
  { bytes: 20_000, files: 200, batch: BATCH },
  { bytes: 10_000_000, files: 20, batch: BATCH },
  { bytes: 256_000_000, files: 4, batch: 1 },
];

/** What one file, or one round of a tick, took. */
export interface Spent {
  readonly gbSeconds: number;
  readonly invocations: number;
  readonly s3: Counts;
  readonly loggedBytes: number;
  readonly metrics: readonly string[];
}

/** Dollars for one file, by service. */
interface Bill {
  readonly lambda: number;
  readonly s3: number;
  readonly queue: number;
  readonly events: number;
  readonly logs: number;
  readonly transfer: number;
}

export interface FileCosts {
  readonly bytes: number;
  readonly metrics: readonly string[];
  readonly gbSeconds: number;
  readonly s3: { readonly create: Counts; readonly collect: Counts };
  readonly bill: Bill;
  readonly total: number;
}

/** What a file costs at AWS, with one asset of its own size, from counts and measurements on this machine. */
export async function costs(stage: Stage): Promise<Report> {
  const poll = await pollOf(stage);
  const files: FileCosts[] = [];
  for (const each of SIZES) files.push(await costsOf(stage, each, poll.gbSeconds));
  // A file that comes alone has an invocation of its own.
  const alone = await costsOf(stage, { bytes: 20_000, files: 50, batch: 1 }, poll.gbSeconds);
  const months = monthsOf(alone, await roundsOf(stage));
  return {
    checks: months.checks,
    tables: [
      billTable(files, 1_000, `Costs of a thousand files, in US dollars, prices of ${PRICES_DATE}`),
      billTable(files, 1_000_000, 'Costs of a million files, in US dollars'),
      breakdownTable(files),
      months.table,
    ],
  };
}

async function costsOf(stage: Stage, { bytes, files, batch }: SizeCase, pollGbSeconds: number): Promise<FileCosts> {
  const create = await createOf(stage, bytes, files, batch);
  const collect = await collectOf(stage, bytes, files);
  const gbSeconds = create.gbSeconds + collect.gbSeconds + POLLS_BEFORE_END * pollGbSeconds;
  const bill: Bill = {
    lambda: gbSeconds * PRICES.lambdaGbSecondArm64 + create.invocations * PRICES.lambdaRequest,
    s3: priceOf(create.s3) + priceOf(collect.s3),
    // S3 sends one message. The event source receives and deletes a batch with one request each.
    queue: (1 + 2 / batch) * PRICES.sqsRequest,
    events: PRICES.eventBridgeEvent,
    logs: ((create.loggedBytes + collect.loggedBytes) / GB) * PRICES.logsGb,
    transfer: (asset(bytes).bytes / GB) * PRICES.transferOutGb,
  };
  const total = Object.values(bill).reduce((sum, dollars) => sum + dollars, 0);
  return {
    bytes,
    metrics: [...create.metrics, ...collect.metrics],
    gbSeconds,
    s3: { create: create.s3, collect: collect.s3 },
    bill,
    total,
  };
}

const dollars = (value: number): string =>
  value >= 100 ? value.toFixed(0) : value >= 1 ? value.toFixed(2) : value.toFixed(4);

function billTable(all: readonly FileCosts[], files: number, title: string): Table {
  return {
    title,
    columns: ['file', 'Lambda', 'S3', 'SQS', 'events', 'logs', 'sum', 'and to the internet'],
    rows: all.map(({ bytes, bill, total }) => [
      size(bytes),
      ...[bill.lambda, bill.s3, bill.queue, bill.events, bill.logs, total - bill.transfer, bill.transfer].map((value) =>
        dollars(value * files),
      ),
    ]),
  };
}

function breakdownTable(all: readonly FileCosts[]): Table {
  return {
    title: 'The parts of these costs, for one file',
    columns: ['file', 'GB-seconds', 'S3 writes', 'S3 reads'],
    rows: all.map(({ bytes, gbSeconds, s3 }) => [
      size(bytes),
      gbSeconds.toFixed(4),
      countOf([s3.create, s3.collect], PRICES.s3Write).toFixed(1),
      countOf([s3.create, s3.collect], PRICES.s3Read).toFixed(1),
    ]),
    note: `GB-seconds: for a function of ${MEMORY_MB} MB with ${PROCESSOR_SHARE.toFixed(2)} of a processor as fast as this machine's, or for the wall time here if that is longer. Storage is not included.`,
  };
}

/** The price of requests to S3. */
export const priceOf = (counts: Counts): number =>
  Object.entries(counts).reduce((sum, [operation, count]) => sum + count * (S3_PRICES[operation] ?? 0), 0);

const countOf = (all: readonly Counts[], price: number): number =>
  all
    .flatMap((counts) => Object.entries(counts))
    .reduce((sum, [operation, count]) => sum + (S3_PRICES[operation] === price ? count : 0), 0);

const gbSecondsOf = ({ wallMs, cpuMs }: Cost): number =>
  ((MEMORY_MB / 1024) * Math.max(wallMs, cpuMs / PROCESSOR_SHARE)) / 1000;

async function createOf(stage: Stage, bytes: number, files: number, batch: number): Promise<Spent> {
  await using subject = await stage.subject('ours', 'create-flow', stage.environment('tls'));
  await subject.call('invoke', { event: stage.uploads(WARM_UP_BYTES, BATCH) });
  await stage.aws.call('takeCounts');
  const costs: Cost[] = [];
  for (let done = 0; done < files; done += batch) {
    costs.push(await subject.call('invoke', { event: stage.uploads(bytes, batch) }));
  }
  return await spentOn(stage, costs, files, {});
}

async function collectOf(stage: Stage, bytes: number, files: number): Promise<Spent> {
  await using subject = await stage.subject('ours', 'collect-outputs', stage.environment('tls'));
  const collect = async (bytes: number, count: number): Promise<Cost> => {
    await stage.addEnded(bytes, count);
    return subject.call('invoke', { event: {} });
  };
  await collect(WARM_UP_BYTES, BATCH);
  const tick = await tickOf(stage, subject);
  const cost = await collect(bytes, files);
  return await spentOn(stage, [cost], files, tick);
}

/** The requests to S3 of a tick that finds nothing to collect. */
async function tickOf(stage: Stage, subject: Subject): Promise<Counts> {
  await stage.aws.call('takeCounts');
  await subject.call('invoke', { event: {} });
  return stage.aws.call('takeCounts');
}

/** A tick that finds nothing, and a later round of it, which a message begins. */
async function roundsOf(stage: Stage): Promise<{ readonly tick: Spent; readonly round: Spent }> {
  await stage.aws.call('clear');
  await using subject = await stage.subject('ours', 'collect-outputs', stage.environment('tls'));
  const spent = async (event: object): Promise<Spent> => {
    await subject.call('invoke', { event });
    await stage.aws.call('takeCounts');
    const costs: Cost[] = [];
    for (let n = 0; n < ROUNDS; n += 1) costs.push(await subject.call('invoke', { event }));
    return spentOn(stage, costs, ROUNDS, {});
  };
  const message = { collector: { index: 0, of: 1 }, until: 0 };
  return { tick: await spent({}), round: await spent({ Records: [{ body: JSON.stringify(message) }] }) };
}

async function spentOn(stage: Stage, costs: readonly Cost[], files: number, tick: Counts): Promise<Spent> {
  const counts = await stage.aws.call('takeCounts');
  return {
    gbSeconds: costs.reduce((sum, cost) => sum + gbSecondsOf(cost), 0) / files,
    invocations: costs.length / files,
    loggedBytes: costs.reduce((sum, { loggedBytes }) => sum + loggedBytes, 0) / files,
    metrics: [...new Set(costs.flatMap(({ metrics }) => metrics))],
    s3: Object.fromEntries(
      Object.entries(counts)
        .filter(([operation]) => operation in S3_PRICES)
        .map(([operation, count]) => [operation, (count - (tick[operation] ?? 0)) / files]),
    ),
  };
}

async function pollOf(stage: Stage): Promise<{ readonly gbSeconds: number }> {
  await stage.aws.call('clear');
  await using subject = await stage.subject('ours', 'collect-outputs', stage.environment('tls'));
  try {
    await stage.addRunning(
      Array.from({ length: POLLED_FLOWS }, () => runningFlow(stage.next())),
      'ours',
    );
    const cost = await subject.call('invoke', { event: {} });
    return { gbSeconds: gbSecondsOf(cost) / POLLED_FLOWS };
  } finally {
    await stage.aws.call('clear');
  }
}
