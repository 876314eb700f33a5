import { readFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { FUNCTION_NAMES, type FunctionName } from '../../infra/bundle/bundle.ts';
import type { Bundle } from '../bundles.ts';
import { atMost, type Check, figure, inTurns, type Report, type Table, withRange } from '../report.ts';
import type { Maker, Stage } from '../stage.ts';
import { ratio, type Spread, spread } from '../statistics.ts';

/**
 * Maximum size of the bundles, in bytes. A cold start loads all of it. Raise it only on purpose: a careless import has
 * doubled it before. The notices beside it do not count: no function reads them.
 */
export const BUNDLE_BYTES_MAX: Readonly<Record<FunctionName, Sizes>> = {
  'create-flow': { raw: 492_000, gzipped: 165_000 },
  'collect-outputs': { raw: 550_000, gzipped: 182_000 },
};

/** Inputs that a bundle must not contain. */
const FORBIDDEN_INPUTS = [
  /node_modules\/undici\//,
  /credential-provider-(sso|ini|process|web-identity|http|login)\//,
  /@smithy\/core\/.*\/event-streams\//,
  /zod\/v4\/locales\/(?!en\.)/,
  /node_modules\/(aws-cdk-lib|constructs|aws-lambda-ric)\//,
  /(^|\/)(infra|local|test|bench)\/(?!bundle\/aliases\/)/,
];

/** Modules of Node.js that a first call must not load. */
const FORBIDDEN_MODULES = /undici/;

/** Target for the time from the beginning of loading to the end of the first call, to that of the naive function. */
const START_RATIO_MAX = 1;

const FILE_BYTES = 20_000;

/** What was measured of one function. */
interface Figures {
  readonly name: FunctionName;
  readonly sizes: Sizes;
  readonly forbiddenInputs: readonly string[];
  readonly runs: Starts;
  readonly toNaive: Spread;
}

/** Measures the bundles, and the time from starting to load one to the end of its first call. */
export async function start(stage: Stage, { rounds }: { rounds: number }): Promise<Report> {
  const all: Figures[] = [];
  for (const name of FUNCTION_NAMES) all.push(await figuresOf(stage, name, rounds));
  return { tables: [bundlesTable(all), startsTable(all)], checks: all.flatMap(checksOf) };
}

async function figuresOf(stage: Stage, name: FunctionName, rounds: number): Promise<Figures> {
  const { ours } = stage.bundles;
  const runs = await starts(stage, name, rounds);
  const totals = (list: readonly Start[]) => list.map(({ totalMs }) => totalMs);
  return {
    name,
    sizes: sizeOf(ours[name]),
    forbiddenInputs: inputsOf(ours[name]).filter((path) => FORBIDDEN_INPUTS.some((each) => each.test(path))),
    runs,
    toNaive: ratio(totals(runs.ours), totals(runs.naive)),
  };
}

function checksOf({ name, sizes, forbiddenInputs, runs, toNaive }: Figures): readonly Check[] {
  const exact = (what: string, found: string, wanted: string, holds: boolean): Check => ({
    what: `start: ${name}, ${what}`,
    found,
    wanted,
    holds,
    isExact: true,
  });
  const modules = runs.modules.filter((module) => FORBIDDEN_MODULES.test(module));
  return [
    ...(['raw', 'gzipped'] as const).map((which) => {
      const max = BUNDLE_BYTES_MAX[name][which];
      return exact(`bytes ${which}`, String(sizes[which]), `at most ${max}`, sizes[which] <= max);
    }),
    exact('forbidden inputs', forbiddenInputs.join(', ') || 'none', 'none', forbiddenInputs.length === 0),
    exact('forbidden modules of Node', modules.join(', ') || 'none', 'none', modules.length === 0),
    atMost(`start: ${name}, load and first call, ours : naive`, toNaive.median, START_RATIO_MAX),
  ];
}

function bundlesTable(all: readonly Figures[]): Table {
  return {
    title: 'Bundles, in bytes',
    columns: ['function', 'raw', 'gzipped'],
    rows: all.map(({ name, sizes: { raw, gzipped } }) => [name, String(raw), String(gzipped)]),
  };
}

function startsTable(all: readonly Figures[]): Table {
  const milliseconds = (list: readonly Start[]) => [
    figure(spread(list.map(({ loadMs }) => loadMs)).median),
    figure(spread(list.map(({ totalMs }) => totalMs)).median),
  ];
  return {
    title: 'Start, in ms',
    columns: ['function', 'load', '+ first call', 'naive load', '+ first call', 'ours : naive'],
    rows: all.map(({ name, runs: { ours, naive }, toNaive }) => [
      name,
      ...[ours, naive].flatMap(milliseconds),
      withRange(toNaive),
    ]),
    note: 'The first call of create-flow sends one file of 20 KB. The first call of collect-outputs collects one asset.',
  };
}

interface Sizes {
  readonly raw: number;
  readonly gzipped: number;
}

function sizeOf({ path }: Bundle): Sizes {
  const code = readFileSync(path);
  return { raw: code.byteLength, gzipped: gzipSync(code, { level: 9 }).byteLength };
}

const inputsOf = ({ metafile }: Bundle): readonly string[] =>
  Object.values(metafile.outputs).flatMap(({ inputs }) =>
    Object.entries(inputs).flatMap(([path, { bytesInOutput }]) => (bytesInOutput > 0 ? path : [])),
  );

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
    const loadMs = await subject.call('loadMs');
    const { wallMs } = await subject.call('invoke', { event });
    runs[maker].push({ loadMs, totalMs: loadMs + wallMs });
    if (maker === 'ours') modules = await subject.call('loaded');
  }
  return { ...runs, modules };
}
