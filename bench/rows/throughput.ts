import { ChildError } from '../child.ts';
import { atLeast, atMost, type Check, figure, mib, type Report, size } from '../report.ts';
import type { Stage, Subject, Transport } from '../stage.ts';
import { ratio, spread } from '../statistics.ts';
import type { Cost } from '../subject.ts';

/** Time after which S3, Secrets Manager and EventBridge answer, and after which the service does, in milliseconds. */
const AWS_ANSWER_MS = 30;
const SERVICE_ANSWER_MS = 100;

/** Messages in one batch. */
const BATCH = 10;
/** Maximum memory of the whole process, in bytes. It leaves a quarter of the 512 MiB of a function. */
const MEMORY_BYTES_MAX = 384 * 1024 * 1024;
/** Processors of a function of 512 MB. (AWS Lambda Developer Guide, "Configure Lambda function memory".) */
const FUNCTION_PROCESSORS = 512 / 1_769;

const MAKERS = ['ours', 'naive'] as const;
type Makers = (typeof MAKERS)[number];

interface ThroughputCase {
  readonly direction: 'in' | 'out';
  readonly bytes: number;
  readonly files: number;
  /** Files in a second, at least. */
  readonly rateMin: number;
}

/** The sizes and aims, with as many files as take some seconds. */
export const THROUGHPUT_CASES = {
  quick: [
    { direction: 'in', bytes: 20_000, files: 100, rateMin: 40 },
    { direction: 'out', bytes: 1e6, files: 120, rateMin: 60 },
    { direction: 'out', bytes: 20e6, files: 12, rateMin: 10 },
  ],
  full: [
    { direction: 'in', bytes: 20_000, files: 400, rateMin: 40 },
    { direction: 'out', bytes: 1e6, files: 600, rateMin: 60 },
    { direction: 'out', bytes: 20e6, files: 60, rateMin: 10 },
  ],
} as const satisfies Record<string, readonly ThroughputCase[]>;

interface Outcome {
  readonly filesPerSecond: number;
  readonly cpuMsPerFile: number;
  readonly peakBytes: number;
}

interface ThroughputOptions {
  readonly transports: readonly Transport[];
  readonly cases: readonly ThroughputCase[];
  readonly rounds: number;
}

/**
 * Files a second of one process while every server answers after a delay. In: one invocation after another, each with a
 * batch of ten. Out: one tick, whose flows have all ended when it begins. The time is that of the whole invocation,
 * from its start to its return.
 */
export async function throughput(stage: Stage, { transports, cases, rounds }: ThroughputOptions): Promise<Report> {
  const figures: { transport: Transport; case: ThroughputCase; outcomes: Record<Makers, readonly Outcome[]> }[] = [];
  const all = transports.flatMap((transport) => cases.map((each) => ({ transport, each })));
  for (const { transport, each } of all) {
    const outcomes: Record<Makers, Outcome[]> = { ours: [], naive: [] };
    for (let round = 0; round < rounds; round += 1) {
      for (let turn = 0; turn < MAKERS.length; turn += 1) {
        const maker = MAKERS[(turn + round) % MAKERS.length] as Makers;
        outcomes[maker].push(await measure(stage, maker, transport, each));
      }
    }
    figures.push({ transport, case: each, outcomes });
  }
  const median = (outcomes: readonly Outcome[], which: keyof Outcome): number =>
    spread(outcomes.map((outcome) => outcome[which])).median;
  const nameOf = (transport: Transport, { direction, bytes }: ThroughputCase): string =>
    `${direction} ${transport} ${size(bytes)}`;
  return {
    name: 'throughput',
    figures,
    checks: figures.flatMap(({ transport, case: each, outcomes: { ours } }): Check[] => [
      atLeast(`throughput: ${nameOf(transport, each)}`, median(ours, 'filesPerSecond'), each.rateMin, ' files/s'),
      atMost(
        `throughput: ${nameOf(transport, each)}, memory`,
        Number(mib(median(ours, 'peakBytes'))),
        Number(mib(MEMORY_BYTES_MAX)),
        ' MiB',
      ),
    ]),
    tables: [
      {
        title: `One function while S3 answers after ${AWS_ANSWER_MS} ms and the service after ${SERVICE_ANSWER_MS} ms`,
        columns: [
          'files',
          'files/s ours',
          'naive',
          'ours : naive',
          'cpu ms/file ours',
          'naive',
          'by processor alone, files/s',
          'memory MiB ours',
          'naive',
        ],
        rows: figures.map(({ transport, case: each, outcomes: { ours, naive } }) => {
          const {
            median: rate,
            min,
            max,
          } = ratio(
            ours.map(({ filesPerSecond }) => filesPerSecond),
            naive.map(({ filesPerSecond }) => filesPerSecond),
          );
          return [
            `${each.files} ${nameOf(transport, each)}`,
            figure(median(ours, 'filesPerSecond')),
            figure(median(naive, 'filesPerSecond')),
            `${figure(rate)} (${figure(min)}-${figure(max)})`,
            figure(median(ours, 'cpuMsPerFile')),
            figure(median(naive, 'cpuMsPerFile')),
            figure((1000 * FUNCTION_PROCESSORS) / median(ours, 'cpuMsPerFile')),
            mib(median(ours, 'peakBytes')),
            mib(median(naive, 'peakBytes')),
          ];
        }),
        note:
          `In: batches of ${BATCH}, one invocation after another. Out: one tick, the flows have ended before it begins. ` +
          'The time is that of the whole invocations, with all defaults. "By processor alone" is what the ' +
          `${figure(FUNCTION_PROCESSORS)} processors of a function of 512 MB would allow; the benchmark's process has a whole one.`,
      },
    ],
  };
}

