import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import { findAll } from './find-mutations.ts';
import { Report } from './report.ts';
import { runSeeds } from './run-seeds.ts';

/*
 * npm run test:faults -- --seeds N --from S [--jobs J] [--verbose] [--no-table]
 * npm run test:faults -- --mutations [--from S] [--jobs J]
 *
 * Runs N seeds from S on. Prints every seed that broke an invariant and how to see it again, how often each fault met
 * each kind of call, and the result. Exits with 1 if an invariant was broken, or if a long run left out a pair of a
 * fault and a call. With `--mutations` it plants one mistake after another in the functions instead, and exits with 1
 * if one of them is not found.
 */

const print = (text: string): void => void process.stdout.write(`${text}\n`);

const { values } = parseArgs({
  options: {
    seeds: { type: 'string', default: '200' },
    from: { type: 'string', default: '1' },
    jobs: { type: 'string' },
    mutations: { type: 'boolean', default: false },
    verbose: { type: 'boolean', default: false },
    table: { type: 'boolean', default: true },
  },
  allowNegative: true,
});
const from = wholeNumber('from', values.from);
const jobs = wholeNumber('jobs', values.jobs ?? String(availableParallelism()));
const isGood = values.mutations ? await findMutations() : await simulateSeeds();
process.exitCode = isGood ? 0 : 1;

function wholeNumber(name: string, text: string): number {
  const number = Number(text);
  if (Number.isSafeInteger(number) && number >= 0) return number;
  throw new Error(`--${name}: expected a whole number, got ${text}`);
}

async function findMutations(): Promise<boolean> {
  const areAllFound = await findAll(from, jobs, ({ name, seedsMax }, found) => {
    const how = found === undefined ? `NOT FOUND in ${seedsMax} seeds` : `found in ${found.seeds} seeds`;
    print(`${how.padEnd(26)} ${name}${found === undefined ? '' : ` (${found.violation.split('\n')[0]})`}`);
  });
  print(areAllFound ? 'GOOD: every planted mistake was found.' : 'BAD: a planted mistake was not found.');
  return areAllFound;
}

async function simulateSeeds(): Promise<boolean> {
  const count = wholeNumber('seeds', values.seeds);
  const threads = Math.max(1, Math.min(count, values.verbose ? 1 : jobs));
  const report = new Report(print);
  const startedAt = performance.now();
  await runSeeds({
    from,
    count,
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
