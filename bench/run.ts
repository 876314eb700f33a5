import { availableParallelism, cpus, release, totalmem } from 'node:os';
import { commandOptions, orExit, UsageError } from '../command-line/options.ts';
import { printed, printedChecks, type Report } from './report.ts';
import { costs } from './rows/costs.ts';
import { LIMITED_CASE_NAMES, limited } from './rows/limited.ts';
import { MEMORY_CASES, memory } from './rows/memory.ts';
import { polling } from './rows/polling.ts';
import { smallFiles } from './rows/small-files.ts';
import { start } from './rows/start.ts';
import { transfer } from './rows/transfer.ts';
import { Stage } from './stage.ts';

const COMMAND = 'npm run bench';

const USAGE = `${COMMAND} -- [--quick] [--only PARTS] [--cases CASES] [--json]

  --quick    small sizes and few rounds, without costs and limited; takes about a minute
  --only     only these parts: start,small,polling,in,out,memory,costs,limited
  --cases    only these cases of the part "limited": ${LIMITED_CASE_NAMES.join(',')}
  --json     prints JSON instead of tables
  --help     shows this
`;

const MB = 1e6;
const GIB = 1024 ** 3;

const { values: options } = commandOptions(
  {
    command: COMMAND,
    options: {
      quick: { type: 'boolean', default: false },
      only: { type: 'string' },
      cases: { type: 'string' },
      json: { type: 'boolean', default: false },
    },
  },
  USAGE,
);
const { quick } = options;

const SIZES = quick ? [MB, 64 * MB] : [MB, 64 * MB, 256 * MB, GIB];
// In a short run only the memory of these can fail it. TLS takes more of it.
const TRANSPORTS = quick ? (['tls'] as const) : (['plain', 'tls'] as const);
const TRANSFERS = { transports: TRANSPORTS, sizes: SIZES, rounds: quick ? 1 : 5 };

const cases = options.cases?.split(',') ?? LIMITED_CASE_NAMES;

const PARTS: Readonly<Record<string, (stage: Stage) => Promise<Report>>> = {
  start: (stage) => start(stage, { rounds: quick ? 3 : 21 }),
  small: (stage) => smallFiles(stage, quick ? { files: 200, rounds: 1 } : { files: 2_000, rounds: 5 }),
  polling: (stage) =>
    polling(
      stage,
      quick
        ? { flows: [100, 1_000, 10_000], endedEntries: 100_000 }
        : { flows: [100, 1_000, 10_000, 50_000], endedEntries: 1_000_000 },
    ),
  in: (stage) => transfer(stage, { direction: 'in', ...TRANSFERS }),
  out: (stage) => transfer(stage, { direction: 'out', ...TRANSFERS }),
  memory: (stage) => memory(stage, MEMORY_CASES[quick ? 'quick' : 'full']),
  // A limit takes its time. The simulation shows in virtual time that the functions keep within it.
  ...(quick ? {} : { limited: (stage) => limited(stage, cases), costs }),
};

const only = options.only?.split(',');
orExit(COMMAND, () => {
  requireKnown('part', only ?? [], Object.keys(PARTS));
  requireKnown('case', cases, LIMITED_CASE_NAMES);
});

/** @throws {UsageError} */
function requireKnown(what: string, names: readonly string[], known: readonly string[]): void {
  const unknown = names.find((name) => !known.includes(name));
  if (unknown !== undefined) throw new UsageError(`There is no ${what} "${unknown}". Known: ${known.join(', ')}`);
}

/** The machine that the figures were measured on. Without it they mean nothing. */
const machine = {
  processor: cpus()[0]?.model ?? 'unknown',
  cores: availableParallelism(),
  memoryGiB: Math.round(totalmem() / GIB),
  system: `${process.platform} ${release()} ${process.arch}`,
  node: process.version,
};
const startedAt = new Date();
if (!options.json) {
  const { processor, cores, memoryGiB, system, node } = machine;
  console.log(`${startedAt.toISOString()}: ${processor}, ${cores} cores, ${memoryGiB} GiB, ${system}, Node ${node}\n`);
}

const stage = await Stage.start();
const reports: Report[] = [];
try {
  for (const [name, part] of Object.entries(PARTS)) {
    if (only !== undefined && !only.includes(name)) continue;
    const report = await part(stage);
    reports.push(report);
    if (!options.json) for (const table of report.tables) console.log(printed(table));
  }
} finally {
  await stage.close();
}
const checks = reports.flatMap((report) => report.checks);
if (options.json) {
  const figures = Object.fromEntries(reports.map((report) => [report.name, report.figures]));
  const seconds = Math.round((Date.now() - startedAt.getTime()) / 1000);
  const date = startedAt.toISOString();
  console.log(JSON.stringify({ date, seconds, machine, figures, checks }, undefined, 2));
} else {
  console.log(printedChecks(checks));
  console.log(
    '\nThe run fails only if a count is wrong or a wide limit is exceeded. A "miss" is a target that this run did not reach.',
  );
}
process.exitCode = checks.some(({ holds, isExact }) => isExact && !holds) ? 1 : 0;
