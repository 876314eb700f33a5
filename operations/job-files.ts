import { readFile, stat } from 'node:fs/promises';
import { toldIssues } from '../functions/base/printable.ts';
import { type Entry, isAwaited, isJob } from '../functions/ledger/entry.ts';
import { type CurrentUpload, isInside } from '../functions/uploads/inbox.ts';
import {
  awaitedInputs,
  InvalidJobError,
  JOB_BYTES_MAX,
  type Job,
  type JobInput,
  parseJob,
  readJob,
  tooLarge,
} from '../functions/uploads/job.ts';
import {
  comparable,
  filesFor,
  folderOf,
  inputKey,
  inputName,
  isJobFile,
  JOB_FILE,
} from '../functions/uploads/job-keys.ts';
import { jobFilesFor } from '../functions/uploads/job-routes.ts';
import type { JobsRoute } from '../functions/uploads/route.ts';
import { jobsRouteOf } from '../functions/uploads/routes.ts';
import { UploadDeniedError, UploadGoneError, UploadUnreadableError } from '../functions/uploads/upload-errors.ts';
import type { Deployment } from './deployment.ts';
import { withPrefix } from './find.ts';
import { linesOfInvalidJob, whyLacking } from './jobs.ts';
import { readEntry } from './listing.ts';

export { tooLarge } from '../functions/uploads/job.ts';

/** Job files that cannot be used, or that have no place in the inbox. Nothing of their folders may be uploaded then. */
export class JobFilesError extends Error {
  override readonly name = 'JobFilesError';
  readonly folders: readonly string[];

  constructor(message: string, folders: readonly string[]) {
    super(message);
    this.folders = folders;
  }
}

/** What the planning of jobs needs of the settings. */
export type JobSettings = Pick<Deployment['settings'], 'routes' | 'inboxPrefix'>;

/** What the planning of jobs needs to know of the inbox. */
export interface InboxLook {
  /** Tells whether there is a file for the key of an input of a job. */
  has(key: string, jobKey: string): Promise<boolean>;
  /** The keys of the files in the folder of a job. */
  keysBeside(jobKey: string): Promise<readonly string[]>;
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
  keysBeside: async () => [],
  jobsNaming: async () => [],
};

/** A file that would be uploaded. */
export type FilePlan<F> = F & {
  /** Keys of the jobs that name it as an input. Undefined if it is an upload of its own. */
  readonly inputOf?: readonly string[];
  /** The route of the job that it is, or that it is an input of. */
  readonly jobsRoute?: JobsRoute;
};

/** What would be uploaded. */
export interface JobsPlan<F> {
  /** In this order: the inputs of a job come before its job file, so that the job need not wait. */
  readonly files: readonly FilePlan<F>[];
  /** Files that no job names, below the prefix of a route for jobs. */
  readonly left: readonly (F & { readonly why: string })[];
  /** Job files that cannot be used. */
  readonly invalid: readonly { readonly key: string; readonly why: string }[];
  /** Jobs with inputs that are neither among the files nor in the inbox. */
  readonly incomplete: readonly {
    readonly key: string;
    readonly missing: readonly string[];
    /** A sentence for each of them that is easily taken for a file that is there. */
    readonly hints: readonly string[];
    /** When the job fails, if it is put now. Milliseconds since the epoch. */
    readonly deadline: number;
  }[];
  /** Jobs of the inbox that may begin with these files. */
  readonly begins: readonly string[];
}

/** True if the file is below the prefix of a route for jobs. */
const isBelowJobs = (key: string, settings: JobSettings): boolean =>
  jobsRouteOf(settings.routes, withPrefix(key, { settings })) !== undefined;

const prefixesOf = ({ routes }: JobSettings): readonly string[] => routes.flatMap(({ jobs }) => jobs ?? []);

/**
 * Where a file of the folder of a job is put: below the prefix of the only route for jobs.
 * @param key begins with the name of the folder, such as `chair/job.json`.
 * @returns the key itself, if it is below such a prefix already, or if there is no such route, or several.
 */
export function placeOfJob(key: string, settings: JobSettings): string {
  const [prefix, ...others] = prefixesOf(settings);
  if (prefix === undefined || others.length > 0 || isBelowJobs(key, settings)) return key;
  // A key need not name the prefix of the inbox.
  const { inboxPrefix } = settings;
  return (prefix.startsWith(inboxPrefix) ? prefix.slice(inboxPrefix.length) : prefix) + key;
}

/**
 * Gives the files in the folders of jobs their place.
 * @throws {JobFilesError} several routes are for jobs, or a job file has no folder.
 */
