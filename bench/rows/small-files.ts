import { atMost, figure, type Report } from '../report.ts';
import type { Maker, Stage } from '../stage.ts';
import { ratio, spread } from '../statistics.ts';
import type { Cost } from '../subject.ts';

const FILE_BYTES = 20_000;
/** Messages in one batch. */
const BATCH = 10;
const WARM_UP_FILES = 100;

/** Targets for the processor time of ours, in that of the naive function. */
const CPU_TARGET = { in: 2, out: 1.5 } as const;

interface SmallFilesOptions {
  readonly files: number;
  readonly rounds: number;
}

interface Outcome {
  readonly filesPerSecond: number;
  readonly cpuMsPerFile: number;
}

/** Sends many small files through create-flow, batch after batch, and collects as many ended flows in one tick. */
export async function smallFiles(stage: Stage, { files, rounds }: SmallFilesOptions): Promise<Report> {
  const makers = ['ours', 'naive'] as const;
  const outcomes = {
    in: { ours: [] as Outcome[], naive: [] as Outcome[] },
    out: { ours: [] as Outcome[], naive: [] as Outcome[] },
  };
  for (let round = 0; round < rounds; round += 1) {
    for (let turn = 0; turn < makers.length; turn += 1) {
      const maker = makers[(turn + round) % makers.length] as (typeof makers)[number];
      outcomes.in[maker].push(await into(stage, maker, files));
      outcomes.out[maker].push(await out(stage, maker, files));
    }
  }
  const of = (list: readonly Outcome[], which: keyof Outcome) => list.map((outcome) => outcome[which]);
  const all = (['in', 'out'] as const).map((direction) => {
    const { ours, naive } = outcomes[direction];
    const cpu = ratio(of(ours, 'cpuMsPerFile'), of(naive, 'cpuMsPerFile'));
    return { direction, ours, naive, cpu };
  });
  const rows = all.map(({ direction, ours, naive, cpu }) => [
    direction,
    figure(spread(of(ours, 'filesPerSecond')).median),
    figure(spread(of(naive, 'filesPerSecond')).median),
    figure(spread(of(ours, 'cpuMsPerFile')).median),
    figure(spread(of(naive, 'cpuMsPerFile')).median),
    `${figure(cpu.median)} (${figure(cpu.min)}-${figure(cpu.max)})`,
  ]);
  return {
    name: 'small',
    tables: [
      {
        title: `${files} files of ${FILE_BYTES / 1000} KB`,
        columns: ['', 'files/s ours', 'naive', 'cpu ms/file ours', 'naive', 'cpu, ours : naive'],
        rows,
        note: 'Ours makes more requests for a file: the naive functions have no claim, no entries and no receipt.',
      },
    ],
    checks: all.map(({ direction, cpu }) =>
      atMost(`small: ${direction}, processor, ours : naive`, cpu.median, CPU_TARGET[direction]),
    ),
    figures: outcomes,
  };
}

async function into(stage: Stage, maker: Maker, files: number): Promise<Outcome> {
  await using subject = await stage.subject(maker, 'create-flow', stage.environment('plain'));
  const batches = async (count: number): Promise<Cost[]> => {
    const costs: Cost[] = [];
    for (let done = 0; done < count; done += BATCH) {
      costs.push(await subject.call('invoke', { event: stage.uploads(FILE_BYTES, BATCH) }));
    }
    return costs;
  };
  await batches(WARM_UP_FILES);
  await stage.service.call('takeCounts');
  const costs = await batches(files);
  const { create = 0 } = await stage.service.call('takeCounts');
  if (create !== files) throw new Error(`${maker}: ${create} flows of ${files} files`);
  return outcomeOf(costs, files);
}

async function out(stage: Stage, maker: Maker, files: number): Promise<Outcome> {
  await using subject = await stage.subject(maker, 'collect-outputs', stage.environment('plain'));
  const run = async (count: number): Promise<Cost> => {
    await stage.addEnded(FILE_BYTES, count, maker);
    return subject.call('invoke', { event: {} });
  };
  await run(WARM_UP_FILES);
  await stage.service.call('takeCounts');
  const cost = await run(files);
  const { asset = 0 } = await stage.service.call('takeCounts');
  if (asset !== files) throw new Error(`${maker}: ${asset} assets of ${files} flows`);
  return outcomeOf([cost], files);
}

function outcomeOf(costs: readonly Cost[], files: number): Outcome {
  const sum = (which: 'wallMs' | 'cpuMs') => costs.reduce((total, cost) => total + cost[which], 0);
  return { filesPerSecond: (1000 * files) / sum('wallMs'), cpuMsPerFile: sum('cpuMs') / files };
}
