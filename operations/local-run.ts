import { closeSync, constants, fstatSync, openSync, readFileSync, type Stats, statSync } from 'node:fs';
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

/**
 * The folder of the logs of a local run: a file for each function, which each run begins anew.
 * @internal
 */
export const localLogFolder = (directory: string): string => join(directory, LOCAL_RUN_FOLDER, 'log');

/** The permissions of everybody but the owner. */
const OTHERS_MODE = 0o077;

/** All servers of the run listen there. */
const loopbackUrl = z
  .string()
  .check(z.regex(/^http:\/\/127\.0\.0\.1:\d{1,5}(\/|$)/, 'Expected http://127.0.0.1:<port>'));

const credentials = z.object({ accessKeyId: z.string(), secretAccessKey: z.string() });

const localRunSchema = z.object({
  /** The process of the run. */
  pid: z.int().check(z.positive()),
  endpoints: z.object({ s3: loopbackUrl, sqs: loopbackUrl, lambda: loopbackUrl, events: loopbackUrl }),
  region: z.string(),
  credentials,
  /** What the user gives to clients of S3. They reach nothing else. */
  s3Credentials: credentials,
  collectFunction: z.string(),
  deadLetterQueueUrl: loopbackUrl,
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

/** A file or a server that claims to be of the local run may be another user's. The message says what to do. */
export class UntrustedRunError extends Error {
  override readonly name = 'UntrustedRunError';
}

/**
 * Reads how the local run of a working directory is reached. Its servers prove that they belong to it (`run-proof.ts`).
 * @throws {NoLocalRunError} no run watches a folder there.
 * @throws {UntrustedRunError} the file may be another user's.
 * @internal
 */
export function readLocalRun(directory: string): LocalRun {
  const folder = join(directory, LOCAL_RUN_FOLDER);
  const path = join(folder, LOCAL_RUN_FILE);
  const text = privateText(folder, path);
  const run = text === undefined ? undefined : parsed(text, path);
  if (run !== undefined && isAlive(run.pid)) return run;
  throw new NoLocalRunError(`No local run watches a folder in ${directory}. Start one there with npm start.`);
}

/** Returns undefined if there is no such file. @throws {UntrustedRunError} */
function privateText(folder: string, path: string): string | undefined {
  let file: number | undefined;
  try {
    requirePrivate(folder, statSync(folder));
    file = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    // Checks the open file, because another one can no longer take its place.
    requirePrivate(path, fstatSync(file));
    return readFileSync(file, 'utf8');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENOTDIR') return undefined;
    if (code === 'ELOOP')
      throw new UntrustedRunError(`${path} is a symbolic link. Delete it, and start npm start again.`);
    if (code === 'EACCES') throw notOwn(path, error);
    throw error;
  } finally {
    if (file !== undefined) closeSync(file);
  }
}

/** Does nothing on Windows, which has no such modes and no user ids. @throws {UntrustedRunError} */
function requirePrivate(path: string, { uid, mode }: Stats): void {
  const own = process.getuid?.();
  if (own === undefined) return;
  if (uid !== own) throw notOwn(path);
  if ((mode & OTHERS_MODE) === 0) return;
  const shown = (mode & 0o777).toString(8);
  throw new UntrustedRunError(
    `Other users of this machine can open ${path} (mode ${shown}), so it is not used. End the run and start npm start again, which closes it.`,
  );
}

const notOwn = (path: string, cause?: unknown): UntrustedRunError =>
  new UntrustedRunError(
    `${path} belongs to another user, so it is not used. Run the command as the user of npm start, or in another folder.`,
    { cause },
  );

/** @throws {UntrustedRunError} */
function parsed(text: string, path: string): LocalRun {
  let why: string;
  try {
    const { data, error } = localRunSchema.safeParse(JSON.parse(text));
    if (data !== undefined) return data;
    why = z.prettifyError(error);
  } catch (error) {
    why = (error as Error).message;
  }
  throw new UntrustedRunError(
    `${path} was not written by a run of this version. End that run and start npm start again.\n${why}`,
  );
}

/**
 * True if a process of any user has this id. A killed run leaves its id behind. 0 and negative numbers stand for groups
 * of processes.
 */
export function isAlive(pid: number): boolean {
  if (!Number.isSafeInteger(pid) || pid <= 0) return false;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
