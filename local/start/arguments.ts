import { statSync } from 'node:fs';
import { isAbsolute, relative, resolve, sep } from 'node:path';
import { parseArgs } from 'node:util';
import { issueOfBaseUrl } from '../../functions/settings/service-address.ts';

export const USAGE = `Usage: npm start                     watch ./inbox until Ctrl-C
       npm start -- FILE...          process these files and exit: 0 if all succeeded, 1 if one failed
       npm start -- OPTION...

Options:
  --inbox DIR       the folder to watch          (default: ./inbox)
  --results DIR     the folder for the results   (default: ./results)
  --service URL     use this flow service instead of the built-in stand-in;
                    set its token in the environment variable FLOWDROP_TOKEN
  --credentials     print the endpoint and the credentials of the S3 of this run,
                    for clients such as the AWS CLI, s3cmd and rclone
  --help            show this help`;

/** The arguments are invalid. The message says why. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

export interface Arguments {
  readonly help: boolean;
  /** Absolute path, as all paths here. */
  readonly inboxDir: string;
  readonly resultsDir: string;
  /** The files to process. Empty: watch the inbox folder. */
  readonly files: readonly string[];
  readonly service: { readonly url: string; readonly token: string } | undefined;
  /** Print how a client reaches the S3 of this run. */
  readonly showsCredentials: boolean;
}

/**
 * @param arguments_ the arguments after the program's name.
 * @throws {UsageError}
 */
export function parseArguments(
  arguments_: readonly string[],
  { env, cwd }: { readonly env: NodeJS.ProcessEnv; readonly cwd: string },
): Arguments {
  const { values, positionals } = parse(arguments_);
  const help = values.help === true;
  const showsCredentials = values.credentials === true;
  const inboxDir = resolve(cwd, values.inbox ?? 'inbox');
  const resultsDir = resolve(cwd, values.results ?? 'results');
  const files = positionals.map((path) => resolve(cwd, path));
  if (help) return { help, inboxDir, resultsDir, files, service: undefined, showsCredentials };

  if (files.length > 0 && values.inbox !== undefined) {
    throw new UsageError('--inbox watches a folder, so it cannot be combined with files');
  }
  if (files.length > 0 && showsCredentials) {
    throw new UsageError('--credentials is for a run that goes on, so it cannot be combined with files');
  }
  for (const [i, path] of files.entries()) {
    const facts = statSync(path, { throwIfNoEntry: false });
    if (!facts) throw new UsageError(`There is no file ${positionals[i]}`);
    if (!facts.isFile()) throw new UsageError(`${positionals[i]} is not a file`);
  }
  if (contains(inboxDir, resultsDir) || contains(resultsDir, inboxDir)) {
    throw new UsageError('The folders for inbox and results must not contain each other: results would become uploads');
  }
  return { help, inboxDir, resultsDir, files, service: serviceOf(values.service, env), showsCredentials };
}

function parse(arguments_: readonly string[]) {
  const text = { type: 'string' } as const;
  try {
    return parseArgs({
      args: [...arguments_],
      options: {
        ...{ inbox: text, results: text, service: text },
        credentials: { type: 'boolean' },
        help: { type: 'boolean', short: 'h' },
      },
      allowPositionals: true,
    });
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error), { cause: error });
  }
}

function serviceOf(given: string | undefined, env: NodeJS.ProcessEnv): Arguments['service'] {
  if (given === undefined) return undefined;
  const issue = issueOfBaseUrl(given);
  if (issue !== undefined) throw new UsageError(`--service: ${issue}`);
  const token = env.FLOWDROP_TOKEN;
  if (!token) throw new UsageError('--service needs a token in the environment variable FLOWDROP_TOKEN');
  return { url: given.replace(/\/+$/, ''), token };
}

function contains(outer: string, inner: string): boolean {
  const path = relative(outer, inner);
  return path !== '..' && !path.startsWith(`..${sep}`) && !isAbsolute(path);
}
