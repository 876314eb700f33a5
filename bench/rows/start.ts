import { readFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { FUNCTION_NAMES, type FunctionName } from '../../infra/bundle/bundle.ts';
import type { Bundle } from '../bundles.ts';
import { type Check, figure, type Report, type Table } from '../report.ts';
import { doneFlow } from '../servers/flow-service.ts';
import type { Stage } from '../stage.ts';
import { ratio, spread } from '../statistics.ts';

/** What is to be loaded at a cold start, in bytes: the aim. */
const BYTES_TARGET: Readonly<Record<FunctionName, { readonly raw: number; readonly gzipped: number }>> = {
  'create-flow': { raw: 400_000, gzipped: 125_000 },
  'collect-outputs': { raw: 430_000, gzipped: 135_000 },
};
/** What is loaded at a cold start at most, in bytes. Raise it knowingly: a careless import has doubled it before. */
export const BUNDLE_BYTES_MAX: typeof BYTES_TARGET = {
  'create-flow': { raw: 487_000, gzipped: 158_000 },
  'collect-outputs': { raw: 532_000, gzipped: 171_000 },
};

/** What must not be in a bundle, or is there by mistake. */
const FORBIDDEN_INPUTS = [
  /node_modules\/undici\//,
  /credential-provider-(sso|ini|process|web-identity|http|login)\//,
  /@smithy\/core\/.*\/event-streams\//,
  /zod\/v4\/locales\/(?!en\.)/,
  /node_modules\/(aws-cdk-lib|constructs|aws-lambda-ric)\//,
  /(^|\/)(infra|local|test|bench)\/(?!bundle\/aliases\/)/,
];

/** What must not have been loaded after a first call, of Node's own modules. */
const FORBIDDEN_MODULES = /undici/;

const FILE_BYTES = 20_000;
const PACKAGES_SHOWN = 12;

/** What loading the functions costs: their bytes, and the time from nothing to the end of a first call. */
export async function start(stage: Stage, { rounds }: { rounds: number }): Promise<Report> {
  const checks: Check[] = [];
  const figures: Record<string, unknown> = {};
  const sizeRows: string[][] = [];
  const timeRows: string[][] = [];
  const packageTables: Table[] = [];
  for (const name of FUNCTION_NAMES) {
    const sizes = { ours: sizeOf(stage.bundles.ours[name]), plain: sizeOf(stage.bundles.plain[name]) };
    const packages = packagesOf(stage.bundles.ours[name]);
    const inputs = inputsOf(stage.bundles.ours[name]).filter((path) =>
      FORBIDDEN_INPUTS.some((each) => each.test(path)),
    );
    const runs = await starts(stage, name, rounds);
    const modules = runs.modules.filter((module) => FORBIDDEN_MODULES.test(module));
    const exact = (what: string, found: string, wanted: string, holds: boolean): Check => ({
      what: `start: ${name}, ${what}`,
      found,
      wanted,
      holds,
      isExact: true,
    });
    const toPlain = ratio(
      runs.ours.map(({ totalMs }) => totalMs),
      runs.plain.map(({ totalMs }) => totalMs),
    );
    checks.push(
      ...(['raw', 'gzipped'] as const).flatMap((which) => {
        const [bytes, target] = [sizes.ours[which], BYTES_TARGET[name][which]];
        const max = BUNDLE_BYTES_MAX[name][which];
        const gate = exact(`bytes ${which}`, String(bytes), `at most ${max}`, bytes <= max);
        return [gate, { ...gate, wanted: `at most ${target}`, holds: bytes <= target, isExact: false }];
      }),
      exact('forbidden inputs', inputs.join(', ') || 'none', 'none', inputs.length === 0),
      exact('forbidden modules of Node', modules.join(', ') || 'none', 'none', modules.length === 0),
      {
        what: `start: ${name}, load and first call, ours : plain bundle`,
        found: figure(toPlain.median),
        wanted: 'at most 0.80',
        holds: toPlain.median <= 0.8,
        isExact: false,
      },
    );
    const milliseconds = (list: readonly Start[], which: (start: Start) => number) =>
      figure(spread(list.map(which)).median);
    sizeRows.push([name, ...[sizes.ours.raw, sizes.ours.gzipped, sizes.plain.raw, sizes.plain.gzipped].map(String)]);
    timeRows.push([
      name,
      milliseconds(runs.ours, ({ loadMs }) => loadMs),
      milliseconds(runs.ours, ({ totalMs }) => totalMs),
      milliseconds(runs.plain, ({ loadMs }) => loadMs),
      milliseconds(runs.plain, ({ totalMs }) => totalMs),
      milliseconds(runs.naive, ({ loadMs }) => loadMs),
      milliseconds(runs.naive, ({ totalMs }) => totalMs),
      `${figure(toPlain.median)} (${figure(toPlain.min)}-${figure(toPlain.max)})`,
    ]);
    packageTables.push({
      title: `What is in the bundle of ${name}`,
      columns: ['package', 'bytes', 'share'],
      rows: packages
        .slice(0, PACKAGES_SHOWN)
        .map(([from, bytes]) => [from, String(bytes), `${((100 * bytes) / sizes.ours.raw).toFixed(1)} %`]),
    });
    figures[name] = { sizes, packages: Object.fromEntries(packages), runs, toPlain };
  }
  const tables: Table[] = [
    {
      title: 'Bundles, in bytes',
      columns: ['function', 'raw', 'gzipped', 'plain bundle raw', 'gzipped'],
      rows: sizeRows,
    },
    {
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
      rows: timeRows,
      note: 'The plain bundle is the same code, bundled and minified by esbuild without the rules of infra/bundle/bundle.ts. The first call of create-flow takes one file of 20 KB in; that of collect-outputs takes one asset out.',
    },
    ...packageTables,
  ];
  return { name: 'start', tables, checks, figures };
}

function sizeOf({ path }: Bundle): { readonly raw: number; readonly gzipped: number } {
  const code = readFileSync(path);
  return { raw: code.byteLength, gzipped: gzipSync(code, { level: 9 }).byteLength };
}

const inputsOf = ({ metafile }: Bundle): readonly string[] =>
  Object.values(metafile.outputs).flatMap(({ inputs }) =>
    Object.entries(inputs).flatMap(([path, { bytesInOutput }]) => (bytesInOutput > 0 ? path : [])),
  );

/** Bytes in the bundle by the package that they come from, the most first. */
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

interface Start {
  readonly loadMs: number;
  readonly totalMs: number;
}

async function starts(stage: Stage, name: FunctionName, rounds: number) {
  const makers = ['ours', 'plain', 'naive'] as const;
  const runs: Record<(typeof makers)[number], Start[]> = { ours: [], plain: [], naive: [] };
  let modules: readonly string[] = [];
  for (let round = 0; round < rounds; round += 1) {
    for (let turn = 0; turn < makers.length; turn += 1) {
      const maker = makers[(turn + round) % makers.length] as (typeof makers)[number];
      const { subject, loadMs } = await stage.subject(maker, name, stage.environment('plain'));
      try {
        if (name === 'collect-outputs')
          await stage.run([doneFlow('uri', FILE_BYTES, stage.next())], maker === 'naive' ? 'naive' : 'ours');
        const event = name === 'create-flow' ? stage.uploads(FILE_BYTES, 1) : {};
        const { wallMs } = await subject.call('invoke', { event });
        runs[maker].push({ loadMs, totalMs: loadMs + wallMs });
        if (maker === 'ours') modules = await subject.call('loaded');
      } finally {
        await subject.end();
      }
    }
  }
  return { ...runs, modules };
}
