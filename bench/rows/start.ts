import { FUNCTION_NAMES, type FunctionName } from '../../infra/bundle/bundle.ts';
import { atMost, type Check, figure, inTurns, type Report, type Table, withRange } from '../report.ts';
import type { Maker, Stage } from '../stage.ts';
import { ratio, type Spread, spread } from '../statistics.ts';

/** Modules of Node.js that a first call must not load. */
const FORBIDDEN_MODULES = /undici|webstreams|parse_args/;

/** Target for the processor time of loading and the first call, to that of the naive function. */
const START_RATIO_MAX = 1;

const FILE_BYTES = 20_000;

/** What was measured of one function. */
interface Figures {
  readonly name: FunctionName;
  readonly runs: Starts;
  readonly toNaive: Spread;
}

/** Measures the processor time of loading a bundle, and of its first call. */
export async function start(stage: Stage, { rounds }: { rounds: number }): Promise<Report> {
  const all: Figures[] = [];
  // First collect-outputs: the naive one would also poll every flow that create-flow has made.
  for (const name of FUNCTION_NAMES.toReversed()) {
    const runs = await starts(stage, name, rounds);
    const totals = (list: readonly Start[]) => list.map(({ totalMs }) => totalMs);
    all.push({ name, runs, toNaive: ratio(totals(runs.ours), totals(runs.naive)) });
  }
  return { tables: [startsTable(all)], checks: all.flatMap(checksOf) };
}

function checksOf({ name, runs, toNaive }: Figures): readonly Check[] {
  const modules = runs.modules.filter((module) => FORBIDDEN_MODULES.test(module));
  return [
    {
      what: `start: ${name}, forbidden modules of Node`,
      found: modules.join(', ') || 'none',
      wanted: 'none',
      holds: modules.length === 0,
      isExact: true,
    },
    atMost(`start: ${name}, load and first call, ours : naive`, toNaive.median, START_RATIO_MAX),
  ];
}

function startsTable(all: readonly Figures[]): Table {
  const milliseconds = (list: readonly Start[]) => [
    figure(spread(list.map(({ loadMs }) => loadMs)).median),
    figure(spread(list.map(({ totalMs }) => totalMs)).median),
  ];
  return {
    title: 'Start, in ms of processor time',
    columns: ['function', 'load', '+ first call', 'naive load', '+ first call', 'ours : naive'],
    rows: all.map(({ name, runs: { ours, naive }, toNaive }) => [
      name,
      ...[ours, naive].flatMap(milliseconds),
      withRange(toNaive),
    ]),
    note: 'The first call of create-flow sends one file of 20 KB. The first call of collect-outputs collects one asset.',
  };
}

interface Starts extends Readonly<Record<Maker, readonly Start[]>> {
  /** Modules of Node.js that our bundle has loaded after its first call. */
  readonly modules: readonly string[];
}

interface Start {
  readonly loadMs: number;
  readonly totalMs: number;
}

/** Starts new processes round by round. */
async function starts(stage: Stage, name: FunctionName, rounds: number): Promise<Starts> {
  const runs: Record<Maker, Start[]> = { ours: [], naive: [] };
  let modules: readonly string[] = [];
  for (const maker of inTurns(['ours', 'naive'] as const, rounds)) {
    await using subject = await stage.subject(maker, name, stage.environment('plain'));
    if (name === 'collect-outputs') await stage.addEnded(FILE_BYTES, 1, maker);
    const event = name === 'create-flow' ? stage.uploads(FILE_BYTES, 1) : {};
    const loadMs = await subject.call('loadCpuMs');
    const { cpuMs } = await subject.call('invoke', { event });
    runs[maker].push({ loadMs, totalMs: loadMs + cpuMs });
    if (maker === 'ours') modules = await subject.call('loaded');
  }
  return { ...runs, modules };
}