export function placed<F extends { readonly key: string }>(files: readonly F[], settings: JobSettings): readonly F[] {
  const prefixes = prefixesOf(settings);
  const folders = files
    .filter(({ key }) => isJobFile(key) && !isBelowJobs(key, settings))
    .map(({ key }) => folderOf(key));
  const [folder] = folders;
  if (prefixes.length === 0 || folder === undefined) return files;
  if (folders.includes('')) {
    throw new JobFilesError(
      `A ${JOB_FILE} makes a job of its folder. Name the folder, and not the ${JOB_FILE}`,
      folders,
    );
  }
  if (prefixes.length > 1) {
    throw new JobFilesError(
      `The folder ${folder} holds a ${JOB_FILE}, and jobs may be below ${prefixes.join(' or ')}. ` +
        `Put it into a folder with one of these names, and name that folder`,
      folders,
    );
  }
  return files.map((file) =>
    folders.some((each) => file.key.startsWith(each)) ? { ...file, key: placeOfJob(file.key, settings) } : file,
  );
}

/** How jobs are planned. */
export interface JobTerms<F> {
  readonly inbox: InboxLook;
  /** Milliseconds since the epoch. */
  readonly now: number;
  /** Reads a job file. May throw an {@link InvalidJobError}. */
  readonly read: (file: F) => Promise<Uint8Array>;
}

/**
 * Plans the upload of files of this machine.
 * @throws {JobFilesError} names all that is wrong with all job files.
 */
export async function planFiles<F extends { readonly key: string; readonly path: string }>(
  files: readonly F[],
  settings: JobSettings,
  terms: Omit<JobTerms<F>, 'read'>,
): Promise<JobsPlan<F>> {
  const plan = await planJobs(placed(files, settings), settings, { ...terms, read: ({ path }) => readJobFile(path) });
  if (plan.invalid.length === 0) return plan;
  throw new JobFilesError(
    toldIssues(plan.invalid.map(({ why }) => linesOfInvalidJob(why).join('\n'))).join('\n'),
    plan.invalid.map(({ key }) => folderOf(key)),
  );
}

/** Reads the job files among files that have their place, and tells which files are inputs of which job. */
export async function planJobs<F extends { readonly key: string }>(
  files: readonly F[],
  settings: JobSettings,
  { inbox, now, read }: JobTerms<F>,
): Promise<JobsPlan<F>> {
  const jobs = new Map<string, { job: Job; route: JobsRoute }>();
  const invalid: { key: string; why: string }[] = [];
  const inputs: FilePlan<F>[] = [];
  const jobFiles: FilePlan<F>[] = [];
  const left: (F & { why: string })[] = [];
  const begins = new Set<string>();
  const keyed = files.map((file) => {
    const key = withPrefix(file.key, { settings });
    return { file, key, route: jobsRouteOf(settings.routes, key) };
  });
  for (const { file, key, route } of keyed) {
    if (route === undefined || !isJobFile(key)) continue;
    try {
      jobs.set(key, { job: parseJob(await read(file), key, route), route });
    } catch (error) {
      if (!(error instanceof InvalidJobError)) throw error;
      invalid.push({ key, why: `${folderOf(key)}${error.message}` });
    }
  }
  for (const { file, key, route } of keyed) {
    if (route === undefined) inputs.push(file);
    else if (isJobFile(key)) jobFiles.push({ ...file, jobsRoute: route });
    else {
      const here = jobFilesFor(key, route.jobs).filter((jobKey) => isNamed(key, jobKey, jobs.get(jobKey)?.job));
      const there = (await inbox.jobsNaming(key, route)).filter((each) => !jobs.has(each.key));
      const inputOf = [...here, ...there.map((each) => each.key)];
      if (inputOf.length > 0) inputs.push({ ...file, inputOf, jobsRoute: route });
      else left.push({ ...file, why: `no ${JOB_FILE} names it, and below ${route.jobs} only jobs are sent` });
      for (const each of there) if (each.waits) begins.add(each.key);
    }
  }
  const keys = new Set(keyed.map(({ key }) => comparable(key)));
  const incomplete = [];
  for (const [key, { job, route }] of jobs) {
    const missing: string[] = [];
    for (const input of job.inputs) {
      if (!('name' in input) || input.isOptional || keys.has(comparable(inputKey(key, input.name)))) continue;
      if (!(await inbox.has(inputKey(key, input.name), key))) missing.push(input.name);
    }
    const { deadlineSeconds = route.deadlineSeconds } = job;
    const { deadline } = awaitedInputs({ ...job, deadlineSeconds }, now);
    if (missing.length === 0) continue;
    const there = [...keyed.map((each) => each.key), ...(await inbox.keysBeside(key))];
    const names = there.flatMap((each) => inputName(key, each) ?? []);
    incomplete.push({ key, missing, hints: missing.flatMap((name) => whyLacking(name, names) ?? []), deadline });
  }
  return { files: [...inputs, ...jobFiles], left, invalid, incomplete, begins: [...begins] };
}

