import { atMost, figure, inTurns, type Report, size, withRange } from '../report.ts';
import type { Maker, Stage } from '../stage.ts';
import { ratio, spread } from '../statistics.ts';
import type { Cost } from '../subject.ts';

/** Messages in one batch. */
const BATCH = 10;
/** Files of a case before those that are measured. Fewer, if fewer are measured. */
const WARM_UP_FILES_MAX = 100;

const MAKERS = ['ours', 'naive'] as const;

/** What ours may take at most of the naive function's. */
interface Target {
  readonly of: 'wallMs' | 'cpuMs';
  readonly timesMax: number;
}

interface SmallFilesCase {
  readonly direction: 'in' | 'out';
  readonly bytes: number;
  /** Files of this case for each file of {@link SmallFilesOptions}. */
  readonly share: number;
  readonly target: Target;
}

const CASES: readonly SmallFilesCase[] = [
  { direction: 'in', bytes: 20_000, share: 1, target: { of: 'cpuMs', timesMax: 2.5 } },
  { direction: 'out', bytes: 20_000, share: 1, target: { of: 'cpuMs', timesMax: 2.5 } },
  { direction: 'out', bytes: 1_000_000, share: 0.2, target: { of: 'wallMs', timesMax: 1.5 } },
];

interface SmallFilesOptions {
  readonly files: number;
  readonly rounds: number;
}

/** Times of one file, in milliseconds. */
interface Outcome {
  readonly wallMs: number;
  readonly cpuMs: number;
}

/** Sends many small files through create-flow, batch after batch, and collects as many ended flows in one tick. */
export async function smallFiles(stage: Stage, { files, rounds }: SmallFilesOptions): Promise<Report> {
  const all = CASES.map((one) => ({
    ...one,
    name: `${one.direction} ${size(one.bytes)}`,
    files: files * one.share,
    ours: [] as Outcome[],
    naive: [] as Outcome[],
  }));
  for (const maker of inTurns(MAKERS, rounds)) {
    for (const one of all) one[maker].push(await (one.direction === 'in' ? into : out)(stage, maker, one));
  }
  const of = (list: readonly Outcome[], which: keyof Outcome) => list.map((outcome) => outcome[which]);
  const rows = all.map(({ name, files: count, ours, naive }) => {
    const cells = (['wallMs', 'cpuMs'] as const).flatMap((which) => {
      const medians = [ours, naive].map((list) => figure(spread(of(list, which)).median));
      return [...medians, withRange(ratio(of(ours, which), of(naive, which)))];
    });
    return [name, String(count), ...cells];
  });
  return {
    tables: [
      {
        title: 'Small files, in ms a file',
        columns: ['', 'files', 'wall ours', 'naive', 'ours : naive', 'cpu ours', 'naive', 'ours : naive'],
        rows,
        note: 'Ours makes more requests for a file: the naive functions have no claim, no entries and no receipt.',
      },
    ],
    checks: all.map(({ name, ours, naive, target }) => {
      const what = target.of === 'cpuMs' ? 'processor' : 'wall';
      const times = ratio(of(ours, target.of), of(naive, target.of)).median;
      return atMost(`small: ${name}, ${what}, ours : naive`, times, target.timesMax);
    }),
  };
}

interface Load {
  readonly bytes: number;
  readonly files: number;
}

async function into(stage: Stage, maker: Maker, { bytes, files }: Load): Promise<Outcome> {
  await using subject = await stage.subject(maker, 'create-flow', stage.environment('plain'));
  const batches = async (count: number): Promise<Cost[]> => {
    const costs: Cost[] = [];
    for (let done = 0; done < count; done += BATCH) {
      costs.push(await subject.call('invoke', { event: stage.uploads(bytes, BATCH) }));
    }
    return costs;
  };
  await batches(Math.min(files, WARM_UP_FILES_MAX));
  await stage.service.call('takeCounts');
  const costs = await batches(files);
  const { create = 0 } = await stage.service.call('takeCounts');
  if (create !== files) throw new Error(`${maker}: ${create} flows of ${files} files`);
  return outcomeOf(costs, files);
}

async function out(stage: Stage, maker: Maker, { bytes, files }: Load): Promise<Outcome> {
  await using subject = await stage.subject(maker, 'collect-outputs', stage.environment('plain'));
  const run = async (count: number): Promise<Cost> => {
    await stage.addEnded(bytes, count, maker);
    return subject.call('invoke', { event: {} });
  };
  await run(Math.min(files, WARM_UP_FILES_MAX));
  await stage.service.call('takeCounts');
  const cost = await run(files);
  const { asset = 0 } = await stage.service.call('takeCounts');
  if (asset !== files) throw new Error(`${maker}: ${asset} assets of ${files} flows`);
  return outcomeOf([cost], files);
}

function outcomeOf(costs: readonly Cost[], files: number): Outcome {
  const sum = (which: 'wallMs' | 'cpuMs') => costs.reduce((total, cost) => total + cost[which], 0);
  return { wallMs: sum('wallMs') / files, cpuMs: sum('cpuMs') / files };
}
