import { availableParallelism } from 'node:os';
import { commandOptions, orExit, wholeNumber } from '../../command-line/options.ts';
import { findAll } from './find-mutations.ts';
import { Report } from './report.ts';
import { runSeeds } from './run-seeds.ts';

const COMMAND = 'npm run test:faults';

const USAGE = `Runs both functions under injected faults.

  ${COMMAND} -- [--seeds N] [--from S] [--jobs J] [--verbose] [--no-table]
  ${COMMAND} -- --mutations [--from S] [--jobs J]

  --seeds N     number of seeds                   (default: 200)
  --from S      the first seed                    (default: 1)
  --jobs J      number of threads                 (default: one for each core)
  --mutations   plant one mistake after another in the functions instead
  --verbose     print every step, in one thread
  --no-table    do not print how often each fault met each kind of call
  --help        show this

Prints every seed that broke an invariant, and how to see it again. Exits with 1 if an invariant was broken, if a long
run left out a pair of a fault and a call, or if a planted mistake was not found.
`;

const print = (text: string): void => void process.stdout.write(`${text}\n`);

const { values } = commandOptions(
  {
    command: COMMAND,
    options: {
      seeds: { type: 'string', default: '200' },
      from: { type: 'string', default: '1' },
      jobs: { type: 'string' },
      mutations: { type: 'boolean', default: false },
      verbose: { type: 'boolean', default: false },
      table: { type: 'boolean', default: true },
    },
    allowNegative: true,
  },
  USAGE,
);
const { from, jobs, seeds } = orExit(COMMAND, () => ({
  from: wholeNumber('from', values.from),
  jobs: wholeNumber('jobs', values.jobs ?? String(availableParallelism())),
  seeds: wholeNumber('seeds', values.seeds),
}));
const isGood = values.mutations ? await findMutations() : await simulateSeeds();
process.exitCode = isGood ? 0 : 1;

async function findMutations(): Promise<boolean> {
  const areAllFound = await findAll(from, jobs, ({ name, seedsMax }, found) => {
    const how = found === undefined ? `NOT FOUND in ${seedsMax} seeds` : `found in ${found.seeds} seeds`;
    print(`${how.padEnd(26)} ${name}${found === undefined ? '' : ` (${found.violation.split('\n')[0]})`}`);
  });
  print(areAllFound ? 'GOOD: every planted mistake was found.' : 'BAD: a planted mistake was not found.');
  return areAllFound;
}

async function simulateSeeds(): Promise<boolean> {
  const threads = Math.max(1, Math.min(seeds, values.verbose ? 1 : jobs));
  const report = new Report(print);
  const startedAt = performance.now();
  await runSeeds({
    from,
    count: seeds,
    threads,
    onOutcome: (outcome) => report.take(outcome),
    onTrace: values.verbose ? print : undefined,
  });
  const seconds = (performance.now() - startedAt) / 1000;
  if (values.table) report.printTable();
  report.printPairs();
  report.printCounts();
  report.printTimes({ from, threads, seconds });
  return report.printResult();
}
