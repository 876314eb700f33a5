import { readFile, stat } from 'node:fs/promises';
import { type Entry, isAwaited } from '../functions/ledger/entry.ts';
import { UploadDeniedError, UploadGoneError, UploadUnreadableError } from '../functions/uploads/inbox.ts';
import {
  awaitedInputs,
  InvalidJobError,
  JOB_BYTES_MAX,
  type Job,
  parseJob,
  readJob,
} from '../functions/uploads/job.ts';
import { folderOf, inputKey, inputName, isJobFile, JOB_FILE } from '../functions/uploads/job-keys.ts';
import { jobFilesFor } from '../functions/uploads/job-routes.ts';
import { type JobsRoute, jobsRouteOf } from '../functions/uploads/routes.ts';
import type { Deployment } from './deployment.ts';
import { withPrefix } from './find.ts';
import { readEntry } from './listing.ts';

/** Job files that cannot be used, or that have no place in the inbox. Nothing may be uploaded then. */
export class JobFilesError extends Error {
  override readonly name = 'JobFilesError';
}

/** What the planning of jobs needs of the settings. */
export type JobSettings = Pick<Deployment['settings'], 'routes' | 'inboxPrefix'>;

/** What the planning of jobs needs to know of the inbox. */
export interface InboxLook {
  has(key: string): Promise<boolean>;
  /** The jobs of the inbox that name this file. */
  jobsNaming(key: string, route: JobsRoute): Promise<readonly NamingJob[]>;
}

/** A job file of the inbox that names a file as an input. */
export interface NamingJob {
  readonly key: string;
  /** True if it would begin when the file comes and no other input is missing. */
  readonly waits: boolean;
}

/** An inbox that nothing was put into. */
export const EMPTY_INBOX: InboxLook = {
  has: async () => false,
  jobsNaming: async () => [],
};

/** A file that would be uploaded. */
export type FilePlan<F> = F & {
  /** Keys of the jobs that name it as an input. Undefined if it is an upload of its own. */
  readonly inputOf?: readonly string[];
};

/** What would be uploaded. */
export interface JobsPlan<F> {
  /** In this order: the inputs of a job come before its job file, so that the job need not wait. */
  readonly files: readonly FilePlan<F>[];
  /** Files that no job names, below the prefix of a route for jobs. */
  readonly left: readonly { readonly key: string; readonly why: string }[];
  /** Jobs with inputs that are neither among the files nor in the inbox. */
  readonly incomplete: readonly {
    readonly key: string;
    readonly missing: readonly string[];
    /** When the job fails, if it is put now. Milliseconds since the epoch. */
    readonly deadline: number;
  }[];
  /** Jobs of the inbox that may begin with these files. */
  readonly begins: readonly string[];
}

/**
 * Gives files with a job file their place: its folder goes below the prefix of the only route for jobs, unless it is
 * below one already.
 * @throws {JobFilesError} several routes are for jobs, or a job file has no folder.
 */
export function placed<F extends { readonly key: string }>(files: readonly F[], settings: JobSettings): readonly F[] {
  const prefixes = settings.routes.flatMap(({ jobs }) => jobs ?? []);
  const [prefix] = prefixes;
  const isBelow = (key: string): boolean => jobsRouteOf(settings.routes, withPrefix(key, { settings })) !== undefined;
  const folders = files.filter(({ key }) => isJobFile(key) && !isBelow(key)).map(({ key }) => folderOf(key));
  const [folder] = folders;
  if (prefix === undefined || folder === undefined) return files;
  if (folders.includes('')) {
    throw new JobFilesError(`A ${JOB_FILE} makes a job of its folder. Name the folder, and not the ${JOB_FILE}`);
  }
  if (prefixes.length > 1) {
    throw new JobFilesError(
      `The folder ${folder} holds a ${JOB_FILE}, and jobs may be below ${prefixes.join(' or ')}. ` +
        `Put it into a folder with one of these names, and name that folder`,
    );
  }
  // A key need not name the prefix of the inbox.
  const { inboxPrefix } = settings;
  const place = prefix.startsWith(inboxPrefix) ? prefix.slice(inboxPrefix.length) : prefix;
  return files.map((file) =>
    folders.some((each) => file.key.startsWith(each)) && !isBelow(file.key)
      ? { ...file, key: `${place}${file.key}` }
      : file,
  );
}

/**
 * Reads the job files among files that have their place, and tells which files are inputs of which job.
 * @throws {JobFilesError} names all that is wrong with all job files.
 */
