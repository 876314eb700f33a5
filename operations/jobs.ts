import { counted } from '../functions/base/printable.ts';
import { sizeFailure } from '../functions/create-flow/admission.ts';
import type { Settings } from '../functions/settings/environment.ts';
import { ambiguousWords, type Job, nearWords } from '../functions/uploads/job.ts';
import { byConfusable, comparable, inputKey, JOB_FILE } from '../functions/uploads/job-keys.ts';
import type { Route } from '../functions/uploads/route.ts';
import type { Diagnosis } from './checks.ts';
import type { Explanation, JobInputView } from './explanation.ts';

/** The files that are there for a job, by their names. */
interface JobFiles {
  /** The size of a file. Undefined if it is not there. */
  readonly bytesOf: (name: string) => Promise<number | undefined>;
  /** The names of the files in the folder of that file, at least. */
  readonly namesBeside: (name: string) => Promise<readonly string[]>;
}

/**
 * What a job would be sent with, and what it lacks.
 * @internal
 */
export async function jobInputs(
  { inputs }: Job,
  { key, input: as }: { readonly key: string } & Pick<Route, 'input'>,
  settings: Pick<Settings, 'inputBytesMax' | 'textBytesMax'>,
  { bytesOf, namesBeside }: JobFiles,
): Promise<readonly JobInputView[]> {
  return Promise.all(
    inputs.map(async (input) => {
      if ('text' in input) {
        const bytes = Buffer.byteLength(input.text);
        const issue = sizeFailure(settings, 'The text', bytes, 'text')?.message;
        return { text: input.text, isOptional: false, bytes, issue };
      }
      const bytes = await bytesOf(input.name);
      const issue =
        bytes !== undefined
          ? sizeFailure(settings, 'The file', bytes, as)?.message
          : input.isOptional
            ? undefined // The job is sent without it.
            : whyLacking(input.name, await namesBeside(input.name));
      return { key: inputKey(key, input.name), isOptional: input.isOptional, bytes, issue };
    }),
  );
}

/** The inputs without which a job does not begin, and that are not there. */
export const missingOf = (inputs: readonly JobInputView[]): readonly JobInputView[] =>
  inputs.filter(({ bytes, isOptional }) => bytes === undefined && !isOptional);

/** What an explanation says of a job, as checks. */
export function diagnosisOfJob({ key, job, issue, routes }: Explanation): Diagnosis {
  const takes = routes.some(({ takesIt }) => takesIt);
  const missing = missingOf(job?.inputs ?? []);
  const unfit =
    job?.inputs.flatMap(({ key, bytes, issue }) =>
      issue === undefined || bytes === undefined ? [] : `${key ?? 'a text'}: ${issue}`,
    ) ?? [];
  const hints = missing.flatMap(({ issue }) => issue ?? []);
  const notRead = { result: 'not checked', what: 'the job file cannot be used' } as const;
  return {
    deployment: key,
    checks: [
      takes
        ? { check: 'route', result: 'good' }
        : {
            ...({ check: 'route', result: 'fault' } as const),
            what: `No route with "jobs" takes ${key}.`,
            todo: `Put the folder of the ${JOB_FILE} below the prefix of such a route.`,
          },
      job === undefined
        ? {
            ...({ check: 'job file', result: 'fault' } as const),
            what: linesOfInvalidJob(issue ?? 'It is no job.').join('\n'),
            todo: `Correct the ${JOB_FILE}.`,
          }
        : { check: 'job file', result: 'good' },
      job === undefined
        ? { check: 'inputs', ...notRead }
        : missing.length === 0
          ? { check: 'inputs', result: 'good' }
          : {
              ...({ check: 'inputs', result: 'warning' } as const),
              what: [`Not there: ${missing.map(({ key }) => key).join(', ')}.`, ...hints].join(' '),
              todo: `The job waits for them for ${counted(job.deadlineSeconds, 'second')}, and then fails.`,
            },
      job === undefined
        ? { check: 'sizes', ...notRead }
        : unfit.length === 0
          ? { check: 'sizes', result: 'good' }
          : {
              check: 'sizes',
              result: 'fault',
              what: unfit.join('\n'),
              todo: 'Put smaller files, or raise the setting.',
            },
    ],
  };
}

/**
 * Says why a job lacks a file although others are there whose names are like its name. Undefined if none is.
 * @param files the names of the other files.
 */
export function whyLacking(name: string, files: readonly string[]): string | undefined {
  const fitting = files.filter((file) => comparable(file) === comparable(name));
  return fitting.length > 1 ? ambiguousWords(name, fitting) : nearWords(name, byConfusable(files));
}

/** Matches what stands in place of the issues that are not told. */
const MORE = /^and [\d,]+ more$/;

/** The message of an {@link InvalidJobError} in lines: what is wrong, and then each issue, indented. */
export function linesOfInvalidJob(message: string): readonly string[] {
  const [head = '', ...rest] = message.split(/(?<=cannot be used:) (?=\(1\) )/);
  if (rest.length === 0) return [message];
  const lines = [head];
  for (const part of rest.join(' ').split('; ')) {
    if (part.startsWith(`(${lines.length}) `) || MORE.test(part)) lines.push(`  ${part}`);
    else lines[lines.length - 1] += `; ${part}`;
  }
  return lines;
}
