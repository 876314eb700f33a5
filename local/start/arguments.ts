import { accessSync, constants, statSync } from 'node:fs';
import { isAbsolute, relative, resolve, sep } from 'node:path';
import { type NamedFile, namedFiles, type Refused } from '../../command-line/named-files.ts';
import { parseOptions, UsageError } from '../../command-line/options.ts';
import { isLoopback } from '../../functions/flow-service/addresses.ts';
import { inputUrlSeconds, type ServiceDescription } from '../../functions/flow-service/service-description.ts';
import { issueOfBaseUrl } from '../../functions/settings/service-address.ts';
import { issueOfToken } from '../../operations/service-check.ts';

export const COMMAND = 'npm start';

export const USAGE = `Usage: npm start                     watch ./inbox until Ctrl-C
       npm start -- PATH...          process these files, and the files in these folders, and exit:
                                     0 if all succeeded, 1 if one failed
       npm start -- OPTION...

Options:
  --inbox DIR       the folder to watch          (default: ./inbox)
  --results DIR     the folder for the results   (default: ./results)
  --service URL     use this flow service instead of the built-in stand-in;
                    set its token in the environment variable FLOWDROP_TOKEN
  --open            open the page of this run in a browser
  --port NUMBER     the port of the page        (default: that of the last run,
                    or else any free one)
  --send-existing   send the files that are in the inbox already, although a flow
                    service sees them for the first time, and may charge for each
  --credentials     print the endpoint and the credentials of the S3 of this run,
                    for clients such as the AWS CLI, s3cmd and rclone
  --notify          post events to the addresses of deployment.notify
  --skip-check      do not ask the service first whether it can be used
  --check-service URL [FILE]
                    try a service with one small file: shows what is understood of
                    each answer, and exits: 0 if a result came. It may be paid for,
                    so it asks first
  --yes             with --check-service: do not ask
  --version         show the version
  --help            show this help`;

const PORT_MAX = 65_535;

export interface Arguments {
  /** What to show instead of a run. */
  readonly shows: 'help' | 'version' | undefined;
  /** Absolute path, as all paths here. */
  readonly inboxDir: string;
  readonly resultsDir: string;
  /** The files to process. Undefined: watch the inbox folder. */
  readonly files: readonly NamedFile[] | undefined;
  /** The options as they were given, to repeat them with another file. */
  readonly optionWords: readonly string[];
  /** What in the given folders cannot be read. */
  readonly unreadable: readonly Refused[];
  readonly service: { readonly url: string; readonly token: string } | undefined;
  /** Print how a client reaches the S3 of this run. */
  readonly showsCredentials: boolean;
  readonly skipCheck: boolean;
  /** Try the service with one file, instead of a run. */
  readonly checksService: boolean;
  /** Do not ask before that. */
  readonly isAllowed: boolean;
  /** Tell the targets of `deployment.notify`. */
  readonly notifies: boolean;
  /** Open the page in a browser. */
  readonly opensPage: boolean;
  /** The port of the page. 0: any free one. */
  readonly pagePort: number;
  /** Send what is in the inbox already to a service that sees it for the first time. */
  readonly sendsExisting: boolean;
}

/**
 * @param args the arguments after the program's name.
 * @throws {UsageError}
 */
export function parseArguments(
  args: readonly string[],
  { env, cwd }: { readonly env: NodeJS.ProcessEnv; readonly cwd: string },
): Arguments {
  const { values, positionals } = parse(args, env);
  const inboxDir = resolve(cwd, values.inbox ?? 'inbox');
  const resultsDir = resolve(cwd, values.results ?? 'results');
  const common = {
    optionWords: Object.entries(values).flatMap(([name, value]) =>
      typeof value === 'string' ? [`--${name}`, value] : [`--${name}`],
    ),
    inboxDir,
    resultsDir,
    showsCredentials: values.credentials === true,
    skipCheck: values['skip-check'] === true,
    checksService: values['check-service'] !== undefined,
    isAllowed: values.yes === true,
    notifies: values.notify === true,
    sendsExisting: values['send-existing'] === true,
    opensPage: values.open === true,
    pagePort: portOf(values.port),
  };
  const shows = values.help ? 'help' : values.version ? 'version' : undefined;
  if (shows !== undefined) return { ...common, shows, files: undefined, unreadable: [], service: undefined };

  if (positionals.length > 0 && values.inbox !== undefined) {
    throw new UsageError('--inbox watches a folder, so it cannot be combined with files');
  }
  if (positionals.length > 0 && values.credentials) {
    throw new UsageError('--credentials is for a run that goes on, so it cannot be combined with files');
  }
  if (positionals.length > 0 && (values.open || values.port !== undefined)) {
    throw new UsageError('The page is for a run that goes on, so --open and --port cannot be combined with files');
  }
  const service = serviceOf(values, env);
  if (values.notify && common.checksService) {
    throw new UsageError('--check-service starts no pipeline, so it cannot be combined with --notify');
  }
  if (values.yes && !common.checksService) throw new UsageError('--yes is for --check-service');
  if (positionals.length === 0 && common.checksService) {
    return { ...common, shows, files: undefined, unreadable: [], service };
  }
  if (positionals.length === 0) {
    requireInbox(inboxDir, resultsDir);
    return { ...common, shows, files: undefined, unreadable: [], service };
  }
  return { ...common, shows, ...filesAt(positionals, { cwd, resultsDir }), service };
}

