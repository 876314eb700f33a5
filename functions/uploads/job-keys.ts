/** Name of the file that makes its folder a job, below the prefix of a jobs route. */
export const JOB_FILE = 'job.json';

/** Maximum number of folders between a job file and an input. Each of them costs a request when an input arrives. */
export const JOB_DEPTH_MAX = 8;

/** The folder of a key, with a slash at its end. Empty for a key without a folder. */
export const folderOf = (key: string): string => key.slice(0, key.lastIndexOf('/') + 1);

/** Tells whether a key has the name of a job file. Its prefix decides whether it is one. */
export const isJobFile = (key: string): boolean => key.slice(folderOf(key).length) === JOB_FILE;

/** The name of a file as an input of a job. Undefined if the file is not in the folder of the job. */
export function inputName(jobKey: string, key: string): string | undefined {
  const folder = folderOf(jobKey);
  return key !== jobKey && key.startsWith(folder) ? key.slice(folder.length) : undefined;
}

/** The key of an input of a job. */
export const inputKey = (jobKey: string, name: string): string => folderOf(jobKey) + name;