/** Not a number in every field if the naive function fails. */
async function measure(
  stage: Stage,
  maker: Makers,
  transport: Transport,
  { direction, bytes, files }: ThroughputCase,
): Promise<Outcome> {
  const name = direction === 'in' ? 'create-flow' : 'collect-outputs';
  await using subject = await stage.subject(maker, name, stage.environment(transport));
  const run = direction === 'in' ? sent : collected;
  const setAnswerMs = (aws: number, service: number) =>
    Promise.all([
      stage.aws.call('setAnswerMs', { answerMs: aws }),
      stage.service.call('setAnswerMs', { answerMs: service }),
    ]);
  try {
    await run(stage, subject, maker, { bytes, files: BATCH });
    await subject.call('settle');
    await stage.service.call('takeCounts');
    await setAnswerMs(AWS_ANSWER_MS, SERVICE_ANSWER_MS);
    const costs = await run(stage, subject, maker, { bytes, files });
    const counts = await stage.service.call('takeCounts');
    const done = counts[direction === 'in' ? 'create' : 'asset'] ?? 0;
    if (done !== files) throw new Error(`${maker}: ${done} of ${files} files`);
    const sum = (which: 'wallMs' | 'cpuMs') => costs.reduce((total, cost) => total + cost[which], 0);
    return {
      filesPerSecond: (1000 * files) / sum('wallMs'),
      cpuMsPerFile: sum('cpuMs') / files,
      peakBytes: Math.max(...costs.map(({ peakBytes }) => peakBytes)),
    };
  } catch (error) {
    if (maker !== 'naive' || !(error instanceof ChildError)) throw error;
    return { filesPerSecond: Number.NaN, cpuMsPerFile: Number.NaN, peakBytes: Number.NaN };
  } finally {
    await setAnswerMs(0, 0);
  }
}

interface Files {
  readonly bytes: number;
  readonly files: number;
}

async function sent(stage: Stage, subject: Subject, _: Makers, { bytes, files }: Files): Promise<readonly Cost[]> {
  const costs: Cost[] = [];
  for (let done = 0; done < files; done += BATCH) {
    costs.push(await subject.call('invoke', { event: stage.uploads(bytes, BATCH) }));
  }
  return costs;
}

async function collected(
  stage: Stage,
  subject: Subject,
  maker: Makers,
  { bytes, files }: Files,
): Promise<readonly Cost[]> {
  await stage.addEnded(bytes, files, maker);
  return [await subject.call('invoke', { event: {} })];
}
