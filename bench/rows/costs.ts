import { setTimeout as sleep } from 'node:timers/promises';
import type { Monitoring } from '../../functions/base/telemetry.ts';
import { gridIndex } from '../../functions/collect-outputs/poll-schedule.ts';
import { HOLDS_AGE_MAX_MS } from '../../functions/holds/hold-store.ts';
import { SETTINGS_DEFAULT } from '../../functions/settings/settings.ts';
import { MEMORY_MIB } from '../../infra/function-limits.ts';
import { PRICES, PRICES_DATE, REQUEST_PRICES } from '../prices.ts';
import { type Report, size, type Table } from '../report.ts';
import { runningFlow } from '../servers/flow-service.ts';
import type { Stage, Subject } from '../stage.ts';
import type { Cost } from '../subject.ts';
import { CASES, type Case, spentAlone, unitsOf } from './alone.ts';
import { type ByMonitoring, monthsOf, type Rounds } from './bill.ts';
import { billFor, countAnew, NOTHING, PROCESSOR_SHARE, plus, type Spent, spentOn, sumOf, typical } from './spent.ts';

/** Time that S3 and the flow service take to answer, in milliseconds. Lambda bills it. */
const ANSWER_MS = 30;
/** Maximum number of messages in a batch of the deployed event source. */
const BATCH = SETTINGS_DEFAULT.uploadConcurrency;
const WARM_UP_BYTES = 100_000;
/** Polls that find a flow of a minute running. The next one finds it ended. */
const POLLS_BEFORE_END = gridIndex(60_000, SETTINGS_DEFAULT.pollIntervalSeconds * 1000) - 1;
const POLLED_FLOWS = 1_000;
/** Ticks and rounds, as in `alone.ts`. */
const ROUNDS = { warmUp: 40, counted: 10 };
const ALONE = { monitoring: 'alarms', warmUp: 20, counted: 5, answerMs: ANSWER_MS } as const;
/** What is logged does not depend on time. */
const LOGGED = { monitoring: 'full', warmUp: 1, counted: 1, answerMs: 0 } as const;

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

interface Row {
  readonly name: string;
  readonly spent: Spent;
}

/** What a file costs at AWS, with one asset of its own size, from counts and measurements on this machine. */
export async function costs(stage: Stage): Promise<Report> {
  const { tick, round, poll } = await ticksOf(stage);
  const withPolls = (spent: Spent, flows: number): Spent => plus(spent, poll.alarms, POLLS_BEFORE_END * flows);
  const alone = async (one: Case): Promise<ByMonitoring> => {
    const spent = await spentAlone(stage, one, tick.alarms, ALONE);
    const { loggedBytes, metrics } = await spentAlone(stage, one, tick.full, LOGGED);
    const each = (all: Spent): Spent => plus(NOTHING, withPolls(all, one.flows), 1 / unitsOf(one));
    return { alarms: each(spent), full: each({ ...spent, loggedBytes, metrics }) };
  };
  const { file, pair, chain, jobOf2, jobOf3 } = CASES;
  const kinds = {
    file: await alone(file),
    pair: await alone(pair),
    chain: await alone(chain),
    jobOf3: await alone(jobOf3),
  };
  const months = monthsOf(kinds, { tick, round });

  await stage.setAnswerMs(ANSWER_MS);
  const rows: Row[] = [];
  for (const each of SIZES) {
    rows.push({ name: size(each.bytes), spent: withPolls(await sizeOf(stage, each, tick.alarms), 1) });
  }
  await stage.setAnswerMs(0);
  rows.push(
    { name: file.name, spent: kinds.file.alarms },
    { name: pair.name, spent: kinds.pair.alarms },
    { name: chain.name, spent: kinds.chain.alarms },
    { name: jobOf2.name, spent: (await alone(jobOf2)).alarms },
    { name: jobOf3.name, spent: kinds.jobOf3.alarms },
  );
  return {
    checks: months.checks,
    tables: [
      billTable(rows, 1_000, `Costs of a thousand files, in US dollars, prices of ${PRICES_DATE}`),
      billTable(rows, 1_000_000, 'Costs of a million files, in US dollars'),
      breakdownTable([
        ...rows,
        { name: 'idle tick', spent: tick.alarms },
        { name: 'later round', spent: round.alarms },
      ]),
      months.table,
    ],
  };
}

const dollars = (value: number): string =>
  value >= 100 ? value.toFixed(0) : value >= 1 ? value.toFixed(2) : value.toFixed(4);

function billTable(rows: readonly Row[], files: number, title: string): Table {
  return {
    title,
    columns: ['file', 'Lambda', 'S3', 'SQS', 'events', 'logs', 'sum', 'and to the internet'],
    rows: rows.map(({ name, spent }) => {
      const { transfer, ...bill } = billFor(spent);
      return [name, ...[...Object.values(bill), sumOf(bill), transfer].map((value) => dollars(value * files))];
    }),
  };
}

