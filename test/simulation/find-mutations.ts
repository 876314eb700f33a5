import { Worker } from 'node:worker_threads';
import pMap from 'p-map';
import { MUTATIONS, type Mutation } from './mutations.ts';

/** How a mutation was found. */
export interface Catch {
  readonly seeds: number;
  readonly seed: number;
  readonly violation: string;
}

/** Simulates with a mutation, in a thread of its own. Returns undefined if no seed finds it. */
export function find(mutation: Mutation, from = 1): Promise<Catch | undefined> {
  const worker = new Worker(new URL('./mutant.ts', import.meta.url), { workerData: { mutation, from } });
  return new Promise((resolve, reject) => {
    worker.once('message', resolve);
    worker.once('error', reject);
  });
}

/** Searches for all mutations, `jobs` at a time. Returns whether all were found. */
export async function findAll(
  from: number,
  jobs: number,
  onFound: (mutation: Mutation, found: Catch | undefined) => void,
): Promise<boolean> {
  const search = async (mutation: Mutation): Promise<boolean> => {
    const found = await find(mutation, from);
    onFound(mutation, found);
    return found !== undefined;
  };
  return (await pMap(MUTATIONS, search, { concurrency: Math.max(1, jobs) })).every(Boolean);
}
