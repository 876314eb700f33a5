import { registerHooks } from 'node:module';
import { parentPort, workerData } from 'node:worker_threads';
import type { Catch } from './find-mutations.ts';
import type { Mutation } from './mutations.ts';
import { FUNCTIONS, planted } from './plant.ts';

/*
 * A thread that plants a mutation in the functions while they are loaded, and then simulates one seed after another
 * until the mutation is found. The files on disk stay as they are.
 */

const { mutation, from } = workerData as { readonly mutation: Mutation; readonly from: number };
const files = new Set(mutation.changes.map(({ file }) => file));
const loadedFiles = new Set<string>();

registerHooks({
  load(url, context, nextLoad) {
    const loaded = nextLoad(url, context);
    const file = url.startsWith(FUNCTIONS.href) ? url.slice(FUNCTIONS.href.length) : '';
    if (!files.has(file)) return loaded;
    loadedFiles.add(file);
    return { ...loaded, source: planted(mutation, file, Buffer.from(loaded.source as Uint8Array).toString()) };
  },
});

const { simulate } = await import('./simulation.ts');
for (const file of files) {
  if (!loadedFiles.has(file)) throw new Error(`The mutation "${mutation.name}" changes ${file}, which was not loaded`);
}
let found: Catch | undefined;
for (let seeds = 1; seeds <= mutation.seedsMax && found === undefined; seeds += 1) {
  const seed = from + seeds - 1;
  const { violation } = await simulate(seed);
  if (violation !== undefined) found = { seeds, seed, violation };
}
parentPort?.postMessage(found);
