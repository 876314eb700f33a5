import * as z from 'zod/mini';
import type { Json, JsonObject } from '../base/json.ts';
import { quotedInAscii, shorten, toldIssues } from '../base/printable.ts';
import { boundedList, check, compareMembers, matching, strictObject } from '../base/validation.ts';
import { KEY_BYTES_MAX } from '../s3/limits.ts';
import { confusable, inputKey, JOB_DEPTH_MAX, JOB_FILE } from './job-keys.ts';
import type { OpenedUpload } from './opened-upload.ts';
import type { Route } from './route.ts';
import { additionalSchema, deadlineSecondsSchema, HALF_CHARACTER, jsonSchema } from './routes.ts';
import { UploadUnreadableError } from './upload-errors.ts';

/** Maximum size of a job file, in bytes. */
export const JOB_BYTES_MAX = 256 * 1024;

/** Maximum number of inputs of a job. */
export const JOB_INPUTS_MAX = 32;

/** Longest quotation of a parser's words, in characters. */
const PARSE_ERROR_CHARS_MAX = 200;

/** How long a job waits for its inputs, in seconds, if neither the job file nor the route says it. */
const DEADLINE_SECONDS_DEFAULT = 3_600;

/** One input of a job: a file in its folder, or a text that the job file holds itself. */
export type JobInput =
  | {
      /** Path of the file, from the folder of the job file. */
      readonly name: string;
      /** True if the flow begins also without the file. */
      readonly isOptional: boolean;
      readonly additional: JsonObject;
    }
  | { readonly text: string; readonly additional: JsonObject };

/** What a job file says. */
export interface Job {
  readonly inputs: readonly JobInput[];
  /** Replace those of the route, if it has `overrides`. */
  readonly parameters?: Json | undefined;
  /** How long the job waits for its inputs, in seconds. */
  readonly deadlineSeconds?: number | undefined;
}

/** A job file cannot be used. The file is at fault, so no retry will help. */
export class InvalidJobError extends Error {
  override readonly name = 'InvalidJobError';
  readonly code = 'invalid-job';
}

/** The parts of a path below the folder of the job file. None of them is empty, `.` or `..`. S3 takes no half character. */
const PART = String.raw`(?!\.{1,2}(?:\/|$))[^\/\p{Cc}\p{Cs}]+`;

const nameSchema = matching(
  `the name of a file in the folder of the ${JOB_FILE}, at most ${JOB_DEPTH_MAX} folders below it, without "." and "..", ` +
    `and no ${JOB_FILE}`,
  new RegExp(`^(?!(?:.*\\/)?job\\.json$)${PART}(?:\\/${PART}){0,${JOB_DEPTH_MAX}}$`, 'u'),
);

const TEXT_ERROR = 'expected a text that is not empty';

const inputSchema = strictObject({
  /** Path of a file, from the folder of the job file. Either this or `text`. */
  name: z.optional(nameSchema),
  /** A text that is the input itself. */
  text: z.optional(
    z.string({ error: TEXT_ERROR }).check(
      z.minLength(1, { error: TEXT_ERROR }),
      z.refine((text) => text.isWellFormed(), { error: HALF_CHARACTER }),
    ),
  ),
  /** True if the flow begins also without the file. */
  optional: z.optional(z.boolean({ error: 'expected true or false' })),
  /** What the service gets with the input. */
  additional: z.optional(additionalSchema),
}).check(
  z.refine(({ name, text }) => (name === undefined) !== (text === undefined), {
    error: 'expected either "name" or "text"',
  }),
  z.refine(({ text, optional }) => text === undefined || optional === undefined, {
    error: 'expected "optional" only beside "name"',
  }),
);

const inputsSchema = boundedList(
  z.union([nameSchema, inputSchema], { error: 'expected the name of a file, or an object with "name" or "text"' }),
  'inputs',
  JOB_INPUTS_MAX,
);

/**
 * The form of a job file.
 * @internal
 */
export const jobSchema = strictObject({
  /** Address of this schema, for editors. */
  $schema: z.optional(z.string({ error: 'expected the address of a JSON schema' })),
  /** What the flow gets, in this order: the names of files, texts, and files with more about them. */
  inputs: inputsSchema,
  /** Replace those of the route. The route must have `"overrides": true`. */
  parameters: z.optional(jsonSchema),
  /** How long the job waits for its inputs, in seconds. Default: as long as its route says. */
  deadlineSeconds: z.optional(deadlineSecondsSchema),
}).check(
  compareMembers(({ inputs }, isSound, refuse) => {
    if (!isSound('inputs')) return;
    const names = inputs.map((input) => (typeof input === 'string' ? input : input.name));
    for (const [index, name] of names.entries()) {
      const first = names.indexOf(name);
      if (name === undefined || first === index) continue;
      refuse(['inputs', index], `expected a name that inputs[${first}] does not have already`, { input: name });
    }
    if (inputs.every((input) => typeof input === 'object' && input.optional === true)) {
      refuse(['inputs'], 'expected at least one input that is not optional');
    }
  }),
);

/** What a job file may say depends on this part of its route. */
export type JobRules = Pick<Route, 'name' | 'overrides'>;

