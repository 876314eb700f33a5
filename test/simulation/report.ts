import { PAIRS } from './faults.ts';
import type { Outcome } from './simulation.ts';

/** Number of seeds in which every pair of a fault and a call must occur. */
const SEEDS_FOR_ALL_PAIRS = 5_000;

/** Largest number of pairs that are named because they never occurred. */
const PAIRS_NAMED_MAX = 30;

/** Largest number of broken seeds that are shown in full, and of those that are listed at the end. */
const SHOWN_MAX = 10;
const LISTED_MAX = 50;

/** A long run says how far it has come each time it has done this number of seeds. */
const PROGRESS_SEEDS = 1_000;

type Counts = Record<string, number>;

function add(to: Counts, more: Readonly<Counts>): void {
  for (const [name, count] of Object.entries(more)) to[name] = (to[name] ?? 0) + count;
}

/** What a run of many seeds came to. */
export class Report {
  readonly #print: (text: string) => void;
  readonly #faults: Counts = {};
  readonly #calls: Counts = {};
  readonly #counts: Counts = {};
  readonly #broken: number[] = [];
  #done = 0;

  constructor(print: (text: string) => void) {
    this.#print = print;
  }

  take({ seed, violation, faults, calls, counts }: Outcome): void {
    this.#done += 1;
    add(this.#faults, faults);
    add(this.#calls, calls);
    add(this.#counts, counts);
    if (violation !== undefined) this.#takeBroken(seed, violation);
    if (this.#done % PROGRESS_SEEDS === 0) this.#print(`${this.#done} seeds done, ${this.#broken.length} broken`);
  }

  #takeBroken(seed: number, violation: string): void {
    this.#broken.push(seed);
    if (this.#broken.length > SHOWN_MAX) return;
    this.#print(`seed ${seed}: ${violation}`);
    this.#print(`    again: npm run test:faults -- --from ${seed} --seeds 1 --verbose\n`);
  }

  /** Prints a row for each call and a column for each fault. A dot stands for a fault that the call cannot meet. */
  printTable(): void {
    const faults = [...new Set(PAIRS.map((pair) => pair.split(' × ')[1] ?? ''))];
    const calls = [...new Set(PAIRS.map((pair) => pair.split(' × ')[0] ?? ''))];
    faults.forEach((fault, index) => {
      this.#print(`  ${String(index + 1).padStart(2)} ${fault}`);
    });
    const numbers = faults.map((_, index) => String(index + 1).padStart(5));
    this.#print(['call'.padEnd(15), 'calls'.padStart(8), ...numbers].join(''));
    for (const call of calls) {
      const cells = faults.map((fault) => {
        const pair = `${call} × ${fault}`;
        return (PAIRS.includes(pair) ? String(this.#faults[pair] ?? 0) : '.').padStart(5);
      });
      this.#print([call.padEnd(15), String(this.#calls[call] ?? 0).padStart(8), ...cells].join(''));
    }
    this.#print('');
  }

  /** Prints the pairs of a call and a fault that never occurred. */
  printPairs(): void {
    const missing = this.#missingPairs;
    if (missing.length === 0) return;
    const names = missing.length <= PAIRS_NAMED_MAX ? `: ${missing.join(', ')}` : '';
    this.#print(`${missing.length} of ${PAIRS.length} pairs never occurred${names}\n`);
  }

  /** Prints the number of invocations and the sums of all metrics. */
  printCounts(): void {
    const { invocations, kills } = this.#counts;
    const metrics = Object.entries(this.#counts).filter(([name]) => /^[A-Z]/.test(name));
    const sums = metrics.map(([name, count]) => `${name} ${count}`).join(', ');
    this.#print(`${invocations} invocations, ${kills} of them killed; ${sums}`);
  }

  printTimes({ from, threads, seconds }: { from: number; threads: number; seconds: number }): void {
    const done = this.#done;
    const seeds = `${done} seeds from ${from} in ${seconds.toFixed(1)} s`;
    const pace = `${(done / seconds).toFixed(1)} a second on ${threads} threads`;
    const each = `${((seconds * 1000 * threads) / done).toFixed(0)} ms each`;
    const residentMiB = process.resourceUsage().maxRSS / 1024;
    this.#print(`${seeds}: ${pace}, ${each}; memory at most ${residentMiB.toFixed(0)} MiB`);
  }

  /** Prints the result. Returns whether it is good. */
  printResult(): boolean {
    const broken = this.#broken;
    const missing = this.#done >= SEEDS_FOR_ALL_PAIRS ? this.#missingPairs : [];
    if (broken.length === 0 && missing.length === 0) {
      this.#print(`GOOD: all invariants held in ${this.#done} seeds.`);
      return true;
    }
    const listed = broken.length === 0 ? '' : ` (${broken.slice(0, LISTED_MAX).join(', ')})`;
    const pairs = missing.length === 0 ? '' : `; ${missing.length} pairs never occurred`;
    this.#print(`BAD: ${broken.length} of ${this.#done} seeds broke an invariant${listed}${pairs}.`);
    return false;
  }

  get #missingPairs(): readonly string[] {
    return PAIRS.filter((pair) => this.#faults[pair] === undefined);
  }
}
