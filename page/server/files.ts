import type { IncomingMessage } from 'node:http';
import * as z from 'zod/mini';
import { type ExpectedCosts, expectedCosts, sumOfCosts } from '../../operations/costs.ts';
import type { Deployment } from '../../operations/deployment.ts';
import { withPrefix } from '../../operations/find.ts';
import { inboxOf, JobFilesError, placed, planJobs, tooLarge } from '../../operations/job-files.ts';
import { jsonSchema, putBody } from '../../operations/put-body.ts';
import { issueOfBytes, issueOfKey, type RoutedFile, routeFile } from '../../operations/route-file.ts';
import type { PutFile, RoutedFile as RoutedAnswer } from '../api.ts';
import { invalid, notPossible, PageError } from './answers.ts';
import { jsonBody } from './json-body.ts';
import type { Call } from './router.ts';

/** Parts of a file that are under way at the same time: each takes 5 MiB of memory. */
const PARTS_AT_ONCE = 2;

const FILES_MAX = 10_000;

const routeSchema = z.object({
  files: z
    .array(
      z.object({
        key: z.string(),
        bytes: z.int().check(z.gte(0)),
        mediaType: z.optional(z.string()),
        job: z.optional(z.string()),
      }),
    )
    .check(z.maxLength(FILES_MAX)),
});

/** `POST /api/route` */
export async function routeFiles({ request, signal }: Call, deployment: Deployment): Promise<readonly RoutedAnswer[]> {
  const { files } = await jsonBody(request, routeSchema);
  const jobs = await jobAnswers(
    files.filter(({ key }) => issueOfKey(key) === undefined),
    deployment,
    signal,
  );
  return files.map((file) => {
    const wrong = issueOfKey(file.key);
    if (wrong !== undefined) return { key: file.key, reason: wrong };
    return jobs.get(file.key) ?? answerOf(routeFile(file, deployment), deployment);
  });
}

const answerOf = ({ key, route, issue }: RoutedFile, deployment: Deployment): RoutedAnswer => ({
  ...{ key, route: route?.name, template: route?.template, reason: issue },
  costs: issue === undefined ? costsOf(route?.name, key, deployment) : undefined,
});

const costsOf = (route: string | undefined, key: string, { settings }: Deployment): ExpectedCosts =>
  expectedCosts(settings.routes, [{ route, firstKey: key }]);

type AskedFile = z.infer<typeof routeSchema>['files'][number];

/** The answers for job files and for inputs of jobs, by the keys that were asked for. */
async function jobAnswers(
  files: readonly AskedFile[],
  deployment: Deployment,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, RoutedAnswer>> {
  const { settings, clock } = deployment;
  const answers = new Map<string, RoutedAnswer>();
  let inPlace: readonly (AskedFile & { readonly given: string })[];
  try {
    inPlace = placed(
      files.map((file) => ({ ...file, given: file.key })),
      settings,
    );
  } catch (error) {
    if (!(error instanceof JobFilesError)) throw error;
    for (const { key } of files) {
      if (error.folders.some((folder) => key.startsWith(folder)))
        answers.set(key, { key, reason: `${error.message}.` });
    }
    return answers;
  }
  const plan = await planJobs(inPlace, settings, {
    inbox: inboxOf(deployment, signal),
    now: clock.now(),
    read: async ({ job, bytes }) => {
      if (job === undefined) throw tooLarge(bytes);
      return Buffer.from(job);
    },
  });
  for (const { given, key, why } of plan.left) answers.set(given, { key, reason: `It is not sent: ${why}.` });
  // A job of the inbox begins with the first of these files that it names.
  const begins = new Set(plan.begins);
  for (const { given, inputOf, jobsRoute: route, ...file } of plan.files) {
    if (route === undefined) continue;
    const key = withPrefix(file.key, deployment);
    if (inputOf !== undefined) {
      const begun = inputOf.filter((job) => begins.delete(job)).map((job) => costsOf(route.name, job, deployment));
      const costs = begun.length === 0 ? undefined : sumOfCosts(begun);
      answers.set(given, { key, inputOf, costs, reason: issueOfBytes(file.bytes, route, settings) });
    } else {
      const invalid = plan.invalid.find((each) => each.key === key)?.why;
      const { missing = [], hints } = plan.incomplete.find((each) => each.key === key) ?? {};
      const { name, template } = route;
      const costs = invalid === undefined ? costsOf(name, key, deployment) : undefined;
      answers.set(given, { key, route: name, template, missing, hints, costs, reason: invalid });
    }
  }
  return answers;
}

/** `PUT /api/files/:key`: streams a file to the inbox. */
export async function putFile({ request, params, signal }: Call, deployment: Deployment): Promise<PutFile> {
  const { key = '' } = params;
  const wrong = issueOfKey(key);
  if (wrong !== undefined) throw invalid(wrong);
  const bytes = Number(request.headers['content-length'] ?? Number.NaN);
  if (Number.isNaN(bytes)) {
    throw new PageError({ status: 411, code: 'length-required' }, 'The request must say how long the file is.');
  }
  const mediaType = request.headers['content-type'];
  const overrides = {
    template: headerOf(request, 'x-flowdrop-template'),
    parameters: headerOf(request, 'x-flowdrop-parameters'),
  };
  if (overrides.parameters !== undefined) requireJson(overrides.parameters);
  if (overrides.template !== undefined || overrides.parameters !== undefined) {
    requireOverridable(routeFile({ key, bytes, mediaType }, deployment));
  }
  const put = await putBody({ key, bytes, body: request, mediaType, overrides }, deployment, {
    signal,
    partsAtOnce: PARTS_AT_ONCE,
  });
  return { id: put.id, key: put.key };
}

/** @throws {PageError} */
function requireOverridable({ key, route }: RoutedFile): void {
  if (route === undefined) throw notPossible(`No known route takes ${key}, so it cannot get other parameters.`);
  if (route.overrides === true) return;
  throw notPossible(`The route ${route.name} does not let a file replace its template or parameters.`);
}

/** @throws {PageError} */
function requireJson(text: string): void {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw invalid('The parameters are not JSON.');
  }
  const { success, error } = z.safeParse(jsonSchema, value);
  if (!success) throw invalid(`The parameters cannot be used: ${error.issues[0]?.message}.`);
}

/** A header can carry only some characters, so its value is encoded. */
function headerOf({ headers }: IncomingMessage, name: string): string | undefined {
  const value = headers[name];
  if (typeof value !== 'string') return undefined;
  try {
    return decodeURIComponent(value);
  } catch {
    throw invalid(`The header ${name} is not encoded as UTF-8.`);
  }
}