function parse(args: readonly string[], env: NodeJS.ProcessEnv) {
  const text = { type: 'string' } as const;
  const flag = { type: 'boolean' } as const;
  return parseOptions(
    {
      command: COMMAND,
      options: {
        inbox: text,
        results: text,
        service: text,
        port: text,
        open: flag,
        credentials: flag,
        'skip-check': flag,
        'check-service': text,
        yes: flag,
        'send-existing': flag,
        notify: flag,
        version: flag,
        help: { type: 'boolean', short: 'h' },
      },
      allowPositionals: true,
    },
    { args, env },
  );
}

/** @throws {UsageError} */
function portOf(text = '0'): number {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : Number.NaN;
  if (port <= PORT_MAX) return port;
  throw new UsageError(`--port: expected a port from 0 to ${PORT_MAX}, got "${text}"`);
}

function filesAt(
  given: readonly string[],
  { cwd, resultsDir }: { readonly cwd: string; readonly resultsDir: string },
): Pick<Arguments, 'files' | 'unreadable'> {
  const paths = given.map((each) => resolve(cwd, each));
  for (const [i, path] of paths.entries()) {
    const shown = given[i] ?? path;
    const facts = factsOf(path);
    if (!facts) {
      throw new UsageError(
        /^https?:\/\//.test(shown)
          ? `${shown} is no file. Did you mean --service ${shown}?`
          : `There is no file ${shown}`,
      );
    }
    if (facts.isDirectory() && contains(path, resultsDir)) {
      throw new UsageError(`${shown} contains the folder for the results: earlier results would become uploads`);
    }
    if (!facts.isFile() && !facts.isDirectory()) throw new UsageError(`${shown} is neither a file nor a folder`);
  }
  const { files, unreadable } = namedFiles(paths);
  if (files.length === 0 && unreadable.length === 0) throw new UsageError(`There is no file in ${given.join(', ')}`);
  return { files, unreadable };
}

/** An inbox that does not exist is made later. */
function requireInbox(inboxDir: string, resultsDir: string): void {
  if (contains(inboxDir, resultsDir) || contains(resultsDir, inboxDir)) {
    throw new UsageError('The folders for inbox and results must not contain each other: results would become uploads');
  }
  const facts = factsOf(inboxDir);
  if (facts === undefined) return;
  if (!facts.isDirectory()) {
    throw new UsageError(`The inbox ${inboxDir} is not a folder. Name a folder: it need not exist`);
  }
  try {
    accessSync(inboxDir, constants.R_OK | constants.X_OK);
  } catch (cause) {
    throw new UsageError(`The inbox ${inboxDir} cannot be read. Allow this user to read it`, { cause });
  }
}

/** Undefined if there is nothing at the path. */
function factsOf(path: string) {
  try {
    return statSync(path, { throwIfNoEntry: false });
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (code === 'ENOTDIR' || code === 'ENAMETOOLONG') return undefined;
    throw new UsageError(`${path} cannot be read (${code})`, { cause });
  }
}

function serviceOf(
  values: { readonly service?: string | undefined; readonly 'check-service'?: string | undefined },
  env: NodeJS.ProcessEnv,
): Arguments['service'] {
  const { service, 'check-service': checked } = values;
  if (service !== undefined && checked !== undefined) {
    throw new UsageError('--check-service names the service itself, so it cannot be combined with --service');
  }
  const option = checked === undefined ? '--service' : '--check-service';
  const given = checked ?? service;
  if (given === undefined) return undefined;
  const issue = issueOfBaseUrl(given);
  if (issue !== undefined) throw new UsageError(`${option}: ${issue}`);
  return { url: given.replace(/\/+$/, ''), token: tokenIn(env.FLOWDROP_TOKEN, option) };
}

/**
 * Refuses a service that would fetch files from where there are none for it: from the S3 of this machine if it is
 * elsewhere, and in any case for a trial, which has no S3.
 * @throws {UsageError}
 */
export function requireReach(
  { url, checksService }: { readonly url: string; readonly checksService: boolean },
  speaks: ServiceDescription,
): void {
  if (inputUrlSeconds(speaks) === undefined) return;
  if (checksService) {
    throw new UsageError(
      '--check-service has no bucket from which the service could fetch the file ({inputUrl}). Declare "{input}" in ' +
        'service.create.body for the trial, if the service takes it, or put one file into a deployed pipeline',
    );
  }
  if (isLoopback(new URL(url))) return;
  throw new UsageError(
    `--service: the service would fetch each file ({inputUrl}) from the S3 of this machine, which ${url} cannot reach. ` +
      'Deploy the pipeline, declare "{input}" in service.create.body, or use a service on this machine',
  );
}

/** The messages do not quote the token: even a malformed one is a secret. */
function tokenIn(text: string | undefined, option: string): string {
  const token = text?.trim();
  if (!token) throw new UsageError(`${option} needs a token in the environment variable FLOWDROP_TOKEN`);
  const issue = issueOfToken(token);
  if (issue === undefined) return token;
  throw new UsageError(`The token in FLOWDROP_TOKEN ${issue}. Set it to the token alone`);
}

function contains(outer: string, inner: string): boolean {
  const path = relative(outer, inner);
  return path !== '..' && !path.startsWith(`..${sep}`) && !isAbsolute(path);
}
