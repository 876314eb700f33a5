import { parentPort } from 'node:worker_threads';
import { simulate } from './simulation.ts';

/** Simulates the seeds that this thread is sent, one after another. */
parentPort?.on('message', (seed: number) => {
  void simulate(seed).then((outcome) => parentPort?.postMessage(outcome));
});
