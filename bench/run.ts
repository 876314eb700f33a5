import { availableParallelism, cpus, release, totalmem } from 'node:os';
import { commandOptions, orExit, UsageError } from '../command-line/options.ts';
import { type Check, printed, printedChecks, type Report } from './report.ts';
import { costs } from './rows/costs.ts';
import { limited } from './rows/limited.ts';
import { MEMORY_CASES, memory } from './rows/memory.ts';
import { polling } from './rows/polling.ts';
import { smallFiles } from './rows/small-files.ts';
import { start } from './rows/start.ts';
import { transfer } from './rows/transfer.ts';
import { turns } from './rows/turns.ts';
import { Stage } from './stage.ts';

const COMMAND = 'npm run bench';

const USAGE = `${COMMAND} -- [--quick] [--only PARTS]

  --quick    small sizes and few rounds, without costs, limited and turns; takes about a minute
  --only     only these parts: start,small,polling,in,out,memory,costs,limited,turns
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
    },
  },
  USAGE,
);
const { quick } = options;

const SIZES = quick ? [MB, 64 * MB] : [MB, 64 * MB, 256 * MB, GIB];
const TRANSFERS = { sizes: SIZES, rounds: quick ? 1 : 5 };

const PARTS: Readonly<Record<string, (stage: Stage) => Promise<Report>>> = {
  start: (stage) => start(stage, { rounds: quick ? 1 : 21 }),
  small: (stage) => smallFiles(stage, quick ? { files: 50, rounds: 1 } : { files: 2_000, rounds: 5 }),
  polling: (stage) =>
    polling(
      stage,
      quick
        ? { flows: [100, 2_000], endedEntries: 20_000 }
        : { flows: [100, 1_000, 10_000, 50_000], endedEntries: 1_000_000 },
    ),
  in: (stage) => transfer(stage, { direction: 'in', ...TRANSFERS }),
  out: (stage) => transfer(stage, { direction: 'out', ...TRANSFERS }),
  memory: (stage) => memory(stage, MEMORY_CASES[quick ? 'quick' : 'full']),
  // A limit takes its time. The simulation shows in virtual time that the functions keep within it.
  ...(quick ? {} : { limited, turns, costs }),
};

const only = options.only?.split(',');
orExit(COMMAND, () => {
  const unknown = only?.find((name) => PARTS[name] === undefined);
  if (unknown === undefined) return;
  throw new UsageError(`There is no part "${unknown}". Known: ${Object.keys(PARTS).join(', ')}`);
});

// Without the machine that they were measured on, the figures mean nothing.
const processor = cpus()[0]?.model ?? 'unknown';
const memoryGiB = Math.round(totalmem() / GIB);
const system = `${process.platform} ${release()} ${process.arch}`;
console.log(
  `${new Date().toISOString()}: ${processor}, ${availableParallelism()} cores, ${memoryGiB} GiB, ${system}, Node ${process.version}\n`,
);

const stage = await Stage.start();
const checks: Check[] = [];
try {
  for (const [name, part] of Object.entries(PARTS)) {
    if (only !== undefined && !only.includes(name)) continue;
    const report = await part(stage);
    checks.push(...report.checks);
    for (const table of report.tables) console.log(printed(table));
  }
} finally {
  await stage.close();
}
console.log(printedChecks(checks));
console.log(
  '\nThe run fails only if a count is wrong or a wide limit is exceeded. A "miss" is a target that this run did not reach.',
);
process.exitCode = checks.some(({ holds, isExact }) => isExact && !holds) ? 1 : 0;