/** @throws {InvalidJobError} */
async function readJobFile(path: string): Promise<Uint8Array> {
  const { size } = await stat(path);
  if (size > JOB_BYTES_MAX) throw tooLarge(size);
  return readFile(path);
}

const isNamed = (key: string, jobKey: string, job: Job | undefined): boolean => {
  const name = inputName(jobKey, key);
  const isIt = (input: JobInput) =>
    'name' in input && name !== undefined && comparable(input.name) === comparable(name);
  return job?.inputs.some(isIt) === true;
};

/** Reads the job files of a deployment by their keys, each once. Undefined if there is none. */
export function jobsOf(deployment: Deployment, signal: AbortSignal): (jobKey: string) => Promise<JobThere | undefined> {
  const known = new Map<string, Promise<JobThere | undefined>>();
  return (jobKey) => {
    const there = known.get(jobKey) ?? jobThere(jobKey, deployment, signal);
    known.set(jobKey, there);
    return there;
  };
}

/** The inbox of a deployment. */
export function inboxOf(deployment: Deployment, signal: AbortSignal): InboxLook {
  const jobAt = jobsOf(deployment, signal);
  return {
    has: async (key, jobKey) => (await inputThere(key, jobKey, deployment, signal)) !== undefined,
    keysBeside: (jobKey) => deployment.inbox.keysBeside(deployment.settings.inboxBucket, jobKey, signal),
    jobsNaming: async (key, route) => {
      const { naming } = await jobsNaming(key, route, jobAt);
      return naming.map(({ key: job, entry }) => ({ key: job, waits: entry === undefined || isAwaited(entry, key) }));
    },
  };
}

/** The file of the inbox that a job gets for the key of one of its inputs. Undefined if there is none, or no only one. */
export async function inputThere(
  key: string,
  jobKey: string,
  { inbox, settings: { inboxBucket } }: Pick<Deployment, 'inbox' | 'settings'>,
  signal: AbortSignal,
): Promise<CurrentUpload | undefined> {
  const exact = await inbox.current(inboxBucket, key, signal);
  if (exact !== undefined) return exact;
  const beside = await inbox.keysBeside(inboxBucket, jobKey, signal);
  const [only, ...others] = filesFor(
    key,
    [],
    beside.map((each) => ({ key: each })),
  );
  return only === undefined || others.length > 0 ? undefined : inbox.current(inboxBucket, only.key, signal);
}

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

/** A job file of the inbox. */
interface JobThere {
  readonly id: string;
  /** Undefined if it cannot be used or read. */
  readonly job: Job | undefined;
  readonly entry: Entry | undefined;
}

/** Looks at the job files in the folder of a file and in those above it, as they are in the inbox now. */
export async function jobsNaming(
  key: string,
  { jobs }: JobsRoute,
  jobAt: (jobKey: string) => Promise<JobThere | undefined>,
): Promise<JobsAround> {
  const naming: { id: string; key: string; entry: Entry | undefined }[] = [];
  const unreadable: string[] = [];
  for (const jobKey of jobFilesFor(key, jobs)) {
    const there = await jobAt(jobKey);
    if (there === undefined) continue;
    if (there.job === undefined) unreadable.push(jobKey);
    else if (isNamed(key, jobKey, there.job)) naming.push({ id: there.id, key: jobKey, entry: there.entry });
  }
  return { naming, unreadable };
}

/** The route whose rules hold for a job file. Undefined if the job has taken its parameters already. */
export const jobRulesOf = (entry: Entry | undefined, key: string, { routes }: Pick<JobSettings, 'routes'>) =>
  entry !== undefined && isJob(entry) ? undefined : jobsRouteOf(routes, key);

/** The job file that is at a key now. Undefined if there is none. */
async function jobThere(jobKey: string, deployment: Deployment, signal: AbortSignal): Promise<JobThere | undefined> {
  const { inbox, settings } = deployment;
  if (!isInside(settings, { bucket: settings.inboxBucket, key: jobKey })) return undefined;
  const current = await inbox.current(settings.inboxBucket, jobKey, signal);
  if (current === undefined) return undefined;
  const { id } = current;
  const { entry } = await readEntry(id, deployment, signal);
  try {
    const opened = await inbox.open(current, signal);
    try {
      return { id, entry, job: await readJob(opened, jobRulesOf(entry, jobKey, settings), signal) };
    } finally {
      opened.discard();
    }
  } catch (error) {
    if (error instanceof UploadGoneError) return undefined;
    if (UNREADABLE.some((kind) => error instanceof kind)) return { id, entry, job: undefined };
    throw error;
  }
}
