import { registerHooks } from 'node:module';
import { parentPort, workerData } from 'node:worker_threads';
import type { Mutation } from './mutations.ts';

/*
 * A thread in which the functions are changed as they are loaded, and which simulates one seed after another until the
 * change is found out. The sources on disk stay as they are.
 */

const { mutation, from } = workerData as { readonly mutation: Mutation; readonly from: number };
const functions = new URL('../../functions/', import.meta.url);
const applied = new Set<string>();

registerHooks({
  load(url, context, nextLoad) {
    const loaded = nextLoad(url, context);
    const changes = mutation.changes.filter(({ file }) => url === new URL(file, functions).href);
    if (changes.length === 0) return loaded;
    let source = Buffer.from(loaded.source as Uint8Array).toString();
    for (const { file, from, to } of changes) {
      const parts = source.split(from);
      if (parts.length !== 2) {
        throw new Error(`${mutation.name}: expected the text once in ${file}, found it ${parts.length - 1} times`);
      }
      source = parts.join(to);
      applied.add(file);
    }
    return { ...loaded, source };
  },
});

const { simulate } = await import('./simulation.ts');
if (applied.size === 0) throw new Error(`${mutation.name}: none of its files was loaded`);
let caught: { readonly seeds: number; readonly seed: number; readonly violation: string } | undefined;
for (let seeds = 1; seeds <= mutation.seedsMax && caught === undefined; seeds += 1) {
  const seed = from + seeds - 1;
  const { violation } = await simulate(seed);
  if (violation !== undefined) caught = { seeds, seed, violation };
}
parentPort?.postMessage(caught);
