import { parentPort } from 'node:worker_threads';
import { simulate } from './simulation.ts';

/** A thread that runs the seeds that it is told, one after another. */
parentPort?.on('message', (seed: number) => {
  void simulate(seed).then((outcome) => parentPort?.postMessage(outcome));
});
