import { folderOf, JOB_DEPTH_MAX, JOB_FILE } from './job-keys.ts';
import type { Route, RouteIssue } from './route.ts';
import { matchesKey } from './route-conditions.ts';

/** What a route for jobs must not say. Its prefix and the name of the job file are its only conditions. */
const NOT_FOR_JOBS = ['after', 'prefixes', 'suffixes', 'mediaTypes', 'settleSeconds'] as const;

/** Names what is wrong with the routes for jobs. */
export function issuesOfJobs(routes: readonly Route[]): readonly RouteIssue[] {
  return routes.flatMap((route, index): RouteIssue[] => {
    const { jobs } = route;
    if (jobs === undefined) {
      if (route.deadlineSeconds === undefined) return [];
      return [{ index, member: 'deadlineSeconds', message: 'expected it only beside "jobs", the prefix of jobs' }];
    }
    const misplaced = NOT_FOR_JOBS.filter((member) => route[member] !== undefined).map((member): RouteIssue => {
      const why = member === 'settleSeconds' ? 'waits for its inputs, and is put after them' : 'names its inputs';
      return { index, member, message: `expected it only without "jobs": a job ${why}` };
    });
    if (route.afterSuccess !== undefined) {
      const message = 'expected it only without "jobs": another job may name the same inputs';
      misplaced.push({ index, member: 'afterSuccess', message });
    }
    const other = routes.findIndex((each, at) => at < index && each.jobs !== undefined && overlap(each.jobs, jobs));
    if (other === -1) return misplaced;
    const message = `expected a prefix that has no key in common with that of routes[${other}]`;
    return [...misplaced, { index, member: 'jobs', message }];
  });
}

const overlap = (one: string, other: string): boolean =>
  matchesKey({ prefixes: [one] }, other) || matchesKey({ prefixes: [other] }, one);

/**
 * The keys of the job files that may name this file as an input: in its own folder, and in those above it.
 * @param jobs the prefix that the route of these jobs owns.
 */
export function jobFilesFor(key: string, jobs: string): readonly string[] {
  const files: string[] = [];
  let folder = folderOf(key);
  while (matchesKey({ prefixes: [jobs] }, folder) && files.length <= JOB_DEPTH_MAX) {
    files.push(folder + JOB_FILE);
    folder = folderOf(folder.slice(0, -1));
  }
  return files;
}
