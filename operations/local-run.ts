import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod/mini';

/**
 * The file by which a command finds the local run, in the folder `.flowdrop`. It holds credentials of this run alone,
 * so only the user of the run may read it. They reach the buckets, the queues and the collecting function of the run.
 * The token of the flow service is in none of these.
 */
export const LOCAL_RUN_FILE = 'run.json';

/** The folder of everything that local runs leave, in the working directory of `npm start`. */
export const LOCAL_RUN_FOLDER = '.flowdrop';

const localRunSchema = z.object({
  /** The process of the run. */
  pid: z.int(),
  endpoints: z.object({ s3: z.string(), sqs: z.string(), lambda: z.string() }),
  region: z.string(),
  credentials: z.object({ accessKeyId: z.string(), secretAccessKey: z.string() }),
  collectFunction: z.string(),
  deadLetterQueueUrl: z.string(),
  uploadMapping: z.string(),
});

/**
 * How a command reaches the local run: by AWS's protocols, as a deployed one.
 * @internal
 */
export type LocalRun = z.infer<typeof localRunSchema>;

/** No local run can be reached. The message says how to start one. */
export class NoLocalRunError extends Error {
  override readonly name = 'NoLocalRunError';
}

/**
 * Reads how the local run of a working directory is reached.
 * @throws {NoLocalRunError} no run watches a folder there.
 * @internal
 */
export function readLocalRun(directory: string): LocalRun {
  const path = join(directory, LOCAL_RUN_FOLDER, LOCAL_RUN_FILE);
  const run = parsed(path);
  if (run !== undefined && isAlive(run.pid)) return run;
  throw new NoLocalRunError(`No local run watches a folder in ${directory}. Start one there with npm start.`);
}

/** Undefined if there is no such file, or none of this version. */
function parsed(path: string): LocalRun | undefined {
  try {
    return localRunSchema.safeParse(JSON.parse(readFileSync(path, 'utf8'))).data;
  } catch (error) {
    const isGone = (error as NodeJS.ErrnoException).code === 'ENOENT';
    if (isGone || error instanceof SyntaxError) return undefined;
    throw error;
  }
}

/** A killed run leaves its file behind. */
function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false; // Another user's process with that number is none of ours.
  }
}
