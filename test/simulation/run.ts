import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import { Worker } from 'node:worker_threads';
import { PAIRS } from './faults.ts';
import { findAll } from './find-mutations.ts';
import { type Outcome, simulate } from './simulation.ts';

/*
 * npm run test:faults -- --seeds N --from S [--jobs J] [--verbose] [--no-table]
 * npm run test:faults -- --mutations [--from S] [--jobs J]
 *
 * Runs N seeds from S on, prints every seed whose world broke an invariant and how to see it again, how often each fault
 * met each kind of call, and a decision. Ends with 1 where something was broken, or where in a run that is long enough a
 * fault never met a call that it can happen to. With `--mutations` it plants one mistake after another in the functions
 * instead, and ends with 1 where one of them is not found.
 */

/** From so many seeds on every pair of a fault and a call must have occurred. */
const SEEDS_FOR_ALL_PAIRS = 5_000;

/** Pairs that are named where they never occurred. */
const NAMED_MAX = 30;

/** Broken seeds that are shown in full. */
const SHOWN_MAX = 10;

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
const from = whole('from', values.from);
const seeds = whole('seeds', values.seeds);
const jobs = Math.min(seeds, values.verbose ? 1 : whole('jobs', values.jobs ?? String(availableParallelism())));

function whole(name: string, text: string): number {
  const number = Number(text);
  if (Number.isSafeInteger(number) && number >= 0) return number;
  throw new Error(`--${name}: expected a whole number, got ${text}`);
}

if (values.mutations) {
  const areAllFound = await findAll(
    from,
    whole('jobs', values.jobs ?? String(availableParallelism())),
    (mutation, found) => {
      const how = found === undefined ? `NOT FOUND in ${mutation.seedsMax} seeds` : `found in ${found.seeds} seeds`;
      print(`${how.padEnd(26)} ${mutation.name}${found === undefined ? '' : ` (${found.violation.split('\n')[0]})`}`);
    },
  );
  print(areAllFound ? 'GOOD: every planted mistake was found.' : 'BAD: a planted mistake was not found.');
  process.exit(areAllFound ? 0 : 1);
}

const startedAt = performance.now();
const faults: Record<string, number> = {};
const calls: Record<string, number> = {};
const counts: Record<string, number> = {};
const broken: Outcome[] = [];
let done = 0;

function add(to: Record<string, number>, more: Readonly<Record<string, number>>): void {
  for (const [name, count] of Object.entries(more)) to[name] = (to[name] ?? 0) + count;
}

function take(outcome: Outcome): void {
  done += 1;
  add(faults, outcome.faults);
  add(calls, outcome.calls);
  add(counts, outcome.counts);
  if (outcome.violation === undefined) return;
  broken.push(outcome);
  if (broken.length > SHOWN_MAX) return;
  print(`seed ${outcome.seed}: ${outcome.violation}`);
  print(`    again: npm run test:faults -- --from ${outcome.seed} --seeds 1 --verbose\n`);
}

if (jobs <= 1) {
  for (let seed = from; seed < from + seeds; seed += 1) take(await simulate(seed, values.verbose ? print : undefined));
} else {
  let next = from;
  await Promise.all(
    Array.from({ length: jobs }, () => {
      const worker = new Worker(new URL('./worker.ts', import.meta.url));
      return new Promise<void>((resolve, reject) => {
        const give = (): void => {
          if (next < from + seeds) worker.postMessage(next++);
          else void worker.terminate().then(() => resolve());
        };
        worker.on('message', (outcome: Outcome) => {
          take(outcome);
          give();
        });
        worker.on('error', reject);
        give();
      });
    }),
  );
}

const seconds = (performance.now() - startedAt) / 1000;
if (values.table) printTable();
const never = PAIRS.filter((pair) => faults[pair] === undefined);
const mustHaveAll = seeds >= SEEDS_FOR_ALL_PAIRS;
if (never.length > 0) {
  const names = never.length <= NAMED_MAX ? `: ${never.join(', ')}` : '';
  print(`${never.length} of ${PAIRS.length} pairs never occurred${names}\n`);
}
print(
  `${counts.invocations} invocations, ${counts.kills} of them killed; ${Object.entries(counts)
    .filter(([name]) => /^[A-Z]/.test(name))
    .map(([name, count]) => `${name} ${count}`)
    .join(', ')}`,
);
const threads = Math.max(1, jobs);
const residentMiB = process.resourceUsage().maxRSS / 1024;
print(
  `${done} seeds from ${from} in ${seconds.toFixed(1)} s: ${(done / seconds).toFixed(1)} a second on ${threads} threads, ${((seconds * 1000 * threads) / done).toFixed(0)} ms each; memory at most ${residentMiB.toFixed(0)} MiB`,
);
const isGood = broken.length === 0 && !(mustHaveAll && never.length > 0);
print(
  isGood
    ? `GOOD: all invariants held in ${done} seeds.`
    : `BAD: ${broken.length} of ${done} seeds broke an invariant${
        broken.length > 0
          ? ` (${broken
              .map(({ seed }) => seed)
              .slice(0, 50)
              .join(', ')})`
          : ''
      }${mustHaveAll && never.length > 0 ? `; ${never.length} pairs never occurred` : ''}.`,
);
process.exitCode = isGood ? 0 : 1;

/** A row for each call, a column for each fault; a dot where the two cannot meet. */
function printTable(): void {
  const all = [...new Set(PAIRS.map((pair) => pair.split(' × ')[1] ?? ''))];
  const rows = [...new Set(PAIRS.map((pair) => pair.split(' × ')[0] ?? ''))];
  all.forEach((fault, index) => {
    print(`  ${String(index + 1).padStart(2)} ${fault}`);
  });
  print(['call'.padEnd(15), 'calls'.padStart(8), ...all.map((_, index) => String(index + 1).padStart(5))].join(''));
  for (const row of rows) {
    const cells = all.map((fault) => {
      const name = `${row} × ${fault}`;
      return (PAIRS.includes(name) ? String(faults[name] ?? 0) : '.').padStart(5);
    });
    print([row.padEnd(15), String(calls[row] ?? 0).padStart(8), ...cells].join(''));
  }
  print('');
}