export async function planJobs<F extends { readonly key: string; readonly path: string }>(
  files: readonly F[],
  settings: JobSettings,
  { inbox, now }: { readonly inbox: InboxLook; readonly now: number },
): Promise<JobsPlan<F>> {
  const jobs = await readJobs(files, settings);
  const inputs: FilePlan<F>[] = [];
  const jobFiles: FilePlan<F>[] = [];
  const left: { key: string; why: string }[] = [];
  const begins = new Set<string>();
  for (const file of files) {
    const key = withPrefix(file.key, { settings });
    const route = jobsRouteOf(settings.routes, key);
    if (route === undefined) inputs.push(file);
    else if (isJobFile(key)) jobFiles.push(file);
    else {
      const here = jobFilesFor(key, route.jobs).filter((jobKey) => isNamed(key, jobKey, jobs.get(jobKey)?.job));
      const there = (await inbox.jobsNaming(key, route)).filter((each) => !jobs.has(each.key));
      const inputOf = [...here, ...there.map((each) => each.key)];
      if (inputOf.length > 0) inputs.push({ ...file, inputOf });
      else left.push({ key: file.key, why: `no ${JOB_FILE} names it, and below ${route.jobs} only jobs are sent` });
      for (const each of there) if (each.waits) begins.add(each.key);
    }
  }
  const keys = new Set(files.map(({ key }) => withPrefix(key, { settings })));
  const incomplete = [];
  for (const [key, { job, route }] of jobs) {
    const missing: string[] = [];
    for (const input of job.inputs) {
      if (!('name' in input) || input.isOptional || keys.has(inputKey(key, input.name))) continue;
      if (!(await inbox.has(inputKey(key, input.name)))) missing.push(input.name);
    }
    const { deadlineSeconds = route.deadlineSeconds } = job;
    const { deadline } = awaitedInputs({ ...job, deadlineSeconds }, now);
    if (missing.length > 0) incomplete.push({ key, missing, deadline });
  }
  return { files: [...inputs, ...jobFiles], left, incomplete, begins: [...begins] };
}

/** The jobs among files, by their keys. @throws {JobFilesError} */
async function readJobs(
  files: readonly { readonly key: string; readonly path: string }[],
  settings: JobSettings,
): Promise<ReadonlyMap<string, { readonly job: Job; readonly route: JobsRoute }>> {
  const jobs = new Map<string, { job: Job; route: JobsRoute }>();
  const issues: string[] = [];
  for (const file of files) {
    const key = withPrefix(file.key, { settings });
    const route = jobsRouteOf(settings.routes, key);
    if (route === undefined || !isJobFile(key)) continue;
    try {
      jobs.set(key, { job: await jobAt(file.path, key), route });
    } catch (error) {
      if (!(error instanceof InvalidJobError)) throw error;
      issues.push(`${folderOf(key)}${error.message}`);
    }
  }
  if (issues.length > 0) throw new JobFilesError(issues.join('\n'));
  return jobs;
}

/** @throws {InvalidJobError} */
async function jobAt(path: string, key: string): Promise<Job> {
  const { size } = await stat(path);
  if (size > JOB_BYTES_MAX) {
    throw new InvalidJobError(`${JOB_FILE} has ${size} bytes, and at most ${JOB_BYTES_MAX} are read.`);
  }
  return parseJob(await readFile(path), key);
}

const isNamed = (key: string, jobKey: string, job: Job | undefined): boolean => {
  const name = inputName(jobKey, key);
  return job?.inputs.some((input) => 'name' in input && input.name === name) === true;
};

/** The inbox of a deployment. */
export const inboxOf = (deployment: Deployment, signal: AbortSignal): InboxLook => ({
  has: async (key) => (await deployment.inbox.current(deployment.settings.inboxBucket, key, signal)) !== undefined,
  jobsNaming: async (key, route) =>
    (await jobsNaming(key, route, deployment, signal)).naming.map(({ key: job, entry }) => ({
      key: job,
      waits: entry === undefined || isAwaited(entry, key),
    })),
});

/** Why a job file of the inbox does not tell which files it names. */
const UNREADABLE = [InvalidJobError, UploadDeniedError, UploadUnreadableError];

/** The route whose jobs alone can send the file with this key. Undefined if it is an upload of its own. */
export const inputRouteOf = (key: string, { routes }: Pick<JobSettings, 'routes'>): JobsRoute | undefined =>
  isJobFile(key) ? undefined : jobsRouteOf(routes, key);

/** What the job files of the inbox say of a file. */
export interface JobsAround {
  readonly naming: readonly { readonly id: string; readonly key: string; readonly entry: Entry | undefined }[];
  /** Keys of the job files that could name it, and cannot be read. */
  readonly unreadable: readonly string[];
}

/** Looks at the job files in the folder of a file and in those above it, as they are in the inbox now. */
export async function jobsNaming(
  key: string,
  { jobs }: JobsRoute,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<JobsAround> {
  const { inbox, settings } = deployment;
  const naming: { id: string; key: string; entry: Entry | undefined }[] = [];
  const unreadable: string[] = [];
  for (const jobKey of jobFilesFor(key, jobs)) {
    const current = await inbox.current(settings.inboxBucket, jobKey, signal);
    if (current === undefined) continue;
    try {
      const opened = await inbox.open(current, signal);
      try {
        if (!isNamed(key, jobKey, await readJob(opened, signal))) continue;
      } finally {
        opened.discard();
      }
      const { entry } = await readEntry(current.id, deployment, signal);
      naming.push({ id: current.id, key: jobKey, entry });
    } catch (error) {
      if (error instanceof UploadGoneError) continue;
      if (!UNREADABLE.some((kind) => error instanceof kind)) throw error;
      unreadable.push(jobKey);
    }
  }
  return { naming, unreadable };
}
