import { readFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { FUNCTION_NAMES, type FunctionName } from '../../infra/bundle/bundle.ts';
import type { Bundle } from '../bundles.ts';
import { atMost, type Check, figure, type Report, type Table } from '../report.ts';
import type { Maker, Stage } from '../stage.ts';
import { ratio, type Spread, spread } from '../statistics.ts';

/**
 * Target for the size of the bundles, in bytes. A cold start loads all of it. The notices beside it do not count: no
 * function reads them.
 */
const BYTES_TARGET: Readonly<Record<FunctionName, Sizes>> = {
  'create-flow': { raw: 400_000, gzipped: 125_000 },
  'collect-outputs': { raw: 430_000, gzipped: 135_000 },
};
/** Maximum size of the bundles, in bytes. Raise it only on purpose: a careless import has doubled it before. */
export const BUNDLE_BYTES_MAX: typeof BYTES_TARGET = {
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

const FILE_BYTES = 20_000;
const PACKAGES_SHOWN = 12;

/** What was measured of one function. */
interface Figures {
  readonly name: FunctionName;
  readonly sizes: { readonly ours: Sizes; readonly plain: Sizes };
  /** Bytes in the bundle by package, the most first. */
  readonly packages: readonly (readonly [string, number])[];
  readonly forbiddenInputs: readonly string[];
  readonly runs: Starts;
  readonly toPlain: Spread;
}

/** Measures the bundles, and the time from starting to load one to the end of its first call. */
export async function start(stage: Stage, { rounds }: { rounds: number }): Promise<Report> {
  const all: Figures[] = [];
  for (const name of FUNCTION_NAMES) all.push(await figuresOf(stage, name, rounds));
  const figures = all.map(({ name, sizes, packages, runs, toPlain }) => [
    name,
    { sizes, packages: Object.fromEntries(packages), runs, toPlain },
  ]);
  return {
    name: 'start',
    tables: [bundlesTable(all), startsTable(all), ...all.map(packagesTable)],
    checks: all.flatMap(checksOf),
    figures: Object.fromEntries(figures),
  };
}

async function figuresOf(stage: Stage, name: FunctionName, rounds: number): Promise<Figures> {
  const { ours, plain } = stage.bundles;
  const runs = await starts(stage, name, rounds);
  const totals = (list: readonly Start[]) => list.map(({ totalMs }) => totalMs);
  return {
    name,
    sizes: { ours: sizeOf(ours[name]), plain: sizeOf(plain[name]) },
    packages: packagesOf(ours[name]),
    forbiddenInputs: inputsOf(ours[name]).filter((path) => FORBIDDEN_INPUTS.some((each) => each.test(path))),
    runs,
    toPlain: ratio(totals(runs.ours), totals(runs.plain)),
  };
}

function checksOf({ name, sizes, forbiddenInputs, runs, toPlain }: Figures): readonly Check[] {
  const exact = (what: string, found: string, wanted: string, holds: boolean): Check => ({
    what: `start: ${name}, ${what}`,
    found,
    wanted,
    holds,
    isExact: true,
  });
  const modules = runs.modules.filter((module) => FORBIDDEN_MODULES.test(module));
  return [
    ...(['raw', 'gzipped'] as const).flatMap((which) => {
      const [bytes, target] = [sizes.ours[which], BYTES_TARGET[name][which]];
      const max = BUNDLE_BYTES_MAX[name][which];
      const gate = exact(`bytes ${which}`, String(bytes), `at most ${max}`, bytes <= max);
      return [gate, { ...gate, wanted: `at most ${target}`, holds: bytes <= target, isExact: false }];
    }),
    exact('forbidden inputs', forbiddenInputs.join(', ') || 'none', 'none', forbiddenInputs.length === 0),
    exact('forbidden modules of Node', modules.join(', ') || 'none', 'none', modules.length === 0),
    atMost(`start: ${name}, load and first call, ours : plain bundle`, toPlain.median, 0.8),
  ];
}

function bundlesTable(all: readonly Figures[]): Table {
  return {
    title: 'Bundles, in bytes',
    columns: ['function', 'raw', 'gzipped', 'plain bundle raw', 'gzipped'],
    rows: all.map(({ name, sizes: { ours, plain } }) => [
      name,
      ...[ours.raw, ours.gzipped, plain.raw, plain.gzipped].map(String),
    ]),
  };
}

function startsTable(all: readonly Figures[]): Table {
  const milliseconds = (list: readonly Start[]) => [
    figure(spread(list.map(({ loadMs }) => loadMs)).median),
    figure(spread(list.map(({ totalMs }) => totalMs)).median),
  ];
  return {
    title: 'Start, in ms',
    columns: [
      'function',
      'load',
      '+ first call',
      'plain load',
      '+ first call',
      'naive load',
      '+ first call',
      'ours : plain',
    ],
    rows: all.map(({ name, runs: { ours, plain, naive }, toPlain: { median, min, max } }) => [
      name,
      ...[ours, plain, naive].flatMap(milliseconds),
      `${figure(median)} (${figure(min)}-${figure(max)})`,
    ]),
    note: 'The plain bundle is the same code, bundled and minified by esbuild without the rules of infra/bundle/bundle.ts. The first call of create-flow sends one file of 20 KB. The first call of collect-outputs collects one asset.',
  };
}

function packagesTable({ name, sizes, packages }: Figures): Table {
  return {
    title: `Contents of the bundle of ${name}`,
    columns: ['package', 'bytes', 'share'],
    rows: packages
      .slice(0, PACKAGES_SHOWN)
      .map(([from, bytes]) => [from, String(bytes), `${((100 * bytes) / sizes.ours.raw).toFixed(1)} %`]),
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

/** Bytes in the bundle by package, the most first. */
function packagesOf({ metafile }: Bundle): readonly (readonly [string, number])[] {
  const bytes = new Map<string, number>();
  for (const { inputs } of Object.values(metafile.outputs)) {
    for (const [path, { bytesInOutput }] of Object.entries(inputs)) {
      const name = /.*node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1] ?? 'flowdrop itself';
      bytes.set(name, (bytes.get(name) ?? 0) + bytesInOutput);
    }
  }
  return [...bytes].sort(([, a], [, b]) => b - a);
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
  const makers = ['ours', 'plain', 'naive'] as const;
  const runs: Record<Maker, Start[]> = { ours: [], plain: [], naive: [] };
  let modules: readonly string[] = [];
  for (let round = 0; round < rounds; round += 1) {
    for (let turn = 0; turn < makers.length; turn += 1) {
      const maker = makers[(turn + round) % makers.length] as (typeof makers)[number];
      await using subject = await stage.subject(maker, name, stage.environment('plain'));
      if (name === 'collect-outputs') await stage.addEnded(FILE_BYTES, 1, maker);
      const event = name === 'create-flow' ? stage.uploads(FILE_BYTES, 1) : {};
      const loadMs = await subject.call('loadMs');
      const { wallMs } = await subject.call('invoke', { event });
      runs[maker].push({ loadMs, totalMs: loadMs + wallMs });
      if (maker === 'ours') modules = await subject.call('loaded');
    }
  }
  return { ...runs, modules };
}
