import { Worker } from 'node:worker_threads';
import { type Outcome, simulate } from './simulation.ts';

/**
 * Memory of a thread for young objects. Nearly all objects die within an event. With Node's default of 48 MiB or less,
 * many would outlive a collection and be copied.
 */
const YOUNG_GENERATION_MIB = 192;

interface Run {
  /** The first seed. */
  readonly from: number;
  readonly count: number;
  readonly threads: number;
  readonly onOutcome: (outcome: Outcome) => void;
  /** Gets a line about each event, if there is one thread. */
  readonly onTrace?: ((line: string) => void) | undefined;
}

/** Simulates `count` seeds in a row. With one thread they run in this one. */
export async function runSeeds({ from, count, threads, onOutcome, onTrace }: Run): Promise<void> {
  const end = from + count;
  if (threads === 1) {
    for (let seed = from; seed < end; seed += 1) onOutcome(await simulate(seed, onTrace));
    return;
  }
  let next = from;
  const takeNext = (): number | undefined => (next < end ? next++ : undefined);
  await Promise.all(Array.from({ length: threads }, () => runInWorker(takeNext, onOutcome)));
}

function runInWorker(takeNext: () => number | undefined, onOutcome: (outcome: Outcome) => void): Promise<void> {
  const worker = new Worker(new URL('./worker.ts', import.meta.url), {
    resourceLimits: { maxYoungGenerationSizeMb: YOUNG_GENERATION_MIB },
  });
  return new Promise((resolve, reject) => {
    const give = (): void => {
      const seed = takeNext();
      if (seed === undefined) void worker.terminate().then(() => resolve());
      else worker.postMessage(seed);
    };
    worker.on('message', (outcome: Outcome) => {
      onOutcome(outcome);
      give();
    });
    worker.on('error', reject);
    give();
  });
}