/**
 * Reads a job file.
 * @param key of the job file. Its inputs are in the same folder.
 * @param route that takes the job. Undefined if its parameters are pinned already, or if the route is unknown.
 * @throws {InvalidJobError} names all that is wrong, with its path and value.
 */
export function parseJob(content: Uint8Array, key: string, route: JobRules | undefined): Job {
  if (content.byteLength > JOB_BYTES_MAX) throw tooLarge(content.byteLength);
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(content));
  } catch (cause) {
    throw new InvalidJobError(
      `${JOB_FILE} is not JSON in UTF-8: ${shorten((cause as Error).message, PARSE_ERROR_CHARS_MAX)}`,
      { cause },
    );
  }
  const { data, issues } = check(jobSchema, value, '');
  const all = [
    ...issues,
    ...issuesOfRules(value, route),
    ...(data === undefined ? [] : issuesOfKeys(data.inputs, key)),
  ];
  if (data === undefined || all.length > 0) throw new InvalidJobError(`${JOB_FILE} cannot be used: ${numbered(all)}`);
  const { parameters, deadlineSeconds } = data;
  return { inputs: data.inputs.map(inputOf), parameters, deadlineSeconds };
}

/** Many issues as one text. Their numbers tell where each begins, because a value may hold a semicolon. */
const numbered = (issues: readonly string[]): string =>
  issues.length === 1 ? `${issues[0]}` : toldIssues(issues.map((issue, index) => `(${index + 1}) ${issue}`)).join('; ');

/** What is wrong with a job file of this size. */
export const tooLarge = (bytes: number): InvalidJobError =>
  new InvalidJobError(`${JOB_FILE} has ${bytes} bytes, and at most ${JOB_BYTES_MAX} are read.`);

/** As for metadata: otherwise every uploader would choose which flows are paid for. */
function issuesOfRules(value: unknown, route: JobRules | undefined): readonly string[] {
  if (route === undefined || route.overrides === true) return [];
  if (typeof value !== 'object' || value === null || !('parameters' in value)) return [];
  return [`parameters: expected none, because the route ${route.name} does not have "overrides": true`];
}

const issuesOfKeys = (inputs: z.infer<typeof inputsSchema>, key: string): readonly string[] =>
  inputs.flatMap((input, index) => {
    const name = typeof input === 'string' ? input : (input.name ?? '');
    const bytes = Buffer.byteLength(inputKey(key, name));
    const expected = `expected a name that makes a key of at most ${KEY_BYTES_MAX} bytes`;
    return bytes <= KEY_BYTES_MAX ? [] : [`inputs[${index}]: ${expected}, got one of ${bytes}`];
  });

function inputOf(input: z.infer<typeof inputsSchema>[number]): JobInput {
  if (typeof input === 'string') return { name: input, isOptional: false, additional: {} };
  const { name = '', text, optional = false, additional = {} } = input;
  return text === undefined ? { name, isOptional: optional, additional } : { text, additional };
}

/**
 * Reads the job file of an opened upload.
 * @param route as for {@link parseJob}.
 * @throws {InvalidJobError} @throws any error of S3.
 */
export async function readJob(
  { upload, inputs: [own] }: OpenedUpload,
  route: JobRules | undefined,
  signal: AbortSignal,
): Promise<Job> {
  if (upload.bytes > JOB_BYTES_MAX) throw tooLarge(upload.bytes);
  const chunks: Uint8Array[] = [];
  for await (const chunk of (await own?.source.open(signal)) ?? []) chunks.push(Uint8Array.from(chunk));
  const bytes = Buffer.concat(chunks);
  if (bytes.byteLength < upload.bytes) throw new UploadUnreadableError(`${upload.key} could not be read to its end`);
  return parseJob(bytes, upload.key, route);
}

/** How long a job waits for its inputs, in seconds. */
export const deadlineSecondsOf = ({
  deadlineSeconds = DEADLINE_SECONDS_DEFAULT,
}: Pick<Job, 'deadlineSeconds'>): number => deadlineSeconds;

/**
 * What a job waits for before it has looked for its inputs.
 * @param arrivedAt when its job file came, or its retry. The deadline counts from then.
 */
export const awaitedInputs = (
  job: Job,
  arrivedAt: number,
): { readonly deadline: number; readonly missing: readonly string[] } => ({
  deadline: arrivedAt + 1000 * deadlineSecondsOf(job),
  missing: [],
});

/** Longest quotation of a name that several files fit, in characters. */
const NAME_CHARS_MAX = 200;

/** Says which files fit one name of a job, so that none of them is taken. */
export function ambiguousWords(name: string, fitting: readonly string[]): string {
  const each = fitting.map((file) => quotedInAscii(file, NAME_CHARS_MAX)).join(' and ');
  return `${JOB_FILE} names ${quotedInAscii(name, NAME_CHARS_MAX)}, and ${each} fit. Name one of them exactly as it is.`;
}

/**
 * Says which file is easily taken for one that a job names and that is not there. Undefined if none is.
 * @param files by what their names are easily taken for.
 */
export function nearWords(name: string, files: ReadonlyMap<string, string>): string | undefined {
  const near = files.get(confusable(name));
  return near && `${shorten(near)} is there; the job names ${shorten(name)}.`;
}