function breakdownTable(rows: readonly Row[]): Table {
  const { s3, queue } = REQUEST_PRICES;
  const countOf = ({ requests }: Spent, prices: Readonly<Record<string, number>>, price: number): string =>
    Object.entries(requests)
      .reduce((sum, [name, count]) => sum + (prices[name] === price ? count : 0), 0)
      .toFixed(1);
  return {
    title: 'The parts of these costs, for one file',
    columns: ['file', 'GB-seconds', 'invocations', 'S3 writes', 'S3 reads', 'SQS', 'bytes of logs'],
    rows: rows.map(({ name, spent }) => [
      name,
      spent.gbSeconds.toFixed(4),
      spent.invocations.toFixed(1),
      countOf(spent, s3, PRICES.s3Write),
      countOf(spent, s3, PRICES.s3Read),
      countOf(spent, queue, PRICES.sqsRequest),
      spent.loggedBytes.toFixed(0),
    ]),
    note: `GB-seconds: for a function of ${MEMORY_MIB} MiB with ${PROCESSOR_SHARE.toFixed(2)} of a processor as fast as this machine's, and answers after ${ANSWER_MS} ms. Storage is not included. The ticks are not included in files.`,
  };
}

async function sizeOf(stage: Stage, { bytes, files, batch }: SizeCase, tick: Spent): Promise<Spent> {
  const spent = plus(await createOf(stage, bytes, files, batch), await collectOf(stage, bytes, files, tick));
  return plus(NOTHING, spent, 1 / files);
}

async function createOf(stage: Stage, bytes: number, files: number, batch: number): Promise<Spent> {
  await using subject = await stage.subject('ours', 'create-flow', stage.environment('tls'));
  await subject.call('invoke', { event: stage.uploads(WARM_UP_BYTES, BATCH) });
  await countAnew(stage);
  const costs: Cost[] = [];
  for (let done = 0; done < files; done += batch) {
    costs.push(await subject.call('invoke', { event: stage.uploads(bytes, batch) }));
  }
  // S3 sends one message. The event source receives and deletes a batch with one request each.
  const queue = { SendMessage: files, ReceiveMessage: costs.length, DeleteMessage: costs.length };
  return await spentOn(stage, costs, queue);
}

async function collectOf(stage: Stage, bytes: number, files: number, tick: Spent): Promise<Spent> {
  await using subject = await stage.subject('ours', 'collect-outputs', stage.environment('tls'));
  const collect = async (bytes: number, count: number): Promise<Cost> => {
    await stage.addEnded(bytes, count);
    return subject.call('invoke', { event: {} });
  };
  await collect(WARM_UP_BYTES, BATCH);
  await countAnew(stage);
  const cost = await collect(bytes, files);
  return plus(await spentOn(stage, [cost]), tick, -1);
}

/** A tick that finds nothing; a later round of it, which a message begins and in which a new flow is polled; and a poll. */
async function ticksOf(stage: Stage): Promise<Rounds & { readonly poll: ByMonitoring }> {
  const all = async (monitoring: Monitoring) => {
    await stage.aws.call('clear');
    await using subject = await stage.subject('ours', 'collect-outputs', {
      ...stage.environment('tls', { pollIntervalSeconds: SETTINGS_DEFAULT.pollIntervalSeconds }),
      MONITORING: monitoring,
      ROUND_QUEUE_URL: `https://127.0.0.1:${stage.port('aws', 'tls')}/rounds`,
    });
    const tick = await roundsOf(stage, subject, 0);
    const round = await roundsOf(stage, subject, 1);
    // Each sends the message of the next. The event source receives and deletes it.
    const queue = { ...NOTHING, requests: { ReceiveMessage: 1, DeleteMessage: 1 } };
    const polls = await roundsOf(stage, subject, POLLED_FLOWS, { warmUp: 1, counted: 1 });
    // The round is paid for anyway, so a poll is only its own request and time.
    const { gbSeconds, served } = plus(NOTHING, plus(polls, round, -1), 1 / (POLLED_FLOWS - 1));
    return { tick, round: plus(round, queue), poll: { ...NOTHING, gbSeconds, served } };
  };
  const [alarms, full] = [await all('alarms'), await all('full')];
  const by = (which: keyof typeof alarms): ByMonitoring => ({ alarms: alarms[which], full: full[which] });
  return { tick: by('tick'), round: by('round'), poll: by('poll') };
}

/** @param flows those that are polled in a later round. Without any, ticks are counted. */
async function roundsOf(stage: Stage, subject: Subject, flows: number, { warmUp, counted } = ROUNDS): Promise<Spent> {
  const all: Spent[] = [];
  for (let n = -warmUp; n < counted; n += 1) {
    if (n === 0) await stage.setAnswerMs(ANSWER_MS);
    let event = {};
    if (flows > 0) {
      // A flow that was polled before would not be due.
      await stage.aws.call('clear');
      await stage.addRunning([runningFlow(stage.next())], 'ours');
      await stage.aws.call('takeMessages');
      await subject.call('invoke', { event });
      event = stage.event(await stage.aws.call('takeMessages'));
      const polled = Array.from({ length: flows }, () => runningFlow(stage.next()));
      await stage.addRunning(polled, 'ours');
    }
    // The holds are read again then.
    if (n >= 0) await sleep(HOLDS_AGE_MAX_MS);
    await countAnew(stage);
    const cost = await subject.call('invoke', { event });
    if (n >= 0) all.push(await spentOn(stage, [cost]));
  }
  await stage.setAnswerMs(0);
  return typical(all);
}
