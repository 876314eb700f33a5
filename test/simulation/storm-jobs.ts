import type { Route } from '../../functions/uploads/route.ts';
import type { Random } from './random.ts';
import { putStep, type Scenario, type Step } from './scenario.ts';
import { MINUTE } from './timeline.ts';

/** Share of storms that have jobs. */
const SHARE = 0.3;

/** The prefix that belongs to jobs. */
export const JOBS = 'jobs/';

/** Names of the files in the folder of a job. */
const NAMES = ['a.bin', 'b.bin', 'sub/c.bin', 'd.bin'];

/**
 * A storm in which some files are inputs of jobs: they come in every order, twice, late or never. What it draws comes
 * from random numbers of their own, so that the storms without jobs stay as they are.
 */
export function withJobs(storm: Scenario, random: Random): Scenario {
  if (!random.chance(SHARE)) return storm;
  const deadlineSeconds = random.pick([60, 300, 900]);
  const open = { overrides: true, deadlineSeconds };
  const route: Route = { name: 'jobs', jobs: JOBS, input: 'file', template: 'bytes_echo', ...open };
  // The folders of two jobs are within each other, so that a file may be an input of both.
  const folders = random.pick([['x/'], ['x/', 'x/sub/'], ['x/', 'y/']]);
  const steps = folders.flatMap((folder) => jobSteps(random, `${JOBS}${folder}`, storm.chaosMs / 2));
  return {
    ...storm,
    routes: [...storm.routes, route],
    steps: [...storm.steps, ...steps].sort((a, b) => a.at - b.at),
    chaosMs: storm.chaosMs + 2 * MINUTE,
  };
}

function jobSteps(random: Random, folder: string, spanMs: number): readonly Step[] {
  const at = () => random.int(0, random.pick([5_000, spanMs]));
  const jobs = Array.from({ length: random.pick([1, 1, 2]) }, () =>
    putStep(at(), `${folder}job.json`, jobFile(random), 'application/json'),
  );
  const files = random
    .some(NAMES, 0.85)
    .flatMap((name) =>
      Array.from({ length: random.pick([1, 1, 1, 2]) }, () =>
        putStep(at(), folder + name, random.hex(random.int(1, 60)), 'image/png'),
      ),
    );
  return [...jobs, ...files];
}

/** A job file. A few cannot be used. No two are the same, because without versions they could not be told apart. */
function jobFile(random: Random): string {
  const files = random.some(NAMES, 0.6).map((name) => ({ name, optional: random.chance(0.2) }));
  const texts = random.chance(0.3) || files.every(({ optional }) => optional) ? [{ text: `oak ${random.hex(4)}` }] : [];
  const parameters = { copies: random.pick([1, 1, 2]) };
  const deadline = random.chance(0.3) ? { deadlineSeconds: random.int(1, 600) } : {};
  const wrong = random.chance(0.05) ? { [`wrong ${random.hex(4)}`]: true } : {};
  const nonce = ' '.repeat(random.int(0, 200));
  return JSON.stringify({ inputs: [...files, ...texts], parameters, ...deadline, ...wrong }) + nonce;
}
